/* trace_intern.h - keys of any bytes, each kept once and known by a small number from then on.
 *
 * A set lives as long as the process: what it has once taken in never moves and never goes, so that
 * a number may stand in any trace. It is bounded instead.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_TRACE_INTERN_H
#define MP_POOL_TRACE_INTERN_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mp_intern_key mp_intern_key;

typedef struct mp_intern {
    pthread_mutex_t lock; /* PTHREAD_MUTEX_INITIALIZER; all else begins as zeros */
    mp_intern_key **keys; /* owned; number n is keys[n - 1] */
    uint32_t *slots;      /* owned; numbers by hash, 0 for none; twice as many as `capacity` */
    size_t count, capacity;
} mp_intern;

/* The number of a key, from 1 and at most `most`; 0 where the set is full, or the host's memory.
 * Threads: any. */
uint32_t mp__intern(mp_intern *set, const void *key, size_t size, uint32_t most);

/* The key of a number, and its size; NULL where there is none. Borrowed, for good. Threads: any. */
const void *mp__intern_key(mp_intern *set, uint32_t number, size_t *size);

#endif
