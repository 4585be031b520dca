/* case_replay.c - recorded traces, and phases of varying sizes: the time of an operation, and how
 * much is reserved from the device for what is live.
 *
 * Each recorded thread is a thread again. Operations keep the order of the record, and only the
 * calls of the allocator are timed, not the handing over from thread to thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "ops.h"
#include "team.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_PASSES = 5 };

typedef struct replay {
    const ops *list;
    void **blocks;
    samples timed;      /* of this pass, in the order of the record */
    uint64_t failures;  /* under the order of the record, too */
    uint64_t end_ns;    /* when the time of a pass is up */
    atomic_size_t next; /* the operation whose turn it is */
} replay;

static void replay_one(bench *self, replay *shared, const op *item) {
    const backend *hot = &self->backend;
    void **block = &shared->blocks[item->slot];
    void *stream = self->streams[item->stream];
    if (item->alloc) {
        const uint64_t begin = tick_begin();
        *block = hot->alloc((ssize_t)item->size, 0, stream);
        samples_add(&shared->timed, tick_end() - begin);
        shared->failures += *block == NULL;
    } else if (*block != NULL) {
        const uint64_t begin = tick_begin();
        hot->free(*block, (ssize_t)item->size, 0, stream);
        samples_add(&shared->timed, tick_end() - begin);
        *block = NULL;
    }
}

static void replay_thread(bench *self, unsigned index, void *context) {
    replay *shared = context;
    unsigned spins = 0;
    for (;;) {
        const size_t at = atomic_load_explicit(&shared->next, memory_order_acquire);
        if (at >= shared->list->count) {
            return;
        }
        const op *item = &shared->list->items[at];
        if (item->thread != index) {
            team_pause(&spins);
            continue;
        }
        replay_one(self, shared, item);
        const bool up = at % 64 == 0 && now_ns() > shared->end_ns;
        atomic_store_explicit(&shared->next, up ? SIZE_MAX : at + 1, memory_order_release);
    }
}

/* Nanoseconds of all calls, or of those before the time was up. */
static double replay_pass(bench *self, replay *shared) {
    double ns = 0;
    shared->timed.count = 0;
    shared->end_ns = now_ns() + (uint64_t)(self->limit_ms * 1e6);
    atomic_store(&shared->next, 0);
    (void)team_run(self, shared->list->threads, replay_thread, shared);
    for (size_t i = 0; i < shared->timed.count; i++) {
        ns += (double)shared->timed.ticks[i] * tick_ns() - tick_overhead_ns();
    }
    const double count = (double)shared->timed.count;
    ops_clear(self, shared->list, shared->list->count, shared->blocks);
    return ns / count;
}

/* The list once more, untimed, with every live range compared. */
static void replay_check(bench *self, const ops *list, void **blocks) {
    ranges live = {0};
    for (size_t i = 0; i < list->count; i++) {
        const op *item = &list->items[i];
        if (!item->alloc && blocks[item->slot] != NULL) {
            ranges_remove(&live, blocks[item->slot]);
        }
        (void)ops_run(self, list, i, i + 1, blocks);
        if (item->alloc && blocks[item->slot] != NULL) {
            ranges_add(&live, blocks[item->slot], item->size);
        }
    }
    ops_clear(self, list, list->count, blocks);
    ranges_drop(&live);
}

static void replay_list(bench *self, const ops *list, const char *test, const char *name) {
    replay shared = {.list = list,
                     .blocks = must_alloc(list->slots, sizeof(void *)),
                     .timed = samples_make(list->count)};
    double warm_ns[WARM_PASSES];
    size_t warm = 0, blocks_peak;
    uint64_t now, peak;
    const uint64_t live_peak = ops_live_peak(list, &blocks_peak);
    for (unsigned i = 0; i < list->streams; i++) {
        (void)bench_stream(self, i);
    }
    pool_open(self, 0);
    const double cold_ns = replay_pass(self, &shared);
    const bool whole = atomic_load(&shared.next) == list->count;
    while (whole && warm < WARM_PASSES) {
        warm_ns[warm++] = replay_pass(self, &shared);
    }
    samples_sort(&shared.timed);
    const double p99_ns = samples_ns(&shared.timed, 0.99);
    const bool known = self->counts || ops_sample(self, list, shared.blocks);
    pool_reserved(self, &now, &peak);
    if (whole) {
        replay_check(self, list, shared.blocks);
    }
    pool_close(self);
    row_begin(test, "%s", name);
    row_number("cold_ns", cold_ns);
    row_number("warm_ns", warm != 0 ? median_of(warm_ns, warm) : (double)NAN);
    row_number("p99_ns", p99_ns);
    row_flag("cut", !whole);
    row_number("reserved_ratio",
               known && peak != 0 ? (double)peak / (double)live_peak : (double)NAN);
    row_number("reserved_peak", known ? (double)peak : (double)NAN);
    row_number("live_peak", (double)live_peak);
    row_number("blocks_peak", (double)blocks_peak);
    row_number("operations", (double)list->count);
    row_number("streams", list->streams);
    row_number("threads", list->threads);
    row_number("failures", (double)shared.failures);
    row_end();
    free(shared.blocks);
    samples_drop(&shared.timed);
}

void case_replay(bench *self) {
    if (self->traces[0] == NULL) {
        row_skipped("replay", "none", "no --trace was given");
    }
    for (const char *const *path = self->traces; *path != NULL; path++) {
        const char *slash = strrchr(*path, '/');
        ops list = ops_read(*path);
        replay_list(self, &list, "replay", slash != NULL ? slash + 1 : *path);
        ops_drop(&list);
    }
}

void case_phases(bench *self) {
    enum { PHASES = 30, PHASES_QUICK = 6, A_PHASE = 200 };
    ops list = ops_phases(11, self->quick ? PHASES_QUICK : PHASES, A_PHASE, self->cap / 256);
    replay_list(self, &list, "phases", "varying sizes");
    ops_drop(&list);
}
