/* backend_driver.c - the driver's own allocators, as users call them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include "driver.h"

#include <stdlib.h>
#include <string.h>

static int driver_init(const char *text, size_t cap) {
    const char *why = NULL;
    (void)text;
    (void)cap;
    return driver_open(&why) ? 0 : 1;
}

static void *driver_alloc(ssize_t size, int device, void *stream) {
    cu_memory memory = 0;
    (void)device;
    (void)stream;
    return cu.memory_alloc(&memory, (size_t)size) == 0 ? (void *)(uintptr_t)memory : NULL;
}

static void driver_free(void *memory, ssize_t size, int device, void *stream) {
    (void)size;
    (void)device;
    (void)stream;
    driver_must(cu.memory_free((cu_memory)(uintptr_t)memory), "cuMemFree");
}

const backend backend_driver = {
    .name = "cuda", .alloc = driver_alloc, .free = driver_free, .init = driver_init};

/* ---- the default memory pool ---- */

static void *mempool;

static int async_init(const char *text, size_t cap) {
    uint64_t threshold = strcmp(text, "max") == 0 ? UINT64_MAX : strtoull(text, NULL, 0);
    uint64_t zero = 0;
    const char *why = NULL;
    (void)cap;
    if (!driver_open(&why)) {
        return 1;
    }
    driver_must(cu.mempool_default(&mempool, 0), "cuDeviceGetDefaultMemPool");
    driver_must(cu.mempool_set(mempool, CU_POOL_RELEASE_THRESHOLD, &threshold),
                "cuMemPoolSetAttribute");
    driver_must(cu.mempool_trim(mempool, 0), "cuMemPoolTrimTo");
    driver_must(cu.mempool_set(mempool, CU_POOL_RESERVED_HIGH, &zero), "cuMemPoolSetAttribute");
    return 0;
}

static int async_trim(void) {
    driver_must(cu.mempool_trim(mempool, 0), "cuMemPoolTrimTo");
    return 0;
}

static void async_fini(void) {
    driver_must(cu.context_wait(), "cuCtxSynchronize");
    (void)async_trim();
}

static void *async_alloc(ssize_t size, int device, void *stream) {
    cu_memory memory = 0;
    (void)device;
    return cu.alloc_async(&memory, (size_t)size, stream) == 0 ? (void *)(uintptr_t)memory : NULL;
}

static void async_free(void *memory, ssize_t size, int device, void *stream) {
    (void)size;
    (void)device;
    driver_must(cu.free_async((cu_memory)(uintptr_t)memory, stream), "cuMemFreeAsync");
}

static int async_reserved(uint64_t *now, uint64_t *peak) {
    driver_must(cu.mempool_get(mempool, CU_POOL_RESERVED, now), "cuMemPoolGetAttribute");
    driver_must(cu.mempool_get(mempool, CU_POOL_RESERVED_HIGH, peak), "cuMemPoolGetAttribute");
    return 0;
}

const backend backend_driver_async = {.name = "cuda-async",
                                      .alloc = async_alloc,
                                      .free = async_free,
                                      .init = async_init,
                                      .fini = async_fini,
                                      .reserved = async_reserved,
                                      .trim = async_trim};
