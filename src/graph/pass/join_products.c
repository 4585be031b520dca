/* join_products.c - products of one input by constant matrices whose results are Q, K or V of one
 * attention become one product, whose parts are read where they lie: by the attention itself, by
 * the rotation before it, or where a cache grows by them as heads that are put first. Others are
 * left: what reads them would want each part by itself, and a copy costs what the product saves.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "graph/pass/attention_part.h"
#include "graph/pass/product_join.h"

#include <string.h>

enum { SIDES = 3 };

/* Who reads heads of a product's rows. */
typedef struct projection {
    mp_product product; /* first, so that products can be compared */
    int32_t reader;     /* the node: the attention, a RotaryHalves or a Transpose */
    int side;           /* of the attention */
    int64_t heads, size;
} projection;

/* What the side is before a cache. */
static int32_t fresh_of(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Concat");
    return n != MP_NO_NODE && graph->nodes[n].in_count == 2 ? graph->nodes[n].in[1] : value;
}

/* The node that reads the side as [batch, rows, heads, size], and what it reads. */
static int32_t reader_of(const mp_graph *graph, int32_t attention, int i, int32_t *heads) {
    const int32_t value = graph->nodes[attention].in[i];
    const int32_t n = mp_graph_maker(graph, fresh_of(graph, value), NULL);
    *heads = value;
    if (mp_side_is_turned(graph, &graph->nodes[attention], i)) {
        return attention;
    }
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL ||
        !(mp_puts_heads_first(graph, v) ||
          (mp_vertex_is_own(v, "RotaryHalves") && mp_node_int(&v->node, "turned", 0) != 0))) {
        return MP_NO_NODE;
    }
    *heads = v->in[0];
    return mp_graph_reader(graph, *heads, NULL) == n ? n : MP_NO_NODE;
}

static projection find_projection(const mp_graph *graph, int32_t attention, int i) {
    int32_t value = MP_NO_VALUE;
    projection p = {.product = {.node = MP_NO_NODE}, .side = i};
    p.reader = reader_of(graph, attention, i, &value);
    const int32_t y =
        p.reader != MP_NO_NODE ? mp_heads_whole(graph, value, &p.heads, &p.size) : MP_NO_VALUE;
    if (y != MP_NO_VALUE && mp_graph_reader(graph, y, "Reshape") != MP_NO_NODE) {
        p.product = mp_product_of(graph, y);
    }
    if (p.product.node != MP_NO_NODE &&
        (mp_graph_rank(graph, p.product.x) != 3 || p.product.columns != p.heads * p.size)) {
        p.product.node = MP_NO_NODE;
    }
    return p;
}

/* Those of `all` that go with the first of them, which are put first; how many. */
static int keep_alike(const mp_graph *graph, projection all[SIDES]) {
    for (int first = 0; first + 1 < SIDES; first++) {
        projection alike[SIDES];
        int count = 0;
        for (int i = first; i < SIDES; i++) {
            if (mp_products_alike(graph, &all[first].product, &all[i].product)) {
                alike[count++] = all[i];
            }
        }
        if (count > 1) {
            memcpy(all, alike, (size_t)count * sizeof *all);
            return count;
        }
    }
    return 0;
}

/* The reader reads part of `whole` instead. */
static mp_status set_part(mp_graph *graph, int32_t attention, const projection *p, int32_t whole,
                          int64_t first) {
    const int64_t part[MP_PART_NUMBERS] = {first, p->heads, p->size, p->size};
    return mp_side_set_part(graph, p->reader, p->reader == attention ? p->side : 0, whole, part);
}

static mp_status join(mp_graph *graph, int32_t attention, const projection *all, int count) {
    mp_product products[SIDES];
    mp_vertex before[SIDES];
    int32_t old[SIDES];
    int32_t whole = MP_NO_VALUE;
    int64_t first = 0;
    int done = 0;
    for (int i = 0; i < count; i++) {
        const mp_vertex *reader = &graph->nodes[all[i].reader];
        products[i] = all[i].product;
        old[i] = reader->in[all[i].reader == attention ? all[i].side : 0];
    }
    MP_TRY(mp_products_result(graph, products, count, &whole));
    mp_status status = MP_OK;
    for (; done < count && status == MP_OK; done++) {
        before[done] = graph->nodes[all[done].reader];
        status = set_part(graph, attention, &all[done], whole, first);
        first += all[done].product.columns;
    }
    status = status == MP_OK ? mp_products_join(graph, products, count, whole) : status;
    while (status != MP_OK && done-- > 0) {
        graph->nodes[all[done].reader] = before[done];
    }
    MP_TRY(status);
    for (int i = 0; i < count; i++) {
        mp_graph_drop_unread(graph, old[i]);
    }
    return MP_OK;
}

mp_status mp_pass_join_products(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        projection all[SIDES];
        if (!mp_vertex_is_own(&graph->nodes[n], "Attention")) {
            continue;
        }
        for (int i = 0; i < SIDES; i++) {
            all[i] = find_projection(graph, n, i);
        }
        const int count = keep_alike(graph, all);
        if (count > 1 && mp_rewrite_allowed(rewrites)) {
            MP_TRY(join(graph, n, all, count));
        }
    }
    return MP_OK;
}
