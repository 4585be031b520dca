/* band.c - Trilu and EyeLike: what lies between two diagonals of matrices.
 * Kernel: move/band.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernel/move/move_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

#include <string.h>

/* `args` says which diagonals, and what of them where x is none. */
static mp_status plan_band(mp_planner *p, mp_dtype dtype, mp_ref x, mp_band_args *args) {
    const mp_shape *shape = &p->in[0].shape;
    const int rank = shape->rank;
    args->count = mp_shape_count(shape);
    if (args->count == 0) {
        return MP_OK;
    }
    args->rows = shape->dim[rank - 2];
    args->columns = shape->dim[rank - 1];
    args->wide = args->count > INT32_MAX;
    if (!args->wide) {
        args->by_rows = mp_divider((uint32_t)args->rows);
        args->by_columns = mp_divider((uint32_t)args->columns);
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "band_b%zu", mp_dtype_size(dtype) * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args->count, 4), *args, MP_BIND(mp_band_args, x, x),
                     MP_BIND(mp_band_args, out, MP_OUT(0)));
}

/* ---- Trilu ---- */

static mp_status plan_trilu(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const bool upper = mp_node_int(p->node, "upper", 1) != 0;
    int64_t k[1] = {0};
    int count = 0;
    MP_TRY(mp_host_ints(p, 1, "k", 1, k, &count));
    if (x->shape.rank < 2 || count == 0) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "input of shape %s with %d values of k; matrices and one "
                       "value are needed",
                       mp_shape_text(&x->shape, text), count);
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    mp_band_args args = {.low = upper ? k[0] : INT64_MIN, .high = upper ? INT64_MAX : k[0]};
    return plan_band(p, x->type, MP_IN(0), &args);
}

/* ---- EyeLike ---- */

/* The bytes of a one. */
static uint64_t one_of(mp_dtype dtype) {
    const float single = 1;
    const double wide = 1;
    uint64_t bits = 1;
    if (dtype == MP_F32) {
        bits = 0;
        memcpy(&bits, &single, sizeof single);
    } else if (dtype == MP_F64) {
        memcpy(&bits, &wide, sizeof wide);
    } else if (dtype == MP_F16) {
        bits = mp_to_f16(single);
    } else if (dtype == MP_BF16) {
        bits = mp_to_bf16(single);
    }
    return bits;
}

static mp_status plan_eye_like(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const int64_t asked = mp_node_int(p->node, "dtype", x->type);
    const mp_dtype dtype = mp_dtype_of_onnx(asked);
    const int64_t k = mp_node_int(p->node, "k", 0);
    if (x->shape.rank != 2 || dtype == MP_NONE || (MP_BIT(dtype) & MP_ALL_TYPES) == 0) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "input of shape %s and dtype %lld; a matrix and a type of numbers or bool "
                       "are needed",
                       mp_shape_text(&x->shape, text), (long long)asked);
    }
    MP_TRY(mp_plan_output(p, 0, dtype, &x->shape));
    mp_band_args args = {.low = k, .high = k, .one = one_of(dtype)};
    return plan_band(p, dtype, MP_NOWHERE, &args);
}

/* ---- the rows ---- */

static const mp_attr_def upper[] = {{"upper", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def dtype_k[] = {{"dtype", MP_ATTR_INT}, {"k", MP_ATTR_INT}, {NULL, 0}};

#define TRILU(domain_, version)                                                       \
    {                                                                                 \
        .domain = (domain_), .name = "Trilu", .since = (version), .until = (version), \
        .host_in = 1u << 1, .types = {{"T", MP_ALL_TYPES}}, .in_place = {{0, 0}},     \
        .in_place_count = 1, .attrs = upper, .plan = plan_trilu                       \
    }
#define EYE(from, to, set)                                                               \
    {                                                                                    \
        .domain = "", .name = "EyeLike", .since = (from), .until = (to),                 \
        .types = {{"T1", (set)}, {"T2", (set)}}, .attrs = dtype_k, .plan = plan_eye_like \
    }

static const mp_op ops[] = {
    TRILU("", 14),
    TRILU("com.microsoft", 1),
    EYE(9, 9, MP_OLD_TYPES),
    EYE(22, 22, MP_ALL_TYPES),
};

const mp_op_family mp__family_band = {"band", ops, MP_COUNT_OF(ops)};
