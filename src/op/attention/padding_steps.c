/* padding_steps.c - see padding_steps.h.
 * Kernel: attention/padding_rows.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/padding_steps.h"

#include "op/move/strided_copy.h"

mp_status mp_plan_padding(mp_planner *p, const mp_padding *pad) {
    const size_t size = mp_dtype_size(pad->type);
    mp_padding_args args = {.batch = pad->batch,
                            .length = pad->length,
                            .given = pad->given,
                            .rows = pad->rows,
                            .kind = (int32_t)pad->kind};
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
        return mp_plan_fill(p, pad->out, 0, 1, (size_t)pad->rows * (size_t)bytes);
    }
    size_t unit = mp_move_unit(p, bytes, size);
    while (unit > size && (pad->x.offset % unit != 0 || pad->out.offset % unit != 0)) {
        unit /= 2;
    }
    args.units = bytes / (int64_t)unit;
    MP_TRY(mp_plan_kernel(p, &kernel, "padding_rows_b%zu", unit * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.rows * args.units, 1), args,
                     MP_BIND(mp_padding_args, x, pad->x), MP_BIND(mp_padding_args, out, pad->out),
                     MP_BIND(mp_padding_args, starts, pad->starts),
                     MP_BIND(mp_padding_args, places, pad->places));
}
