/* name_set.c - a hash table with open addresses.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/placement/name_set.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_LEAST = 64 };

typedef struct mp_name_slot {
    char *name; /* owned; NULL: empty */
    int number;
} name_slot;

static size_t slot_of(const mp_name_set *set, const char *name) {
    size_t hash = 5381;
    for (const char *at = name; *at != '\0'; at++) {
        hash = hash * 33 + (unsigned char)*at;
    }
    size_t slot = hash & (set->slot_count - 1);
    while (set->slots[slot].name != NULL && strcmp(set->slots[slot].name, name) != 0) {
        slot = (slot + 1) & (set->slot_count - 1);
    }
    return slot;
}

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to partition the graph");
}

static mp_status grow(mp_name_set *set) {
    const mp_name_set old = *set;
    const size_t slot_count = old.slot_count > 0 ? old.slot_count * 2 : SLOTS_LEAST;
    name_slot *slots = calloc(slot_count, sizeof *slots);
    if (slots == NULL || slot_count > INT_MAX) {
        free(slots);
        return no_memory();
    }
    set->slots = slots;
    set->slot_count = slot_count;
    for (size_t i = 0; i < old.slot_count; i++) {
        if (old.slots[i].name != NULL) {
            set->slots[slot_of(set, old.slots[i].name)] = old.slots[i];
        }
    }
    free(old.slots);
    return MP_OK;
}

mp_status mp__name_set_add(mp_name_set *set, const char *name, int *number) {
    if (set->count * 2 >= set->slot_count) {
        MP_TRY(grow(set));
    }
    name_slot *slot = &set->slots[slot_of(set, name)];
    if (slot->name == NULL) {
        slot->name = strdup(name);
        if (slot->name == NULL) {
            return no_memory();
        }
        slot->number = (int)set->count++;
    }
    if (number != NULL) {
        *number = slot->number;
    }
    return MP_OK;
}

int mp__name_set_find(const mp_name_set *set, const char *name) {
    if (set->count == 0) {
        return MP_NO_NAME;
    }
    const name_slot *slot = &set->slots[slot_of(set, name)];
    return slot->name != NULL ? slot->number : MP_NO_NAME;
}

void mp__name_set_clear(mp_name_set *set) {
    for (size_t i = 0; i < set->slot_count; i++) {
        free(set->slots[i].name);
    }
    free(set->slots);
    *set = (mp_name_set){.slots = NULL};
}
