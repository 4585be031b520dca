/* shortage.c - one sentence a thread, and one for the process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/shortage.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { TEXT_MAX = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char of_all[TEXT_MAX]; /* under the lock */
static _Thread_local char here[TEXT_MAX];
static atomic_size_t count;

void mp_shortage_keep(mp_status status) {
    if (status != MP_OUT_OF_MEMORY) {
        return;
    }
    (void)snprintf(here, sizeof here, "%s", mp_error_message());
    (void)pthread_mutex_lock(&lock);
    (void)snprintf(of_all, sizeof of_all, "%s", here);
    (void)pthread_mutex_unlock(&lock);
    (void)atomic_fetch_add(&count, 1);
}

const char *mp_shortage_here(void) {
    return here;
}

size_t mp_shortage_count(void) {
    return atomic_load(&count);
}

void mp_shortage_find(int of_process, char *text, size_t size) {
    (void)pthread_mutex_lock(&lock);
    (void)snprintf(text, size, "%s", of_process ? of_all : here);
    (void)pthread_mutex_unlock(&lock);
}
