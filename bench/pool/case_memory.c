/* case_memory.c - a device that is nearly full, and memory given back to the device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

#include <math.h>
#include <stdlib.h>

typedef struct block {
    void *memory;
    uint64_t size;
} block;

static void block_free(bench *self, block *old) {
    if (old->memory != NULL) {
        self->backend.free(old->memory, (ssize_t)old->size, 0, self->streams[0]);
        *old = (block){NULL, 0};
    }
}

static bool block_alloc(bench *self, block *fresh, uint64_t size) {
    fresh->memory = self->backend.alloc((ssize_t)size, 0, self->streams[0]);
    fresh->size = fresh->memory != NULL ? size : 0;
    return fresh->memory != NULL;
}

/* ---- full: all but `FULL_CAP` of the device is held, and 95 % of that is live ---- */

enum { FULL_BLOCKS = 8192, FULL_CHANGES = 20000, FULL_QUICK = 500, FULL_PERCENT = 95 };
static const uint64_t full_cap = 8 * GIB, full_least = MIB, full_most = 16 * MIB;

typedef struct full {
    block blocks[FULL_BLOCKS];
    size_t count;
    uint64_t live, cap, state;
    uint64_t failures; /* while 5 % and more of the memory was free */
    samples timed;
} full;

/* Frees a block at random and allocates another, unless more than 95 % would be live. */
static void full_change(bench *self, full *own) {
    block *at = &own->blocks[draw_below(&own->state, own->count)];
    const uint64_t size = draw_size(&own->state, full_least, full_most);
    own->live -= at->size;
    const uint64_t begin = tick_begin();
    block_free(self, at);
    if (own->live + size <= own->cap / 100 * FULL_PERCENT) {
        own->failures += !block_alloc(self, at, size);
        samples_add(&own->timed, tick_end() - begin);
    }
    own->live += at->size;
}

static void full_fill(bench *self, full *own) {
    const uint64_t most = own->cap / 100 * FULL_PERCENT;
    while (own->count < FULL_BLOCKS) {
        const uint64_t size = draw_size(&own->state, full_least, full_most);
        if (own->live + size > most || !block_alloc(self, &own->blocks[own->count], size)) {
            return;
        }
        own->live += own->blocks[own->count++].size;
    }
}

void case_full(bench *self) {
    const unsigned changes = self->quick ? FULL_QUICK : FULL_CHANGES;
    full *own = must_alloc(1, sizeof *own);
    size_t left, total;
    (void)bench_stream(self, 0);
    self->stage->memory(&left, &total);
    own->cap = full_cap < self->cap ? full_cap : self->cap;
    own->state = 3;
    own->timed = samples_make(changes);
    const size_t held_size = left - (size_t)own->cap;
    void *held = self->stage->hold(held_size);
    pool_open(self, (size_t)own->cap);
    pin_thread(1);
    full_fill(self, own);
    const double filled = (double)own->live / (double)own->cap;
    const uint64_t end = now_ns() + (uint64_t)(self->limit_ms * 1e6);
    unsigned done = 0;
    for (; own->count > 0 && done < changes && now_ns() < end; done++) {
        full_change(self, own);
    }
    unpin_thread();
    for (size_t i = 0; i < own->count; i++) {
        block_free(self, &own->blocks[i]);
    }
    pool_close(self);
    self->stage->release(held, held_size);
    samples_sort(&own->timed);
    row_begin("full", "95 %% of %.3g GiB", (double)own->cap / (double)GIB);
    row_number("p50_ns", samples_ns(&own->timed, 0.5));
    row_number("p99_ns", samples_ns(&own->timed, 0.99));
    row_number("p999_ns", samples_ns(&own->timed, 0.999));
    row_number("failures_percent", done != 0 ? 100.0 * (double)own->failures / done : (double)NAN);
    row_number("filled", filled);
    row_number("changes", done);
    row_end();
    samples_drop(&own->timed);
    free(own);
}

/* ---- trim: give back what is free, with no block live, and with one in ten ---- */

enum { TRIM_BLOCKS = 4096, TRIM_KEPT = 10 };
static const uint64_t trim_total = 4 * GIB, trim_least = 64 * KIB, trim_most = 64 * MIB;

/* Allocates blocks of some `total` bytes; returns the milliseconds. */
static double trim_fill(bench *self, block *blocks, uint64_t total, uint64_t seed) {
    const uint64_t start = now_ns();
    uint64_t state = seed, live = 0;
    for (size_t i = 0; i < TRIM_BLOCKS && live < total; i++) {
        const uint64_t size = draw_size(&state, trim_least, trim_most);
        if (!block_alloc(self, &blocks[i], size < total ? size : total)) {
            die("no memory for %zu bytes with %zu live", (size_t)size, (size_t)live);
        }
        live += size;
    }
    return (double)(now_ns() - start) / 1e6;
}

/* Frees all but one in `keep` (all with 0), trims, and reports what went and what is left. */
static void trim_row(bench *self, block *blocks, uint64_t seed, unsigned keep, double grow_ms) {
    uint64_t state = seed, live = 0, full_size, after, peak;
    pool_reserved(self, &full_size, &peak);
    for (size_t i = 0; i < TRIM_BLOCKS; i++) {
        if (keep == 0 || draw_below(&state, keep) != 0) {
            block_free(self, &blocks[i]);
        }
        live += blocks[i].size;
    }
    self->stage->wait_all();
    const uint64_t start = now_ns();
    if (self->backend.trim() != 0) {
        die("the backend cannot give memory back");
    }
    const double trim_ms = (double)(now_ns() - start) / 1e6;
    pool_reserved(self, &after, &peak);
    row_begin("trim", keep == 0 ? "nothing live" : "one in %u live", keep);
    row_number("trim_ms", trim_ms);
    row_number("unused_percent", full_size != 0
                                     ? 100.0 * ((double)after - (double)live) / (double)full_size
                                     : (double)NAN);
    row_number("given_back_mib", ((double)full_size - (double)after) / (double)MIB);
    row_number("grow_ms", grow_ms);
    row_end();
}

void case_trim(bench *self) {
    const uint64_t total = trim_total < self->cap / 2 ? trim_total : self->cap / 2;
    block *blocks = must_alloc(TRIM_BLOCKS, sizeof *blocks);
    (void)bench_stream(self, 0);
    pool_open(self, 0);
    if (self->backend.trim == NULL || self->backend.trim() != 0) {
        row_skipped("trim", "nothing live", "the allocator cannot be asked");
        row_skipped("trim", "one in 10 live", "the allocator cannot be asked");
        pool_close(self);
        free(blocks);
        return;
    }
    double grow_ms = trim_fill(self, blocks, total, 1);
    trim_row(self, blocks, 2, 0, grow_ms);
    grow_ms = trim_fill(self, blocks, total, 3); /* grows again after the trim */
    trim_row(self, blocks, 4, TRIM_KEPT, grow_ms);
    for (size_t i = 0; i < TRIM_BLOCKS; i++) {
        block_free(self, &blocks[i]);
    }
    pool_close(self);
    free(blocks);
}
