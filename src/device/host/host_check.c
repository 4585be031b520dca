/* host_check.c - what an adversarial device looks for.
 *
 * What an item refers to is looked up when it is queued and again when it runs, and asked for when
 * memory goes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_work.h"

#include <string.h>

/* ---- poison ---- */

void mp__host_poison(mp_addr addr, size_t size, uint16_t pattern) {
    unsigned char *bytes = (unsigned char *)addr;
    const uint64_t word = pattern * UINT64_C(0x0001000100010001);
    size_t i = 0;
    for (; i + sizeof word <= size; i += sizeof word) {
        memcpy(bytes + i, &word, sizeof word);
    }
    memcpy(bytes + i, &word, size - i);
}

bool mp__host_poisoned(mp_addr addr, size_t size, uint16_t pattern) {
    const unsigned char *bytes = (const unsigned char *)addr;
    const uint64_t word = pattern * UINT64_C(0x0001000100010001);
    uint64_t different = 0;
    size_t i = 0;
    for (; i + sizeof word <= size; i += sizeof word) {
        uint64_t found;
        memcpy(&found, bytes + i, sizeof found);
        different |= found ^ word;
    }
    return different == 0 && memcmp(bytes + i, &word, size - i) == 0;
}

/* ---- what an item refers to ---- */

static bool each_reference(const host_item *item, host_reference_fn *fn, void *context) {
    return item->kind->references != NULL && item->kind->references(item, fn, context);
}

static const char *name_of(const host_item *item) {
    return item->kind->name != NULL ? item->kind->name(item) : "an item";
}

/* ---- looking at one item ---- */

typedef struct check {
    host_device *host;
    const host_queue *queue;
    bool queueing;
    uint64_t loans; /* that had been made when the item was queued */
} check;

/* What is wrong with a reference; NULL where nothing is. Under memory_lock. */
static const char *find_wrong(const check *look, host_reference ref, host_range *where) {
    const host_device *host = look->host;
    const host_range *range = mp__host_range_find(&host->ranges, ref.addr);
    if (range == NULL) {
        return NULL; /* a number, or memory of the host */
    }
    *where = *range;
    if (range->kind == HOST_RANGE_FREED) {
        return "freed memory";
    }
    if (range->kind == HOST_RANGE_PENDING && !look->queueing) {
        return "memory that its mempool_alloc has not been reached for";
    }
    const size_t dead = mp__host_range_after(&host->dead, ref.addr);
    if (look->queueing && dead < host->dead.count &&
        host->dead.items[dead].begin < ref.addr + ref.size) {
        *where = host->dead.items[dead];
        return "memory that was given back to the pool";
    }
    return NULL;
}

/* Work that was queued before its memory was allocated again must not run after work of the new
 * user: whoever queued that did not order its stream after the old use. Under memory_lock. */
static bool find_late(const check *look, host_reference ref, host_range *where) {
    const host_ranges *lent = &look->host->lent;
    for (size_t i = mp__host_range_after(lent, ref.addr);
         i < lent->count && lent->items[i].begin < ref.addr + ref.size; i++) {
        host_range *range = &lent->items[i];
        if (range->serial <= look->loans) {
            range->user = look->queue->number + 1;
        } else if (range->user != 0) {
            *where = *range;
            return true;
        }
    }
    return false;
}

static bool check_order(void *context, const host_item *item, host_reference ref) {
    const check *look = context;
    host_range where = {0};
    (void)pthread_mutex_lock(&look->host->memory_lock);
    const bool late = find_late(look, ref, &where);
    (void)pthread_mutex_unlock(&look->host->memory_lock);
    if (late) {
        mp__host_breach(look->host,
                        "%s on stream %u runs after stream %u has used its memory, which was "
                        "allocated again in between, %zu bytes at 0x%zx: the new user's first work "
                        "was not ordered after the old one's (mp_pool_record_use does that)",
                        name_of(item), look->queue->number, where.user - 1, where.size,
                        (size_t)where.begin);
    }
    return late;
}

static bool check_reference(void *context, const host_item *item, host_reference ref) {
    const check *look = context;
    host_range where = {0};
    (void)pthread_mutex_lock(&look->host->memory_lock);
    const char *wrong = find_wrong(look, ref, &where);
    (void)pthread_mutex_unlock(&look->host->memory_lock);
    if (wrong != NULL) {
        mp__host_breach(look->host,
                        "%s, %s on stream %u, refers to %s: 0x%zx in %zu bytes at 0x%zx",
                        name_of(item), look->queueing ? "queued" : "running", look->queue->number,
                        wrong, (size_t)ref.addr, where.size, (size_t)where.begin);
    }
    return wrong != NULL;
}

void mp__host_check_queued(host_device *host, const host_queue *queue, host_item *item) {
    check look = {.host = host, .queue = queue, .queueing = true};
    (void)pthread_mutex_lock(&host->memory_lock);
    item->loans = host->loans;
    (void)pthread_mutex_unlock(&host->memory_lock);
    (void)each_reference(item, check_reference, &look);
}

void mp__host_check_running(host_device *host, const host_queue *queue, const host_item *item,
                            uint64_t loans) {
    if (item->kind->has_nodes) {
        return; /* they are looked at as they run */
    }
    check look = {.host = host, .queue = queue, .loans = loans};
    (void)each_reference(item, check_reference, &look);
    (void)each_reference(item, check_order, &look);
}

/* ---- looking for items that refer to a range ---- */

static bool refers_to(void *context, const host_item *item, host_reference ref) {
    (void)item;
    const host_reference *range = context;
    return mp__host_overlap(ref.addr, ref.size, range->addr, range->size);
}

static const host_item *find_user(const host_device *host, mp_addr addr, size_t size,
                                  const host_queue **where) {
    host_reference range = {.addr = addr, .size = size};
    for (const host_queue *queue = host->queues; queue != NULL; queue = queue->next) {
        for (const host_item *item = queue->head; item != NULL; item = item->next) {
            if (each_reference(item, refers_to, &range)) {
                *where = queue;
                return item;
            }
        }
    }
    return NULL;
}

bool mp__host_in_use(const host_device *host, mp_addr addr, size_t size) {
    const host_queue *where = NULL;
    return find_user(host, addr, size, &where) != NULL;
}

void mp__host_check_gone(host_device *host, mp_addr addr, size_t size, const char *call) {
    const host_queue *where = NULL;
    const host_item *user = find_user(host, addr, size, &where);
    if (user != NULL) {
        mp__host_breach(host, "%s of %zu bytes at 0x%zx, which %s, queued on stream %u, still uses",
                        call, size, (size_t)addr, name_of(user), where->number);
    }
}

/* ---- looking for writes into freed memory ---- */

void mp__host_check_freed(host_device *host, size_t bytes_max) {
    if (!mp__host_adversarial(host)) {
        return;
    }
    (void)pthread_mutex_lock(&host->memory_lock);
    size_t looked = 0;
    for (size_t i = 0; i < host->ranges.count && looked < bytes_max; i++) {
        const host_range *range = &host->ranges.items[(host->check_next + i) % host->ranges.count];
        if (range->kind != HOST_RANGE_FREED) {
            continue;
        }
        looked += range->size;
        if (!mp__host_poisoned(range->begin, range->size, HOST_POISON_FREED)) {
            mp__host_breach(host, "something has written into freed memory, %zu bytes at 0x%zx",
                            range->size, (size_t)range->begin);
        }
    }
    host->check_next++;
    (void)pthread_mutex_unlock(&host->memory_lock);
}
