/* trace.c - the ring of events.
 *
 * Event number n (from 0, since the start) lies in slot n % capacity, so the slots hold the last
 * `capacity` events. A lock of its own guards all but the switch, which callers read first.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace.h"

#include "pool/trace/trace_map.h"
#include "pool/trace/trace_stack.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CAPACITY_MAX = 1 << 30 };

static_assert(sizeof(mp_trace_event) == 64, "the header promises 64 bytes an event");

struct mp_trace {
    mp_trace_switch turned; /* first, see mp__trace_on */
    atomic_size_t depth;    /* of the stacks that are wanted; 0: none */
    pthread_mutex_t lock;
    mp_map parts;          /* size and label of each, by address */
    mp_trace_event *slots; /* owned; NULL while it is off */
    size_t capacity;
    uint64_t added;   /* since the start */
    uint64_t last_ns; /* the clock may be set back; the trace goes on */
};
static_assert(offsetof(struct mp_trace, turned) == 0, "mp__trace_on relies on it");

mp_status mp__trace_create(mp_trace **out) {
    mp_trace *trace = calloc(1, sizeof *trace);
    if (trace == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no memory for the record of a trace");
    }
    (void)pthread_mutex_init(&trace->lock, NULL);
    atomic_init(&trace->turned.on, false);
    atomic_init(&trace->depth, 0);
    *out = trace;
    return MP_OK;
}

void mp__trace_destroy(mp_trace *trace) {
    if (trace != NULL) {
        (void)pthread_mutex_destroy(&trace->lock);
        mp__map_free(&trace->parts);
        free(trace->slots);
        free(trace);
    }
}

mp_status mp__trace_start(mp_trace *trace, size_t capacity) {
    mp_trace_event *fresh = NULL;
    if (capacity > CAPACITY_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "a trace of %zu events; %d is the most", capacity,
                       CAPACITY_MAX);
    }
    if (capacity > 0) {
        fresh = malloc(capacity * sizeof *fresh);
        if (fresh == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "no memory for a trace of %zu events, %zu bytes",
                           capacity, capacity * sizeof *fresh);
        }
    }
    (void)pthread_mutex_lock(&trace->lock);
    mp_trace_event *old = trace->slots;
    trace->slots = fresh;
    trace->capacity = capacity;
    trace->added = 0;
    atomic_store_explicit(&trace->depth, 0, memory_order_relaxed);
    atomic_store_explicit(&trace->turned.on, capacity > 0, memory_order_relaxed);
    (void)pthread_mutex_unlock(&trace->lock);
    free(old);
    return MP_OK;
}

void mp__trace_set_depth(mp_trace *trace, size_t depth) {
    atomic_store_explicit(&trace->depth, depth, memory_order_relaxed);
}

uint16_t mp__trace_stack(const mp_trace *trace) {
    const size_t depth = atomic_load_explicit(&trace->depth, memory_order_relaxed);
    return depth > 0 ? mp__stack_look(depth) : 0;
}

static uint64_t this_thread(void) {
    static _Thread_local uint64_t id;
    if (id == 0) {
        id = (uint64_t)syscall(SYS_gettid);
    }
    return id;
}

static uint64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void mp__trace_add(mp_trace *trace, mp_trace_event event) {
    event.thread = this_thread();
    (void)pthread_mutex_lock(&trace->lock);
    if (trace->capacity > 0) {
        event.time_ns = now_ns();
        if (event.time_ns < trace->last_ns) {
            event.time_ns = trace->last_ns;
        }
        trace->last_ns = event.time_ns;
        trace->slots[trace->added % trace->capacity] = event;
        trace->added++;
    }
    (void)pthread_mutex_unlock(&trace->lock);
}

/* Copies the slots to `target`, oldest first. */
static void unroll(const mp_trace *trace, size_t count, mp_trace_event *target) {
    const size_t first = (size_t)((trace->added - count) % trace->capacity);
    const size_t upper = trace->capacity - first < count ? trace->capacity - first : count;
    memcpy(target, trace->slots + first, upper * sizeof *target);
    memcpy(target + upper, trace->slots, (count - upper) * sizeof *target);
}

