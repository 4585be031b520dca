/* fault_test.c - operators and the pool on a device whose n-th call fails, for each n:
 * the fault is passed on, nothing is lost, and the next run succeeds.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_device.h"
#include "op/core/kernel_cache.h"
#include "op/op_test.h"
#include "pool/pool_handle.h"
#include "unit/test_log.h"

static float x[64];
static float w[64];

/* Everything that one pass may hold. */
typedef struct pass {
    mp_device *device;
    mp_pool *pool;
    mp_stream *stream;
    mp_plan *plan;
    mp_addr in[2], out, scratch;
} pass;

static mp_status lend(pass *p, size_t size, mp_addr *out) {
    void *native = p->device->ops->stream_native(p->device, p->stream);
    return mp_pool_alloc(p->pool, size, native, out);
}

static mp_status fill_in(pass *p, const op_case *c) {
    for (int i = 0; i < c->in_count; i++) {
        MP_TRY(lend(p, sizeof x, &p->in[i]));
        MP_TRY(
            p->device->ops->copy(p->device, p->stream, p->in[i], (mp_addr)c->in[i].data, sizeof x));
    }
    return MP_OK;
}

static mp_status run_case(pass *p, const op_case *c, float *result) {
    size_t bytes = 0;
    MP_TRY(op_plan(p->device, c, &p->plan));
    const mp_tensor *out = mp_plan_output_at(p->plan, 0);
    MP_TRY(mp_shape_bytes(&out->shape, out->type, &bytes));
    MP_TRY(lend(p, bytes, &p->out));
    MP_TRY(lend(p, mp_plan_scratch_bytes(p->plan), &p->scratch));
    MP_TRY(mp_plan_run(p->plan, p->stream, p->in, &p->out, p->scratch));
    MP_TRY(p->device->ops->copy(p->device, p->stream, (mp_addr)result, p->out, sizeof *result));
    return p->device->ops->stream_synchronize(p->device, p->stream);
}

static mp_status run_all(pass *p, const op_case *c, float *result) {
    MP_TRY(p->device->ops->stream_create(p->device, &p->stream));
    MP_TRY(mp__pool_open_on(p->device, MP_MEMORY_DEVICE, "fault", NULL, &p->pool));
    MP_TRY(fill_in(p, c));
    MP_TRY(run_case(p, c, result));
    MP_TRY(mp_pool_free(p->pool, p->out));
    p->out = 0;
    return mp_pool_shrink(p->pool, NULL);
}

static void close_pass(pass *p) {
    if (p->stream != NULL) {
        /* The first of two may be the call that fails; the second waits. */
        (void)p->device->ops->stream_synchronize(p->device, p->stream);
        (void)p->device->ops->stream_synchronize(p->device, p->stream);
    }
    if (p->pool != NULL) {
        const mp_addr blocks[] = {p->in[0], p->in[1], p->out, p->scratch};
        for (size_t i = 0; i < MP_COUNT_OF(blocks); i++) {
            CHECK_OK(mp_pool_free(p->pool, blocks[i]));
        }
        (void)mp_pool_stream_gone(p->pool, p->device->ops->stream_native(p->device, p->stream));
    }
    mp_plan_release(p->plan);
    mp_pool_close(p->pool);
    if (p->stream != NULL) {
        p->device->ops->stream_destroy(p->device, p->stream);
    }
    mp_kernel_cache_drop(p->device);
}

static void fail_each_call(mp_device *device, const op_case *c, float want, mp_status status) {
    uint64_t failed = 0;
    for (uint64_t nth = 1;; nth++) {
        float result = 0;
        pass p = {.device = device};
        (void)mp__host_device_fail(device, nth, status);
        const mp_status first = run_all(&p, c, &result);
        if (mp__host_device_fail(device, 0, MP_OK)) { /* more calls than there are */
            CHECK_OK(first);
            CHECK(result == want);
            close_pass(&p);
            break;
        }
        failed += first != MP_OK;
        CHECK(first == status || (first == MP_OK && result == want));
        CHECK(first == MP_OK || mp_error_message()[0] != '\0');
        close_pass(&p);
    }
    CHECK(failed >= 5);
}

static void run_modes(const op_case *c, float want) {
    const mp_status faults[] = {MP_DEVICE, MP_OUT_OF_MEMORY};
    const mp_host_config configs[] = {
        {.mode = MP_HOST_EAGER, .memory_bytes = 1 << 20},
        {.mode = MP_HOST_THREADED, .memory_bytes = 1 << 20},
        {.mode = MP_HOST_ADVERSARIAL, .seed = test_seed(), .memory_bytes = 1 << 20},
    };
    mp_log_set_sink(no_line, NULL);
    for (size_t i = 0; i < MP_COUNT_OF(configs) * MP_COUNT_OF(faults); i++) {
        mp_device *device = NULL;
        CHECK_OK(mp__host_device_create(&configs[i / MP_COUNT_OF(faults)], &device));
        fail_each_call(device, c, want, faults[i % MP_COUNT_OF(faults)]);
        const char *breach = mp__host_device_breach(device);
        if (breach != NULL) {
            test_fail(__FILE__, __LINE__, "%s", breach);
        }
        CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    }
    mp_log_set_sink(NULL, NULL);
}

static void set_values(void) {
    for (int i = 0; i < 64; i++) {
        x[i] = (float)(i % 5);
        w[i] = (float)(i % 3);
    }
}

TEST(fault_in_an_element_wise_operator) {
    set_values();
    x[0] = 3;
    w[0] = 4;
    const op_case c = {.name = "Add",
                       .version = 14,
                       .in_count = 2,
                       .out_count = 1,
                       .in = {op_f32(x, 8, 8), op_f32(w, 8, 8)}};
    run_modes(&c, 7);
}

TEST(fault_in_a_matrix_product) {
    set_values();
    float want = 0;
    for (int k = 0; k < 8; k++) {
        want += x[k] * w[8 * k];
    }
    const op_case c = {.name = "MatMul",
                       .version = 13,
                       .in_count = 2,
                       .out_count = 1,
                       .in = {op_f32(x, 8, 8), op_f32(w, 8, 8)}};
    run_modes(&c, want);
}

TEST(fault_in_a_convolution) {
    set_values();
    float want = 0;
    for (int k = 0; k < 4; k++) {
        want += x[k] * w[k];
    }
    const op_case c = {.name = "Conv",
                       .version = 11,
                       .in_count = 2,
                       .out_count = 1,
                       .in = {op_f32(x, 1, 1, 64), op_f32(w, 16, 1, 4)}};
    run_modes(&c, want);
}

TEST(fault_in_an_operator_with_barriers) {
    set_values();
    for (int i = 0; i < 64; i++) {
        x[i] = 1;
    }
    const op_case c = {
        .name = "Softmax", .version = 13, .in_count = 1, .out_count = 1, .in = {op_f32(x, 16, 4)}};
    run_modes(&c, 0.25f);
}
