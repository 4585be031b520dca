/* look.h - what passes ask of a graph.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_LOOK_H
#define MP_GRAPH_LOOK_H

#include "graph/graph.h"

/* Input or output `i` of a node; MP_NO_VALUE where it is left out or beyond the end. */
static inline int32_t mp_vertex_in(const mp_vertex *v, int i) {
    return i < v->in_count ? v->in[i] : MP_NO_VALUE;
}
static inline int32_t mp_vertex_out(const mp_vertex *v, int i) {
    return i < v->out_count ? v->out[i] : MP_NO_VALUE;
}

/* Whether the node is there, and is this operator that passes put in the place of others. */
bool mp_vertex_is_own(const mp_vertex *v, const char *name);

/* Whether it is one of these operators of ONNX's own. */
bool mp_vertex_is_any(const mp_vertex *v, const char *const *names, size_t count);

/* Whether its first output has the shape of its first input, whatever the others are. */
bool mp_vertex_keeps_shape(const mp_vertex *v);

/* Whether a convolution by weights of shape `w` makes each pixel of one, so that it is a product.
 */
bool mp_vertex_is_of_pixels(const mp_vertex *v, const mp_shape *w);

/* In which order a Transpose puts dimensions, if it says so, and has each of them once; or NULL. */
const mp_attr *mp_vertex_perm(const mp_vertex *v);

/* Whether node `n`, or MP_NO_NODE, is a Transpose of so many dimensions into this order. */
bool mp_graph_turns(const mp_graph *graph, int32_t n, const int64_t *order, int rank);

/* Whether both nodes are computed under the same conditions: only such are ever put together. What
 * a node reads is there wherever the node is, so that a pass may look at makers freely. */
bool mp_graph_same_guard(const mp_graph *graph, int32_t a, int32_t b);
/* Whether nobody reads what `early` makes before `late`, a later node, runs, which can then make
 * it, too. */
bool mp_graph_can_wait(const mp_graph *graph, int32_t early, int32_t late);
/* The node that makes `value`, if it is this operator of ONNX's own (NULL: any); or MP_NO_NODE. */
int32_t mp_graph_maker(const mp_graph *graph, int32_t value, const char *name);
/* The only node that reads `value`, once, if it is this operator (NULL: any), behind the guard of
 * the value's maker, and the value is no output of the graph; or MP_NO_NODE. */
int32_t mp_graph_reader(const mp_graph *graph, int32_t value, const char *name);

/* The value's tensor if it is a constant, whose bytes may not be here; or NULL. */
const mp_tensor *mp_graph_constant(const mp_graph *graph, int32_t value);
/* Whether the value is one number that is known now: a constant with its bytes, or what follows
 * from dimensions that are known. Casts and arithmetic between floats are not rounded. */
bool mp_graph_number(const mp_graph *graph, int32_t value, double *out);
/* The same for a list of integers, an attribute of the node or else its input `i`; `*count` of them
 * in `out`, which has room for MP_RANK_MAX. */
bool mp_graph_ints(const mp_graph *graph, const mp_vertex *v, const char *name, int i, int64_t *out,
                   int *count);
/* Whether the value will be known while the graph is planned: it follows from shapes and constants.
 */
bool mp_graph_is_planned(const mp_graph *graph, int32_t value);

/* What is known of the value, from its type or from its maker: MP_DIM_UNKNOWN, MP_NONE. */
int mp_graph_rank(const mp_graph *graph, int32_t value);
/* Whether `b` has as many dimensions as `a`, or of neither it is known how many: a number in
 * between may have brought more along. */
bool mp_graph_same_rank(const mp_graph *graph, int32_t a, int32_t b);
mp_dtype mp_graph_type(const mp_graph *graph, int32_t value);
/* Dimension `d`, or of a negative `d` the one as far from the end. */
int64_t mp_graph_dim(const mp_graph *graph, int32_t value, int d);
/* Whether all dimensions of both are known, and the same. */
bool mp_graph_same_shape(const mp_graph *graph, int32_t a, int32_t b);
/* Whether the attribute axis of node `n`, which is 0 where it is left out, is this dimension of its
 * output. */
bool mp_graph_axis_is(const mp_graph *graph, int32_t n, int axis);
/* What an Unsqueeze puts a dimension of 1 behind, and only that; else MP_NO_VALUE. */
int32_t mp_graph_before_last(const mp_graph *graph, int32_t value);
/* Whether dimension `d` of `a` is known to be dimension `e` of `b`, as a number or by its name. */
bool mp_graph_same_dim(const mp_graph *graph, int32_t a, int d, int32_t b, int e);
/* Elements of a list of integers that a shape is made of; or MP_DIM_UNKNOWN. */
int64_t mp_graph_list_length(const mp_graph *graph, int32_t value);
/* Element `i` of a list of integers that a shape is made of: of a constant, or of a Concat of
 * constants and of single elements that are not known. */
int64_t mp_graph_entry(const mp_graph *graph, int32_t value, int i);

/* Whether element `i` of the list of sizes is dimension `d` of `value`: by what a Shape gives and
 * what takes it apart and together again. Of both a negative index counts from the end. */
bool mp_graph_entry_is(const mp_graph *graph, int32_t list, int i, int32_t value, int d);

/* Whether it is dimension `d` of `value`, which is not negative here, times a number. */
bool mp_graph_entry_is_product(const mp_graph *graph, int32_t list, int i, int32_t value, int d,
                               int64_t times);

/* Whether element `i` of the list of sizes is the number -1. */
bool mp_graph_entry_is_rest(const mp_graph *graph, int32_t list, int i);

/* Element `i` of the list of sizes, or a scalar's 0: a number above 0, a dimension's name, which is
 * below MP_DIM_UNKNOWN, or MP_DIM_UNKNOWN. */
int64_t mp_graph_entry_dim(const mp_graph *graph, int32_t list, int i);

#endif
