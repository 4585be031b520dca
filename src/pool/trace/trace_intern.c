/* trace_intern.c - a hash table of keys that are never taken out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_intern.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 }; /* a power of two, as every capacity is */

struct mp_intern_key {
    uint64_t hash;
    size_t size;
    unsigned char bytes[];
};

static uint64_t hash_of(const unsigned char *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash ^ hash >> 32;
}

/* Where the number of the key is, or would be. */
static uint32_t *slot_of(const mp_intern *set, uint64_t hash, const void *key, size_t size) {
    const size_t mask = 2 * set->capacity - 1;
    size_t at = (size_t)hash & mask;
    for (; set->slots[at] != 0; at = (at + 1) & mask) {
        const mp_intern_key *other = set->keys[set->slots[at] - 1];
        if (other->hash == hash && other->size == size && memcmp(other->bytes, key, size) == 0) {
            break;
        }
    }
    return &set->slots[at];
}

/* Room for one more key, half of the slots still free. False: no host memory, the set as it was. */
static bool make_room(mp_intern *set) {
    if (set->count < set->capacity) {
        return true;
    }
    const size_t capacity = set->capacity > 0 ? 2 * set->capacity : FIRST_CAPACITY;
    mp_intern_key **keys = realloc(set->keys, capacity * sizeof *keys);
    if (keys != NULL) {
        set->keys = keys;
    }
    uint32_t *slots = keys != NULL ? calloc(2 * capacity, sizeof *slots) : NULL;
    if (slots == NULL) {
        return false;
    }
    free(set->slots);
    set->slots = slots;
    set->capacity = capacity;
    for (size_t i = 0; i < set->count; i++) {
        const mp_intern_key *key = set->keys[i];
        *slot_of(set, key->hash, key->bytes, key->size) = (uint32_t)i + 1;
    }
    return true;
}

static uint32_t add(mp_intern *set, uint64_t hash, const void *key, size_t size) {
    mp_intern_key *fresh = make_room(set) ? malloc(sizeof *fresh + size) : NULL;
    if (fresh == NULL) {
        return 0;
    }
    fresh->hash = hash;
    fresh->size = size;
    memcpy(fresh->bytes, key, size);
    uint32_t *slot = slot_of(set, hash, key, size);
    set->keys[set->count++] = fresh;
    return *slot = (uint32_t)set->count;
}

uint32_t mp__intern(mp_intern *set, const void *key, size_t size, uint32_t most) {
    const uint64_t hash = hash_of(key, size);
    (void)pthread_mutex_lock(&set->lock);
    uint32_t number = set->count > 0 ? *slot_of(set, hash, key, size) : 0;
    if (number == 0 && set->count < most) {
        number = add(set, hash, key, size);
    }
    (void)pthread_mutex_unlock(&set->lock);
    return number;
}

const void *mp__intern_key(mp_intern *set, uint32_t number, size_t *size) {
    const mp_intern_key *key = NULL;
    (void)pthread_mutex_lock(&set->lock);
    if (number > 0 && number <= set->count) {
        key = set->keys[number - 1];
    }
    (void)pthread_mutex_unlock(&set->lock);
    *size = key != NULL ? key->size : 0;
    return key != NULL ? key->bytes : NULL;
}
