/* plan_test.c - plans with steps of every kind, made by operators of the test's own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/plan.h"

#include "kernel/pointwise/pointwise_args.h"
#include "op/core/host_input.h"
#include "op/core/kernel_cache.h"
#include "op/core/op.h"
#include "op/op_test.h"

#include <pthread.h>

enum { COUNT = 40, HALF = COUNT / 2 };

static const mp_shape shape = {.rank = 1, .dim = {COUNT}};

static mp_status add_relu(mp_planner *p, mp_ref x, mp_ref out) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "pointwise1_%s_%s", "relu", "f32"));
    const mp_pointwise1_args args = {.count = COUNT};
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, COUNT, 4), args, MP_BIND(mp_pointwise1_args, x, x),
                     MP_BIND(mp_pointwise1_args, out, out));
}

/* out 0 = relu(in) by way of scratch memory; out 1 = 0x01010101...; out 2, on the host, = {7, 8};
 * out 3 = a copy of in. */
static mp_status plan_all(mp_planner *p) {
    mp_ref scratch[2];
    const int64_t host[] = {7, 8};
    const mp_shape pair = {.rank = 1, .dim = {2}};
    const size_t bytes = COUNT * sizeof(float);
    MP_TRY(mp_plan_output(p, 0, MP_F32, &shape));
    MP_TRY(mp_plan_output(p, 1, MP_I32, &shape));
    MP_TRY(mp_plan_output(p, 2, MP_I64, &pair));
    MP_TRY(mp_plan_output(p, 3, MP_F32, &shape));
    MP_TRY(mp_plan_output(p, 99, MP_F32, &shape)); /* none that the model names */
    MP_TRY(mp_plan_scratch(p, bytes, &scratch[0]));
    MP_TRY(mp_plan_scratch(p, bytes, &scratch[1]));
    MP_TRY(mp_plan_copy(p, scratch[1], MP_IN(0), bytes));
    MP_TRY(mp_plan_copy(p, scratch[1], scratch[1], bytes));
    MP_TRY(add_relu(p, scratch[1], scratch[0]));
    MP_TRY(mp_plan_copy(p, MP_OUT(0), scratch[0], bytes));
    MP_TRY(mp_plan_fill(p, MP_OUT(1), 1, 1, COUNT * 4));
    MP_TRY(mp_plan_fill(p, mp_ref_at(MP_OUT(1), 4), 0x02020202, 4, 1));
    MP_TRY(mp_plan_host_output(p, 2, host, sizeof host));
    MP_TRY(mp_plan_copy(p, MP_OUT(3), MP_IN(0), 0));
    MP_TRY(mp_plan_fill(p, MP_OUT(3), 0, 1, 0));
    return mp_plan_copy(p, MP_OUT(3), MP_IN(0), bytes);
}

static const mp_op all_steps = {.name = "AllSteps", .domain = "", .plan = plan_all};

static mp_status make(mp_device *device, const mp_op *op, const mp_tensor *in, int in_count,
                      int out_count, mp_plan **out) {
    const mp_node node = {.op = op, .version = 1, .name = "here"};
    return mp_plan_make(device, &node, in, in_count, out_count, 16, out);
}

typedef struct buffers {
    mp_stream *stream;
    mp_addr in, out[4], scratch;
    int64_t host[2];
} buffers;

enum { BYTES = 1024 };

static void buffers_open(mp_device *device, buffers *b) {
    float x[COUNT];
    *b = (buffers){.host = {0, 0}};
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(i - HALF);
    }
    CHECK_OK(device->ops->stream_create(device, &b->stream));
    CHECK_OK(device->ops->alloc(device, BYTES, &b->in));
    CHECK_OK(device->ops->alloc(device, BYTES, &b->scratch));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(device->ops->alloc(device, BYTES, &b->out[i]));
        CHECK_OK(device->ops->fill(device, b->stream, b->out[i], 0x55, 1, BYTES));
    }
    CHECK_OK(device->ops->copy(device, b->stream, b->in, (mp_addr)x, sizeof x));
}

static void buffers_close(mp_device *device, const buffers *b) {
    CHECK_OK(device->ops->stream_synchronize(device, b->stream));
    for (int i = 0; i < 4; i++) {
        device->ops->free(device, b->out[i], BYTES);
    }
    device->ops->free(device, b->in, BYTES);
    device->ops->free(device, b->scratch, BYTES);
    device->ops->stream_destroy(device, b->stream);
    mp_kernel_cache_drop(device);
}

