/* channels_twin.h - values of images with their channels last, beside those of a graph.
 *
 * The twin of a value [batch, channels, d...] is [batch, d..., channels]; images are lines,
 * pictures and volumes, of one to three dimensions of space. A node that works on twins makes
 * twins, and each value is made of its own by a Transpose, which goes if nobody reads it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_CHANNELS_TWIN_H
#define MP_GRAPH_PASS_CHANNELS_TWIN_H

#include "graph/graph.h"
#include "graph/pass.h"

/* Dimensions of lines, of pictures and of volumes. */
enum { MP_TWIN_RANK_LINE = 3, MP_TWIN_RANK_PICTURE = 4, MP_TWIN_RANK_VOLUME = 5 };

enum { MP_TWIN_WIDTH_MAX = 64 };

typedef struct mp_layout {
    mp_graph *graph;
    mp_rewrites *rewrites;
    int32_t *twins; /* by value; owned */
    int32_t capacity;
    bool has_lines; /* some images are lines: what exchanges two of three dimensions turns one */
} mp_layout;

/* Dimension d of a twin of so many is to_last[d] of the value, and d of the value to_first[d] of
 * the twin. */
const int64_t *mp_to_last(int rank);
const int64_t *mp_to_first(int rank);

/* MP_NO_VALUE where there is none. */
int32_t mp_twin_of(const mp_layout *l, int32_t value);
/* Its dimensions; 0 where there is none. */
int mp_twin_rank(const mp_layout *l, int32_t value);
/* The dimensions of the first twin among the node's inputs that is no constant's; 0 where there is
 * none. */
int mp_twins_rank(const mp_layout *l, const mp_vertex *v);
mp_status mp_twin_set(mp_layout *l, int32_t value, int32_t twin);
/* Wherever `twin` is a twin, `other` is from now on. */
void mp_twin_replace(mp_layout *l, int32_t twin, int32_t other);
/* The twin of a value of so many dimensions, or of unknown shape, made by a Transpose if there is
 * none. MP_NO_VALUE for MP_NO_VALUE. */
mp_status mp_twin_need(mp_layout *l, int32_t value, int rank, int32_t *out);
/* What a twin of `rank` dimensions is like. */
mp_tensor mp_twin_tensor(const mp_tensor *tensor, int rank);
/* A Transpose of `from`, of so many dimensions, that makes `to`. */
mp_status mp_twin_transpose(mp_layout *l, int32_t from, int32_t to, const int64_t *perm, int rank);
/* Elements of a list, in this order. */
mp_status mp_twin_pick(mp_layout *l, int32_t value, const int64_t *order, int count, int32_t *out);
/* The elements of a list that has one for each dimension, in the order of a twin's. */
mp_status mp_twin_list(mp_layout *l, int32_t value, int rank, int32_t *out);
/* Puts `node` in the place of node `n`, over `in`; each output becomes a twin of so many
 * dimensions. */
mp_status mp_twin_node(mp_layout *l, int32_t n, const mp_node *node, const int32_t *in,
                       int in_count, int rank);

#endif
