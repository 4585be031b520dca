/* channel_steps.h - what operators that treat each channel in its own way share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CHANNEL_STEPS_H
#define MP_OP_CHANNEL_STEPS_H

#include "kernel/core/channel_args.h"
#include "op/core/channels.h"

/* How a kernel finds the channel of an element of a stored tensor, which is not empty. */
static inline k_channels mp_channels_of(const mp_planner *p, const mp_shape *first) {
    const bool wide = mp_shape_count(first) > INT32_MAX;
    k_channels of = {
        .channels = first->rank > 1 ? first->dim[1] : 1,
        .inner = mp_channel_stride(p, first),
        .wide = wide,
    };
    if (!wide) {
        of.by_inner = mp_divider((uint32_t)of.inner);
        of.by_channels = mp_divider((uint32_t)of.channels);
    }
    return of;
}

#endif
