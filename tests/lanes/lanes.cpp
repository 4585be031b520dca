/* lanes.cpp - threads that stand for lanes; the program's end counts what was checked.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lanes.h"

#include "cuda.h"

#include <pthread.h>
#include <thread>

enum { LANES_MAX = 1024, WARP = 32, WARPS_MAX = LANES_MAX / WARP, SLOT = 32, SHARED = 1 << 19 };

thread_local cuda_place threadIdx, blockIdx;
cuda_place blockDim, gridDim;
alignas(16) static unsigned char shared[SHARED];
static thread_local unsigned thread_number; /* among those that run at once */
static size_t shared_each;                  /* of a block */

static pthread_barrier_t block_barrier, warp_barrier[WARPS_MAX];
static unsigned char slots[LANES_MAX][SLOT];

void __syncthreads() {
    pthread_barrier_wait(&block_barrier);
}

void *k_shared_bytes() {
    return shared + thread_number / blockDim.x * shared_each;
}

void *cluster_place(void *place, unsigned block) {
    return shared + block * shared_each + ((unsigned char *)place - shared) % shared_each;
}

void lane_exchange(const void *put, void *got, size_t size, unsigned from) {
    pthread_barrier_t *barrier = &warp_barrier[thread_number / WARP];
    memcpy(slots[thread_number], put, size);
    pthread_barrier_wait(barrier);
    memcpy(got, slots[thread_number / WARP * WARP + from], size);
    pthread_barrier_wait(barrier);
}

void lane_gather(const void *put, void *got, size_t size) {
    pthread_barrier_t *barrier = &warp_barrier[thread_number / WARP];
    memcpy(slots[thread_number], put, size);
    pthread_barrier_wait(barrier);
    for (unsigned i = 0; i < WARP; i++) {
        memcpy((char *)got + i * size, slots[thread_number / WARP * WARP + i], size);
    }
    pthread_barrier_wait(barrier);
}

/* `at_once` of the blocks, and then the next. */
static void run(unsigned blocks, unsigned at_once, unsigned lanes,
                const std::function<void()> &kernel) {
    gridDim = {blocks, 1, 1};
    blockDim = {lanes, 1, 1};
    shared_each = SHARED / at_once / 16 * 16;
    pthread_barrier_init(&block_barrier, nullptr, lanes * at_once);
    for (unsigned w = 0; w < lanes * at_once / WARP; w++) {
        pthread_barrier_init(&warp_barrier[w], nullptr, WARP);
    }
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < lanes * at_once; number++) {
        threads.emplace_back([&kernel, number, lanes, blocks, at_once] {
            thread_number = number;
            threadIdx = {number % lanes, 0, 0};
            for (unsigned block = number / lanes; block < blocks; block += at_once) {
                blockIdx = {block, 0, 0};
                kernel();
                __syncthreads(); /* the next block has the same shared memory */
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

void run_blocks(unsigned blocks, unsigned lanes, const std::function<void()> &kernel) {
    run(blocks, 1, lanes, kernel);
}

void run_clusters(unsigned blocks, unsigned at_once, unsigned lanes,
                  const std::function<void()> &kernel) {
    run(blocks, at_once, lanes, kernel);
}

uint32_t next_random() {
    static uint64_t state = 1;
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33);
}

/* ---- checks ---- */

static int64_t checks, failures;

void check(bool holds, const char *what, int64_t at) {
    checks++;
    if (!holds && failures++ < 10) {
        printf("%s at %lld is wrong\n", what, (long long)at);
    }
}

void run_tests();

int main() {
    run_tests();
    printf("%lld of %lld checks failed\n", (long long)failures, (long long)checks);
    return failures == 0 && checks > 0 ? 0 : 1;
}