static void fetch(mp_device *device, const buffers *b, int i, void *to, size_t size) {
    CHECK_OK(device->ops->copy(device, b->stream, (mp_addr)to, b->out[i], size));
    CHECK_OK(device->ops->stream_synchronize(device, b->stream));
}

static void check_results(mp_device *device, const buffers *b) {
    float y[COUNT];
    float copy[COUNT];
    uint32_t filled[COUNT];
    fetch(device, b, 0, y, sizeof y);
    fetch(device, b, 1, filled, sizeof filled);
    fetch(device, b, 3, copy, sizeof copy);
    for (int i = 0; i < COUNT; i++) {
        const float x = (float)(i - HALF);
        CHECK(y[i] == (x > 0 ? x : 0));
        CHECK(copy[i] == x);
        CHECK_EQ_INT(filled[i], i == 1 ? 0x02020202 : 0x01010101);
    }
}

DEVICE_TEST(plan_runs_steps_of_every_kind) {
    const mp_tensor in = {.type = MP_F32, .shape = shape};
    mp_plan *plan = NULL;
    buffers b;
    CHECK_OK(make(device, &all_steps, &in, 1, 4, &plan));
    CHECK_EQ_INT(mp_plan_output_count(plan), 4);
    CHECK_EQ_INT(mp_plan_output_at(plan, 2)->shape.dim[0], 2);
    CHECK_EQ_INT(mp_plan_step_count(plan), 8);
    CHECK_EQ_INT(mp_plan_scratch_bytes(plan), 512); /* 160 bytes twice, each aligned */
    for (int run = 0; run < 2; run++) {
        buffers_open(device, &b);
        const mp_addr out[] = {b.out[0], b.out[1], (mp_addr)b.host, b.out[3]};
        CHECK_OK(mp_plan_run(plan, b.stream, &b.in, out, b.scratch));
        CHECK(b.host[0] == 7 && b.host[1] == 8);
        check_results(device, &b);
        buffers_close(device, &b);
        mp_plan_release(plan); /* kernels of the plan are gone with the cache */
        CHECK_OK(make(device, &all_steps, &in, 1, 4, &plan));
    }
    mp_plan_release(plan);
    mp_kernel_cache_drop(device);
}

DEVICE_TEST(plan_leaves_out_steps_of_absent_outputs) {
    const mp_tensor in = {.type = MP_F32, .shape = shape};
    mp_plan *plan = NULL;
    buffers b;
    uint32_t kept[COUNT];
    CHECK_OK(make(device, &all_steps, &in, 1, 4, &plan));
    buffers_open(device, &b);
    const mp_addr out[4] = {0};
    CHECK_OK(mp_plan_run(plan, b.stream, &b.in, out, b.scratch));
    for (int i = 0; i < 4; i++) {
        fetch(device, &b, i, kept, sizeof kept);
        CHECK_EQ_INT(kept[3], 0x55555555);
    }
    mp_plan_release(plan);
    buffers_close(device, &b);
}

static mp_status plan_relu(mp_planner *p) {
    MP_TRY(mp_plan_output(p, 0, MP_F32, &shape));
    return add_relu(p, MP_IN(0), MP_OUT(0));
}

DEVICE_TEST(plan_leaves_out_launches_that_write_nothing) {
    const mp_op relu = {.name = "JustRelu", .domain = "", .plan = plan_relu};
    const mp_tensor in = {.type = MP_F32, .shape = shape};
    const mp_addr nowhere = 0;
    mp_plan *plan = NULL;
    buffers b;
    CHECK_OK(make(device, &relu, &in, 1, 1, &plan));
    buffers_open(device, &b);
    CHECK_OK(mp_plan_run(plan, b.stream, &b.in, &nowhere, 0));
    CHECK_OK(device->ops->stream_synchronize(device, b.stream));
    mp_plan_release(plan);
    buffers_close(device, &b);
}

/* ---- faults ---- */

static mp_status plan_nothing(mp_planner *p) {
    (void)p;
    return MP_OK;
}

static mp_status plan_huge_output(mp_planner *p) {
    return mp_plan_output(p, 0, MP_F32, &(mp_shape){.rank = 2, .dim = {INT64_MAX, 4}});
}

static mp_status plan_huge_scratch(mp_planner *p) {
    mp_ref ref;
    MP_TRY(mp_plan_output(p, 0, MP_F32, &shape));
    MP_TRY(mp_plan_scratch(p, SIZE_MAX / 2, &ref));
    return mp_plan_scratch(p, SIZE_MAX / 2 + 2, &ref);
}

