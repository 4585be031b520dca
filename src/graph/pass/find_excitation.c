/* find_excitation.c - the gates of an image's channels, made of their means by two convolutions of
 * one pixel, become one node where the blocks of a kernel can meet:
 *
 *     Conv(Conv(GlobalAveragePool(x), w1, b1), w2, b2)   becomes   SqueezeExcite(x, w1, b1, w2, b2)
 *
 * with what follows either convolution. Images have their channels last by then.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "op/core/channels.h"

#include <stdio.h>
#include <string.h>

enum { X, W, BIAS, RESIDUAL, INPUTS = 5, ATTRS_MAX = 4 };

typedef struct found {
    int32_t pool, first, second; /* nodes */
} found;

static bool is_in(const mp_vertex *v, const char *domain, const char *name) {
    return !v->is_gone && v->loop == NULL && strcmp(v->node.op->domain, domain) == 0 &&
           strcmp(v->node.op->name, name) == 0;
}

static bool is_all(const mp_node *node, const char *name, int64_t wanted) {
    const mp_attr *list = mp_node_attr(node, name);
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        if (list->ints[i] != wanted) {
            return false;
        }
    }
    return true;
}

/* A convolution of single pixels by constants, without a residual: a product. */
static bool is_product(const mp_graph *graph, const mp_vertex *v) {
    const bool fits =
        (is_in(v, MP_NHWC_DOMAIN, "Conv") || is_in(v, MP_OWN_NHWC_DOMAIN, "FusedConv")) &&
        v->in_count <= RESIDUAL && mp_node_int(&v->node, "group", 1) == 1 &&
        is_all(&v->node, "pads", 0) && is_all(&v->node, "strides", 1) &&
        strcmp(mp_node_string(&v->node, "auto_pad", "NOTSET"), "NOTSET") == 0;
    for (int i = W; fits && i < v->in_count; i++) {
        if (v->in[i] != MP_NO_VALUE && mp_graph_constant(graph, v->in[i]) == NULL) {
            return false;
        }
    }
    return fits;
}

/* The product that alone reads what node `n` makes. */
static int32_t product_behind(const mp_graph *graph, int32_t n) {
    const int32_t reader = mp_graph_reader(graph, graph->nodes[n].out[0], NULL);
    return reader != MP_NO_NODE && is_product(graph, &graph->nodes[reader]) ? reader : MP_NO_NODE;
}

static bool find(const mp_graph *graph, int32_t n, found *f) {
    f->pool = n;
    if (!is_in(&graph->nodes[n], MP_NHWC_DOMAIN, "GlobalAveragePool")) {
        return false;
    }
    f->first = product_behind(graph, n);
    f->second = f->first != MP_NO_NODE ? product_behind(graph, f->first) : MP_NO_NODE;
    return f->second != MP_NO_NODE;
}

/* What follows convolution `v`, under the names of the new node. */
static size_t copy_activation(const mp_vertex *v, const char *name, const char *params,
                              mp_attr *out) {
    const mp_attr *activation = mp_node_attr(&v->node, "activation");
    const mp_attr *numbers = mp_node_attr(&v->node, "activation_params");
    size_t count = 0;
    if (activation != NULL) {
        out[count] = *activation;
        out[count++].name = name;
    }
    if (numbers != NULL) {
        out[count] = *numbers;
        out[count++].name = params;
    }
    return count;
}

static bool is_accepted(const mp_graph *graph, const mp_node *node, const int32_t *in) {
    mp_tensor known[INPUTS] = {{.type = MP_NONE}};
    for (int i = 0; i < INPUTS; i++) {
        if (in[i] != MP_NO_VALUE) {
            known[i] = graph->values[in[i]].tensor;
        }
    }
    const mp_planner p = {.node = node, .in = known, .in_count = INPUTS};
    const mp_dtype type = known[W].type;
    return (type == MP_F32 || type == MP_F16 || type == MP_BF16) && node->op->accept(&p) == MP_OK;
}

static mp_status rewrite(mp_graph *graph, const found *f, mp_rewrites *rewrites) {
    const mp_vertex pool = graph->nodes[f->pool], first = graph->nodes[f->first];
    const mp_vertex second = graph->nodes[f->second];
    const int32_t in[INPUTS] = {pool.in[X], first.in[W], mp_vertex_in(&first, BIAS), second.in[W],
                                mp_vertex_in(&second, BIAS)};
    mp_attr attrs[ATTRS_MAX];
    char name[512];
    size_t count = copy_activation(&first, "activation", "activation_params", attrs);
    count += copy_activation(&second, "gating", "gating_params", attrs + count);
    (void)snprintf(name, sizeof name, "%s+%s+%s", pool.node.name, first.node.name,
                   second.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_NHWC_DOMAIN, "SqueezeExcite", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = count,
                          .options = second.node.options};
    if (!is_accepted(graph, &node, in) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    MP_TRY(mp_graph_change_node(graph, f->second, &node, in, INPUTS, second.out, 1));
    mp_graph_remove_node(graph, f->first);
    mp_graph_remove_node(graph, f->pool);
    return MP_OK;
}

mp_status mp_pass_find_excitation(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        found f;
        if ((graph->blocks_meet || rewrites->forced) && find(graph, n, &f)) {
            MP_TRY(rewrite(graph, &f, rewrites));
        }
    }
    return MP_OK;
}
