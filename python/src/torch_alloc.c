/* torch_alloc.c - the functions that PyTorch's CUDAPluggableAllocator calls.
 *
 * There are two sets. The first is for a whole process: every block of PyTorch is one of the pool.
 * The second is for torch.cuda.MemPool: PyTorch's own allocator asks for segments and cuts them up.
 * It calls with its lock held and looks at what is returned. So a failure is NULL there and not an
 * exception, no hook of Python may run, and the device is waited for before a segment comes back,
 * as cudaFree does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "base/log.h"
#include "base/status.h"
#include "torch.h"

adapter torch_pools = {.client = "torch", .lock = PTHREAD_MUTEX_INITIALIZER};

CORE_EXPORT int millpond_torch_open(int device, const char *name);
CORE_EXPORT void *millpond_torch_alloc(size_t size, int device, void *stream);
CORE_EXPORT void millpond_torch_free(void *memory, size_t size, int device, void *stream);
CORE_EXPORT void millpond_torch_empty_cache(void);
CORE_EXPORT void millpond_torch_record_stream(void *memory, void *stream);
CORE_EXPORT void *millpond_torch_base(void *memory, size_t *size);
CORE_EXPORT void millpond_torch_fraction(double fraction, int device);
CORE_EXPORT void *millpond_torch_segment(size_t size, int device, void *stream);
CORE_EXPORT void millpond_torch_segment_free(void *memory, size_t size, int device, void *stream);

int millpond_torch_open(int device, const char *name) {
    return (int)adapter_open(&torch_pools, device, name);
}

/* For calls that may not fail. A forked child leaves all memory alone. */
static void report(mp_status status) {
    if (status != MP_OK && status != MP_UNSUPPORTED) {
        MP_LOG(ERROR, "%s", mp_error_message());
    }
}

/* ---- a whole process ---- */

static mp_status lend(size_t size, int device, void *stream, mp_addr *out) {
    adapter_pool *from = NULL;
    MP_TRY(adapter_pool_of(&torch_pools, device, &from));
    MP_TRY(torch_graph_join(from, device, stream));
    return mp_pool_alloc(from->pool, size, stream, out);
}

void *millpond_torch_alloc(size_t size, int device, void *stream) {
    mp_addr addr = 0;
    if (size == 0) {
        return NULL; /* an empty tensor; PyTorch frees no NULL */
    }
    const mp_status status = lend(size, device, stream, &addr);
    if (status != MP_OK) {
        torch_throw(status);
    }
    return (void *)addr;
}

/* `size` is not looked at, since PyTorch has been seen to give another one than at the request. */
void millpond_torch_free(void *memory, size_t size, int device, void *stream) {
    (void)size;
    (void)stream;
    adapter_pool *from = NULL;
    mp_status status = adapter_pool_of(&torch_pools, device, &from);
    if (status == MP_OK) {
        status = mp_pool_free(from->pool, (mp_addr)memory);
    }
    report(status);
}

void millpond_torch_empty_cache(void) {
    int device = -1;
    for (adapter_pool *from = adapter_next(&torch_pools, &device); from != NULL;
         from = adapter_next(&torch_pools, &device)) {
        report(mp_pool_shrink(from->pool, NULL));
    }
}

/* PyTorch does not say which device; memory of others, that is not allocated by a pool, has no
 * order to keep here. */
void millpond_torch_record_stream(void *memory, void *stream) {
    int device = -1;
    mp_block_info block;
    for (adapter_pool *from = adapter_next(&torch_pools, &device); from != NULL;
         from = adapter_next(&torch_pools, &device)) {
        if (mp_pool_find(from->pool, (mp_addr)memory, &block) == MP_OK) {
            report(mp_pool_record_use(from->pool, block.addr, stream));
            return;
        }
    }
}

