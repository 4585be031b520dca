/* complex_mul.c - ComplexMul and ComplexMulConj: products of complex numbers, whose parts are the
 * last dimension.
 * Kernel: pointwise/complex_mul.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"
#include "op/core/pieces.h"

/* The shape of the numbers that input i has. */
static mp_status numbers_of(const mp_planner *p, int i, mp_shape *out) {
    const mp_shape *given = &p->in[i].shape;
    *out = *given;
    if (given->rank < 1 || given->dim[given->rank - 1] != 2) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "input %d of shape %s; the last dimension must be 2, a real and an "
                       "imaginary part",
                       i, mp_shape_text(given, text));
    }
    out->rank--;
    return MP_OK;
}

/* Where pair `pair` is. */
static mp_ref pair_at(mp_ref ref, int64_t pair, mp_dtype type) {
    return mp_ref_element(ref, 2 * pair, type);
}

static mp_status plan_complex_mul(mp_planner *p) {
    const bool *conjugate = p->node->op->detail;
    const mp_dtype type = p->in[0].type;
    mp_shape x, y, numbers;
    MP_TRY(numbers_of(p, 0, &x));
    MP_TRY(numbers_of(p, 1, &y));
    MP_TRY(mp_shape_broadcast(&x, &y, &numbers));
    mp_shape out = numbers;
    out.dim[out.rank++] = 2;
    MP_TRY(mp_plan_output(p, 0, type, &out));
    const int64_t count = mp_shape_count(&numbers);
    const mp_shape *const in[] = {&x, &y};
    const mp_kernel *kernel = NULL;
    mp_piece at;
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "complex_mul_%s", mp_dtype_word(type)));
    for (int64_t first = 0; first < count; first += at.walk.count) {
        MP_TRY(mp_piece_at(&numbers, in, 2, first, &at));
        const mp_complex_mul_args args = {.walk = at.walk, .conjugate = *conjugate};
        MP_TRY(MP_LAUNCH(p, kernel, mp_plan_grid(p, at.walk.count, 4), args,
                         MP_BIND(mp_complex_mul_args, x, pair_at(MP_IN(0), at.in[0], type)),
                         MP_BIND(mp_complex_mul_args, y, pair_at(MP_IN(1), at.in[1], type)),
                         MP_BIND(mp_complex_mul_args, out, pair_at(MP_OUT(0), at.out, type))));
    }
    return MP_OK;
}

static const bool plain = false, conjugated = true;

#define ROW(op_name, conjugates)                                                             \
    {                                                                                        \
        .domain = "com.microsoft", .name = (op_name), .since = 1, .until = 1,                \
        .types = {{"T", MP_IEEE_FLOATS}}, .in_place = {{0, 0}, {1, 0}}, .in_place_count = 2, \
        .plan = plan_complex_mul, .detail = &(conjugates)                                    \
    }

static const mp_op ops[] = {
    ROW("ComplexMul", plain),
    ROW("ComplexMulConj", conjugated),
};

const mp_op_family mp__family_complex_mul = {"complex_mul", ops, MP_COUNT_OF(ops)};
