/* address_map.c - the hash table from addresses to chunks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/address_map.h"

#include <assert.h>
#include <stdlib.h>

typedef struct slot {
    _Atomic(mp_addr) addr; /* 0: empty */
    _Atomic(chunk *) chunk;
} slot;

struct address_table {
    address_table *outgrown; /* owned */
    size_t mask;             /* slots - 1; a power of two of them */
    slot slots[];
};

enum { SLOTS_FIRST = 1024 };

static size_t slot_of(const address_table *table, mp_addr addr) {
    return (size_t)((addr / UNIT * UINT64_C(0x9E3779B97F4A7C15)) >> 24) & table->mask;
}

static mp_addr addr_at(const address_table *table, size_t i) {
    return atomic_load_explicit(&table->slots[i].addr, memory_order_relaxed);
}

static void set(address_table *table, size_t i, mp_addr addr, chunk *c) {
    atomic_store_explicit(&table->slots[i].chunk, c, memory_order_relaxed);
    atomic_store_explicit(&table->slots[i].addr, addr, memory_order_release);
}

static void insert(address_table *table, mp_addr addr, chunk *c) {
    size_t i = slot_of(table, addr);
    while (addr_at(table, i) != 0) {
        i = (i + 1) & table->mask;
    }
    set(table, i, addr, c);
}

static mp_status grow(address_map *map, address_table *old, size_t slots) {
    address_table *fresh = calloc(1, sizeof *fresh + slots * sizeof fresh->slots[0]);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a table of %zu addresses",
                       slots);
    }
    fresh->mask = slots - 1;
    fresh->outgrown = old;
    for (size_t i = 0; old != NULL && i <= old->mask; i++) {
        if (addr_at(old, i) != 0) {
            insert(fresh, addr_at(old, i),
                   atomic_load_explicit(&old->slots[i].chunk, memory_order_relaxed));
        }
    }
    atomic_store_explicit(&map->table, fresh, memory_order_release);
    return MP_OK;
}

mp_status mp__address_prepare(address_map *map, size_t count) {
    address_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);
    size_t slots = table != NULL ? table->mask + 1 : SLOTS_FIRST;
    while (slots < 2 * (map->count + count)) {
        slots *= 2;
    }
    return table != NULL && slots == table->mask + 1 ? MP_OK : grow(map, table, slots);
}

void mp__address_add(address_map *map, chunk *c) {
    address_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);
    assert(table != NULL && map->count < table->mask);
    insert(table, chunk_addr(c), c);
    map->count++;
}

void mp__address_remove(address_map *map, const chunk *c) {
    address_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);
    const mp_addr addr = chunk_addr(c);
    size_t hole = slot_of(table, addr);
    while (addr_at(table, hole) != addr) {
        hole = (hole + 1) & table->mask;
    }
    /* Entries behind the hole move up unless that would put them before where they hash to. */
    for (size_t i = (hole + 1) & table->mask; addr_at(table, i) != 0; i = (i + 1) & table->mask) {
        const size_t home = slot_of(table, addr_at(table, i));
        if (((i - home) & table->mask) >= ((i - hole) & table->mask)) {
            set(table, hole, addr_at(table, i),
                atomic_load_explicit(&table->slots[i].chunk, memory_order_relaxed));
            hole = i;
        }
    }
    set(table, hole, 0, NULL);
    map->count--;
}

chunk *mp__address_find(const address_map *map, mp_addr addr) {
    const address_table *table = atomic_load_explicit(&map->table, memory_order_acquire);
    if (table == NULL || addr == 0) {
        return NULL;
    }
    for (size_t i = slot_of(table, addr);; i = (i + 1) & table->mask) {
        const mp_addr found = atomic_load_explicit(&table->slots[i].addr, memory_order_acquire);
        if (found == addr) {
            chunk *c = atomic_load_explicit(&table->slots[i].chunk, memory_order_relaxed);
            return c != NULL && chunk_addr(c) == addr ? c : NULL;
        }
        if (found == 0) {
            return NULL;
        }
    }
}

void mp__address_map_close(address_map *map) {
    address_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);
    while (table != NULL) {
        address_table *outgrown = table->outgrown;
        free(table);
        table = outgrown;
    }
    atomic_store_explicit(&map->table, NULL, memory_order_relaxed);
    map->count = 0;
}
