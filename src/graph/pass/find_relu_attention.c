/* find_relu_attention.c - attention without a softmax, over the pixels of an image, as EfficientViT
 * has it: of heads in the image's channels, each with a query, a key and a value,
 *
 *     p = relu(q) x (relu(k)^T x v and a column of ones);   first columns / (last one + epsilon)
 *
 * becomes one operator (op/attention/relu_attention.c), which reads the image with its channels
 * last, or the two that a Concat made it of. Halves may be floats from the products to the result.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/cut.h"
#include "op/core/channels.h"

#include <string.h>

enum { RANK = 4, PARTS = 3, SMALL = 16, LARGE = 32, PIXELS_MAX = 4096 };
enum { BATCH, HEADS, ROWS, COLUMNS };

static const int64_t turned[RANK] = {0, 1, 3, 2}, to_first[RANK] = {0, 3, 1, 2},
                     to_last[RANK] = {0, 2, 3, 1};

typedef struct linear {
    int32_t image, more; /* with channels last; more: MP_NO_VALUE for none */
    int32_t lines, rows; /* [batch, heads, 3 * size, pixels], and those transposed */
    int32_t last;        /* node: the Transpose that makes the result */
    int64_t size, height, width;
    double epsilon;
} linear;

/* What `value` is [from, to) of along an axis, which is `all` long; MP_NO_VALUE. */
static int32_t cut_of(const mp_graph *graph, int32_t value, int64_t axis, int64_t all, int64_t from,
                      int64_t to) {
    mp_cut cut;
    if (value == MP_NO_VALUE || !mp_cut_read(graph, value, &cut) || cut.axis != axis) {
        return MP_NO_VALUE;
    }
    const int64_t start = cut.start < 0 ? cut.start + all : cut.start;
    const int64_t end = cut.end < 0 ? cut.end + all : cut.end;
    return start == from && (end < all ? end : all) == to ? cut.of : MP_NO_VALUE;
}

/* What the node `name`, which makes `value`, reads first. */
static int32_t before(const mp_graph *graph, int32_t value, const char *name) {
    const int32_t n = mp_graph_maker(graph, value, name);
    return n != MP_NO_NODE ? graph->nodes[n].in[0] : MP_NO_VALUE;
}

/* What `value` was before it became floats, or itself. */
static int32_t before_floats(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Cast");
    return n != MP_NO_NODE && mp_graph_type(graph, value) == MP_F32 ? graph->nodes[n].in[0] : value;
}

/* What a Pad puts a last column of ones behind. */
static int32_t before_ones(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Pad");
    const mp_vertex *pad = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    int64_t pads[2 * RANK];
    int count = 0;
    double with = 0;
    if (pad == NULL || strcmp(mp_node_string(&pad->node, "mode", "constant"), "constant") != 0 ||
        mp_vertex_in(pad, 3) != MP_NO_VALUE ||
        !mp_graph_ints(graph, pad, "pads", 1, pads, &count) || count != 2 * RANK ||
        mp_vertex_in(pad, 2) == MP_NO_VALUE || !mp_graph_number(graph, pad->in[2], &with) ||
        with != 1) {
        return MP_NO_VALUE;
    }
    for (int i = 0; i < 2 * RANK; i++) {
        if (pads[i] != (i == 2 * RANK - 1)) {
            return MP_NO_VALUE;
        }
    }
    return pad->in[0];
}

/* Both products, from their result back to the heads. */
static bool find_products(const mp_graph *graph, int32_t result, linear *l) {
    const int32_t second = mp_graph_maker(graph, result, "MatMul");
    const int32_t first = second != MP_NO_NODE
                              ? mp_graph_maker(graph, graph->nodes[second].in[1], "MatMul")
                              : MP_NO_NODE;
    mp_cut cut;
    if (first == MP_NO_NODE) {
        return false;
    }
    const mp_vertex *of_keys = &graph->nodes[first];
    const int32_t query = before(graph, before_floats(graph, graph->nodes[second].in[0]), "Relu");
    const int32_t key = before(graph, before_floats(graph, of_keys->in[0]), "Relu");
    const int32_t value = before_ones(graph, before_floats(graph, of_keys->in[1]));
    if (key == MP_NO_VALUE || !mp_cut_read(graph, key, &cut) ||
        mp_graph_rank(graph, cut.of) != RANK) {
        return false;
    }
    const int64_t all = mp_graph_dim(graph, cut.of, ROWS), size = all / PARTS;
    l->size = size;
    l->lines = cut_of(graph, key, ROWS, all, size, 2 * size);
    l->rows = cut_of(graph, query, COLUMNS, all, 0, size);
    const int32_t n = mp_graph_maker(graph, l->rows, "Transpose");
    return (size == SMALL || size == LARGE) && all == PARTS * size && l->lines != MP_NO_VALUE &&
           cut_of(graph, value, COLUMNS, all, 2 * size, all) == l->rows &&
           mp_graph_turns(graph, n, turned, RANK) && graph->nodes[n].in[0] == l->lines;
}

/* Whether the Div `v` divides all columns of such a product but the last by that one and epsilon.
 */
static bool find_quotient(const mp_graph *graph, const mp_vertex *v, linear *l) {
    const int32_t n = mp_graph_maker(graph, v->in[1], "Add");
    mp_cut cut;
    if (n == MP_NO_NODE || !mp_cut_read(graph, v->in[0], &cut) ||
        !find_products(graph, cut.of, l)) {
        return false;
    }
    const mp_vertex *add = &graph->nodes[n];
    const int side = mp_graph_number(graph, add->in[0], &l->epsilon) ? 1 : 0;
    const int64_t all = l->size + 1;
    return (side == 1 || mp_graph_number(graph, add->in[1], &l->epsilon)) &&
           cut_of(graph, v->in[0], COLUMNS, all, 0, l->size) == cut.of &&
           cut_of(graph, add->in[side], COLUMNS, all, l->size, all) == cut.of;
}

