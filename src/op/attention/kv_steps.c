/* kv_steps.c - caches of keys and values grow.
 * Kernel: attention/kv_append.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/kv_steps.h"

#include "op/move/strided_copy.h"

/* The largest unit in which rows of both caches and the fresh ones can be moved. */
static size_t unit_of(const mp_planner *p, const mp_kv_append *a) {
    const size_t size = mp_dtype_size(a->type);
    size_t unit = 16;
    for (int side = 0; side < 2; side++) {
        const mp_heads *fresh = &a->fresh[side];
        const size_t row = mp_move_unit(p, a->size[side] * (int64_t)size, size);
        unit = MP_MIN(row, unit);
        for (int d = 0; d < 3; d++) {
            while (unit > size && (fresh->stride[d] * (int64_t)size % (int64_t)unit != 0 ||
                                   fresh->ref.offset % unit != 0)) {
                unit /= 2;
            }
        }
    }
    return unit;
}

bool mp_kv_append_is_fresh(const mp_kv_append *a) {
    const int64_t room = a->past_rows > 0 ? a->past_rows : a->fresh_rows;
    return a->present_rows == room && a->beams_of.place == MP_PLACE_NONE;
}

/* A cache of the same size as the past one is a copy of it, or it itself. */
mp_status mp_plan_kv_past(mp_planner *p, const mp_kv_append *a) {
    for (int side = 0; side < 2; side++) {
        const mp_shape shape = {.rank = 4,
                                .dim = {a->batch, a->heads, a->past_rows, a->size[side]}};
        size_t bytes = 0;
        MP_TRY(mp_shape_bytes(&shape, a->type, &bytes));
        MP_TRY(mp_plan_copy(p, a->present[side], a->past[side], bytes));
    }
    return MP_OK;
}

mp_status mp_plan_kv_append(mp_planner *p, const mp_kv_append *a) {
    const bool fresh_only = a->past_rows > 0 && mp_kv_append_is_fresh(a);
    if (fresh_only) {
        MP_TRY(mp_plan_kv_past(p, a));
    }
    const int64_t visited = fresh_only ? a->fresh_rows : a->present_rows;
    const int64_t lines = a->batch * a->heads * visited;
    if (lines == 0 || a->size[0] + a->size[1] == 0) {
        return MP_OK;
    }
    const size_t size = mp_dtype_size(a->type);
    const size_t unit = unit_of(p, a);
    mp_kv_append_args args = {.batch = a->batch,
                              .heads = a->heads,
                              .past_rows = a->past_rows,
                              .fresh_rows = a->fresh_rows,
                              .present_rows = a->present_rows,
                              .past_used = a->past_used,
                              .beams = a->beams,
                              .visited = visited,
                              .fresh_only = fresh_only,
                              .prompt = a->prompt};
    const int64_t shrink = (int64_t)(unit / size);
    for (int side = 0; side < 2; side++) {
        args.units[side] = a->size[side] / shrink;
        for (int d = 0; d < 3; d++) {
            args.fresh_stride[side][d] = a->fresh[side].stride[d] / shrink;
        }
    }
    const int64_t count = lines * (args.units[0] + args.units[1]);
    args.wide = count > INT32_MAX;
    if (!args.wide) {
        args.by_units[0] = mp_divider((uint32_t)(args.units[0] > 0 ? args.units[0] : 1));
        args.by_units[1] = mp_divider((uint32_t)(args.units[1] > 0 ? args.units[1] : 1));
        args.by_rows = mp_divider((uint32_t)visited);
        args.by_heads = mp_divider((uint32_t)a->heads);
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "kv_append_b%zu", unit * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, 1), args,
                     MP_BIND(mp_kv_append_args, past[0], a->past[0]),
                     MP_BIND(mp_kv_append_args, past[1], a->past[1]),
                     MP_BIND(mp_kv_append_args, fresh[0], a->fresh[0].ref),
                     MP_BIND(mp_kv_append_args, fresh[1], a->fresh[1].ref),
                     MP_BIND(mp_kv_append_args, present[0], a->present[0]),
                     MP_BIND(mp_kv_append_args, present[1], a->present[1]),
                     MP_BIND(mp_kv_append_args, lengths, a->lengths),
                     MP_BIND(mp_kv_append_args, beams.of, a->beams_of));
}
