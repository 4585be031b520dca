/* rows_back.h - rows that were seen in two dimensions have those again that they had before.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_ROWS_BACK_H
#define MP_GRAPH_PASS_ROWS_BACK_H

#include "graph/graph.h"

/* Whether `y`, which has as many rows of `columns` elements as `x` has rows, has the dimensions of
 * `x` but for the last one. */
bool mp_rows_are_back(const mp_graph *graph, int32_t y, int32_t x, int64_t columns);

#endif