static mp_status plan_unknown_kernel(mp_planner *p) {
    const mp_kernel *kernel = NULL;
    return mp_plan_kernel(p, &kernel, "%s", "nothing_f32");
}

static mp_status plan_long_name(mp_planner *p) {
    const mp_kernel *kernel = NULL;
    return mp_plan_kernel(p, &kernel, "%0200d", 1);
}

static mp_status plan_after_math(mp_planner *p) {
    const mp_gemm gemm = {.type = MP_F32,
                          .m = 2,
                          .n = 2,
                          .k = 2,
                          .lda = 2,
                          .ldb = 2,
                          .ldc = 2,
                          .batch = 1,
                          .alpha = 1,
                          .align = 16};
    const mp_ref operands[MP_GEMM_OPERANDS] = {MP_IN(0), MP_IN(0), MP_OUT(0)};
    MP_TRY(mp_plan_gemm(p, &gemm, operands));
    return MP_FAIL(UNSUPPORTED, "changed my mind");
}

DEVICE_TEST(plan_faults_name_the_node_and_leave_nothing) {
    const struct {
        mp_status (*plan)(mp_planner *p);
        mp_status status;
        const char *part;
    } rows[] = {
        {plan_nothing, MP_UNSUPPORTED, "Odd 'here': output 0"},
        {plan_huge_output, MP_INVALID_ARGUMENT, "Odd 'here': a float tensor of shape"},
        {plan_huge_scratch, MP_INVALID_ARGUMENT, "scratch memory"},
        {plan_unknown_kernel, MP_INTERNAL, "'nothing_f32'"},
        {plan_long_name, MP_INTERNAL, "too long"},
        {plan_after_math, MP_UNSUPPORTED, "Odd 'here': changed my mind"},
    };
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        const mp_op op = {.name = "Odd", .domain = "", .plan = rows[i].plan};
        mp_plan *plan = NULL;
        CHECK_EQ_INT(make(device, &op, NULL, 0, 1, &plan), rows[i].status);
        CHECK_STR_HAS(mp_error_message(), rows[i].part);
        CHECK(plan == NULL);
    }
}

DEVICE_TEST(plan_refuses_inputs_whose_sizes_overflow) {
    const mp_tensor in[] = {
        {.type = MP_NONE},
        {.type = MP_F32, .shape = {.rank = 3, .dim = {0, (int64_t)1 << 40, (int64_t)1 << 40}}}};
    mp_plan *plan = NULL;
    CHECK_FAILS(make(device, &all_steps, in, 2, 4, &plan), INVALID_ARGUMENT, "0x1099511627776x");
}

DEVICE_TEST(plan_grids_cover_their_elements) {
    const mp_planner p = {.device = device};
    CHECK_EQ_INT(mp_plan_grid(&p, 0, 4).blocks, 1);
    CHECK_EQ_INT(mp_plan_grid(&p, 1, 4).blocks, 1);
    CHECK_EQ_INT(mp_plan_grid(&p, 1025, 4).blocks, 2);
    CHECK(mp_plan_grid(&p, INT64_MAX, 1).blocks >= 1);
    CHECK_EQ_INT(mp_plan_grid_rows(&p, 0, 64).blocks, 1);
    CHECK_EQ_INT(mp_plan_grid_rows(&p, 77, 64).blocks, 77);
    CHECK_EQ_INT(mp_plan_grid_rows(&p, 77, 64).lanes, 64);
    CHECK(mp_plan_grid_rows(&p, INT64_MAX, 64).blocks < INT32_MAX);
}

/* ---- one plan, several threads ---- */

typedef struct runner {
    pthread_t thread;
    mp_device *device;
    mp_plan *plan; /* one reference */
} runner;

static void *run_often(void *context) {
    runner *r = context;
    buffers b;
    buffers_open(r->device, &b);
    for (int i = 0; i < 20; i++) {
        const mp_addr out[] = {b.out[0], b.out[1], (mp_addr)b.host, b.out[3]};
        CHECK_OK(mp_plan_run(r->plan, b.stream, &b.in, out, b.scratch));
        check_results(r->device, &b);
    }
    CHECK_OK(r->device->ops->stream_synchronize(r->device, b.stream));
    for (int i = 0; i < 4; i++) {
        r->device->ops->free(r->device, b.out[i], BYTES);
    }
    r->device->ops->free(r->device, b.in, BYTES);
    r->device->ops->free(r->device, b.scratch, BYTES);
    r->device->ops->stream_destroy(r->device, b.stream);
    mp_plan_release(r->plan);
    return NULL;
}

