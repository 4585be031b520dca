/* case_threads.c - many threads on one pool: each with a live set of its own, on one stream or on a
 * stream each; and blocks that one thread allocates and another gives back on another stream.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "ops.h"
#include "team.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- threads ---- */

enum { SET_BLOCKS = 64, CHANGES = 1 << 20, CHANGES_QUICK = 1024, TIMED = 20000, TIMED_QUICK = 500 };
enum { CHANGES_A_LOOK = 128 };        /* from one look at the clock to the next */
enum { LIST = 160 * CHANGES_A_LOOK }; /* changes that a thread goes through again and again */
static const uint64_t set_least = 256, set_most = 64 * KIB;

typedef struct block {
    void *memory;
    uint64_t size;
} block;

typedef struct change { /* small, so that the list leaves the caches to the allocator */
    uint32_t slot, size;
} change;

typedef struct worker {
    _Alignas(128) change list[LIST]; /* every thread has other sizes */
    block blocks[SET_BLOCKS];        /* what is live now */
    void *stream;
    samples timed;
    size_t changes; /* done in the untimed pass */
    uint64_t failures;
} worker;

/* Gives back what lies in the slot, if anything, and allocates anew. */
static inline void replace(const backend *hot, worker *own, change fresh) {
    block *at = &own->blocks[fresh.slot];
    if (at->memory != NULL) {
        hot->free(at->memory, (ssize_t)at->size, 0, own->stream);
    }
    at->memory = hot->alloc((ssize_t)fresh.size, 0, own->stream);
    at->size = fresh.size;
    own->failures += at->memory == NULL;
}

static void build(bench *self, unsigned index, void *context) {
    worker *own = (worker *)context + index;
    for (unsigned i = 0; i < SET_BLOCKS; i++) {
        replace(&self->backend, own, (change){.slot = i, .size = own->list[i].size});
    }
}

static void throughput(bench *self, unsigned index, void *context) {
    worker *own = (worker *)context + index;
    const backend hot = self->backend;
    const uint64_t end = now_ns() + (uint64_t)(self->limit_ms * 1e6);
    const size_t changes = self->quick ? CHANGES_QUICK : CHANGES;
    while (own->changes < changes && now_ns() < end) {
        const change *next = &own->list[own->changes % LIST];
        for (unsigned i = 0; i < CHANGES_A_LOOK; i++) {
            replace(&hot, own, next[i]);
        }
        own->changes += CHANGES_A_LOOK;
    }
}

static void latency(bench *self, unsigned index, void *context) {
    worker *own = (worker *)context + index;
    const backend hot = self->backend;
    const uint64_t end = now_ns() + (uint64_t)(self->limit_ms * 1e6);
    for (size_t done = 0; done < own->timed.capacity && now_ns() < end; done++) {
        const change fresh = own->list[done % LIST];
        const uint64_t begin = tick_begin();
        replace(&hot, own, fresh);
        samples_add(&own->timed, tick_end() - begin);
    }
}

static void give_back(bench *self, unsigned index, void *context) {
    worker *own = (worker *)context + index;
    for (unsigned i = 0; i < SET_BLOCKS; i++) {
        if (own->blocks[i].memory != NULL) {
            self->backend.free(own->blocks[i].memory, (ssize_t)own->blocks[i].size, 0, own->stream);
        }
    }
}

static void threads_report(const worker *workers, unsigned count, bool own_streams, double ns) {
    size_t changes = 0, timed = 0;
    uint64_t failures = 0;
    for (unsigned i = 0; i < count; i++) {
        changes += workers[i].changes;
        timed += workers[i].timed.count;
        failures += workers[i].failures;
    }
    samples all = samples_make(timed);
    for (unsigned i = 0; i < count; i++) {
        for (size_t j = 0; j < workers[i].timed.count; j++) {
            samples_add(&all, workers[i].timed.ticks[j]);
        }
    }
    samples_sort(&all);
    row_begin("threads", "%2u, %s", count, own_streams ? "own streams" : "one stream");
    row_number("mops", (double)changes / ns * 1e3);
    row_number("p50_ns", samples_ns(&all, 0.5));
    row_number("p99_ns", samples_ns(&all, 0.99));
    row_number("p999_ns", samples_ns(&all, 0.999));
    row_number("failures", (double)failures);
    row_end();
    samples_drop(&all);
}

