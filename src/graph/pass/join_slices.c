/* join_slices.c - slices of one value that lie side by side and are all of it become one Split:
 * torch cuts gates so whose sizes it asks for. One launch moves all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/cut.h"

#include <stdio.h>

/* Halves are left: passes over these have seen them before. */
enum { PARTS_MIN = 3, PARTS_MAX = 16 };

/* Slices in the order of what they leave. */
typedef struct parts {
    int count;
    int32_t node[PARTS_MAX];
    mp_cut cut[PARTS_MAX];
} parts;

static bool is_slice(const mp_graph *graph, int32_t n, mp_cut *cut) {
    const mp_vertex *v = &graph->nodes[n];
    return mp_vertex_is(v, "Slice") && v->loop == NULL && mp_cut_read(graph, v->out[0], cut) &&
           cut->start >= 0 && cut->end > cut->start;
}

static void insert(parts *p, int32_t n, const mp_cut *cut) {
    int at = p->count++;
    for (; at > 0 && p->cut[at - 1].start > cut->start; at--) {
        p->node[at] = p->node[at - 1];
        p->cut[at] = p->cut[at - 1];
    }
    p->node[at] = n;
    p->cut[at] = *cut;
}

/* Whether each begins where the one before ends, and the last ends at `size`. */
static bool are_all(const parts *p, int64_t size) {
    int64_t end = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->cut[i].start != end) {
            return false;
        }
        end = p->cut[i].end;
    }
    return end >= size && p->cut[p->count - 1].start < size;
}

/* Node `n` and those behind it that cut the same value. */
static bool find(const mp_graph *graph, int32_t n, parts *p) {
    mp_cut first, other;
    p->count = 0;
    if (!is_slice(graph, n, &first) ||
        mp_dtype_size(mp_graph_type(graph, first.of)) == 0) { /* packed, or not known */
        return false;
    }
    for (int32_t i = n; i < graph->node_count && p->count < PARTS_MAX; i++) {
        if (is_slice(graph, i, &other) && other.of == first.of && other.axis == first.axis &&
            mp_graph_same_guard(graph, i, n)) {
            insert(p, i, &other);
        }
    }
    const int64_t size = mp_graph_dim(graph, first.of, (int)first.axis);
    return p->count >= PARTS_MIN && size > 0 && are_all(p, size);
}

/* Node `n`, the first of them, makes what all did. */
static mp_status rewrite(mp_graph *graph, int32_t n, const parts *p) {
    const mp_vertex v = graph->nodes[n];
    const int64_t size = mp_graph_dim(graph, p->cut[0].of, (int)p->cut[0].axis);
    const mp_attr axis = {.name = "axis", .kind = MP_ATTR_INT, .i = p->cut[0].axis};
    int64_t sizes[PARTS_MAX];
    int32_t out[PARTS_MAX], in[] = {p->cut[0].of, MP_NO_VALUE};
    char name[256];
    for (int i = 0; i < p->count; i++) {
        sizes[i] = MP_MIN(p->cut[i].end, size) - p->cut[i].start;
        out[i] = graph->nodes[p->node[i]].out[0];
    }
    (void)snprintf(name, sizeof name, "%s+%s", graph->nodes[p->node[0]].node.name,
                   graph->nodes[p->node[p->count - 1]].node.name);
    const mp_tensor list = {
        .type = MP_I64, .shape = {.rank = 1, .dim = {p->count}}, .data = (mp_addr)sizes};
    const mp_node node = {.op = mp_op_find("", "Split", 13),
                          .version = 13,
                          .name = name,
                          .attrs = &axis,
                          .attr_count = 1,
                          .options = v.node.options};
    MP_TRY(mp_graph_add_constant(graph, "", &list, &in[1]));
    for (int i = 0; i < p->count; i++) {
        if (p->node[i] != n) {
            mp_graph_remove_node(graph, p->node[i]);
        }
    }
    MP_TRY(mp_graph_change_node(graph, n, &node, in, 2, out, p->count));
    for (int i = 0; i < p->count; i++) {
        MP_TRY(p->node[i] != n ? mp_graph_absorb(graph, n, p->node[i]) : MP_OK);
    }
    return MP_OK;
}

mp_status mp_pass_join_slices(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        parts p;
        if (find(graph, n, &p) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &p));
        }
    }
    return MP_OK;
}
