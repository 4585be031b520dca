/* handle.h - the records behind mp_pool: one user's handle on a shared arena.
 *
 * Records are never freed, and one that was closed serves a new handle only after many others have
 * been closed: until then every call can tell that its handle is a closed one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_HANDLE_H
#define MP_POOL_HANDLE_H

#include "pool/arena/arena.h"

enum { MP_CLOSED_HANDLES_KEPT = 1024 };

struct mp_pool {
    _Atomic(arena *) arena; /* NULL: closed */
    mp_pool *next;          /* the one closed after it */
    uint8_t client;
};

/* NULL for a handle that is NULL or closed. */
static inline arena *mp__handle_arena(const mp_pool *pool) {
    return pool != NULL
               ? atomic_load_explicit(&((mp_pool *)(uintptr_t)pool)->arena, memory_order_relaxed)
               : NULL;
}

/* Gives: a handle on `a`, until mp__handle_close; NULL where there is no host memory. */
mp_pool *mp__handle_open(arena *a, uint8_t client);

/* Takes: `pool`. Gives the arena it was on; NULL, with nothing done, where it is closed already. */
arena *mp__handle_close(mp_pool *pool);

#endif
