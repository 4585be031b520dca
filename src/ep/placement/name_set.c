/* name_set.c - a hash table with open addresses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/placement/name_set.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_LEAST = 64 };

static size_t slot_of(const mp_name_set *set, const char *name) {
    size_t hash = 5381;
    for (const char *at = name; *at != '\0'; at++) {
        hash = hash * 33 + (unsigned char)*at;
    }
    size_t slot = hash & (set->slot_count - 1);
    while (set->slots[slot] != NULL && strcmp(set->slots[slot], name) != 0) {
        slot = (slot + 1) & (set->slot_count - 1);
    }
    return slot;
}

static mp_status grow(mp_name_set *set) {
    const mp_name_set old = *set;
    const size_t slot_count = old.slot_count > 0 ? old.slot_count * 2 : SLOTS_LEAST;
    char **slots = calloc(slot_count, sizeof *slots);
    if (slots == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to partition the graph");
    }
    set->slots = slots;
    set->slot_count = slot_count;
    for (size_t i = 0; i < old.slot_count; i++) {
        if (old.slots[i] != NULL) {
            set->slots[slot_of(set, old.slots[i])] = old.slots[i];
        }
    }
    free(old.slots);
    return MP_OK;
}

mp_status mp__name_set_add(mp_name_set *set, const char *name) {
    if (set->count * 2 >= set->slot_count) {
        MP_TRY(grow(set));
    }
    const size_t slot = slot_of(set, name);
    if (set->slots[slot] != NULL) {
        return MP_OK;
    }
    set->slots[slot] = strdup(name);
    if (set->slots[slot] == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to partition the graph");
    }
    set->count++;
    return MP_OK;
}

bool mp__name_set_has(const mp_name_set *set, const char *name) {
    return set->count > 0 && set->slots[slot_of(set, name)] != NULL;
}

void mp__name_set_clear(mp_name_set *set) {
    for (size_t i = 0; i < set->slot_count; i++) {
        free(set->slots[i]);
    }
    free(set->slots);
    *set = (mp_name_set){.slots = NULL};
}
