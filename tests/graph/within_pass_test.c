/* within_pass_test.c - pieces that are put together again, and parts of images that lie in them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"
#include "graph/segment_run.h"
#include "op/core/kernel_cache.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- a Concat of pieces ---- */

#define HALVES                                                                              \
    "const zero i64[1] = 0\nconst two i64[1] = 2\nconst far i64[1] = 9223372036854775807\n" \
    "const axis i64[1] = 1\n"                                                               \
    "a = Slice-13 (x, zero, two, axis) \"a\"\nb = Slice-13 (x, two, far, axis) \"b\"\n"

TEST(graph_pass_join_pieces) {
    check(NULL,
          "input x f32[?,4,3]\n" HALVES
          "c = Relu-14 (b) \"c\"\ny = Concat-13 (a, b, c) \"y\" axis=1\noutput y\n",
          "input x f32[?,4,3]\nconst two i64[1] = 2\nconst far i64[1] = 9223372036854775807\n"
          "const axis i64[1] = 1\nb = Slice-13 (x, two, far, axis) \"b\"\nc = Relu-14 (b) \"c\"\n"
          "y = Concat-13 (x, c) \"y\" axis=1\noutput y\n",
          1);
    check(NULL,
          "input x f32[2,6]\nconst sizes i64[3] = 1 2 3\n"
          "a, b, c = Split-13 (x, sizes) \"s\" axis=1\nd = Exp-13 (b) \"d\"\n"
          "y = Concat-13 (d, a, b, c) \"y\" axis=-1\noutput y\n",
          "input x f32[2,6]\nconst sizes i64[3] = 1 2 3\n"
          "a, b, c = Split-13 (x, sizes) \"s\" axis=1\nd = Exp-13 (b) \"d\"\n"
          "y = Concat-13 (d, x) \"y\" axis=-1\noutput y\n",
          1);
}

TEST(graph_pass_join_pieces_leaves_others) {
    LEFT_ALONE("-find_roll", /* in another order */
               "input x f32[?,4,3]\n" HALVES "y = Concat-13 (b, a) \"y\" axis=1\noutput y\n");
    LEFT_ALONE(NULL, /* along another axis */
               "input x f32[2,4,2]\n" HALVES "y = Concat-13 (a, b) \"y\" axis=2\noutput y\n");
    LEFT_ALONE(NULL, /* not all of it */
               "input x f32[2,6]\nconst sizes i64[3] = 1 2 3\n"
               "a, b, c = Split-13 (x, sizes) \"s\" axis=1\n"
               "y = Concat-13 (a, b) \"y\" axis=1\noutput y\noutput c\n");
    LEFT_ALONE(NULL, /* of a length that is not known */
               "input x f32[?,?,3]\n" HALVES "y = Concat-13 (a, b) \"y\" axis=1\noutput y\n");
}

/* ---- parts that lie in images ---- */

#define CONV  "com.ms.internal.nhwc.Conv-11 "
#define FUSED "millpond.nhwc.FusedConv-1 "
#define PADS  " pads=[1,1,1,1]"
/* A block of a detector: 32 channels, of which the second half goes on. */
#define WEIGHTS(type)                                                                  \
    "const w " type "[32,16,1,1]\nconst b " type "[32]\nconst v " type "[16,16,1,1]\n" \
    "const c " type "[16]\nconst u " type "[8,48,1,1]\n"
#define SIZES "const half i64[1] = 16\nconst end i64[1] = 32\nconst axis i64[1] = -1\n"
#define CUT   "first = " CONV "(x, w, b) \"first\"\nn = Slice-13 (first, half, end, axis) \"n\"\n"
#define TWICE                                             \
    "p = " FUSED "(n, v, c) \"p\" activation=\"Swish\"\n" \
    "q = " FUSED "(p, v, c) \"q\" activation=\"Swish\"\n"
#define LAST  "y = " CONV "(all, u) \"y\"\noutput y\n"
#define BLOCK CUT TWICE "all = Concat-13 (first, q) \"all\" axis=-1\n" LAST

