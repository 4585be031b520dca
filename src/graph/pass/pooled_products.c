/* pooled_products.c - two products of an image's mean that become gates of its channels are
 * convolutions of one pixel, which keep what is around them an image:
 *
 *     x * Reshape(Gemm(Gemm(Flatten(GlobalAveragePool(x)), w1), w2))
 *     becomes   x * Conv(Conv(GlobalAveragePool(x), w1), w2)
 *
 * with what follows either product. So channels_last.c need not stop here, and find_excitation.c
 * knows what it is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

#include <string.h>

enum { X, W, BIAS, RANK = 4, PRODUCTS = 2, STEPS_MAX = 6, GONE_MAX = 8 };

/* A product or what follows one. */
typedef struct step {
    int32_t node, weights, bias; /* the weights: MP_NO_VALUE for what follows */
    bool turned;                 /* those of each result side by side */
    int64_t width;               /* of its result */
} step;

typedef struct chain {
    int32_t pool, x, end; /* the mean, of what; the gates as they are read by the image */
    step steps[STEPS_MAX];
    int32_t gone[GONE_MAX]; /* nodes that go */
    int step_count, gone_count, products;
} chain;

/* ---- what there is ---- */

static bool is_mean(const mp_graph *graph, const mp_vertex *v) {
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    if (v->is_gone || v->loop != NULL || mp_graph_rank(graph, mp_vertex_in(v, X)) != RANK) {
        return false;
    }
    if (mp_vertex_is(v, "GlobalAveragePool")) {
        return true;
    }
    return mp_vertex_is(v, "ReduceMean") && mp_graph_ints(graph, v, "axes", 1, axes, &count) &&
           count == 2 && (axes[0] == 2 || axes[0] == -2) && (axes[1] == 3 || axes[1] == -1);
}

static const mp_tensor *constant_of(const mp_graph *graph, int32_t value, int rank) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    return t != NULL && t->data != 0 && t->shape.rank == rank ? t : NULL;
}

static bool is_row(const mp_graph *graph, int32_t value, int64_t width) {
    const mp_tensor *t = mp_graph_constant(graph, value);
    return t != NULL && t->shape.rank == 1 && t->shape.dim[0] == width;
}

/* Of `width` elements a row, by a constant matrix. */
static bool read_product(const mp_graph *graph, int32_t n, int64_t width, step *s) {
    const mp_vertex *v = &graph->nodes[n];
    const bool is_gemm = mp_vertex_is(v, "Gemm");
    const mp_tensor *w =
        is_gemm || mp_vertex_is(v, "MatMul") ? constant_of(graph, mp_vertex_in(v, W), 2) : NULL;
    if (w == NULL || (is_gemm && (mp_node_int(&v->node, "transA", 0) != 0 ||
                                  mp_node_float(&v->node, "alpha", 1) != 1 ||
                                  mp_node_float(&v->node, "beta", 1) != 1))) {
        return false;
    }
    const bool turned = is_gemm && mp_node_int(&v->node, "transB", 0) != 0;
    *s = (step){.node = n,
                .weights = v->in[W],
                .bias = is_gemm ? mp_vertex_in(v, BIAS) : MP_NO_VALUE,
                .turned = turned,
                .width = w->shape.dim[turned ? 0 : 1]};
    return w->shape.dim[turned ? 1 : 0] == width &&
           (s->bias == MP_NO_VALUE || is_row(graph, s->bias, s->width));
}

/* A row that is added to a product. */
static bool take_bias(const mp_graph *graph, int32_t n, int32_t value, step *s) {
    const mp_vertex *v = &graph->nodes[n];
    const int32_t other = v->in[X] == value ? mp_vertex_in(v, W) : v->in[X];
    if (!mp_vertex_is(v, "Add") || s->weights == MP_NO_VALUE || s->bias != MP_NO_VALUE ||
        !is_row(graph, other, s->width)) {
        return false;
    }
    s->bias = other;
    return true;
}

/* A view of the mean as rows; or of the gates as pixels, by one Reshape or however many Unsqueeze,
 * so that what they become tells the order. */
