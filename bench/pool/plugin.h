/* plugin.h - what a library offers so that pool_bench can drive it.
 *
 * Only the first two functions are needed; `--symbols alloc=NAME,free=NAME,...` gives them other
 * names. A library without bench_init has one pool for the life of the process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_POOL_PLUGIN_H
#define BENCH_POOL_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory for work queued on `stream` after the call; NULL where there is none. */
typedef void *bench_alloc_fn(ssize_t size, int device, void *stream);
/* Gives it back in the order of `stream`, which the caller has made wait for all that uses it. */
typedef void bench_free_fn(void *memory, ssize_t size, int device, void *stream);

/* Opens a fresh pool. `text` is the --init of the command line, "" without one. `cap`: how many
 * bytes the device has left for the pool, 0 where that is plenty. Returns 0, or not if it failed.
 */
typedef int bench_init_fn(const char *text, size_t cap);
/* Closes it and gives all its memory back to the device. */
typedef void bench_fini_fn(void);
/* Bytes reserved from the device: now, and the most since the pool was opened. Returns 0 if known.
 */
typedef int bench_reserved_fn(uint64_t *now, uint64_t *peak);
/* Gives back to the device what no block needs. All work has ended. Returns 0 if it can. */
typedef int bench_trim_fn(void);

bench_alloc_fn bench_alloc;
bench_free_fn bench_free;
bench_init_fn bench_init;
bench_fini_fn bench_fini;
bench_reserved_fn bench_reserved;
bench_trim_fn bench_trim;

#ifdef __cplusplus
}
#endif

#endif
