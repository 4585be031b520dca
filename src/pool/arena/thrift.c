/* thrift.c - how long a stream's heap that has grown is sparing with memory rather than with time.
 *
 * A shelf serves its stream fast, but what lies on it is in pieces, and not merged with what is
 * free beside it. So a heap that has made the arena grow is thrifty for a while, which growth has
 * paid for: its shelf serves exact sizes only and is emptied at each request that it did not serve,
 * so that memory lies as if it were merged at each free, and the next growth, which may double
 * everything, comes as late as it can. Afterwards the shelf is gathered only where a request would
 * make the arena grow; and where the arena is small, not even there: growing is better than
 * gathering the same blocks over and over. `gathered` counts that for each heap.
 *
 * Each chunk gathered was freed since the last time, so gathering adds a bounded time to a free.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/thrift.h"

enum {
    THRIFT_BYTES = 64 << 20, /* an arena that is larger is spared it, unless growth is to be as */
    THRIFT_BLOCKS_MAX = 128, /* requested, or so few blocks are allocated that the shelf is short */
    THRIFT_HEAPS_MAX = 2,    /* further streams would meet at the arena's lock */
};

/* The most units that a chunk of the shelf may have beyond an eighth of a request. */
static uint32_t slack_of(const arena *a) {
    const size_t dead = a->options.max_dead_bytes_per_chunk;
    if (a->expandable && !a->options.dead_bytes_given) {
        return UINT32_MAX; /* the default is for what is cut off in the bins */
    }
    const size_t units = dead > 0 ? (dead - 1) / UNIT : 0;
    return units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
}

static bool lends_few(const arena *a, const stream_heap *heap) {
    int64_t blocks = 0;
    for (size_t i = 0; i < a->client_count; i++) {
        blocks += heap->clients[i].blocks;
    }
    return blocks <= THRIFT_BLOCKS_MAX;
}

void mp__thrift_begin(const arena *a, stream_heap *heap) {
    const bool is_thrifty = stream_heap_count_of(a) <= THRIFT_HEAPS_MAX &&
                            (a->options.extend_strategy == EXTEND_AS_REQUESTED ||
                             arena_total(a) <= THRIFT_BYTES || lends_few(a, heap));
    heap->gathered = is_thrifty ? 0 : THRIFT;
    heap->asked = 0;
    heap->slack = is_thrifty ? 0 : slack_of(a);
}

void mp__thrift_count(const arena *a, stream_heap *heap, size_t count) {
    const size_t before = heap->gathered;
    heap->gathered += count;
    if (before < THRIFT && heap->gathered >= THRIFT) {
        spin_lock(&heap->lock);
        heap->slack = slack_of(a);
        spin_unlock(&heap->lock);
    }
}
