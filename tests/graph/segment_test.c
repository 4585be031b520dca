/* segment_test.c - programs of several segments, branches, loops, and values within others, against
 * loops in C.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/segment_run.h"
#include "graph/text.h"
#include "op/core/kernel_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect_floats(const segment_bench *b, const segment_outcome *result, int i,
                          const float *want, int count) {
    float got[256];
    CHECK(count <= 256);
    CHECK_EQ_INT(segments_bytes(&result->out[i]), (size_t)count * sizeof(float));
    segments_fetch(b, result, i, got);
    for (int k = 0; k < count; k++) {
        CHECK(fabsf(got[k] - want[k]) <= 1e-5f * fmaxf(1, fabsf(want[k])));
    }
}

static mp_tensor floats(int64_t rows, int64_t columns) {
    return columns > 0 ? (mp_tensor){.type = MP_F32, .shape = {.rank = 2, .dim = {rows, columns}}}
                       : (mp_tensor){.type = MP_F32, .shape = {.rank = 1, .dim = {rows}}};
}

static void fill(float *x, int count) {
    for (int i = 0; i < count; i++) {
        x[i] = (float)(i * 7 % 11) - 5;
    }
}

/* ---- segments ---- */

/* The squares of what is positive; `a` is read again behind the wait. */
DEVICE_TEST(segments_at_a_size_that_depends_on_data) {
    static const char text[] = "input x f32[?]\n"
                               "const first i64[1] = 0\n"
                               "a = Relu-14 (x)\n"
                               "n = NonZero-13 (a)\n"
                               "m = Squeeze-13 (n, first)\n"
                               "p = Gather-13 (a, m)\n"
                               "q = Mul-14 (p, p)\n"
                               "b = Add-14 (a, x)\n"
                               "output q\n"
                               "output b\n";
    enum { COUNT = 40 };
    float x[COUNT];
    float squares[COUNT];
    float sums[COUNT];
    mp_graph *graph = NULL;
    segment_outcome result;
    segment_bench b;
    segments_open(&b, device);
    CHECK_OK(mp_graph_read(text, &graph));
    for (int round = 0; round < 3; round++) {
        int found = 0;
        fill(x, COUNT);
        for (int i = 0; i < COUNT; i++) {
            x[i] = round == 2 ? -1 : x[i] + (float)round;
            sums[i] = fmaxf(x[i], 0) + x[i];
            if (x[i] > 0) {
                squares[found++] = x[i] * x[i];
            }
        }
        const mp_tensor tensor = floats(COUNT, 0);
        const mp_addr in = segments_take(&b, x, sizeof x);
        segments_run(&b, graph, &tensor, &in, &result);
        CHECK_EQ_INT(result.segments, 2);
        CHECK_EQ_INT(result.waits, 1);
        expect_floats(&b, &result, 0, squares, found);
        expect_floats(&b, &result, 1, sums, COUNT);
    }
    mp_graph_destroy(graph);
    segments_close(&b);
}

/* Shapes that are computed on the device, one behind the other: two waits, not more. */
DEVICE_TEST(segments_at_shapes_of_the_device) {
    static const char text[] = "input x f32[12]\n"
                               "input s i64[2]\n"
                               "const one i64[2] = 1 1\n"
                               "t = Add-14 (s, one)\n"
                               "y = Reshape-14 (x, t)\n"
                               "u = Sub-14 (t, one)\n"
                               "v = Reshape-14 (x, t)\n"
                               "z = Add-14 (y, v)\n"
                               "n = NonZero-13 (z)\n"
                               "output z\n"
                               "output n\n";
    float x[12];
    float twice[12];
    const int64_t s[] = {2, 3};
    mp_graph *graph = NULL;
    segment_outcome result;
    segment_bench b;
    segments_open(&b, device);
    fill(x, 12);
    for (int i = 0; i < 12; i++) {
        x[i] += 20;
        twice[i] = 2 * x[i];
    }
    const mp_tensor tensors[] = {floats(12, 0), {.type = MP_I64, .shape = {.rank = 1, .dim = {2}}}};
    const mp_addr in[] = {segments_take(&b, x, sizeof x), segments_take(&b, s, sizeof s)};
    CHECK_OK(mp_graph_read(text, &graph));
    segments_run(&b, graph, tensors, in, &result);
    CHECK_EQ_INT(result.segments, 3);
    CHECK_EQ_INT(result.waits, 2);
    CHECK_EQ_INT(result.out[0].shape.dim[0], 3);
    CHECK_EQ_INT(result.out[1].shape.dim[1], 12);
    expect_floats(&b, &result, 0, twice, 12);
    mp_graph_destroy(graph);
    segments_close(&b);
}

