/* join_chain.c - the products with packed weights of a small decoder from one attention to the next
 * become one node, whose one row goes through all of them in one launch:
 *
 *     a = MatMulNBits(x, w)                                    becomes
 *     b, s = NormMatMulNBits(a, v, skip, g)                    c, s = ChainMatMulNBits(x, skip,
 *     c = GatedMatMulNBits(b, u)                                          w, , , v, , g, u, , )
 *
 * with a norm and product of `c` and `s` behind, which takes its place as the last one. The first
 * one and that behind may be missing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/look.h"

#include <stdio.h>
#include <string.h>

enum { A, WEIGHT, SCALES, ZEROS, GROUPS, BIAS, SKIP, NORM, SUM = 1 }; /* inputs; SUM: output */
enum { FIRST, NORMED, GATED, LAST, PARTS };
enum { LINK_INPUTS = 4, GIVEN = 2 };
/* What is one launch, by nbits_chain_cut.c, and no more. */
enum { BYTES_MAX = 3 << 20, COLUMNS_MAX = 1 << 16 };

/* Nodes of a chain, or MP_NO_NODE. */
typedef struct chain {
    int32_t node[PARTS];
    int32_t skip; /* value that is added before the first norm, or MP_NO_VALUE */
    int32_t sum;  /* that somebody wants of the last norm, or MP_NO_VALUE */
    int32_t x;
} chain;

static bool is_packed(const mp_vertex *v, const char *name) {
    return !v->is_gone && strcmp(v->node.op->name, name) == 0;
}

/* Whether a product has nothing but weights, scales and a bias, all constant. */
static bool is_simple(const mp_graph *graph, const mp_vertex *v) {
    static const int constants[] = {WEIGHT, SCALES, BIAS, NORM};
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        const int32_t value = mp_vertex_in(v, constants[i]);
        const bool may_miss = constants[i] == BIAS || constants[i] == NORM;
        if (value == MP_NO_VALUE ? !may_miss : mp_graph_constant(graph, value) == NULL) {
            return false;
        }
    }
    const mp_dtype type = mp_graph_type(graph, v->in[SCALES]);
    const mp_shape *weights = &mp_graph_constant(graph, v->in[WEIGHT])->shape;
    const bool says_columns = weights->rank > 1 && weights->dim[0] == mp_node_int(&v->node, "N", 0);
    return says_columns && mp_vertex_in(v, ZEROS) == MP_NO_VALUE &&
           mp_vertex_in(v, GROUPS) == MP_NO_VALUE && (type == MP_F16 || type == MP_BF16) &&
           mp_node_int(&v->node, "weight_prepacked", 0) == 0;
}

static int64_t bytes_of(const mp_vertex *v) {
    const int64_t n = mp_node_int(&v->node, "N", 0), k = mp_node_int(&v->node, "K", 0);
    const int64_t bits = mp_node_int(&v->node, "bits", 4);
    return n < 1 || k < 1 || n > COLUMNS_MAX || k > COLUMNS_MAX ? INT64_MAX / PARTS
                                                                : n * k * bits / 8;
}

/* Whether both have blocks alike, and are computed under one condition. */
static bool is_alike(const mp_graph *graph, int32_t a, int32_t b) {
    const mp_node *one = &graph->nodes[a].node, *other = &graph->nodes[b].node;
    return mp_graph_same_guard(graph, a, b) && is_simple(graph, &graph->nodes[a]) &&
           mp_node_int(one, "bits", 4) == mp_node_int(other, "bits", 4) &&
           mp_node_int(one, "block_size", 0) == mp_node_int(other, "block_size", 0) &&
           mp_graph_type(graph, graph->nodes[a].in[SCALES]) ==
               mp_graph_type(graph, graph->nodes[b].in[SCALES]);
}

/* The product whose result only the norm of `c` reads; leaves the norm's other side as the skip. */
static void find_first(const mp_graph *graph, chain *c) {
    const mp_vertex *v = &graph->nodes[c->node[NORMED]];
    c->x = v->in[A];
    c->skip = mp_vertex_in(v, SKIP);
    for (int side = 0; side < 2 && c->skip != MP_NO_VALUE; side++) {
        const int32_t value = v->in[side == 0 ? A : SKIP], other = v->in[side == 0 ? SKIP : A];
        const int32_t maker = mp_graph_maker(graph, value, NULL);
        if (maker != MP_NO_NODE && is_packed(&graph->nodes[maker], "MatMulNBits") &&
            mp_graph_reader(graph, value, NULL) == c->node[NORMED] &&
            is_alike(graph, maker, c->node[NORMED])) {
            c->node[FIRST] = maker;
            c->x = graph->nodes[maker].in[A];
            c->skip = other;
            return;
        }
    }
}

/* The norm and product of what the gated one makes and the sum before. */
static void find_last(const mp_graph *graph, chain *c) {
    const int32_t made = graph->nodes[c->node[GATED]].out[0];
    const int32_t reader = mp_graph_reader(graph, made, NULL);
    if (reader == MP_NO_NODE || c->sum == MP_NO_VALUE ||
        mp_graph_reader(graph, c->sum, NULL) != reader) {
        return;
    }
    const mp_vertex *v = &graph->nodes[reader];
    const bool reads_both =
        is_packed(v, "NormMatMulNBits") && ((v->in[A] == made && v->in[SKIP] == c->sum) ||
                                            (v->in[A] == c->sum && v->in[SKIP] == made));
    const float epsilon = mp_node_float(&graph->nodes[c->node[NORMED]].node, "epsilon", 0);
    if (reads_both && is_alike(graph, reader, c->node[GATED]) &&
        mp_node_float(&v->node, "epsilon", 0) == epsilon && bytes_of(v) <= BYTES_MAX) {
        c->node[LAST] = reader;
        c->sum = mp_vertex_out(v, SUM);
    }
}

