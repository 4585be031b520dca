/* constant_pass_test.c - what follows from constants is computed before anything runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_device.h"
#include "graph/pass_kit.h"
#include "graph/pass_run.h"
#include "graph/test_computer.h"
#include "op/core/kernel_cache.h"

TEST(graph_pass_fold) {
    check("-refold",
          "input x f32[2,2]\nconst a f32[2] = 1 2\nconst b f32[2,1] = 10 20\n"
          "c = Add-14 (a, b)\nd = Transpose-13 (c) perm=[1,0]\ny = Mul-14 (x, d)\noutput y\n",
          "input x f32[2,2]\nconst d f32[2,2] = 11 21 12 22\ny = Mul-14 (x, d)\noutput y\n", 2);
    /* several outputs; a table by constant indices */
    check("-refold",
          "input x f32[3]\nconst t f32[4,2] = 0 1 2 3 4 5 6 7\nconst i i64[3] = 3 0 -1\n"
          "const n i64[] = 0\ng = Gather-13 (t, i) axis=0\na, b = Split-13 (g) axis=1\n"
          "s = Squeeze-13 (b)\ny = Add-14 (x, s)\noutput y\noutput a\n",
          "input x f32[3]\nconst g f32[3,2] = 6 7 0 1 6 7\n"
          "a, b = Split-13 (g) axis=1\ns = Squeeze-13 (b)\ny = Add-14 (x, s)\noutput y\noutput a\n",
          1);
    /* an output of the graph; too large; what is dequantized; what fails; random numbers */
    LEFT_ALONE("-refold", "const a f32[2] = 1 2\nb = Neg-13 (a)\noutput b\n");
    LEFT_ALONE("-refold", "input x f32[1]\nconst a f32[1] = 1\nconst s i64[2] = 2048 2048\n"
                          "b = Expand-13 (a, s)\ny = Add-14 (x, b)\noutput y\n");
    LEFT_ALONE("-refold", "input x f32[2]\nconst q i8[2]\nconst s f32[] = 2\n"
                          "b = DequantizeLinear-13 (q, s)\ny = Add-14 (x, b)\noutput y\n");
    LEFT_ALONE("-refold", "input x f32[4]\nconst a f32[4] = 1 2 3 4\nconst s i64[1] = 3\n"
                          "b = Reshape-14 (a, s)\ny = Add-14 (x, b)\noutput y\n");
    LEFT_ALONE("-refold", "input x f32[4]\nconst a f32[4] = 1 2 3 4\n"
                          "b = RandomNormalLike-1 (a)\ny = Add-14 (x, b)\noutput y\n");
}

/* With somebody who computes; `calls`: how often that took memory. */
static void check_computed(const char *from, const char *to, int calls, bool refuses) {
    mp_graph *graph = NULL;
    mp_device *device = NULL;
    test_computer computer;
    char *text = NULL;
    int64_t done = 0;
    CHECK_OK(mp_device_get(MP_DEVICE_HOST, 0, &device));
    test_computer_open(&computer, device);
    computer.refuses = refuses;
    CHECK_OK(mp_graph_read(from, &graph));
    graph->computer = &computer.base;
    CHECK_OK(mp_passes_run(graph, "-fold,-refold", &done));
    CHECK_OK(mp_graph_write(graph, &text));
    CHECK_STR_HAS(text, to);
    CHECK_STR_HAS(to, text);
    CHECK_EQ_INT(done, calls > 0 && !refuses);
    CHECK_EQ_INT(computer.calls, calls);
    CHECK_EQ_INT((int64_t)computer.lent, 0);
    free(text);
    mp_graph_destroy(graph);
    mp_kernel_cache_drop(device);
}

#define NOT_COMPUTED(text) check_computed((text), (text), 0, false)
#define MADE_OF_CONSTANTS                                \
    "input x f16[?,2]\nconst e f16[3,2] = 1 2 3 4 5 6\n" \
    "const w f16[2,2] = 1 0 1 1\nconst two f16[] = 2\n"
#define TURNED "t = Transpose-13 (p) perm=[1,0]\ny = MatMul-13 (x, t)\noutput y\n"
#define COMPUTED \
    "input x f16[?,2]\nconst t f16[2,3] = 6 14 22 4 8 12\ny = MatMul-13 (x, t)\noutput y\n"

