/* pressure.h - hooks that may free memory before a request fails.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_PRESSURE_H
#define MP_POOL_PRESSURE_H

#include "millpond/millpond.h"

typedef struct arena arena;

typedef struct hook {
    mp_pressure_fn *fn;
    void *context;
    unsigned running; /* threads in it */
    bool gone;
} hook;

/* As the functions of millpond.h. */
mp_status mp__pressure_add(arena *a, mp_pressure_fn *fn, void *context);
mp_status mp__pressure_remove(arena *a, mp_pressure_fn *fn, void *context);
/* Runs the hooks from `*next` (0 to begin) on until one says that it has freed something; `*next`
 * is then the one after it. Hooks run without locks, and none on a thread that runs one already. */
bool mp__pressure_run(arena *a, size_t size, size_t *next);

#endif