/* Nodes of one kernel: in the first segment its inner result is written for the second alone, where
 * nodes follow one another anew. */
DEVICE_TEST(segments_keep_what_a_cluster_makes_for_later_ones) {
    static const char text[] = "input x f32[?]\n"
                               "const first i64[1] = 0\n"
                               "a = Relu-14 (x)\n"
                               "d = Neg-13 (a)\n"
                               "n = NonZero-13 (d)\n"
                               "m = Squeeze-13 (n, first)\n"
                               "p = Gather-13 (a, m)\n"
                               "q = Mul-14 (p, p)\n"
                               "r = Neg-13 (q)\n"
                               "output r\n";
    enum { COUNT = 40 };
    float x[COUNT];
    float want[COUNT];
    int found = 0;
    mp_graph *graph = NULL;
    segment_outcome result;
    segment_bench b;
    segments_open(&b, device);
    CHECK_OK(mp_graph_read(text, &graph));
    fill(x, COUNT);
    for (int i = 0; i < COUNT; i++) {
        if (x[i] > 0) {
            want[found++] = -x[i] * x[i];
        }
    }
    const mp_tensor tensor = floats(COUNT, 0);
    const mp_addr in = segments_take(&b, x, sizeof x);
    segments_run(&b, graph, &tensor, &in, &result);
    CHECK_EQ_INT(result.segments, 2);
    CHECK_EQ_INT(result.steps,
                 2 + 4); /* the two and the count; then result, view, Gather, the two */
    expect_floats(&b, &result, 0, want, found);
    mp_graph_destroy(graph);
    segments_close(&b);
}

/* ---- branches ---- */

static int32_t add_value(mp_graph *graph, const char *name, mp_tensor tensor) {
    int32_t value = MP_NO_VALUE;
    CHECK_OK(mp_graph_add_value(graph, name, &tensor, &value));
    return value;
}

static void add_node(mp_graph *graph, const char *domain, const char *op, int version,
                     const int32_t *in, int in_count, int32_t out) {
    const mp_node node = {.op = mp_op_find(domain, op, version), .version = version, .name = ""};
    CHECK(node.op != NULL);
    CHECK_OK(mp_graph_add_node(graph, &node, in, in_count, &out, 1));
}

/* y = c ? relu(x) : -(n = x + x); only nodes of one branch run, one kernel for both of the second,
 * and the choice costs no step. */
static mp_graph *branches(void) {
    const mp_tensor any = {.type = MP_NONE, .shape = {.rank = MP_DIM_UNKNOWN}};
    mp_graph *graph = NULL;
    CHECK_OK(mp_graph_create(&graph));
    const int32_t x = add_value(graph, "x", floats(24, 0));
    const int32_t c = add_value(graph, "c", (mp_tensor){.type = MP_BOOL});
    CHECK_OK(mp_graph_add_input(graph, x));
    CHECK_OK(mp_graph_add_input(graph, c));
    const int32_t t = add_value(graph, "t", any);
    const int32_t n = add_value(graph, "n", any);
    const int32_t e = add_value(graph, "e", any);
    const int32_t y = add_value(graph, "y", any);
    const int32_t z = add_value(graph, "z", any);
    CHECK_OK(mp_graph_open_guard(graph, c, true));
    add_node(graph, "", "Relu", 14, &x, 1, t);
    mp_graph_close_guard(graph);
    CHECK_OK(mp_graph_open_guard(graph, c, false));
    add_node(graph, "", "Add", 14, (int32_t[]){x, x}, 2, n);
    add_node(graph, "", "Neg", 13, &n, 1, e);
    mp_graph_close_guard(graph);
    add_node(graph, MP_OWN_DOMAIN, "Choose", 1, (int32_t[]){c, t, e}, 3, y);
    add_node(graph, "", "Add", 14, (int32_t[]){y, x}, 2, z);
    CHECK_OK(mp_graph_add_output(graph, z));
    return graph;
}

