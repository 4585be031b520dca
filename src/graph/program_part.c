/* program_part.c - values that lie within others: pieces along the outermost axis, which need no
 * copy. Dimensions before the axis must be 1.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_private.h"

#include <string.h>

static const mp_tensor *tensor_in(const mp_draft *draft, const mp_program_step *step, int i) {
    return i < step->in_count && step->in[i] != MP_NO_VALUE ? &draft->tensors[step->in[i]] : NULL;
}

/* Whether all dimensions before `axis` are 1; `axis` is made non-negative. */
static bool is_outermost(const mp_shape *shape, int64_t axis, int *out) {
    axis += axis < 0 ? shape->rank : 0;
    for (int64_t d = 0; d < axis && d < shape->rank; d++) {
        if (shape->dim[d] != 1) {
            return false;
        }
    }
    *out = (int)axis;
    return axis >= 0 && axis < shape->rank;
}

static bool is_packed(mp_dtype type) {
    return (MP_BIT(type) & MP_PACKED) != 0;
}

static size_t inner_bytes(const mp_tensor *x, int axis) {
    return (size_t)mp_shape_span(&x->shape, axis + 1, x->shape.rank) * mp_dtype_size(x->type);
}

/* Integer `i` of a value that is known. */
static bool integer_of(const mp_tensor *known, int64_t i, int64_t *out) {
    if (known == NULL || known->data == 0 || i >= mp_shape_count(&known->shape)) {
        return false;
    }
    if (known->type == MP_I32) {
        *out = ((const int32_t *)(uintptr_t)known->data)[i];
    } else if (known->type == MP_I64) {
        *out = ((const int64_t *)(uintptr_t)known->data)[i];
    }
    return known->type == MP_I32 || known->type == MP_I64;
}

static bool split_part(const mp_draft *draft, const mp_program_step *step, const mp_node *node,
                       int o, size_t *offset) {
    const mp_tensor *x = tensor_in(draft, step, 0);
    int axis = 0;
    int64_t before = 0;
    if (!is_outermost(&x->shape, mp_node_int(node, "axis", 0), &axis)) {
        return false;
    }
    for (int i = 0; i < o; i++) {
        if (step->out[i] == MP_NO_VALUE) {
            return false;
        }
        before += draft->tensors[step->out[i]].shape.dim[axis];
    }
    *offset = (size_t)before * inner_bytes(x, axis);
    return true;
}

/* Of each axis that it names a Slice takes one by one, and of at most one it leaves some out. */
static bool slice_part(const mp_draft *draft, const mp_program_step *step, size_t *offset) {
    const mp_tensor *x = tensor_in(draft, step, 0);
    const mp_tensor *y = &draft->tensors[step->out[0]];
    const mp_tensor *starts = tensor_in(draft, step, 1);
    const mp_tensor *axes = tensor_in(draft, step, 3);
    const mp_tensor *steps = tensor_in(draft, step, 4);
    int cut = -1;
    *offset = 0;
    if (starts == NULL || starts->shape.rank != 1) {
        return false;
    }
    for (int64_t i = 0; i < starts->shape.dim[0]; i++) {
        int64_t start = 0;
        int64_t axis = i;
        int64_t by = 1;
        if (!integer_of(starts, i, &start) || (axes != NULL && !integer_of(axes, i, &axis)) ||
            (steps != NULL && !integer_of(steps, i, &by)) || by != 1) {
            return false;
        }
        axis += axis < 0 ? x->shape.rank : 0;
        if (axis < 0 || axis >= x->shape.rank || x->shape.dim[axis] == y->shape.dim[axis]) {
            continue;
        }
        if (cut >= 0 || !is_outermost(&x->shape, axis, &cut)) {
            return false;
        }
        start = start < 0 ? MP_MAX(start + x->shape.dim[axis], 0) : start;
        *offset = (size_t)MP_MIN(start, x->shape.dim[axis]) * inner_bytes(x, cut);
    }
    return mp_shape_count(&y->shape) > 0;
}

/* One index that is known. */
static bool gather_part(const mp_draft *draft, const mp_program_step *step, const mp_node *node,
                        size_t *offset) {
    const mp_tensor *x = tensor_in(draft, step, 0);
    const mp_tensor *indices = tensor_in(draft, step, 1);
    int axis = 0;
    int64_t index = 0;
    if (indices == NULL || mp_shape_count(&indices->shape) != 1 ||
        !integer_of(indices, 0, &index) ||
        !is_outermost(&x->shape, mp_node_int(node, "axis", 0), &axis)) {
        return false;
    }
    index += index < 0 ? x->shape.dim[axis] : 0;
    *offset = (size_t)index * inner_bytes(x, axis);
    return index >= 0 && index < x->shape.dim[axis];
}

/* Whether all the step does is to copy a piece of its input. What it copies whole is a view. */
static bool is_copied_piece(const mp_draft *draft, const mp_program_step *step, const mp_tensor *x,
                            int o, size_t *offset) {
    size_t whole = 0, piece = 0;
    return mp_plan_is_copy(step->plan, offset) &&
           mp_shape_bytes(&x->shape, x->type, &whole) == MP_OK &&
           mp_shape_bytes(&draft->tensors[step->out[o]].shape, x->type, &piece) == MP_OK &&
           piece < whole;
}

/* Whether the graph gives all that the step makes, each of which would be copied where it lies. */
static bool are_outputs(const mp_draft *draft, const mp_program_step *step, int count) {
    bool are = count > 1;
    for (int i = 0; i < count; i++) {
        are = are && step->out[i] != MP_NO_VALUE && mp_graph_is_output(draft->graph, step->out[i]);
    }
    return are;
}

bool mp_part_of_input(const mp_draft *draft, const mp_program_step *step, int o, size_t *offset) {
    const mp_vertex *v = &draft->graph->nodes[step->node];
    const mp_tensor *x = tensor_in(draft, step, 0);
    if (x == NULL || step->out[o] == MP_NO_VALUE) {
        return false;
    }
    if (is_copied_piece(draft, step, x, o, offset)) {
        return true;
    }
    if (is_packed(x->type)) {
        return false;
    }
    if (mp_vertex_is(v, "Split") && are_outputs(draft, step, v->out_count)) {
        return false; /* which is one launch */
    }
    if (mp_vertex_is(v, "Split")) {
        return split_part(draft, step, &v->node, o, offset);
    }
    if (mp_vertex_is(v, "Slice") && v->node.version >= 10) {
        return slice_part(draft, step, offset);
    }
    return mp_vertex_is(v, "Gather") && gather_part(draft, step, &v->node, offset);
}

bool mp_joins_inputs(const mp_draft *draft, const mp_program_step *step) {
    const mp_vertex *v = &draft->graph->nodes[step->node];
    int axis = 0;
    if (!mp_vertex_is(v, "Concat") || step->out[0] == MP_NO_VALUE) {
        return false;
    }
    const mp_tensor *y = &draft->tensors[step->out[0]];
    return !is_packed(y->type) && is_outermost(&y->shape, mp_node_int(&v->node, "axis", 0), &axis);
}
