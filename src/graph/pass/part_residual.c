/* part_residual.c - a sum with the first channels of an image is one with all of them:
 *
 *     Concat(Add(Slice(x, 0..k), s), Slice(x, k..))   becomes   Add(x, Pad(s))
 *
 * which is one pass over the image and not four, or part of the convolution that makes x
 * (conv_epilogue.c). So RexNet and networks found by search add images of fewer channels. What is
 * padded is -0, which changes nothing that it is added to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"
#include "graph/pass/cut.h"

enum { CHANNEL = 1 };

typedef struct match {
    int32_t add;       /* the node */
    int32_t x, s;      /* images */
    int64_t kept, all; /* channels */
} match;

static bool is_slice(const mp_graph *graph, int32_t value, mp_cut *cut) {
    return value != MP_NO_VALUE && mp_graph_maker(graph, value, "Slice") != MP_NO_NODE &&
           mp_cut_read(graph, value, cut) && cut->axis == CHANNEL;
}

/* Whether input `i` of the addition is the first channels, and the other one as many. */
static bool find_sum(const mp_graph *graph, const mp_vertex *add, int i, match *m) {
    mp_cut cut;
    m->s = add->in[1 - i];
    if (!is_slice(graph, add->in[i], &cut) || cut.start != 0) {
        return false;
    }
    m->x = cut.of;
    m->all = mp_graph_dim(graph, m->x, CHANNEL);
    m->kept = cut.end < 0 ? cut.end + m->all : cut.end;
    return m->kept > 0 && m->kept < m->all && mp_graph_dim(graph, m->s, CHANNEL) == m->kept &&
           mp_graph_rank(graph, m->x) >= 3 &&
           mp_graph_rank(graph, m->s) == mp_graph_rank(graph, m->x);
}

static bool is_float(mp_dtype type) {
    return type == MP_F32 || type == MP_F16 || type == MP_BF16;
}

static bool find(const mp_graph *graph, int32_t n, match *m) {
    const mp_vertex *v = &graph->nodes[n];
    mp_cut rest;
    if (!mp_vertex_is(v, "Concat") || v->in_count != 2 || v->in[0] == MP_NO_VALUE ||
        !mp_graph_axis_is(graph, n, CHANNEL) || !is_slice(graph, v->in[1], &rest)) {
        return false;
    }
    m->add = mp_graph_maker(graph, v->in[0], "Add");
    if (m->add == MP_NO_NODE || mp_graph_reader(graph, v->in[0], "Concat") != n ||
        !mp_graph_same_guard(graph, m->add, n)) {
        return false;
    }
    const mp_vertex *add = &graph->nodes[m->add];
    return (find_sum(graph, add, 0, m) || find_sum(graph, add, 1, m)) && rest.of == m->x &&
           (rest.start < 0 ? rest.start + m->all : rest.start) == m->kept && rest.end >= m->all &&
           is_float(mp_graph_type(graph, m->x));
}

/* -0 as one element. */
static mp_status add_nothing(mp_graph *graph, mp_dtype type, int32_t *out) {
    const uint32_t single = UINT32_C(1) << 31;
    const uint16_t half = 1U << 15;
    const mp_tensor tensor = {.type = type,
                              .shape = {.rank = 0},
                              .data = type == MP_F32 ? (mp_addr)&single : (mp_addr)&half};
    return mp_graph_add_constant(graph, "", &tensor, out);
}

static mp_status add_pad(mp_graph *graph, int32_t n, const match *m, int32_t *out) {
    const int rank = mp_graph_rank(graph, m->x);
    const mp_dtype type = mp_graph_type(graph, m->x);
    const char *name = graph->nodes[n].node.name;
    const mp_node node = {.op = mp_op_find("", "Pad", 13), .version = 13, .name = name};
    int64_t pads[2 * MP_RANK_MAX] = {0};
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {2 * rank}}, .data = (mp_addr)pads};
    mp_tensor made = {.type = type, .shape = {.rank = rank}};
    int32_t in[] = {m->s, MP_NO_VALUE, MP_NO_VALUE};
    pads[rank + CHANNEL] = m->all - m->kept;
    for (int d = 0; d < rank; d++) {
        made.shape.dim[d] = d == CHANNEL ? m->all : mp_graph_dim(graph, m->s, d);
    }
    MP_TRY(mp_graph_add_constant(graph, "", &list, &in[1]));
    MP_TRY(add_nothing(graph, type, &in[2]));
    MP_TRY(mp_graph_add_value(graph, name, &made, out));
    return mp_graph_add_beside(graph, n, &node, in, MP_COUNT_OF(in), *out);
}

static mp_status rewrite(mp_graph *graph, int32_t n, const match *m) {
    const mp_vertex add = graph->nodes[m->add], concat = graph->nodes[n];
    int32_t in[] = {m->x, MP_NO_VALUE};
    MP_TRY(add_pad(graph, n, m, &in[1]));
    MP_TRY(mp_graph_change_node(graph, n, &add.node, in, MP_COUNT_OF(in), concat.out, 1));
    MP_TRY(mp_graph_absorb(graph, n, m->add));
    mp_graph_drop_inputs(graph, &concat);
    return MP_OK;
}

mp_status mp_pass_part_residual(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        match m;
        if (find(graph, n, &m) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &m));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
