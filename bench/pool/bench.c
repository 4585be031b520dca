/* bench.c - the clock, samples, pools and processors of pool_bench.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 128 }; /* no two threads write to so many bytes around each other */
enum { CALIBRATE_MS = 20, OVERHEAD_SAMPLES = 10001 };

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)fflush(stdout);
    (void)fputs("pool_bench: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

void *must_alloc(size_t count, size_t size) {
    const bool fits = size <= (SIZE_MAX - LINE) / (count != 0 ? count : 1);
    const size_t bytes = fits ? (count * size / LINE + 1) * LINE : 0;
    void *memory = fits ? aligned_alloc(LINE, bytes) : NULL;
    if (memory == NULL) {
        die("no memory for %zu records of %zu bytes", count, size);
    }
    return memset(memory, 0, bytes);
}

void *must_grow(void *items, size_t count, size_t *capacity, size_t size) {
    enum { FIRST = 1024 };
    if (count < *capacity) {
        return items;
    }
    const size_t more = *capacity != 0 ? 2 * *capacity : FIRST;
    void *grown = more <= SIZE_MAX / size ? realloc(items, more * size) : NULL;
    if (grown == NULL) {
        die("no memory for %zu records of %zu bytes", more, size);
    }
    *capacity = more;
    return grown;
}

/* ---- streams and pools ---- */

void *bench_stream(bench *self, unsigned index) {
    if (index >= STREAMS_MAX) {
        die("more than %d streams", STREAMS_MAX);
    }
    if (self->streams[index] == NULL) {
        self->streams[index] = self->stage->stream_create();
    }
    return self->streams[index];
}

void pool_open(bench *self, size_t cap) {
    size_t total;
    self->sampled_peak = 0;
    self->stage->wait_all();
    self->stage->memory(&self->free_before, &total);
    if (self->backend.init != NULL && self->backend.init(self->init, cap) != 0) {
        die("the backend cannot open a pool with '%s'", self->init);
    }
    uint64_t now, peak;
    self->counts = self->backend.reserved != NULL && self->backend.reserved(&now, &peak) == 0;
}

void pool_close(bench *self) {
    self->stage->wait_all();
    if (self->backend.fini != NULL) {
        self->backend.fini();
    }
}

/* What the device has less than when the pool was opened. */
static uint64_t taken(const bench *self) {
    size_t left, total;
    self->stage->memory(&left, &total);
    return self->free_before > left ? self->free_before - left : 0;
}

void pool_sample(bench *self) {
    if (!self->counts) {
        const uint64_t now = taken(self);
        self->sampled_peak = now > self->sampled_peak ? now : self->sampled_peak;
    }
}

void pool_reserved(bench *self, uint64_t *now, uint64_t *peak) {
    if (!self->counts) {
        pool_sample(self);
        *now = taken(self);
        *peak = self->sampled_peak;
    } else if (self->backend.reserved(now, peak) != 0) {
        die("the backend can no longer say what it has reserved");
    }
}

/* ---- processors ---- */

static cpu_set_t allowed; /* of the process, before any thread was pinned */

unsigned processor_count(void) {
    if (CPU_COUNT(&allowed) == 0 && sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        die("the processors of this process are not known");
    }
    return (unsigned)CPU_COUNT(&allowed);
}

void pin_thread(unsigned index) {
    unsigned left = index % processor_count();
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && left-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof one, &one); /* refused in some containers */
            return;
        }
    }
}

void unpin_thread(void) {
    (void)sched_setaffinity(0, sizeof allowed, &allowed);
}

/* ---- time ---- */

static double ns_of_tick = 1, overhead_ns;

static int compare_ticks(const void *left, const void *right) {
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

void tick_calibrate(void) {
    const uint64_t start_ns = now_ns(), start = tick_begin();
    while (now_ns() - start_ns < (uint64_t)CALIBRATE_MS * 1000000) {
    }
    ns_of_tick = (double)(now_ns() - start_ns) / (double)(tick_end() - start);
    samples empty = samples_make(OVERHEAD_SAMPLES);
    for (unsigned i = 0; i < OVERHEAD_SAMPLES; i++) {
        const uint64_t begin = tick_begin();
        samples_add(&empty, tick_end() - begin);
    }
    overhead_ns = 0;
    samples_sort(&empty);
    overhead_ns = samples_ns(&empty, 0.5);
    samples_drop(&empty);
}

double tick_ns(void) {
    return ns_of_tick;
}

double tick_overhead_ns(void) {
    return overhead_ns;
}

samples samples_make(size_t capacity) {
    return (samples){.ticks = must_alloc(capacity, sizeof(uint32_t)), .capacity = capacity};
}

void samples_drop(samples *self) {
    free(self->ticks);
    *self = (samples){0};
}

void samples_sort(samples *self) {
    qsort(self->ticks, self->count, sizeof *self->ticks, compare_ticks);
}

double samples_ns(const samples *self, double quantile) {
    if (self->count == 0) {
        return (double)NAN;
    }
    const size_t at = (size_t)(quantile * (double)(self->count - 1) + 0.5);
    const double ns = (double)self->ticks[at] * ns_of_tick - overhead_ns;
    return ns > 0 ? ns : 0;
}

static int compare_doubles(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double median_of(double *values, size_t count) {
    if (count == 0) {
        return (double)NAN;
    }
    qsort(values, count, sizeof *values, compare_doubles);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

uint64_t draw_size(uint64_t *state, uint64_t least, uint64_t most) {
    const double unit = (double)(draw(state) >> 11) * 0x1p-53;
    return (uint64_t)((double)least * pow((double)most / (double)least, unit));
}
