/* table_cache.h - tables on a device that follow from lengths and attributes alone: roots of unity,
 * labels. Each is made once, while a plan is, and stays for all plans of the device. It outlives
 * them, so that neither work that is still queued nor a captured graph can lose it; what there is
 * room for is bounded instead.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_TABLE_CACHE_H
#define MP_OP_TABLE_CACHE_H

#include "device/device.h"

/* A device keeps this much, and as many tables; one may have a quarter of it. */
enum { MP_TABLES_BYTES_MAX = 64 << 20, MP_TABLES_MAX = 1024 };

/* Writes a table of `size` bytes at `out`: queued on `stream`, which is waited for afterwards. */
typedef mp_status mp_table_fill(const void *context, mp_device *device, mp_stream *stream,
                                mp_addr out, size_t size);

/* What a table is: two with the same function and key are one. The key is copied. */
typedef struct mp_table {
    mp_table_fill *fill;
    const void *context;
    const void *key;
    size_t key_size;
    size_t size;
    bool copied; /* `fill` launches no kernel */
} mp_table;

/* The table on `device`, made on first use.
 * Gives: `*out`, borrowed until mp_table_cache_drop; 0 where there is no room for it, and the
 * caller makes it in each run. Threads: any. Blocks: while it is made. Fails: as `fill` and the
 * device. */
mp_status mp_table_cache_get(mp_device *device, const mp_table *table, mp_addr *out);

/* Frees the tables of `device`; mp_kernel_cache_drop calls it. Nothing queued may still use them.
 */
void mp_table_cache_drop(mp_device *device);

#endif
