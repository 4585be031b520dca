/* graph_memory.h - memory that captured graphs use.
 *
 * Two kinds: what a run asked for while it was recorded, which is set apart for the graphs of its
 * thread; and what was there before, such as weights and bound values, which is held: whoever frees
 * it gets it freed when the last graph that uses it goes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_GRAPH_MEMORY_H
#define MP_EP_GRAPH_MEMORY_H

#include "millpond/millpond.h"

typedef struct mp_graph_block {
    mp_addr addr;
    size_t size;
    bool is_free;
} mp_graph_block;

/* Of the graphs of one thread and session, which never run at the same time and so share it. */
typedef struct mp_graph_memory {
    mp_pool *pool;       /* borrowed */
    mp_capture *capture; /* the pool's; NULL where the pool has no captures, as the driver's own */
    mp_graph_block *blocks; /* owned; then these are it */
    size_t count, capacity;
    bool is_listed; /* the blocks count */
    int users;      /* graphs, and a recording */
} mp_graph_memory;

/* `native` is about to be recorded. Fails: nothing to end. */
mp_status mp__graph_memory_begin(mp_graph_memory *memory, void *native);
void mp__graph_memory_end(mp_graph_memory *memory, void *native);
/* A graph, or a recording that made none, is gone. The last one takes the memory with it. */
void mp__graph_memory_leave(mp_graph_memory *memory);

/* Between begin and end. */
mp_status mp__graph_memory_lend(mp_graph_memory *memory, size_t size, void *native, mp_addr *out);
/* Whether `addr` is one of the blocks. */
bool mp__graph_memory_take_back(mp_graph_memory *memory, mp_addr addr);

/* ---- blocks that are held ---- */

typedef struct mp_holds {
    mp_addr *blocks; /* owned; sorted */
    size_t count;
} mp_holds;

/* Holds the allocated blocks of `pool` that `addresses` lie in. Takes: the array, also when it
 * fails. */
mp_status mp__holds_make(mp_pool *pool, mp_addr *addresses, size_t count, mp_holds *out);
/* Frees what nobody holds any more and has been freed meanwhile. */
void mp__holds_drop(mp_pool *pool, mp_holds *holds);
/* `*kept`: the block is held, and counts as freed from now on. Fails: INVALID_ARGUMENT where it
 * does already. */
mp_status mp__holds_keep(mp_addr addr, bool *kept);

#endif
