/* pool_later.h - a handle on a device's pool that is had when it is first needed.
 *
 * ONNX Runtime asks for an allocator of each memory when the library is registered, before anybody
 * can have said what the pools shall be like. So those allocators open nothing. They get a handle
 * when a session or another allocator of the registration opens the pool, which they keep from then
 * on, or when memory is first asked of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_POOL_LATER_H
#define MP_EP_POOL_LATER_H

#include "ep/session/plugin.h"

typedef struct mp_pool_later {
    mp_unit *unit; /* borrowed */
    mp_memory memory;
    _Atomic(mp_pool *) pool;    /* owned; NULL until it is had */
    struct mp_pool_later *next; /* in the list of those that wait */
} mp_pool_later;

/* Takes: `pool`; where it is NULL, one is had later. Not to be moved until closed. */
void mp__pool_later_init(mp_pool_later *later, mp_unit *unit, mp_memory memory, mp_pool *pool);
void mp__pool_later_close(mp_pool_later *later);

/* The pool, opened with what the environment asks for where nobody has opened it.
 * Gives: `*out`, borrowed. Threads: any. Fails: as mp_pool_open. */
mp_status mp__pool_later_get(mp_pool_later *later, mp_pool **out);

/* The unit's pool has been opened: those that wait for it have it, too. */
void mp__pool_later_join(const mp_unit *unit, mp_memory memory, mp_pool *pool);

#endif
