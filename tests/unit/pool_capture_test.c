/* pool_capture_test.c - memory of captured graphs: set apart while the graph lives, so that each
 * replay finds it as the capture left it, and everybody else's memory is left alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

enum { BLOCK = 32 << 10, SLOTS = 2, USED = 4 };

typedef struct scene {
    kit k;
    kit_stream stream, other;
    mp_addr results; /* owned; pinned, where graphs write to */
} scene;

static void scene_open(scene *s, mp_device *device) {
    kit_open(&s->k, device, KIT_OPTIONS("arena.max_dead_bytes_per_chunk=0"));
    s->stream = kit_stream_open(&s->k);
    s->other = kit_stream_open(&s->k);
    CHECK_OK(device->ops->alloc_pinned(device, KIT_KIB(4), &s->results));
}

static void scene_close(scene *s) {
    kit_stream_close(&s->k, &s->stream);
    kit_stream_close(&s->k, &s->other);
    s->k.device->ops->free_pinned(s->k.device, s->results, KIT_KIB(4));
    CHECK_EQ_INT(kit_stats(&s->k).in_use, 0);
    CHECK_OK(mp_pool_shrink(s->k.pool, NULL));
    CHECK_EQ_INT(kit_stats(&s->k).total, 0);
    kit_close(&s->k);
}

/* A graph that was captured, the memory set apart for it, and which of that it uses. */
typedef struct recording {
    mp_capture *capture;
    mp_graph_exec *graph;
    mp_addr used[USED]; /* 0: none */
    size_t size;
    uint32_t tag; /* what a replay must find; the next number too */
} recording;

static void begin(scene *s, mp_capture **capture) {
    CHECK_OK(mp_pool_capture_begin(s->k.pool, s->stream.native, capture));
    CHECK(*capture != NULL);
    CHECK_OK(s->k.device->ops->capture_begin(s->k.device, s->stream.queue));
}

static mp_graph_exec *end(scene *s) {
    mp_graph_exec *graph = NULL;
    CHECK_OK(s->k.device->ops->capture_end(s->k.device, s->stream.queue, &graph));
    CHECK_OK(mp_pool_capture_end(s->k.pool, s->stream.native));
    return graph;
}

static void copy(scene *s, const kit_stream *stream, mp_addr target, mp_addr source, size_t size) {
    CHECK_OK(s->k.device->ops->copy(s->k.device, stream->queue, target, source, size));
}

/* Work with three blocks, of which the third may lie where the first was. results[0] becomes `tag`,
 * results[1] `tag` + 1. */
static void captured_work(scene *s, recording *r) {
    const kit_stream *stream = &s->stream;
    mp_addr *used = r->used;
    used[0] = kit_alloc(&s->k, r->size, stream);
    kit_fill(&s->k, stream, used[0], r->size, r->tag);
    used[1] = kit_alloc(&s->k, r->size, stream);
    copy(s, stream, used[1], used[0], r->size);
    kit_free(&s->k, used[0]);
    used[2] = kit_alloc(&s->k, r->size, stream);
    kit_fill(&s->k, stream, used[2], r->size, r->tag + 1);
    copy(s, stream, s->results, used[1] + r->size - sizeof r->tag, sizeof r->tag);
    copy(s, stream, s->results + sizeof r->tag, used[2], sizeof r->tag);
    kit_free(&s->k, used[1]);
    kit_free(&s->k, used[2]);
}

/* Captures the work; `capture` is that of a graph to share memory with, or NULL. */
static recording record(scene *s, size_t size, uint32_t tag, mp_capture *capture) {
    recording r = {.capture = capture, .size = size, .tag = tag};
    begin(s, &r.capture);
    captured_work(s, &r);
    r.graph = end(s);
    return r;
}

static void replay(scene *s, const recording *r) {
    uint32_t *results = (uint32_t *)s->results;
    kit_verify(&s->k);
    memset(results, 0, SLOTS * sizeof *results);
    CHECK_OK(s->k.device->ops->graph_launch(s->k.device, r->graph, s->stream.queue));
    CHECK_OK(s->k.device->ops->stream_synchronize(s->k.device, s->stream.queue));
    CHECK_EQ_INT(results[0], r->tag);
    CHECK_EQ_INT(results[1], r->tag + 1);
}

static bool overlap(mp_addr a, size_t a_size, mp_addr b, size_t b_size) {
    return a < b + b_size && b < a + a_size;
}

