/* least_cut.h - the points of least weight without which no way leads from a source to a sink.
 *
 * Points are numbers from 0 on. One that is not weighed is on no way.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_LEAST_CUT_H
#define MP_GRAPH_LEAST_CUT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mp_least_cut_arc {
    int32_t to, next; /* a place; the next arc from where this one begins, or -1 */
    int64_t left;     /* what may still go along it */
} mp_least_cut_arc;

typedef struct mp_least_cut {
    int32_t points;
    mp_least_cut_arc *arcs; /* in pairs, each with the one back behind it; owned, as all here */
    size_t count, capacity;
    int32_t *first; /* by place: its first arc, or -1 */
    int32_t *way;   /* by place: the arc that leads there */
    int32_t *queue; /* of places */
} mp_least_cut;

/* All that may fail here does so with OUT_OF_MEMORY (host). */
mp_status mp_least_cut_open(mp_least_cut *cut, int32_t points);
void mp_least_cut_close(mp_least_cut *cut); /* also of what was not opened, if its bytes are 0 */

/* Once for each point. `weight`: 0 or more; the sum of all is a number of 62 bits. */
mp_status mp_least_cut_weigh(mp_least_cut *cut, int32_t point, int64_t weight);
mp_status mp_least_cut_lead(mp_least_cut *cut, int32_t from, int32_t to);
mp_status mp_least_cut_source(mp_least_cut *cut, int32_t point);
mp_status mp_least_cut_sink(mp_least_cut *cut, int32_t point);

/* Of several cuts of the same weight the one that is next to the sources. Once for each `cut`.
 * Sets `is_cut[point]` of all points. */
void mp_least_cut_find(mp_least_cut *cut, bool *is_cut);

#endif
