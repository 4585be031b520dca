/* host_item.c - one piece of queued work: copied, run, dropped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "device/host/host_work.h"

#include <stdlib.h>
#include <string.h>

host_item *mp__host_item_clone(const host_item *item) {
    const size_t head = MP_ALIGN_UP(sizeof *item, 16); /* arguments are aligned as malloc aligns */
    host_item *copy = item->bytes_size <= SIZE_MAX - head ? malloc(head + item->bytes_size) : NULL;
    if (copy == NULL) {
        return NULL;
    }
    *copy = *item;
    copy->next = NULL;
    if (item->bytes != NULL) {
        copy->bytes = memcpy((char *)copy + head, item->bytes, item->bytes_size);
    }
    host_object *object = item->kind->object != NULL ? item->kind->object(item) : NULL;
    if (object != NULL) {
        mp__host_object_keep(object);
    }
    return copy;
}

void mp__host_item_free(host_item *item) {
    host_object *object = item->kind->object != NULL ? item->kind->object(item) : NULL;
    if (object != NULL) {
        mp__host_object_drop(object);
    }
    free(item->done);
    free(item);
}

bool mp__host_item_ready(const host_item *item) {
    return item->kind->is_ready == NULL || item->kind->is_ready(item);
}

bool mp__host_item_run(host_device *host, host_queue *queue, host_item *item,
                       const host_item *replay) {
    if (!mp__host_profiled(host)) {
        return item->kind->run(host, queue, item);
    }
    const int64_t begin = mp_clock_ns();
    const bool ended = item->kind->run(host, queue, item);
    mp__host_profile_tell(host, queue, item, replay, begin);
    return ended;
}
