/* unpool.c - MaxUnpool: the inverse of MaxPool with indices, zero elsewhere.
 * Kernel: image/unpool.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/window_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/signal/signal_window.h"

static mp_status size_of(int64_t in, const mp_window *window, int d, int64_t *out) {
    int64_t size = 0;
    if (__builtin_mul_overflow(in - 1, window->stride[d], &size) ||
        __builtin_add_overflow(size, window->kernel[d], &size) ||
        __builtin_sub_overflow(size, window->pad_begin[d], &size) ||
        __builtin_sub_overflow(size, window->pad_end[d], &size) || size < 0) {
        return MP_FAIL(INVALID_ARGUMENT, "a dimension of %lld cannot be unpooled by these windows",
                       (long long)in);
    }
    *out = size;
    return MP_OK;
}

/* What the pool came from, or the given shape, which may be larger. */
static mp_status output_shape(const mp_planner *p, mp_shape *out) {
    const mp_shape *x = &p->in[0].shape;
    mp_window window;
    int64_t given[MP_RANK_MAX];
    int count = 0;
    *out = *x;
    MP_TRY(mp_window_read(p->node, x->rank - 2, NULL, &window));
    MP_TRY(mp_host_ints(p, 2, "output_shape", MP_RANK_MAX, given, &count));
    if (count >= 0 && count != x->rank) {
        return MP_FAIL(INVALID_ARGUMENT, "output_shape has %d values for an X of rank %d", count,
                       (int)x->rank);
    }
    for (int d = 0; d < x->rank; d++) {
        if (d >= 2) {
            MP_TRY(size_of(x->dim[d], &window, d - 2, &out->dim[d]));
        }
        if (count >= 0 && given[d] < out->dim[d]) {
            return MP_FAIL(INVALID_ARGUMENT, "output_shape has %lld where %lld are needed",
                           (long long)given[d], (long long)out->dim[d]);
        }
        out->dim[d] = count >= 0 ? given[d] : out->dim[d];
    }
    return MP_OK;
}

static mp_status plan_unpool(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_kernel *kernel = NULL;
    mp_shape shape;
    size_t bytes = 0;
    if (x->shape.rank < 3 || x->shape.rank > 2 + MP_SPATIAL_MAX ||
        !mp_shape_equal(&x->shape, &p->in[1].shape)) {
        char x_text[MP_SHAPE_TEXT];
        char indices_text[MP_SHAPE_TEXT];
        return MP_FAIL(
            INVALID_ARGUMENT, "X of shape %s and I of shape %s need the same shape, of rank 3 to 5",
            mp_shape_text(&x->shape, x_text), mp_shape_text(&p->in[1].shape, indices_text));
    }
    MP_TRY(output_shape(p, &shape));
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    MP_TRY(mp_shape_bytes(&shape, x->type, &bytes));
    if (bytes == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_fill(p, MP_OUT(0), 0, 1, bytes));
    const mp_unpool_args args = {.count = mp_shape_count(&x->shape),
                                 .out_count = mp_shape_count(&shape)};
    if (args.count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "unpool_b%zu", mp_dtype_size(x->type) * 8));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args.count, 1), args, MP_BIND(mp_unpool_args, x, MP_IN(0)),
        MP_BIND(mp_unpool_args, indices, MP_IN(1)), MP_BIND(mp_unpool_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {
    {"kernel_shape", MP_ATTR_INTS}, {"pads", MP_ATTR_INTS}, {"strides", MP_ATTR_INTS}, {NULL, 0}};

#define ROW(from, to, floats)                                                                    \
    {                                                                                            \
        .domain = "", .name = "MaxUnpool", .since = (from), .until = (to),                       \
        .types = {{"T1", (floats)}, {"T2", MP_BIT(MP_I64)}}, .host_in = 1u << 2, .attrs = attrs, \
        .plan = plan_unpool                                                                      \
    }

static const mp_op ops[] = {
    ROW(9, 11, MP_IEEE_FLOATS),
    ROW(22, 22, MP_FLOATS),
};

const mp_op_family mp__family_unpool = {"unpool", ops, MP_COUNT_OF(ops)};
