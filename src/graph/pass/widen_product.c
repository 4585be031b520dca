/* widen_product.c - a product whose heads are put first by a copy becomes part of another product
 * of the same input whose parts are copied so, too: one product for both, and one copy
 * (join_parts.c). ConViT has its values made apart from queries and keys.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/attention_part.h"
#include "graph/pass/product_join.h"

enum { READERS_MAX = 8, OTHER = 0, OWN = 1, BOTH };

typedef struct wider {
    mp_product product[BOTH];
    int32_t transpose; /* node that puts the heads of the second one first */
    int64_t heads, size;
    int32_t old[BOTH];            /* what both make, or a view of it */
    int32_t readers[READERS_MAX]; /* nodes: HeadsPart of the first one's rows */
    int count;
} wider;

/* Whether only nodes that make heads of its parts read `whole`. */
static bool find_readers(const mp_graph *graph, int32_t whole, wider *w) {
    w->count = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (!mp_vertex_is_own(v, "HeadsPart") || v->in[0] != whole) {
            continue;
        }
        if (w->count == READERS_MAX || !mp_graph_same_guard(graph, n, w->transpose)) {
            return false;
        }
        w->readers[w->count++] = n;
    }
    return w->count > 0 && mp_graph_uses(graph, whole) == w->count;
}

static bool find(const mp_graph *graph, int32_t n, wider *w) {
    if (!mp_puts_heads_first(graph, &graph->nodes[n])) {
        return false;
    }
    const int32_t heads = graph->nodes[n].in[0];
    const int32_t y = mp_heads_whole(graph, heads, &w->heads, &w->size);
    if (y == MP_NO_VALUE || mp_graph_reader(graph, y, "Reshape") == MP_NO_NODE ||
        mp_graph_reader(graph, heads, NULL) != n) {
        return false;
    }
    w->transpose = n;
    w->product[OWN] = mp_product_of(graph, y);
    w->old[OWN] = heads;
    if (w->product[OWN].node == MP_NO_NODE || mp_graph_rank(graph, w->product[OWN].x) != 3 ||
        w->product[OWN].columns != w->heads * w->size) {
        return false;
    }
    for (int32_t i = 0; i < graph->node_count; i++) {
        if (!mp_vertex_is_own(&graph->nodes[i], "HeadsPart")) {
            continue;
        }
        w->old[OTHER] = graph->nodes[i].in[0];
        w->product[OTHER] = mp_product_of(graph, w->old[OTHER]);
        if (w->product[OTHER].node != MP_NO_NODE &&
            mp_products_alike(graph, &w->product[OTHER], &w->product[OWN]) &&
            find_readers(graph, w->old[OTHER], w)) {
            return true;
        }
    }
    return false;
}

/* All readers read `whole` from now on, the product for both. */
static mp_status read_whole(mp_graph *graph, const wider *w, int32_t whole) {
    const int64_t part[MP_PART_NUMBERS] = {w->product[OTHER].columns, w->heads, w->size, w->size};
    for (int i = 0; i < w->count; i++) {
        const mp_vertex v = graph->nodes[w->readers[i]];
        MP_TRY(mp_graph_change_node(graph, w->readers[i], &v.node, &whole, 1, v.out, 1));
    }
    return mp_side_set_part(graph, w->transpose, 0, whole, part);
}

static mp_status rewrite(mp_graph *graph, const wider *w) {
    mp_vertex before[READERS_MAX + 1];
    int32_t whole = MP_NO_VALUE;
    MP_TRY(mp_products_result(graph, w->product, BOTH, &whole));
    for (int i = 0; i <= w->count; i++) {
        before[i] = graph->nodes[i < w->count ? w->readers[i] : w->transpose];
    }
    mp_status status = read_whole(graph, w, whole);
    status = status == MP_OK ? mp_products_join(graph, w->product, BOTH, whole) : status;
    for (int i = 0; i <= w->count && status != MP_OK; i++) {
        graph->nodes[i < w->count ? w->readers[i] : w->transpose] = before[i];
    }
    MP_TRY(status);
    mp_graph_drop_unread(graph, w->old[OTHER]);
    mp_graph_drop_unread(graph, w->old[OWN]);
    return MP_OK;
}

mp_status mp_pass_widen_product(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        wider w;
        if (!graph->nodes[n].is_gone && find(graph, n, &w) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, &w));
        }
    }
    return mp_graph_sort(graph);
}