static void threads_row(bench *self, unsigned count, bool own_streams) {
    const size_t timed = self->quick ? TIMED_QUICK : TIMED;
    worker *workers = must_alloc(count, sizeof *workers);
    for (unsigned i = 0; i < count; i++) {
        uint64_t state = 100 + i;
        for (size_t k = 0; k < LIST; k++) {
            workers[i].list[k].slot = (uint32_t)draw_below(&state, SET_BLOCKS);
            workers[i].list[k].size = (uint32_t)draw_size(&state, set_least, set_most);
        }
        workers[i].stream = bench_stream(self, own_streams ? i : 0);
        workers[i].timed = samples_make(timed);
    }
    pool_open(self, 0);
    (void)team_run(self, count, build, workers);
    (void)team_run(self, count, latency, workers); /* also warms up */
    const double ns = team_run(self, count, throughput, workers);
    (void)team_run(self, count, give_back, workers);
    pool_close(self);
    threads_report(workers, count, own_streams, ns);
    for (unsigned i = 0; i < count; i++) {
        samples_drop(&workers[i].timed);
    }
    free(workers);
}

void case_threads(bench *self) {
    for (unsigned own = 0; own < 2; own++) {
        for (unsigned count = 1; count <= THREADS_MAX; count *= 2) {
            if (count <= self->threads_max) {
                threads_row(self, count, own != 0);
            } else {
                char name[64];
                (void)snprintf(name, sizeof name, "%2u, %s", count,
                               own != 0 ? "own streams" : "one stream");
                row_skipped("threads", name, "more threads than processors");
            }
        }
    }
}

/* ---- handover: one thread allocates on a stream, another gives back on another stream ----
 * No work is queued, so nothing has to be waited for: only the allocator's own order between the
 * streams shows. */

enum { QUEUE = 256, BLOCKS = 100000, BLOCKS_QUICK = 2000 };
static const uint64_t handed_least = 4 * KIB, handed_most = 256 * KIB;

typedef struct handover {
    _Alignas(128) block queue[QUEUE];
    _Alignas(128) atomic_size_t put;   /* by the producer */
    _Alignas(128) atomic_size_t taken; /* by the consumer */
    _Alignas(128) atomic_bool end;
    _Atomic uint64_t freed; /* bytes */
    uint64_t live_peak, failures;
    uint64_t *sizes; /* owned */
    size_t count;
} handover;

static void produce(bench *self, handover *shared) {
    const backend hot = self->backend;
    const uint64_t end = now_ns() + (uint64_t)(self->limit_ms * 1e6);
    uint64_t lent = 0;
    unsigned spins = 0;
    for (size_t i = 0; i < shared->count && (i % 64 != 0 || now_ns() < end); i++) {
        while (i - atomic_load_explicit(&shared->taken, memory_order_acquire) >= QUEUE) {
            team_pause(&spins);
        }
        const uint64_t size = shared->sizes[i];
        void *memory = hot.alloc((ssize_t)size, 0, self->streams[0]);
        shared->failures += memory == NULL;
        lent += size;
        const uint64_t live = lent - atomic_load_explicit(&shared->freed, memory_order_relaxed);
        shared->live_peak = live > shared->live_peak ? live : shared->live_peak;
        shared->queue[i % QUEUE] = (block){memory, size};
        atomic_store_explicit(&shared->put, i + 1, memory_order_release);
    }
    atomic_store(&shared->end, true);
}

static void consume(bench *self, handover *shared) {
    const backend hot = self->backend;
    size_t taken = 0;
    unsigned spins = 0;
    for (;;) {
        const bool end = atomic_load(&shared->end);
        if (atomic_load_explicit(&shared->put, memory_order_acquire) == taken) {
            if (end) {
                return;
            }
            team_pause(&spins);
            continue;
        }
        const block got = shared->queue[taken % QUEUE];
        if (got.memory != NULL) {
            hot.free(got.memory, (ssize_t)got.size, 0, self->streams[1]);
        }
        (void)atomic_fetch_add_explicit(&shared->freed, got.size, memory_order_relaxed);
        atomic_store_explicit(&shared->taken, ++taken, memory_order_release);
    }
}

static void handover_side(bench *self, unsigned index, void *context) {
    if (index == 0) {
        produce(self, context);
    } else {
        consume(self, context);
    }
}

void case_handover(bench *self) {
    uint64_t state = 5, now, peak;
    handover *shared = must_alloc(1, sizeof *shared);
    shared->count = self->quick ? BLOCKS_QUICK : BLOCKS;
    shared->sizes = must_alloc(shared->count, sizeof *shared->sizes);
    for (size_t i = 0; i < shared->count; i++) {
        shared->sizes[i] = draw_size(&state, handed_least, handed_most);
    }
    (void)bench_stream(self, 0);
    (void)bench_stream(self, 1);
    pool_open(self, 0);
    check_streams(self);
    pool_close(self);
    pool_open(self, 0);
    const double ns = team_run(self, 2, handover_side, shared);
    pool_reserved(self, &now, &peak);
    row_begin("handover", "two streams");
    row_number("mops", (double)atomic_load(&shared->taken) / ns * 1e3);
    row_number("reserved_peak", (double)peak);
    row_number("live_peak", (double)shared->live_peak);
    row_number("failures", (double)shared->failures);
    row_end();
    pool_close(self);
    free(shared->sizes);
    free(shared);
}
