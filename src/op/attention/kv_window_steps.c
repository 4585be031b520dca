/* kv_window_steps.c - see kv_window_steps.h. What goes may still be read by the tokens that take
 * its place, and the caches are often one memory; so the rows that there were and the fresh ones
 * are put side by side, and those that stay are moved back.
 * Kernels: attention/kv_window.cu, attention/kv_keep.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/kv_window_steps.h"

#include "op/move/strided_copy.h"

static mp_kv_window_args args_of(const mp_kv_window *w) {
    return (mp_kv_window_args){.batch = w->append.batch,
                               .heads = w->append.heads,
                               .fresh_rows = w->append.fresh_rows,
                               .all_rows = w->all_rows,
                               .capacity = w->append.present_rows,
                               .spare = w->append.present_rows - w->window,
                               .prompt = w->append.prompt};
}

static mp_status plan_lengths(mp_planner *p, const mp_kv_window *w) {
    const mp_kv_window_args args = args_of(w);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "kv_window"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.batch, 1), args,
                     MP_BIND(mp_kv_window_args, lengths, w->append.lengths),
                     MP_BIND(mp_kv_window_args, used, w->lengths));
}

mp_status mp_plan_kv_window(mp_planner *p, mp_kv_window *w, mp_kv_append *append) {
    w->append = *append;
    append->past_rows = append->past_used = append->prompt ? 0 : append->past_rows;
    w->all_rows = append->past_rows + append->fresh_rows;
    append->present_rows = w->all_rows;
    const mp_shape line = {.rank = 1, .dim = {append->batch}};
    MP_TRY(mp_plan_scratch_shape(p, &line, MP_I32, &w->lengths));
    append->lengths = w->lengths;
    for (int side = 0; side < 2; side++) {
        const mp_shape all = {
            .rank = 4, .dim = {append->batch, append->heads, w->all_rows, append->size[side]}};
        MP_TRY(mp_plan_scratch_shape(p, &all, append->type, &w->all[side]));
        append->present[side] = w->all[side];
    }
    return append->batch > 0 ? plan_lengths(p, w) : MP_OK;
}

mp_status mp_plan_kv_keep(mp_planner *p, const mp_kv_window *w) {
    const size_t size = mp_dtype_size(w->append.type);
    mp_kv_window_args args = args_of(w);
    size_t unit = 16;
    for (int side = 0; side < 2; side++) {
        const size_t row = mp_move_unit(p, w->append.size[side] * (int64_t)size, size);
        unit = MP_MIN(row, unit);
    }
    for (int side = 0; side < 2; side++) {
        args.units[side] = w->append.size[side] / (int64_t)(unit / size);
    }
    const int64_t count = args.batch * args.heads * args.capacity * (args.units[0] + args.units[1]);
    if (count == 0) {
        return MP_OK;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "kv_keep_b%zu", unit * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, 1), args,
                     MP_BIND(mp_kv_window_args, all[0], w->all[0]),
                     MP_BIND(mp_kv_window_args, all[1], w->all[1]),
                     MP_BIND(mp_kv_window_args, present[0], w->append.present[0]),
                     MP_BIND(mp_kv_window_args, present[1], w->append.present[1]),
                     MP_BIND(mp_kv_window_args, lengths, w->append.lengths),
                     MP_BIND(mp_kv_window_args, used, w->lengths));
}
