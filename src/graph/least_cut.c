/* least_cut.c - the largest flow from sources to sinks, by the shortest ways that have room left
 * (Edmonds and Karp): its cut is the one that is looked for. A point is two places, where it is
 * entered and where it is left, with an arc of its weight between them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/least_cut.h"

#include "base/growing.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };

static const int64_t endless = INT64_C(1) << 62;

static int32_t entry(int32_t point) {
    return 2 * point;
}

static int32_t exit_of(int32_t point) {
    return 2 * point + 1;
}

/* All sources begin in one place, and all sinks end in one. */
static int32_t begin(const mp_least_cut *cut) {
    return 2 * cut->points;
}

static int32_t end(const mp_least_cut *cut) {
    return 2 * cut->points + 1;
}

static size_t place_count(const mp_least_cut *cut) {
    return 2 * (size_t)cut->points + 2;
}

/* ---- life ---- */

mp_status mp_least_cut_open(mp_least_cut *cut, int32_t points) {
    *cut = (mp_least_cut){.points = points};
    cut->first = malloc(place_count(cut) * sizeof *cut->first);
    cut->way = malloc(place_count(cut) * sizeof *cut->way);
    cut->queue = malloc(place_count(cut) * sizeof *cut->queue);
    if (cut->first == NULL || cut->way == NULL || cut->queue == NULL) {
        mp_least_cut_close(cut);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to cut a graph");
    }
    memset(cut->first, 0xff, place_count(cut) * sizeof *cut->first);
    memset(cut->way, 0xff, place_count(cut) * sizeof *cut->way);
    return MP_OK;
}

void mp_least_cut_close(mp_least_cut *cut) {
    free(cut->arcs);
    free(cut->first);
    free(cut->way);
    free(cut->queue);
    *cut = (mp_least_cut){.points = 0};
}

/* ---- building ---- */

static void put(mp_least_cut *cut, int32_t from, int32_t to, int64_t left) {
    cut->arcs[cut->count] = (mp_least_cut_arc){.to = to, .next = cut->first[from], .left = left};
    cut->first[from] = (int32_t)cut->count++;
}

static mp_status add(mp_least_cut *cut, int32_t from, int32_t to, int64_t room) {
    if (cut->count > INT32_MAX / 2 ||
        !mp_grow(&cut->arcs, cut->count + 2, &cut->capacity, sizeof *cut->arcs)) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to cut a graph");
    }
    put(cut, from, to, room);
    put(cut, to, from, 0);
    return MP_OK;
}

mp_status mp_least_cut_weigh(mp_least_cut *cut, int32_t point, int64_t weight) {
    return add(cut, entry(point), exit_of(point), weight);
}

mp_status mp_least_cut_lead(mp_least_cut *cut, int32_t from, int32_t to) {
    return add(cut, exit_of(from), entry(to), endless);
}

mp_status mp_least_cut_source(mp_least_cut *cut, int32_t point) {
    return add(cut, begin(cut), entry(point), endless);
}

mp_status mp_least_cut_sink(mp_least_cut *cut, int32_t point) {
    return add(cut, exit_of(point), end(cut), endless);
}

/* ---- the flow ---- */

/* Goes from the begin to all places that can be reached, or as far as the end: their number, in the
 * queue, of which each has its way. */
static int32_t reach(mp_least_cut *cut) {
    int32_t count = 0;
    cut->queue[count++] = begin(cut);
    for (int32_t i = 0; i < count && cut->way[end(cut)] == NONE; i++) {
        for (int32_t a = cut->first[cut->queue[i]]; a != NONE; a = cut->arcs[a].next) {
            const int32_t to = cut->arcs[a].to;
            if (cut->arcs[a].left > 0 && cut->way[to] == NONE && to != begin(cut)) {
                cut->way[to] = a;
                cut->queue[count++] = to;
            }
        }
    }
    return count;
}

/* Along the way to the end goes as much as there is room for. */
static void push(mp_least_cut *cut) {
    int64_t most = endless;
    for (int32_t at = end(cut); at != begin(cut); at = cut->arcs[cut->way[at] ^ 1].to) {
        const int64_t left = cut->arcs[cut->way[at]].left;
        most = left < most ? left : most;
    }
    for (int32_t at = end(cut); at != begin(cut); at = cut->arcs[cut->way[at] ^ 1].to) {
        cut->arcs[cut->way[at]].left -= most;
        cut->arcs[cut->way[at] ^ 1].left += most;
    }
}

static bool is_reached(const mp_least_cut *cut, int32_t place) {
    return cut->way[place] != NONE;
}

void mp_least_cut_find(mp_least_cut *cut, bool *is_cut) {
    for (int32_t count = reach(cut); is_reached(cut, end(cut)); count = reach(cut)) {
        push(cut);
        for (int32_t i = 0; i < count; i++) {
            cut->way[cut->queue[i]] = NONE;
        }
    }
    for (int32_t p = 0; p < cut->points; p++) {
        is_cut[p] = is_reached(cut, entry(p)) && !is_reached(cut, exit_of(p));
    }
}
