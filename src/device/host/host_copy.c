/* host_copy.c - copies and fills, with CUDA's meaning for memory that is not pinned.
 *
 * Memory that no emulated device knows is pageable: as a source it is read while the copy is being
 * queued, as a target it is waited for. Device and pinned memory is touched when the stream gets
 * there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_work.h"

#include <string.h>

/* ---- whose memory ---- */

/* Looks an address up on one device. Returns whether that device knows it. */
static bool look_up(host_device *host, mp_addr addr, size_t size, host_range *range, bool *covers) {
    (void)pthread_mutex_lock(&host->memory_lock);
    const host_range *found = mp__host_range_find(&host->ranges, addr);
    if (found != NULL) {
        *range = *found;
        *covers = mp__host_range_covers(&host->ranges, addr, size);
    }
    (void)pthread_mutex_unlock(&host->memory_lock);
    return found != NULL;
}

static bool look_everywhere(host_device *host, mp_addr addr, size_t size, host_range *range,
                            bool *covers) {
    if (look_up(host, addr, size, range, covers)) {
        return true;
    }
    for (host_device *other = mp__host_each(NULL); other != NULL; other = mp__host_each(other)) {
        if (other != host && look_up(other, addr, size, range, covers)) {
            return true;
        }
    }
    return false;
}

/* ---- items ---- */

static bool run_copy(host_device *host, host_queue *queue, host_item *item) {
    (void)host;
    (void)queue;
    const void *source = item->bytes != NULL ? item->bytes : (const void *)item->copy.source;
    if ((mp_addr)source != item->copy.target) {
        memcpy((void *)item->copy.target, source, item->copy.size);
    }
    return true;
}

static bool copy_references(const host_item *item, host_reference_fn *fn, void *context) {
    return fn(context, item, (host_reference){item->copy.target, item->copy.size}) ||
           (item->bytes == NULL &&
            fn(context, item, (host_reference){item->copy.source, item->copy.size}));
}

static const char *copy_word(const host_item *item) {
    (void)item;
    return "a copy";
}

static bool is_on_device(host_device *host, mp_addr addr) {
    host_range range = {0};
    bool covers = false;
    return look_everywhere(host, addr, 1, &range, &covers) && range.kind != HOST_RANGE_PINNED;
}

static const char *copy_name(host_device *host, const host_item *item) {
    const bool from = item->bytes == NULL && is_on_device(host, item->copy.source);
    const bool to = is_on_device(host, item->copy.target);
    return mp__profile_copy_name(from, to);
}

static void describe_copy(host_device *host, const host_item *item, mp_profile_record *record) {
    record->kind = MP_PROFILE_COPY;
    record->name = copy_name(host, item);
    record->bytes = item->copy.size;
}

static const host_item_kind copy_kind = {
    .run = run_copy,
    .references = copy_references,
    .name = copy_word,
    .describe = describe_copy,
};

static void fill_now(mp_addr target, uint32_t value, size_t width, size_t count) {
    uint16_t *halves = (uint16_t *)target;
    uint32_t *words = (uint32_t *)target;
    switch (width) {
    case 1:
        memset((void *)target, (int)(value & 0xff), count);
        break;
    case 2:
        for (size_t i = 0; i < count; i++) {
            halves[i] = (uint16_t)value;
        }
        break;
    default:
        for (size_t i = 0; i < count; i++) {
            words[i] = value;
        }
    }
}

static bool run_fill(host_device *host, host_queue *queue, host_item *item) {
    (void)host;
    (void)queue;
    fill_now(item->fill.target, item->fill.value, item->fill.width, item->fill.count);
    return true;
}

static bool fill_references(const host_item *item, host_reference_fn *fn, void *context) {
    return fn(context, item,
              (host_reference){item->fill.target, item->fill.width * item->fill.count});
}

static const char *fill_word(const host_item *item) {
    (void)item;
    return "a fill";
}

static void describe_fill(host_device *host, const host_item *item, mp_profile_record *record) {
    (void)host;
    record->kind = MP_PROFILE_FILL;
    record->name = MP_PROFILE_FILL_NAME;
    record->bytes = item->fill.width * item->fill.count;
}

static const host_item_kind fill_kind = {
    .run = run_fill,
    .references = fill_references,
    .name = fill_word,
    .describe = describe_fill,
};

/* ---- queueing ---- */

typedef enum place { PLACE_DEVICE, PLACE_PAGEABLE } place;

