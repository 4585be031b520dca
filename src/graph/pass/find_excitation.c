/* find_excitation.c - the gates of an image's channels, made of their means by two convolutions of
 * one pixel, become one node:
 *
 *     Conv(Conv(GlobalAveragePool(x), w1, b1), w2, b2)   becomes   SqueezeExcite(x, w1, b1, w2, b2)
 *
 * with what follows either convolution; and the image times its gates, if nothing else reads these,
 * and the image added to that. Images have their channels last by then.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "op/core/channels.h"

#include <stdio.h>
#include <string.h>

enum { X, W, BIAS, RESIDUAL, INPUTS = 5, ATTRS_MAX = 6 };

typedef struct found {
    int32_t pool, first, second; /* nodes */
    int32_t scale, add;          /* or MP_NO_NODE */
} found;

static bool is_in(const mp_vertex *v, const char *domain, const char *name) {
    return !v->is_gone && v->loop == NULL && strcmp(v->node.op->domain, domain) == 0 &&
           strcmp(v->node.op->name, name) == 0;
}

/* A convolution of single pixels by constants, without a residual: a product. */
static bool is_product(const mp_graph *graph, const mp_vertex *v) {
    const bool fits =
        (is_in(v, MP_NHWC_DOMAIN, "Conv") || is_in(v, MP_OWN_NHWC_DOMAIN, "FusedConv")) &&
        v->in_count <= RESIDUAL && mp_node_int(&v->node, "group", 1) == 1 &&
        mp_node_ints_are(&v->node, "pads", 0) && mp_node_ints_are(&v->node, "strides", 1) &&
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

/* The node `name` that alone reads what node `n` makes, and the image `x` besides. */
static int32_t joined_with(const mp_graph *graph, int32_t n, const char *name, int32_t x) {
    const int32_t made = graph->nodes[n].out[0];
    const int32_t reader = mp_graph_reader(graph, made, name);
    if (reader == MP_NO_NODE) {
        return MP_NO_NODE;
    }
    const mp_vertex *v = &graph->nodes[reader];
    return (v->in[0] == made ? v->in[1] : v->in[0]) == x ? reader : MP_NO_NODE;
}

/* There are as many gates as channels, so that the product is an image as x is. */
static bool is_for_each(const mp_graph *graph, const found *f) {
    const mp_tensor *w1 = mp_graph_constant(graph, graph->nodes[f->first].in[W]);
    const mp_tensor *w2 = mp_graph_constant(graph, graph->nodes[f->second].in[W]);
    return w1->shape.rank > 1 && w2->shape.rank > 1 && w1->shape.dim[1] == w2->shape.dim[0];
}

static bool find(const mp_graph *graph, int32_t n, found *f) {
    *f = (found){.pool = n, .scale = MP_NO_NODE, .add = MP_NO_NODE};
    if (!is_in(&graph->nodes[n], MP_NHWC_DOMAIN, "GlobalAveragePool")) {
        return false;
    }
    f->first = product_behind(graph, n);
    f->second = f->first != MP_NO_NODE ? product_behind(graph, f->first) : MP_NO_NODE;
    if (f->second == MP_NO_NODE) {
        return false;
    }
    const int32_t x = graph->nodes[n].in[X];
    f->scale = is_for_each(graph, f) ? joined_with(graph, f->second, "Mul", x) : MP_NO_NODE;
    f->add = f->scale != MP_NO_NODE ? joined_with(graph, f->scale, "Add", x) : MP_NO_NODE;
    return true;
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

/* "pool+first+second+scale" */
static void write_name(const mp_graph *graph, const int32_t *nodes, int count, char *name,
                       size_t size) {
    size_t used = 0;
    for (int i = 0; i < count && used < size; i++) {
        used += (size_t)snprintf(name + used, size - used, "%s%s", i > 0 ? "+" : "",
                                 graph->nodes[nodes[i]].node.name);
    }
}

static mp_status rewrite(mp_graph *graph, const found *f, mp_rewrites *rewrites) {
    enum { NODES = 5 };
    const mp_vertex pool = graph->nodes[f->pool], first = graph->nodes[f->first];
    const mp_vertex second = graph->nodes[f->second];
    const int32_t in[INPUTS] = {pool.in[X], first.in[W], mp_vertex_in(&first, BIAS), second.in[W],
                                mp_vertex_in(&second, BIAS)};
    const int32_t nodes[NODES] = {f->pool, f->first, f->second, f->scale, f->add};
    const int last = f->add != MP_NO_NODE ? NODES - 1 : f->scale != MP_NO_NODE ? NODES - 2 : 2;
    mp_attr attrs[ATTRS_MAX];
    char name[512];
    size_t count = copy_activation(&first, "activation", "activation_params", attrs);
    count += copy_activation(&second, "gating", "gating_params", attrs + count);
    if (f->scale != MP_NO_NODE) {
        attrs[count++] = (mp_attr){.name = "scales", .kind = MP_ATTR_INT, .i = 1};
    }
    if (f->add != MP_NO_NODE) {
        attrs[count++] = (mp_attr){.name = "adds", .kind = MP_ATTR_INT, .i = 1};
    }
    write_name(graph, nodes, last + 1, name, sizeof name);
    const mp_node node = {.op = mp_op_find(MP_OWN_NHWC_DOMAIN, "SqueezeExcite", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = count,
                          .options = second.node.options};
    if (!is_accepted(graph, &node, in) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    MP_TRY(mp_graph_change_node(graph, nodes[last], &node, in, INPUTS,
                                graph->nodes[nodes[last]].out, 1));
    for (int i = 0; i < last; i++) {
        mp_graph_remove_node(graph, nodes[i]);
    }
    return MP_OK;
}

mp_status mp_pass_find_excitation(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        found f;
        if ((graph->prefers_last || rewrites->forced) && find(graph, n, &f)) {
            MP_TRY(rewrite(graph, &f, rewrites));
        }
    }
    return MP_OK;
}
