/* host_range.h - the address ranges that a device knows, sorted.
 *
 * Ranges never overlap. A table of a few thousand entries is an array: look-up is what counts.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_RANGE_H
#define MP_DEVICE_HOST_RANGE_H

#include "device/device.h"

typedef enum host_range_kind {
    HOST_RANGE_DEVICE,  /* device memory of its own */
    HOST_RANGE_MAPPED,  /* device memory put behind reserved addresses */
    HOST_RANGE_PINNED,  /* host memory the device reads and writes */
    HOST_RANGE_PENDING, /* given by mempool_alloc, whose stream has not come to it yet */
    HOST_RANGE_OPENED,  /* memory of another process */
    HOST_RANGE_FREED,   /* given back, poisoned, kept to see who still touches it */
} host_range_kind;

typedef struct host_range {
    mp_addr begin;
    size_t size;
    host_range_kind kind;
    uint64_t serial; /* the order in which ranges were freed, or allocated */
    uint32_t user;   /* of an allocated one: 1 more than the number of a stream that has used it */
    mp_mempool *mempool; /* kept: where it came from; NULL for other memory */
    bool leaving;        /* a free_async of it is queued */
    uint64_t offset;     /* in the device's shared file; 0 where it is not in there */
} host_range;

typedef struct host_ranges {
    host_range *items; /* owned */
    size_t count, capacity;
} host_ranges;

/* Whether [a, a + a_size) and [b, b + b_size) share a byte. */
static inline bool mp__host_overlap(mp_addr a, size_t a_size, mp_addr b, size_t b_size) {
    return a < b + b_size && b < a + a_size;
}

/* The range that holds `addr`, or NULL. Borrowed until the table changes. */
host_range *mp__host_range_find(const host_ranges *ranges, mp_addr addr);

/* The first range that ends after `addr`; its index is `count` where there is none. */
size_t mp__host_range_after(const host_ranges *ranges, mp_addr addr);

/* Whether [addr, addr + size) lies in ranges without a gap, all of the kind of the first one. */
bool mp__host_range_covers(const host_ranges *ranges, mp_addr addr, size_t size);

/* Fails: OUT_OF_MEMORY, the table unchanged. */
mp_status mp__host_range_insert(host_ranges *ranges, host_range fresh);
void mp__host_range_remove(host_ranges *ranges, const host_range *range);

/* Takes [addr, addr + size) out of every range of the table, which may split one in two. */
mp_status mp__host_range_cut(host_ranges *ranges, mp_addr addr, size_t size);
void mp__host_range_clear(host_ranges *ranges);

#endif
