/* thread_number.c - numbers threads in the order of their first call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/thread_number.h"

#include <stdatomic.h>

uint64_t mp_thread_number(void) {
    static _Atomic uint64_t count;
    static _Thread_local uint64_t number;
    if (number == 0) {
        number = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
    }
    return number;
}
