/* graph_memory.c - memory set apart for graphs, and blocks held for them.
 *
 * A pool of ours sets memory apart by itself. The driver's own pool does not: there every block is
 * taken from outside stream order and allocated again within the recording only, from a list.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/capture/graph_memory.h"

#include "base/log.h"
#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A block that the driver did not take back stays allocated, so a second try is in order. */
static void give_back(mp_pool *pool, mp_addr addr) {
    for (int tries = 0; tries < 2; tries++) {
        if (mp_pool_free(pool, addr) == MP_OK) {
            return;
        }
    }
    MP_LOG(ERROR, "a block of a graph is lost: %s", mp_error_message());
}

/* ---- set apart ---- */

mp_status mp__graph_memory_begin(mp_graph_memory *memory, void *native) {
    const mp_status status =
        memory->is_listed ? MP_OK : mp_pool_capture_begin(memory->pool, native, &memory->capture);
    if (status == MP_UNSUPPORTED) {
        memory->is_listed = true;
    } else if (status != MP_OK) {
        return status;
    }
    memory->users++;
    return MP_OK;
}

/* Those still allocated belong to their users. */
static void forget_lent(mp_graph_memory *memory) {
    size_t kept = 0;
    for (size_t i = 0; i < memory->count; i++) {
        if (memory->blocks[i].is_free) {
            memory->blocks[kept++] = memory->blocks[i];
        }
    }
    memory->count = kept;
}

void mp__graph_memory_end(mp_graph_memory *memory, void *native) {
    if (memory->is_listed) {
        forget_lent(memory);
    } else if (mp_pool_capture_end(memory->pool, native) != MP_OK) {
        MP_LOG(ERROR, "the end of a capture: %s", mp_error_message());
    }
}

void mp__graph_memory_leave(mp_graph_memory *memory) {
    if (--memory->users > 0) {
        return;
    }
    for (size_t i = 0; i < memory->count; i++) {
        give_back(memory->pool, memory->blocks[i].addr);
    }
    free(memory->blocks);
    memory->blocks = NULL;
    memory->count = memory->capacity = 0;
    mp_pool_capture_release(memory->pool, memory->capture);
    memory->capture = NULL;
}

static mp_graph_block *best_free(const mp_graph_memory *memory, size_t size) {
    mp_graph_block *best = NULL;
    for (size_t i = 0; i < memory->count; i++) {
        mp_graph_block *block = &memory->blocks[i];
        if (block->is_free && block->size >= size && (best == NULL || block->size < best->size)) {
            best = block;
        }
    }
    return best;
}

static mp_status add_block(mp_graph_memory *memory, size_t size, mp_graph_block **out) {
    if (memory->count == memory->capacity) {
        const size_t capacity = memory->capacity * 2 + 16;
        mp_graph_block *blocks = realloc(memory->blocks, capacity * sizeof *blocks);
        if (blocks == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %zu blocks of a graph",
                           capacity);
        }
        memory->blocks = blocks;
        memory->capacity = capacity;
    }
    mp_graph_block *block = &memory->blocks[memory->count];
    MP_TRY(mp_pool_reserve(memory->pool, size, &block->addr));
    block->size = size;
    memory->count++;
    *out = block;
    return MP_OK;
}

mp_status mp__graph_memory_lend(mp_graph_memory *memory, size_t size, void *native, mp_addr *out) {
    if (!memory->is_listed) {
        return mp_pool_alloc(memory->pool, size, native, out);
    }
    mp_graph_block *block = best_free(memory, size);
    if (block == NULL) {
        MP_TRY(add_block(memory, size, &block));
    }
    block->is_free = false;
    *out = block->addr;
    return MP_OK;
}

bool mp__graph_memory_take_back(mp_graph_memory *memory, mp_addr addr) {
    for (size_t i = 0; i < memory->count; i++) {
        if (memory->blocks[i].addr == addr && !memory->blocks[i].is_free) {
            memory->blocks[i].is_free = true;
            return true;
        }
    }
    return false;
}

/* ---- held ---- */

typedef struct hold {
    mp_addr addr;
    int graphs;
    bool is_freed; /* by its user */
} hold;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hold *held; /* sorted by address */
static size_t held_capacity;
static atomic_size_t held_count; /* written under the lock */

