/* thread_number.h - a number that is one thread's for good.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_THREAD_NUMBER_H
#define MP_BASE_THREAD_NUMBER_H

#include <stdint.h>

/* The calling thread's number, never 0. Unlike a pthread_t it is not used again when the thread has
 * ended. Threads: any. */
uint64_t mp_thread_number(void);

#endif
