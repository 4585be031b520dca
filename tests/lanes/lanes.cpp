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

static pthread_barrier_t block_barrier, warp_barrier[WARPS_MAX];
static unsigned char slots[LANES_MAX][SLOT];

void __syncthreads() {
    pthread_barrier_wait(&block_barrier);
}

void *k_shared_bytes() {
    return shared;
}

void lane_exchange(const void *put, void *got, size_t size, unsigned from) {
    pthread_barrier_t *barrier = &warp_barrier[threadIdx.x / WARP];
    memcpy(slots[threadIdx.x], put, size);
    pthread_barrier_wait(barrier);
    memcpy(got, slots[threadIdx.x / WARP * WARP + from], size);
    pthread_barrier_wait(barrier);
}

void lane_gather(const void *put, void *got, size_t size) {
    pthread_barrier_t *barrier = &warp_barrier[threadIdx.x / WARP];
    memcpy(slots[threadIdx.x], put, size);
    pthread_barrier_wait(barrier);
    for (unsigned i = 0; i < WARP; i++) {
        memcpy((char *)got + i * size, slots[threadIdx.x / WARP * WARP + i], size);
    }
    pthread_barrier_wait(barrier);
}

void run_blocks(unsigned blocks, unsigned lanes, const std::function<void()> &kernel) {
    gridDim = {blocks, 1, 1};
    blockDim = {lanes, 1, 1};
    pthread_barrier_init(&block_barrier, nullptr, lanes);
    for (unsigned w = 0; w < lanes / WARP; w++) {
        pthread_barrier_init(&warp_barrier[w], nullptr, WARP);
    }
    std::vector<std::thread> threads;
    for (unsigned lane = 0; lane < lanes; lane++) {
        threads.emplace_back([&kernel, lane, blocks] {
            threadIdx = {lane, 0, 0};
            for (unsigned block = 0; block < blocks; block++) {
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