static bool is_view(const mp_graph *graph, const chain *c, const mp_vertex *v) {
    static const char *const names[] = {"Flatten", "Reshape", "Squeeze", "Unsqueeze"};
    if (c->products < PRODUCTS) {
        return c->products == 0 && mp_vertex_is_any(v, names, MP_COUNT_OF(names));
    }
    const int32_t before = mp_graph_maker(graph, v->in[X], NULL);
    const bool is_second =
        before != MP_NO_NODE && mp_vertex_is_any(&graph->nodes[before], names, MP_COUNT_OF(names));
    return mp_vertex_is(v, "Reshape")
               ? !is_second
               : mp_vertex_is(v, "Unsqueeze") &&
                     (!is_second || mp_vertex_is(&graph->nodes[before], "Unsqueeze"));
}

static bool is_activation(const mp_vertex *v) {
    static const char *const names[] = {"Relu", "Sigmoid", "HardSigmoid", "HardSwish", "Swish"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names)) ||
           (!v->is_gone && v->node.op == mp_op_find("com.microsoft", "QuickGelu", 1));
}

/* ---- the chain ---- */

/* Node `n`, which alone reads `value`, is one of it. */
static bool take(const mp_graph *graph, chain *c, int32_t n, int32_t value) {
    const mp_vertex *v = &graph->nodes[n];
    step *last = c->step_count > 0 ? &c->steps[c->step_count - 1] : NULL;
    const int64_t width = last != NULL ? last->width : mp_graph_dim(graph, c->x, 1);
    step next = {.node = n, .weights = MP_NO_VALUE, .bias = MP_NO_VALUE, .width = width};
    if ((v->in[X] == value && is_view(graph, c, v)) ||
        (last != NULL && take_bias(graph, n, value, last))) {
        c->gone[c->gone_count++] = n;
        return c->gone_count < GONE_MAX;
    }
    if (last != NULL && is_activation(v)) {
        c->steps[c->step_count++] = next;
        return c->step_count < STEPS_MAX;
    }
    const bool has_rows = c->products > 0 || mp_graph_rank(graph, value) == 2;
    if (v->in[X] != value || !has_rows || c->products == PRODUCTS ||
        !read_product(graph, n, width, &next)) {
        return false;
    }
    c->products++;
    c->steps[c->step_count++] = next;
    return c->step_count < STEPS_MAX;
}

/* Whether `value` is rows of `width` elements that are seen as pixels. */
static bool is_pixel(const mp_graph *graph, int32_t value, int64_t width) {
    const int32_t n = mp_graph_maker(graph, value, "Unsqueeze");
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    const bool knows =
        n != MP_NO_NODE && mp_graph_ints(graph, &graph->nodes[n], "axes", 1, axes, &count);
    return (knows && count == 2 && axes[0] == 2 && axes[1] == 3) ||
           (mp_graph_rank(graph, value) == RANK && mp_graph_dim(graph, value, 1) == width &&
            mp_graph_dim(graph, value, 2) == 1 && mp_graph_dim(graph, value, 3) == 1);
}

/* The image is multiplied by it. */
static bool is_gate(const mp_graph *graph, const chain *c, int32_t value) {
    const int32_t n = mp_graph_reader(graph, value, "Mul");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    return v != NULL && (v->in[X] == value ? v->in[W] : v->in[X]) == c->x &&
           is_pixel(graph, value, c->steps[c->step_count - 1].width);
}

static bool find(const mp_graph *graph, int32_t n, chain *c) {
    *c = (chain){.pool = n, .x = graph->nodes[n].in[X]};
    int32_t value = graph->nodes[n].out[0];
    while (c->products < PRODUCTS || !is_gate(graph, c, value)) {
        const int32_t reader = mp_graph_reader(graph, value, NULL);
        if (reader == MP_NO_NODE || !take(graph, c, reader, value)) {
            return false;
        }
        value = graph->nodes[reader].out[0];
    }
    c->end = value;
    return c->gone_count > 0 && graph->nodes[c->gone[c->gone_count - 1]].out[0] == value;
}

/* ---- in its place ---- */

