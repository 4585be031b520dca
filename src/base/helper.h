/* helper.h - threads that join work which another thread has begun.
 *
 * Unlike the loop of worker.h this serves several callers at the same time, each with a few
 * threads. Help may come late or not at all: the caller does what nobody else has done. The threads
 * are started at the first need, half as many as there are CPUs at most, and sleep between.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_HELPER_H
#define MP_BASE_HELPER_H

#include <stdbool.h>
#include <stddef.h>

/* Work that wants help; the caller has it until mp_helper_end. */
typedef struct mp_helped {
    void (*join)(void *context); /* returns when it finds no more to do */
    void *context;
    bool listed; /* helper.c's own, as is what follows */
    size_t wanted, inside;
    struct mp_helped *next;
} mp_helped;

/* How many helpers the process may have; none in a forked child. */
size_t mp_helper_count(void);

/* Lets up to `count` helpers call join(context), each once. Borrows: `work`, until mp_helper_end.
 * Threads: any. Blocks: no. */
void mp_helper_ask(mp_helped *work, size_t count);

/* No helper comes to `work` from now on, and those that came have left. Blocks: until then. */
void mp_helper_end(mp_helped *work);

#endif
