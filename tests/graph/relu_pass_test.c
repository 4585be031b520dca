/* relu_pass_test.c - attention without a softmax over an image's pixels becomes one node.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

/* As EfficientViT of timm has it behind ONNX Runtime's own rewrites: two heads, 3 x 2 pixels.
 * Values that a Reshape makes have the dimensions that the list says. */
#define NUMBERS_WITH(one)                                                                      \
    "const four i64[4] = 1 2 48 6\nconst back i64[4] = 1 32 3 2\nconst d0 i64[1] = 0\n"        \
    "const d1 i64[1] = 16\nconst d2 i64[1] = 32\nconst d3 i64[1] = 48\nconst two i64[1] = 2\n" \
    "const three i64[1] = 3\nconst end i64[1] = -1\nconst far i64[1] = 9223372036854775807\n"  \
    "const pads i64[8] = 0 0 0 0 0 0 0 1\nconst one " one "[] = 1\nconst small f32[] = 0.25\n"
#define NUMBERS NUMBERS_WITH("f32")
#define HEADS_OF(cut)                                                          \
    "f = Transpose-13 (x) perm=[0,3,1,2]\nl = Reshape-14 (f, four)\n"          \
    "r = Transpose-13 (l) perm=[0,1,3,2]\nv = Slice-13 (r, d2, d3, three)\n"   \
    "ones = Pad-13 (v, pads, one)\nk = Slice-13 (" cut ")\nkr = Relu-14 (k)\n" \
    "q = Slice-13 (r, d0, d1, three)\nqr = Relu-14 (q)\nm = MatMul-13 (kr, ones)\n"
#define HEADS HEADS_OF("l, d1, d2, two")
#define DIVIDED                                                                         \
    "p = MatMul-13 (qr, m)\nw = Slice-13 (p, end, far, three)\ns = Add-14 (w, small)\n" \
    "n = Slice-13 (p, d0, end, three)\nd = Div-14 (n, s) \"attention\"\n"               \
    "t = Transpose-13 (d) perm=[0,1,3,2]\ng = Reshape-14 (t, back)\n"                   \
    "y = Transpose-13 (g) perm=[0,2,3,1]\noutput y\n"
#define IMAGE "input x f32[1,3,2,96]\n"
#define PAIR  "input a f32[1,3,2,48]\ninput b f32[1,3,2,48]\n"

DEVICE_TEST(find_relu_attention_keeps_results) {
    const mp_shape one[] = {SHAPE(1, 3, 2, 96)};
    const mp_shape two[] = {SHAPE(1, 3, 2, 48), SHAPE(1, 3, 2, 48)};
    pass_check_run(device, IMAGE NUMBERS HEADS DIVIDED, one, 1e-5, 1);
    pass_check_run(device, PAIR NUMBERS "x = Concat-13 (a, b) axis=3\n" HEADS DIVIDED, two, 1e-5,
                   1);
}

/* Halves whose products are floats, as timm has them. */
#define HALF_HEADS                                                                            \
    "f = Transpose-13 (x) perm=[0,3,1,2]\nl = Reshape-14 (f, four)\n"                         \
    "r = Transpose-13 (l) perm=[0,1,3,2]\nv = Slice-13 (r, d2, d3, three)\n"                  \
    "ones = Pad-13 (v, pads, one)\nof = Cast-13 (ones) to=1\nk = Slice-13 (l, d1, d2, two)\n" \
    "kr = Relu-14 (k)\nkf = Cast-13 (kr) to=1\nq = Slice-13 (r, d0, d1, three)\n"             \
    "qh = Relu-14 (q)\nqr = Cast-13 (qh) to=1\nm = MatMul-13 (kf, of)\n"
#define HALF_DIVIDED(to)                                                                \
    "p = MatMul-13 (qr, m)\nw = Slice-13 (p, end, far, three)\ns = Add-14 (w, small)\n" \
    "n = Slice-13 (p, d0, end, three)\nd = Div-14 (n, s) \"attention\"\n"               \
    "h = Cast-13 (d) to=" to "\nt = Transpose-13 (h) perm=[0,1,3,2]\n"                  \
    "g = Reshape-14 (t, back)\ny = Transpose-13 (g) perm=[0,2,3,1]\noutput y\n"
#define HALF_IMAGE "input x f16[1,3,2,96]\n"

DEVICE_TEST(find_relu_attention_of_halves_keeps_results) {
    const mp_shape one[] = {SHAPE(1, 3, 2, 96)};
    pass_check_run(device, HALF_IMAGE NUMBERS_WITH("f16") HALF_HEADS HALF_DIVIDED("10"), one, 2e-3,
                   1);
}

#define ATTENDED(in) \
    "y = millpond.nhwc.ReluAttention-1 (" in ") \"attention\" epsilon=0.25f size=16\n"

TEST(graph_pass_find_relu_attention) {
    check(NULL, IMAGE NUMBERS HEADS DIVIDED, IMAGE ATTENDED("x") "output y\n", 1);
    check(NULL, PAIR NUMBERS "x = Concat-13 (a, b) axis=3\n" HEADS DIVIDED,
          PAIR ATTENDED("a, b") "output y\n", 1);
    check(NULL, HALF_IMAGE NUMBERS_WITH("f16") HALF_HEADS HALF_DIVIDED("10"),
          HALF_IMAGE ATTENDED("x") "output y\n", 1);
    LEFT_ALONE(NULL, HALF_IMAGE NUMBERS_WITH("f16") HALF_HEADS HALF_DIVIDED("16"));
    /* what others read; another part of the heads */
    LEFT_ALONE(NULL, IMAGE NUMBERS HEADS DIVIDED "output d\n");
    LEFT_ALONE(NULL, IMAGE NUMBERS HEADS_OF("l, d2, d3, two") DIVIDED);
}
