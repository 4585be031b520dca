/* bitwise.c - operators on the bits of elements: BitwiseAnd, -Or, -Xor and -Not, BitShift, BitCast.
 * Signed integers go through the kernels of the unsigned ones.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/pointwise/pointwise_steps.h"

#include <string.h>

static mp_status plan_binary(mp_planner *p, const char *word, float flag) {
    const mp_tensor *x = &p->in[0];
    const mp_tensor *y = &p->in[1];
    mp_shape shape;
    MP_TRY(mp_shape_broadcast(&x->shape, &y->shape, &shape));
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    return mp_pointwise2(p, word, mp_dtype_unsigned(x->type), (mp_operand){MP_IN(0), &x->shape},
                         (mp_operand){MP_IN(1), &y->shape}, MP_OUT(0), &shape, flag, 0);
}

/* Which of the three is a flag of one kernel, as kernels are many already. */
static mp_status plan_bitwise(mp_planner *p) {
    return plan_binary(p, "bitwise", *(const float *)p->node->op->detail);
}

static mp_status plan_bit_not(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    return mp_pointwise1(p, "bit_not", mp_dtype_unsigned(x->type), MP_IN(0), MP_OUT(0),
                         mp_shape_count(&x->shape), 0, 0);
}

static mp_status plan_bit_shift(mp_planner *p) {
    const char *direction = mp_node_string(p->node, "direction", "");
    const bool left = strcmp(direction, "LEFT") == 0;
    if (!left && strcmp(direction, "RIGHT") != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "direction '%s' is not known; use LEFT or RIGHT",
                       direction);
    }
    return plan_binary(p, "bit_shift", left ? 1.0f : 0.0f);
}

static mp_status plan_bit_cast(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const int64_t asked = mp_node_int(p->node, "to", 0);
    const mp_dtype to = mp_dtype_of_onnx(asked);
    if (mp_dtype_bits(to) != mp_dtype_bits(x->type)) {
        return MP_FAIL(INVALID_ARGUMENT, "to is %lld, which is not a type as wide as %s",
                       (long long)asked, mp_dtype_name(x->type));
    }
    size_t bytes = 0;
    MP_TRY(mp_plan_output(p, 0, to, &x->shape));
    MP_TRY(mp_shape_bytes(&x->shape, x->type, &bytes));
    return mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes);
}

enum { EVERY = MP_ALL_TYPES | MP_NARROW };

static const mp_attr_def direction[] = {{"direction", MP_ATTR_STRING}, {NULL, 0}};
static const mp_attr_def to_type[] = {{"to", MP_ATTR_INT}, {NULL, 0}};

#define BITWISE(op_name, which)                                                                   \
    {                                                                                             \
        .domain = "", .name = (op_name), .since = 18, .until = 18,                                \
        .detail = &(const float){which}, .types = {{"T", MP_INTS}}, .in_place = {{0, 0}, {1, 0}}, \
        .in_place_count = 2, .plan = plan_bitwise                                                 \
    }

static const mp_op ops[] = {
    BITWISE("BitwiseAnd", 0),
    BITWISE("BitwiseOr", 1),
    BITWISE("BitwiseXor", 2),
    {.domain = "",
     .name = "BitwiseNot",
     .since = 18,
     .until = 18,
     .types = {{"T", MP_INTS}},
     .in_place = {{0, 0}},
     .in_place_count = 1,
     .plan = plan_bit_not},
    {.domain = "",
     .name = "BitShift",
     .since = 11,
     .until = 11,
     .types = {{"T", MP_UNSIGNED_INTS}},
     .in_place = {{0, 0}, {1, 0}},
     .in_place_count = 2,
     .attrs = direction,
     .plan = plan_bit_shift},
    {.domain = "",
     .name = "BitCast",
     .since = 26,
     .until = 26,
     .types = {{"T1", EVERY}, {"T2", EVERY}},
     .view_of = 1,
     .attrs = to_type,
     .plan = plan_bit_cast},
};

const mp_op_family mp__family_bitwise = {"bitwise", ops, MP_COUNT_OF(ops)};