/* A product, and what is element-wise before and behind it, as others read it. */
TEST(graph_pass_constant_parts) {
    check_computed(MADE_OF_CONSTANTS "d = Mul-14 (e, two)\np = MatMul-13 (d, w)\n" TURNED, COMPUTED,
                   1, false);
    check_computed(MADE_OF_CONSTANTS "d = Mul-14 (e, two)\np = MatMul-13 (d, w)\n" TURNED
                                     "s = ReduceSum-13 (p) keepdims=0\nz = Neg-13 (d)\n"
                                     "r = Mul-14 (z, s)\nu = Add-14 (x, r)\noutput u\n",
                   "input x f16[?,2]\nconst t f16[2,3] = 6 14 22 4 8 12\n"
                   "const r f16[3,2] = -132 -264 -396 -528 -660 -792\n"
                   "y = MatMul-13 (x, t)\nu = Add-14 (x, r)\noutput y\noutput u\n",
                   1, false);
    /* a value that the graph gives stays, and who reads it */
    check_computed(MADE_OF_CONSTANTS "q = MatMul-13 (e, w)\nm = ReduceMax-13 (e)\n"
                                     "y = Add-14 (x, m)\noutput q\noutput y\n",
                   "input x f16[?,2]\nconst e f16[3,2] = 1 2 3 4 5 6\n"
                   "const w f16[2,2] = 1 0 1 1\nconst m f16[1,1] = 6\n"
                   "q = MatMul-13 (e, w)\ny = Add-14 (x, m)\noutput q\noutput y\n",
                   1, false);
}

TEST(graph_pass_constant_parts_leaves_others) {
    static const char *const sum = "input x f16[?,2]\nconst e f16[2] = 1 2\n"
                                   "m = ReduceMax-13 (e)\ny = Add-14 (x, m)\noutput y\n";
    check_computed(sum, sum, 1, true); /* there is no memory */
    LEFT_ALONE("-refold", sum);        /* nobody computes */
    /* nothing but what fold is for; an output; what is dequantized; random numbers; what fails */
    NOT_COMPUTED("input x f16[2]\nconst a f16[2] = 1 2\nb = Neg-13 (a)\ny = Add-14 (x, b)\n"
                 "output y\n");
    NOT_COMPUTED("const e f16[2,2] = 1 2 3 4\np = MatMul-13 (e, e)\noutput p\n");
    NOT_COMPUTED("input x f32[2]\nconst q i8[2]\nconst s f32[] = 2\n"
                 "b = DequantizeLinear-13 (q, s)\nm = ReduceMax-13 (b)\ny = Add-14 (x, m)\n"
                 "output y\n");
    NOT_COMPUTED("input x f32[4]\nconst a f32[4] = 1 2 3 4\nb = RandomNormalLike-1 (a)\n"
                 "m = ReduceMax-13 (b)\ny = Add-14 (x, m)\noutput y\n");
    NOT_COMPUTED("input x f32[3,3]\nconst a f32[3,2] = 1 2 3 4 5 6\np = MatMul-13 (a, a)\n"
                 "y = Add-14 (x, p)\noutput y\n");
    /* larger than what it is made of: 16 MiB of two columns; sizes that follow from data */
    NOT_COMPUTED("input x f32[1]\nconst a f32[1] = 2\nconst s i64[2] = 2048 1\n"
                 "const r i64[2] = 1 2048\nc = Expand-13 (a, s)\nd = Expand-13 (a, r)\n"
                 "p = MatMul-13 (c, d)\ny = Add-14 (x, p)\noutput y\n");
    NOT_COMPUTED("input x f32[1]\nconst a f32[1] = 2\nconst s i64[2] = 32768 16384\n"
                 "c = Expand-13 (a, s)\nm = ReduceMax-13 (c) keepdims=0\ny = Add-14 (x, m)\n"
                 "output y\n"); /* 2 GiB on the way */
    NOT_COMPUTED("input x f32[1]\nconst a f32[3] = 1 0 2\nn = NonZero-13 (a)\n"
                 "m = ReduceMax-13 (n)\nc = Cast-13 (m) to=1\ny = Add-14 (x, c)\noutput y\n");
}