/* Whether all is known to be of rows that may be one, and little enough. */
static bool fits(const mp_graph *graph, const chain *c) {
    const int32_t x = c->x;
    const int rank = mp_graph_rank(graph, x);
    int64_t bytes = 0;
    for (int i = 0; i < PARTS; i++) {
        bytes += c->node[i] != MP_NO_NODE ? bytes_of(&graph->nodes[c->node[i]]) : 0;
    }
    for (int d = 0; d + 1 < rank; d++) {
        if (mp_graph_dim(graph, x, d) > 1) {
            return false;
        }
    }
    return rank >= 1 && bytes <= BYTES_MAX;
}

static bool find(const mp_graph *graph, int32_t n, chain *c) {
    const mp_vertex *v = &graph->nodes[n];
    *c = (chain){.node = {MP_NO_NODE, MP_NO_NODE, n, MP_NO_NODE}};
    if (!is_packed(v, "GatedMatMulNBits") || !is_simple(graph, v)) {
        return false;
    }
    const int32_t normed = mp_graph_maker(graph, v->in[A], NULL);
    if (normed == MP_NO_NODE || !is_packed(&graph->nodes[normed], "NormMatMulNBits") ||
        mp_graph_reader(graph, v->in[A], NULL) != n || !is_alike(graph, normed, n)) {
        return false;
    }
    c->node[NORMED] = normed;
    c->sum = mp_vertex_out(&graph->nodes[normed], SUM);
    find_first(graph, c);
    find_last(graph, c);
    /* A sum that others read is made at the place of the gated product. */
    const bool can_wait = c->node[LAST] != MP_NO_NODE || mp_graph_can_wait(graph, normed, n - 1);
    return can_wait && fits(graph, c);
}

/* The inputs of the chain; their number. */
static int join_inputs(const mp_graph *graph, const chain *c, int32_t *in) {
    int count = 0;
    in[count++] = c->x;
    in[count++] = c->skip;
    for (int i = 0; i < PARTS; i++) {
        if (c->node[i] != MP_NO_NODE) {
            const mp_vertex *v = &graph->nodes[c->node[i]];
            in[count++] = v->in[WEIGHT];
            in[count++] = v->in[SCALES];
            in[count++] = mp_vertex_in(v, BIAS);
            in[count++] = i == NORMED || i == LAST ? v->in[NORM] : MP_NO_VALUE;
        }
    }
    while (in[count - 1] == MP_NO_VALUE) {
        count--;
    }
    return count;
}

static mp_status join(mp_graph *graph, const chain *c) {
    const mp_vertex normed = graph->nodes[c->node[NORMED]], gated = graph->nodes[c->node[GATED]];
    const int32_t last = c->node[LAST] != MP_NO_NODE ? c->node[LAST] : c->node[GATED];
    const mp_attr *gate = mp_node_attr(&gated.node, "gate");
    const mp_attr *alpha = mp_node_attr(&gated.node, "alpha");
    const bool has_first = c->node[FIRST] != MP_NO_NODE;
    mp_attr attrs[6] = {
        {.name = "bits", .kind = MP_ATTR_INT, .i = mp_node_int(&normed.node, "bits", 4)},
        {.name = "block_size",
         .kind = MP_ATTR_INT,
         .i = mp_node_int(&normed.node, "block_size", 0)},
        {.name = "epsilon", .kind = MP_ATTR_FLOAT, .f = mp_node_float(&normed.node, "epsilon", 0)},
        {.name = "gated", .kind = MP_ATTR_INT, .i = has_first ? 2 : 1},
    };
    size_t attr_count = 4;
    if (gate != NULL) {
        attrs[attr_count++] = *gate;
    }
    if (alpha != NULL) {
        attrs[attr_count++] = *alpha;
    }
    int32_t in[GIVEN + PARTS * LINK_INPUTS];
    const int in_count = join_inputs(graph, c, in);
    const int32_t out[] = {graph->nodes[last].out[0], c->sum};
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "ChainMatMulNBits", 1),
                          .version = 1,
                          .name = graph->nodes[last].node.name,
                          .attrs = attrs,
                          .attr_count = attr_count,
                          .options = gated.node.options};
    MP_TRY(mp_graph_merge_node(graph, last, c->node[NORMED], &node, in, in_count, out,
                               c->sum != MP_NO_VALUE ? 2 : 1));
    if (has_first) {
        mp_graph_remove_node(graph, c->node[FIRST]);
    }
    if (c->node[LAST] != MP_NO_NODE) {
        mp_graph_remove_node(graph, c->node[GATED]);
    }
    return MP_OK;
}

mp_status mp_pass_join_chain(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        chain c;
        if ((graph->prefers_last || rewrites->forced) && find(graph, n, &c) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, &c));
        }
    }
    return MP_OK;
}
