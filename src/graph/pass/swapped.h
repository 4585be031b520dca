/* swapped.h - constants whose elements lie in another order.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_SWAPPED_H
#define MP_GRAPH_PASS_SWAPPED_H

#include "graph/graph.h"

/* Makes a constant of matrices of `rows` by `columns` elements, one behind the other, which have
 * their rows as columns in `value`, a constant whose bytes are here; `shape` is what it has then.
 */
mp_status mp_graph_add_swapped(mp_graph *graph, int32_t value, int64_t rows, int64_t columns,
                               const mp_shape *shape, int32_t *out);

#endif
