/* trace.h - the last events of a pool, in a ring; off unless asked for.
 *
 * Read backwards from what the pool looks like now, the events tell what it looked like before. So
 * they must stand in the order things happened: memory is had (GROW) before it is allocated
 * (ALLOC), freed (FREE) before it is given back (SHRINK), and freed before it is allocated again.
 * Blocks outside the arena need no GROW and SHRINK.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_H
#define MP_POOL_TRACE_H

#include "pool/layout.h"

#include <stdatomic.h>

typedef enum mp_trace_action {
    MP_TRACE_ALLOC,
    MP_TRACE_FREE,
    MP_TRACE_USE,    /* declared on a further stream */
    MP_TRACE_FAIL,   /* a request that ran out of memory; addr is 0 */
    MP_TRACE_GROW,   /* a region (or a range of pages) reserved from the device */
    MP_TRACE_SHRINK, /* given back */
} mp_trace_action;

typedef struct mp_trace_event {
    uint64_t time_ns; /* since the epoch; never less than the event's before */
    mp_addr addr;
    uint64_t size;      /* of the block as allocated, or of the memory had or given back */
    uint64_t requested; /* what was asked for; the same when it is freed */
    void *stream;
    uint64_t thread; /* of the operating system */
    uint64_t total;  /* reserved from the device after the event */
    uint8_t action;  /* mp_trace_action */
    uint8_t client;  /* index in the layout's clients: who asked, also when it is freed */
    bool pages;      /* GROW, SHRINK: a range of pages of an expandable region */
    uint16_t label;  /* what for, see trace_label.h; of GROW, who made the pool grow */
    uint16_t stack;  /* ALLOC, FAIL: who called, see trace_stack.h; 0 where it was not looked at */
} mp_trace_event;

typedef struct mp_trace mp_trace;

/* Gives: `*out`, until destroy; nothing is kept before mp__trace_start. */
mp_status mp__trace_create(mp_trace **out);
void mp__trace_destroy(mp_trace *trace);

/* Starts anew with room for `capacity` events; 0 stops and forgets. Threads: any.
 * Fails: OUT_OF_MEMORY, INVALID_ARGUMENT (beyond 2^30 events); the trace as it was. */
mp_status mp__trace_start(mp_trace *trace, size_t capacity);

/* Parts of blocks, kept also while no events are, and which the start of a trace leaves alone; see
 * mp__pool_part_set. Threads: any. */
mp_status mp__trace_part_set(mp_trace *trace, mp_addr addr, size_t size, uint16_t label);
void mp__trace_part_drop(mp_trace *trace, mp_addr addr);
/* Puts those that lie in allocated blocks into the layout. Fails: OUT_OF_MEMORY. */
mp_status mp__trace_parts(mp_trace *trace, mp_layout *layout);

/* From now until the next start, looks at the stack of who allocates: at most `depth` frames. */
void mp__trace_set_depth(mp_trace *trace, size_t depth);
/* The stack of this thread for an event; 0 where none is wanted. Without locks of the pool. */
uint16_t mp__trace_stack(const mp_trace *trace);

typedef struct mp_trace_switch { /* a trace begins with it */
    atomic_bool on;
} mp_trace_switch;

/* Whether events are kept; cheap enough for every call. */
static inline bool mp__trace_on(const mp_trace *trace) {
    return atomic_load_explicit(&((mp_trace_switch *)(uintptr_t)trace)->on, memory_order_relaxed);
}

/* Fills in time and thread. Threads: any. Takes only a lock of its own. */
void mp__trace_add(mp_trace *trace, mp_trace_event event);

/* A copy of the events kept, oldest first. `*dropped`: how many older ones were overwritten.
 * To be called where no event can be added before the layout that goes with it is taken.
 * Gives: `*out`, to be freed with free(); NULL where there are none. */
mp_status mp__trace_copy(mp_trace *trace, mp_trace_event **out, size_t *count, uint64_t *dropped);

/* Writes `events` and `layout` to `path`, which is replaced only once all is written.
 * Fails: NOT_FOUND (cannot be written), OUT_OF_MEMORY, INVALID_ARGUMENT. */
mp_status mp__trace_write(mp_trace_format format, const char *path, const mp_trace_event *events,
                          size_t count, uint64_t dropped, const mp_layout *layout);

#endif
