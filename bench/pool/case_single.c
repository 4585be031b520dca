/* case_single.c - one thread, one stream: pairs of one size, live sets, RMM's random_allocations.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- pair: allocate and free one size, over and over ---- */

enum { PAIRS = 200000, PAIRS_QUICK = 2000, PAIRS_WARM = 1000, PAIR_CHECK = 64 };

typedef struct pair {
    bench_alloc_fn *alloc;
    bench_free_fn *free;
    void *stream;
    ssize_t size;
} pair;

static inline void pair_once(const pair *self) {
    void *block = self->alloc(self->size, 0, self->stream);
    self->free(block, self->size, 0, self->stream);
}

static double pair_mean_ns(const pair *self, unsigned count, double limit_ms) {
    const uint64_t start = now_ns();
    uint64_t spent = 0;
    unsigned done = 0;
    while (done < count && (double)spent <= limit_ms * 1e6) {
        for (unsigned i = 0; i < PAIR_CHECK; i++) {
            pair_once(self);
        }
        done += PAIR_CHECK;
        spent = now_ns() - start;
    }
    return (double)spent / done;
}

static void pair_row(bench *self, uint64_t size, const char *name) {
    const unsigned count = self->quick ? PAIRS_QUICK : PAIRS;
    pool_open(self, 0);
    const pair hot = {self->backend.alloc, self->backend.free, bench_stream(self, 0),
                      (ssize_t)size};
    void *first = hot.alloc(hot.size, 0, hot.stream);
    if (first == NULL) {
        die("no memory for one block of %s", name);
    }
    hot.free(first, hot.size, 0, hot.stream);
    pin_thread(1);
    (void)pair_mean_ns(&hot, PAIRS_WARM, self->limit_ms / 4);
    samples timed = samples_make(count);
    const uint64_t end = now_ns() + (uint64_t)(self->limit_ms * 1e6);
    while (timed.count < count && now_ns() < end) {
        for (unsigned i = 0; i < PAIR_CHECK; i++) {
            const uint64_t begin = tick_begin();
            pair_once(&hot);
            samples_add(&timed, tick_end() - begin);
        }
    }
    const double mean_ns = pair_mean_ns(&hot, count, self->limit_ms);
    unpin_thread();
    samples_sort(&timed);
    row_begin("pair", "%s", name);
    row_number("p50_ns", samples_ns(&timed, 0.5));
    row_number("p99_ns", samples_ns(&timed, 0.99));
    row_number("p999_ns", samples_ns(&timed, 0.999));
    row_number("mean_ns", mean_ns);
    row_number("count", (double)timed.count);
    row_end();
    samples_drop(&timed);
    pool_close(self);
}

void case_pair(bench *self) {
    pair_row(self, 256, "256 B");
    pair_row(self, 4 * KIB, "4 KiB");
    pair_row(self, MIB, "1 MiB");
    pair_row(self, 32 * MIB, "32 MiB");
}

/* ---- live: free one and allocate another in a set of live blocks ---- */

enum { LIVE_CHANGES = 100000, LIVE_WARM = 20000, LIVE_QUICK = 1000, LIVE_LIMIT = 10 };
static const uint64_t live_least = 256, live_most = 64 * KIB;

static void live_row(bench *self, size_t slots) {
    const size_t warm = self->quick ? LIVE_QUICK / 2 : LIVE_WARM;
    const size_t changes = self->quick ? LIVE_QUICK : LIVE_CHANGES;
    ops list = ops_churn(slots, slots, warm + changes, live_least, live_most);
    const size_t middle = list.build + 2 * warm;
    void **blocks = must_alloc(list.slots, sizeof *blocks);
    pool_open(self, 0);
    pin_thread(1);
    self->limit_ms *= LIVE_LIMIT; /* the set must be whole for its figure to mean anything */
    const run built = ops_run(self, &list, 0, list.build, blocks);
    self->limit_ms /= LIVE_LIMIT;
    size_t at = built.done;
    run timed = {0};
    if (built.done == list.build) {
        at += ops_run(self, &list, at, middle, blocks).done;
        timed = ops_run(self, &list, at, list.count, blocks);
        at += timed.done;
    }
    unpin_thread();
    row_begin("live", "%zu blocks", slots);
    row_number("ns", timed.done != 0 ? 2 * timed.ns / (double)timed.done : (double)NAN);
    row_number("count", (double)timed.done / 2);
    row_number("failures", (double)(built.failures + timed.failures));
    row_end();
    ops_clear(self, &list, at, blocks);
    pool_close(self);
    free(blocks);
    ops_drop(&list);
}

void case_live(bench *self) {
    const size_t most = self->quick ? 1000 : 100000;
    for (size_t slots = 100; slots <= most; slots *= 10) {
        live_row(self, slots);
    }
}

/* ---- random: RMM's random_allocations, first on a fresh pool, then again ---- */

enum { RANDOM_WARM = 3, RANDOM_LIMIT = 4 }; /* passes; times the limit of a pass */
static const uint64_t random_cap = 16000 * MIB;

static void random_row(bench *self, size_t count, unsigned size_mib) {
    const uint64_t cap = random_cap < self->cap ? random_cap : self->cap;
    if (size_mib * MIB > cap) {
        char name[64];
        (void)snprintf(name, sizeof name, "%zu x %u MiB", count, size_mib);
        row_skipped("random", name, "one block may be larger than what may be live");
        return;
    }
    ops list = ops_random(1, count, size_mib * MIB, cap);
    void **blocks = must_alloc(list.slots, sizeof *blocks);
    double warm_ms[RANDOM_WARM];
    size_t warm = 0, blocks_peak;
    const uint64_t live_peak = ops_live_peak(&list, &blocks_peak);
    pool_open(self, 0);
    pin_thread(1);
    const run cold = ops_run(self, &list, 0, list.count, blocks);
    bool whole = cold.done == list.count;
    uint64_t failures = cold.failures;
    ops_clear(self, &list, cold.done, blocks);
    for (; whole && warm < RANDOM_WARM; warm++) {
        const run again = ops_run(self, &list, 0, list.count, blocks);
        ops_clear(self, &list, again.done, blocks);
        whole = again.done == list.count;
        failures += again.failures;
        warm_ms[warm] = again.ns / 1e6;
    }
    unpin_thread();
    row_begin("random", "%zu x %u MiB", count, size_mib);
    row_number("cold_ms", cold.ns / 1e6);
    row_number("warm_ms", warm != 0 ? median_of(warm_ms, warm) : (double)NAN);
    row_flag("cut", !whole); /* the time was up: the whole takes longer than the figure */
    row_number("done", (double)cold.done / (double)list.count);
    row_number("failures", (double)failures);
    row_number("live_peak", (double)live_peak);
    row_number("blocks_peak", (double)blocks_peak);
    row_end();
    pool_close(self);
    free(blocks);
    ops_drop(&list);
}

void case_random(bench *self) {
    static const unsigned sizes[] = {1, 4, 64, 256, 1024, 4096};
    const size_t most = self->quick ? 1000 : 100000;
    self->limit_ms *= RANDOM_LIMIT; /* the longest lists are whole only then */
    for (size_t count = 1000; count <= most; count *= 10) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            random_row(self, count, sizes[i]);
        }
    }
    self->limit_ms /= RANDOM_LIMIT;
}
