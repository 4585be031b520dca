/* pool_argument.c - errors that every public function may return.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_argument.h"

#include "base/status.h"

#include <pthread.h>

atomic_bool mp__process_forked;

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void after_fork(void) {
    atomic_store_explicit(&mp__process_forked, true, memory_order_relaxed);
}

static void watch(void) {
    (void)pthread_atfork(NULL, NULL, after_fork);
}

void mp__forks_watch(void) {
    (void)pthread_once(&fork_once, watch);
}

mp_status mp__refuse_forked(void) {
    return MP_FAIL(UNSUPPORTED, "this process was forked from one that used a pool, which a GPU's "
                                "driver does not survive; start a new one instead (in Python: "
                                "multiprocessing.set_start_method(\"spawn\"))");
}

mp_status mp__refuse_handle(const mp_pool *pool, const char *call) {
    if (process_is_forked()) {
        return mp__refuse_forked();
    }
    return pool == NULL ? MP_FAIL(INVALID_ARGUMENT, "%s: the argument pool is NULL", call)
                        : MP_FAIL(INVALID_ARGUMENT, "%s: the pool handle was closed", call);
}
