/* reverse_sequence.c - ReverseSequence.
 * Kernel: move/reverse_sequence.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/move_args.h"
#include "op/core/families.h"
#include "op/move/strided_copy.h"

static mp_status read_axes(const mp_planner *p, int *batch, int *time) {
    const mp_shape *x = &p->in[0].shape;
    const mp_shape *lengths = &p->in[1].shape;
    const int64_t batch_axis = mp_node_int(p->node, "batch_axis", 1);
    const int64_t time_axis = mp_node_int(p->node, "time_axis", 0);
    if (batch_axis < 0 || time_axis < 0 || batch_axis > 1 || time_axis != 1 - batch_axis ||
        x->rank < 2) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "batch_axis %lld and time_axis %lld of a tensor of rank %d; 0 and 1 or 1 and "
            "0 of a rank from 2 are needed",
            (long long)batch_axis, (long long)time_axis, x->rank);
    }
    *batch = (int)batch_axis;
    *time = (int)time_axis;
    if (lengths->rank != 1 || lengths->dim[0] != x->dim[*batch]) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "sequence_lens of shape %s for a batch of %lld",
                       mp_shape_text(lengths, text), (long long)x->dim[*batch]);
    }
    return MP_OK;
}

static mp_status plan_reverse_sequence(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const size_t size = mp_dtype_size(x->type);
    int batch = 0;
    int time = 0;
    MP_TRY(read_axes(p, &batch, &time));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    const int64_t run = mp_shape_span(&x->shape, 2, x->shape.rank) * (int64_t)size;
    if (mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    const size_t unit = mp_move_unit(p, run, size);
    const int64_t inner = run / (int64_t)unit;
    const mp_shape space = {.rank = 3, .dim = {x->shape.dim[0], x->shape.dim[1], inner}};
    int64_t stride[2][MP_RANK_MAX] = {{0}};
    stride[0][batch] = 1;
    stride[1][time] = 1;
    mp_reverse_args args = {.count = mp_shape_count(&space),
                            .time = x->shape.dim[time],
                            .stride = time == 0 ? space.dim[1] * inner : inner};
    MP_TRY(mp_layout_make(&space, stride, 2, &args.layout));
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "reverse_sequence_b%zu", unit * 8));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args.count, 1), args, MP_BIND(mp_reverse_args, x, MP_IN(0)),
        MP_BIND(mp_reverse_args, lengths, MP_IN(1)), MP_BIND(mp_reverse_args, out, MP_OUT(0)));
}

static const mp_attr_def axes[] = {
    {"batch_axis", MP_ATTR_INT}, {"time_axis", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "ReverseSequence",
     .since = 10,
     .until = 10,
     .types = {{"T", MP_OLD_TYPES}},
     .attrs = axes,
     .plan = plan_reverse_sequence},
};

const mp_op_family mp__family_reverse_sequence = {"reverse_sequence", ops, MP_COUNT_OF(ops)};
