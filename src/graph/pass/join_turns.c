/* join_turns.c - a Transpose of a Transpose is one; attention reads and writes across one that
 * leaves the elements of a head together. Such come of lines whose channels are brought to the end.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"

#include <string.h>

enum { RANK = 4, SIDES = 3, ATTRS_MAX = 16 };

/* One order behind the other; false where ranks differ, as in a broken model. */
static bool compose(const mp_attr *first, const mp_attr *then, int64_t *out) {
    if (first->count != then->count) {
        return false;
    }
    for (size_t d = 0; d < then->count; d++) {
        out[d] = first->ints[then->ints[d]];
    }
    return true;
}

static bool is_identity(const int64_t *perm, size_t count) {
    for (size_t d = 0; d < count; d++) {
        if (perm[d] != (int64_t)d) {
            return false;
        }
    }
    return true;
}

/* The order that a Transpose makes `value` in; NULL where none does. */
static const mp_attr *turned_by(const mp_graph *graph, int32_t value, int32_t *from) {
    const int32_t n = mp_graph_maker(graph, value, "Transpose");
    const mp_attr *perm = n != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[n]) : NULL;
    *from = n != MP_NO_NODE ? graph->nodes[n].in[0] : MP_NO_VALUE;
    return perm != NULL && perm->count <= MP_RANK_MAX ? perm : NULL;
}

/* ---- a Transpose of a Transpose, which nobody else reads, or which it undoes ---- */

static mp_status join(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex v = graph->nodes[n];
    const mp_attr *then = mp_vertex_perm(&v);
    int32_t from = MP_NO_VALUE;
    const mp_attr *first = then != NULL ? turned_by(graph, v.in[0], &from) : NULL;
    int64_t perm[MP_RANK_MAX];
    if (first == NULL || then->count > MP_RANK_MAX || !compose(first, then, perm)) {
        return MP_OK;
    }
    const bool gone = is_identity(perm, then->count);
    const bool pays =
        gone ? !mp_graph_is_output(graph, v.out[0]) : mp_graph_reader(graph, v.in[0], NULL) == n;
    if (!pays || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    if (gone) {
        mp_graph_replace(graph, v.out[0], from, false);
        mp_graph_remove_node(graph, n);
    } else {
        const mp_attr attr = {
            .name = "perm", .kind = MP_ATTR_INTS, .ints = perm, .count = then->count};
        mp_node node = v.node;
        node.attrs = &attr;
        node.attr_count = 1;
        MP_TRY(mp_graph_change_node(graph, n, &node, &from, 1, v.out, 1));
    }
    mp_graph_drop_unread(graph, v.in[0]);
    return MP_OK;
}

/* ---- attention ---- */

/* The node's attributes with this order of a side, of which none is as it is. */
static size_t with_order(const mp_node *node, const char *name, const int64_t *perm,
                         mp_attr attrs[ATTRS_MAX]) {
    size_t count = 0;
    for (size_t i = 0; i < node->attr_count; i++) {
        if (strcmp(node->attrs[i].name, name) != 0) {
            attrs[count++] = node->attrs[i];
        }
    }
    if (!is_identity(perm, RANK)) {
        attrs[count++] = (mp_attr){.name = name, .kind = MP_ATTR_INTS, .ints = perm, .count = RANK};
    }
    return count;
}

/* The order of a side behind, or in front of, a Transpose; false where elements of a head would no
 * longer lie together. */
static bool order_of(const mp_node *node, const char *name, const mp_attr *turn, bool is_behind,
                     int64_t perm[RANK]) {
    static const int64_t as_it_is[RANK] = {0, 1, 2, 3};
    const mp_attr none = {.kind = MP_ATTR_INTS, .ints = as_it_is, .count = RANK};
    const mp_attr *given = mp_node_attr(node, name);
    const mp_attr *own = given != NULL ? given : &none;
    return turn->count == RANK && own->count == RANK &&
           compose(is_behind ? own : turn, is_behind ? turn : own, perm) &&
           perm[RANK - 1] == RANK - 1;
}

static mp_status read_across(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    static const char *const perms[SIDES] = {"q_perm", "k_perm", "v_perm"};
    static const char *const parts[SIDES] = {"q_part", "k_part", "v_part"};
    enum { INPUTS_MAX = 16 };
    for (int i = 0; i < SIDES; i++) {
        const mp_vertex v = graph->nodes[n];
        int32_t in[INPUTS_MAX], from = MP_NO_VALUE;
        int64_t perm[RANK];
        const mp_attr *turn = turned_by(graph, v.in[i], &from);
        if (turn == NULL || v.in_count > INPUTS_MAX || v.node.attr_count >= ATTRS_MAX ||
            mp_node_attr(&v.node, parts[i]) != NULL ||
            !order_of(&v.node, perms[i], turn, false, perm) || !mp_rewrite_allowed(rewrites)) {
            continue;
        }
        mp_attr attrs[ATTRS_MAX];
        mp_node node = v.node;
        node.attr_count = with_order(&v.node, perms[i], perm, attrs);
        node.attrs = attrs;
        memcpy(in, v.in, (size_t)v.in_count * sizeof *in);
        in[i] = from;
        const int32_t was = v.in[i];
        MP_TRY(mp_graph_change_node(graph, n, &node, in, v.in_count, v.out, v.out_count));
        mp_graph_drop_unread(graph, was);
    }
    return MP_OK;
}

static mp_status write_across(mp_graph *graph, int32_t n, mp_rewrites *rewrites) {
    const mp_vertex v = graph->nodes[n];
    const int32_t behind =
        v.out_count == 1 ? mp_graph_reader(graph, v.out[0], "Transpose") : MP_NO_NODE;
    const mp_attr *turn = behind != MP_NO_NODE ? mp_vertex_perm(&graph->nodes[behind]) : NULL;
    int64_t perm[RANK];
    if (turn == NULL || v.node.attr_count >= ATTRS_MAX ||
        !order_of(&v.node, "out_perm", turn, true, perm) || !mp_rewrite_allowed(rewrites)) {
        return MP_OK;
    }
    mp_attr attrs[ATTRS_MAX];
    mp_node node = v.node;
    node.attr_count = with_order(&v.node, "out_perm", perm, attrs);
    node.attrs = attrs;
    return mp_graph_merge_node(graph, n, behind, &node, v.in, v.in_count, graph->nodes[behind].out,
                               1);
}

mp_status mp_pass_join_turns(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (mp_vertex_is(&graph->nodes[n], "Transpose")) {
            MP_TRY(join(graph, n, rewrites));
        }
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (mp_vertex_is_own(&graph->nodes[n], "Attention")) {
            MP_TRY(read_across(graph, n, rewrites));
            MP_TRY(write_across(graph, n, rewrites));
        }
    }
    return MP_OK;
}
