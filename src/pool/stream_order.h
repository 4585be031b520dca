/* stream_order.h - one stream after another, by an event.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_STREAM_ORDER_H
#define MP_POOL_STREAM_ORDER_H

#include "device/device.h"

/* Work queued on `after` from now on comes after what is queued on `before`; within a capture this
 * is an edge of the graph. `after` NULL: returns once that work has ended.
 * Fails: OUT_OF_MEMORY, DEVICE. */
mp_status mp__streams_order(mp_device *device, mp_stream *before, mp_stream *after);

#endif