/* Where `addr` is, or would be. */
static size_t place_of(mp_addr addr) {
    size_t low = 0;
    size_t high = atomic_load_explicit(&held_count, memory_order_relaxed);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (held[middle].addr < addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static hold *find(mp_addr addr) {
    const size_t place = place_of(addr);
    return place < held_count && held[place].addr == addr ? &held[place] : NULL;
}

static bool reserve_holds(size_t more) {
    const size_t needed = held_count + more;
    if (needed <= held_capacity) {
        return true;
    }
    hold *grown = realloc(held, needed * 2 * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    held = grown;
    held_capacity = needed * 2;
    return true;
}

static void add_hold(mp_addr addr) {
    hold *known = find(addr);
    if (known != NULL) {
        known->graphs++;
        return;
    }
    const size_t place = place_of(addr);
    memmove(&held[place + 1], &held[place], (held_count - place) * sizeof *held);
    held[place] = (hold){.addr = addr, .graphs = 1};
    atomic_fetch_add(&held_count, 1);
}

/* Whether the block is to be freed now. */
static bool remove_hold(mp_addr addr) {
    hold *known = find(addr);
    if (--known->graphs > 0) {
        return false;
    }
    const bool is_freed = known->is_freed;
    const size_t place = (size_t)(known - held);
    memmove(known, known + 1, (held_count - place - 1) * sizeof *held);
    atomic_fetch_sub(&held_count, 1);
    return is_freed;
}

static int by_address(const void *left, const void *right) {
    const mp_addr a = *(const mp_addr *)left;
    const mp_addr b = *(const mp_addr *)right;
    return (a > b) - (a < b);
}

/* From addresses to the blocks they lie in, each once; what is not in one is left out. */
static size_t blocks_of(mp_pool *pool, mp_addr *addresses, size_t count) {
    size_t found = 0;
    mp_block_info info;
    for (size_t i = 0; i < count; i++) {
        if (mp_pool_find(pool, addresses[i], &info) == MP_OK) {
            addresses[found++] = info.addr;
        }
    }
    if (found > 0) {
        qsort(addresses, found, sizeof *addresses, by_address);
    }
    size_t unique = 0;
    for (size_t i = 0; i < found; i++) {
        if (unique == 0 || addresses[unique - 1] != addresses[i]) {
            addresses[unique++] = addresses[i];
        }
    }
    return unique;
}

mp_status mp__holds_make(mp_pool *pool, mp_addr *addresses, size_t count, mp_holds *out) {
    *out = (mp_holds){.blocks = addresses, .count = blocks_of(pool, addresses, count)};
    (void)pthread_mutex_lock(&lock);
    const bool fits = reserve_holds(out->count);
    for (size_t i = 0; fits && i < out->count; i++) {
        add_hold(out->blocks[i]);
    }
    (void)pthread_mutex_unlock(&lock);
    if (!fits) {
        free(addresses);
        *out = (mp_holds){0};
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the list of a graph's blocks");
    }
    return MP_OK;
}

void mp__holds_drop(mp_pool *pool, mp_holds *holds) {
    for (size_t i = 0; i < holds->count; i++) {
        (void)pthread_mutex_lock(&lock);
        const bool is_freed = remove_hold(holds->blocks[i]);
        (void)pthread_mutex_unlock(&lock);
        if (is_freed) {
            give_back(pool, holds->blocks[i]);
        }
    }
    free(holds->blocks);
    *holds = (mp_holds){0};
}

mp_status mp__holds_keep(mp_addr addr, bool *kept) {
    *kept = false;
    if (atomic_load_explicit(&held_count, memory_order_relaxed) == 0) {
        return MP_OK;
    }
    (void)pthread_mutex_lock(&lock);
    hold *known = find(addr);
    const bool is_twice = known != NULL && known->is_freed;
    *kept = known != NULL;
    if (*kept) {
        known->is_freed = true;
    }
    (void)pthread_mutex_unlock(&lock);
    return is_twice ? MP_FAIL(INVALID_ARGUMENT, "the block at %#zx was freed before", (size_t)addr)
                    : MP_OK;
}
