/* host_block.c - runs the blocks of a kernel on the CPU.
 *
 * Usually a block has one lane and blocks are spread over the workers. A kernel without barriers is
 * a loop over all of its elements, of which each block does one contiguous part, so that as many
 * blocks as workers are enough. The adversary runs the blocks in a shuffled order, and the lanes of
 * a kernel with barriers as fibers, in a fresh order between any two barriers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_fiber.h"
#include "device/host/host_lane.h"
#include "device/host/host_work.h"
#include "device/host/math/host_math.h"

#include "base/worker.h"

#include <stdlib.h>
#include <string.h>

enum { INLINE_LANES_MAX = 8192 }; /* less work than this is done before a worker is awake */

_Thread_local struct k_lane k_lane;

static _Thread_local _Alignas(64) unsigned char shared_bytes[HOST_SHARED_BYTES_MAX];
static _Thread_local bool in_fiber;
static _Thread_local bool at_barrier; /* why the fiber that ran last came back */

static _Thread_local _Alignas(64) unsigned char slot_bytes[K_HOST_SLOTS_BYTES];

void *k_host_slots(void) {
    return slot_bytes;
}

void *k_host_shared(void) {
    return shared_bytes;
}

void *k_host_scratch(size_t size) {
    return mp__host_scratch(size);
}

void k_host_barrier(void) {
    if (in_fiber) {
        at_barrier = true;
        mp__host_fiber_yield();
    }
}

typedef struct launch {
    mp_host_entry *entry;
    const void *args;
    uint32_t blocks, blocks_y, lanes;
} launch;

static void set_block(const launch *run, uint32_t lanes, size_t index) {
    k_lane = (struct k_lane){
        .block = {.x = (uint32_t)(index % run->blocks), .y = (uint32_t)(index / run->blocks)},
        .block_dim = {.x = lanes, .y = 1, .z = 1},
        .grid_dim = {.x = run->blocks, .y = run->blocks_y, .z = 1},
    };
}

/* ---- one lane a block ---- */

static void run_range(void *context, size_t begin, size_t end) {
    const launch *run = context;
    for (size_t i = begin; i < end; i++) {
        set_block(run, 1, i);
        run->entry(run->args);
    }
}

void mp__host_run_blocks(const mp_kernel_image *image, mp_grid grid, const void *args) {
    launch run = {.entry = image->host,
                  .args = args,
                  .blocks = grid.blocks,
                  .blocks_y = grid.blocks_y == 0 ? 1 : grid.blocks_y};
    const size_t workers = mp_worker_count();
    const bool small = (uint64_t)run.blocks * run.blocks_y * grid.lanes <= INLINE_LANES_MAX;
    if (!image->lanes) {
        run.blocks = small ? 1 : (uint32_t)workers;
    }
    const size_t count = (size_t)run.blocks * run.blocks_y;
    const size_t piece = small ? count : count / (workers * 4);
    mp_worker_run(count, piece > 0 ? piece : 1, run_range, &run);
}

/* ---- the adversary's way ---- */

static uint32_t draw(uint64_t *random, uint32_t bound) {
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(((*random >> 32) * bound) >> 32);
}

static void shuffle(uint32_t *order, uint32_t count, uint64_t *random) {
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t other = draw(random, i);
        const uint32_t swapped = order[i - 1];
        order[i - 1] = order[other];
        order[other] = swapped;
    }
}

static void lane_main(void *context) {
    const launch *run = context;
    run->entry(run->args);
}

/* Lets every lane of `order` run to its next barrier or its end; keeps those that wait. */
static uint32_t run_to_barrier(uint32_t *order, uint32_t count) {
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t lane = order[i];
        k_lane.thread.x = lane;
        at_barrier = false;
        in_fiber = true;
        const bool ended = mp__host_fiber_resume(lane);
        in_fiber = false;
        if (!ended) {
            order[waiting++] = lane;
        }
    }
    return waiting;
}

static const char *run_block(launch *run, uint32_t *order, uint64_t *random) {
    const char *fault = NULL;
    for (uint32_t i = 0; i < run->lanes; i++) {
        mp__host_fiber_set(i, lane_main, run);
        order[i] = i;
    }
    for (uint32_t count = run->lanes; count > 0;) {
        shuffle(order, count, random);
        const uint32_t waiting = run_to_barrier(order, count);
        if (waiting != 0 && waiting != count) {
            fault = "a lane has missed a barrier that other lanes of its block wait at";
        }
        count = waiting;
    }
    return fault;
}

static const char *run_all_lanes(launch *run, const uint32_t *blocks, uint32_t *lanes,
                                 uint64_t *random) {
    const char *fault = NULL;
    for (size_t i = 0; i < (size_t)run->blocks * run->blocks_y; i++) {
        mp__host_poison((mp_addr)shared_bytes, sizeof shared_bytes, HOST_POISON_FRESH);
        set_block(run, run->lanes, blocks[i]);
        const char *found = run_block(run, lanes, random);
        fault = found != NULL ? found : fault;
    }
    return fault;
}

const char *mp__host_run_shuffled(const mp_kernel_image *image, mp_grid grid, const void *args,
                                  uint64_t random) {
    launch run = {.entry = image->host,
                  .args = args,
                  .blocks = image->lanes ? grid.blocks : 1 + draw(&random, 7),
                  .blocks_y = grid.blocks_y == 0 ? 1 : grid.blocks_y,
                  .lanes = grid.lanes};
    const uint64_t count = (uint64_t)run.blocks * run.blocks_y;
    if (count > UINT32_MAX || (image->lanes && mp__host_fiber_reserve(run.lanes) != MP_OK)) {
        return "cannot allocate memory for its lanes";
    }
    uint32_t *order = malloc((count + run.lanes) * sizeof *order);
    if (order == NULL) {
        return "cannot allocate memory for its lanes";
    }
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    shuffle(order, (uint32_t)count, &random);
    const char *fault = NULL;
    if (image->lanes) {
        fault = run_all_lanes(&run, order, order + count, &random);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            run_range(&run, order[i], (size_t)order[i] + 1);
        }
    }
    free(order);
    return fault;
}
