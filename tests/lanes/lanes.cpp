/* lanes.cpp - threads that stand for lanes; the program's end counts what was checked.
 * SPDX-License-Identifier: Apache-2.0 */
#include "lanes.h"

#include "cluster.h"
#include "cuda.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <thread>

enum {
    LANES_MAX = 1024,
    WARP = 32,
    GROUP = 128,
    WARPS_MAX = LANES_MAX / WARP,
    SLOT = 32,
    SHARED = 1 << 18, /* bytes */
    CLUSTER_MAX = 16,
    PLACES = 16
};

thread_local cuda_place threadIdx, blockIdx;
cuda_place blockDim, gridDim;

/* Where lanes meet: how many have arrived, and how often all of them had. */
struct cluster_place {
    std::mutex mutex;
    std::condition_variable all;
    unsigned arrived = 0, meetings = 0;
};

/* What a block of the cluster that runs has for its lanes. */
struct cluster_block {
    alignas(128) unsigned char shared[SHARED], slots[LANES_MAX][SLOT];
    pthread_barrier_t all, warp[WARPS_MAX], group[LANES_MAX / GROUP];
    cluster_place places[PLACES];
};
static cluster_block cluster[CLUSTER_MAX];
static thread_local cluster_block *mine = cluster; /* where a test looks: the first one */

static std::atomic<unsigned> arrived; /* lanes of the cluster, at this meeting and those before */
static unsigned cluster_lanes;
static thread_local unsigned meetings;

void __syncthreads() {
    pthread_barrier_wait(&mine->all);
}

void lane_group_meet() {
    pthread_barrier_wait(&mine->group[threadIdx.x / GROUP]);
}

void lane_place(int place, unsigned lanes, bool waits) {
    cluster_place &at = mine->places[place];
    std::unique_lock<std::mutex> lock(at.mutex);
    const unsigned before = at.meetings;
    if (++at.arrived == lanes) {
        at.arrived = 0;
        at.meetings++;
        at.all.notify_all();
    } else if (waits) {
        at.all.wait(lock, [&at, before] { return at.meetings != before; });
    }
}

void *k_shared_bytes() {
    return mine->shared;
}

void lane_exchange(const void *put, void *got, size_t size, unsigned from) {
    pthread_barrier_t *barrier = &mine->warp[threadIdx.x / WARP];
    memcpy(mine->slots[threadIdx.x], put, size);
    pthread_barrier_wait(barrier);
    memcpy(got, mine->slots[threadIdx.x / WARP * WARP + from], size);
    pthread_barrier_wait(barrier);
}

void lane_gather(const void *put, void *got, size_t size) {
    pthread_barrier_t *barrier = &mine->warp[threadIdx.x / WARP];
    memcpy(mine->slots[threadIdx.x], put, size);
    pthread_barrier_wait(barrier);
    for (unsigned i = 0; i < WARP; i++) {
        memcpy((char *)got + i * size, mine->slots[threadIdx.x / WARP * WARP + i], size);
    }
    pthread_barrier_wait(barrier);
}

/* ---- clusters ---- */

void k_cluster_begin() {
    arrived.fetch_add(1, std::memory_order_relaxed);
}

void k_cluster_arrive() {
    arrived.fetch_add(1, std::memory_order_release);
}

void k_cluster_wait() {
    meetings++;
    while (arrived.load(std::memory_order_acquire) < meetings * cluster_lanes) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

static void *place_in(void *place, int block) {
    return cluster[block].shared + ((unsigned char *)place - mine->shared);
}

void k_cluster_store(float *place, int block, float value) {
    memcpy(place_in(place, block), &value, sizeof value);
}

void k_cluster_store_four(float *place, int block, const float *values) {
    memcpy(place_in(place, block), values, 4 * sizeof *values);
}

/* A box has the bytes that are still to come; one that gets too little or too much is waited for in
 * vain. */
void k_box_open(uint64_t *box, uint32_t bytes) {
    if (threadIdx.x == 0) {
        __atomic_store_n(box, bytes, __ATOMIC_RELAXED);
    }
}

void k_box_send(uint64_t *box, float *place, int block, float value) {
    k_cluster_store(place, block, value);
    __atomic_fetch_sub((uint64_t *)place_in(box, block), sizeof value, __ATOMIC_RELEASE);
}

void k_box_send_four(uint64_t *box, float *place, int block, const float *values) {
    k_cluster_store_four(place, block, values);
    __atomic_fetch_sub((uint64_t *)place_in(box, block), 4 * sizeof *values, __ATOMIC_RELEASE);
}
void k_box_wait(uint64_t *box) {
    while (__atomic_load_n(box, __ATOMIC_ACQUIRE) != 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

void k_grid_arrive(uint32_t *count) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __atomic_fetch_add(count, 1, __ATOMIC_RELEASE);
    }
}

void k_grid_wait(const uint32_t *count, uint32_t wanted) {
    while (threadIdx.x == 0 && __atomic_load_n(count, __ATOMIC_ACQUIRE) < wanted) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    __syncthreads();
}

void k_grid_load_four(const void *place, uint32_t *words) {
    memcpy(words, place, 16);
}

void run_blocks(unsigned blocks, unsigned lanes, const std::function<void()> &kernel,
                unsigned together) {
    gridDim = {blocks, 1, 1};
    blockDim = {lanes, 1, 1};
    pthread_barrier_t end;
    cluster_lanes = lanes * together;
    arrived = 0;
    pthread_barrier_init(&end, nullptr, cluster_lanes);
    for (unsigned i = 0; i < together; i++) {
        memset(cluster[i].shared, 0xff, SHARED);
        pthread_barrier_init(&cluster[i].all, nullptr, lanes);
        for (unsigned w = 0; w < lanes / WARP; w++) {
            pthread_barrier_init(&cluster[i].warp[w], nullptr, WARP);
        }
        for (unsigned g = 0; g < lanes / GROUP; g++) {
            pthread_barrier_init(&cluster[i].group[g], nullptr, GROUP);
        }
    }
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < cluster_lanes; i++) {
        threads.emplace_back([&kernel, &end, i, lanes, blocks, together] {
            threadIdx = {i % lanes, 0, 0};
            mine = &cluster[i / lanes];
            for (unsigned block = i / lanes; block < blocks; block += together) {
                blockIdx = {block, 0, 0};
                kernel();
                pthread_barrier_wait(&end); /* the next blocks have the same shared memory */
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
