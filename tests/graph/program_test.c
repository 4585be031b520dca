/* program_test.c - programs of small graphs on devices, against loops.
 * SPDX-License-Identifier: Apache-2.0 */
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

typedef struct memory {
    mp_addr addr;
    size_t size;
} memory;

static memory take(mp_device *device, const void *bytes, size_t size) {
    memory m = {.size = size > 0 ? size : 1};
    CHECK_OK(device->ops->alloc(device, m.size, &m.addr));
    if (bytes != NULL) {
        CHECK_OK(device->ops->copy(device, NULL, m.addr, (mp_addr)bytes, size));
    }
    return m;
}

static void drop(mp_device *device, memory m) {
    device->ops->free(device, m.addr, m.size);
}

static void run_once(mp_device *device, const mp_program *program, const float *x) {
    float want[COUNT];
    float got[COUNT];
    int64_t shape[2] = {0};
    mp_stream *stream = NULL;
    size_t literal_bytes = 0;
    const void *literals = mp_program_literals(program, &literal_bytes);
    const memory in = take(device, x, sizeof got);
    const memory out = take(device, NULL, sizeof got);
    const memory out_shape = take(device, NULL, sizeof shape);
    const memory block = take(device, NULL, mp_program_block_bytes(program));
    const memory fixed = take(device, literals, literal_bytes);
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
    drop(device, in);
    drop(device, out);
    drop(device, out_shape);
    drop(device, block);
    drop(device, fixed);
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
    CHECK_OK(mp_program_make(device, graph, &in, 16, &program));
    CHECK_EQ_INT(mp_program_output_at(program, 0)->shape.dim[0], ROWS);
    CHECK_EQ_INT(mp_program_output_at(program, 1)->shape.dim[0], 2);
    run_once(device, program, x);
    run_once(device, program, x);
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
    CHECK_FAILS(mp_program_make(device, graph, &in, 16, &program), INVALID_ARGUMENT, "the view");
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

DEVICE_TEST(graph_program_says_which_value_it_lacks) {
    mp_graph *graph = NULL;
    mp_program *program = NULL;
    const mp_tensor in[] = {{.type = MP_F32, .shape = {.rank = 1, .dim = {8}}},
                            {.type = MP_I64, .shape = {.rank = 1, .dim = {2}}}};
    CHECK_OK(mp_graph_read("input x f32[8]\ninput s i64[2]\na = Relu-14 (x)\n"
                           "y = Reshape-14 (a, s) \"the view\"\noutput y\n",
                           &graph));
    CHECK_FAILS(mp_program_make(device, graph, in, 16, &program), UNSUPPORTED, "input 's'");
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}