DEVICE_TEST(segments_of_branches) {
    float x[24];
    float want[24];
    mp_graph *graph = branches();
    segment_outcome result;
    segment_bench b;
    segments_open(&b, device);
    fill(x, 24);
    for (int c = 0; c < 2; c++) {
        const bool condition = c != 0;
        const mp_addr in[] = {segments_take(&b, x, sizeof x),
                              segments_take(&b, &condition, sizeof condition)};
        const mp_tensor tensors[] = {floats(24, 0), {.type = MP_BOOL}};
        for (int i = 0; i < 24; i++) {
            want[i] = (condition ? fmaxf(x[i], 0) : -2 * x[i]) + x[i];
        }
        segments_run(&b, graph, tensors, in, &result);
        CHECK_EQ_INT(result.waits, 1);
        expect_floats(&b, &result, 0, want, 24);
        mp_tensor known[] = {tensors[0], tensors[1]}; /* and without a wait */
        known[1].data = (mp_addr)&condition;
        segments_run(&b, graph, known, in, &result);
        CHECK_EQ_INT(result.segments, 1);
        CHECK_EQ_INT(result.steps, 3);
        expect_floats(&b, &result, 0, want, 24);
    }
    mp_graph_destroy(graph);
    segments_close(&b);
}

/* What stands before a branch is not computed with the branch, nor where only the other one would
 * read it. */
DEVICE_TEST(segments_keep_branches_out_of_clusters) {
    static const char text[] = "input x f32[24]\n"
                               "input c bool[]\n"
                               "a = Relu-14 (x)\n"
                               "b = Neg-13 (a)\n"
                               "when c\n"
                               "d = Exp-13 (b)\n"
                               "e = Neg-13 (d)\n"
                               "end\n"
                               "y = millpond.Choose-1 (c, e, x)\n"
                               "output y\n";
    float x[24];
    float want[24];
    mp_graph *graph = NULL;
    segment_bench b;
    segments_open(&b, device);
    fill(x, 24);
    CHECK_OK(mp_graph_read(text, &graph));
    for (int c = 0; c < 2; c++) {
        const bool condition = c != 0;
        const mp_addr in[] = {segments_take(&b, x, sizeof x),
                              segments_take(&b, &condition, sizeof condition)};
        const mp_tensor tensors[] = {floats(24, 0), {.type = MP_BOOL, .data = (mp_addr)&condition}};
        segment_outcome result;
        for (int i = 0; i < 24; i++) {
            want[i] = condition ? -expf(-fmaxf(x[i], 0)) : x[i];
        }
        segments_run(&b, graph, tensors, in, &result);
        CHECK_EQ_INT(result.steps, condition ? 3 : 1);
        expect_floats(&b, &result, 0, want, 24);
    }
    mp_graph_destroy(graph);
    segments_close(&b);
}

/* ---- loops ---- */

/* Five times: the sum grows by w and by the number of the iteration, and its values are stacked. */
static mp_graph *counted_loop(const char *body, const bool *backwards, bool is_scan) {
    const mp_tensor any = {.type = MP_NONE, .shape = {.rank = MP_DIM_UNKNOWN}};
    mp_loop loop = {.is_scan = is_scan,
                    .carried = 1,
                    .sliced = is_scan ? 1 : 0,
                    .stacked = 1,
                    .backwards = (bool *)(uintptr_t)backwards};
    const mp_node node = {.name = "the loop"};
    mp_graph *graph = NULL;
    const char *text = is_scan ? "input v f32[?]\ninput w f32[?,?]\n"
                               : "input v f32[?]\ninput w f32[?]\nconst m i64[] = 5\n";
    CHECK_OK(mp_graph_read(text, &graph));
    CHECK_OK(mp_graph_read(body, &loop.body));
    const int32_t v = mp_graph_find_value(graph, "v");
    const int32_t w = mp_graph_find_value(graph, "w");
    const int32_t m = mp_graph_find_value(graph, "m");
    const int32_t in[] = {m, MP_NO_VALUE, v, w};
    const int32_t scan_in[] = {v, w};
    const int32_t out[] = {add_value(graph, "sum", any), add_value(graph, "all", any)};
    const int32_t twice = add_value(graph, "twice", any);
    CHECK_OK(
        mp_graph_add_loop(graph, &node, &loop, is_scan ? scan_in : in, is_scan ? 2 : 4, out, 2));
    add_node(graph, "", "Add", 14, (int32_t[]){out[0], out[0]}, 2, twice);
    CHECK_OK(mp_graph_add_output(graph, twice));
    CHECK_OK(mp_graph_add_output(graph, out[1]));
    return graph;
}

