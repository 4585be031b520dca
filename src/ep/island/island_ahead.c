/* island_ahead.c - programs for the shapes that come next.
 *
 * A decoder's mask, or its caches, grow by a token in each run. To plan for that takes about as
 * long as to run. So where three runs differed by the same amounts, the program for the fourth is
 * made in the background, while the third one works.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/later.h"
#include "base/macros.h"
#include "ep/capture/session_graph.h"
#include "ep/island/island.h"

#include <stdlib.h>
#include <string.h>

/* Guarded by the island's lock; `work`, and what `next` holds, belong to the thread that plans
 * while `is_busy`. */
struct mp_island_ahead {
    mp_later work; /* first */
    mp_island *island;
    mp_tensor *tensors; /* owned; the three below, one behind the other */
    mp_tensor *before, *last, *next;
    int runs; /* of different shapes, at most 2 */
    int32_t align;
    bool is_busy;
};

/* ---- shapes ---- */

static bool is_same_kind(const mp_tensor *a, const mp_tensor *b) {
    return a->type == b->type && a->shape.rank == b->shape.rank;
}

static bool is_same(const mp_tensor *a, const mp_tensor *b) {
    return is_same_kind(a, b) &&
           memcmp(a->shape.dim, b->shape.dim, (size_t)a->shape.rank * sizeof a->shape.dim[0]) == 0;
}

static bool are_same(const mp_tensor *a, const mp_tensor *b, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        if (!is_same(&a[i], &b[i])) {
            return false;
        }
    }
    return true;
}

/* Sets `next` to `in` with what it gained over `last`. False where that is not what `last` had
 * gained over `before`, or would be no shape. */
static bool go_on(const mp_tensor *before, const mp_tensor *last, const mp_tensor *in,
                  mp_tensor *next) {
    if (!is_same_kind(before, last) || !is_same_kind(last, in)) {
        return false;
    }
    *next = (mp_tensor){.type = in->type, .shape = in->shape};
    for (int i = 0; i < in->shape.rank; i++) {
        const int64_t gained = in->shape.dim[i] - last->shape.dim[i];
        next->shape.dim[i] += gained;
        if (gained != last->shape.dim[i] - before->shape.dim[i] || next->shape.dim[i] < 0) {
            return false;
        }
    }
    return true;
}

static bool all_go_on(mp_island_ahead *ahead, const mp_tensor *in) {
    for (int32_t i = 0; i < ahead->island->graph->input_count; i++) {
        if (!go_on(&ahead->before[i], &ahead->last[i], &in[i], &ahead->next[i])) {
            return false;
        }
    }
    return true;
}

/* ---- in the background ---- */

static void plan(mp_later *work) {
    mp_island_ahead *ahead = (mp_island_ahead *)work;
    mp_island *island = ahead->island;
    mp__island_program_prepare(island, ahead->next, ahead->align);
    (void)pthread_mutex_lock(&island->lock);
    ahead->is_busy = false;
    (void)pthread_mutex_unlock(&island->lock);
}

/* ---- seeing ---- */

/* Whether planning may be done beside a run: convolutions are timed on the device, and random
 * numbers have a state. */
static bool may_plan_ahead(const mp_island *island) {
    const mp_options *options = &island->provider->options;
    enum { PROGRAMS_LEAST = 4 };
    bool may = !options->tunable_op_tuning_enable && island->programs.most >= PROGRAMS_LEAST;
    for (int32_t n = 0; n < island->graph->node_count && may; n++) {
        const mp_op *op = island->graph->nodes[n].node.op;
        may = !op->draws && strstr(op->name, "Conv") == NULL;
    }
    return may;
}

/* With the island's lock held. */
static mp_island_ahead *begin(mp_island *island) {
    const size_t count = (size_t)island->graph->input_count;
    if (!may_plan_ahead(island)) {
        island->never_ahead = true;
        return NULL;
    }
    mp_island_ahead *fresh = calloc(1, sizeof *fresh);
    mp_tensor *tensors = calloc(3 * count + 1, sizeof *tensors);
    if (fresh == NULL || tensors == NULL) {
        free(fresh);
        free(tensors);
        return NULL;
    }
    *fresh = (mp_island_ahead){.work.run = plan,
                               .work.owner = island,
                               .island = island,
                               .tensors = tensors,
                               .before = tensors,
                               .last = tensors + count,
                               .next = tensors + 2 * count};
    return fresh;
}

/* Whether `next` is to be planned for. With the island's lock held. */
static bool note(mp_island_ahead *ahead, const mp_tensor *in) {
    const int32_t count = ahead->island->graph->input_count;
    if (ahead->runs > 0 && are_same(ahead->last, in, count)) {
        return false;
    }
    const bool goes_on = !ahead->is_busy && ahead->runs == 2 && all_go_on(ahead, in);
    mp_tensor *oldest = ahead->before;
    memcpy(oldest, in, (size_t)count * sizeof *oldest);
    ahead->before = ahead->last;
    ahead->last = oldest;
    ahead->runs = MP_MIN(ahead->runs + 1, 2);
    return goes_on;
}

void mp__island_ahead_saw(mp_island *island, const mp_tensor *in, int32_t align) {
    if (mp__recorded_run() != NULL) {
        return;
    }
    (void)pthread_mutex_lock(&island->lock);
    if (island->ahead == NULL && !island->never_ahead) {
        island->ahead = begin(island);
    }
    mp_island_ahead *ahead = island->ahead;
    const bool goes_on = ahead != NULL && note(ahead, in);
    if (goes_on) {
        ahead->align = align;
        ahead->is_busy = true;
    }
    (void)pthread_mutex_unlock(&island->lock);
    if (goes_on && !mp_later_add(&ahead->work)) { /* as where its last run is about to return */
        (void)pthread_mutex_lock(&island->lock);
        ahead->is_busy = false;
        (void)pthread_mutex_unlock(&island->lock);
    }
}

void mp__island_ahead_close(mp_island *island) {
    if (island->ahead != NULL) {
        mp_later_drop(&island->ahead->work);
        free(island->ahead->tensors);
        free(island->ahead);
        island->ahead = NULL;
    }
}
