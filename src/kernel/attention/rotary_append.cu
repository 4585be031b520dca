/* rotary_append.cu - what becomes of the new tokens of a decoder before attention, in one go: heads
 * of queries and of keys are rotated, and keys and values may go straight to their places in the
 * caches. A lane takes two pieces of 16 bytes, which hold pairs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/rotary.h"
#include "kernel/core/index.h"

/* Rows of the caches before an entry's first new token, and the place of that token. */
typedef struct n_first {
    int64_t row, position;
} n_first;

K_FN n_first n_first_of(const mp_rotary_append_args *args, int64_t length) {
    const int64_t before = args->prompt ? 0 : length + 1 - args->rows;
    const int64_t most = args->present_rows - args->rows;
    const n_first first = {before < 0 ? 0 : before < most ? before : most, before};
    return first;
}

/* Where the angles of a token begin. */
K_FN int64_t n_angles(const mp_rotary_append_args *args, int64_t entry, int64_t head, int64_t row,
                      int64_t first) {
    const int64_t last = args->cache_rows - 1, token = entry * args->rows + row;
    int64_t position = first + row;
    if (args->position_kind == K_POSITION_STRIDED) {
        return entry * args->cache_stride[0] + head * args->cache_stride[1] +
               row * args->cache_stride[2];
    }
    if (args->position_kind == K_POSITION_GIVEN) {
        position = ((const int64_t *)args->positions)[token];
    } else if (args->position_kind == K_POSITION_TOKEN) {
        position = token;
    } else if (args->position_kind == K_POSITION_PAST) {
        position = args->past + row;
    }
    return (position < 0 ? 0 : position < last ? position : last) * args->half;
}

K_KERNEL(mp_rotary_append_args, args) {
    K_GRID_LOOP(i, args.count) {
        const uint32_t line = k_divide((uint32_t)i, args.by_pieces);
        const uint32_t token = k_divide(line, args.by_heads);
        const uint32_t entry = k_divide(token, args.by_rows);
        const int32_t piece = (int32_t)((uint32_t)i - line * (uint32_t)args.pieces) * PACK;
        const int32_t any = (int32_t)(line - token * (uint32_t)args.heads);
        const int64_t row = token - entry * (uint32_t)args.rows;
        const int32_t side = (any >= args.first[1]) + (any >= args.first[2]);
        const k_rotary_side *s = &args.side[side];
        const int64_t head = any - args.first[side];
        const T *x =
            (const T *)s->x + entry * s->x_stride[0] + head * s->x_stride[1] + row * s->x_stride[2];
        const int32_t is_turned = piece < args.half && side < 2;
        const int32_t is_split = piece < args.half && !args.interleaved;
        const int32_t at = is_split ? piece : 2 * piece;
        const int32_t other = is_split ? piece + args.half : at + PACK;
        r_pack a = r_read(x + at), b = r_read(x + other);
        const int64_t length = args.lengths != 0 ? ((const int32_t *)args.lengths)[entry] : 0;
        const n_first first = n_first_of(&args, length);
        if (is_turned) {
            const int64_t angle = n_angles(&args, entry, head, row, first.position) + piece;
            const r_pack cosine = r_read((const T *)args.cosine + angle);
            const r_pack sine = r_read((const T *)args.sine + angle);
            if (args.interleaved) {
                r_turn_packs(&a, &b, &cosine, &sine, 1, args.scale);
            } else {
                r_turn_packs(&a, &b, &cosine, &sine, 0, args.scale);
            }
        }
        T *out = (T *)s->out + entry * s->out_stride[0] + head * s->out_stride[1] +
                 (row + (s->appends ? first.row : 0)) * s->out_stride[2];
        r_write(out + at, a);
        r_write(out + other, b);
    }
}
