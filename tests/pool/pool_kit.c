/* pool_kit.c - what tests of the pool share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool_kit.h"

#include "base/log.h"

#include <pthread.h>

/* ---- opening ---- */

void kit_open(kit *k, mp_device *device, const char *const *options) {
    *k = (kit){.device = device};
    CHECK_OK(device->ops->alloc_pinned(device, KIT_READS_MAX * sizeof(uint32_t), &k->reads));
    if (options != NULL) {
        CHECK_OK(mp__pool_open_on(device, MP_MEMORY_DEVICE, "kit", options, &k->pool));
    }
}

void kit_close(kit *k) {
    kit_verify(k);
    if (k->pool != NULL) {
        if (!k->unchecked) {
            kit_check(k);
        }
        mp_pool_close(k->pool);
    }
    k->device->ops->free_pinned(k->device, k->reads, KIT_READS_MAX * sizeof(uint32_t));
    *k = (kit){0};
}

kit_stream kit_stream_open(kit *k) {
    kit_stream stream = {0};
    CHECK_OK(k->device->ops->stream_create(k->device, &stream.queue));
    stream.native = k->device->ops->stream_native(k->device, stream.queue);
    return stream;
}

void kit_stream_close(kit *k, kit_stream *stream) {
    kit_verify(k);
    if (k->pool != NULL) {
        CHECK_OK(mp_pool_stream_gone(k->pool, stream->native));
    }
    k->device->ops->stream_destroy(k->device, stream->queue);
    *stream = (kit_stream){0};
}

void kit_pair_open(kit_pair *p, mp_device *device, const char *const *options) {
    kit_open(&p->k, device, options);
    p->a = kit_stream_open(&p->k);
    p->b = kit_stream_open(&p->k);
}

void kit_pair_close(kit_pair *p) {
    kit_stream_close(&p->k, &p->a);
    kit_stream_close(&p->k, &p->b);
    CHECK_EQ_INT(kit_stats(&p->k).in_use, 0);
    kit_close(&p->k);
}

void kit_trio_open(kit_trio *t, mp_device *device, const char *const *options) {
    kit_open(&t->k, device, options);
    t->a = kit_stream_open(&t->k);
    t->b = kit_stream_open(&t->k);
    t->c = kit_stream_open(&t->k);
}

void kit_trio_close(kit_trio *t) {
    kit_stream_close(&t->k, &t->a);
    kit_stream_close(&t->k, &t->b);
    kit_stream_close(&t->k, &t->c);
    CHECK_EQ_INT(kit_stats(&t->k).in_use, 0);
    CHECK_OK(mp_pool_shrink(t->k.pool, NULL));
    CHECK_EQ_INT(kit_stats(&t->k).total, 0);
    kit_close(&t->k);
}

/* ---- blocks ---- */

static void *native_of(const kit_stream *stream) {
    return stream != NULL ? stream->native : MP_NO_STREAM;
}

mp_addr kit_alloc(kit *k, size_t size, const kit_stream *stream) {
    mp_addr addr = 0;
    CHECK_OK(mp_pool_alloc(k->pool, size, native_of(stream), &addr));
    CHECK(addr != 0);
    CHECK_EQ_INT(addr % MP_ALIGNMENT, 0);
    mp_block_info info = {0};
    CHECK_OK(mp_pool_find(k->pool, addr, &info));
    CHECK_EQ_INT(info.addr, addr);
    CHECK_EQ_INT(info.requested, size == 0 ? 1 : size);
    CHECK(info.size >= info.requested);
    CHECK_STR_HAS(info.client, "kit");
    return addr;
}

void kit_free(kit *k, mp_addr addr) {
    CHECK_OK(mp_pool_free(k->pool, addr));
}

/* ---- work ---- */

void kit_fill(kit *k, const kit_stream *stream, mp_addr addr, size_t size, uint32_t tag) {
    CHECK_OK(
        k->device->ops->fill(k->device, stream->queue, addr, tag, sizeof tag, size / sizeof tag));
}

void kit_read(kit *k, const kit_stream *stream, mp_addr addr, uint32_t tag) {
    if (k->read_count == KIT_READS_MAX) {
        kit_verify(k);
    }
    k->wanted[k->read_count] = tag;
    CHECK_OK(k->device->ops->copy(k->device, stream->queue, k->reads + k->read_count * sizeof tag,
                                  addr, sizeof tag));
    k->read_count++;
}

void kit_verify(kit *k) {
    CHECK_OK(k->device->ops->synchronize(k->device));
    const uint32_t *found = (const uint32_t *)k->reads;
    for (size_t i = 0; i < k->read_count; i++) {
        CHECK_EQ_INT(found[i], k->wanted[i]);
    }
    k->read_count = 0;
}

void kit_order(kit *k, const kit_stream *before, const kit_stream *after) {
    const mp_device_ops *ops = k->device->ops;
    mp_event *event = NULL;
    CHECK_OK(ops->event_create(k->device, false, &event));
    CHECK_OK(ops->event_record(k->device, event, before->queue));
    CHECK_OK(ops->event_wait(k->device, event, after->queue));
    ops->event_destroy(k->device, event);
}

/* ---- looking ---- */

mp_pool_stats kit_stats(kit *k) {
    mp_pool_stats stats = {0};
    CHECK_OK(mp_pool_get_stats(k->pool, &stats, sizeof stats));
    return stats;
}

mp_layout kit_layout(kit *k) {
    mp_layout layout = {0};
    char why[256];
    CHECK_OK(mp__pool_check(k->pool));
    CHECK_OK(mp__pool_layout(k->pool, &layout));
    if (!layout_is_sound(&layout, why, sizeof why)) {
        test_fail(__FILE__, __LINE__, "%s", why);
    }
    return layout;
}

void kit_check(kit *k) {
    mp_layout layout = kit_layout(k);
    mp__layout_free(&layout);
}

size_t kit_region_size(kit *k, mp_addr addr) {
    mp_layout layout = kit_layout(k);
    const mp_layout_region *region = layout_region_around(&layout, addr);
    CHECK(region != NULL);
    const size_t size = region->size;
    mp__layout_free(&layout);
    return size;
}

size_t kit_block_size(kit *k, mp_addr addr) {
    mp_block_info info = {0};
    CHECK_OK(mp_pool_find(k->pool, addr, &info));
    return info.size;
}

/* ---- the log ---- */

static struct {
    pthread_mutex_t lock;
    char text[16384];
    size_t size;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_line(void *context, mp_log_level level, const char *file, int line,
                      const char *text) {
    (void)context, (void)level, (void)file, (void)line;
    (void)pthread_mutex_lock(&kept.lock);
    const size_t room = sizeof kept.text - 1 - kept.size, length = strnlen(text, room);
    memcpy(kept.text + kept.size, text, length);
    kept.size += length;
    kept.text[kept.size] = 0;
    (void)pthread_mutex_unlock(&kept.lock);
}

void kit_log_keep(void) {
    kept.size = 0;
    kept.text[0] = 0;
    mp_log_set_sink(keep_line, NULL);
}

bool kit_log_has(const char *part) {
    (void)pthread_mutex_lock(&kept.lock);
    const bool has = strstr(kept.text, part) != NULL;
    kept.size = 0;
    kept.text[0] = 0;
    (void)pthread_mutex_unlock(&kept.lock);
    return has;
}

void kit_log_end(void) {
    mp_log_set_sink(NULL, NULL);
}
