/* stream_order.c - one stream after another, by an event that lives no longer than the call.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/stream_order.h"

mp_status mp__streams_order(mp_device *device, mp_stream *before, mp_stream *after) {
    const mp_device_ops *ops = device->ops;
    mp_event *event = NULL;
    MP_TRY(ops->event_create(device, false, &event));
    mp_status status = ops->event_record(device, event, before);
    if (status == MP_OK) {
        status = after != NULL ? ops->event_wait(device, event, after)
                               : ops->event_synchronize(device, event);
    }
    ops->event_destroy(device, event);
    return status;
}
