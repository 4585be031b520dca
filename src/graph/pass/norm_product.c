/* norm_product.c - rows over their root mean square, or of gated halves, that only a product by
 * constants reads become part of the product, unless it is known that there are several of them:
 *
 *     MatMul(SkipSimplifiedLayerNormalization(x, z, g), w)   becomes   NormMatMul(x, w, , z, g)
 *     MatMul(GatedHalves(x), w)                              becomes   GatedMatMul(x, w)
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <stdio.h>
#include <string.h>

enum { SKIPPED = 2, SCALED = 1, SUM = 3, INPUTS_MAX = 8, ATTRS_MAX = 16 };

/* How inputs of a product lie, and the operators that it becomes; NULL: none. */
typedef struct kind {
    const char *normed, *gated;
    int inputs; /* of the product; then come skip and the scale */
} kind;

static const kind *kind_of(const mp_vertex *v) {
    static const kind plain = {"NormMatMul", "GatedMatMul", 3},
                      packed = {"NormMatMulNBits", "GatedMatMulNBits", 6},
                      behind = {"NormMatMulNBitsGated", NULL, 6};
    if (v->is_gone || v->in_count > packed.inputs) {
        return NULL;
    }
    if (strcmp(v->node.op->name, "MatMulNBits") == 0) {
        return mp_vertex_in(v, 4) == MP_NO_VALUE && v->node.attr_count <= ATTRS_MAX / 2 ? &packed
                                                                                        : NULL;
    }
    if (mp_vertex_is_own(v, "MatMulNBitsGated")) {
        return v->node.attr_count <= ATTRS_MAX / 2 ? &behind : NULL;
    }
    const bool biased = mp_vertex_is_own(v, "MatMulBias") && v->node.attr_count == 0;
    return biased || mp_vertex_is(v, "MatMul") ? &plain : NULL;
}

static bool by_constants(const mp_graph *graph, const mp_vertex *v) {
    for (int i = 1; i < v->in_count; i++) {
        if (v->in[i] != MP_NO_VALUE && mp_graph_constant(graph, v->in[i]) == NULL) {
            return false;
        }
    }
    return true;
}

/* ---- the normalisation ---- */

static bool has_skip(const mp_vertex *v) {
    return strcmp(v->node.op->name, "SkipSimplifiedLayerNormalization") == 0;
}

static bool is_norm(const mp_vertex *v) {
    if (has_skip(v)) {
        return v->in_count == SKIPPED + 1;
    }
    const bool is_one =
        mp_vertex_is(v, "RMSNormalization") || mp_vertex_is(v, "SimplifiedLayerNormalization");
    return is_one && mp_node_int(&v->node, "axis", -1) == -1 &&
           mp_node_int(&v->node, "stash_type", MP_F32) == MP_F32;
}

/* Whether there may be one row. */
static bool may_be_one(const mp_graph *graph, int32_t value) {
    const int rank = mp_graph_rank(graph, value);
    for (int d = 0; d + 1 < rank; d++) {
        if (mp_graph_dim(graph, value, d) > 1) {
            return false;
        }
    }
    return rank >= 1;
}

/* Whether what is summed and scaled are rows of `columns`, of one type, and there may be one. */
static bool fits(const mp_graph *graph, const mp_vertex *v, const mp_tensor *scale) {
    const mp_dtype type = scale->type;
    if (scale->shape.rank != 1 || scale->shape.dim[0] < 1 ||
        (type != MP_F32 && type != MP_F16 && type != MP_BF16)) {
        return false;
    }
    for (int i = 0; i < (has_skip(v) ? 2 : 1); i++) {
        if (mp_graph_type(graph, v->in[i]) != type ||
            mp_graph_dim(graph, v->in[i], -1) != scale->shape.dim[0]) {
            return false;
        }
    }
    return may_be_one(graph, v->in[0]);
}

