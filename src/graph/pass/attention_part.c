/* attention_part.c - see attention_part.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/attention_part.h"

#include "base/macros.h"

#include <string.h>

enum { ATTRS_MAX = 16, INPUTS_MAX = 32 };

/* The attributes of a side. */
static const char *perm_name(const mp_vertex *v, int i) {
    static const char *const perms[] = {"q_perm", "k_perm", "v_perm"};
    return mp_vertex_is_own(v, "Attention") ? perms[i]
           : mp_vertex_is(v, "Transpose")   ? "perm"
                                            : "turned";
}

static const char *part_name(const mp_vertex *v, int i) {
    static const char *const parts[] = {"q_part", "k_part", "v_part"};
    return mp_vertex_is_own(v, "Attention") ? parts[i] : "part";
}

static const int64_t heads_first[] = {0, 2, 1, 3};

const mp_attr *mp_side_perm(const mp_vertex *v, int i) {
    static const mp_attr turned = {
        .name = "perm", .kind = MP_ATTR_INTS, .ints = heads_first, .count = 4};
    if (mp_vertex_is_own(v, "Attention") || mp_vertex_is(v, "Transpose")) {
        return mp_node_attr(&v->node, perm_name(v, i));
    }
    return mp_node_flag(&v->node, "turned", false) ? &turned : NULL;
}

bool mp_side_has_part(const mp_vertex *v, int i) {
    return mp_node_attr(&v->node, part_name(v, i)) != NULL;
}

bool mp_is_heads_first(const mp_attr *perm) {
    return perm != NULL && perm->count == MP_COUNT_OF(heads_first) &&
           memcmp(perm->ints, heads_first, sizeof heads_first) == 0;
}

bool mp_puts_heads_first(const mp_graph *graph, const mp_vertex *v) {
    const bool fits = mp_vertex_is(v, "Transpose") && mp_is_heads_first(mp_vertex_perm(v));
    const mp_dtype type = fits ? mp_graph_type(graph, v->in[0]) : MP_NONE;
    return type != MP_NONE && (MP_FLOATS & MP_BIT(type)) != 0;
}

bool mp_side_is_turned(const mp_graph *graph, const mp_vertex *v, int i) {
    return mp_is_heads_first(mp_side_perm(v, i)) && mp_graph_reader(graph, v->in[i], NULL) >= 0;
}

/* Whether dimension `d` of `value`, made by a Reshape of `given` to `shape`, is the same in both.
 */
static bool is_kept(const mp_graph *graph, const mp_vertex *reshape, int d) {
    const int64_t entry = mp_graph_entry(graph, reshape->in[1], d);
    const int64_t before = mp_graph_dim(graph, reshape->in[0], d);
    return (entry == 0 && mp_node_int(&reshape->node, "allowzero", 0) == 0) ||
           (entry > 0 && entry == before) ||
           mp_graph_entry_is(graph, reshape->in[1], d, reshape->in[0], d);
}

int32_t mp_heads_whole(const mp_graph *graph, int32_t value, int64_t *heads, int64_t *size) {
    const int32_t n = mp_graph_maker(graph, value, "Reshape");
    if (n == MP_NO_NODE || mp_graph_rank(graph, graph->nodes[n].in[0]) != 3 ||
        mp_graph_rank(graph, value) != 4) {
        return MP_NO_VALUE;
    }
    const mp_vertex *reshape = &graph->nodes[n];
    *heads = mp_graph_entry(graph, reshape->in[1], 2);
    *size = mp_graph_entry(graph, reshape->in[1], 3);
    const int64_t whole = mp_graph_dim(graph, reshape->in[0], 2);
    const bool both = is_kept(graph, reshape, 0) && is_kept(graph, reshape, 1);
    if (*heads == -1 && *size > 0 && both && whole > 0) { /* as many as there are */
        *heads = whole / *size;
    }
    /* One of the first two stays, and so does the other, since the third is what the last two are;
     * that the pass which asks knows of the product or the parts. */
    return *heads > 0 && *size > 0 && *heads <= INT32_MAX / *size &&
                   (is_kept(graph, reshape, 0) || is_kept(graph, reshape, 1))
               ? reshape->in[0]
               : MP_NO_VALUE;
}

mp_status mp_side_set_part(mp_graph *graph, int32_t n, int i, int32_t whole,
                           const int64_t part[MP_PART_NUMBERS]) {
    const mp_vertex v = graph->nodes[n];
    mp_attr attrs[ATTRS_MAX];
    int32_t in[INPUTS_MAX];
    mp_node node = v.node;
    if (mp_vertex_is(&v, "Transpose")) {
        node.op = mp_op_find(MP_OWN_DOMAIN, "HeadsPart", 1);
        node.version = 1;
    }
    const mp_attr fresh = {
        .name = part_name(&v, i), .kind = MP_ATTR_INTS, .ints = part, .count = MP_PART_NUMBERS};
    bool placed = false;
    node.attr_count = 0;
    node.attrs = attrs;
    for (size_t a = 0; a < v.node.attr_count; a++) { /* in the order of their names */
        if (!placed && strcmp(v.node.attrs[a].name, fresh.name) > 0) {
            attrs[node.attr_count++] = fresh;
            placed = true;
        }
        if (strcmp(v.node.attrs[a].name, perm_name(&v, i)) != 0) {
            attrs[node.attr_count++] = v.node.attrs[a];
        }
    }
    if (!placed) {
        attrs[node.attr_count++] = fresh;
    }
    memcpy(in, v.in, (size_t)v.in_count * sizeof *in);
    in[i] = whole;
    return mp_graph_change_node(graph, n, &node, in, v.in_count, v.out, v.out_count);
}