TEST(graph_pass_rows_within) {
    check("+rows_within", "input x f32[?,?,?,16]\n" WEIGHTS("f32") SIZES BLOCK,
          "input x f32[?,?,?,16]\n" WEIGHTS("f32") SIZES BLOCK
          "within first all 0\nwithin n first 16\nwithin q all 32\n",
          3);
    LEFT_ALONE(NULL, "input x f32[?,?,?,16]\n" WEIGHTS("f32") SIZES BLOCK);
}

static void lies_nowhere(const char *format, ...) {
    char text[2048];
    va_list list;
    va_start(list, format);
    CHECK(vsnprintf(text, sizeof text, format, list) < (int)sizeof text);
    va_end(list);
    LEFT_ALONE("+rows_within", text);
}

TEST(graph_pass_rows_within_leaves_what_others_read_or_make) {
    static const char pair[] =
        "input x f32[?,?,?,%d]\nconst w f32[%d,%d,1,1]\na = " CONV "(x, w) \"a\"%s\n%s"
        "y = Concat-13 (a, x) \"y\" axis=%d\noutput y\n%s";
    mp_graph *graph = NULL;
    int64_t done = 0;
    char text[512];
    (void)snprintf(text, sizeof text, pair, 16, 16, 16, "", "", 3, "");
    CHECK_OK(mp_graph_read(text, &graph)); /* the only reason that the others have */
    CHECK_OK(mp_passes_run(graph, "+rows_within", &done));
    CHECK_EQ_INT(done, 1);
    mp_graph_destroy(graph);
    lies_nowhere(pair, 16, 16, 16, "", "z = Softmax-13 (a)\n", 3, "output z\n");
    lies_nowhere(pair, 16, 16, 16, "", "", 3, "output a\n");
    lies_nowhere(pair, 16, 16, 16, "", "", 2, "");
    lies_nowhere(pair, 16, 18, 16, "", "", 3, ""); /* no whole packs */
    lies_nowhere(pair, 8, 16, 8, "", "", 3, "");   /* of few channels */
    lies_nowhere(pair, 32, 32, 16, " group=2", "", 3, "");
    lies_nowhere(pair, 16, 16, 16, " strides=[2,2]", "", 3, ""); /* no product of its pixels */
    lies_nowhere(pair, 16, 16, 16, PADS, "", 3, "");
    lies_nowhere(pair, 16, 16, 16, "", "z = " CONV "(a, w)" PADS "\n", 3, "output z\n");
    lies_nowhere("input x f32[?,?,?,16]\nconst w f32[16,16,1,1]\n" /* a residual */
                 "a = " FUSED "(x, w, , x) \"a\"\ny = Concat-13 (a, x) \"y\" axis=3\noutput y\n");
}

/* ---- what comes of it ---- */

static const mp_shape images[] = {SHAPE(2, 5, 6, 16)};

static void run(mp_device *device, int64_t rewrites, const char *text) {
    pass_check_run_by(device, "-dead,+rows_within", text, images, 2e-2, rewrites);
}

DEVICE_TEST(graph_rows_within_of_a_block) {
    run(device, 3, "input x f32[?,?,?,16]\n" WEIGHTS("f32") SIZES BLOCK);
    run(device, 3, "input x f16[?,?,?,16]\n" WEIGHTS("f16") SIZES BLOCK);
    run(device, 3, "input x bf16[?,?,?,16]\n" WEIGHTS("bf16") SIZES BLOCK);
}

/* Once: the second time it is copied. */
DEVICE_TEST(graph_rows_within_of_a_part_that_is_there_twice) {
    run(device, 1,
        "input x f32[?,?,?,16]\nconst w f32[16,16,1,1]\nconst u f32[8,48,1,1]\n"
        "a = " CONV "(x, w)\nall = Concat-13 (a, x, a) axis=-1\n" LAST);
}