/* The weights as those of a convolution of one pixel. */
static mp_status weights_of(mp_graph *graph, const step *s, int32_t *out) {
    const mp_value w = graph->values[s->weights];
    const int64_t depth = w.tensor.shape.dim[s->turned ? 1 : 0];
    mp_tensor tensor = w.tensor;
    tensor.shape = (mp_shape){.rank = RANK, .dim = {s->width, depth, 1, 1}};
    if (s->turned) { /* the same bytes */
        MP_TRY(mp_graph_add_value(graph, w.name, &tensor, out));
        graph->values[*out].is_constant = true;
        graph->values[*out].device = w.device;
        return MP_OK;
    }
    const size_t size = mp_dtype_size(tensor.type);
    tensor.data = 0;
    MP_TRY(mp_graph_add_constant(graph, w.name, &tensor, out));
    const unsigned char *source = (const unsigned char *)w.tensor.data;
    unsigned char *target = (unsigned char *)graph->values[*out].tensor.data;
    for (int64_t i = 0; i < s->width; i++) {
        for (int64_t k = 0; k < depth; k++) {
            memcpy(target + (size_t)(i * depth + k) * size,
                   source + (size_t)(k * s->width + i) * size, size);
        }
    }
    return MP_OK;
}

static mp_status add_pixel(mp_graph *graph, const chain *c, int32_t like, int64_t width,
                           int32_t *out) {
    const mp_tensor tensor = {
        .type = mp_graph_type(graph, c->x),
        .shape = {.rank = RANK, .dim = {graph->values[c->x].tensor.shape.dim[0], width, 1, 1}}};
    return mp_graph_add_value(graph, graph->values[like].name, &tensor, out);
}

static mp_status change(mp_graph *graph, const step *s, int32_t in, int32_t out) {
    mp_node node = graph->nodes[s->node].node;
    int32_t all[] = {in, MP_NO_VALUE, s->bias};
    if (s->weights == MP_NO_VALUE) {
        return mp_graph_change_node(graph, s->node, &node, all, 1, &out, 1);
    }
    MP_TRY(weights_of(graph, s, &all[W]));
    node.op = mp_op_find("", "Conv", 11);
    node.version = 11;
    node.attrs = NULL;
    node.attr_count = 0;
    return mp_graph_change_node(graph, s->node, &node, all, s->bias != MP_NO_VALUE ? 3 : 2, &out,
                                1);
}

static mp_status rewrite(mp_graph *graph, const chain *c) {
    const mp_vertex pool = graph->nodes[c->pool];
    const mp_node mean = {.op = mp_op_find("", "GlobalAveragePool", 1),
                          .version = 1,
                          .name = pool.node.name,
                          .options = pool.node.options};
    int32_t value = MP_NO_VALUE;
    for (int i = 0; i < c->gone_count; i++) {
        mp_graph_remove_node(graph, c->gone[i]);
    }
    MP_TRY(add_pixel(graph, c, pool.out[0], mp_graph_dim(graph, c->x, 1), &value));
    MP_TRY(mp_graph_change_node(graph, c->pool, &mean, &c->x, 1, &value, 1));
    for (int i = 0; i < c->step_count; i++) {
        const step *s = &c->steps[i];
        int32_t next = c->end;
        if (i + 1 < c->step_count) {
            MP_TRY(add_pixel(graph, c, graph->nodes[s->node].out[0], s->width, &next));
        }
        MP_TRY(change(graph, s, value, next));
        value = next;
    }
    return MP_OK;
}

/* Where channels_last.c turns convolutions of this type. */
static bool is_wanted(const mp_graph *graph, const mp_rewrites *rewrites, const chain *c) {
    const mp_dtype type = mp_graph_type(graph, c->x);
    const bool tf32 = graph->nodes[c->steps[0].node].node.options.tf32;
    return type == MP_F16 || type == MP_BF16 || (type == MP_F32 && (tf32 || rewrites->forced));
}

mp_status mp_pass_pooled_products(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        chain c;
        if ((graph->prefers_last || rewrites->forced) && is_mean(graph, &graph->nodes[n]) &&
            find(graph, n, &c) && is_wanted(graph, rewrites, &c) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &c));
        }
    }
    return MP_OK;
}
