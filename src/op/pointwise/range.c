/* range.c - Range: start, limit and delta come from the host.
 * Kernel: pointwise/range.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"

#include <math.h>

static double float_at(const mp_tensor *x) {
    return x->type == MP_F32 ? (double)*(const float *)x->data : *(const double *)x->data;
}

static int64_t int_at(const mp_tensor *x) {
    return x->type == MP_I16   ? *(const int16_t *)x->data
           : x->type == MP_I32 ? *(const int32_t *)x->data
                               : *(const int64_t *)x->data;
}

static mp_status count_floats(const mp_planner *p, mp_range_args *args) {
    args->start_float = float_at(&p->in[0]);
    args->delta_float = float_at(&p->in[2]);
    const double limit = float_at(&p->in[1]);
    const double count = ceil((limit - args->start_float) / args->delta_float);
    if (args->delta_float == 0 || !(count < 0x1p60)) {
        return MP_FAIL(INVALID_ARGUMENT, "from %g to %g in steps of %g has no end",
                       args->start_float, limit, args->delta_float);
    }
    args->count = count > 0 ? (int64_t)count : 0;
    return MP_OK;
}

/* In unsigned arithmetic: the distance of two int64 may not fit one. */
static mp_status count_ints(const mp_planner *p, mp_range_args *args) {
    args->start = int_at(&p->in[0]);
    args->delta = int_at(&p->in[2]);
    const int64_t limit = int_at(&p->in[1]);
    const bool up = args->delta > 0;
    if (args->delta == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "from %lld to %lld in steps of 0 has no end",
                       (long long)args->start, (long long)limit);
    }
    if (up ? args->start >= limit : args->start <= limit) {
        args->count = 0;
        return MP_OK;
    }
    const uint64_t distance =
        up ? (uint64_t)limit - (uint64_t)args->start : (uint64_t)args->start - (uint64_t)limit;
    const uint64_t step = up ? (uint64_t)args->delta : 0 - (uint64_t)args->delta;
    const uint64_t count = MP_CEIL_DIV(distance, step);
    if (count > INT64_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "%llu elements are too many", (unsigned long long)count);
    }
    args->count = (int64_t)count;
    return MP_OK;
}

static mp_status plan_range(mp_planner *p) {
    static const char *const names[] = {"start", "limit", "delta"};
    mp_range_args args = {.count = 0};
    for (int i = 0; i < 3; i++) {
        if (mp_shape_count(&p->in[i].shape) != 1) {
            char text[MP_SHAPE_TEXT];
            return MP_FAIL(INVALID_ARGUMENT, "%s must be a scalar, not of shape %s", names[i],
                           mp_shape_text(&p->in[i].shape, text));
        }
    }
    const mp_dtype dtype = p->in[0].type;
    MP_TRY((MP_BIT(dtype) & MP_FLOATS) != 0 ? count_floats(p, &args) : count_ints(p, &args));
    const mp_shape shape = {.rank = 1, .dim = {args.count}};
    MP_TRY(mp_plan_output(p, 0, dtype, &shape));
    if (args.count == 0) {
        return MP_OK;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "range_%s", mp_dtype_word(dtype)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_range_args, out, MP_OUT(0)));
}

static const mp_op ops[] = {
    {.domain = "",
     .name = "Range",
     .since = 11,
     .until = 27,
     .host_in = 7,
     .plan = plan_range,
     .types = {{"T", 1u << MP_F32 | 1u << MP_F64 | 1u << MP_I16 | 1u << MP_I32 | 1u << MP_I64}}},
};

const mp_op_family mp__family_range = {"range", ops, MP_COUNT_OF(ops)};
