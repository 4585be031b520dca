/* rotary_angles.c - see rotary_angles.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/rotary_angles.h"

#include "graph/look.h"
#include "graph/pass/add_view.h"
#include "graph/pass/expand_sizes.h"

#include <string.h>

enum { DEPTH_MAX = 12 }; /* of operators between a joined row and its cosines */

/* ---- constants ---- */

static bool is_row_twice(const char *row, int64_t half, size_t size, bool paired) {
    if (!paired) {
        return memcmp(row, row + (size_t)half * size, (size_t)half * size) == 0;
    }
    for (int64_t i = 0; i < half; i++, row += 2 * size) {
        if (memcmp(row, row + size, size) != 0) {
            return false;
        }
    }
    return true;
}

static bool are_rows_twice(const mp_tensor *t, bool paired) {
    const int rank = t->shape.rank;
    const int64_t length = rank > 0 ? t->shape.dim[rank - 1] : 0;
    const size_t size = mp_dtype_size(t->type);
    if (t->data == 0 || length < 2 || length % 2 != 0) {
        return false;
    }
    const char *row = (const char *)t->data;
    for (int64_t i = mp_shape_count(&t->shape) / length; i > 0; i--, row += (size_t)length * size) {
        if (!is_row_twice(row, length / 2, size, paired)) {
            return false;
        }
    }
    return true;
}

/* ---- what they are made of ---- */

/* `*axis` of the output becomes that of input 0 along which it was; false where that is not known.
 */
static bool follow_axis(const mp_graph *graph, const mp_vertex *v, int *axis) {
    static const char *const each[] = {"Cos", "Sin", "Cast", "Identity"};
    static const char *const with[] = {"Mul", "Div", "Add", "Sub"};
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    double number = 0;
    if (mp_vertex_is_any(v, each, MP_COUNT_OF(each))) {
        return true;
    }
    if (mp_vertex_is_any(v, with, MP_COUNT_OF(with))) {
        return v->in_count == 2 && mp_graph_number(graph, v->in[1], &number) &&
               mp_graph_same_rank(graph, v->in[0], v->out[0]);
    }
    if (mp_vertex_is(v, "Transpose")) {
        const mp_attr *perm = mp_vertex_perm(v);
        const bool known = perm != NULL && *axis >= 0 && *axis < (int)perm->count;
        *axis = known ? (int)perm->ints[*axis] : 0;
        return known;
    }
    const int rank = mp_graph_rank(graph, v->in[0]);
    if (mp_vertex_is(v, "Gather")) { /* rows of a table */
        const bool last = *axis == mp_graph_rank(graph, v->out[0]) - 1;
        *axis = rank - 1;
        return last && rank >= 2 && mp_node_int(&v->node, "axis", 0) == 0;
    }
    if (!mp_vertex_is(v, "Unsqueeze") || rank < 1 ||
        !mp_graph_ints(graph, v, "axes", 1, axes, &count)) {
        return false;
    }
    int before = 0;
    for (int i = 0; i < count; i++) {
        const int64_t at = axes[i] < 0 ? axes[i] + rank + count : axes[i];
        if (at == *axis) {
            return false;
        }
        before += at < *axis;
    }
    *axis -= before;
    return true;
}

/* Whether the node, an Expand or a Tile, or a Concat of twice the same, gives each element twice:
 * its last dimension was 1 and becomes 2. `rank`: its result's. */
static bool gives_twice(const mp_graph *graph, const mp_vertex *v, int rank) {
    if (mp_vertex_is(v, "Concat")) {
        const int64_t axis = mp_node_int(&v->node, "axis", 0);
        return v->in_count == 2 && v->in[0] == v->in[1] && (axis == -1 || axis == rank - 1);
    }
    const bool expands = mp_vertex_is(v, "Expand");
    if (!expands && !mp_vertex_is(v, "Tile")) {
        return false;
    }
    const int32_t sizes = expands ? mp_expand_sizes(graph, v->in[1], rank) : v->in[1];
    return mp_graph_list_length(graph, sizes) == rank &&
           mp_graph_entry_dim(graph, sizes, rank - 1) == 2;
}

/* What each element of `value` was made twice of, as neighbours, by a Reshape of it with one
 * dimension more; else MP_NO_VALUE. */
static int32_t twice_of(const mp_graph *graph, int32_t value) {
    const int32_t r = mp_graph_maker(graph, value, "Reshape");
    const int32_t n =
        r != MP_NO_NODE ? mp_graph_maker(graph, graph->nodes[r].in[0], NULL) : MP_NO_NODE;
    const int32_t from = n != MP_NO_NODE
                             ? mp_graph_before_last(graph, mp_vertex_in(&graph->nodes[n], 0))
                             : MP_NO_VALUE;
    const int64_t length = mp_graph_dim(graph, value, -1);
    const bool whole = length > 0 && length % 2 == 0; /* pairs */
    return from != MP_NO_VALUE && whole &&
                   gives_twice(graph, &graph->nodes[n], mp_graph_rank(graph, from) + 1)
               ? from
               : MP_NO_VALUE;
}

