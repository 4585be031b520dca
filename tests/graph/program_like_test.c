/* program_like_test.c - programs that take plans over from one made before, and outputs that may
 * lie where inputs do.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_device.h"
#include "graph/device_bytes.h"
#include "graph/program_private.h"
#include "graph/text.h"
#include "op/core/kernel_cache.h"
#include "unit/test.h"

#include <string.h>

enum { WIDTH = 4, ROWS_MOST = 6 };

/* ---- plans of an earlier program ---- */

static const mp_plan *plan_of(const mp_program *program, const char *op) {
    for (int32_t i = 0; i < program->step_count; i++) {
        if (strcmp(program->steps[i].op->name, op) == 0) {
            return program->steps[i].plan;
        }
    }
    CHECK(false);
    return NULL;
}

static mp_tensor rows_of(int64_t rows) {
    return (mp_tensor){.type = MP_F32, .shape = {.rank = 2, .dim = {rows, WIDTH}}};
}

/* Runs a program of two inputs and two outputs, and gives the second output. */
static void run(mp_device *device, const mp_program *program, const float *x, const float *m,
                float *second) {
    const size_t bytes[] = {mp_program_output_bytes(program, 0),
                            mp_program_output_bytes(program, 1)};
    mp_stream *stream = NULL;
    const memory in[] = {memory_take(device, x, sizeof(float) * ROWS_MOST * WIDTH),
                         memory_take(device, m, sizeof(float) * ROWS_MOST * WIDTH)};
    const memory out[] = {memory_take(device, NULL, bytes[0]), memory_take(device, NULL, bytes[1])};
    const memory block = memory_take(device, NULL, mp_program_block_bytes(program));
    const mp_addr ins[] = {in[0].addr, in[1].addr}, outs[] = {out[0].addr, out[1].addr};
    const mp_program_call call = {.in = ins, .out = outs, .block = block.addr};
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(mp_program_run(program, stream, &call));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)second, out[1].addr, bytes[1]));
    device->ops->stream_destroy(device, stream);
    for (int i = 0; i < 2; i++) {
        memory_drop(device, in[i]);
        memory_drop(device, out[i]);
    }
    memory_drop(device, block);
}

