/* attention_few_steps.c - attention of a few queries of each key head, whose keys are shared by
 * several blocks where there are many.
 * Kernels: attention/attention_combine.cu, attention/attention_few.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_ways.h"

enum { BLOCKS_WANTED = 4 /* a multiprocessor */ };

/* Lanes that share a key, a slice of the head each. */
static int32_t lanes_of_head(const mp_attention *a) {
    const int64_t size = MP_MAX(a->head_size, a->v_head_size);
    int32_t lanes = 1;
    while ((int64_t)lanes * K_ATTENTION_SLICE < size) {
        lanes *= 2;
    }
    return lanes;
}

mp_status mp_plan_attention_combine(mp_planner *p, mp_dtype type, const mp_attention_args *args,
                                    const mp_kernel **kernel, mp_grid *grid) {
    const k_score_rule *rule = &args->rule;
    MP_TRY(mp_plan_kernel(p, kernel, "attention_combine_%s", mp_dtype_word(type)));
    *grid = mp_plan_grid_rows(p, rule->batch * rule->heads * rule->rows, K_ATTENTION_LANES);
    grid->shared_bytes = (uint32_t)args->splits * 2 * (uint32_t)sizeof(float);
    return MP_OK;
}

mp_status mp_plan_attention_few(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int64_t rows = rule->group * rule->rows;
    const int at_once = rows == 1 ? 1 : 4; /* more would leave too few registers for loads ahead */
    mp_attention_args args = mp_attention_args_of(p, a);
    args.group_lanes = lanes_of_head(a);
    args.groups = K_ATTENTION_LANES / args.group_lanes;
    const int64_t units = rule->batch * rule->kv_heads * MP_CEIL_DIV(rows, at_once);
    const int64_t round = (int64_t)args.groups * K_ATTENTION_AHEAD(at_once); /* keys, of a block */
    const int64_t wanted = (int64_t)p->device->info.multiprocessors * BLOCKS_WANTED / units;
    const int64_t splits = MP_MIN(wanted, MP_CEIL_DIV(rule->keys, round));
    if (splits > 1) {
        args.split_keys = MP_ALIGN_UP(MP_CEIL_DIV(rule->keys, splits), round);
        args.splits = MP_CEIL_DIV(rule->keys, args.split_keys);
    }
    const int64_t pitch = a->v_head_size + K_ATTENTION_STATE;
    mp_ref part = MP_NOWHERE;
    if (args.splits > 1) {
        const mp_shape shape = {
            .rank = 3, .dim = {rule->batch * rule->heads * rule->rows, args.splits, pitch}};
        MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, &part));
    }
    const char *how = a->cache != NULL ? "cache_" : args.wide ? "wide_" : "";
    const mp_kernel *kernel = NULL;
    MP_TRY(
        mp_plan_kernel(p, &kernel, "attention_few_%s%d_%s", how, at_once, mp_dtype_word(a->type)));
    mp_grid grid = mp_plan_grid_rows(p, units * args.splits, K_ATTENTION_LANES);
    grid.shared_bytes =
        (uint32_t)((args.groups * (pitch + 1) + 1) * at_once) * (uint32_t)sizeof(float);
    MP_TRY(mp_attention_launch(p, a, kernel, grid, &args, part));
    if (args.splits == 1) {
        return MP_OK;
    }
    MP_TRY(mp_plan_attention_combine(p, a->type, &args, &kernel, &grid));
    return mp_attention_launch(p, a, kernel, grid, &args, part);
}