/* Allocates many blocks, none of which may lie in the graph's memory, and has them in use during
 * replays. */
static void replay_among_others(scene *s, const recording *r) {
    enum { OTHERS = 24 };
    mp_addr others[OTHERS];
    const kit_stream *streams[] = {&s->stream, &s->other};
    for (uint32_t i = 0; i < OTHERS; i++) {
        others[i] = kit_alloc(&s->k, BLOCK, streams[i % 2]);
        for (size_t u = 0; u < USED; u++) {
            CHECK(!overlap(others[i], BLOCK, r->used[u], r->size));
        }
        kit_fill(&s->k, streams[i % 2], others[i], BLOCK, 500 + i);
    }
    replay(s, r);
    replay(s, r);
    for (uint32_t i = 0; i < OTHERS; i++) {
        kit_read(&s->k, streams[i % 2], others[i], 500 + i);
        kit_read(&s->k, streams[i % 2], others[i] + BLOCK - 4, 500 + i);
        kit_free(&s->k, others[i]);
    }
    kit_verify(&s->k);
}

/* The graph goes, and its memory with it. */
static void discard(scene *s, const recording *r) {
    s->k.device->ops->graph_destroy(s->k.device, r->graph);
    mp_pool_capture_release(s->k.pool, r->capture);
}

DEVICE_TEST(pool_capture_sets_memory_apart) {
    scene s;
    scene_open(&s, device);
    kit_free(&s.k, kit_alloc(&s.k, BLOCK, &s.stream)); /* something free lies ready */
    const recording r = record(&s, BLOCK, 70, NULL);
    replay_among_others(&s, &r);
    CHECK_OK(mp_pool_shrink(s.k.pool, NULL)); /* must leave the graph its memory */
    replay(&s, &r);
    kit_check(&s.k);
    discard(&s, &r);
    scene_close(&s);
}

/* Blocks larger than what the pool has: it must go to the device in the middle of the capture. */
DEVICE_TEST(pool_capture_is_not_disturbed_by_growth) {
    scene s;
    scene_open(&s, device);
    const recording r = record(&s, KIT_MIB(3), 10, NULL);
    replay_among_others(&s, &r);
    discard(&s, &r);
    scene_close(&s);
}

/* Everything else that may be asked of the pool while one of its streams is captured. */
DEVICE_TEST(pool_capture_is_not_disturbed_by_other_calls) {
    scene s;
    scene_open(&s, device);
    const mp_addr before = kit_alloc(&s.k, BLOCK, &s.stream);
    const mp_addr shared = kit_alloc(&s.k, BLOCK, &s.other);
    recording r = {.size = BLOCK, .tag = 30};
    begin(&s, &r.capture);
    const mp_addr beside = kit_alloc(&s.k, BLOCK, &s.other);
    kit_fill(&s.k, &s.other, beside, BLOCK, 3);
    const mp_addr large = kit_alloc(&s.k, KIT_MIB(3), &s.other); /* a region of its own */
    kit_fill(&s.k, &s.other, large, KIT_MIB(3), 4);
    kit_free(&s.k, large); /* and still being filled when the pool shrinks */
    captured_work(&s, &r);
    kit_free(&s.k, before); /* allocated on the captured stream, ahead of the capture */
    CHECK_OK(mp_pool_record_use(s.k.pool, shared, s.stream.native));
    kit_free(&s.k, shared);
    CHECK_OK(mp_pool_shrink(s.k.pool, NULL));
    kit_check(&s.k);
    r.graph = end(&s);
    replay_among_others(&s, &r);
    kit_read(&s.k, &s.other, beside, 3);
    kit_verify(&s.k);
    kit_free(&s.k, beside);
    discard(&s, &r);
    scene_close(&s);
}

/* Graphs that never run at the same time share what was set apart. */
DEVICE_TEST(pool_capture_shares_memory_between_graphs) {
    scene s;
    scene_open(&s, device);
    const recording first = record(&s, BLOCK, 40, NULL);
    const uint64_t total = kit_stats(&s.k).total;
    const recording second = record(&s, BLOCK, 50, first.capture);
    CHECK(second.capture == first.capture);
    CHECK_EQ_INT(kit_stats(&s.k).total, total);
    for (int i = 0; i < 3; i++) {
        replay(&s, &first);
        replay(&s, &second);
    }
    device->ops->graph_destroy(device, first.graph); /* the other one keeps the memory */
    replay(&s, &second);
    discard(&s, &second);
    scene_close(&s);
}

