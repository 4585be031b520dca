/* gate_halves.c - the sigmoid of one half of each row times its other half, or times the tanh of
 * that, is one operator, which reads both in the rows: gated linear units, and WaveNet's gates
 * where channels come last.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/cut.h"

#include <stdio.h>

typedef struct match {
    int32_t whole;         /* value: the rows */
    int32_t sigmoid, tanh; /* nodes; no tanh: MP_NO_NODE */
    bool last;             /* the second half is the gate */
} match;

/* What the node by which `value` alone is read and made reads, if it is this operator. */
static int32_t before(const mp_graph *graph, int32_t value, int32_t reader, const char *op,
                      int32_t *node) {
    const int32_t n = mp_graph_maker(graph, value, op);
    *node = n;
    return n != MP_NO_NODE && mp_graph_reader(graph, value, NULL) == reader ? graph->nodes[n].in[0]
                                                                            : MP_NO_VALUE;
}

/* Of a single row both halves lie where they are, and a cluster reads them there. */
static bool is_single(const mp_graph *graph, int32_t rows) {
    const int rank = mp_graph_rank(graph, rows);
    for (int d = 0; d < rank - 1; d++) {
        if (mp_graph_dim(graph, rows, d) != 1) {
            return false;
        }
    }
    return true;
}

static bool is_half(const mp_graph *graph, int32_t value, int32_t reader, bool second,
                    int32_t *whole) {
    int64_t size = 0;
    return mp_graph_reader(graph, value, NULL) == reader &&
           mp_cut_is_half(graph, value, second, whole, &size);
}

static bool find(const mp_graph *graph, int32_t n, match *m) {
    const mp_vertex *mul = &graph->nodes[n];
    for (int i = 0; i < 4 && mp_vertex_is(mul, "Mul"); i++) {
        const int32_t active = mul->in[i % 2], other = mul->in[1 - i % 2];
        const int32_t gate = before(graph, active, n, "Sigmoid", &m->sigmoid);
        const int32_t turned = before(graph, other, n, "Tanh", &m->tanh);
        const int32_t reader = turned != MP_NO_VALUE ? m->tanh : n;
        int32_t same = MP_NO_VALUE;
        m->last = i >= 2;
        m->tanh = turned != MP_NO_VALUE ? m->tanh : MP_NO_NODE;
        if (gate == MP_NO_VALUE || !is_half(graph, gate, m->sigmoid, m->last, &m->whole) ||
            !is_half(graph, turned != MP_NO_VALUE ? turned : other, reader, !m->last, &same) ||
            same != m->whole || is_single(graph, same)) {
            continue;
        }
        const mp_dtype type = mp_graph_type(graph, same);
        return type == MP_F32 || type == MP_F16 || type == MP_BF16;
    }
    return false;
}

static mp_status rewrite(mp_graph *graph, int32_t n, const match *m) {
    const mp_vertex was = graph->nodes[n];
    const mp_attr attrs[] = {{.name = "gate",
                              .kind = MP_ATTR_STRING,
                              .s = m->tanh != MP_NO_NODE ? "sigmoid_tanh" : "sigmoid"},
                             {.name = "last", .kind = MP_ATTR_INT, .i = 1}};
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", graph->nodes[m->sigmoid].node.name, was.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "GatedHalves", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs) - (m->last ? 0 : 1),
                          .options = was.node.options};
    MP_TRY(mp_graph_change_node(graph, n, &node, &m->whole, 1, was.out, 1));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_gate_halves(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        match m;
        if (find(graph, n, &m) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &m));
        }
    }
    return MP_OK;
}
