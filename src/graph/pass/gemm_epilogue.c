/* gemm_epilogue.c - an activation behind a product and its bias becomes part of the product: Relu,
 * and Gelu by tanh of 16-bit elements, which libraries have on the way to memory; other kinds of
 * Gelu, and x times a sigmoid of x, where a kernel of ours has them (op/linear/rows_mma.c) and
 * products follow, or parts are cut out, so that no element-wise operator does. Behind a product
 * without a bias these must follow, too: it may be one of a pair that a gate brings together. What
 * else there is is left to what fuses element-wise operators.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/gemm_epilogue.h"

#include "graph/look.h"
#include "graph/pass.h"

#include <stdio.h>
#include <string.h>

enum { ATTRS_MAX = 8 };

/* As an attribute of a product: its name, and a number that it has. */
typedef struct activation {
    const char *name; /* NULL: none that there is */
    bool has_number, is_common;
    float number;
} activation;

static activation activation_of(const mp_graph *graph, const mp_vertex *v) {
    const mp_dtype type = mp_graph_type(graph, v->in[0]);
    const bool is_short = type == MP_F16 || type == MP_BF16;
    if (mp_vertex_is(v, "Relu")) {
        return (activation){.name = "Relu", .is_common = true};
    }
    if (mp_vertex_is(v, "Gelu")) {
        const bool by_tanh = strcmp(mp_node_string(&v->node, "approximate", "none"), "tanh") == 0;
        return (activation){
            .name = "Gelu", .has_number = by_tanh, .is_common = by_tanh && is_short, .number = 1};
    }
    if (!v->is_gone && strcmp(v->node.op->name, "QuickGelu") == 0) {
        return (activation){.name = "Swish",
                            .has_number = true,
                            .number = mp_node_float(&v->node, "alpha", 1.702F)};
    }
    return (activation){.name = NULL};
}

bool mp_is_common_activation(const mp_graph *graph, const mp_vertex *v) {
    return activation_of(graph, v).is_common;
}

static bool is_product(const mp_vertex *v) {
    return mp_vertex_is(v, "MatMul") || mp_vertex_is(v, "Gemm") ||
           mp_vertex_is_own(v, "MatMulBias");
}

/* Whether a kernel of ours may take the product with its activation: what is known of its type and
 * its rows does not speak against it. Where it then does not, there is a step behind the product,
 * as there would have been. */
static bool may_be_ours(const mp_graph *graph, const mp_vertex *product) {
    enum { ROWS_MAX = 1 << 16 };
    const mp_dtype type = mp_graph_type(graph, product->in[0]);
    const int rank = mp_graph_rank(graph, product->in[0]);
    int64_t rows = 1;
    for (int d = 0; d + 1 < rank && rows <= ROWS_MAX; d++) {
        const int64_t dim = mp_graph_dim(graph, product->in[0], d);
        rows = dim > ROWS_MAX ? dim : rows * MP_MAX(dim, 1); /* one where it is not known */
    }
    return rows <= ROWS_MAX &&
           (type == MP_F16 || type == MP_BF16 || (type == MP_F32 && product->node.options.tf32));
}

/* Whether all that read what node `n` makes, one at least, are products, or cut parts out. */
static bool leads_to_products(const mp_graph *graph, int32_t n) {
    static const char *const cutting[] = {"Slice", "Split"};
    const int32_t made = graph->nodes[n].out[0];
    int uses = 0;
    for (int32_t r = 0; r < graph->node_count; r++) {
        const mp_vertex *v = &graph->nodes[r];
        const bool fits = is_product(v) || mp_vertex_is_any(v, cutting, MP_COUNT_OF(cutting));
        for (int i = 0; fits && i < v->in_count; i++) {
            uses += v->in[i] == made;
        }
    }
    return uses > 0 && uses == mp_graph_uses(graph, made);
}

/* Whether the activation that node `last` is becomes part of the product. */
static bool is_wanted(const mp_graph *graph, const mp_vertex *product, int32_t last,
                      const activation *a) {
    if (a->name == NULL || (a->is_common && !mp_vertex_is(product, "MatMul"))) {
        return a->name != NULL;
    }
    return leads_to_products(graph, last) && (a->is_common || may_be_ours(graph, product));
}

static mp_status join(mp_graph *graph, int32_t product, int32_t last, const activation *how) {
    const mp_vertex p = graph->nodes[product];
    const mp_vertex a = graph->nodes[last];
    const bool is_gemm = mp_vertex_is(&p, "Gemm");
    mp_attr attrs[ATTRS_MAX];
    char name[256];
    (void)snprintf(name, sizeof name, "%s+%s", p.node.name, a.node.name);
    mp_node node = p.node;
    node.op = is_gemm ? mp_op_find("com.microsoft", "FusedGemm", 1)
                      : mp_op_find(MP_OWN_DOMAIN, "MatMulBias", 1);
    node.version = 1;
    node.name = name;
    node.attrs = attrs;
    node.attr_count = 0;
    attrs[node.attr_count++] =
        (mp_attr){.name = "activation", .kind = MP_ATTR_STRING, .s = how->name};
    if (how->has_number) {
        attrs[node.attr_count++] =
            (mp_attr){.name = "activation_alpha", .kind = MP_ATTR_FLOAT, .f = how->number};
    }
    memcpy(attrs + node.attr_count, p.node.attrs, p.node.attr_count * sizeof *attrs);
    node.attr_count += p.node.attr_count;
    MP_TRY(mp_graph_change_node(graph, last, &node, p.in, p.in_count, a.out, 1));
    mp_graph_drop_unread(graph, p.out[0]);
    return MP_OK;
}

/* Products of one matrix for all rows, without an activation. */
static bool has_none_yet(const mp_graph *graph, const mp_vertex *v) {
    if (mp_vertex_is(v, "MatMul")) {
        const mp_tensor *matrix = mp_graph_constant(graph, v->in[1]);
        return matrix != NULL && matrix->shape.rank == 2 && v->node.attr_count == 0;
    }
    return mp_vertex_is_own(v, "MatMulBias") ? v->node.attr_count == 0
                                             : mp_vertex_is(v, "Gemm") && v->node.attr_count <= 4;
}

mp_status mp_pass_gemm_epilogue(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (!has_none_yet(graph, v)) {
            continue;
        }
        const int32_t last = mp_graph_reader(graph, v->out[0], NULL);
        if (last == MP_NO_NODE) {
            continue;
        }
        const activation how = activation_of(graph, &graph->nodes[last]);
        if (is_wanted(graph, v, last, &how) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, n, last, &how));
        }
    }
    return MP_OK;
}
