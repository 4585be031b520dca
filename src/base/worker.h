/* worker.h - loops spread over the process's worker threads.
 *
 * One set of threads for the whole process, as many as there are CPUs this process may use
 * (MILLPOND_HOST_THREADS overrides), started by the first loop that wants them. The calling thread
 * always takes part. A loop that comes while another one holds the workers (from another thread, or
 * from inside the loop) runs on its own thread alone, and so does every loop in a forked child;
 * nothing ever waits for a free worker.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_WORKER_H
#define MP_BASE_WORKER_H

#include <stddef.h>

/* Does items [begin, end) of a loop. Called from several threads at once. */
typedef void mp_worker_fn(void *context, size_t begin, size_t end);

/* How many threads may share a loop, the caller among them: 1 or more. */
size_t mp_worker_count(void);

/* Calls `fn` for [0, count), in pieces of at most `piece` items (at least 1), in any order.
 * Returns when all is done. Threads: any. Blocks: yes. */
void mp_worker_run(size_t count, size_t piece, mp_worker_fn *fn, void *context);

#endif