static const char loop_body[] = "input i i64[]\ninput c bool[]\ninput v f32[?]\ninput w f32[?]\n"
                                "f = Cast-13 (i) to=1\n"
                                "a = Add-14 (v, w)\n"
                                "n = Add-14 (a, f)\n"
                                "s = Neg-13 (n)\n"
                                "output c\noutput n\noutput s\n";

/* Sizes whose slices are multiples of the alignment, and others, which go aside. */
DEVICE_TEST(segments_do_not_end_at_a_loop_that_is_counted) {
    const bool backwards[] = {false};
    for (int count = 4; count < 9; count++) {
        mp_graph *graph = counted_loop(loop_body, backwards, false);
        float v[8];
        float w[8];
        float twice[8];
        float all[40];
        segment_outcome result;
        segment_bench b;
        segments_open(&b, device);
        for (int k = 0; k < count; k++) {
            v[k] = (float)k;
            w[k] = (float)(k % 3);
            float sum = v[k];
            for (int i = 0; i < 5; i++) {
                sum += w[k] + (float)i;
                all[i * count + k] = -sum;
            }
            twice[k] = 2 * sum;
        }
        const mp_tensor tensors[] = {floats(count, 0), floats(count, 0)};
        const mp_addr in[] = {segments_take(&b, v, (size_t)count * sizeof *v),
                              segments_take(&b, w, (size_t)count * sizeof *w)};
        segments_run(&b, graph, tensors, in, &result);
        CHECK_EQ_INT(result.segments, 1);
        CHECK_EQ_INT(result.steps, 2);
        expect_floats(&b, &result, 0, twice, count);
        expect_floats(&b, &result, 1, all, 5 * count);
        mp_graph_destroy(graph);
        segments_close(&b);
    }
}

/* What a loop makes and nobody reads has a place of its own, apart from what the body works with.
 */
DEVICE_TEST(segments_hold_loops_of_which_a_result_is_not_read) {
    enum { COUNT = 8 };
    static const char body[] = "input i i64[]\ninput c bool[]\ninput v f32[?]\ninput w f32[?]\n"
                               "n = Add-14 (v, w)\n"
                               "p = Softmax-13 (w) axis=0\n"
                               "q = Softmax-13 (p) axis=0\n"
                               "r = Mul-14 (q, n)\n"
                               "s = Add-14 (r, p)\n"
                               "output c\noutput n\noutput s\n";
    static const char *const texts[] = {
        "input v f32[?]\ninput w f32[?]\nconst m i64[] = 1\n",
        "input v f32[?]\ninput w f32[?]\nconst m i64[] = 2\n",
        "input v f32[?]\ninput w f32[?]\nconst m i64[] = 3\n",
    };
    const mp_tensor any = {.type = MP_NONE, .shape = {.rank = MP_DIM_UNKNOWN}};
    const bool backwards[] = {false};
    for (int n = 0; n < 6; n++) {
        const int trips = n / 2 + 1, read = n % 2; /* the sum, or what is stacked */
        const mp_node node = {.name = "the loop"};
        mp_loop loop = {.carried = 1, .stacked = 1, .backwards = (bool *)(uintptr_t)backwards};
        float v[COUNT], w[COUNT], p[COUNT], q[COUNT], sum[COUNT], all[3 * COUNT];
        double of_w = 0, of_p = 0;
        mp_graph *graph = NULL;
        segment_outcome result;
        segment_bench b;
        segments_open(&b, device);
        fill(v, COUNT);
        for (int k = 0; k < COUNT; k++) {
            w[k] = (float)(k % 3);
            of_w += exp((double)w[k]);
        }
        for (int k = 0; k < COUNT; k++) {
            p[k] = (float)(exp((double)w[k]) / of_w);
            of_p += exp((double)p[k]);
        }
        for (int k = 0; k < COUNT; k++) {
            q[k] = (float)(exp((double)p[k]) / of_p);
            sum[k] = v[k];
            for (int i = 0; i < trips; i++) {
                sum[k] += w[k];
                all[i * COUNT + k] = q[k] * sum[k] + p[k];
            }
        }
        CHECK_OK(mp_graph_read(texts[trips - 1], &graph));
        CHECK_OK(mp_graph_read(body, &loop.body));
        const int32_t made = add_value(graph, "made", any);
        const int32_t in[] = {mp_graph_find_value(graph, "m"), MP_NO_VALUE,
                              mp_graph_find_value(graph, "v"), mp_graph_find_value(graph, "w")};
        const int32_t out[] = {read == 0 ? made : MP_NO_VALUE, read == 1 ? made : MP_NO_VALUE};
        CHECK_OK(mp_graph_add_loop(graph, &node, &loop, in, 4, out, 2));
        CHECK_OK(mp_graph_add_output(graph, made));
        const mp_tensor tensors[] = {floats(COUNT, 0), floats(COUNT, 0)};
        const mp_addr addresses[] = {segments_take(&b, v, sizeof v),
                                     segments_take(&b, w, sizeof w)};
        segments_run(&b, graph, tensors, addresses, &result);
        CHECK_EQ_INT(result.segments, 1);
        expect_floats(&b, &result, 0, read == 0 ? sum : all, read == 0 ? COUNT : trips * COUNT);
        mp_graph_destroy(graph);
        segments_close(&b);
    }
}

