/* block_mask.c - see block_mask.h.
 * Kernel: attention/block_mask.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/block_mask.h"

#include "op/attention/attention_ways.h"

static int64_t pitch_of(const k_score_rule *rule) {
    return MP_ALIGN_UP(rule->keys, (int64_t)K_BLOCK_MASK_PACK);
}

/* Bytes of what a block of lanes marks: a pack for each of two blocks of queries. */
static int64_t marks_of(const k_score_rule *rule) {
    return 2 * pitch_of(rule) / K_BLOCK_MASK_PACK;
}

bool mp_blocks_as_mask(const mp_planner *p, const mp_attention *a) {
    enum { ROWS_MIN = 64, BYTES_MAX = 1 << 28, MARKS_MAX = 1 << 15 /* of shared memory */ };
    const k_score_rule *rule = &a->rule;
    int64_t bytes = 0;
    return rule->blocks.size > 0 && rule->blocks.size % K_BLOCK_MASK_PACK == 0 &&
           marks_of(rule) <= MARKS_MAX && rule->mask_kind == K_MASK_NONE &&
           rule->rows >= ROWS_MIN &&
           !__builtin_mul_overflow(rule->batch * rule->heads, rule->rows, &bytes) &&
           !__builtin_mul_overflow(bytes, pitch_of(rule), &bytes) && bytes <= BYTES_MAX &&
           a->debug_mode == MP_DEBUG_NONE && mp_attention_can_mma(p, a);
}

mp_status mp_plan_block_mask(mp_planner *p, mp_attention *a) {
    enum { LANES = 128 };
    k_score_rule *rule = &a->rule;
    const int64_t rows = rule->batch * rule->heads * rule->rows, pitch = pitch_of(rule);
    const mp_block_mask_args args = {.pitch = pitch, .rule = *rule};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_scratch(p, (size_t)(rows * pitch), &a->mask));
    MP_TRY(mp_plan_kernel(p, &kernel, "block_mask"));
    const int64_t tiles = MP_CEIL_DIV(rule->rows, (int64_t)K_BLOCK_MASK_ROWS);
    mp_grid grid = mp_plan_grid_rows(p, rule->batch * rule->heads * tiles, LANES);
    grid.shared_bytes = (uint32_t)marks_of(rule);
    MP_TRY(MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_block_mask_args, out, a->mask),
                     MP_BIND(mp_block_mask_args, rule.lengths, a->lengths),
                     MP_BIND(mp_block_mask_args, rule.blocks.starts, a->block_starts),
                     MP_BIND(mp_block_mask_args, rule.blocks.columns, a->block_columns)));
    const int64_t stride[] = {rule->heads * rule->rows * pitch, rule->rows * pitch, pitch, 1};
    memcpy(rule->mask_stride, stride, sizeof stride);
    rule->mask_kind = K_MASK_BOOL;
    rule->blocks = (k_block_rule){.size = 0};
    a->block_starts = a->block_columns = MP_NOWHERE;
    return MP_OK;
}
