/* norm_steps.c - see norm_steps.h.
 * Kernel: rows/norm.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/rows/norm_steps.h"

#include "op/core/row_grid.h"

/* Whether rows are packed, as the kernel calls it: all tensors are aligned, and so then are rows.
 */
static bool is_packed(const mp_planner *p, const mp_norm *n) {
    const mp_norm_args *args = &n->args;
    const int64_t pack = 16 / (int64_t)mp_dtype_size(n->type);
    const int64_t neighbours = args->per_row > 0 ? args->inner : args->columns;
    return p->align >= 16 && args->columns % pack == 0 && neighbours % pack == 0 &&
           args->columns <= mp_row_keep(n->type) * args->width;
}

mp_status mp_plan_norm(mp_planner *p, mp_norm *n) {
    const mp_kernel *kernel = NULL;
    if (n->args.rows == 0 || n->args.columns == 0) {
        return MP_OK;
    }
    n->args.skip_rows = n->args.skip_rows > 0 ? n->args.skip_rows : 1;
    const mp_grid grid =
        mp_row_grid(p, n->type, n->args.rows, n->args.columns, false, &n->args.width);
    MP_TRY(mp_plan_kernel(p, &kernel, "norm_%s_%s_%s", is_packed(p, n) ? "packed" : "edged",
                          mp_dtype_word(n->type), mp_dtype_word(n->out_type)));
    return MP_LAUNCH(p, kernel, grid, n->args, MP_BIND(mp_norm_args, x, n->x),
                     MP_BIND(mp_norm_args, skip, n->skip), MP_BIND(mp_norm_args, add, n->add),
                     MP_BIND(mp_norm_args, scale, n->scale), MP_BIND(mp_norm_args, bias, n->bias),
                     MP_BIND(mp_norm_args, out, n->out), MP_BIND(mp_norm_args, sum, n->sum),
                     MP_BIND(mp_norm_args, mean, n->mean),
                     MP_BIND(mp_norm_args, inverse, n->inverse));
}
