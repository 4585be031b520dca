/* pool_later.c - handles on pools that are opened when they are first needed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/session/pool_later.h"

#include "base/log.h"
#include "pool/pool_handle.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held for a few instructions */
static mp_pool_later *waiting;

/* Takes `later` off the list, if it is there. Under the lock. */
static void take_off(const mp_pool_later *later) {
    mp_pool_later **link = &waiting;
    while (*link != NULL && *link != later) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = later->next;
    }
}

void mp__pool_later_init(mp_pool_later *later, mp_unit *unit, mp_memory memory, mp_pool *pool) {
    later->unit = unit;
    later->memory = memory;
    later->next = NULL;
    atomic_init(&later->pool, pool);
    if (pool == NULL) {
        (void)pthread_mutex_lock(&lock);
        later->next = waiting;
        waiting = later;
        (void)pthread_mutex_unlock(&lock);
    }
}

void mp__pool_later_close(mp_pool_later *later) {
    (void)pthread_mutex_lock(&lock);
    take_off(later);
    (void)pthread_mutex_unlock(&lock);
    mp_pool_close(later->pool);
}

/* Under the lock. */
static void join(mp_pool_later *later, mp_pool *pool) {
    mp_pool *own = NULL;
    if (mp__pool_again(pool, &own) != MP_OK) {
        MP_LOG(WARNING, "an allocator is not told of its pool yet: %s", mp_error_message());
        return; /* it still waits */
    }
    take_off(later);
    atomic_store_explicit(&later->pool, own, memory_order_release);
}

void mp__pool_later_join(const mp_unit *unit, mp_memory memory, mp_pool *pool) {
    (void)pthread_mutex_lock(&lock);
    for (mp_pool_later *later = waiting, *next = NULL; later != NULL; later = next) {
        next = later->next;
        if (later->unit == unit && later->memory == memory) {
            join(later, pool);
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

static mp_status open_now(mp_pool_later *later) {
    mp_pool *pool = NULL;
    MP_TRY(mp__memory_open(later->unit, later->memory, NULL, &pool)); /* which lets this one join */
    mp_pool_close(pool);
    return MP_OK;
}

mp_status mp__pool_later_get(mp_pool_later *later, mp_pool **out) {
    *out = atomic_load_explicit(&later->pool, memory_order_acquire);
    if (__builtin_expect(*out != NULL, true)) {
        return MP_OK;
    }
    MP_TRY(open_now(later));
    *out = atomic_load_explicit(&later->pool, memory_order_acquire);
    return *out != NULL
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a handle on a pool");
}
