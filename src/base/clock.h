/* clock.h - the clock that durations and deadlines are measured with.
 *
 * It never goes back: the system's own clock is set while a process runs, on virtual machines often
 * by milliseconds, and a duration between two readings of that may be less than nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_CLOCK_H
#define MP_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

/* Nanoseconds, and milliseconds, since some moment of the past. Threads: any. Blocks: no. */
int64_t mp_clock_ns(void);
int64_t mp_clock_ms(void);

/* Initializes a condition for mp_clock_wait, by this clock. */
void mp_clock_cond_init(pthread_cond_t *cond);
/* Waits until the condition is signalled, `ns` have passed, or, as conditions do, for no reason.
 * Blocks: yes; `lock` is held before and after. */
void mp_clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t ns);

#endif