/* Each call of the device fails in turn: the part is left, and all memory given back. */
TEST(graph_pass_constant_parts_survives_faults) {
    static const char *const from = MADE_OF_CONSTANTS "p = MatMul-13 (e, w)\n" TURNED;
    bool is_over = false;
    for (uint64_t nth = 1; !is_over; nth++) {
        const mp_host_config config = {.mode = MP_HOST_EAGER, .memory_bytes = 64 << 20};
        mp_graph *graph = NULL;
        mp_device *device = NULL;
        test_computer computer;
        int64_t done = 0;
        CHECK(nth < 100);
        CHECK_OK(mp__host_device_create(&config, &device));
        test_computer_open(&computer, device);
        CHECK_OK(mp_graph_read(from, &graph));
        graph->computer = &computer.base;
        (void)mp__host_device_fail(device, nth, MP_DEVICE);
        CHECK_OK(mp_passes_run(graph, "-fold,-refold", &done));
        is_over = mp__host_device_fail(device, 0, MP_OK);
        CHECK_EQ_INT(graph->values[mp_graph_find_value(graph, "t")].is_constant, is_over);
        CHECK_EQ_INT((int64_t)computer.lent, 0);
        mp_graph_destroy(graph);
        mp_kernel_cache_drop(device);
        CHECK_EQ_INT(mp__host_device_destroy(device), 0);
    }
}

TEST(graph_pass_constant_norm) {
    check(NULL,
          "input x f16[?,2,?,?]\nconst s f16[2] = 2 1\nconst b f16[2] = 1 0\n"
          "const m f16[2] = 3 1\nconst v f16[2] = 3 0\n"
          "n = BatchNormalization-15 (x, s, b, m, v) \"norm\" epsilon=1f\n"
          "y = Relu-14 (n)\noutput y\n",
          "input x f16[?,2,?,?]\nconst s#7 f32[2,1,1] = 1 1\nconst b#8 f32[2,1,1] = -2 -1\n"
          "n = millpond.Affine-1 (x, s#7, b#8) \"norm\"\ny = Relu-14 (n)\noutput y\n",
          1);
    check(NULL,
          "input x f64[?,1]\nconst s f32[1] = 3\nconst b f32[1] = 1\nconst m f64[1] = 2\n"
          "const v f64[1] = 8\ny = BatchNormalization-15 (x, s, b, m, v) epsilon=1f\noutput y\n",
          "input x f64[?,1]\nconst s#6 f64[1] = 1\nconst b#7 f64[1] = -1\n"
          "y = millpond.Affine-1 (x, s#6, b#7)\noutput y\n",
          1);
    /* no rank, other channels, no constants, training */
    LEFT_ALONE(NULL, "input x f32[...]\nconst s f32[2] = 2 1\n"
                     "y = BatchNormalization-15 (x, s, s, s, s)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,3]\nconst s f32[2] = 2 1\n"
                     "y = BatchNormalization-15 (x, s, s, s, s)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,2]\ninput b f32[2]\nconst s f32[2] = 2 1\n"
                     "y = BatchNormalization-15 (x, s, b, s, s)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,2]\nconst s f32[2] = 2 1\n"
                     "y = BatchNormalization-15 (x, s, s, s, s) training_mode=1\noutput y\n");
}

#define NORMED(type, w, rows, rest)                                                      \
    "input x " type "[?,3,2]\nconst w " type w "\nconst rows i64[2] = " rows             \
    "\nconst s f32[2] = 6 1\nconst b f32[2] = 1 2\nconst m f32[2] = 2 0\n"               \
    "const v f32[2] = 8 0\np = MatMul-13 (x, w) \"product\"\nf = Reshape-14 (p, rows)\n" \
    "n = BatchNormalization-15 (f, s, b, m, v) \"norm\" epsilon=1f\n" rest
#define NORMED_OUT "y = Relu-14 (n)\noutput y\n"

