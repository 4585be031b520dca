/* bench.h - what the parts of pool_bench share: how it stops, its clock, its random numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_POOL_BENCH_H
#define BENCH_POOL_BENCH_H

#include "backend.h"
#include "stage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { STREAMS_MAX = 64, THREADS_MAX = 16 };

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

typedef struct bench {
    stage *stage;
    backend backend;
    const char *init;
    void *streams[STREAMS_MAX]; /* made as they are needed, kept to the end */
    unsigned threads_max;       /* more threads than this are not tried */
    double limit_ms;            /* of one timed pass */
    uint64_t cap;               /* bytes that a case may have live */
    bool quick;                 /* a tenth or less of every count, for tests */
    const char *const *traces;  /* NULL ends */
    size_t free_before;         /* bytes of the device when the pool was opened */
    bool counts;                /* the backend knows what its pool has reserved */
    uint64_t sampled_peak;      /* of the device's memory, where it does not */
} bench;

/* Ends the program with one sentence. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Memory or the end of the program; zeroed, and aligned so that threads share no cache line. */
void *must_alloc(size_t count, size_t size);
/* `items` (NULL at first) with room for one more than `count` of them; `*capacity` says for how
 * many. Or the end of the program. */
void *must_grow(void *items, size_t count, size_t *capacity, size_t size);

void *bench_stream(bench *self, unsigned index);

/* A fresh pool, and its end. A pool is opened with no work in flight. */
void pool_open(bench *self, size_t cap);
void pool_close(bench *self);
/* Bytes reserved from the device; by its free memory where the backend does not count. */
void pool_reserved(bench *self, uint64_t *now, uint64_t *peak);
/* Looks at the device's memory if the pool does not count: too slow for a timed part. */
void pool_sample(bench *self);

/* This thread stays on the nth processor that the process may use, or (unpin) on any. */
void pin_thread(unsigned index);
void unpin_thread(void);
unsigned processor_count(void);

/* ---- time ----
 * Single calls are timed with the processor's counter; the median cost of timing nothing is taken
 * off. The fences keep work from crossing the marks. */

static inline uint64_t now_ns(void) {
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint64_t tick_begin(void) {
#if defined(__x86_64__)
    _mm_lfence();
    const uint64_t ticks = __rdtsc();
    _mm_lfence();
    return ticks;
#else
    return now_ns();
#endif
}

static inline uint64_t tick_end(void) {
#if defined(__x86_64__)
    unsigned processor;
    const uint64_t ticks = __rdtscp(&processor);
    _mm_lfence();
    return ticks;
#else
    return now_ns();
#endif
}

void tick_calibrate(void);
double tick_ns(void);          /* nanoseconds of one tick */
double tick_overhead_ns(void); /* of timing nothing */

typedef struct samples {
    uint32_t *ticks; /* owned */
    size_t count, capacity;
} samples;

samples samples_make(size_t capacity);
void samples_drop(samples *self);
static inline void samples_add(samples *self, uint64_t ticks) {
    if (self->count < self->capacity) {
        self->ticks[self->count++] = ticks > UINT32_MAX ? UINT32_MAX : (uint32_t)ticks;
    }
}
/* Sorts; then samples_ns gives quantiles (0 to 1) in ns, less the overhead. NaN without samples. */
void samples_sort(samples *self);
double samples_ns(const samples *self, double quantile);

double median_of(double *values, size_t count);

/* ---- random numbers: splitmix64, the same on every machine ---- */

static inline uint64_t draw(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 with a bound of 0. */
static inline uint64_t draw_below(uint64_t *state, uint64_t bound) {
    const uint64_t drawn = draw(state);
    return bound != 0 ? drawn % bound : 0;
}

/* Between `least` and `most`, each power of two as likely as the next. */
uint64_t draw_size(uint64_t *state, uint64_t least, uint64_t most);

/* ---- results: one JSON object a line on standard output ---- */

void row_begin(const char *test, const char *format, ...) __attribute__((format(printf, 2, 3)));
void row_number(const char *name, double value); /* not finite: null */
void row_flag(const char *name, bool value);
void row_text(const char *name, const char *value);
void row_end(void);
void row_skipped(const char *test, const char *row, const char *reason);

/* ---- the cases ---- */

typedef struct bench_case {
    const char *name;
    const char *what;
    void (*run)(bench *self);
} bench_case;

void case_pair(bench *self);
void case_live(bench *self);
void case_random(bench *self);
void case_threads(bench *self);
void case_handover(bench *self);
void case_streams(bench *self);
void case_pingpong(bench *self);
void case_replay(bench *self);
void case_phases(bench *self);
void case_full(bench *self);
void case_trim(bench *self);

#endif
