/* channel.h - which channel an element is of.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_CHANNEL_H
#define MP_KERNEL_CHANNEL_H

#include "kernel/core/channel_args.h"
#include "kernel/core/index.h"

K_FN int64_t k_channel(const k_channels *of, int64_t i) {
    if (of->wide) {
        return i / of->inner % of->channels;
    }
    const uint32_t row = k_divide((uint32_t)i, of->by_inner);
    return row - k_divide(row, of->by_channels) * (uint32_t)of->channels;
}

#endif