/* Of the rows only some are parts, and others are copied to them. */
DEVICE_TEST(graph_rows_within_of_some_parts) {
    run(device, 2,
        "input x f32[?,?,?,16]\n" WEIGHTS("f32") SIZES CUT TWICE
        "r = Tanh-13 (p)\nall = Concat-13 (r, q, x) \"all\" axis=-1\n" LAST);
    run(device, 2,
        "input x f16[?,?,?,16]\n" WEIGHTS("f16") SIZES
        "first = " CONV "(x, w, b)\nk, n = Split-18 (first) axis=-1 num_outputs=2\n"
        "t = Tanh-13 (k)\np = " CONV "(n, v)\n"
        "all = Concat-13 (t, n, p) \"all\" axis=-1\n" LAST);
}

/* Parts of parts. */
DEVICE_TEST(graph_rows_within_one_another) {
    run(device, 4,
        "input x f32[?,?,?,16]\n" WEIGHTS("f32") SIZES
        "const s f32[16,32,1,1]\nconst l f32[16,64,3,3]\n"
        "first = " CONV "(x, w, b)\nn = Slice-13 (first, half, end, axis)\n"
        "p = " FUSED "(n, v, c) activation=\"Relu\"\n"
        "q = " CONV "(first, s)\nall = Concat-13 (q, first, p) axis=-1\n"
        "y = " CONV "(all, l)" PADS "\noutput y\n");
}

/* A part of a part is read when the whole is needed no more, and something lies in its place. */
DEVICE_TEST(graph_rows_within_one_another_for_long) {
    run(device, 2,
        "input x f32[?,?,?,16]\n" WEIGHTS("f32") SIZES
        "const s f32[48,8,1,1]\nconst t f32[8,48,1,1]\n"
        "first = " CONV "(x, w, b)\nn = Slice-13 (first, half, end, axis)\n"
        "all = Concat-13 (first, x) axis=-1\ny = " CONV "(all, u)\nwide = " CONV "(y, s)\nz = " CONV
        "(wide, t)\no = " CONV "(n, v)\noutput z\noutput o\n");
}

/* `l` turns out not to lie in `all` while it is planned, and a node alone reads it in the same go.
 */
DEVICE_TEST(graph_rows_within_of_what_strays_before) {
    run(device, 4,
        "input x f16[?,?,?,16]\nconst w f16[16,16,1,1]\nconst k f16[16]\nconst u f16[8,64,1,1]\n"
        "const v f16[16,16,3,3]\na = " CONV "(x, w)\nt = Tanh-13 (a)\nm = Mul-14 (x, k)\n"
        "s = Add-14 (m, t)\nr = Add-14 (s, t)\nz = " CONV "(r, v)" PADS "\nl = Add-14 (x, k)\n"
        "o = Add-14 (l, s)\nall = Concat-13 (m, a, t, l) axis=-1\ny = " CONV "(all, u)\n"
        "output y\noutput z\noutput o\n");
}

/* What a step behind the library's convolution makes, with a residual, too; a Relu is no step. */
DEVICE_TEST(graph_rows_within_of_what_a_step_makes) {
    static const char *const types[] = {"f32", "f16", "bf16"};
    for (size_t i = 0; i < MP_COUNT_OF(types); i++) {
        char text[768];
        (void)snprintf(text, sizeof text,
                       "input x %s[?,?,?,16]\nconst v %s[16,16,3,3]\nconst c %s[16]\n"
                       "const u %s[8,64,1,1]\np = " FUSED "(x, v, c) activation=\"Silu\"" PADS
                       "\nq = " FUSED "(x, v, c, x) activation=\"HardSwish\" residual_behind=1" PADS
                       "\nr = " FUSED "(x, v, c) activation=\"Relu\"" PADS
                       "\nall = Concat-13 (p, q, r, x) axis=-1\ny = " CONV "(all, u)\noutput y\n",
                       types[i], types[i], types[i], types[i]);
        run(device, 2, text);
    }
}

/* What each layer of DenseNet reads is all that the ones before have made. */
#define LAYER(to, all, made, mean)                                                                 \
#to "s = Mul-14 (" all ", " mean ")\n" #to "r = Relu-14 (" #to "s)\n" made " = " FUSED "(" #to \
        "r, " #to "w) activation=\"Relu\"\n"
