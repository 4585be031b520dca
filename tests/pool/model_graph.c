/* model_graph.c - captured graphs in the model: their memory must stay theirs while they live.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model_state.h"

static uint32_t *words_of(const model *m, const model_graph *graph) {
    return (uint32_t *)m->words + MODEL_READS + (graph - m->graphs) * MODEL_GRAPH_BLOCKS;
}

const model_graph *model_graph_in(const model *m, mp_addr addr, size_t size) {
    for (int i = 0; i < MODEL_GRAPHS; i++) {
        const model_graph *graph = &m->graphs[i];
        for (uint32_t j = 0; graph->graph != NULL && j < graph->count; j++) {
            if (addr < graph->ranges[j].addr + graph->ranges[j].size &&
                graph->ranges[j].addr < addr + size) {
                return graph;
            }
        }
    }
    return NULL;
}

/* ---- capturing ---- */

/* One block: allocated, written, read back, freed; all but the freeing is in the graph. */
static bool add_block(model *m, model_graph *graph, size_t size) {
    const model_stream *stream = &m->streams[graph->stream];
    const mp_device_ops *ops = m->device->ops;
    const size_t bytes = size < 4 ? 4 : size / 4 * 4;
    mp_addr addr = 0;
    mp_status status;
    MODEL_RETRY(m, status, mp_pool_alloc(m->pools[0], bytes, stream->native, &addr));
    if (status == MP_OUT_OF_MEMORY) {
        m->failures++;
        m->result->refused++;
        return true;
    }
    mp_block_info info = {0};
    if (!model_ok(m, status, "alloc in a capture") ||
        !model_ok(m, mp_pool_find(m->pools[0], addr, &info), "find in a capture")) {
        return false;
    }
    const size_t next = model_live_after(m, addr);
    if (next < m->live_count && m->live[next]->addr < addr + info.size) {
        return model_fail(m, "0x%zx was allocated by a capture while it is allocated",
                          (size_t)addr);
    }
    const model_graph *other = model_graph_in(m, addr, info.size);
    if (other != NULL && other->capture != graph->capture) {
        return model_fail(m, "0x%zx was allocated by a capture while another graph has it",
                          (size_t)addr);
    }
    m->allocs++;
    m->client_allocs[0]++;
    const uint64_t in_use = m->in_use + model_chunk_size(m, info.size);
    m->in_use_max = in_use > m->in_use_max ? in_use : m->in_use_max;
    m->alloc_size_max = bytes > m->alloc_size_max ? bytes : m->alloc_size_max;
    const uint32_t tag = ++m->tag;
    MODEL_RETRY(m, status, ops->fill(m->device, stream->queue, addr, tag, 4, bytes / 4));
    if (status == MP_OK) {
        MODEL_RETRY(m, status,
                    ops->copy(m->device, stream->queue,
                              (mp_addr)(words_of(m, graph) + graph->count), addr + bytes - 4, 4));
    }
    graph->tags[graph->count] = tag;
    graph->ranges[graph->count++] = (model_range){addr, info.size};
    m->frees++;
    return model_ok(m, status, "captured work") &&
           model_ok(m, mp_pool_free(m->pools[1], addr), "free in a capture");
}

/* The graph of the same stream, if any: they never run at the same time, so may share. */
static mp_capture *capture_to_share(const model *m, int stream) {
    for (int i = 0; i < MODEL_GRAPHS; i++) {
        if (m->graphs[i].graph != NULL && m->graphs[i].stream == stream) {
            return m->graphs[i].capture;
        }
    }
    return NULL;
}

bool model_capture(model *m, const model_op *op) {
    model_graph *graph = &m->graphs[op->which % MODEL_GRAPHS];
    const int stream = 1 + op->stream % (MODEL_STREAMS - 2); /* the default one cannot be */
    if (graph->graph != NULL) {
        return true;
    }
    const mp_device_ops *ops = m->device->ops;
    *graph = (model_graph){.stream = (uint8_t)stream};
    if (op->other % 2 == 0) {
        graph->capture = capture_to_share(m, stream);
    }
    mp_status status;
    MODEL_RETRY(m, status,
                mp_pool_capture_begin(m->pools[0], m->streams[stream].native, &graph->capture));
    if (!model_ok(m, status, "pool_capture_begin")) {
        return false;
    }
    MODEL_RETRY(m, status, ops->capture_begin(m->device, m->streams[stream].queue));
    if (!model_ok(m, status, "capture_begin")) {
        return false;
    }
    for (uint32_t i = 0; i < MODEL_GRAPH_BLOCKS; i++) {
        if (!add_block(m, graph, (op->size + i * 1000) % m->plan->config->size_max)) {
            return false;
        }
    }
    MODEL_RETRY(m, status, ops->capture_end(m->device, m->streams[stream].queue, &graph->graph));
    if (!model_ok(m, status, "capture_end")) {
        return false;
    }
    MODEL_RETRY(m, status, mp_pool_capture_end(m->pools[0], m->streams[stream].native));
    return model_ok(m, status, "pool_capture_end");
}

/* ---- running ---- */

bool model_replay(model *m, const model_op *op) {
    model_graph *graph = &m->graphs[op->which % MODEL_GRAPHS];
    if (graph->graph == NULL) {
        return true;
    }
    mp_status status;
    MODEL_RETRY(
        m, status,
        m->device->ops->graph_launch(m->device, graph->graph, m->streams[graph->stream].queue));
    graph->launched = true;
    return model_ok(m, status, "graph_launch");
}

bool model_graphs_verify(model *m) {
    for (int i = 0; i < MODEL_GRAPHS; i++) {
        model_graph *graph = &m->graphs[i];
        uint32_t *words = words_of(m, graph);
        for (uint32_t j = 0; graph->launched && j < graph->count; j++) {
            if (words[j] != graph->tags[j]) {
                return model_fail(m, "a graph has read %u where it had written %u", words[j],
                                  graph->tags[j]);
            }
            words[j] = 0;
        }
        graph->launched = false;
    }
    return true;
}

bool model_release(model *m, model_graph *graph) {
    if (graph->graph == NULL) {
        return true;
    }
    if (!model_verify(m)) {
        return false;
    }
    m->device->ops->graph_destroy(m->device, graph->graph);
    graph->graph = NULL;
    for (int i = 0; i < MODEL_GRAPHS; i++) {
        if (m->graphs[i].graph != NULL && m->graphs[i].capture == graph->capture) {
            return true; /* somebody shares it */
        }
    }
    mp_pool_capture_release(m->pools[0], graph->capture);
    return true;
}

bool model_release_on(model *m, int stream) {
    for (int i = 0; i < MODEL_GRAPHS; i++) {
        if (m->graphs[i].stream == stream && !model_release(m, &m->graphs[i])) {
            return false;
        }
    }
    return true;
}
