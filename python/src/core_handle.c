/* core_handle.c - handles of the C library and blocks, counted apart from Python's objects: they
 * may go last on a thread without an interpreter, or after its end.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "base/log.h"

#include <stdlib.h>

core_handle *core_handle_make(mp_pool *pool) {
    core_handle *handle = malloc(sizeof *handle);
    if (handle == NULL) {
        mp_pool_close(pool);
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&handle->references, 1);
    handle->pool = pool;
    return handle;
}

void core_handle_keep(core_handle *handle) {
    (void)atomic_fetch_add_explicit(&handle->references, 1, memory_order_relaxed);
}

void core_handle_drop(core_handle *handle) {
    if (atomic_fetch_sub_explicit(&handle->references, 1, memory_order_acq_rel) == 1) {
        mp_pool_close(handle->pool);
        free(handle);
    }
}

core_block *core_block_make(core_handle *handle, mp_addr addr, mp_addr region) {
    core_block *block = malloc(sizeof *block);
    if (block != NULL) {
        atomic_init(&block->references, 1);
        core_handle_keep(handle);
        block->handle = handle;
        block->addr = addr;
        block->region = region;
    }
    return block;
}

void core_block_keep(core_block *block) {
    (void)atomic_fetch_add_explicit(&block->references, 1, memory_order_relaxed);
}

void core_block_drop(core_block *block) {
    if (atomic_fetch_sub_explicit(&block->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    mp_pool *pool = block->handle->pool;
    const mp_status status = block->region != 0 ? mp_pool_ipc_close(pool, block->region)
                                                : mp_pool_free(pool, block->addr);
    if (status != MP_OK && status != MP_UNSUPPORTED) { /* that is a forked child, which leaves it */
        MP_LOG(ERROR, "%s", mp_error_message());
    }
    core_handle_drop(block->handle);
    free(block);
}
