/* text.h - a graph as text, one line a value or node, and back.
 *
 *     input x f32[2,?,64]
 *     const w f32[64,64]
 *     const shape i64[2] = 2 -1
 *     const half f32[] = 0.5
 *     a = MatMul-13 (x, w) "first"
 *     b, mask = Dropout-13 (a, , training) seed=3
 *     y = Transpose-13 (b) perm=[0,2,1]
 *     z = millpond.MatMulBias-1 (y, w, b) "second+sum" <- MatMul "second", Add "sum"
 *     output z
 *
 * A dimension that is not known is `?`, a shape that is not known `[...]`, a type that is not known
 * `any`. Names of values are what stands in the graph, made unique by `#` and a number. Values of a
 * constant are written where it has 16 or fewer numbers or booleans, and may be read for those.
 * Attributes that are tensors, or lists of what is no integer, and bodies of loops are written as
 * `name=...`, and cannot be read.
 * Nodes of a branch stand between `when condition` or `unless condition` and `end`. Operators of
 * other domains than ONNX's have it in front: com.microsoft.Gelu-1. Behind `<-` are the nodes of
 * the model that a node stands for, where that is not just itself. `within b y 16` at the end: rows
 * of b lie in those of y from element 16 on; it cannot be read.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_TEXT_H
#define MP_GRAPH_TEXT_H

#include "graph/graph.h"

/* Without the nodes of the model. Gives: `*out`, until free. Fails: OUT_OF_MEMORY. */
mp_status mp_graph_write(const mp_graph *graph, char **out);
/* With them. */
mp_status mp_graph_write_origins(const mp_graph *graph, char **out);

/* Gives: `*out`, until mp_graph_destroy. Fails: INVALID_ARGUMENT, naming the line. */
mp_status mp_graph_read(const char *text, mp_graph **out);

#endif
