/* clock.c - readings of the monotonic clock, and conditions that wait by it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

enum { NS_PER_S = 1000000000, NS_PER_MS = 1000000 };

int64_t mp_clock_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t mp_clock_ms(void) {
    return mp_clock_ns() / NS_PER_MS;
}

void mp_clock_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

void mp_clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t ns) {
    const int64_t end = mp_clock_ns() + ns;
    const struct timespec until = {.tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S};
    (void)pthread_cond_timedwait(cond, lock, &until);
}
