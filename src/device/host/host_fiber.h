/* host_fiber.h - stacks of their own for the lanes of a block, all on one thread.
 *
 * A fiber runs until it yields or ends, and then the thread goes on where it entered it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_FIBER_H
#define MP_DEVICE_HOST_FIBER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef void host_fiber_fn(void *context);

/* Makes sure that this thread has `count` fibers; they are kept until it ends. */
mp_status mp__host_fiber_reserve(uint32_t count);

/* Gives fiber `index` of this thread a function to begin with. */
void mp__host_fiber_set(uint32_t index, host_fiber_fn *fn, void *context);

/* Runs the fiber until it yields or ends. Returns whether it has ended. */
bool mp__host_fiber_resume(uint32_t index);

/* Goes back to the thread; only inside a fiber. */
void mp__host_fiber_yield(void);

#endif
