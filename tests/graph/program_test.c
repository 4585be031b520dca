/* program_test.c - programs of small graphs on devices, against loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_device.h"
#include "graph/device_bytes.h"
#include "graph/pass.h"
#include "graph/program.h"
#include "graph/text.h"
#include "op/core/kernel_cache.h"
#include "unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, COLUMNS = 8, COUNT = ROWS * COLUMNS };

/* y = softmax(relu(x) viewed as [?, 4]) viewed as x is, + relu(x); the shapes follow from x's. */
static const char text[] = "input x f32[?,8]\n"
                           "const four i64[2] = -1 4\n"
                           "a = Relu-14 (x)\n"
                           "s = Shape-15 (a)\n"
                           "b = Reshape-14 (a, four)\n"
                           "c = Softmax-13 (b) axis=1\n"
                           "d = Reshape-14 (c, s)\n"
                           "y = Add-14 (d, a)\n"
                           "output y\n"
                           "output s\n";

static void expect(const float *x, float *y) {
    for (int i = 0; i < COUNT; i += 4) {
        double sum = 0;
        for (int k = 0; k < 4; k++) {
            sum += exp(fmax((double)x[i + k], 0));
        }
        for (int k = 0; k < 4; k++) {
            const double a = fmax((double)x[i + k], 0);
            y[i + k] = (float)(exp(a) / sum + a);
        }
    }
}

static void run_once(mp_device *device, const mp_program *program, const float *x) {
    float want[COUNT];
    float got[COUNT];
    int64_t shape[2] = {0};
    mp_stream *stream = NULL;
    size_t literal_bytes = 0;
    const void *literals = mp_program_literals(program, &literal_bytes);
    const memory in = memory_take(device, x, sizeof got);
    const memory out = memory_take(device, NULL, sizeof got);
    const memory out_shape = memory_take(device, NULL, sizeof shape);
    const memory block = memory_take(device, NULL, mp_program_block_bytes(program));
    const memory fixed = memory_take(device, literals, literal_bytes);
    const mp_addr outs[] = {out.addr, out_shape.addr};
    const mp_program_call call = {
        .in = &in.addr, .out = outs, .block = block.addr, .literals = fixed.addr};
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(mp_program_run(program, stream, &call));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)got, out.addr, sizeof got));
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)shape, out_shape.addr, sizeof shape));
    expect(x, want);
    for (int i = 0; i < COUNT; i++) {
        CHECK(fabsf(got[i] - want[i]) <= 1e-5f);
    }
    CHECK_EQ_INT(shape[0], ROWS);
    CHECK_EQ_INT(shape[1], COLUMNS);
    device->ops->stream_destroy(device, stream);
    memory_drop(device, in);
    memory_drop(device, out);
    memory_drop(device, out_shape);
    memory_drop(device, block);
    memory_drop(device, fixed);
}

DEVICE_TEST(graph_program_runs_as_loops_do) {
    mp_graph *graph = NULL;
    mp_program *program = NULL;
    int64_t done = 0;
    float x[COUNT];
    const mp_tensor in = {.type = MP_F32, .shape = {.rank = 2, .dim = {ROWS, COLUMNS}}};
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(i % 7) - 3;
    }
    CHECK_OK(mp_graph_read(text, &graph));
    CHECK_OK(mp_passes_run(graph, NULL, &done));
    CHECK_OK(mp_program_make(device, graph, &in, 16, NULL, &program));
    CHECK_EQ_INT(mp_program_output_at(program, 0)->shape.dim[0], ROWS);
    CHECK_EQ_INT(mp_program_output_at(program, 1)->shape.dim[0], 2);
    run_once(device, program, x);
    run_once(device, program, x);
    mp_program_release(program);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

/* Five times turned: of the four values between input and output two lie in the output before that
 * is written, and the others need the place of one. */
