/* flat_bias.c - see flat_bias.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/flat_bias.h"

#include "graph/look.h"
#include "graph/pass/add_view.h"
#include "graph/pass/attention_match.h"
#include "graph/pass/expand_sizes.h"

enum { FLAT = 3, RANK = 4, ROWS = 2, CLIMB_MAX = 8 };

/* [batch, heads, columns] that `value`, [batch * heads, 1, columns], is a view of. */
static int32_t find_row(const mp_graph *graph, int32_t value, int64_t heads) {
    const int32_t n = mp_graph_maker(graph, value, "Reshape");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->in_count != 2 || mp_graph_rank(graph, v->in[0]) != FLAT ||
        mp_graph_list_length(graph, v->in[1]) != FLAT ||
        mp_graph_dim(graph, v->in[0], 1) != heads || mp_graph_entry_dim(graph, v->in[1], 1) != 1) {
        return MP_NO_VALUE;
    }
    return mp_graph_entry_is(graph, v->in[1], 2, v->in[0], 2) ? v->in[0] : MP_NO_VALUE;
}

/* Whether the first of three dimensions is that of `like`, [batch * heads, ..]: where one of two
 * summands has it, the other has it, too, or is repeated. */
static bool is_led(const mp_graph *graph, int32_t value, int32_t like, int left) {
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE && left > 0 ? &graph->nodes[n] : NULL;
    if (mp_graph_rank(graph, value) != FLAT) {
        return false;
    }
    if (v == NULL || mp_graph_same_dim(graph, value, 0, like, 0)) {
        return mp_graph_same_dim(graph, value, 0, like, 0);
    }
    const int scaled = mp_scaled_input(graph, v);
    const mp_attr *perm = mp_vertex_is(v, "Transpose") ? mp_vertex_perm(v) : NULL;
    if (mp_vertex_is(v, "Add")) {
        return is_led(graph, v->in[0], like, left - 1) || is_led(graph, v->in[1], like, left - 1);
    }
    if (mp_vertex_is(v, "GatherElements")) {
        return is_led(graph, v->in[1], like, left - 1);
    }
    if (mp_vertex_is(v, "Expand")) {
        const int32_t sizes = mp_expand_sizes(graph, v->in[1], FLAT);
        return mp_graph_list_length(graph, sizes) == FLAT &&
               mp_graph_entry_is(graph, sizes, 0, like, 0);
    }
    return scaled >= 0
               ? is_led(graph, v->in[scaled], like, left - 1)
               : perm != NULL && perm->ints[0] == 0 && is_led(graph, v->in[0], like, left - 1);
}

bool mp_flat_bias_find(const mp_graph *graph, int32_t flat, int32_t like, int64_t heads,
                       mp_flat_bias *out) {
    *out = (mp_flat_bias){
        .flat = flat, .row = find_row(graph, flat, heads), .like = like, .heads = heads};
    return out->row != MP_NO_VALUE || is_led(graph, flat, like, CLIMB_MAX);
}

/* `from` with a dimension of 1 more. */
static mp_status unsqueeze(mp_graph *graph, int32_t from, int32_t add, int64_t at, int32_t *axes,
                           int32_t *out) {
    const mp_tensor axis = {.type = MP_I64, .shape = {.rank = 1, .dim = {1}}, .data = (mp_addr)&at};
    mp_tensor tensor = {.type = mp_graph_type(graph, from), .shape = {.rank = RANK}};
    const mp_vertex *v = &graph->nodes[add];
    const mp_node node = {.op = mp_op_find("", "Unsqueeze", 13),
                          .version = 13,
                          .name = v->node.name,
                          .options = v->node.options};
    for (int d = 0; d < RANK; d++) {
        tensor.shape.dim[d] = d == at ? 1 : graph->values[from].tensor.shape.dim[d - (d > (int)at)];
    }
    MP_TRY(*axes != MP_NO_VALUE ? MP_OK : mp_graph_add_constant(graph, "axes", &axis, axes));
    const int32_t in[] = {from, *axes};
    MP_TRY(mp_graph_add_value(graph, graph->values[from].name, &tensor, out));
    return mp_graph_add_beside(graph, add, &node, in, 2, *out);
}

/* [batch, heads, ..] of [batch * heads, ..]; rows and columns stay as they are, whatever they are.
 */
static mp_status view(mp_graph *graph, const mp_flat_bias *bias, int32_t add, int32_t value,
                      int32_t *out) {
    const int64_t dim[RANK] = {-1, bias->heads, 0, 0};
    int32_t axes = MP_NO_VALUE, one = MP_NO_VALUE;
    MP_TRY(unsqueeze(graph, value, add, 0, &axes, &one));
    return mp_graph_add_view(graph, add, graph->values[value].name, "Reshape", one, dim, RANK, out);
}

/* Whether input `i` of the node that makes `value` is to be seen in four dimensions instead of its
 * result: where nobody else reads this, element-wise nodes stay together with what comes behind. */
static bool goes_up(const mp_graph *graph, const mp_flat_bias *bias, int32_t add, int32_t value,
                    int i) {
    const int32_t n = mp_graph_maker(graph, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->in_count != 2 || mp_graph_reader(graph, value, NULL) == MP_NO_NODE ||
        !mp_graph_same_guard(graph, n, add)) {
        return false;
    }
    return mp_vertex_is(v, "Add") ? is_led(graph, v->in[0], bias->like, CLIMB_MAX) &&
                                        is_led(graph, v->in[1], bias->like, CLIMB_MAX)
                                  : mp_scaled_input(graph, v) == i;
}

static mp_status widen(mp_graph *graph, const mp_flat_bias *bias, int32_t add, int32_t value,
                       int left, int32_t *out) {
    const bool goes[] = {goes_up(graph, bias, add, value, 0), goes_up(graph, bias, add, value, 1)};
    if (left == 0 || !(goes[0] || goes[1])) {
        return view(graph, bias, add, value, out);
    }
    const mp_vertex v = graph->nodes[graph->values[value].producer];
    int32_t in[] = {v.in[0], v.in[1]};
    for (int i = 0; i < 2; i++) {
        MP_TRY(goes[i] ? widen(graph, bias, add, v.in[i], left - 1, &in[i]) : MP_OK);
    }
    const mp_tensor tensor = {.type = mp_graph_type(graph, value),
                              .shape = {.rank = MP_DIM_UNKNOWN}};
    MP_TRY(mp_graph_add_value(graph, graph->values[value].name, &tensor, out));
    return mp_graph_add_beside(graph, add, &v.node, in, 2, *out);
}

mp_status mp_flat_bias_widen(mp_graph *graph, const mp_flat_bias *bias, int32_t add, int32_t *axes,
                             int32_t *out) {
    return bias->row != MP_NO_VALUE ? unsqueeze(graph, bias->row, add, ROWS, axes, out)
                                    : widen(graph, bias, add, bias->flat, CLIMB_MAX, out);
}