void *millpond_torch_base(void *memory, size_t *size) {
    int device = -1;
    mp_block_info block;
    for (adapter_pool *from = adapter_next(&torch_pools, &device); from != NULL;
         from = adapter_next(&torch_pools, &device)) {
        if (mp_pool_find(from->pool, (mp_addr)memory, &block) == MP_OK && block.region_size != 0) {
            if (size != NULL) {
                *size = block.region_size;
            }
            return (void *)block.region;
        }
    }
    return memory;
}

/* ---- the limit ---- */

static struct {
    bool is_set;
    double value;
} fractions[ADAPTER_DEVICES_MAX];

/* What the limit of all pools together must be, so that no device can have more than its part where
 * one is used, and all together no more than their parts where there are several. */
static size_t limit(void) {
    double bytes = 0;
    bool is_limited = false;
    int device = -1;
    for (adapter_pool *from = adapter_next(&torch_pools, &device); from != NULL;
         from = adapter_next(&torch_pools, &device)) {
        mp_pool_device told;
        const bool known = mp_pool_get_device(from->pool, &told, sizeof told) == MP_OK;
        const double part = fractions[device].is_set ? fractions[device].value : 1;
        bytes += known ? part * (double)told.memory_total : 0;
        is_limited = is_limited || part < 1;
    }
    const size_t nothing = 1; /* 0 would be no limit */
    return !is_limited ? 0 : bytes >= 1 ? (size_t)bytes : nothing;
}

void millpond_torch_fraction(double fraction, int device) {
    adapter_pool *from = NULL;
    const mp_status status = adapter_pool_of(&torch_pools, device, &from);
    if (status != MP_OK) {
        torch_throw(status);
        return;
    }
    (void)pthread_mutex_lock(&torch_pools.lock);
    fractions[device].is_set = true;
    fractions[device].value = fraction;
    mp_limit_set(limit());
    (void)pthread_mutex_unlock(&torch_pools.lock);
}

/* ---- segments ---- */

/* While a stream is captured the pool must not wait for the device, which a capture of its own, an
 * empty one, keeps it from; and what a graph uses follows no stream. */
static mp_status lend_captured(mp_pool *pool, size_t size, void *stream, mp_addr *out) {
    mp_capture *capture = NULL;
    MP_TRY(mp_pool_capture_begin(pool, stream, &capture));
    const mp_status status = mp_pool_alloc(pool, size, MP_NO_STREAM, out);
    report(mp_pool_capture_end(pool, stream));
    mp_pool_capture_release(pool, capture);
    return status;
}

static mp_status lend_segment(size_t size, int device, void *stream, mp_addr *out) {
    adapter_pool *from = NULL;
    MP_TRY(adapter_pool_of(&torch_pools, device, &from));
    return torch_is_captured(from, stream) ? lend_captured(from->pool, size, stream, out)
                                           : mp_pool_alloc(from->pool, size, stream, out);
}

void *millpond_torch_segment(size_t size, int device, void *stream) {
    mp_addr addr = 0;
    core_hooks_hold(true); /* they take the GIL, whose holder may wait for PyTorch's lock */
    const mp_status status = lend_segment(size, device, stream, &addr);
    core_hooks_hold(false);
    if (status != MP_OK) {
        MP_LOG(INFO, "%s", mp_error_message()); /* PyTorch tries more, and has its own sentence */
    }
    return status == MP_OK ? (void *)addr : NULL;
}

static mp_status free_segment(mp_addr addr, int device) {
    mp_block_info block;
    adapter_pool *from = NULL;
    MP_TRY(adapter_pool_of(&torch_pools, device, &from));
    MP_TRY(mp_pool_find(from->pool, addr, &block)); /* a forked child cannot wait for the device */
    report(from->device->ops->synchronize(from->device));
    return mp_pool_free(from->pool, addr);
}

void millpond_torch_segment_free(void *memory, size_t size, int device, void *stream) {
    (void)size;
    (void)stream;
    report(free_segment((mp_addr)memory, device));
}