DEVICE_TEST(plan_is_run_by_several_threads) {
    const mp_tensor in = {.type = MP_F32, .shape = shape};
    mp_plan *plan = NULL;
    runner runners[4];
    CHECK_OK(make(device, &all_steps, &in, 1, 4, &plan));
    for (size_t i = 0; i < MP_COUNT_OF(runners); i++) {
        mp_plan_retain(plan);
        runners[i] = (runner){.device = device, .plan = plan};
        CHECK(pthread_create(&runners[i].thread, NULL, run_often, &runners[i]) == 0);
    }
    mp_plan_release(plan); /* the threads' references keep it */
    for (size_t i = 0; i < MP_COUNT_OF(runners); i++) {
        CHECK(pthread_join(runners[i].thread, NULL) == 0);
    }
    mp_kernel_cache_drop(device);
}

/* ---- bytes that miss their alignment ---- */

DEVICE_TEST(plan_without_alignment_runs_at_odd_addresses) {
    float x[3 * 4];
    float w[4 * 5];
    for (int i = 0; i < 3 * 4; i++) {
        x[i] = op_value(1, i);
    }
    for (int i = 0; i < 4 * 5; i++) {
        w[i] = op_value(2, i);
    }
    for (uint32_t skew = 4; skew < 16; skew += 4) {
        op_case c = {.name = "MatMul",
                     .version = 13,
                     .align = 1,
                     .skew = skew,
                     .in_count = 2,
                     .out_count = 1,
                     .in = {op_f32(x, 3, 4), op_f32(w, 4, 5)}};
        op_run(device, &c);
        for (int i = 0; i < 15; i++) {
            double want = 0;
            for (int k = 0; k < 4; k++) {
                want += (double)x[i / 5 * 4 + k] * (double)w[k * 5 + i % 5];
            }
            op_check_close((double)((const float *)c.out[0].data)[i], want, 1e-5, "Y", i);
        }
        op_close(device, &c);
        op_case relu = {.name = "Relu",
                        .version = 14,
                        .align = 1,
                        .skew = skew,
                        .in_count = 1,
                        .out_count = 1,
                        .in = {op_f32(x, 11)}};
        op_run(device, &relu);
        for (int i = 0; i < 11; i++) {
            CHECK(((const float *)relu.out[0].data)[i] == (x[i] > 0 ? x[i] : 0));
        }
        op_close(device, &relu);
    }
}

/* ---- what no operator may be given ---- */

static mp_status plan_list(mp_planner *p) {
    int64_t list[4];
    int count = 0;
    MP_TRY(mp_host_ints(p, 0, "starts", 4, list, &count));
    MP_TRY(mp_host_ints(p, 1, "steps", 4, list, &count));
    return mp_plan_output(p, 0, MP_F32, &shape);
}

/* A planner that reads an input which its row leaves on the device. */
DEVICE_TEST(plans_do_not_read_device_memory) {
    const mp_op op = {.domain = "", .name = "Lister", .host_in = 1u << 0, .plan = plan_list};
    const mp_node node = {.op = &op, .name = "n"};
    const int64_t starts[] = {1, 2};
    const mp_tensor in[] = {
        {.type = MP_I64, .shape = {.rank = 1, .dim = {2}}, .data = (mp_addr)starts},
        {.type = MP_I64, .shape = {.rank = 1, .dim = {2}}}};
    mp_plan *plan = NULL;
    CHECK_OK(mp_plan_make(device, &node, in, 1, 1, 16, &plan));
    mp_plan_release(plan);
    CHECK_FAILS(mp_plan_make(device, &node, in, 2, 1, 16, &plan), UNSUPPORTED,
                "Lister 'n': steps is given as input 1, which is on the device");
}

DEVICE_TEST(lists_of_inputs_need_each_of_them) {
    static const char *const names[] = {"Sum", "Mean", "Max", "Min", "Concat", "Einsum"};
    static const float x[] = {1, 2, 3};
    const mp_attr attrs[] = {OP_INT("axis", 0), OP_TEXT("equation", "i,i,i->i")};
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        op_case c = {.name = names[i],
                     .version = i < 5 ? 13 : 12,
                     .attrs = attrs,
                     .attr_count = 2,
                     .in = {op_f32(x, 3), {.type = MP_NONE}, op_f32(x, 3)},
                     .in_count = 3,
                     .out_count = 1};
        mp_plan *plan = NULL;
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, names[i]);
        CHECK_STR_HAS(mp_error_message(), "input 1 of 3 is left out");
    }
}
