/* plan_cache.c - a short list, the last used first; the oldest goes when it is full.
 *
 * A key is a run of 64-bit words: the alignment, then for each input its type and rank, its
 * dimensions and, on the host, its bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/run/plan_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PLANS_MAX = 32, WORDS_ON_STACK = 256, HOST_BYTES_MAX = 1 << 16 };

typedef struct entry {
    mp_plan *plan; /* one reference */
    uint64_t *key; /* owned */
    size_t words;
} entry;

struct mp_plan_cache {
    pthread_mutex_t lock;
    int count;
    entry entries[PLANS_MAX]; /* the last used first */
};

typedef struct key {
    uint64_t *words; /* `few`, or owned */
    size_t count, capacity;
    bool too_long; /* not worth keeping: host inputs of more than HOST_BYTES_MAX */
    uint64_t few[WORDS_ON_STACK];
} key;

/* ---- keys ---- */

static mp_status key_reserve(key *k, size_t words) {
    if (k->capacity - k->count >= words) {
        return MP_OK;
    }
    const size_t capacity = k->capacity * 2 + words;
    uint64_t *grown = malloc(capacity * sizeof *grown);
    if (grown == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the key of a plan");
    }
    memcpy(grown, k->words, k->count * sizeof *grown);
    if (k->words != k->few) {
        free(k->words);
    }
    k->words = grown;
    k->capacity = capacity;
    return MP_OK;
}

static mp_status key_add_bytes(key *k, const mp_tensor *tensor) {
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
    if (bytes > HOST_BYTES_MAX) {
        k->too_long = true;
        return MP_OK;
    }
    const size_t words = (bytes + 7) / 8;
    MP_TRY(key_reserve(k, words));
    if (words > 0) {
        k->words[k->count + words - 1] = 0;
        memcpy(&k->words[k->count], (const void *)tensor->data, bytes);
    }
    k->count += words;
    return MP_OK;
}

static mp_status key_make(key *k, const mp_tensor *in, int in_count, int32_t align) {
    k->words = k->few;
    k->capacity = WORDS_ON_STACK;
    k->too_long = false;
    k->few[0] = (uint64_t)align;
    k->count = 1;
    for (int i = 0; i < in_count; i++) {
        const size_t rank = (size_t)in[i].shape.rank;
        MP_TRY(key_reserve(k, 1 + rank));
        k->words[k->count] = (uint64_t)in[i].type << 32 | (uint64_t)rank;
        memcpy(&k->words[k->count + 1], in[i].shape.dim, rank * sizeof(int64_t));
        k->count += 1 + rank;
        if (in[i].data != 0) {
            MP_TRY(key_add_bytes(k, &in[i]));
        }
    }
    return MP_OK;
}

static void key_release(const key *k) {
    if (k->words != k->few) {
        free(k->words);
    }
}

/* ---- the list; with the lock held ---- */

static mp_plan *list_find(mp_plan_cache *cache, const key *k) {
    for (int i = 0; i < cache->count; i++) {
        const entry found = cache->entries[i];
        if (found.words == k->count &&
            memcmp(found.key, k->words, k->count * sizeof(uint64_t)) == 0) {
            memmove(&cache->entries[1], &cache->entries[0], (size_t)i * sizeof found);
            cache->entries[0] = found;
            mp_plan_retain(found.plan);
            return found.plan;
        }
    }
    return NULL;
}

static void list_add(mp_plan_cache *cache, const key *k, mp_plan *plan) {
    uint64_t *words = calloc(k->count + 1, sizeof *words);
    if (words == NULL) {
        return; /* the plan serves this once */
    }
    memcpy(words, k->words, k->count * sizeof *words);
    if (cache->count == PLANS_MAX) {
        const entry *oldest = &cache->entries[--cache->count];
        mp_plan_release(oldest->plan);
        free(oldest->key);
    }
    memmove(&cache->entries[1], &cache->entries[0], (size_t)cache->count * sizeof(entry));
    mp_plan_retain(plan);
    cache->entries[0] = (entry){.plan = plan, .key = words, .words = k->count};
    cache->count++;
}

/* ---- the interface ---- */

mp_status mp_plan_cache_create(mp_plan_cache **out) {
    mp_plan_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a node's plans");
    }
    pthread_mutex_init(&cache->lock, NULL);
    *out = cache;
    return MP_OK;
}

void mp_plan_cache_destroy(mp_plan_cache *cache) {
    if (cache == NULL) {
        return;
    }
    for (int i = 0; i < cache->count; i++) {
        mp_plan_release(cache->entries[i].plan);
        free(cache->entries[i].key);
    }
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

mp_status mp_plan_cache_get(mp_plan_cache *cache, mp_device *device, const mp_node *node,
                            const mp_tensor *in, int in_count, int out_count, int32_t align,
                            mp_plan **out) {
    key k;
    mp_status status = key_make(&k, in, in_count, align);
    mp_plan *plan = NULL;
    if (status == MP_OK && !k.too_long) {
        (void)pthread_mutex_lock(&cache->lock);
        plan = list_find(cache, &k);
        (void)pthread_mutex_unlock(&cache->lock);
    }
    if (status == MP_OK && plan == NULL) {
        status = mp_plan_make(device, node, in, in_count, out_count, align, &plan);
        if (status == MP_OK && !k.too_long) {
            (void)pthread_mutex_lock(&cache->lock);
            list_add(cache, &k, plan);
            (void)pthread_mutex_unlock(&cache->lock);
        }
    }
    key_release(&k);
    *out = plan;
    return status;
}

bool mp_plan_cache_has(mp_plan_cache *cache, const mp_tensor *in, int in_count, int32_t align) {
    key k;
    mp_plan *plan = NULL;
    if (key_make(&k, in, in_count, align) == MP_OK && !k.too_long) {
        (void)pthread_mutex_lock(&cache->lock);
        plan = list_find(cache, &k);
        (void)pthread_mutex_unlock(&cache->lock);
    }
    key_release(&k);
    mp_plan_release(plan);
    return plan != NULL;
}
