/* conv_epilogue.c - what follows a convolution alone becomes part of it: the sum with a residual,
 * then an activation; or an activation, then the sum.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/silu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { X, W, BIAS, RESIDUAL, INPUTS, PARAMS_MAX = 2, MORE = 3, ATTRS_MAX = 16, GONE_MAX = 3 };

/* A convolution with what has been found behind it. */
typedef struct tail {
    int32_t conv;  /* the node */
    int32_t last;  /* the node whose result takes the place of its own */
    int32_t value; /* that result */
    int32_t residual;
    bool residual_behind;   /* the activation */
    int32_t gone[GONE_MAX]; /* nodes that go */
    int gone_count;
    const char *activation;
    float params[PARAMS_MAX];
    size_t param_count;
} tail;

/* Node `n` is now what the result comes from. */
static void go_on(const mp_graph *graph, tail *t, int32_t n) {
    t->gone[t->gone_count++] = t->last;
    t->last = n;
    t->value = graph->nodes[n].out[0];
}

/* ---- a residual ---- */

/* An image, not a row or a number. */
static bool is_image(const mp_graph *graph, int32_t value, int32_t y) {
    const int rank = mp_graph_rank(graph, value);
    return value != y && !graph->values[value].is_constant && rank >= 3 &&
           rank == mp_graph_rank(graph, y);
}

static bool find_residual(const mp_graph *graph, tail *t) {
    const int32_t n = mp_graph_reader(graph, t->value, "Add");
    if (n == MP_NO_NODE) {
        return false;
    }
    const mp_vertex *add = &graph->nodes[n];
    const int32_t other = add->in[0] == t->value ? add->in[1] : add->in[0];
    if (!is_image(graph, other, t->value)) {
        return false;
    }
    t->residual = other;
    go_on(graph, t, n);
    return true;
}

/* ---- an activation ---- */

static bool bound_of(const mp_graph *graph, const mp_vertex *v, int i, const char *name,
                     float fallback, float *out) {
    double number = 0;
    *out = mp_node_float(&v->node, name, fallback);
    if (mp_vertex_in(v, i) == MP_NO_VALUE) {
        return true;
    }
    const bool known = mp_graph_number(graph, v->in[i], &number);
    *out = (float)number;
    return known;
}

/* Its parameters; false where it is none that is known. */
static bool read_activation(const mp_graph *graph, const mp_vertex *v, tail *t) {
    static const char *const plain[] = {"Relu", "Sigmoid", "Tanh", "HardSwish"};
    const char *name = v->node.op->name;
    for (size_t i = 0; i < MP_COUNT_OF(plain); i++) {
        if (mp_vertex_is(v, plain[i])) {
            t->activation = plain[i];
            return true;
        }
    }
    t->activation = name;
    if (mp_vertex_is(v, "LeakyRelu")) {
        t->params[0] = mp_node_float(&v->node, "alpha", 0.01F);
        t->param_count = 1;
        return true;
    }
    if (mp_vertex_is(v, "HardSigmoid")) {
        t->params[0] = mp_node_float(&v->node, "alpha", 0.2F);
        t->params[1] = mp_node_float(&v->node, "beta", 0.5F);
        t->param_count = 2;
        return true;
    }
    if (mp_vertex_is(v, "Clip")) {
        t->param_count = 2;
        return bound_of(graph, v, 1, "min", -INFINITY, &t->params[0]) &&
               bound_of(graph, v, 2, "max", INFINITY, &t->params[1]);
    }
    if (mp_is_silu(v)) {
        t->activation = "Silu";
        return true;
    }
    return mp_vertex_is(v, "Gelu") &&
           strcmp(mp_node_string(&v->node, "approximate", "none"), "none") == 0;
}

static bool find_activation(const mp_graph *graph, tail *t) {
    const int32_t n = mp_graph_reader(graph, t->value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->out_count != 1 || v->in[0] != t->value || !read_activation(graph, v, t)) {
        t->activation = NULL;
        t->param_count = 0;
        return false;
    }
    go_on(graph, t, n);
    return true;
}

/* ---- a residual behind the activation ---- */

/* Whether a sum behind the activation costs less as part of one pass with it: where both are steps
 * behind a library's convolution. Relu is part of that, and kernels of ours for single pixels or
 * channels have every activation. */
static bool gains_behind(const mp_graph *graph, const tail *t) {
    const mp_shape *w = &graph->values[graph->nodes[t->conv].in[W]].tensor.shape;
    int64_t taps = 1;
    for (int d = 2; d < w->rank; d++) {
        taps = w->dim[d] > 1 ? w->dim[d] : taps;
    }
    return strcmp(t->activation, "Relu") != 0 && w->rank > 2 && taps > 1 && w->dim[1] > 1;
}

/* ---- rewriting ---- */

/* "conv+sum+relu" */
static void write_name(const mp_graph *graph, const tail *t, char *name, size_t size) {
    size_t used = 0;
    for (int i = 0; i < t->gone_count && used < size; i++) {
        used +=
            (size_t)snprintf(name + used, size - used, "%s+", graph->nodes[t->gone[i]].node.name);
    }
    if (used < size) {
        (void)snprintf(name + used, size - used, "%s", graph->nodes[t->last].node.name);
    }
}

static mp_status join(mp_graph *graph, const tail *t) {
    const mp_vertex conv = graph->nodes[t->conv];
    mp_attr attrs[ATTRS_MAX];
    size_t count = 0;
    char name[512];
    int32_t in[INPUTS] = {mp_vertex_in(&conv, X), mp_vertex_in(&conv, W), mp_vertex_in(&conv, BIAS),
                          t->residual};
    const int in_count = in[RESIDUAL] != MP_NO_VALUE ? INPUTS : in[BIAS] != MP_NO_VALUE ? 3 : 2;
    for (size_t i = 0; i < conv.node.attr_count; i++) {
        attrs[count++] = conv.node.attrs[i];
    }
    if (t->activation != NULL) {
        attrs[count++] =
            (mp_attr){.name = "activation", .kind = MP_ATTR_STRING, .s = t->activation};
    }
    if (t->param_count > 0) {
        attrs[count++] = (mp_attr){.name = "activation_params",
                                   .kind = MP_ATTR_FLOATS,
                                   .floats = t->params,
                                   .count = t->param_count};
    }
    if (t->residual_behind) {
        attrs[count++] = (mp_attr){.name = "residual_behind", .kind = MP_ATTR_INT, .i = 1};
    }
    write_name(graph, t, name, sizeof name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "FusedConv", 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = count,
                          .options = conv.node.options};
    MP_TRY(mp_graph_change_node(graph, t->last, &node, in, in_count, &t->value, 1));
    for (int i = 0; i < t->gone_count; i++) {
        mp_graph_remove_node(graph, t->gone[i]);
    }
    return MP_OK;
}

mp_status mp_pass_conv_epilogue(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (!mp_vertex_is(v, "Conv") || v->node.attr_count + MORE > ATTRS_MAX) {
            continue;
        }
        tail t = {.conv = n, .last = n, .value = v->out[0], .residual = MP_NO_VALUE};
        const bool sum = find_residual(graph, &t);
        const bool active = find_activation(graph, &t);
        if (active && !sum && gains_behind(graph, &t)) {
            t.residual_behind = find_residual(graph, &t);
        }
        if ((sum || active) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, &t));
        }
    }
    return MP_OK;
}
