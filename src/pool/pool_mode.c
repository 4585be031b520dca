/* pool_mode.c - which mode a pool has: what its options ask for and its device can do.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_mode.h"

#include "base/log.h"
#include "pool/arena/arena_mode.h"
#include "pool/mempool/mempool_mode.h"

/* The table wants an `out` that can be written. */
mp_status mp__mode_refuse_try_alloc(arena *a, size_t size, void *stream, uint8_t client,
                                    mp_addr *out) { // NOLINT(readability-non-const-parameter)
    (void)a, (void)size, (void)stream, (void)client, (void)out;
    return MP_BUSY;
}

static void warn_of_plain_regions(const arena *a) {
    if (a->options.expandable && a->source.memory == MP_MEMORY_DEVICE && !a->expandable) {
        MP_LOG(WARNING,
               "arena.expandable: %s cannot map pages on demand; the pool uses plain "
               "regions instead",
               a->source.is_external ? "an external memory manager" : a->device->info.name);
    }
}

mp_status mp__mode_choose(arena *a) {
    const arena_options *given = &a->options;
    a->mode = a->direct ? &mp__mode_direct : &mp__mode_arena;
    if (given->use_cuda_mempool && a->source.memory == MP_MEMORY_DEVICE && !a->source.is_external) {
        const mp_status status = mp__mempool_mode_enter(a);
        if (status != MP_UNSUPPORTED) {
            return status;
        }
        MP_LOG(WARNING, "arena.use_cuda_mempool: %s; the pool uses its own arena instead",
               mp_error_message());
    }
    warn_of_plain_regions(a);
    return MP_OK;
}
