/* nvtx.h - ranges that profilers show on their timeline (NVIDIA Tools Extension).
 *
 * A profiler names a library in NVTX_INJECTION64_PATH, which is loaded at the first range. Without
 * one a range costs one branch; so it does where the header nvtx3/nvToolsExt.h was missing when
 * this was built.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_BASE_NVTX_H
#define MP_BASE_NVTX_H

#include <stdatomic.h>
#include <stdbool.h>

/* Whether ranges were compiled in. */
bool mp_nvtx_available(void);

/* Whether someone may listen: true until the first range has found out. */
extern atomic_bool mp__nvtx_on;
void mp__nvtx_push_slow(const char *text);
void mp__nvtx_pop_slow(void);

/* Begins a range of this thread, within the one begun before. Borrows: `text`, during the call. */
static inline void mp__nvtx_push(const char *text) {
    if (__builtin_expect(atomic_load_explicit(&mp__nvtx_on, memory_order_relaxed), 0)) {
        mp__nvtx_push_slow(text);
    }
}

/* Ends the range that this thread began last; one for each push. */
static inline void mp__nvtx_pop(void) {
    if (__builtin_expect(atomic_load_explicit(&mp__nvtx_on, memory_order_relaxed), 0)) {
        mp__nvtx_pop_slow();
    }
}

#endif