/* The node that makes the rows of product `n`; MP_NO_NODE. */
static int32_t maker_of(const mp_graph *graph, int32_t n, const kind *to) {
    const mp_vertex *v = &graph->nodes[n];
    const int32_t norm = mp_graph_maker(graph, v->in[0], NULL);
    if (norm == MP_NO_NODE || !mp_graph_same_guard(graph, norm, n) ||
        mp_graph_reader(graph, v->in[0], NULL) != n) {
        return MP_NO_NODE;
    }
    const mp_vertex *m = &graph->nodes[norm];
    if (mp_vertex_is_own(m, "GatedHalves")) {
        const bool fit = to->gated != NULL && m->node.attr_count <= ATTRS_MAX / 2 &&
                         !mp_node_flag(&m->node, "last", false) && may_be_one(graph, m->in[0]);
        return fit ? norm : MP_NO_NODE;
    }
    if (!is_norm(m) || m->out[0] != v->in[0] || mp_vertex_out(m, 1) != MP_NO_VALUE ||
        mp_vertex_out(m, 2) != MP_NO_VALUE) {
        return MP_NO_NODE;
    }
    const mp_tensor *scale = mp_graph_constant(graph, m->in[has_skip(m) ? SKIPPED : SCALED]);
    return scale != NULL && fits(graph, m, scale) ? norm : MP_NO_NODE;
}

/* ---- both as one ---- */

/* The attributes of both; their number. */
static size_t join_attrs(const mp_vertex *m, const mp_vertex *v, mp_attr *attrs) {
    size_t count = 0;
    for (size_t i = 0; i < v->node.attr_count; i++) {
        attrs[count++] = v->node.attrs[i];
    }
    if (mp_vertex_is_own(m, "GatedHalves")) {
        for (size_t i = 0; i < m->node.attr_count; i++) {
            attrs[count++] = m->node.attrs[i];
        }
        return count;
    }
    attrs[count] = (mp_attr){.name = "epsilon",
                             .kind = MP_ATTR_FLOAT,
                             .f = mp_node_float(&m->node, "epsilon", has_skip(m) ? 1e-12f : 1e-5f)};
    return count + 1;
}

/* The inputs of both; their number. */
static int join_inputs(const mp_vertex *m, const mp_vertex *v, const kind *to, int32_t *in) {
    in[0] = m->in[0];
    for (int i = 1; i < to->inputs; i++) {
        in[i] = mp_vertex_in(v, i);
    }
    if (mp_vertex_is_own(m, "GatedHalves")) {
        return v->in_count;
    }
    in[to->inputs] = has_skip(m) ? m->in[1] : MP_NO_VALUE;
    in[to->inputs + 1] = m->in[has_skip(m) ? SKIPPED : SCALED];
    return to->inputs + 2;
}

/* At the place of the maker, since others may read its sum before the product. */
static mp_status join(mp_graph *graph, int32_t maker, int32_t product, const kind *to) {
    const mp_vertex m = graph->nodes[maker], v = graph->nodes[product];
    const bool is_gate = mp_vertex_is_own(&m, "GatedHalves");
    const int32_t sum = is_gate ? MP_NO_VALUE : mp_vertex_out(&m, SUM);
    mp_attr attrs[ATTRS_MAX];
    int32_t in[INPUTS_MAX];
    char name[256];
    const size_t attr_count = join_attrs(&m, &v, attrs);
    const int in_count = join_inputs(&m, &v, to, in);
    (void)snprintf(name, sizeof name, "%s+%s", m.node.name, v.node.name);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, is_gate ? to->gated : to->normed, 1),
                          .version = 1,
                          .name = name,
                          .attrs = attrs,
                          .attr_count = attr_count,
                          .options = v.node.options};
    const int32_t out[] = {v.out[0], sum};
    return mp_graph_merge_node(graph, maker, product, &node, in, in_count, out,
                               sum != MP_NO_VALUE ? 2 : 1);
}

mp_status mp_pass_norm_product(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const kind *to = kind_of(v);
        if (to == NULL || !by_constants(graph, v)) {
            continue;
        }
        const mp_tensor *b = mp_graph_constant(graph, v->in[1]);
        const int32_t maker = maker_of(graph, n, to);
        if (maker != MP_NO_NODE && (to->inputs > 3 || b->shape.rank == 2) &&
            mp_shape_count(&b->shape) > 0 && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, maker, n, to));
        }
    }
    return MP_OK;
}
