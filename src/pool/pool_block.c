/* pool_block.c - the public functions that allocate and free blocks, and give memory back:
 * arguments are checked here, the mode of the pool does the work.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/wait.h"
#include "pool/handle.h"
#include "pool/pool_argument.h"
#include "pool/pool_handle.h"

#include <inttypes.h>

/* ---- blocks ---- */

mp_status mp_pool_alloc(mp_pool *pool, size_t size, void *stream, mp_addr *out) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    return a->mode->alloc(a, size, stream, pool->client, out);
}

mp_status mp__pool_try_alloc(mp_pool *pool, size_t size, void *stream, mp_addr *out) {
    arena *a = mp__handle_arena(pool);
    return process_is_forked() || a == NULL
               ? MP_BUSY
               : a->mode->try_alloc(a, size, stream, pool->client, out);
}

mp_status mp__pool_try_free(mp_pool *pool, mp_addr addr) {
    arena *a = mp__handle_arena(pool);
    return process_is_forked() || a == NULL ? MP_BUSY : a->mode->try_free(a, addr, MP_SAME_STREAM);
}

mp_status mp__pool_try_free_on(mp_pool *pool, mp_addr addr, void *stream) {
    arena *a = mp__handle_arena(pool);
    return process_is_forked() || a == NULL ? MP_BUSY : a->mode->try_free(a, addr, stream);
}

mp_status mp_pool_free(mp_pool *pool, mp_addr addr) {
    TAKE_ARENA(a, pool);
    return addr != 0 ? a->mode->free(a, addr, MP_SAME_STREAM) : MP_OK;
}

mp_status mp_pool_free_on(mp_pool *pool, mp_addr addr, void *stream) {
    TAKE_ARENA(a, pool);
    return addr != 0 ? a->mode->free(a, addr, stream) : MP_OK;
}

mp_status mp_pool_record_use(mp_pool *pool, mp_addr addr, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mode->record_use(a, addr, stream);
}

mp_status mp__pool_record_end(mp_pool *pool, mp_addr addr, void *stream) {
    TAKE_ARENA(a, pool);
    return a->mode->record_end(a, addr, stream);
}

mp_status mp_pool_reserve(mp_pool *pool, size_t size, mp_addr *out) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    return a->mode->reserve(a, size, pool->client, out);
}

mp_status mp_pool_find(mp_pool *pool, mp_addr addr, mp_block_info *out) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    return a->mode->find(a, addr, out);
}

/* ---- giving back ---- */

mp_status mp_pool_shrink(mp_pool *pool, size_t *released) {
    TAKE_ARENA(a, pool);
    return a->mode->shrink(a, released);
}

mp_status mp_pool_add_hook(mp_pool *pool, mp_pressure_fn *fn, void *context) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(fn != NULL, "fn is NULL");
    return mp__pressure_add(a, fn, context);
}

mp_status mp_pool_remove_hook(mp_pool *pool, mp_pressure_fn *fn, void *context) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(fn != NULL, "fn is NULL");
    return mp__pressure_remove(a, fn, context);
}

/* ---- other processes ---- */

static mp_status external_ipc(const mp_external *external, mp_addr base, mp_ipc_handle *out) {
    size_t size = sizeof out->bytes;
    if (external->ipc == NULL) {
        return MP_FAIL(UNSUPPORTED, "the external memory manager cannot share its memory");
    }
    return external->ipc(external->context, (void *)base, out->bytes, &size)
               ? MP_OK
               : MP_FAIL(DEVICE, "the external memory manager gave no handle for its memory");
}

mp_status mp_pool_ipc_export(mp_pool *pool, mp_addr addr, mp_ipc_handle *out, size_t *offset) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    CHECK_ARGUMENT(offset != NULL, "offset is NULL");
    mp_block_info block = {.addr = 0};
    mp_ipc_handle handle = {{0}};
    if (a->mode->find(a, addr, &block) != MP_OK || block.addr != addr) {
        return MP_FAIL(INVALID_ARGUMENT, "no allocated block begins at 0x%" PRIxPTR, addr);
    }
    if (!a->mode->regions_are_allocations || a->source.memory == MP_MEMORY_PINNED ||
        a->expandable) {
        return MP_FAIL(UNSUPPORTED, "this pool's memory cannot be opened by other processes; open "
                                    "the pool of device memory with arena.ipc=1");
    }
    MP_TRY(a->source.is_external
               ? external_ipc(&a->source.external, block.region, &handle)
               : a->device->ops->ipc_export(a->device, block.region, handle.bytes));
    *out = handle;
    *offset = block.addr - block.region;
    return MP_OK;
}

mp_status mp_pool_ipc_open(mp_pool *pool, const mp_ipc_handle *handle, mp_addr *out, size_t *size) {
    TAKE_ARENA(a, pool);
    CHECK_ARGUMENT(handle != NULL, "handle is NULL");
    CHECK_ARGUMENT(out != NULL, "out is NULL");
    CHECK_ARGUMENT(size != NULL, "size is NULL");
    if (a->source.memory == MP_MEMORY_PINNED) {
        return MP_FAIL(UNSUPPORTED, "memory of another process is of a device; open the pool of "
                                    "device memory");
    }
    return a->device->ops->ipc_open(a->device, handle->bytes, out, size);
}

/* For whatever uses memory that the pool knows nothing of. While streams are captured the device
 * must be left alone; then it is the streams that the pool knows. */
static mp_status wait_for_users(arena *a) {
    arena_lock(a);
    const bool captures = a->captures_open > 0;
    arena_unlock(a);
    return captures ? mp__arena_wait(a) : a->device->ops->synchronize(a->device);
}

mp_status mp_pool_ipc_close(mp_pool *pool, mp_addr addr) {
    TAKE_ARENA(a, pool);
    MP_TRY(wait_for_users(a));
    return a->device->ops->ipc_close(a->device, addr);
}

/* ---- other devices ---- */

mp_status mp_pool_enable_peer(mp_pool *pool, int32_t ordinal) {
    TAKE_ARENA(a, pool);
    mp_device *owner = a->device;
    mp_device *reader = NULL;
    MP_TRY(mp_device_get(owner->info.kind, ordinal, &reader));
    return reader->ops->peer_enable(reader, owner);
}
