/* rotary_angles.h - cosines and sines of rotary positions, which rows hold twice: both halves of a
 * row are alike, or both elements of each pair of neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_ROTARY_ANGLES_H
#define MP_GRAPH_PASS_ROTARY_ANGLES_H

#include "graph/graph.h"

/* Whether rows along the last axis, of `rank`, are known to be so: halves, or `paired` neighbours.
 */
bool mp_angles_are_twice(const mp_graph *graph, int32_t value, int rank, bool paired);

/* What was made of a value for nodes of a guard, so that others find it. */
typedef struct mp_angles_seen {
    int32_t of, guard, made; /* of: MP_NO_VALUE for none */
} mp_angles_seen;

/* Of paired angles the first of each pair, for node `like`: what they were repeated from, or a
 * Slice. The graph is to be sorted afterwards where nodes were added. */
mp_status mp_angles_once(mp_graph *graph, int32_t like, int32_t value, mp_angles_seen *seen,
                         int32_t *out);

/* Whether angles of heads in rows are the same for all heads, so that a view of them is of heads
 * that were put first. */
bool mp_angles_can_move(const mp_graph *graph, int32_t angles);
/* `*angles` become that view, for node `like`. The same of sorting. */
mp_status mp_angles_move(mp_graph *graph, int32_t like, mp_angles_seen *seen, int32_t *angles);

#endif
