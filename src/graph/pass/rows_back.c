/* rows_back.c - see rows_back.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/rows_back.h"

#include "graph/look.h"

/* Where all dimensions but one are known to be the same, and none of these is 0, that one is what
 * the number of rows leaves. */
bool mp_rows_are_back(const mp_graph *graph, int32_t y, int32_t x, int64_t columns) {
    const int rank = mp_graph_rank(graph, x);
    int same = 0, numbers = 0;
    for (int d = 0; d < rank - 1; d++) {
        const bool is = mp_graph_same_dim(graph, x, d, y, d);
        same += is;
        numbers += is && mp_graph_dim(graph, x, d) > 0;
    }
    return rank > 0 && mp_graph_rank(graph, y) == rank && mp_graph_dim(graph, y, -1) == columns &&
           (same == rank - 1 || numbers == rank - 2);
}
