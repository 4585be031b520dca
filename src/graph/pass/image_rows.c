/* image_rows.c - see image_rows.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/image_rows.h"

#include "graph/look.h"

#include <string.h>

enum { BATCH, CHANNELS, PIXELS, ROWS_RANK, IMAGE_RANK };

/* Whether the node exchanges the last two of three dimensions. */
static bool turns_rows(const mp_graph *graph, int32_t n) {
    static const int64_t turned[ROWS_RANK] = {0, 2, 1};
    return mp_graph_turns(graph, n, turned, ROWS_RANK);
}

/* The Reshape that makes `value`, where it reads `rank` dimensions, of which the first two stay. */
static const mp_vertex *reshape_of(const mp_graph *graph, int32_t value, int rank) {
    const int32_t n = mp_graph_maker(graph, value, "Reshape");
    const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
    if (v == NULL || v->in_count != 2 || mp_graph_rank(graph, v->in[0]) != rank) {
        return NULL;
    }
    const bool copies = mp_node_int(&v->node, "allowzero", 0) == 0; /* where it says 0 */
    for (int d = BATCH; d <= CHANNELS; d++) {
        if (!(copies && mp_graph_entry(graph, v->in[1], d) == 0) &&
            !mp_graph_entry_is(graph, v->in[1], d, v->in[0], d)) {
            return NULL;
        }
    }
    return v;
}

bool mp_rows_of_image(const mp_graph *graph, int32_t n, int32_t *image, int64_t dim[3]) {
    const mp_vertex *v = turns_rows(graph, n) ? &graph->nodes[n] : NULL;
    const mp_vertex *reshape = v != NULL ? reshape_of(graph, v->in[0], IMAGE_RANK) : NULL;
    if (reshape == NULL || mp_graph_rank(graph, v->in[0]) != ROWS_RANK) {
        return false;
    }
    *image = reshape->in[0];
    const int64_t height = mp_graph_dim(graph, *image, 2), width = mp_graph_dim(graph, *image, 3);
    int64_t pixels = -1; /* which nothing tells where there is no image at all, there as here */
    const bool known = height > 0 && width > 0 && !__builtin_mul_overflow(height, width, &pixels);
    dim[0] = 0;
    dim[1] = known ? pixels : -1;
    dim[2] = mp_graph_dim(graph, *image, CHANNELS);
    return dim[2] > 0 && (known || mp_graph_entry_is_rest(graph, reshape->in[1], PIXELS));
}

bool mp_heads_of_image(const mp_graph *graph, int32_t n, int32_t *image, int64_t dim[4]) {
    enum { OF_BATCH, HEADS, SIZE, LENGTH };
    static const int64_t turned[IMAGE_RANK] = {OF_BATCH, HEADS, LENGTH, SIZE};
    const int32_t heads =
        mp_graph_turns(graph, n, turned, IMAGE_RANK) ? graph->nodes[n].in[0] : MP_NO_VALUE;
    const int32_t r = mp_graph_maker(graph, heads, "Reshape");
    *image = r != MP_NO_NODE ? graph->nodes[r].in[0] : MP_NO_VALUE;
    if (r == MP_NO_NODE || mp_graph_rank(graph, heads) != IMAGE_RANK ||
        mp_graph_rank(graph, *image) != IMAGE_RANK) {
        return false;
    }
    const int64_t height = mp_graph_dim(graph, *image, 2), width = mp_graph_dim(graph, *image, 3);
    int64_t pixels = 0;
    dim[0] = -1;
    dim[1] = mp_graph_dim(graph, heads, HEADS);
    dim[2] = mp_graph_dim(graph, heads, LENGTH);
    dim[3] = mp_graph_dim(graph, heads, SIZE);
    return height > 0 && width > 0 && !__builtin_mul_overflow(height, width, &pixels) &&
           dim[1] > 0 && dim[2] == pixels && dim[3] > 0 &&
           dim[3] == mp_graph_dim(graph, *image, CHANNELS);
}

bool mp_image_of_rows(const mp_graph *graph, int32_t image, int32_t *rows, int32_t *list) {
    const mp_vertex *reshape = reshape_of(graph, image, ROWS_RANK);
    const int32_t n =
        reshape != NULL ? mp_graph_maker(graph, reshape->in[0], "Transpose") : MP_NO_NODE;
    if (!turns_rows(graph, n) || mp_graph_rank(graph, image) != IMAGE_RANK) {
        return false;
    }
    *rows = graph->nodes[n].in[0];
    *list = reshape->in[1];
    return mp_graph_entry(graph, *list, CHANNELS) != 0;
}
