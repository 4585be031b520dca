/* shortage.c - one sentence a thread, and one for the process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/shortage.h"

#include <pthread.h>
#include <stdio.h>

enum { TEXT_MAX = 1024 };

typedef struct shortage {
    size_t count;
    char text[TEXT_MAX];
} shortage;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static shortage of_all; /* under the lock */
static _Thread_local shortage here;

static void text_set(shortage *s, const char *text) {
    s->count++;
    (void)snprintf(s->text, sizeof s->text, "%s", text);
}

void mp_shortage_keep(mp_status status) {
    if (status != MP_OUT_OF_MEMORY) {
        return;
    }
    text_set(&here, mp_error_message());
    (void)pthread_mutex_lock(&lock);
    text_set(&of_all, here.text);
    (void)pthread_mutex_unlock(&lock);
}

const char *mp_shortage_here(void) {
    return here.text;
}

size_t mp_shortage_find(int of_process, char *text, size_t size) {
    (void)pthread_mutex_lock(&lock);
    const shortage *s = of_process ? &of_all : &here;
    const size_t count = s->count;
    (void)snprintf(text, size, "%s", s->text);
    (void)pthread_mutex_unlock(&lock);
    return count;
}