bool mp_angles_are_twice(const mp_graph *graph, int32_t value, int rank, bool paired) {
    int axis = rank - 1;
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        const int32_t n = mp_graph_maker(graph, value, NULL);
        if (n == MP_NO_NODE) {
            const mp_value *constant = &graph->values[value];
            return constant->is_constant && axis == constant->tensor.shape.rank - 1 &&
                   are_rows_twice(&constant->tensor, paired);
        }
        const mp_vertex *v = &graph->nodes[n];
        if (paired && mp_vertex_is(v, "Reshape")) {
            return axis == mp_graph_rank(graph, value) - 1 && twice_of(graph, value) != MP_NO_VALUE;
        }
        if (!paired && mp_vertex_is(v, "Concat")) {
            return v->in_count == 2 && v->in[0] == v->in[1] && mp_graph_axis_is(graph, n, axis);
        }
        if (!follow_axis(graph, v, &axis)) {
            return false;
        }
        value = v->in[0];
    }
    return false;
}

/* ---- each angle once ---- */

/* Whether dimension `d` of what a Reshape makes of repeated angles is that of the angles. */
static bool is_kept(const mp_graph *graph, int32_t value, int d, int32_t from) {
    const mp_vertex *reshape = &graph->nodes[graph->values[value].producer];
    const int32_t repeated = reshape->in[0], shape = reshape->in[1];
    const int32_t tile = mp_graph_maker(graph, repeated, "Tile");
    const bool same =
        mp_graph_maker(graph, repeated, "Concat") != MP_NO_NODE ||
        (tile != MP_NO_NODE && mp_graph_entry(graph, graph->nodes[tile].in[1], d) == 1);
    const bool copied =
        mp_graph_entry_is(graph, shape, d, repeated, d) ||
        (mp_graph_entry(graph, shape, d) == 0 && mp_node_int(&reshape->node, "allowzero", 0) == 0);
    return (same && copied) || mp_graph_same_dim(graph, value, d, from, d) ||
           mp_graph_entry_is(graph, shape, d, from, d);
}

/* What `value` was repeated from where that has its other dimensions; else MP_NO_VALUE. */
static int32_t source_of(const mp_graph *graph, int32_t value) {
    const int32_t from = twice_of(graph, value);
    const int rank = mp_graph_rank(graph, value);
    bool same = from != MP_NO_VALUE && mp_graph_rank(graph, from) == rank &&
                2 * mp_graph_dim(graph, from, -1) == mp_graph_dim(graph, value, -1);
    for (int d = 0; same && d < rank - 1; d++) {
        same = is_kept(graph, value, d, from);
    }
    return same ? from : MP_NO_VALUE;
}

static mp_status add_slice(mp_graph *graph, int32_t like, int32_t value, int32_t *out) {
    const mp_node node = {
        .op = mp_op_find("", "Slice", 13), .version = 13, .name = graph->values[value].name};
    mp_tensor half = {.type = mp_graph_type(graph, value),
                      .shape = {.rank = mp_graph_rank(graph, value)}};
    int32_t in[] = {value, MP_NO_VALUE, MP_NO_VALUE, MP_NO_VALUE, MP_NO_VALUE};
    const int64_t numbers[] = {0, INT64_MAX, -1, 2}; /* start, end, axis, step */
    for (int d = 0; d < half.shape.rank; d++) {
        const int64_t dim = mp_graph_dim(graph, value, d);
        half.shape.dim[d] = d < half.shape.rank - 1 || dim < 0 ? dim : dim / 2;
    }
    for (size_t i = 0; i < MP_COUNT_OF(numbers); i++) {
        MP_TRY(mp_graph_add_number(graph, numbers[i], &in[1 + i]));
    }
    MP_TRY(mp_graph_add_value(graph, graph->values[value].name, &half, out));
    return mp_graph_add_beside(graph, like, &node, in, (int)MP_COUNT_OF(in), *out);
}

mp_status mp_angles_once(mp_graph *graph, int32_t like, int32_t value, mp_angles_seen *seen,
                         int32_t *out) {
    const int32_t guard = graph->nodes[like].guard;
    if (seen->of != value || seen->guard != guard) {
        int32_t made = source_of(graph, value);
        if (made == MP_NO_VALUE) {
            MP_TRY(add_slice(graph, like, value, &made));
        }
        *seen = (mp_angles_seen){value, guard, made};
    }
    *out = seen->made;
    return MP_OK;
}

/* ---- angles of heads that are put first ---- */

enum { RANK = 4 };

bool mp_angles_can_move(const mp_graph *graph, int32_t angles) {
    const int rank = mp_graph_rank(graph, angles);
    return rank == 1 || (rank == RANK && mp_graph_dim(graph, angles, 2) == 1 &&
                         mp_graph_dim(graph, angles, 3) > 0);
}

mp_status mp_angles_move(mp_graph *graph, int32_t like, mp_angles_seen *seen, int32_t *angles) {
    const int32_t from = *angles, guard = graph->nodes[like].guard;
    if (mp_graph_rank(graph, from) == 1) {
        return MP_OK;
    }
    if (seen->of != from || seen->guard != guard) {
        const int64_t dim[RANK] = {0, 1, -1, mp_graph_dim(graph, from, 3)};
        int32_t made = MP_NO_VALUE;
        MP_TRY(mp_graph_add_view(graph, like, graph->values[from].name, "Reshape", from, dim, RANK,
                                 &made));
        *seen = (mp_angles_seen){from, guard, made};
    }
    *angles = seen->made;
    return MP_OK;
}
