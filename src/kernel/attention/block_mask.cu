/* block_mask.cu - which keys each query of a head sees by the blocks of its row, as a mask of bool
 * for kernels that know masks and no blocks. A block of lanes has some rows of a head, which lie in
 * two blocks of queries at most; what these see is marked in shared memory, a byte for each pack of
 * keys, and then the rows are written. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"

enum { PACK = K_BLOCK_MASK_PACK };

typedef struct K_ALIGN(PACK) bm_pack {
    uint8_t at[PACK];
} bm_pack;

K_FN bm_pack bm_all(uint8_t flag) {
    bm_pack pack;
    K_UNROLL
    for (int i = 0; i < PACK; i++) {
        pack.at[i] = flag;
    }
    return pack;
}

/* The block of a position; those before the first one are in a block that sees nothing. */
K_FN int64_t bm_block(const k_score_rule *rule, int64_t position) {
    return position < 0 ? -1 : (int64_t)((uint64_t)position / (uint32_t)rule->blocks.size);
}

/* Marks the packs that a row of blocks sees; a block that is out of range is none. */
K_FN void bm_mark(const k_score_rule *rule, int64_t head, int64_t row, int64_t packs,
                  uint8_t *shown) {
    const k_block_rule *blocks = &rule->blocks;
    const int64_t each = blocks->size / PACK;
    const a_span columns = a_columns(blocks, head, row * blocks->size);
    K_BLOCK_LOOP(c, columns.to - columns.from) {
        const int64_t pack = blocks->columns[columns.from + c] * each;
        for (int64_t i = pack; i < pack + each && pack >= 0 && i < packs; i++) {
            shown[i] = 1;
        }
    }
}

K_BLOCK_KERNEL(mp_block_mask_args, args) {
    K_SHARED(uint8_t, shown);
    const k_score_rule *rule = &args.rule;
    const int64_t packs = args.pitch / PACK, each = K_BLOCK_MASK_ROWS;
    const int64_t tiles = (rule->rows + each - 1) / each;
    for (int64_t i = blockIdx.x; i < rule->batch * rule->heads * tiles; i += gridDim.x) {
        const int64_t line = i / tiles, entry = line / rule->heads,
                      head = line - entry * rule->heads;
        const int64_t first = (i - line * tiles) * each, left = rule->rows - first;
        const int64_t count = left < each ? left : each;
        const int64_t position = a_position(rule, a_length(rule, entry), first);
        const int64_t one = bm_block(rule, position);
        K_BLOCK_LOOP(pack, 2 * packs) {
            shown[pack] = 0;
        }
        __syncthreads();
        bm_mark(rule, head, one, packs, shown);
        bm_mark(rule, head, one + 1, packs, shown + packs);
        __syncthreads();
        bm_pack *out = (bm_pack *)args.out + (line * rule->rows + first) * packs;
        K_BLOCK_LOOP(at, count * packs) {
            const int64_t row = (uint32_t)at / (uint32_t)packs;
            const int64_t other = bm_block(rule, position + row) != one;
            out[at] = bm_all(shown[other * packs + at - row * packs]);
        }
        __syncthreads();
    }
}
