/* later.h - work that nobody waits for, such as compiling while something slower is used.
 *
 * A few threads, started when there is work and ended when there was none for a moment. The process
 * may end meanwhile: what runs is waited for, and nothing else begins.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_LATER_H
#define MP_BASE_LATER_H

#include <stdbool.h>

typedef struct mp_later {
    void (*run)(struct mp_later *self);
    const void *owner; /* whose work it is */
    struct mp_later *next;
    enum { MP_LATER_IDLE, MP_LATER_QUEUED, MP_LATER_RUNS } state;
} mp_later;

/* Has it run, once. Borrows: `work`, until it has run or was dropped. False, and nothing is
 * queued, where it is queued or runs already, there is no thread for it, or the process ends.
 * Threads: any. */
bool mp_later_add(mp_later *work);

/* Returns when it is neither queued nor runs. Threads: any but its own. Blocks: until then. */
void mp_later_wait(mp_later *work);
/* The same, but it does not begin any more. */
void mp_later_drop(mp_later *work);

/* Whether there is work of `owner`; cheap where nobody has any. Threads: any. */
bool mp_later_has(const void *owner);
/* Returns when there is none. Blocks: until then. */
void mp_later_settle(const void *owner);

/* When a process ends, what there is is taken down in the order opposite to that in which it came,
 * and a library that work uses may bring more whenever it is called. Two calls see to it that the
 * end waits for the work before: on the main thread, at any time before there is work, the first
 * one does so for certain; it does nothing on another thread. The second one is for processes whose
 * main thread never came by: of what was there when it is called, nothing is taken down before. */
void mp_later_guard_end(void);
void mp_later_loaded(void);

#endif