static const char scan_body[] = "input v f32[?]\ninput x f32[?]\n"
                                "n = Add-14 (v, x)\n"
                                "s = Neg-13 (n)\n"
                                "output n\noutput s\n";

/* Slices forwards and backwards, of none to seven. */
DEVICE_TEST(segments_do_not_end_at_a_scan) {
    for (int way = 0; way < 4; way++) {
        const bool backwards[] = {(way & 1) != 0, (way & 2) != 0};
        mp_graph *graph = counted_loop(scan_body, backwards, true);
        for (int rows = 0; rows < 8; rows++) {
            const int count = 4 + rows % 2;
            float v[5];
            float x[40];
            float twice[5];
            float all[40];
            segment_outcome result;
            segment_bench b;
            segments_open(&b, device);
            fill(x, 40);
            for (int k = 0; k < count; k++) {
                float sum = v[k] = (float)k;
                for (int i = 0; i < rows; i++) {
                    sum += x[(backwards[0] ? rows - 1 - i : i) * count + k];
                    all[(backwards[1] ? rows - 1 - i : i) * count + k] = -sum;
                }
                twice[k] = 2 * sum;
            }
            const mp_tensor tensors[] = {floats(count, 0), floats(rows, count)};
            const mp_addr in[] = {segments_take(&b, v, (size_t)count * sizeof *v),
                                  segments_take(&b, x, sizeof x)};
            segments_run(&b, graph, tensors, in, &result);
            CHECK_EQ_INT(result.segments, 1);
            expect_floats(&b, &result, 0, twice, count);
            expect_floats(&b, &result, 1, all, rows * count);
            segments_close(&b);
        }
        mp_graph_destroy(graph);
    }
}

/* Loops within loops, each of as many iterations as one step may have. */
static mp_graph *nested_loops(int depth) {
    static const char *const head = "input i i64[]\ninput c bool[]\ninput v f32[4]\n"
                                    "const m i64[] = 65536\noutput c\n";
    static const char *const inner = "input i i64[]\ninput c bool[]\ninput v f32[4]\n"
                                     "n = Neg-13 (v)\noutput c\noutput n\n";
    const mp_tensor any = {.type = MP_NONE, .shape = {.rank = MP_DIM_UNKNOWN}};
    const mp_node node = {.name = ""};
    mp_loop loop = {.carried = 1};
    mp_graph *graph = NULL;
    CHECK_OK(mp_graph_read(depth == 0 ? inner : head, &graph));
    if (depth > 0) {
        const int32_t in[] = {mp_graph_find_value(graph, "m"), MP_NO_VALUE,
                              mp_graph_find_value(graph, "v")};
        const int32_t out = add_value(graph, "n", any);
        loop.body = nested_loops(depth - 1);
        CHECK_OK(mp_graph_add_loop(graph, &node, &loop, in, 3, &out, 1));
        CHECK_OK(mp_graph_add_output(graph, out));
    }
    return graph;
}

