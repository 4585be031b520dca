/* divider.h - what the plans of kernels divide by.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_LANES_DIVIDER_H
#define MP_TESTS_LANES_DIVIDER_H

#include "kernel/core/index_args.h"

/* Of powers of two, and of small numbers. */
inline k_divider divider(uint32_t by) {
    uint32_t shift = 0;
    while (UINT32_C(1) << shift < by) {
        shift++;
    }
    const uint64_t scaled = ((UINT64_C(1) << 32) * ((UINT64_C(1) << shift) - by)) / by + 1;
    return {(uint32_t)scaled, shift};
}

#endif
