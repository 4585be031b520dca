/* ops.h - lists of operations, made before anything is timed, equal for every allocator.
 *
 * A block is named by its slot. A list frees only what it has allocated, with the size it asked
 * for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_POOL_OPS_H
#define BENCH_POOL_OPS_H

#include "bench.h"

typedef struct op {
    uint64_t size;
    uint32_t slot;
    uint16_t stream;
    uint8_t thread;
    bool alloc;
} op;

typedef struct ops {
    op *items; /* owned */
    size_t count, capacity;
    size_t slots;     /* one more than the largest slot */
    unsigned streams; /* likewise */
    unsigned threads; /* likewise */
    size_t build;     /* the first so many only fill the slots */
} ops;

void ops_add(ops *self, op item);
void ops_drop(ops *self);
/* The most bytes and blocks that are live at one time. */
uint64_t ops_live_peak(const ops *self, size_t *blocks);

/* RMM's random_allocations: `count` blocks, uniform in 1 to `size_max`, and as many frees of random
 * live ones; of each 100 draws 73 ask for a block, unless `cap` bytes are live. */
ops ops_random(uint64_t seed, size_t count, uint64_t size_max, uint64_t cap);
/* `slots` live blocks; then `count` times one of them, at random, is freed and another allocated.
 */
ops ops_churn(uint64_t seed, size_t slots, size_t count, uint64_t size_least, uint64_t size_most);
/* Phases as a program has them whose sizes vary: each allocates `count` blocks of sizes that a
 * factor of the phase scales, frees most of them, and keeps some for three phases. */
ops ops_phases(uint64_t seed, unsigned phases, size_t count, uint64_t size_most);
/* A log in RMM's CSV format, gzip'd if its name ends so. Threads and streams keep their order of
 * appearance; blocks of unknown origin are left out. */
ops ops_read(const char *path);

typedef struct run {
    size_t done; /* operations; fewer than asked for when the time was up */
    uint64_t failures;
    double ns;
} run;

/* Runs the operations [from, to) on this thread. `blocks`: one address a slot, NULL where free. */
run ops_run(bench *self, const ops *list, size_t from, size_t to, void **blocks);
/* Frees, without timing, what a list that was cut short has left. */
void ops_clear(bench *self, const ops *list, size_t done, void **blocks);
/* The whole list with pool_sample at each new peak of live bytes; false where ten times the limit
 * of a pass was not enough. */
bool ops_sample(bench *self, const ops *list, void **blocks);

#endif