DEVICE_TEST(graph_program_lies_in_its_output_meanwhile) {
    enum { SIDE = 64, ALL = SIDE * SIDE };
    static float x[ALL], got[ALL];
    mp_graph *graph = NULL;
    mp_program *program = NULL;
    mp_stream *stream = NULL;
    CHECK_OK(mp_graph_read("input x f32[64,64]\n"
                           "a = Transpose-13 (x) perm=[1,0]\n"
                           "b = Transpose-13 (a) perm=[1,0]\n"
                           "c = Transpose-13 (b) perm=[1,0]\n"
                           "d = Transpose-13 (c) perm=[1,0]\n"
                           "y = Transpose-13 (d) perm=[1,0]\n"
                           "output y\n",
                           &graph));
    for (int i = 0; i < ALL; i++) {
        x[i] = (float)i;
    }
    const mp_tensor given = {.type = MP_F32, .shape = {.rank = 2, .dim = {SIDE, SIDE}}};
    CHECK_OK(mp_program_make(device, graph, &given, 16, NULL, &program));
    CHECK_EQ_INT(mp_program_block_bytes(program), sizeof x);
    const memory in = memory_take(device, x, sizeof x), out = memory_take(device, NULL, sizeof got);
    const memory block = memory_take(device, NULL, mp_program_block_bytes(program));
    const mp_program_call call = {.in = &in.addr, .out = &out.addr, .block = block.addr};
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(mp_program_run(program, stream, &call));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)got, out.addr, sizeof got));
    for (int i = 0; i < ALL; i++) {
        CHECK(got[i] == x[i % SIDE * SIDE + i / SIDE]);
    }
    device->ops->stream_destroy(device, stream);
    memory_drop(device, in);
    memory_drop(device, out);
    memory_drop(device, block);
    mp_program_release(program);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

DEVICE_TEST(graph_program_of_a_bad_shape_names_the_node) {
    mp_graph *graph = NULL;
    mp_program *program = NULL;
    const mp_tensor in = {.type = MP_F32, .shape = {.rank = 2, .dim = {3, 3}}};
    CHECK_OK(mp_graph_read("input x f32[?,?]\nconst s i64[2] = 2 4\na = Relu-14 (x)\n"
                           "y = Reshape-14 (a, s) \"the view\"\noutput y\n",
                           &graph));
    CHECK_FAILS(mp_program_make(device, graph, &in, 16, NULL, &program), INVALID_ARGUMENT,
                "the view");
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

/* What stands for several nodes is named by all of them, when it is planned and when it runs. */
DEVICE_TEST(graph_program_that_fails_names_all_nodes) {
    mp_graph *graph = NULL;
    mp_program *program = NULL;
    int64_t done = 0;
    mp_tensor in = {.type = MP_F32, .shape = {.rank = 2, .dim = {2, 7}}};
    CHECK_OK(
        mp_graph_read("input x f32[2,?]\nconst w f32[8,16]\nconst b f32[16]\n"
                      "p = MatMul-13 (x, w) \"product\"\ny = Add-14 (p, b) \"sum\"\noutput y\n",
                      &graph));
    CHECK_OK(mp_passes_run(graph, NULL, &done));
    CHECK_EQ_INT(done, 1);
    CHECK_FAILS(mp_program_make(device, graph, &in, 16, NULL, &program), INVALID_ARGUMENT,
                "MatMul 'product' and Add 'sum': ");
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

TEST(graph_program_whose_run_fails_names_the_node) {
    const mp_host_config config = {.memory_bytes = (size_t)16 << 20};
    mp_device *device = NULL;
    mp_graph *graph = NULL;
    mp_program *program = NULL;
    mp_stream *stream = NULL;
    const mp_tensor in = {.type = MP_F32, .shape = {.rank = 1, .dim = {8}}};
    CHECK_OK(mp__host_device_create(&config, &device));
    CHECK_OK(mp_graph_read("input x f32[8]\ny = Exp-13 (x) \"the exp\"\noutput y\n", &graph));
    CHECK_OK(mp_program_make(device, graph, &in, 16, NULL, &program));
    const memory x = memory_take(device, NULL, 32);
    const memory y = memory_take(device, NULL, 32);
    const mp_program_call call = {.in = &x.addr, .out = &y.addr};
    CHECK_OK(device->ops->stream_create(device, &stream));
    (void)mp__host_device_fail(device, 1, MP_DEVICE);
    CHECK_FAILS(mp_program_run(program, stream, &call), DEVICE, "Exp 'the exp': ");
    device->ops->stream_destroy(device, stream);
    memory_drop(device, x);
    memory_drop(device, y);
    mp_program_release(program);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
    CHECK_EQ_INT(mp__host_device_destroy(device), 0);
}
