/* embed.cu - the sum of the embeddings of a word, of its segment and of its position. Bound by
 * memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/rows/row_args.h"

#define E_edged  0
#define E_packed 1
enum { PACK = K_JOIN(E_, K_ROWS) ? 16 / sizeof(T) : 1 };
typedef struct K_ALIGN(sizeof(T) * PACK) e_pack {
    T at[PACK];
} e_pack;

K_FN int64_t e_near(int64_t index, int64_t count) {
    return index < 0 ? 0 : index >= count ? count - 1 : index;
}

K_KERNEL(mp_embed_args, args) {
    const e_pack *words = (const e_pack *)args.words;
    const e_pack *segments = (const e_pack *)args.segments;
    const e_pack *positions = (const e_pack *)args.positions;
    K_GRID_LOOP(i, args.count) {
        const int64_t row =
            args.wide ? i / args.columns : (int64_t)k_divide((uint32_t)i, args.by_columns);
        const int64_t column = i - row * args.columns;
        const int64_t place =
            args.position_ids ? args.position_ids[row % args.position_rows] : row % args.sequence;
        const int64_t word = e_near(args.word_ids[row], args.word_count);
        const int64_t position = e_near(place, args.position_count);
        const e_pack first = words[word * args.columns + column];
        const e_pack second = positions[position * args.columns + column];
        e_pack third = first, sum;
        if (segments) {
            const int64_t given = args.segment_ids ? args.segment_ids[row] : 0;
            third = segments[e_near(given, args.segment_count) * args.columns + column];
        }
        K_UNROLL
        for (int k = 0; k < PACK; k++) {
            const TC both = T_load(first.at[k]) + T_load(second.at[k]);
            sum.at[k] = T_store(segments ? both + T_load(third.at[k]) : both);
        }
        ((e_pack *)args.out)[i] = sum;
    }
}
