/* forbid.h - memory that nothing may touch for a while, where the address sanitizer looks on.
 *
 * Elsewhere these do nothing.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_FORBID_H
#define MP_BASE_FORBID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define MP_FORBIDS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MP_FORBIDS 1
#endif
#endif
#ifndef MP_FORBIDS
#define MP_FORBIDS 0
#endif

#if MP_FORBIDS
#include <sanitizer/asan_interface.h>
#endif

/* Whoever reads or writes these bytes of the host's memory, or the first of them that begin at a
 * multiple of 8, ends the process with a report. */
static inline void mp_forbid(uintptr_t addr, size_t size) {
#if MP_FORBIDS
    ASAN_POISON_MEMORY_REGION((void *)addr, size);
#else
    (void)addr, (void)size;
#endif
}

static inline void mp_permit(uintptr_t addr, size_t size) {
#if MP_FORBIDS
    ASAN_UNPOISON_MEMORY_REGION((void *)addr, size);
#else
    (void)addr, (void)size;
#endif
}

/* Of the byte at `addr`. */
static inline bool mp_is_forbidden(uintptr_t addr) {
#if MP_FORBIDS
    return __asan_address_is_poisoned((void *)addr) != 0;
#else
    (void)addr;
    return false;
#endif
}

#endif
