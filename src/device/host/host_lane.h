/* host_lane.h - what a kernel compiled for the CPU knows about where it runs.
 *
 * The emulated device sets `k_lane` before it enters a kernel. A kernel without barriers is entered
 * once a block with one lane; a kernel with barriers is entered with one lane a block, or once a
 * lane with each lane on a stack of its own. All lanes of a block stay on one thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_LANE_H
#define MP_DEVICE_HOST_LANE_H

#include <stddef.h>
#include <stdint.h>

struct k_dim {
    uint32_t x, y, z;
};

struct k_lane {
    struct k_dim thread, block, block_dim, grid_dim;
};

/* Lives in another library than the kernels: read it once a call. */
extern _Thread_local struct k_lane k_lane;

/* Returns when every lane of the block has called it. */
void k_host_barrier(void);

/* Lets others have the processor for a moment: what this lane waits for comes from another process.
 * Looks after the other ranks, too. */
void k_host_wait(void);

/* The block's dynamic shared memory: at least the launch's shared_bytes, aligned to 16. */
void *k_host_shared(void);

/* K_HOST_SLOTS_BYTES more for the reductions over a block, aligned to 16. In one place, since each
 * kernel's own `static _Thread_local` array would cost every thread of the process its memory. */
enum { K_HOST_SLOTS_BYTES = 1024 * 8 };
void *k_host_slots(void);

/* Memory of this thread, aligned to 64, until it asks again; kept for the next call. NULL where
 * there is none. */
void *k_host_scratch(size_t size);

#endif
