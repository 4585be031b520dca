/* try_alloc.h - the short way over the shelf of a stream, for callers that must not wait.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRY_ALLOC_H
#define MP_POOL_TRY_ALLOC_H

#include "pool/arena/arena.h"

/* The short way alone. BUSY, without a sentence and with nothing done, where there is none: where
 * it would take the arena's lock, under which others wait for the device. */
mp_status mp__arena_try_alloc(arena *a, size_t size, void *native, uint8_t client, mp_addr *out);
mp_status mp__arena_try_free(arena *a, mp_addr addr, void *native);

#endif
