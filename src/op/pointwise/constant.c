/* constant.c - ConstantOfShape.
 * Kernel: core/fill.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/upload_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

#include <string.h>

/* Elements of 8 bytes whose halves are alike are twice as many of 4 bytes. */
static mp_status fill_wide(mp_planner *p, uint64_t bits, int64_t count) {
    if (bits >> 32 == (bits & UINT32_MAX)) {
        return mp_plan_fill(p, MP_OUT(0), (uint32_t)bits, 4, (size_t)count * 2);
    }
    const mp_fill_args args = {.count = count, .value = bits};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "fill_b64"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, 1), args,
                     MP_BIND(mp_fill_args, out, MP_OUT(0)));
}

static mp_status plan_constant_of_shape(mp_planner *p) {
    static const float zero = 0;
    const mp_attr *attr = mp_node_attr(p->node, "value");
    const mp_tensor value =
        attr != NULL ? attr->tensor : (mp_tensor){.type = MP_F32, .data = (mp_addr)&zero};
    mp_shape shape = {.rank = 0};
    char text[MP_SHAPE_TEXT];
    uint64_t bits = 0;
    if (mp_shape_count(&value.shape) != 1) {
        return MP_FAIL(INVALID_ARGUMENT, "value must be one element, not of shape %s",
                       mp_shape_text(&value.shape, text));
    }
    MP_TRY(mp_host_ints(p, 0, "input", MP_RANK_MAX, shape.dim, &shape.rank));
    for (int d = 0; d < shape.rank; d++) {
        if (shape.dim[d] < 0) {
            return MP_FAIL(INVALID_ARGUMENT, "input has the value %lld at %d",
                           (long long)shape.dim[d], d);
        }
    }
    MP_TRY(mp_plan_output(p, 0, value.type, &shape));
    const size_t size = mp_dtype_size(value.type);
    const int64_t count = mp_shape_count(&shape);
    if (count == 0) {
        return MP_OK;
    }
    memcpy(&bits, (const void *)value.data, size);
    return size == 8 ? fill_wide(p, bits, count)
                     : mp_plan_fill(p, MP_OUT(0), (uint32_t)bits, size, (size_t)count);
}

static const mp_attr_def value_attr[] = {{"value", MP_ATTR_TENSOR}, {NULL, 0}};

#define ROW(from, to, set)                                                                     \
    {                                                                                          \
        .domain = "", .name = "ConstantOfShape", .since = (from), .until = (to), .host_in = 1, \
        .types = {{"T1", MP_BIT(MP_I64)}, {"T2", (set)}}, .attrs = value_attr,                 \
        .plan = plan_constant_of_shape                                                         \
    }

static const mp_op ops[] = {
    ROW(9, 19, MP_OLD_TYPES),
    ROW(20, 25, MP_ALL_TYPES),
};

const mp_op_family mp__family_constant = {"constant", ops, MP_COUNT_OF(ops)};
