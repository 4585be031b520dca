/* layout.h - what a pool looks like at one moment: its regions, and every block in them.
 *
 * Every byte of a region lies in exactly one block, and every allocated block in a region: a block
 * that the device gave on its own is a region with one block.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_LAYOUT_H
#define MP_POOL_LAYOUT_H

#include "device/device.h"
#include "millpond/millpond.h"

enum { MP_CLIENTS_MAX = 32, MP_CLIENT_NAME_MAX = 32 };

typedef enum mp_block_state {
    MP_BLOCK_LENT,
    MP_BLOCK_FREE,     /* chunk of a bin */
    MP_BLOCK_KEPT,     /* free, kept apart: for the next request of its size and stream, or for a
                          captured graph */
    MP_BLOCK_WAITING,  /* freed, but a stream that was declared may still use it */
    MP_BLOCK_UNMAPPED, /* addresses of an expandable region without memory */
} mp_block_state;

typedef struct mp_layout_block {
    mp_addr addr;
    size_t size;
    size_t requested; /* 0 unless allocated */
    void *stream;     /* MP_NO_STREAM where any stream may use it */
    uint8_t state;    /* mp_block_state */
    uint8_t client;   /* index in `clients`; of an allocated block */
    uint16_t label;   /* what it is for, see trace_label.h; of an allocated block */
} mp_layout_block;

typedef struct mp_layout_region {
    mp_addr addr;
    size_t size;
    bool expandable; /* pages are mapped on demand */
    bool reserved;   /* outside the arena: one block, allocated and released with it */
    size_t first_block, block_count;
} mp_layout_region;

/* A part of an allocated block that its user has told of. */
typedef struct mp_layout_part {
    mp_addr addr;
    size_t size;
    uint16_t label;
} mp_layout_part;

typedef struct mp_layout {
    mp_layout_region *regions; /* owned; by address */
    size_t region_count;
    mp_layout_block *blocks; /* owned; by address */
    size_t block_count;
    mp_layout_part *parts; /* owned; by address */
    size_t part_count;
    char clients[MP_CLIENTS_MAX][MP_CLIENT_NAME_MAX];
    size_t client_count;
    const mp_device *device; /* borrowed */
    mp_memory memory;
    mp_pool_stats stats;
} mp_layout;

/* Frees what `layout` owns, and empties it. */
void mp__layout_free(mp_layout *layout);

/* The free memory of some blocks, kept ones among it. */
typedef struct mp_layout_room {
    uint64_t free;
    uint64_t largest; /* of the free blocks */
} mp_layout_room;

mp_layout_room mp__layout_room(const mp_layout_block *blocks, size_t count);

/* How much of the free memory is out of reach of one request, in thousandths: 1000 less the
 * largest's share; 0 where nothing is free. */
unsigned mp__layout_fragmentation(mp_layout_room room);

#endif