/* Of rows, and of the product itself; others may ask for its shape. */
TEST(graph_pass_product_norm) {
    check("-dead",
          NORMED("f32", "[2,2] = 1 2 3 4", "-1 2", "h = Shape-15 (p)\noutput h\n" NORMED_OUT),
          "input x f32[?,3,2]\nconst rows i64[2] = -1 2\nconst w#12 f32[2,2] = 2 2 6 4\n"
          "const b#13 f32[2] = -3 2\np = millpond.MatMulBias-1 (x, w#12, b#13) \"product+norm\"\n"
          "f = Reshape-14 (p, rows)\nh = Shape-15 (p)\ny = Relu-14 (f)\noutput h\noutput y\n",
          1);
    check(NULL,
          "input x f64[?,2]\nconst w f64[2,1] = 1 3\nconst s f64[1] = 6\nconst b f64[1] = 1\n"
          "const m f64[1] = 2\nconst v f64[1] = 8\np = MatMul-13 (x, w)\n"
          "n = BatchNormalization-15 (p, s, b, m, v) epsilon=1f\ny = Neg-13 (n)\noutput y\n",
          "input x f64[?,2]\nconst w#9 f64[2,1] = 2 6\nconst b#10 f64[1] = -3\n"
          "p = millpond.MatMulBias-1 (x, w#9, b#10) \"+\"\ny = Neg-13 (p)\noutput y\n",
          1);
    /* short elements, other columns, a product that others read, numbers that are none */
#define ALONE(...) LEFT_ALONE("-constant_norm", NORMED(__VA_ARGS__))
    ALONE("f16", "[2,2] = 1 2 3 4", "-1 2", NORMED_OUT);
    ALONE("f32", "[2,4] = 1 2 3 4 5 6 7 8", "-1 2", NORMED_OUT);
    ALONE("f32", "[2,2] = 1 2 3 4", "-1 2", NORMED_OUT "output p\n");
    ALONE("f32", "[2,2] = 1 2 3 4", "-1 2",
          "z = Neg-13 (f)\ny = Relu-14 (n)\noutput z\noutput y\n");
    ALONE("f32", "[2,2] = 1 2 3 4", "-1 2", "output n\n");
}

DEVICE_TEST(product_norm_keeps_results) {
    const mp_shape some[] = {SHAPE(5, 3, 2)};
    const mp_shape none[] = {SHAPE(0, 3, 2)};
    pass_check_run(device, NORMED("f32", "[2,2] = 1 2 3 4", "-1 2", NORMED_OUT), some, 1e-5, 1);
    pass_check_run(device, NORMED("f64", "[2,2] = 1 2 3 4", "-1 2", NORMED_OUT), some, 1e-9, 1);
    pass_check_run(device, NORMED("f32", "[2,2] = 1 2 3 4", "-1 2", NORMED_OUT), none, 0, 1);
}

DEVICE_TEST(constant_passes_keep_results) {
    static const char *const norms =
        "input x f32[?,2,?,?]\ninput z f16[?,2]\nconst s f32[2] = 2 1\nconst b f32[2] = 1 0\n"
        "const m f32[2] = 0.5 -1\nconst v f32[2] = 0.25 2\n"
        "n = BatchNormalization-9 (x, s, b, m, v)\ny = Relu-14 (n)\n"
        "t = BatchNormalization-15 (z, s, b, m, v)\noutput y\noutput t\n";
    static const char *const numbers =
        "input x f32[2,2]\nconst a f32[2] = 1 2\nconst b f32[2,1] = 10 20\n"
        "c = Add-14 (a, b)\nd = Transpose-13 (c) perm=[1,0]\ny = Mul-14 (x, d)\noutput y\n";
    const mp_shape image[] = {SHAPE(3, 2, 5, 7), SHAPE(9, 2)};
    const mp_shape none[] = {SHAPE(0, 2, 5, 7), SHAPE(1, 2)};
    const mp_shape square[] = {SHAPE(2, 2)};
    pass_check_run(device, norms, image, 2e-3, 2);
    pass_check_run(device, norms, none, 2e-3, 2);
    pass_check_run(device, numbers, square, 0, 2);
    const mp_shape rows[] = {SHAPE(5, 2)};
    pass_check_run(device, MADE_OF_CONSTANTS "d = Mul-14 (e, two)\np = MatMul-13 (d, w)\n" TURNED,
                   rows, 1e-3, 1);
    pass_check_run(device,
                   "input x f16[?,96]\nconst v f16[96,128]\nconst g f16[1,128]\n"
                   "n = ReduceL2-18 (v) keepdims=1\nq = Div-14 (v, n)\nw = Mul-14 (q, g)\n"
                   "y = MatMul-13 (x, w)\noutput y\n",
                   (mp_shape[]){SHAPE(7, 96)}, 2e-2, 1);
}
