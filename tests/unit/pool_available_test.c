/* pool_available_test.c - how much a pool could still allocate.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "millpond/millpond.h"
#include "pool/pool_handle.h"

enum { MIB = 1 << 20 };

static mp_pool *open_pool(mp_device *device, const char *option) {
    const char *const options[] = {"arena.initial_chunk_size_bytes=1048576", option, NULL};
    mp_pool *pool = NULL;
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_DEVICE, "test", options, &pool));
    return pool;
}

static uint64_t available(mp_pool *pool) {
    uint64_t bytes = 0;
    CHECK_OK(mp__pool_available(pool, &bytes));
    return bytes;
}

static uint64_t device_free(mp_device *device) {
    size_t bytes = 0;
    size_t total = 0;
    CHECK_OK(device->ops->memory_info(device, &bytes, &total));
    return bytes;
}

DEVICE_TEST(pool_available_is_what_the_device_has_at_first) {
    mp_pool *pool = open_pool(device, NULL);
    if (device->info.kind == MP_DEVICE_HOST) { /* others use a GPU meanwhile */
        CHECK_EQ_INT((long long)available(pool), (long long)device_free(device));
    }
    mp_pool_close(pool);
}

DEVICE_TEST(pool_available_keeps_to_the_pools_own_limit) {
    mp_pool *pool = open_pool(device, "arena.max_mem=4194304");
    mp_addr block = 0;
    CHECK_EQ_INT((long long)available(pool), 4 * MIB);
    CHECK_OK(mp_pool_alloc(pool, 100, MP_NO_STREAM, &block)); /* the pool has a MiB now */
    CHECK_EQ_INT((long long)available(pool), 4 * MIB - 256);
    CHECK_OK(mp_pool_free(pool, block));
    CHECK_EQ_INT((long long)available(pool), 4 * MIB);
    mp_pool_close(pool);
}

DEVICE_TEST(pool_available_keeps_to_the_limit_of_the_process) {
    mp_pool *pool = open_pool(device, NULL);
    mp_addr block = 0;
    mp_limit_set(2 * MIB);
    CHECK_EQ_INT((long long)available(pool), 2 * MIB);
    CHECK_OK(mp_pool_alloc(pool, 1000, MP_NO_STREAM, &block));
    CHECK_EQ_INT((long long)available(pool), 2 * MIB - 1024);
    mp_limit_set(MIB / 2); /* less than the pool has already */
    CHECK_EQ_INT((long long)available(pool), MIB - 1024);
    mp_limit_set(0);
    CHECK_OK(mp_pool_free(pool, block));
    mp_pool_close(pool);
}
