/* cumulative.c - CumSum and CumProd.
 * Kernel: rows/cumulative.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/row_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/core/row_shape.h"

enum { LANES = 256, PIECE_MIN = 8192 };

/* Sums and products wrap, so signed integers are scanned as unsigned ones. */
static const char *word_of(mp_dtype dtype) {
    return mp_dtype_word(dtype == MP_I32 ? MP_U32 : dtype == MP_I64 ? MP_U64 : dtype);
}

/* One lane a row where rows are neighbours in memory and many, or short. */
static bool prefers_lane(const mp_planner *p, const mp_cumulative_args *args) {
    const int64_t many = (int64_t)p->device->info.multiprocessors * 128;
    return args->columns <= 16 || (args->inner >= 16 && args->rows >= many);
}

static mp_status launch(mp_planner *p, const mp_kernel *kernel, mp_cumulative_args args,
                        int32_t stage, int64_t blocks, mp_ref carries) {
    const int64_t pack = 16 / (int64_t)mp_dtype_size(p->in[0].type);
    const int64_t width = stage == K_CUMULATIVE_CARRIES ? args.pieces : args.piece / pack;
    uint32_t lanes = LANES;
    while (stage != K_CUMULATIVE_LANES && lanes > 32 && lanes > width) {
        lanes /= 2;
    }
    args.stage = stage;
    const mp_ref out =
        stage == K_CUMULATIVE_TOTALS || stage == K_CUMULATIVE_CARRIES ? MP_NOWHERE : MP_OUT(0);
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, blocks, lanes), args,
                     MP_BIND(mp_cumulative_args, x, MP_IN(0)),
                     MP_BIND(mp_cumulative_args, out, out),
                     MP_BIND(mp_cumulative_args, carries, carries));
}

static mp_status plan_scan(mp_planner *p) {
    const bool *product = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    int64_t asked = 0;
    int count = 0, axis = 0;
    MP_TRY(mp_host_ints(p, 1, "axis", 1, &asked, &count));
    if (count != 1) {
        return MP_FAIL(INVALID_ARGUMENT, "axis has %d values; one is needed", count);
    }
    if (x->shape.rank > 0) {
        MP_TRY(mp_shape_axis(asked, x->shape.rank, "axis", &axis));
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    const mp_rows r = mp_rows_along(&x->shape, axis);
    if (r.rows == 0 || r.columns == 0) {
        return MP_OK;
    }
    mp_cumulative_args args = {.rows = r.rows,
                               .columns = r.columns,
                               .inner = r.inner,
                               .product = *product,
                               .exclusive = mp_node_int(p->node, "exclusive", 0) != 0,
                               .reverse = mp_node_int(p->node, "reverse", 0) != 0};
    const mp_kernel *kernel = NULL;
    mp_ref carries = MP_NOWHERE;
    MP_TRY(mp_plan_kernel(p, &kernel, "scan_%s", word_of(x->type)));
    args.packed =
        p->align >= 16 && r.inner == 1 && r.columns * (int64_t)mp_dtype_size(x->type) % 16 == 0;
    if (prefers_lane(p, &args)) {
        return launch(p, kernel, args, K_CUMULATIVE_LANES, MP_CEIL_DIV(r.rows, LANES), MP_NOWHERE);
    }
    args.pieces = mp_row_pieces(r.rows, r.columns, p->device->info.multiprocessors, PIECE_MIN);
    args.piece = MP_ALIGN_UP(MP_CEIL_DIV(r.columns, args.pieces), 16);
    args.pieces = MP_CEIL_DIV(r.columns, args.piece);
    const int64_t parts = r.rows * args.pieces;
    if (args.pieces > 1) {
        MP_TRY(mp_plan_scratch(p, (size_t)parts * 8, &carries));
        MP_TRY(launch(p, kernel, args, K_CUMULATIVE_TOTALS, parts, carries));
        MP_TRY(launch(p, kernel, args, K_CUMULATIVE_CARRIES, r.rows, carries));
    }
    return launch(p, kernel, args, K_CUMULATIVE_WRITE, parts, carries);
}

/* ---- the rows ---- */

static const mp_attr_def attrs[] = {
    {"exclusive", MP_ATTR_INT}, {"reverse", MP_ATTR_INT}, {NULL, 0}};
static const bool sum = false, product = true;

enum {
    WHOLE = 1u << MP_I32 | 1u << MP_I64 | 1u << MP_U32 | 1u << MP_U64,
    OLD = 1u << MP_F32 | 1u << MP_F64 | WHOLE,
    INDEX = 1u << MP_I32 | 1u << MP_I64,
};

#define SCAN(op_name, from, to, set, which)                                         \
    {                                                                               \
        .domain = "", .name = (op_name), .since = (from), .until = (to),            \
        .types = {{"T", (set)}, {"T2", INDEX}}, .host_in = 1u << 1, .attrs = attrs, \
        .plan = plan_scan, .detail = (which)                                        \
    }

static const mp_op ops[] = {
    SCAN("CumSum", 11, 11, OLD, &sum),
    SCAN("CumSum", 14, 14, MP_FLOATS | WHOLE, &sum),
    SCAN("CumProd", 26, 26, MP_FLOATS | WHOLE, &product),
};

const mp_op_family mp__family_cumulative = {"cumulative", ops, MP_COUNT_OF(ops)};
