/* pressure.c - hooks that may free memory before a request fails.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/pressure.h"

#include "base/growing.h"
#include "pool/arena/arena.h"

mp_status mp__pressure_add(arena *a, mp_pressure_fn *fn, void *context) {
    mp_status status = MP_OK;
    arena_lock(a);
    if (mp_grow(&a->hooks, a->hook_count + 1, &a->hook_capacity, sizeof(hook))) {
        a->hooks[a->hook_count++] = (hook){.fn = fn, .context = context};
    } else {
        status = MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a hook of a pool");
    }
    arena_unlock(a);
    return status;
}

/* The hook's place is given up only after every thread has left every hook, since others are found
 * by their place. */
static void drop_hook(arena *a, size_t at) {
    a->hooks[at].gone = true;
    for (size_t i = 0; i < a->hook_count;) {
        if (a->hooks[i].running > 0) {
            (void)pthread_cond_wait(&a->hook_done, &a->lock);
            i = 0;
        } else {
            i++;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < a->hook_count; i++) {
        if (!a->hooks[i].gone) {
            a->hooks[kept++] = a->hooks[i];
        }
    }
    a->hook_count = kept;
}

mp_status mp__pressure_remove(arena *a, mp_pressure_fn *fn, void *context) {
    mp_status status = MP_OK;
    arena_lock(a);
    size_t at = 0;
    while (at < a->hook_count &&
           (a->hooks[at].fn != fn || a->hooks[at].context != context || a->hooks[at].gone)) {
        at++;
    }
    if (at == a->hook_count) {
        status = MP_FAIL(NOT_FOUND, "the pool has no such hook");
    } else {
        drop_hook(a, at);
    }
    arena_unlock(a);
    return status;
}

bool mp__pressure_run(arena *a, size_t size, size_t *next) {
    static _Thread_local bool running;
    bool freed = false;
    if (running) {
        return false;
    }
    running = true;
    arena_lock(a);
    for (; *next < a->hook_count && !freed; ++*next) {
        const hook h = a->hooks[*next];
        if (h.gone) {
            continue;
        }
        a->hooks[*next].running++;
        arena_unlock(a);
        freed = h.fn(h.context, size);
        arena_lock(a); /* there may be more hooks by now, elsewhere */
        a->hooks[*next].running--;
        (void)pthread_cond_broadcast(&a->hook_done);
    }
    arena_unlock(a);
    running = false;
    return freed;
}
