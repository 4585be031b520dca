/* cast.c - Cast and CastLike: the same values in another element type.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise_args.h"
#include "op/families.h"

static mp_status cast_to(mp_planner *p, mp_dtype to) {
    const mp_tensor *x = &p->in[0];
    MP_TRY(mp_plan_output(p, 0, to, &x->shape));
    const mp_pointwise1_args args = {.count = mp_shape_count(&x->shape)};
    if (args.count == 0) {
        return MP_OK;
    }
    if (to == x->type) {
        return mp_plan_copy(p, MP_OUT(0), MP_IN(0), (size_t)args.count * mp_dtype_size(to));
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "cast_%s_%s", mp_dtype_word(x->type), mp_dtype_word(to)));
    const size_t from_size = mp_dtype_size(x->type);
    const size_t to_size = mp_dtype_size(to);
    const int per_lane = (int)(16 / (from_size > to_size ? from_size : to_size));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, per_lane), args,
                     MP_BIND(mp_pointwise1_args, x, MP_IN(0)),
                     MP_BIND(mp_pointwise1_args, out, MP_OUT(0)));
}

static mp_status plan_cast(mp_planner *p) {
    const int64_t to = mp_node_int(p->node, "to", 0);
    if (to < 0 || to >= MP_DTYPE_END || mp_dtype_size((mp_dtype)to) == 0) {
        return MP_FAIL(UNSUPPORTED, "a cast to ONNX's element type %lld is not supported",
                       (long long)to);
    }
    return cast_to(p, (mp_dtype)to);
}

static mp_status plan_cast_like(mp_planner *p) {
    return cast_to(p, p->in[1].type);
}

static const mp_attr_def to[] = {{"to", MP_ATTR_INT}, {NULL, 0}};

#define TYPES .types = {{"T1", MP_ALL_TYPES}, {"T2", MP_ALL_TYPES}}

static const mp_op ops[] = {
    {.domain = "", .name = "Cast", .since = 6, .until = 25, TYPES, .attrs = to, .plan = plan_cast},
    {.domain = "", .name = "CastLike", .since = 15, .until = 25, TYPES, .plan = plan_cast_like},
};

const mp_op_family mp__family_cast = {"cast", ops, MP_COUNT_OF(ops)};
