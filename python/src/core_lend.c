/* core_lend.c - allocating and freeing, with the GIL given up only where a call may wait.
 *
 * A request that a stream's shelf can serve takes less time than to give up the GIL and to get it
 * back, which with other threads at work can take milliseconds. So the short way is tried under the
 * GIL: it takes locks only that are held for some dozen instructions, by threads that need nothing
 * of ours meanwhile. Everything else happens without the GIL: growth waits for the device, under a
 * lock of the pool, and the device may wait for a host function that needs the GIL.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "pool/pool_handle.h"

bool core_lend(core_pool *pool, size_t size, void *stream, mp_addr *out) {
    mp_status status = mp__pool_try_alloc(pool->native, size, stream, out);
    if (status == MP_BUSY) {
        CORE_CALL(pool, status = mp_pool_alloc(pool->native, size, stream, out));
    }
    if (status != MP_OK) {
        (void)core_raise(status);
    }
    return status == MP_OK;
}

static mp_status try_free(mp_pool *pool, mp_addr addr, void *stream) {
    return stream == CORE_SAME_STREAM ? mp__pool_try_free(pool, addr)
                                      : mp__pool_try_free_on(pool, addr, stream);
}

static mp_status free_block(mp_pool *pool, mp_addr addr, void *stream) {
    return stream == CORE_SAME_STREAM ? mp_pool_free(pool, addr)
                                      : mp_pool_free_on(pool, addr, stream);
}

mp_status core_give_back(core_pool *pool, mp_addr addr, void *stream) {
    mp_status status = try_free(pool->native, addr, stream);
    if (status == MP_BUSY) {
        CORE_CALL(pool, status = free_block(pool->native, addr, stream));
    }
    return status;
}
