/* plugin_millpond.c - Millpond's pool in the shape that pool_bench drives.
 *
 * --init takes the pool's options: "arena.expandable=1,arena.max_mem=8G". A block is given back
 * with the stream, as to every other allocator. Blocks for CuPy's CFunctionAllocator come from the
 * same pool, on the stream that its parameter points to.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include "millpond/millpond.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 16 };

static mp_pool *pool;

/* Splits "key=value,key=value" in place; returns how many there are. */
static size_t split(char *text, const char **options) {
    size_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word != NULL && count < OPTIONS_MAX;
         word = strtok_r(NULL, ",", &rest)) {
        options[count++] = word;
    }
    return count;
}

int bench_init(const char *text, size_t cap) {
    (void)cap;
    const char *options[OPTIONS_MAX + 1] = {NULL};
    char *copy = strdup(text);
    if (copy == NULL) {
        return 1;
    }
    (void)split(copy, options);
    const mp_status status = mp_pool_open(NULL, MP_MEMORY_DEVICE, "pool_bench", options, &pool);
    free(copy);
    if (status != MP_OK) {
        (void)fprintf(stderr, "plugin_millpond: %s\n", mp_error_message());
        return 1;
    }
    return 0;
}

void bench_fini(void) {
    mp_pool_close(pool);
    pool = NULL;
}

void *bench_alloc(ssize_t size, int device, void *stream) {
    (void)device;
    mp_addr addr;
    return mp_pool_alloc(pool, (size_t)size, stream, &addr) == MP_OK ? (void *)addr : NULL;
}

void bench_free(void *memory, ssize_t size, int device, void *stream) {
    (void)size;
    (void)device;
    if (mp_pool_free_on(pool, (mp_addr)memory, stream) != MP_OK) {
        (void)fprintf(stderr, "plugin_millpond: %s\n", mp_error_message());
    }
}

int bench_reserved(uint64_t *now, uint64_t *peak) {
    mp_pool_stats stats;
    if (mp_pool_get_stats(pool, &stats, sizeof stats) != MP_OK) {
        return 1;
    }
    *now = stats.total;
    *peak = stats.total_max;
    return 0;
}

int bench_trim(void) {
    return mp_pool_shrink(pool, NULL) == MP_OK ? 0 : 1;
}

/* ---- the functions that CuPy's CFunctionAllocator calls ---- */

void *bench_cupy_alloc(void *stream, size_t size, int device);
void bench_cupy_free(void *stream, void *memory, int device);

void *bench_cupy_alloc(void *stream, size_t size, int device) {
    return bench_alloc((ssize_t)size, device, *(void **)stream);
}

void bench_cupy_free(void *stream, void *memory, int device) {
    bench_free(memory, 0, device, *(void **)stream);
}
