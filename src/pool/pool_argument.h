/* pool_argument.h - what every public function looks at first: that the process was not forked from
 * one with pools, its handle, and its other arguments.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_POOL_ARGUMENT_H
#define MP_POOL_POOL_ARGUMENT_H

#include "millpond/millpond.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Set in a child of a process that watches forks. Read in every call, so it is reached without the
 * table of the library's symbols. */
extern __attribute__((visibility("hidden"))) atomic_bool mp__process_forked;

/* A child of this process knows from now on that it is one: it shares neither the driver's state
 * nor the threads that hold our locks. */
void mp__forks_watch(void);

static inline bool process_is_forked(void) {
    return __builtin_expect(atomic_load_explicit(&mp__process_forked, memory_order_relaxed), false);
}

/* Fails: UNSUPPORTED, which a forked process gets from every call. */
mp_status mp__refuse_forked(void);
/* Fails: what `call` cannot do with this handle, which is NULL or closed, or in a forked process.
 */
mp_status mp__refuse_handle(const mp_pool *pool, const char *call);

/* Declares `a`, the arena of an open handle; returns with an error where it is none. */
#define TAKE_ARENA(a, pool)                                                \
    arena *const a = mp__handle_arena(pool);                               \
    do {                                                                   \
        if (__builtin_expect((a) == NULL, false) || process_is_forked()) { \
            return mp__refuse_handle(pool, __func__);                      \
        }                                                                  \
    } while (0)

/* `what` names the argument and says what is wrong with it. */
#define CHECK_ARGUMENT(condition, what)                                           \
    do {                                                                          \
        if (__builtin_expect(!(condition), false)) {                              \
            return MP_FAIL(INVALID_ARGUMENT, "%s: the argument " what, __func__); \
        }                                                                         \
    } while (0)

#define CHECK_PROCESS()                 \
    do {                                \
        if (process_is_forked()) {      \
            return mp__refuse_forked(); \
        }                               \
    } while (0)

#endif
