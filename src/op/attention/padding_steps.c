/* padding_steps.c - see padding_steps.h.
 * Kernel: attention/padding_rows.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/padding_steps.h"

#include "op/move/strided_copy.h"

static mp_status fill(mp_planner *p, const mp_padding *pad, size_t bytes) {
    for (int i = 0; i < pad->count; i++) {
        MP_TRY(mp_plan_fill(p, pad->out[i], 0, 1, bytes));
    }
    return MP_OK;
}

/* Bytes that all tensors' rows can be moved by. */
static size_t unit_of(const mp_planner *p, const mp_padding *pad, int64_t row_bytes) {
    const size_t size = mp_dtype_size(pad->type);
    size_t unit = mp_move_unit(p, row_bytes, size);
    for (int i = 0; i < pad->count; i++) {
        while (unit > size && (pad->x[i].offset % unit != 0 || pad->out[i].offset % unit != 0)) {
            unit /= 2;
        }
    }
    return unit;
}

#define BIND_TENSOR(i, pad)                                                         \
    MP_BIND(mp_padding_args, x[i], (i) < (pad)->count ? (pad)->x[i] : (pad)->x[0]), \
        MP_BIND(mp_padding_args, out[i], (i) < (pad)->count ? (pad)->out[i] : (pad)->out[0])

mp_status mp_plan_padding(mp_planner *p, const mp_padding *pad) {
    const size_t size = mp_dtype_size(pad->type);
    mp_padding_args args = {.batch = pad->batch,
                            .length = pad->length,
                            .given = pad->given,
                            .rows = pad->rows,
                            .kind = (int32_t)pad->kind,
                            .count = pad->count,
                            .before = pad->before};
    int64_t bytes = 0;
    const mp_kernel *kernel = NULL;
    if (pad->rows == 0 || pad->width == 0) {
        return MP_OK;
    }
    if (__builtin_mul_overflow(pad->width, (int64_t)size, &bytes)) {
        return MP_FAIL(INVALID_ARGUMENT, "rows of %lld elements are too long",
                       (long long)pad->width);
    }
    if (pad->kind != K_ROWS_LISTED && pad->batch == 0) {
        return fill(p, pad, (size_t)pad->rows * (size_t)bytes);
    }
    const size_t unit = unit_of(p, pad, bytes);
    args.units = bytes / (int64_t)unit;
    MP_TRY(mp_plan_kernel(p, &kernel, "padding_rows_b%zu", unit * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.rows * args.units, 1), args,
                     BIND_TENSOR(0, pad), BIND_TENSOR(1, pad), BIND_TENSOR(2, pad),
                     MP_BIND(mp_padding_args, starts, pad->starts),
                     MP_BIND(mp_padding_args, places, pad->places));
}
