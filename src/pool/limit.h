/* limit.h - what all pools of the process may have from their devices together, see mp_limit_set.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_LIMIT_H
#define MP_POOL_LIMIT_H

#include <stdbool.h>
#include <stddef.h>

/* Counts bytes of device memory that a pool is about to have, until mp__limit_give. Returns false,
 * and counts nothing, where that would exceed the limit. Threads: any. */
bool mp__limit_take(size_t bytes);
void mp__limit_give(size_t bytes);
/* Bytes that may still be reserved; SIZE_MAX where there is no limit. */
size_t mp__limit_left(void);

#endif
