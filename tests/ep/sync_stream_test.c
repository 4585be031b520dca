/* sync_stream_test.c - what the end of a run waits for, and what it does not wait for twice.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/graph_rig.h"

typedef struct stream_rig {
    rig_session s;
    rig_binding b;
    mp_run_stream *stream;  /* the implementation's */
    OrtSyncStreamImpl *ort; /* as ONNX Runtime has it */
} stream_rig;

static void open(stream_rig *r, mp_device *device) {
    const mp_options wishes = {.do_copy_in_default_stream = true};
    CHECK_OK(rig_open(&r->s, device, NULL, &wishes));
    CHECK_OK(rig_bind(&r->b, &r->s));
    CHECK_OK(mp__session_stream(&r->s.provider, &r->stream));
    CHECK(mp__sync_stream_create(r->stream, &r->ort) == NULL);
}

static void close(stream_rig *r) {
    r->ort->Release(r->ort);
    rig_unbind(&r->b);
    rig_close(&r->s);
}

/* Queues a copy of x to y. */
static void queue(const stream_rig *r, mp_device *device, uint32_t value) {
    CHECK_OK(rig_set(&r->s, r->b.x, value));
    CHECK_OK(device->ops->copy(device, mp__run_stream_use(r->stream), r->b.y, r->b.x, RIG_BYTES));
}

static void end_run(const stream_rig *r) {
    CHECK(r->ort->OnSessionRunEnd(r->ort) == NULL);
}

static void flush(const stream_rig *r) {
    CHECK(r->ort->Flush(r->ort) == NULL);
}

DEVICE_TEST(sync_stream_waits_for_what_is_queued) {
    stream_rig r;
    open(&r, device);
    for (uint32_t i = 0; i < 20; i++) {
        queue(&r, device, 100 * i);
        end_run(&r);
        CHECK_OK(rig_is(&r.s, r.b.y, 100 * i));
        queue(&r, device, 100 * i + 1); /* between the two: by another run on the same stream */
        flush(&r);
        CHECK_OK(rig_is(&r.s, r.b.y, 100 * i + 1));
        queue(&r, device, 100 * i + 2);
        flush(&r);
        CHECK_OK(rig_is(&r.s, r.b.y, 100 * i + 2));
    }
    close(&r);
}

/* Whether Flush calls the device. */
static bool flush_asks(const stream_rig *r, mp_device *device) {
    (void)mp__host_device_fail(device, 1, MP_DEVICE);
    OrtStatus *status = r->ort->Flush(r->ort);
    const bool asked = !mp__host_device_fail(device, 0, MP_OK);
    CHECK(asked == (status != NULL));
    if (status != NULL) {
        mp_the_plugin.ort->ReleaseStatus(status);
    }
    return asked;
}

TEST(sync_stream_waits_once_at_the_end_of_a_run) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = 64 << 20};
    mp_device *device = NULL;
    stream_rig r;
    CHECK_OK(mp__host_device_create(&config, &device));
    open(&r, device);
    queue(&r, device, 1);
    CHECK(flush_asks(&r, device)); /* no run has ended */
    end_run(&r);
    CHECK(!flush_asks(&r, device));
    CHECK(flush_asks(&r, device)); /* not the end of a run */
    end_run(&r);
    queue(&r, device, 2);
    CHECK(flush_asks(&r, device));
    close(&r);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}

/* ---- streams that the user destroys before the session ---- */

typedef enum way { MARKED, WAITED_FOR, NOT_KNOWN, SHARED, LENT } way;

/* Another client of the pool has memory on the stream, or uses its own there. */
static void use_by_another(mp_device *device, void *native, way how) {
    mp_pool *other = NULL;
    mp_addr block = 0;
    CHECK_OK(mp__pool_open_on(device, MP_MEMORY_DEVICE, "another", NULL, &other));
    CHECK_OK(mp_pool_alloc(other, 1000, how == SHARED ? native : MP_NO_STREAM, &block));
    if (how == LENT) {
        CHECK_OK(mp_pool_record_use(other, block, native));
    }
    CHECK_OK(mp_pool_free(other, block));
    mp_pool_close(other);
}

/* Whether the last reference to a wrap goes with at most `most` calls of the device that may fail.
 */
static bool drop_asks_at_most(mp_device *device, way how, uint64_t most) {
    const mp_options wishes = {.do_copy_in_default_stream = true};
    rig_session s;
    rig_binding b;
    mp_stream *users = NULL;
    mp_run_stream *wrap = NULL;
    mp_pool *pool = NULL;
    mp_addr block = 0;
    CHECK_OK(rig_open(&s, device, NULL, &wishes));
    CHECK_OK(rig_bind(&b, &s));
    CHECK_OK(device->ops->stream_create(device, &users));
    void *native = device->ops->stream_native(device, users);
    CHECK_OK(mp__pool_again(s.provider.pool, &pool));
    CHECK_OK(mp__run_stream_wrap(s.provider.unit, pool, &s.provider, native, &wrap));
    CHECK_OK(mp_pool_alloc(s.provider.pool, 1000, native, &block));
    CHECK_OK(device->ops->copy(device, mp__run_stream_use(wrap), b.y, b.x, RIG_BYTES));
    CHECK_OK(mp_pool_free(s.provider.pool, block));
    if (how == WAITED_FOR) {
        CHECK_OK(mp__run_stream_wait(wrap));
    } else if (how != NOT_KNOWN) {
        mp__run_stream_mark(wrap);
    }
    if (how == SHARED || how == LENT) {
        use_by_another(device, native, how);
    }
    const bool is_gone = how == MARKED || how == WAITED_FOR;
    if (is_gone) {
        device->ops->stream_destroy(device, users); /* sanitizers see who asks it afterwards */
    }
    (void)mp__host_device_fail(device, most + 1, MP_DEVICE);
    mp__run_stream_drop(wrap);
    const bool few = mp__host_device_fail(device, 0, MP_OK);
    if (!is_gone) {
        device->ops->stream_destroy(device, users);
    }
    rig_unbind(&b);
    rig_close(&s);
    return few;
}

TEST(sync_stream_leaves_a_stream_alone_that_may_be_gone) {
    const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = 64 << 20};
    mp_device *device = NULL;
    CHECK_OK(mp__host_device_create(&config, &device));
    CHECK(drop_asks_at_most(device, MARKED, 1)); /* the event */
    CHECK(drop_asks_at_most(device, WAITED_FOR, 0));
    CHECK(!drop_asks_at_most(device, NOT_KNOWN, 0));
    CHECK(!drop_asks_at_most(device, SHARED, 1));
    CHECK(!drop_asks_at_most(device, LENT, 1));
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}