static mp_status find_place(host_device *host, const char *what, mp_addr addr, size_t size,
                            place *out) {
    host_range range = {0};
    bool covers = false;
    if (addr == 0 || size > UINTPTR_MAX - addr) {
        return MP_FAIL(INVALID_ARGUMENT, "%s of %zu bytes at 0x%zx is not allocated memory", what,
                       size, (size_t)addr);
    }
    if (!look_everywhere(host, addr, size, &range, &covers)) {
        *out = PLACE_PAGEABLE;
        return MP_OK;
    }
    if (range.kind == HOST_RANGE_FREED) {
        mp__host_breach(host, "%s of %zu bytes at 0x%zx is freed memory", what, size, (size_t)addr);
        return MP_FAIL(INVALID_ARGUMENT, "%s of %zu bytes at 0x%zx is freed memory", what, size,
                       (size_t)addr);
    }
    if (!covers) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%s of %zu bytes at 0x%zx is larger than the allocation there (%zu bytes at "
                       "0x%zx)",
                       what, size, (size_t)addr, range.size, (size_t)range.begin);
    }
    *out = PLACE_DEVICE;
    return MP_OK;
}

static mp_status check_overlap(mp_addr target, mp_addr source, size_t size) {
    if (target != source && mp__host_overlap(target, size, source, size)) {
        return MP_FAIL(INVALID_ARGUMENT, "copy of %zu bytes from 0x%zx to 0x%zx, which overlap",
                       size, (size_t)source, (size_t)target);
    }
    return MP_OK;
}

static mp_status copy_now(host_device *host, host_item *item) {
    MP_TRY(mp__host_not_capturing(host, "a copy without a stream"));
    if (mp__host_adversarial(host)) {
        mp__host_check_running(host, &host->default_queue, item, UINT64_MAX);
    }
    if (mp__host_profiled(host)) {
        mp__host_profile_mark(item);
    }
    (void)mp__host_item_run(host, &host->default_queue, item, NULL);
    return MP_OK;
}

static mp_status copy_queued(host_device *host, host_queue *queue, host_item *item, place target,
                             place source) {
    if (queue->capture != NULL && (target == PLACE_PAGEABLE || source == PLACE_PAGEABLE)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "a copy of memory that is not pinned cannot be captured; pin it, or copy "
                       "before the capture");
    }
    if (source == PLACE_PAGEABLE && host->config.mode != MP_HOST_EAGER) {
        item->bytes = (const void *)item->copy.source; /* cloning takes the snapshot */
        item->bytes_size = item->copy.size;
    }
    MP_TRY(mp__host_enqueue(host, queue, item));
    if (target == PLACE_PAGEABLE) {
        mp__host_drain(host, queue);
    }
    return MP_OK;
}

mp_status mp__host_copy(mp_device *self, mp_stream *stream, mp_addr target, mp_addr source,
                        size_t size) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "copy"));
    if (size == 0) {
        return MP_OK;
    }
    place to = PLACE_DEVICE, from = PLACE_DEVICE;
    MP_TRY(find_place(host, "the target of a copy", target, size, &to));
    MP_TRY(find_place(host, "the source of a copy", source, size, &from));
    MP_TRY(check_overlap(target, source, size));
    host_item item = {.kind = &copy_kind,
                      .copy = {.target = target, .source = source, .size = size}};
    return stream == NULL ? copy_now(host, &item)
                          : copy_queued(host, stream->queue, &item, to, from);
}

mp_status mp__host_fill(mp_device *self, mp_stream *stream, mp_addr target, uint32_t value,
                        size_t width, size_t count) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "fill"));
    if (count == 0) {
        return MP_OK;
    }
    if ((width != 1 && width != 2 && width != 4) || target % width != 0 ||
        count > SIZE_MAX / width) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "fill of %zu elements of %zu bytes at 0x%zx: the width must be 1, 2 or 4 and "
            "divide the address",
            count, width, (size_t)target);
    }
    place where = PLACE_DEVICE;
    MP_TRY(find_place(host, "the target of a fill", target, width * count, &where));
    if (where == PLACE_PAGEABLE) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "fill at 0x%zx, which is neither device memory nor pinned memory",
                       (size_t)target);
    }
    host_item item = {.kind = &fill_kind,
                      .fill = {.target = target, .value = value, .width = width, .count = count}};
    return stream == NULL ? copy_now(host, &item) : mp__host_enqueue(host, stream->queue, &item);
}
