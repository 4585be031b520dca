/* join_gated.c - two products of one input by constant matrices, an activation of one times the
 * other, are one product and one operator that reads both halves of its rows:
 *
 *     activation(x g) (x u)      becomes      GatedHalves(x [g u])
 *
 * and so are two halves of one value, of which either is the gate.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/cut.h"
#include "graph/pass/product_join.h"

#include <stdio.h>
#include <string.h>

enum { GATE, OTHER, HALVES };

typedef struct gated {
    mp_product products[HALVES];
    int32_t activation;
} gated;

/* Its name as an attribute of GatedHalves; NULL: none. */
static const char *gate_of(const mp_vertex *v) {
    if (v->is_gone || v->in_count != 1) {
        return NULL;
    }
    if (strcmp(v->node.op->name, "QuickGelu") == 0) {
        return "swish";
    }
    const mp_attr *by = mp_node_attr(&v->node, "approximate");
    if (!mp_vertex_is(v, "Gelu")) {
        return NULL;
    }
    return by == NULL || strcmp(by->s, "tanh") != 0 ? "gelu" : "gelu_tanh";
}

static bool find(const mp_graph *graph, int32_t n, gated *out) {
    const mp_vertex *mul = &graph->nodes[n];
    for (int i = 0; i < 2 && mp_vertex_is(mul, "Mul"); i++) {
        const int32_t active = mul->in[i], other = mul->in[1 - i];
        const int32_t a = mp_graph_maker(graph, active, NULL);
        if (a == MP_NO_NODE || gate_of(&graph->nodes[a]) == NULL ||
            mp_graph_reader(graph, active, NULL) != n || mp_graph_reader(graph, other, NULL) != n) {
            continue;
        }
        const int32_t gate = graph->nodes[a].in[0];
        const mp_dtype type = mp_graph_type(graph, gate);
        if (mp_graph_reader(graph, gate, NULL) != a ||
            (type != MP_F32 && type != MP_F16 && type != MP_BF16)) {
            continue;
        }
        out->activation = a;
        out->products[GATE] = mp_product_of(graph, gate);
        out->products[OTHER] = mp_product_of(graph, other);
        if (mp_products_alike(graph, &out->products[GATE], &out->products[OTHER]) &&
            out->products[GATE].columns == out->products[OTHER].columns &&
            mp_graph_rank(graph, out->products[GATE].x) >= 1) {
            return true;
        }
    }
    return false;
}

/* Node `n` becomes an operator over the halves of `whole`. */
static mp_status set_gated(mp_graph *graph, int32_t n, int32_t activation, int32_t whole,
                           bool last) {
    const mp_vertex was = graph->nodes[n];
    const mp_vertex *active = &graph->nodes[activation];
    const char *gate = gate_of(active);
    const mp_attr attrs[] = {
        {.name = "alpha",
         .kind = MP_ATTR_FLOAT,
         .f = mp_node_float(&active->node, "alpha", strcmp(gate, "swish") == 0 ? 1.702f : 1)},
        {.name = "gate", .kind = MP_ATTR_STRING, .s = gate},
        {.name = "last", .kind = MP_ATTR_INT, .i = 1}};
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", active->node.name, was.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "GatedHalves", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs) - (last ? 0 : 1),
                          .options = was.node.options};
    return mp_graph_change_node(graph, n, &node, &whole, 1, was.out, 1);
}

static mp_status rewrite(mp_graph *graph, int32_t n, const gated *m) {
    const mp_vertex was = graph->nodes[n];
    int32_t whole = MP_NO_VALUE;
    MP_TRY(mp_products_result(graph, m->products, HALVES, &whole));
    MP_TRY(set_gated(graph, n, m->activation, whole, false));
    const mp_status status = mp_products_join(graph, m->products, HALVES, whole);
    if (status != MP_OK) {
        graph->nodes[n] = was;
        return status;
    }
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

/* ---- halves of one value ---- */

typedef struct halves {
    int32_t whole, activation;
    bool last; /* the second half is the gate */
} halves;

static bool find_halves(const mp_graph *graph, int32_t n, halves *out) {
    const mp_vertex *mul = &graph->nodes[n];
    for (int i = 0; i < 4 && mp_vertex_is(mul, "Mul"); i++) {
        const bool last = i >= 2;
        const int32_t active = mul->in[i % 2], other = mul->in[1 - i % 2];
        const int32_t a = mp_graph_maker(graph, active, NULL);
        int32_t same = MP_NO_VALUE;
        int64_t size = 0;
        if (a == MP_NO_NODE || gate_of(&graph->nodes[a]) == NULL ||
            mp_graph_reader(graph, active, NULL) != n || mp_graph_reader(graph, other, NULL) != n ||
            mp_graph_reader(graph, graph->nodes[a].in[0], NULL) != a ||
            !mp_cut_is_half(graph, graph->nodes[a].in[0], last, &out->whole, &size) ||
            !mp_cut_is_half(graph, other, !last, &same, &size) || same != out->whole) {
            continue;
        }
        const mp_dtype type = mp_graph_type(graph, same);
        out->activation = a;
        out->last = last;
        return type == MP_F32 || type == MP_F16 || type == MP_BF16;
    }
    return false;
}

static mp_status rewrite_halves(mp_graph *graph, int32_t n, const halves *m) {
    const mp_vertex was = graph->nodes[n];
    MP_TRY(set_gated(graph, n, m->activation, m->whole, m->last));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_join_gated(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        gated m;
        halves h;
        if (find(graph, n, &m) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &m));
        } else if (find_halves(graph, n, &h) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite_halves(graph, n, &h));
        }
    }
    return MP_OK;
}