DEVICE_TEST(graph_program_takes_over_what_did_not_change) {
    static const float x[ROWS_MOST * WIDTH] = {1, 2, 3, 4};
    float m[ROWS_MOST * WIDTH], sums[ROWS_MOST];
    mp_graph *graph = NULL;
    mp_program *first = NULL, *second = NULL, *third = NULL;
    for (int i = 0; i < ROWS_MOST * WIDTH; i++) {
        m[i] = (float)(i % 5);
    }
    CHECK_OK(mp_graph_read("input x f32[?,4]\ninput m f32[?,4]\nconst last i64[1] = 1\n"
                           "y = Softmax-13 (x) axis=1\ns = ReduceSum-13 (m, last) keepdims=0\n"
                           "output y\noutput s\n",
                           &graph));
    mp_tensor in[] = {rows_of(2), rows_of(3)};
    CHECK_OK(mp_program_make(device, graph, in, 16, NULL, &first));
    in[1] = rows_of(5);
    CHECK_OK(mp_program_make(device, graph, in, 16, first, &second));
    CHECK(plan_of(second, "Softmax") == plan_of(first, "Softmax"));
    CHECK(plan_of(second, "ReduceSum") != plan_of(first, "ReduceSum"));
    CHECK(strcmp(second->steps[1].name->title, "ReduceSum") == 0);
    CHECK_OK(mp_program_make(device, graph, in, 1, second, &third)); /* other alignment */
    CHECK(plan_of(third, "Softmax") != plan_of(second, "Softmax"));
    mp_program_release(first); /* the plans stay */
    mp_program_release(third);
    run(device, second, x, m, sums);
    for (int i = 0; i < 5; i++) {
        const float *row = m + (size_t)i * WIDTH;
        CHECK(sums[i] == row[0] + row[1] + row[2] + row[3]);
    }
    mp_program_release(second);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

/* The same shapes, but other values that a plan is made from. */
DEVICE_TEST(graph_program_looks_at_known_values) {
    const int64_t twice[] = {1, 2}, thrice[] = {1, 3};
    mp_graph *graph = NULL;
    mp_program *first = NULL, *second = NULL, *third = NULL;
    CHECK_OK(
        mp_graph_read("input x f32[?,4]\ninput n i64[2]\ny = Tile-13 (x, n)\noutput y\n", &graph));
    mp_tensor in[] = {rows_of(2),
                      {.type = MP_I64, .shape = {.rank = 1, .dim = {2}}, .data = (mp_addr)thrice}};
    CHECK_OK(mp_program_make(device, graph, in, 16, NULL, &first));
    in[1].data = (mp_addr)twice;
    CHECK_OK(mp_program_make(device, graph, in, 16, first, &second));
    CHECK(plan_of(first, "Tile") != plan_of(second, "Tile"));
    CHECK_EQ_INT(mp_program_output_at(second, 0)->shape.dim[1], 2 * WIDTH);
    CHECK_OK(mp_program_make(device, graph, in, 16, second, &third));
    CHECK(plan_of(third, "Tile") == plan_of(second, "Tile"));
    mp_program_release(first);
    mp_program_release(second);
    mp_program_release(third);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

/* Random numbers are another plan's own. */
DEVICE_TEST(graph_program_draws_for_itself) {
    mp_graph *graph = NULL;
    mp_program *first = NULL, *second = NULL;
    CHECK_OK(mp_graph_read("input x f32[?,4]\ny = RandomUniformLike-1 (x)\noutput y\n", &graph));
    const mp_tensor in = rows_of(2);
    CHECK_OK(mp_program_make(device, graph, &in, 16, NULL, &first));
    CHECK_OK(mp_program_make(device, graph, &in, 16, first, &second));
    CHECK(plan_of(first, "RandomUniformLike") != plan_of(second, "RandomUniformLike"));
    mp_program_release(first);
    mp_program_release(second);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

/* Element-wise nodes of one kernel, the second time beside another shape. */
DEVICE_TEST(graph_program_takes_clusters_over) {
    mp_graph *graph = NULL;
    mp_program *first = NULL, *second = NULL;
    CHECK_OK(mp_graph_read("input x f32[?,4]\ninput m f32[?,4]\na = Relu-14 (x) \"one\"\n"
                           "y = Tanh-13 (a) \"two\"\nz = Exp-13 (m)\noutput y\noutput z\n",
                           &graph));
    graph->has_clusters = true;
    mp_tensor in[] = {rows_of(2), rows_of(3)};
    CHECK_OK(mp_program_make(device, graph, in, 16, NULL, &first));
    in[1] = rows_of(4);
    CHECK_OK(mp_program_make(device, graph, in, 16, first, &second));
    CHECK(plan_of(second, "Fused") == plan_of(first, "Fused"));
    CHECK(plan_of(second, "Exp") != plan_of(first, "Exp"));
    CHECK(strstr(second->steps[0].name->title, "two") != NULL);
    mp_program_release(first);
    mp_program_release(second);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

/* ---- outputs over inputs ---- */

static int over_of(mp_device *device, const char *text) {
    mp_graph *graph = NULL;
    mp_program *program = NULL;
    const mp_tensor in[] = {rows_of(ROWS_MOST), rows_of(ROWS_MOST)};
    CHECK_OK(mp_graph_read(text, &graph));
    CHECK_OK(mp_program_make(device, graph, in, 16, NULL, &program));
    const int over = mp_program_over(program, 0);
    mp_program_release(program);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
    return over;
}

#define TWO   "input x f32[?,4]\ninput m f32[?,4]\n"
#define SHAPE "const s i64[2] = -1 8\nconst t i64[2] = -1 4\n"

DEVICE_TEST(graph_program_knows_which_input_an_output_may_replace) {
    CHECK_EQ_INT(over_of(device, TWO "y = Relu-14 (m)\nz = Softmax-13 (x)\noutput y\noutput z\n"),
                 1);
    /* Read again later, as it is or by another shape; read twice. */
    CHECK_EQ_INT(over_of(device, TWO "y = Relu-14 (x)\nz = Softmax-13 (x)\noutput y\noutput z\n"),
                 -1);
    CHECK_EQ_INT(over_of(device, TWO SHAPE "v = Reshape-14 (x, s)\ny = Relu-14 (x)\n"
                                           "z = Softmax-13 (v)\noutput y\noutput z\n"),
                 -1);
    CHECK_EQ_INT(over_of(device, TWO "y = Mul-14 (x, x)\noutput y\n"), -1);
    /* An output itself; no kernel that may work in place. */
    CHECK_EQ_INT(over_of(device, TWO SHAPE "y = Relu-14 (x)\nv = Reshape-14 (x, s)\n"
                                           "output y\noutput v\n"),
                 -1);
    CHECK_EQ_INT(over_of(device, TWO "y = Transpose-13 (x) perm=[1,0]\noutput y\n"), -1);
    /* Something else lies in the output before: what it replaces, what is concatenated. */
    CHECK_EQ_INT(over_of(device, TWO "a = Softmax-13 (x) axis=0\ny = Add-14 (a, m)\noutput y\n"),
                 -1);
    CHECK_EQ_INT(over_of(device, TWO "a = Softmax-13 (x)\nb = Relu-14 (m)\n"
                                     "y = Concat-13 (a, b) axis=0\noutput y\n"),
                 -1);
}

/* What is not much smaller lies in the output meanwhile, but not where an input may be. */
DEVICE_TEST(graph_program_keeps_an_input_that_is_replaced) {
    static const float x[ROWS_MOST * WIDTH] = {3, -1, 2};
    float m[ROWS_MOST * WIDTH], got[ROWS_MOST * WIDTH];
    mp_graph *graph = NULL;
    mp_program *program = NULL;
    mp_stream *stream = NULL;
    const mp_tensor in[] = {rows_of(ROWS_MOST), rows_of(ROWS_MOST)};
    for (int i = 0; i < ROWS_MOST * WIDTH; i++) {
        m[i] = (float)i - 5;
    }
    CHECK_OK(mp_graph_read(TWO "a = Transpose-13 (x) perm=[1,0]\n"
                               "b = Transpose-13 (a) perm=[1,0]\n"
                               "c = Transpose-13 (b) perm=[1,0]\n"
                               "z = Transpose-13 (c) perm=[1,0]\ny = Relu-14 (m)\n"
                               "output y\noutput z\n",
                           &graph));
    CHECK_OK(mp_program_make(device, graph, in, 16, NULL, &program));
    CHECK_EQ_INT(mp_program_over(program, 0), 1);
    const memory given = memory_take(device, x, sizeof x), both = memory_take(device, m, sizeof m);
    const memory block = memory_take(device, NULL, mp_program_block_bytes(program));
    const memory other = memory_take(device, NULL, sizeof x);
    const mp_addr ins[] = {given.addr, both.addr}, outs[] = {both.addr, other.addr};
    const mp_program_call call = {.in = ins, .out = outs, .block = block.addr};
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(mp_program_run(program, stream, &call));
    CHECK_OK(device->ops->stream_synchronize(device, stream));
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)got, both.addr, sizeof got));
    for (int i = 0; i < ROWS_MOST * WIDTH; i++) {
        CHECK(got[i] == (m[i] > 0 ? m[i] : 0));
    }
    device->ops->stream_destroy(device, stream);
    memory_drop(device, given);
    memory_drop(device, both);
    memory_drop(device, other);
    memory_drop(device, block);
    mp_program_release(program);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}
