/* forbid.h - memory that nobody may touch for a while. Only the address sanitizer sees to it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_FORBID_H
#define MP_BASE_FORBID_H

#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if MP_WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* From now on (`forbidden`) whoever reads or writes these bytes of the host's memory ends the
 * process with a report; or nobody does any more. `addr` + `size` is a multiple of 8. */
static inline void mp_forbid(uintptr_t addr, size_t size, bool forbidden) {
#if MP_WITH_ASAN
    if (forbidden) {
        __asan_poison_memory_region((void *)addr, size);
    } else {
        __asan_unpoison_memory_region((void *)addr, size);
    }
#else
    (void)addr, (void)size, (void)forbidden;
#endif
}

/* Of the byte at `addr`. */
static inline bool mp_is_forbidden(uintptr_t addr) {
#if MP_WITH_ASAN
    return __asan_address_is_poisoned((void *)addr) != 0;
#else
    (void)addr;
    return false;
#endif
}

#endif