/* 2^80 kernels are so many that nobody takes them for few. */
DEVICE_TEST(segments_count_launches_of_nested_loops) {
    const mp_tensor in[] = {{.type = MP_I64}, {.type = MP_BOOL}, floats(4, 0)};
    mp_graph *graph = nested_loops(5);
    mp_program *program = NULL;
    CHECK_OK(mp_program_make(device, graph, in, 16, NULL, &program));
    CHECK_EQ_INT(mp_program_step_count(program), 1);
    CHECK_EQ_INT(mp_program_launch_count(program), INT64_C(1) << 40);
    mp_program_release(program);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

DEVICE_TEST(segments_want_conditions_of_one_element) {
    const mp_shape empty = {.rank = 1, .dim = {0}};
    const mp_tensor in[] = {floats(24, 0), {.type = MP_BOOL, .shape = empty}};
    const mp_tensor of_loop[] = {floats(4, 0), floats(4, 0)};
    mp_graph *graph = branches();
    mp_program *program = NULL;
    CHECK_FAILS(mp_program_make(device, graph, in, 16, NULL, &program), INVALID_ARGUMENT,
                "'c' is a condition");
    mp_graph_destroy(graph);
    graph = counted_loop(loop_body, NULL, false);
    graph->values[mp_graph_find_value(graph, "m")].tensor.shape = empty;
    CHECK_FAILS(mp_program_make(device, graph, of_loop, 16, NULL, &program), INVALID_ARGUMENT,
                "'m' is a condition");
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

/* ---- values within others ---- */

typedef struct part_case {
    const char *text;
    int steps;
    float (*want)(const float *x, int i);
    int count;
} part_case;

/* Of x[8,4]. */
static float joined(const float *x, int i) {
    return i < 32 ? -fmaxf(x[i], 0) : -(x[i - 32] + x[i - 32]);
}

static float joined_twice(const float *x, int i) {
    return -fmaxf(x[i % 32], 0);
}

static float joined_read_later(const float *x, int i) {
    const float a = fmaxf(x[i % 32], 0);
    return (i < 32 ? a : 2 * x[i - 32]) + a;
}

static float split(const float *x, int i) {
    return x[i] + x[i + 16];
}

static float sliced(const float *x, int i) {
    return -x[i + 8];
}

static float gathered(const float *x, int i) {
    return -x[i + 28];
}

static float broadcast(const float *x, int i) {
    return fmaxf(x[i % 4 + 4], 0) + fmaxf(x[i], 0);
}

static const part_case part_cases[] = {
    {"input x f32[8,4]\na = Relu-14 (x)\nb = Add-14 (x, x)\nc = Concat-13 (a, b) axis=0\n"
     "y = Neg-13 (c)\noutput y\n",
     3, joined, 64},
    {"input x f32[8,4]\na = Relu-14 (x)\nb = Add-14 (x, x)\nc = Concat-13 (a, b) axis=0\n"
     "y = Neg-13 (c)\noutput c\noutput y\n",
     3, NULL, 64},
    {"input x f32[8,4]\na = Relu-14 (x)\nc = Concat-13 (a, a) axis=0\ny = Neg-13 (c)\noutput y\n",
     3, joined_twice, 64},
    {"input x f32[8,4]\na = Relu-14 (x)\nb = Add-14 (x, x)\nc = Concat-13 (a, b) axis=0\n"
     "d = Concat-13 (a, a) axis=0\ny = Add-14 (c, d)\noutput y\n",
     4, joined_read_later, 64},
    {"input x f32[8,4]\np, q = Split-11 (x) axis=0 split=[4,4]\ny = Add-14 (p, q)\noutput y\n", 1,
     split, 16},
    {"input x f32[8,4]\nconst s i64[1] = 2\nconst e i64[1] = 5\nz = Slice-13 (x, s, e)\n"
     "y = Neg-13 (z)\noutput y\n",
     1, sliced, 12},
    {"input x f32[8,4]\nconst k i64[] = -1\nz = Gather-13 (x, k) axis=0\ny = Neg-13 (z)\noutput "
     "y\n",
     1, gathered, 4},
    {"input x f32[8,4]\na = Relu-14 (x)\nconst k i64[] = 1\nz = Gather-13 (a, k) axis=0\n"
     "y = Add-14 (z, a)\noutput y\n",
     2, broadcast, 32},
};

DEVICE_TEST(segments_place_values_within_others) {
    float x[32];
    float want[64];
    fill(x, 32);
    for (size_t c = 0; c < MP_COUNT_OF(part_cases); c++) {
        const part_case *one = &part_cases[c];
        mp_graph *graph = NULL;
        segment_outcome result;
        segment_bench b;
        segments_open(&b, device);
        CHECK_OK(mp_graph_read(one->text, &graph));
        const mp_tensor tensor = floats(8, 4);
        const mp_addr in = segments_take(&b, x, sizeof x);
        segments_run(&b, graph, &tensor, &in, &result);
        CHECK_EQ_INT(result.steps, one->steps);
        for (int i = 0; i < one->count; i++) {
            want[i] = one->want != NULL ? one->want(x, i) : -joined(x, i);
        }
        expect_floats(&b, &result, 0, want, one->count);
        mp_graph_destroy(graph);
        segments_close(&b);
    }
}
