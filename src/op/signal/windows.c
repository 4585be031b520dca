/* windows.c - HannWindow, HammingWindow and BlackmanWindow.
 * Kernel: signal/cosine_window.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/signal/signal_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

enum { SIZE_MAX_BITS = 48 };

/* The weights of the cosines of no, one and two turns; ONNX defines them as floats, so that the
 * peaks of a Blackman window of integers are 1. */
typedef struct weights {
    float of[3];
} weights;

static mp_status plan_window(mp_planner *p) {
    const weights *w = p->node->op->detail;
    const int64_t type = mp_node_int(p->node, "output_datatype", MP_F32);
    mp_shape shape = {.rank = 1};
    int given = 0;
    MP_TRY(mp_host_ints(p, 0, "size", 1, shape.dim, &given));
    if (given != 1 || shape.dim[0] < 0 || shape.dim[0] >> SIZE_MAX_BITS != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "a size of %lld in %d values; one that is not negative is "
                       "needed",
                       (long long)shape.dim[0], given);
    }
    if (type < 1 || type >= MP_DTYPE_END || (MP_BIT(type) & MP_NUMBERS) == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "output_datatype %lld is not a type of numbers",
                       (long long)type);
    }
    MP_TRY(mp_plan_output(p, 0, (mp_dtype)type, &shape));
    const int64_t count = shape.dim[0];
    const int64_t period = mp_node_int(p->node, "periodic", 1) != 0 ? count : count - 1;
    if (count == 0) {
        return MP_OK;
    }
    mp_cosine_window_args args = {.count = count,
                                  .period = period,
                                  .a0 = (double)w->of[0],
                                  .a1 = (double)w->of[1],
                                  .a2 = (double)w->of[2],
                                  .type = (int32_t)type};
    if (period == 0) { /* one element has no period: it is 1, as in NumPy */
        args = (mp_cosine_window_args){.count = 1, .period = 1, .a0 = 1, .type = (int32_t)type};
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "cosine_window"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, 1), args,
                     MP_BIND(mp_cosine_window_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {
    {"output_datatype", MP_ATTR_INT}, {"periodic", MP_ATTR_INT}, {NULL, 0}};

#define ROW(name_, ...)                                                                         \
    {                                                                                           \
        .domain = "", .name = (name_), .since = 17, .until = 17, .host_in = 1,                  \
        .types = {{"T1", MP_BIT(MP_I32) | MP_BIT(MP_I64)}, {"T2", MP_NUMBERS}}, .attrs = attrs, \
        .plan = plan_window, .detail = &(const weights) {                                       \
            { __VA_ARGS__ }                                                                     \
        }                                                                                       \
    }

static const mp_op ops[] = {
    ROW("HannWindow", 0.5F, 0.5F, 0),
    ROW("HammingWindow", 25.0F / 46, 1 - 25.0F / 46, 0),
    ROW("BlackmanWindow", 0.5F - 0.08F, 0.5F, 0.08F),
};

const mp_op_family mp__family_windows = {"windows", ops, MP_COUNT_OF(ops)};