#define DENSE(type)                                                                               \
    "input x " type "[?,?,?,16]\nconst aw " type "[8,16,1,1]\nconst bw " type "[8,24,1,1]\n"      \
    "const cw " type "[8,32,1,1]\nconst u " type "[8,40,1,1]\nconst k16 " type "[16]\n"           \
    "const k24 " type "[24]\nconst k32 " type "[32]\n"                                            \
    "p = com.ms.internal.nhwc.MaxPool-12 (x) kernel_shape=[3,3]" PADS                             \
    "\n" LAYER(a, "p", "fa", "k16") "ca = Concat-13 (p, fa) axis=-1\n" LAYER(                     \
        b, "ca", "fb",                                                                            \
        "k24") "cb = Concat-13 (p, fa, fb) axis=-1\n" LAYER(c, "cb", "fc",                        \
                                                            "k32") "all = Concat-13 (p, fa, fb, " \
                                                                   "fc) axis=-1\n"                \
                                                                   "y = " CONV                    \
                                                                   "(all, u)\noutput y\n"

/* The pool, two parts of three, and what is put together of one another. */
DEVICE_TEST(graph_rows_within_of_layers_that_read_all_before) {
    run(device, 2 + 6, DENSE("f32"));
    run(device, 2 + 6, DENSE("f16"));
}

/* What clusters make: of one node and of two; where a cluster makes something else, too; where rows
 * are reduced, which no kernel does to such ones. */
DEVICE_TEST(graph_rows_within_of_clusters) {
    static const char head[] = "input x %s[?,?,?,16]\nconst w %s[16,16,1,1]\nconst k %s[16]\n"
                               "const u %s[8,32,1,1]\na = " CONV "(x, w)\n";
    static const char *const made[] = {
        "b = Mul-14 (a, k)\n",
        "e = Mul-14 (a, k)\nb = Add-14 (e, k)\n",
        "e = Mul-14 (a, k)\nb = Add-14 (e, k)\no = Tanh-13 (b)\noutput o\n",
        "e = Mul-14 (a, k)\no = Relu-14 (e)\nb = Add-14 (e, k)\noutput o\n",
        "m = ReduceMean-18 (a, last)\nn = Sub-14 (a, m)\nb = Mul-14 (n, k)\n",
    };
    static const char *const types[] = {"f32", "f16"};
    for (size_t i = 0; i < MP_COUNT_OF(types) * MP_COUNT_OF(made); i++) {
        const char *type = types[i % 2];
        char begin[256], text[768];
        (void)snprintf(begin, sizeof begin, head, type, type, type, type);
        (void)snprintf(text, sizeof text,
                       "%sconst last i64[1] = -1\n%sc = " CONV "(a, w)\n"
                       "all = Concat-13 (c, b) axis=-1\ny = " CONV "(all, u)\noutput y\n",
                       begin, made[i / 2]);
        run(device, 2, text);
    }
}

/* A cluster may have more results than any of its nodes has values. */
DEVICE_TEST(graph_rows_within_of_many_results) {
    run(device, 0,
        "input x f32[?,?,?,16]\na = Relu-14 (x)\nb = Tanh-13 (a)\nc = Exp-13 (b)\nd = Neg-13 (c)\n"
        "output a\noutput b\noutput c\noutput d\n");
}

/* Of no images nothing is a cluster, and nodes by themselves know no rows that lie apart. */
DEVICE_TEST(graph_rows_within_of_no_images) {
    static const mp_shape none[] = {SHAPE(0, 5, 6, 16)};
    pass_check_run_by(device, "-dead,+rows_within", DENSE("f32"), none, 0, 2 + 6);
}

