/* host_item.c - one piece of queued work: copied, run, dropped.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_internal.h"
#include "device/profile.h"

#include <stdlib.h>
#include <string.h>

/* ---- what an item keeps ---- */

static host_object *object_of(const host_item *item) {
    switch (item->kind) {
    case HOST_RECORD:
    case HOST_WAIT:
        return &item->mark.event->object;
    case HOST_RUN_MATH:
        return &item->math.math->object;
    case HOST_RUN_GRAPH:
        return &item->graph.graph->object;
    case HOST_SIGNAL:
    case HOST_AWAIT:
        return &item->count.semaphore->object;
    case HOST_LAUNCH:
    case HOST_COPY:
    case HOST_FILL:
    case HOST_CALL:
    case HOST_ALLOC:
    case HOST_FREE:
        break;
    }
    return NULL;
}

host_item *mp__host_item_clone(const host_item *item) {
    const size_t head = (sizeof *item + 15) / 16 * 16; /* arguments are aligned as malloc aligns */
    host_item *copy = item->bytes_size <= SIZE_MAX - head ? malloc(head + item->bytes_size) : NULL;
    if (copy == NULL) {
        return NULL;
    }
    *copy = *item;
    copy->next = NULL;
    if (item->bytes != NULL) {
        copy->bytes = memcpy((char *)copy + head, item->bytes, item->bytes_size);
    }
    host_object *object = object_of(item);
    if (object != NULL) {
        mp__host_object_keep(object);
    }
    return copy;
}

void mp__host_item_free(host_item *item) {
    host_object *object = object_of(item);
    if (object != NULL) {
        mp__host_object_drop(object);
    }
    if (item->kind == HOST_RUN_GRAPH) {
        free(item->graph.done);
    }
    free(item);
}

bool mp__host_item_ready(const host_item *item) {
    if (item->kind == HOST_AWAIT) {
        return mp__host_semaphore_reached(item);
    }
    return item->kind != HOST_WAIT || item->mark.event->reached >= item->mark.generation;
}

/* ---- running ---- */

static void run_launch(host_device *host, const host_queue *queue, const host_item *item) {
    if (!mp__host_adversarial(host)) {
        mp__host_run_blocks(item->launch.image, item->launch.grid, item->bytes);
        return;
    }
    (void)pthread_mutex_lock(&host->lock);
    const uint64_t random = (uint64_t)mp__host_random(host, UINT32_MAX) << 32;
    (void)pthread_mutex_unlock(&host->lock);
    const char *fault =
        mp__host_run_shuffled(item->launch.image, item->launch.grid, item->bytes, random);
    if (fault != NULL) {
        mp__host_breach(host, "kernel %s on stream %u: %s", item->launch.image->name, queue->number,
                        fault);
    }
}

static void run_copy(const host_item *item) {
    const void *source = item->bytes != NULL ? item->bytes : (const void *)item->copy.source;
    if ((mp_addr)source != item->copy.target) {
        memcpy((void *)item->copy.target, source, item->copy.size);
    }
}

static void run_math(host_device *host, const host_queue *queue, const host_item *item) {
    if (mp__host_math_now(item->math.math, item->math.operands, item->math.workspace) != MP_OK) {
        mp__host_breach(host, "library math on stream %u failed: %s", queue->number,
                        mp_error_message());
    }
}

static bool run(host_device *host, host_queue *queue, host_item *item) {
    switch (item->kind) {
    case HOST_LAUNCH:
        run_launch(host, queue, item);
        break;
    case HOST_COPY:
        run_copy(item);
        break;
    case HOST_FILL:
        mp__host_fill_now(item->fill.target, item->fill.value, item->fill.width, item->fill.count);
        break;
    case HOST_CALL:
        item->call.fn(item->call.context);
        break;
    case HOST_RECORD:
        mp__host_event_reach(host, item->mark.event, item->mark.generation);
        break;
    case HOST_WAIT:
    case HOST_AWAIT:
        break;
    case HOST_SIGNAL:
        mp__host_semaphore_count(host, item);
        break;
    case HOST_ALLOC:
        mp__host_memory_arrive(host, item->memory.addr);
        break;
    case HOST_FREE:
        mp__host_memory_leave(host, item->memory.addr, item->memory.size);
        break;
    case HOST_RUN_MATH:
        run_math(host, queue, item);
        break;
    case HOST_RUN_GRAPH:
        return mp__host_graph_run(host, queue, item);
    }
    return true;
}

bool mp__host_item_run(host_device *host, host_queue *queue, host_item *item,
                       const host_item *replay) {
    if (!mp__host_profiled(host)) {
        return run(host, queue, item);
    }
    const int64_t begin = mp_profile_now();
    const bool ended = run(host, queue, item);
    mp__host_profile_tell(host, queue, item, replay, begin);
    return ended;
}
