/* host_scratch.c - memory that each thread keeps for its next calculation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_math.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct scratch {
    void *memory; /* owned */
    size_t size;
} scratch;

static _Thread_local scratch mine;
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool key_made;

static void make_key(void) {
    key_made = pthread_key_create(&key, free) == 0;
}

void *mp__host_scratch(size_t size) {
    if (size <= mine.size) {
        return mine.memory;
    }
    (void)pthread_once(&key_once, make_key);
    void *fresh = NULL;
    if (!key_made || posix_memalign(&fresh, 64, size) != 0) {
        return NULL;
    }
    free(mine.memory);
    mine = (scratch){.memory = fresh, .size = size};
    (void)pthread_setspecific(key, fresh);
    return fresh;
}