TEST(graph_pass_rows_within_nests) {
    static const char before[] = "input x f32[?,?,?,16]\ninput z f32[?,?,?,16]\n"
                                 "input t f32[?,?,?,16]\n";
    char from[512], to[512];
    (void)snprintf(from, sizeof from,
                   "%sa = Concat-13 (x, z) axis=3\nb = Concat-13 (x, z, t) axis=3\n"
                   "c = Concat-13 (x, z, t, t) axis=3\nd = Concat-13 (z, x, t) axis=3\n"
                   "output a\noutput b\noutput c\noutput d\n",
                   before);
    (void)snprintf(to, sizeof to,
                   "%sa = Concat-13 (x, z) axis=3\nb = Concat-13 (a, t) axis=3\n"
                   "c = Concat-13 (b, t) axis=3\nd = Concat-13 (z, x, t) axis=3\n"
                   "output a\noutput b\noutput c\noutput d\n",
                   before);
    check("+rows_within", from, to, 2);
}

/* ---- where a segment ends between a part and the whole ---- */

/* `count` numbers that are not 0 say how many rows of `more` there are. */
static const char parts_of_segments[] =
    "input x f32[1,3,4,16]\ninput more f32[1,8,4,16]\ninput numbers f32[?]\n"
    "const w f32[16,16,1,1]\nconst u f32[8,32,1,1]\nconst zero i64[1] = 0\n"
    "const one i64[1] = 1\na = " CONV "(x, w)\nn = NonZero-13 (numbers)\ns = Shape-13 (n)\n"
    "rows = Gather-13 (s, one) axis=0\nc = Slice-13 (more, zero, rows, one)\nb = " CONV
    "(c, w)\ny = Concat-13 (a, b) axis=3\nz = " CONV "(y, u)\noutput z\n";

static void give_weights(segment_bench *b, mp_graph *graph, float *data, int64_t room) {
    for (int64_t i = 0; i < room; i++) {
        data[i] = (float)(i * 7 % 11 - 5) / 8;
    }
    for (int32_t i = 0; i < graph->value_count; i++) {
        mp_value *value = &graph->values[i];
        if (value->is_constant && value->tensor.data == 0) {
            CHECK(mp_shape_count(&value->tensor.shape) <= room);
            value->device = segments_take(b, data, segments_bytes(&value->tensor));
        }
    }
}

static int run_segments(mp_device *device, const char *words, int64_t rewrites, float *out,
                        size_t size) {
    enum { ROOM = 8 * 4 * 16 };
    const mp_tensor tensors[] = {{.type = MP_F32, .shape = SHAPE(1, 3, 4, 16)},
                                 {.type = MP_F32, .shape = SHAPE(1, 8, 4, 16)},
                                 {.type = MP_F32, .shape = SHAPE(5)}};
    static const float numbers[] = {0, 1, 2, 0, 3};
    float data[ROOM];
    mp_graph *graph = NULL;
    segment_outcome result;
    segment_bench b;
    int64_t done = 0;
    segments_open(&b, device);
    CHECK_OK(mp_graph_read(parts_of_segments, &graph));
    CHECK_OK(mp_passes_run(graph, words, &done));
    CHECK_EQ_INT(done, rewrites);
    give_weights(&b, graph, data, ROOM);
    const mp_addr in[] = {segments_take(&b, data, segments_bytes(&tensors[0])),
                          segments_take(&b, data, segments_bytes(&tensors[1])),
                          segments_take(&b, numbers, sizeof numbers)};
    segments_run(&b, graph, tensors, in, &result);
    CHECK_EQ_INT(result.segments, 2);
    CHECK_EQ_INT(segments_bytes(&result.out[0]), (int64_t)size);
    segments_fetch(&b, &result, 0, out);
    segments_close(&b);
    mp_graph_destroy(graph);
    return result.steps;
}

DEVICE_TEST(graph_rows_within_of_two_segments) {
    enum { COUNT = 3 * 4 * 8 };
    float apart[COUNT], within[COUNT];
    const int before = run_segments(device, "-dead", 0, apart, sizeof apart);
    const int after = run_segments(device, "-dead,+rows_within", 2, within, sizeof within);
    CHECK_EQ_INT(after, before); /* only the second part lies there, and the first is copied */
    for (int i = 0; i < COUNT; i++) {
        CHECK(fabsf(apart[i] - within[i]) <= 1e-3f * fmaxf(1, fabsf(apart[i])));
    }
    mp_kernel_cache_drop(device);
}
