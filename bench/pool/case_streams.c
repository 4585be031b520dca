/* case_streams.c - several streams with work on them: whether the allocator makes them wait for one
 * another, and what a block costs whose memory another stream has just given back.
 *
 * Times are compared with those of the same work on blocks that were there before.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "ops.h"

#include <stdlib.h>

static void check_first(bench *self) {
    pool_open(self, 0);
    check_streams(self);
    pool_close(self);
}

/* ---- streams: a small block around each of four slow kernels a stream, round robin ---- */

enum { KERNELS = 4, KERNEL_US = 500, KERNEL_US_QUICK = 20, PASSES = 3, MOST_STREAMS = 16 };
static const size_t small_size = 256;

static double streams_pass(bench *self, unsigned streams, void *block) {
    const unsigned us = self->quick ? KERNEL_US_QUICK : KERNEL_US;
    const backend hot = self->backend;
    self->stage->wait_all();
    const uint64_t start = now_ns();
    for (unsigned i = 0; i < KERNELS * streams; i++) {
        void *stream = self->streams[i % streams];
        void *used = block != NULL ? block : hot.alloc((ssize_t)small_size, 0, stream);
        if (used == NULL) {
            die("no memory for %zu bytes", small_size);
        }
        self->stage->busy(stream, us);
        if (block == NULL) {
            hot.free(used, (ssize_t)small_size, 0, stream);
        }
    }
    self->stage->wait_all();
    return (double)(now_ns() - start);
}

static double streams_median(bench *self, unsigned streams, void *block) {
    double ns[PASSES];
    for (unsigned i = 0; i < PASSES; i++) {
        ns[i] = streams_pass(self, streams, block);
    }
    return median_of(ns, PASSES);
}

void case_streams(bench *self) {
    check_first(self);
    for (unsigned streams = 1; streams <= MOST_STREAMS; streams *= 2) {
        for (unsigned i = 0; i < streams; i++) {
            (void)bench_stream(self, i);
        }
        void *block = self->stage->hold(small_size);
        (void)streams_pass(self, streams, block);
        const double ideal = streams_median(self, streams, block);
        self->stage->release(block, small_size);
        pool_open(self, 0);
        const double cold = streams_pass(self, streams, NULL);
        const double warm = streams_median(self, streams, NULL);
        pool_close(self);
        row_begin("streams", "%2u streams", streams);
        row_number("cold_ratio", cold / ideal);
        row_number("warm_ratio", warm / ideal);
        row_number("ideal_us", ideal / 1e3);
        row_end();
    }
}

/* ---- ping-pong: freed on a stream that is at work, wanted on another ---- */

enum { ROUNDS = 200, ROUNDS_QUICK = 20, WORK_US = 50 };

/* What both sides of a round do: work, and a fill of the block. */
static void use(bench *self, void *stream, void *block, size_t size) {
    self->stage->busy(stream, WORK_US);
    self->stage->fill(stream, block, 1, size / sizeof(uint32_t));
}

/* Nanoseconds of all rounds; with `blocks`, on these two and without the allocator. */
static double pingpong_pass(bench *self, size_t size, void *const *blocks, samples *allocs,
                            samples *frees) {
    const backend hot = self->backend;
    const unsigned rounds = self->quick ? ROUNDS_QUICK : ROUNDS;
    self->stage->wait_all();
    const uint64_t start = now_ns();
    for (unsigned i = 0; i < 2 * rounds; i++) {
        void *stream = self->streams[i % 2];
        if (blocks != NULL) {
            use(self, stream, blocks[i % 2], size);
            continue;
        }
        uint64_t begin = tick_begin();
        void *block = hot.alloc((ssize_t)size, 0, stream);
        samples_add(allocs, tick_end() - begin);
        if (block == NULL) {
            die("no memory for %zu bytes", size);
        }
        use(self, stream, block, size);
        begin = tick_begin();
        hot.free(block, (ssize_t)size, 0, stream);
        samples_add(frees, tick_end() - begin);
    }
    self->stage->wait_all();
    return (double)(now_ns() - start);
}

static void pingpong_row(bench *self, size_t size, const char *name) {
    void *blocks[2] = {self->stage->hold(size), self->stage->hold(size)};
    (void)pingpong_pass(self, size, blocks, NULL, NULL);
    const double ideal = pingpong_pass(self, size, blocks, NULL, NULL);
    self->stage->release(blocks[0], size);
    self->stage->release(blocks[1], size);
    samples allocs = samples_make((size_t)2 * ROUNDS), frees = samples_make((size_t)2 * ROUNDS);
    uint64_t now, peak;
    pool_open(self, 0);
    (void)pingpong_pass(self, size, NULL, &allocs, &frees);
    allocs.count = frees.count = 0;
    const double ns = pingpong_pass(self, size, NULL, &allocs, &frees);
    pool_reserved(self, &now, &peak);
    pool_close(self);
    samples_sort(&allocs);
    samples_sort(&frees);
    row_begin("pingpong", "%s", name);
    row_number("alloc_p50_ns", samples_ns(&allocs, 0.5));
    row_number("alloc_p99_ns", samples_ns(&allocs, 0.99));
    row_number("free_p50_ns", samples_ns(&frees, 0.5));
    row_number("wall_ratio", ns / ideal);
    row_number("reserved_peak", (double)peak);
    row_end();
    samples_drop(&allocs);
    samples_drop(&frees);
}

void case_pingpong(bench *self) {
    check_first(self);
    (void)bench_stream(self, 0);
    (void)bench_stream(self, 1);
    pingpong_row(self, MIB, "1 MiB");
    pingpong_row(self, 64 * MIB, "64 MiB");
}