mp_status mp__trace_copy(mp_trace *trace, mp_trace_event **out, size_t *count, uint64_t *dropped) {
    mp_status status = MP_OK;
    (void)pthread_mutex_lock(&trace->lock);
    const size_t kept = trace->added < trace->capacity ? (size_t)trace->added : trace->capacity;
    mp_trace_event *copy = NULL;
    if (kept > 0) {
        copy = malloc(kept * sizeof *copy);
        if (copy == NULL) {
            status = MP_FAIL(OUT_OF_MEMORY, "no memory for a copy of %zu events", kept);
        } else {
            unroll(trace, kept, copy);
        }
    }
    if (status == MP_OK) {
        *out = copy;
        *count = kept;
        *dropped = trace->added - kept;
    }
    (void)pthread_mutex_unlock(&trace->lock);
    return status;
}

/* ---- parts ---- */

enum { LABEL_BITS = 16 }; /* of a value in `parts`; the size is above them */

mp_status mp__trace_part_set(mp_trace *trace, mp_addr addr, size_t size, uint16_t label) {
    (void)pthread_mutex_lock(&trace->lock);
    const mp_status status = mp__map_set(&trace->parts, addr, (uint64_t)size << LABEL_BITS | label);
    (void)pthread_mutex_unlock(&trace->lock);
    return status;
}

void mp__trace_part_drop(mp_trace *trace, mp_addr addr) {
    uint64_t ignored;
    (void)pthread_mutex_lock(&trace->lock);
    (void)mp__map_take(&trace->parts, addr, &ignored);
    (void)pthread_mutex_unlock(&trace->lock);
}

static int by_address(const void *left, const void *right) {
    const mp_addr l = ((const mp_layout_part *)left)->addr;
    const mp_addr r = ((const mp_layout_part *)right)->addr;
    return l < r ? -1 : l > r;
}

static size_t copy_parts(const mp_map *map, mp_layout_part *out) {
    size_t count = 0;
    for (size_t i = 0; i < map->capacity; i++) {
        const mp_map_entry *entry = &map->entries[i];
        if (entry->used) {
            out[count++] = (mp_layout_part){.addr = entry->key,
                                            .size = entry->value >> LABEL_BITS,
                                            .label = (uint16_t)entry->value};
        }
    }
    if (count > 0) {
        qsort(out, count, sizeof *out, by_address);
    }
    return count;
}

static bool lies_in(const mp_layout_part *part, const mp_layout_block *block) {
    return block->state == MP_BLOCK_LENT && block->addr <= part->addr &&
           part->size <= block->addr + block->size - part->addr;
}

/* Leaves out parts outside of allocated blocks; one that fills its block is that block's label.
 * Both lists are by address. */
static void settle_parts(mp_layout *layout) {
    size_t kept = 0, b = 0;
    for (size_t i = 0; i < layout->part_count; i++) {
        const mp_layout_part part = layout->parts[i];
        while (b < layout->block_count &&
               layout->blocks[b].addr + layout->blocks[b].size <= part.addr) {
            b++;
        }
        mp_layout_block *block = b < layout->block_count ? &layout->blocks[b] : NULL;
        if (block == NULL || !lies_in(&part, block)) {
            continue;
        }
        if (part.addr == block->addr && part.size == block->requested) {
            block->label = part.label;
        } else {
            layout->parts[kept++] = part;
        }
    }
    layout->part_count = kept;
}

mp_status mp__trace_parts(mp_trace *trace, mp_layout *layout) {
    (void)pthread_mutex_lock(&trace->lock);
    const size_t count = trace->parts.count;
    mp_layout_part *parts = count > 0 ? malloc(count * sizeof *parts) : NULL;
    if (parts != NULL) {
        layout->parts = parts;
        layout->part_count = copy_parts(&trace->parts, parts);
    }
    (void)pthread_mutex_unlock(&trace->lock);
    if (count > 0 && parts == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no memory for a copy of %zu parts of blocks", count);
    }
    settle_parts(layout);
    return MP_OK;
}
