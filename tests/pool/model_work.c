/* model_work.c - work on blocks: numbers written by one stream and read back later.
 *
 * Reads are copies to pinned memory, so that they take place when the stream gets there. Blocks
 * without a stream are written and read by the host.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_state.h"

#include <string.h>

enum { EDGE = 64, WHOLE_MAX = 4096 };

static const size_t words_size = (MODEL_READS + MODEL_GRAPHS * MODEL_GRAPH_BLOCKS) * 4;

bool model_stream_open(model *m, int index) {
    const mp_device_ops *ops = m->device->ops;
    model_stream *stream = &m->streams[index];
    mp_status status;
    if (index == MODEL_DEFAULT_STREAM) {
        MODEL_RETRY(m, status, ops->stream_wrap(m->device, NULL, &stream->queue));
    } else {
        MODEL_RETRY(m, status, ops->stream_create(m->device, &stream->queue));
    }
    if (!model_ok(m, status, "stream_create")) {
        return false;
    }
    stream->native =
        index == MODEL_DEFAULT_STREAM ? NULL : ops->stream_native(m->device, stream->queue);
    return true;
}

bool model_stream_close(model *m, int index) {
    mp_status status;
    MODEL_RETRY(m, status, mp_pool_stream_gone(m->pools[0], m->streams[index].native));
    if (!model_ok(m, status, "stream_gone")) {
        return false;
    }
    m->device->ops->stream_destroy(m->device, m->streams[index].queue);
    m->streams[index] = (model_stream){0};
    for (size_t i = 0; i < m->live_count; i++) {
        model_block *block = m->live[i];
        block->stream = block->stream == index ? 0 : block->stream;
        block->uses &= (uint8_t) ~(1U << index);
    }
    return true;
}

bool model_work_open(model *m) {
    mp_status status;
    MODEL_RETRY(m, status, m->device->ops->alloc_pinned(m->device, words_size, &m->words));
    if (!model_ok(m, status, "alloc_pinned")) {
        return false;
    }
    memset((void *)m->words, 0, words_size);
    m->streams[0].native = MP_NO_STREAM;
    for (int i = 1; i < MODEL_STREAMS; i++) {
        if (!model_stream_open(m, i)) {
            return false;
        }
    }
    return true;
}

void model_work_close(model *m) {
    for (int i = 1; i < MODEL_STREAMS; i++) {
        if (m->streams[i].queue != NULL) {
            m->device->ops->stream_destroy(m->device, m->streams[i].queue);
        }
    }
    if (m->words != 0) {
        m->device->ops->free_pinned(m->device, m->words, words_size);
    }
}

/* ---- single words ---- */

static bool fill(model *m, int stream, mp_addr addr, size_t size, uint32_t tag) {
    mp_status status;
    MODEL_RETRY(m, status,
                m->device->ops->fill(m->device, m->streams[stream].queue, addr, tag, sizeof tag,
                                     size / sizeof tag));
    return model_ok(m, status, "fill");
}

static bool put(model *m, mp_addr addr, uint32_t tag) {
    mp_status status;
    MODEL_RETRY(m, status, m->device->ops->copy(m->device, NULL, addr, (mp_addr)&tag, sizeof tag));
    return model_ok(m, status, "copy to a block");
}

static bool get(model *m, const model_block *block, size_t offset) {
    uint32_t found = 0;
    mp_status status;
    MODEL_RETRY(
        m, status,
        m->device->ops->copy(m->device, NULL, (mp_addr)&found, block->addr + offset, sizeof found));
    if (!model_ok(m, status, "copy from a block")) {
        return false;
    }
    return found == block->tag ||
           model_fail(m, "the host's block 0x%zx of %zu bytes has %u at %zu instead of %u",
                      (size_t)block->addr, block->requested, found, offset, block->tag);
}

static bool read_later(model *m, const model_block *block, int stream, size_t offset) {
    if (m->read_count == MODEL_READS && !model_verify(m)) {
        return false;
    }
    mp_status status;
    MODEL_RETRY(m, status,
                m->device->ops->copy(m->device, m->streams[stream].queue,
                                     m->words + m->read_count * sizeof block->tag,
                                     block->addr + offset, sizeof block->tag));
    m->wanted[m->read_count++] = block->tag;
    return model_ok(m, status, "copy");
}

/* ---- blocks ---- */

static size_t last_word(const model_block *block) {
    return block->requested / 4 * 4 - 4;
}

/* All of a small block; both ends and a word between of a large one. */
bool model_write(model *m, model_block *block) {
    block->tag = ++m->tag;
    if (block->requested < 4) {
        return true;
    }
    block->middle = (uint32_t)(m->tag * UINT64_C(2654435761) % (block->requested / 4) * 4);
    const size_t last = last_word(block);
    if (block->stream == 0) {
        return put(m, block->addr, block->tag) && put(m, block->addr + block->middle, block->tag) &&
               put(m, block->addr + last, block->tag);
    }
    if (block->requested <= WHOLE_MAX) {
        return fill(m, block->stream, block->addr, last + 4, block->tag);
    }
    return fill(m, block->stream, block->addr, EDGE, block->tag) &&
           fill(m, block->stream, block->addr + block->middle, 4, block->tag) &&
           fill(m, block->stream, block->addr + last + 4 - EDGE, EDGE, block->tag);
}

bool model_read(model *m, const model_block *block, int stream) {
    if (block->requested < 4) {
        return true;
    }
    const size_t offsets[] = {0, block->middle, last_word(block)};
    for (int i = 0; i < 3; i++) {
        if (!(stream == 0 ? get(m, block, offsets[i]) : read_later(m, block, stream, offsets[i]))) {
            return false;
        }
    }
    return true;
}

/* ---- order ---- */

bool model_order(model *m, int before, int after) {
    const mp_device_ops *ops = m->device->ops;
    mp_event *event = NULL;
    mp_status status;
    MODEL_RETRY(m, status, ops->event_create(m->device, false, &event));
    if (!model_ok(m, status, "event_create")) {
        return false;
    }
    MODEL_RETRY(m, status, ops->event_record(m->device, event, m->streams[before].queue));
    if (status == MP_OK) {
        MODEL_RETRY(m, status, ops->event_wait(m->device, event, m->streams[after].queue));
    }
    ops->event_destroy(m->device, event);
    return model_ok(m, status, "an event's record and wait");
}

bool model_verify(model *m) {
    mp_status status;
    MODEL_RETRY(m, status, m->device->ops->synchronize(m->device));
    if (!model_ok(m, status, "synchronize")) {
        return false;
    }
    const uint32_t *found = (const uint32_t *)m->words;
    for (uint32_t i = 0; i < m->read_count; i++) {
        if (found[i] != m->wanted[i]) {
            return model_fail(m, "a stream has read %u where %u had been written for it", found[i],
                              m->wanted[i]);
        }
    }
    m->read_count = 0;
    return model_graphs_verify(m);
}