/* Heads of all parts that `image`, with its channels last, is known to have; 0 for none. */
static int64_t heads_in(const mp_graph *graph, int32_t image, const linear *l) {
    const int64_t channels =
        mp_graph_rank(graph, image) == RANK ? mp_graph_dim(graph, image, -1) : 0;
    return channels > 0 && channels % (PARTS * l->size) == 0 ? channels / (PARTS * l->size) : 0;
}

/* The image whose channels the heads are, or both that it was put together of. */
static bool find_images(const mp_graph *graph, linear *l) {
    const int32_t n = mp_graph_maker(graph, before(graph, l->lines, "Reshape"), "Transpose");
    if (!mp_graph_turns(graph, n, to_first, RANK)) {
        return false;
    }
    l->image = graph->nodes[n].in[0];
    l->more = MP_NO_VALUE;
    const int32_t c = mp_graph_maker(graph, l->image, "Concat");
    const mp_vertex *concat = c != MP_NO_NODE ? &graph->nodes[c] : NULL;
    if (concat != NULL && concat->in_count == 2 && mp_graph_axis_is(graph, c, COLUMNS) &&
        heads_in(graph, concat->in[0], l) > 0 && heads_in(graph, concat->in[1], l) > 0) {
        l->image = concat->in[0];
        l->more = concat->in[1];
    }
    const int64_t pixels = mp_graph_dim(graph, l->lines, COLUMNS);
    const int64_t more = l->more != MP_NO_VALUE ? heads_in(graph, l->more, l) : 0;
    l->height = mp_graph_dim(graph, l->image, 1);
    l->width = mp_graph_dim(graph, l->image, 2);
    return pixels > 0 && pixels <= PIXELS_MAX && l->height > 0 && l->width > 0 &&
           l->height <= pixels && l->width <= pixels && l->height * l->width == pixels &&
           heads_in(graph, l->image, l) > 0 &&
           heads_in(graph, l->image, l) + more == mp_graph_dim(graph, l->lines, HEADS);
}

/* The result as an image with its channels last, which alone is made of what node `n` makes. */
static int32_t find_last(const mp_graph *graph, int32_t n, const linear *l) {
    const int32_t cast = mp_graph_reader(graph, graph->nodes[n].out[0], "Cast");
    const int32_t halves = cast != MP_NO_NODE ? cast : n;
    const int32_t t = mp_graph_reader(graph, graph->nodes[halves].out[0], "Transpose");
    const int32_t r = mp_graph_turns(graph, t, turned, RANK)
                          ? mp_graph_reader(graph, graph->nodes[t].out[0], "Reshape")
                          : MP_NO_NODE;
    const int32_t image = r != MP_NO_NODE ? graph->nodes[r].out[0] : MP_NO_VALUE;
    const int32_t last = r != MP_NO_NODE ? mp_graph_reader(graph, image, "Transpose") : MP_NO_NODE;
    const bool fits =
        mp_graph_turns(graph, last, to_last, RANK) && mp_graph_rank(graph, image) == RANK &&
        mp_graph_type(graph, image) == mp_graph_type(graph, l->image) &&
        mp_graph_dim(graph, image, 1) == mp_graph_dim(graph, l->lines, HEADS) * l->size &&
        mp_graph_dim(graph, image, 2) == l->height && mp_graph_dim(graph, image, 3) == l->width;
    return fits && mp_graph_same_guard(graph, n, last) ? last : MP_NO_NODE;
}

static bool find(const mp_graph *graph, int32_t n, linear *l) {
    *l = (linear){.last = MP_NO_NODE};
    if (!mp_vertex_is(&graph->nodes[n], "Div") || !find_quotient(graph, &graph->nodes[n], l) ||
        !find_images(graph, l)) {
        return false;
    }
    const mp_dtype type = mp_graph_type(graph, l->image);
    l->last = find_last(graph, n, l);
    return l->last != MP_NO_NODE && (type == MP_F32 || type == MP_F16 || type == MP_BF16);
}

static mp_status rewrite(mp_graph *graph, int32_t n, const linear *l) {
    enum { EPSILON, SIZE, ATTRS };
    const mp_attr attrs[ATTRS] = {
        [EPSILON] = {.name = "epsilon", .kind = MP_ATTR_FLOAT, .f = (float)l->epsilon},
        [SIZE] = {.name = "size", .kind = MP_ATTR_INT, .i = l->size},
    };
    const mp_vertex was = graph->nodes[l->last];
    const mp_node node = {.op = mp_op_find(MP_OWN_NHWC_DOMAIN, "ReluAttention", 1),
                          .version = 1,
                          .name = graph->nodes[n].node.name,
                          .attrs = attrs,
                          .attr_count = ATTRS,
                          .options = graph->nodes[n].node.options};
    const int32_t in[] = {l->image, l->more};
    MP_TRY(mp_graph_change_node(graph, l->last, &node, in, l->more != MP_NO_VALUE ? 2 : 1, was.out,
                                1));
    mp_graph_drop_unread(graph, was.in[0]);
    return MP_OK;
}

mp_status mp_pass_find_relu_attention(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        linear l;
        if (!graph->nodes[n].is_gone && find(graph, n, &l) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &l));
        }
    }
    return MP_OK;
}
