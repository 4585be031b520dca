/* available.c - how much a pool could still allocate.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/limit.h"
#include "pool/pool_handle.h"

static uint64_t beyond(uint64_t whole, uint64_t part) {
    return whole > part ? whole - part : 0;
}

mp_status mp__pool_available(mp_pool *pool, uint64_t *out) {
    mp_device *device = mp__pool_device(pool);
    mp_pool_stats stats;
    size_t device_free = 0;
    size_t device_total = 0;
    MP_TRY(mp_pool_get_stats(pool, &stats, sizeof stats));
    MP_TRY(device->ops->memory_info(device, &device_free, &device_total));
    const uint64_t growth =
        MP_MIN(MP_MIN(device_free, mp__limit_left()), beyond(stats.limit, stats.total));
    *out = beyond(stats.total, stats.in_use) + growth;
    return MP_OK;
}
