/* pool_wait_test.c - the host waits for a device by the streams that its pools know.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/pool_kit.h"

enum { BLOCK = 1 << 20, ROUNDS = 6 };

static mp_addr pinned(kit *k) {
    mp_addr addr = 0;
    CHECK_OK(k->device->ops->alloc_pinned(k->device, KIT_KIB(4), &addr));
    return addr;
}

static uint32_t word_at(mp_addr addr) {
    return *(const uint32_t *)addr;
}

/* Queues a fill of the block, and a copy of its last word to the host. */
static void queue(kit *k, mp_stream *stream, mp_addr block, mp_addr result, uint32_t tag) {
    const mp_device_ops *ops = k->device->ops;
    CHECK_OK(ops->fill(k->device, stream, block, tag, 4, BLOCK / 4));
    CHECK_OK(ops->copy(k->device, stream, result, block + BLOCK - 4, 4));
}

static void waits_for_known_streams(mp_device *device, const char *const *options) {
    kit_pair s;
    kit_pair_open(&s, device, options);
    const mp_addr block[] = {kit_alloc(&s.k, BLOCK, &s.a), kit_alloc(&s.k, BLOCK, &s.a)};
    const mp_addr result = pinned(&s.k);
    CHECK_OK(mp_pool_record_use(s.k.pool, block[1], s.b.native));
    CHECK_OK(mp__pools_wait(device)); /* a driver's block is there once its stream has come to it */
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        queue(&s.k, s.a.queue, block[0], result, round);
        queue(&s.k, s.b.queue, block[1], result + 64, 100 + round);
        CHECK_OK(mp__pools_wait(device));
        CHECK_EQ_INT(word_at(result), round);
        CHECK_EQ_INT(word_at(result + 64), 100 + round);
    }
    kit_free(&s.k, block[0]);
    kit_free(&s.k, block[1]);
    device->ops->free_pinned(device, result, KIT_KIB(4));
    kit_pair_close(&s);
}

DEVICE_TEST(pool_wait_covers_streams_that_have_memory) {
    waits_for_known_streams(device, KIT_OPTIONS("arena.max_mem=0"));
}

DEVICE_TEST(pool_wait_covers_streams_of_the_drivers_pool) {
    waits_for_known_streams(device, KIT_OPTIONS("arena.use_cuda_mempool=1"));
}

DEVICE_TEST(pool_wait_covers_the_default_stream) {
    kit k;
    mp_stream *stream = NULL;
    kit_open(&k, device, KIT_OPTIONS("arena.max_mem=0"));
    const mp_addr block = kit_alloc(&k, BLOCK, NULL);
    const mp_addr result = pinned(&k);
    CHECK_OK(device->ops->stream_wrap(device, NULL, &stream));
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        queue(&k, stream, block, result, round);
        CHECK_OK(mp__pools_wait(device));
        CHECK_EQ_INT(word_at(result), round);
    }
    device->ops->stream_destroy(device, stream);
    device->ops->free_pinned(device, result, KIT_KIB(4));
    kit_free(&k, block);
    kit_close(&k);
}

/* One that the pool was told of, and one that it was not. The other stream is waited for. */
static void leaves_a_capture_alone(mp_device *device, bool told) {
    kit_pair s;
    mp_capture *capture = NULL;
    mp_graph_exec *graph = NULL;
    kit_pair_open(&s, device, KIT_OPTIONS("arena.max_mem=0"));
    const mp_addr block[] = {kit_alloc(&s.k, BLOCK, &s.a), kit_alloc(&s.k, BLOCK, &s.b)};
    const mp_addr result = pinned(&s.k);
    if (told) {
        CHECK_OK(mp_pool_capture_begin(s.k.pool, s.a.native, &capture));
    }
    CHECK_OK(device->ops->capture_begin(device, s.a.queue));
    queue(&s.k, s.b.queue, block[1], result, 5);
    queue(&s.k, s.a.queue, block[0], result + 64, 6);
    CHECK_OK(mp__pools_wait(device));
    CHECK_EQ_INT(word_at(result), 5);
    CHECK_OK(device->ops->capture_end(device, s.a.queue, &graph));
    if (told) {
        CHECK_OK(mp_pool_capture_end(s.k.pool, s.a.native));
    }
    CHECK_OK(device->ops->graph_launch(device, graph, s.a.queue));
    CHECK_OK(mp__pools_wait(device));
    CHECK_EQ_INT(word_at(result + 64), 6);
    device->ops->graph_destroy(device, graph);
    if (told) {
        mp_pool_capture_release(s.k.pool, capture);
    }
    kit_free(&s.k, block[0]);
    kit_free(&s.k, block[1]);
    device->ops->free_pinned(device, result, KIT_KIB(4));
    kit_pair_close(&s);
}

DEVICE_TEST(pool_wait_leaves_captures_alone) {
    leaves_a_capture_alone(device, true);
    leaves_a_capture_alone(device, false);
}

DEVICE_TEST(pool_wait_without_a_pool) {
    CHECK_OK(mp__pools_wait(device));
}
