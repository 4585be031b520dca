/* backend.h - an allocator to be timed: one of those built in, or a library as plugin.h says.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_POOL_BACKEND_H
#define BENCH_POOL_BACKEND_H

#include "plugin.h"

typedef struct backend {
    const char *name;
    bench_alloc_fn *alloc;
    bench_free_fn *free;
    bench_init_fn *init; /* this and the rest may be NULL */
    bench_fini_fn *fini;
    bench_reserved_fn *reserved;
    bench_trim_fn *trim;
} backend;

/* Loads a library; `symbols` is "alloc=NAME,free=NAME,...", or NULL for the names of plugin.h. */
void backend_load(const char *path, const char *symbols, backend *out);

/* "floor": no allocator, to see what the loops cost. "cuda": cuMemAlloc and cuMemFree.
 * "cuda-async": cuMemAllocAsync from the default pool; its init is the release threshold, "max" or
 * bytes. */
void backend_builtin(const char *name, backend *out);

/* Of backend_driver.c. */
extern const backend backend_driver, backend_driver_async;

#endif
