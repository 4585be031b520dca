/* limit.c - what all pools of the process may have from their devices together.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/limit.h"

#include "base/log.h"
#include "base/option.h"
#include "millpond/millpond.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_size_t limit; /* 0: none */
static atomic_size_t taken;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void) {
    const char *text = getenv("MILLPOND_LIMIT");
    size_t bytes = 0;
    if (text == NULL || text[0] == '\0') {
        return;
    }
    if (mp_parse_size("MILLPOND_LIMIT", text, &bytes) != MP_OK) {
        MP_LOG(WARNING, "%s; there is no limit", mp_error_message());
        return;
    }
    atomic_store(&limit, bytes);
}

void mp_limit_set(size_t bytes) {
    (void)pthread_once(&once, read_environment);
    atomic_store(&limit, bytes);
}

size_t mp_limit_get(void) {
    (void)pthread_once(&once, read_environment);
    return atomic_load(&limit);
}

bool mp__limit_take(size_t bytes) {
    const size_t most = mp_limit_get();
    size_t now = atomic_load(&taken);
    do {
        if (most != 0 && (now > most || bytes > most - now)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&taken, &now, now + bytes));
    return true;
}

void mp__limit_give(size_t bytes) {
    (void)atomic_fetch_sub(&taken, bytes);
}

size_t mp__limit_left(void) {
    const size_t most = mp_limit_get();
    const size_t now = atomic_load(&taken);
    if (most == 0) {
        return SIZE_MAX;
    }
    return now < most ? most - now : 0;
}
