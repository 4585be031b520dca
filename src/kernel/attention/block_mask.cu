/* block_mask.cu - which keys each query of a head sees by the blocks of its row, as a mask of bool
 * for kernels that know masks and no blocks. A block of lanes makes a row at a time: nothing is
 * seen first, and then the keys of each block that the row names. Bound by memory.
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

/* Keys of the blocks that columns [from, to) name; one that is out of range names none. */
K_FN void bm_show(const mp_block_mask_args *args, a_span columns, bm_pack *row) {
    const k_block_rule *blocks = &args->rule.blocks;
    const int64_t packs = blocks->size / PACK, most = (args->rule.keys + PACK - 1) / PACK;
    K_BLOCK_LOOP(i, (columns.to - columns.from) * packs) {
        const int64_t at = i / packs, block = blocks->columns[columns.from + at];
        const int64_t pack = block * packs + i - at * packs;
        if (block >= 0 && pack < most) {
            row[pack] = bm_all(1);
        }
    }
}

K_BLOCK_KERNEL(mp_block_mask_args, args) {
    const k_score_rule *rule = &args.rule;
    const int64_t packs = args.pitch / PACK;
    for (int64_t i = blockIdx.x; i < rule->batch * rule->heads * rule->rows; i += gridDim.x) {
        const int64_t line = i / rule->rows, entry = line / rule->heads;
        const int64_t length = a_length(rule, entry);
        const int64_t position = a_position(rule, length, i - line * rule->rows);
        const a_span columns = a_columns(&rule->blocks, line - entry * rule->heads, position);
        bm_pack *row = (bm_pack *)args.out + i * packs;
        K_BLOCK_LOOP(pack, packs) {
            row[pack] = bm_all(0);
        }
        __syncthreads();
        bm_show(&args, columns, row);
    }
}