/* Two captures of their own never share. */
DEVICE_TEST(pool_capture_keeps_graphs_apart) {
    scene s;
    scene_open(&s, device);
    const recording first = record(&s, BLOCK, 60, NULL), second = record(&s, BLOCK, 70, NULL);
    for (int i = 0; i < 9; i++) {
        CHECK(!overlap(first.used[i / 3], BLOCK, second.used[i % 3], BLOCK));
    }
    discard(&s, &first);
    replay_among_others(&s, &second);
    discard(&s, &second);
    scene_close(&s);
}

/* A block of the graph that outlives the capture: an output that is read after each replay. */
DEVICE_TEST(pool_capture_keeps_blocks_that_stay_lent) {
    scene s;
    scene_open(&s, device);
    mp_capture *capture = NULL;
    begin(&s, &capture);
    const mp_addr output = kit_alloc(&s.k, BLOCK, &s.stream);
    kit_fill(&s.k, &s.stream, output, BLOCK, 99);
    mp_graph_exec *graph = end(&s);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(device->ops->graph_launch(device, graph, s.stream.queue));
        kit_read(&s.k, &s.stream, output, 99);
        kit_fill(&s.k, &s.stream, output, BLOCK, 1);
    }
    kit_verify(&s.k);
    device->ops->graph_destroy(device, graph);
    mp_pool_capture_release(s.k.pool, capture); /* before its last block is freed */
    kit_fill(&s.k, &s.stream, output, BLOCK, 5);
    kit_read(&s.k, &s.stream, output, 5);
    kit_verify(&s.k);
    kit_free(&s.k, output);
    scene_close(&s);
}

/* A captured stream forks to another and joins it again: both get memory of the capture. */
DEVICE_TEST(pool_capture_spans_streams) {
    scene s;
    scene_open(&s, device);
    recording r = {.size = BLOCK, .tag = 80};
    begin(&s, &r.capture);
    CHECK_OK(mp_pool_capture_begin(s.k.pool, s.other.native, &r.capture));
    kit_order(&s.k, &s.stream, &s.other);
    for (uint32_t i = 0; i < USED; i++) {
        const kit_stream *stream = i % 2 == 0 ? &s.stream : &s.other;
        r.used[i] = kit_alloc(&s.k, BLOCK, stream);
        kit_fill(&s.k, stream, r.used[i], BLOCK, 80 + i % 2);
        copy(&s, stream, s.results + (mp_addr)(i % 2) * 4, r.used[i] + BLOCK - 4, 4);
        kit_free(&s.k, r.used[i]);
    }
    kit_order(&s.k, &s.other, &s.stream);
    CHECK_OK(mp_pool_capture_end(s.k.pool, s.other.native));
    r.graph = end(&s);
    replay_among_others(&s, &r);
    replay(&s, &r);
    discard(&s, &r);
    scene_close(&s);
}

DEVICE_TEST(pool_capture_refuses_what_makes_no_sense) {
    scene s;
    scene_open(&s, device);
    mp_capture *capture = NULL, *second = NULL;
    CHECK_FAILS(mp_pool_capture_begin(s.k.pool, s.stream.native, NULL), INVALID_ARGUMENT,
                "capture");
    CHECK_FAILS(mp_pool_capture_end(s.k.pool, s.stream.native), INVALID_ARGUMENT, "capture");
    CHECK_OK(mp_pool_capture_begin(s.k.pool, s.stream.native, &capture));
    CHECK_FAILS(mp_pool_capture_begin(s.k.pool, s.stream.native, &second), BUSY, "capture");
    CHECK(second == NULL);
    CHECK_FAILS(mp_pool_capture_begin(s.k.pool, s.stream.native, &capture), BUSY, "capture");
    CHECK_OK(mp_pool_capture_end(s.k.pool, s.stream.native)); /* with nothing captured */
    mp_pool_capture_release(s.k.pool, capture);
    mp_pool_capture_release(s.k.pool, NULL);
    scene_close(&s);
}

/* The pool is closed, and opened again, while a graph that was captured with it lives. */
DEVICE_TEST(pool_capture_outlives_its_handle) {
    scene s;
    scene_open(&s, device);
    mp_pool *second = NULL;
    const recording r = record(&s, BLOCK, 20, NULL);
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_DEVICE, "kit", NULL, &second));
    mp_pool_close(s.k.pool);
    s.k.pool = second;
    replay_among_others(&s, &r);
    discard(&s, &r);
    scene_close(&s);
}
