/* find_rotary.c - rotary positions written out in primitive operators become one operator:
 *
 *     x cos + Concat(-x[half:], x[:half]) sin
 *
 * with halves by Slice or Split, and a Transpose of heads before it read as it lies. x may be the
 * first part of longer heads, whose rest is then put behind it again by a Concat. Of cosines and
 * sines both halves of a row must be known to be the same.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"
#include "graph/pass/attention_part.h"
#include "graph/pass/cut.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 12 }; /* of operators between a joined row and its cosines */

typedef struct rotary {
    int32_t x, cosine, sine; /* values */
    int32_t turned;          /* the value behind x's Transpose; MP_NO_VALUE: there is none */
} rotary;

/* ---- cosines of which both halves are the same ---- */

static bool rows_are_halves(const mp_tensor *t) {
    const int rank = t->shape.rank;
    const int64_t length = rank > 0 ? t->shape.dim[rank - 1] : 0;
    const size_t half = (size_t)(length / 2) * mp_dtype_size(t->type);
    if (t->data == 0 || length < 2 || length % 2 != 0) {
        return false;
    }
    const char *row = (const char *)t->data;
    for (int64_t i = mp_shape_count(&t->shape) / length; i > 0; i--, row += 2 * half) {
        if (memcmp(row, row + half, half) != 0) {
            return false;
        }
    }
    return true;
}

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

static bool is_axis(const mp_graph *graph, const mp_vertex *v, int axis) {
    const int64_t given = mp_node_int(&v->node, "axis", 0);
    return given == axis || (given < 0 && given + mp_graph_rank(graph, v->out[0]) == axis);
}

/* Along the last axis, of `rank`. */
static bool halves_alike(const mp_graph *graph, int32_t value, int rank) {
    int axis = rank - 1;
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        const int32_t n = mp_graph_maker(graph, value, NULL);
        if (n == MP_NO_NODE) {
            const mp_value *constant = &graph->values[value];
            return constant->is_constant && axis == constant->tensor.shape.rank - 1 &&
                   rows_are_halves(&constant->tensor);
        }
        const mp_vertex *v = &graph->nodes[n];
        if (mp_vertex_is(v, "Concat")) {
            return v->in_count == 2 && v->in[0] == v->in[1] && is_axis(graph, v, axis);
        }
        if (!follow_axis(graph, v, &axis)) {
            return false;
        }
        value = v->in[0];
    }
    return false;
}

/* ---- the turned halves ---- */

/* x where `value` is Concat(-x[half:], x[:half]); else MP_NO_VALUE. */
static int32_t turned_of(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Concat");
    if (n == MP_NO_NODE || graph->nodes[n].in_count != 2 ||
        !is_axis(graph, &graph->nodes[n], mp_graph_rank(graph, value) - 1)) {
        return MP_NO_VALUE;
    }
    const int32_t negated = mp_graph_maker(graph, graph->nodes[n].in[0], "Neg");
    int32_t x = MP_NO_VALUE, same = MP_NO_VALUE;
    int64_t size = 0;
    return negated != MP_NO_NODE &&
                   mp_cut_is_half(graph, graph->nodes[negated].in[0], true, &x, &size) &&
                   mp_cut_is_half(graph, graph->nodes[n].in[1], false, &same, &size) && x == same
               ? x
               : MP_NO_VALUE;
}

/* ---- the sum ---- */

/* Alike halves are no single number, so their rows are as long as x's. */
static bool goes_with(const mp_graph *graph, int32_t angles, int32_t x) {
    const int rank = mp_graph_rank(graph, angles);
    return rank >= 1 && rank <= 4 && mp_graph_type(graph, angles) == mp_graph_type(graph, x) &&
           halves_alike(graph, angles, rank);
}

static bool match(const mp_graph *graph, const mp_vertex *sum, rotary *m) {
    for (int i = 0; i < 2; i++) {
        const int32_t plain = mp_graph_maker(graph, sum->in[i], "Mul");
        const int32_t other = mp_graph_maker(graph, sum->in[1 - i], "Mul");
        if (plain == MP_NO_NODE || other == MP_NO_NODE) {
            return false;
        }
        for (int k = 0; k < 2; k++) {
            m->x = turned_of(graph, graph->nodes[other].in[k]);
            if (m->x == MP_NO_VALUE) {
                continue;
            }
            m->sine = graph->nodes[other].in[1 - k];
            const int32_t *in = graph->nodes[plain].in;
            m->cosine = in[0] == m->x ? in[1] : in[1] == m->x ? in[0] : MP_NO_VALUE;
            const mp_dtype type = mp_graph_type(graph, m->x);
            return m->cosine != MP_NO_VALUE && mp_graph_rank(graph, m->x) == 4 &&
                   (type == MP_F32 || type == MP_F16 || type == MP_BF16) &&
                   goes_with(graph, m->cosine, m->x) && goes_with(graph, m->sine, m->x);
        }
    }
    return false;
}

/* Reads heads where they lie before a Transpose that only the pattern reads. */
static void look_behind_transpose(const mp_graph *graph, rotary *m) {
    const int32_t n = mp_graph_maker(graph, m->x, "Transpose");
    const mp_attr *perm = n != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[n]) : NULL;
    m->turned = MP_NO_VALUE;
    if (mp_is_heads_first(perm)) {
        m->turned = m->x;
        m->x = graph->nodes[n].in[0];
    }
}

/* The node that puts the rest of the heads behind the sum `n`, and m->x becomes all of them; or `n`
 * where there is none. */
static int32_t look_at_rest(const mp_graph *graph, int32_t n, rotary *m) {
    const int32_t sum = graph->nodes[n].out[0];
    const int32_t c = mp_graph_reader(graph, sum, "Concat");
    const mp_vertex *v = c != MP_NO_NODE ? &graph->nodes[c] : NULL;
    const int64_t rotated = mp_graph_dim(graph, m->x, -1);
    mp_cut first, rest;
    if (v == NULL || v->in_count != 2 || v->in[0] != sum || !is_axis(graph, v, 3) ||
        !mp_cut_read(graph, m->x, &first) || !mp_cut_read(graph, v->in[1], &rest) ||
        first.of != rest.of || first.axis != 3 || rest.axis != 3) {
        return n;
    }
    const int64_t size = mp_graph_dim(graph, first.of, 3);
    if (rotated <= 0 || size < rotated || first.start != 0 || rest.start != rotated ||
        rest.end < size) {
        return n;
    }
    m->x = first.of;
    return c;
}

static mp_status rewrite(mp_graph *graph, int32_t n, const rotary *m) {
    const mp_vertex was = graph->nodes[n];
    const mp_attr attr = {.name = "turned", .kind = MP_ATTR_INT, .i = 1};
    const int32_t in[] = {m->x, m->cosine, m->sine};
    char name[256];
    (void)snprintf(name, sizeof name, "rotary+%s", was.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "RotaryHalves", 1),
                          .version = 1,
                          .name = name,
                          .attrs = &attr,
                          .attr_count = m->turned != MP_NO_VALUE ? 1 : 0,
                          .options = was.node.options};
    MP_TRY(mp_graph_change_node(graph, n, &node, in, 3, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_find_rotary(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        rotary m;
        if (mp_vertex_is(&graph->nodes[n], "Add") && match(graph, &graph->nodes[n], &m) &&
            mp_rewrite_allowed(rewrites)) {
            const int32_t last = look_at_rest(graph, n, &m);
            look_behind_transpose(graph, &m);
            MP_TRY(rewrite(graph, last, &m));
        }
    }
    return MP_OK;
}
