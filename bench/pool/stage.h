/* stage.h - streams and work for the cases: a GPU through its driver, or the emulated device.
 *
 * Independent of the allocator under test, so that every allocator meets the same work. A call that
 * fails ends the program.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_POOL_STAGE_H
#define BENCH_POOL_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct stage {
    const char *name; /* "cuda", "host" */
    char device[128];
    char driver[64];
    void (*thread_enter)(void); /* first of all on each thread but the one that opened the stage */
    void *(*stream_create)(void);
    void (*wait_all)(void);
    /* `later` waits for what is queued on `earlier` by now. */
    void (*order)(void *earlier, void *later);
    /* Queues work: a kernel that takes `us` microseconds and uses no block; a fill of `count`
     * words; a copy to pinned memory. */
    void (*busy)(void *stream, unsigned us);
    void (*fill)(void *stream, void *block, uint32_t value, size_t count);
    void (*read)(void *stream, void *pinned, const void *block, size_t size);
    void *(*pinned_alloc)(size_t size);
    void (*pinned_free)(void *pinned);
    void (*memory)(size_t *free_bytes, size_t *total_bytes);
    /* Straight from the device, so that less is left for the allocator. */
    void *(*hold)(size_t size);
    void (*release)(void *held, size_t size);
} stage;

/* NULL, with the reason in `*why`, where there is no such device. Static storage. */
stage *stage_cuda(const char **why);
stage *stage_host(const char **why);

#endif
