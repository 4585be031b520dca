/* quantized_pass_test.c - what is between quantised tensors is computed by integers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define SCALES "const s f32[] = 0.5\nconst z i8[] = 3\nconst t f32[] = 2\nconst o i8[] = -1\n"

TEST(graph_pass_byte_moves) {
    check(NULL,
          "input x i8[2,3]\n" SCALES "a = DequantizeLinear-13 (x, s, z)\n"
          "b = Transpose-13 (a) \"turn\" perm=[1,0]\ny = QuantizeLinear-13 (b, s, z)\noutput y\n",
          "input x i8[2,3]\n"
          "y = Transpose-13 (x) \"turn\" perm=[1,0]\n"
          "output y\n",
          1);
    /* back to what it was */
    check(NULL,
          "input x i8[2,3]\n" SCALES "a = DequantizeLinear-13 (x, s, z)\n"
          "b = QuantizeLinear-13 (a, s, z)\ny = DequantizeLinear-13 (b, s, z) \"last\"\noutput y\n",
          "input x i8[2,3]\nconst s f32[] = 0.5\nconst z i8[] = 3\n"
          "y = DequantizeLinear-13 (x, s, z) \"last\"\noutput y\n",
          1);
    /* another scale */
    check(NULL,
          "input x i8[2,3]\n" SCALES "a = DequantizeLinear-13 (x, s, z)\n"
          "b = Transpose-13 (a) \"turn\" perm=[1,0]\ny = QuantizeLinear-13 (b, t, z)\noutput y\n",
          "input x i8[2,3]\n"
          "const s f32[] = 0.5\n"
          "const z i8[] = 3\n"
          "const t f32[] = 2\n"
          "a = DequantizeLinear-13 (x, s, z)\n"
          "b = Transpose-13 (a) \"turn\" perm=[1,0]\n"
          "y = QuantizeLinear-13 (b, t, z)\n"
          "output y\n",
          0);
}

TEST(graph_pass_byte_conv) {
    check("+byte_conv",
          "input x i8[1,2,4,4]\ninput r i8[1,1,4,4]\n" SCALES
          "const w i8[1,2,1,1] = 4 -5\nconst v f32[] = 0.25\nconst n i8[] = 0\n"
          "const b f32[1] = 2\n"
          "a = DequantizeLinear-13 (x, s, z)\nc = DequantizeLinear-13 (w, v, n)\n"
          "d = Conv-11 (a, c, b) \"conv\"\ne = Relu-14 (d)\ny = QuantizeLinear-13 (e, t, o)\n"
          "output y\n",
          "input x i8[1,2,4,4]\n"
          "input r i8[1,1,4,4]\n"
          "const #15 i8[1,1,1,2] = 4 -5\n"
          "const #16 i32[1] = 19\n"
          "const #17 f32[1] = 0.0625\n"
          "x#18 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "y#19 = millpond.IntegerProduct-1 (x#18, #15, #16, #17, , , , , ) \"conv\" to=3 zero=-1 "
          "low=-1 padding=3\n"
          "y = Transpose-13 (y#19) \"y\" perm=[0,3,1,2]\n"
          "output y\n",
          3);
    /* in one node each; what is quantised without a zero point has a type that is not known here */
#define LINEAR(last)                                                                            \
    "input x i8[1,2,4,4]\ninput r i8[1,1,4,4]\n" SCALES                                         \
    "const w i8[1,2,1,1] = 4 -5\nconst v f32[] = 0.25\nconst n i8[] = 0\nconst b i32[1] = 16\n" \
    "c = QLinearConv-10 (x, s, z, w, v, n, t, o, b) \"conv\"\n" last
    check("+byte_conv", LINEAR("y = Neg-13 (c)\noutput y\n"),
          "input x i8[1,2,4,4]\ninput r i8[1,1,4,4]\nconst #12 i8[1,1,1,2] = 4 -5\n"
          "const #13 i32[1] = 19\nconst #14 f32[1] = 0.0625\n"
          "x#15 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "c#16 = millpond.IntegerProduct-1 (x#15, #12, #13, #14, , , , , ) \"conv\" to=3 zero=-1 "
          "padding=3\nc = Transpose-13 (c#16) \"c\" perm=[0,3,1,2]\n"
          "y = Neg-13 (c)\noutput y\n",
          1);
    check("+byte_conv",
          LINEAR("y = com.microsoft.QLinearAdd-1 (c, t, o, r, s, z, t, ) \"sum\"\noutput y\n"),
          "input x i8[1,2,4,4]\ninput r i8[1,1,4,4]\n" SCALES
          "const #12 i8[1,1,1,2] = 4 -5\nconst #13 i32[1] = 19\nconst #14 f32[1] = 0.0625\n"
          "x#15 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "c#16 = millpond.IntegerProduct-1 (x#15, #12, #13, #14, , , , , ) \"conv\" to=3 zero=-1 "
          "padding=3\nc = Transpose-13 (c#16) \"c\" perm=[0,3,1,2]\n"
          "y = com.microsoft.QLinearAdd-1 (c, t, o, r, s, z, t) \"sum\"\noutput y\n",
          1);
    /* a scale whose share of another is no float */
    LEFT_ALONE("+byte_conv,-dequantized",
               "input x i8[1,2,4,4]\nconst s f32[] = 1.00000002e+30\nconst z i8[] = 0\n"
               "const w i8[1,2,1,1] = 4 -5\n"
               "a = DequantizeLinear-13 (x, s, z)\nc = DequantizeLinear-13 (w, s, z)\n"
               "y = Conv-11 (a, c) \"conv\"\noutput y\n");
    /* weights with a zero point */
    LEFT_ALONE("+byte_conv,-dequantized",
               "input x i8[1,2,4,4]\n"
               "const s f32[] = 0.5\nconst z i8[] = 3\nconst t f32[] = 2\n"
               "const w i8[1,2,1,1] = 4 -5\n"
               "a = DequantizeLinear-13 (x, s, z)\nc = DequantizeLinear-13 (w, t, z)\n"
               "y = Conv-11 (a, c) \"conv\"\noutput y\n");
}

TEST(graph_pass_byte_product) {
    check("+byte_product",
          "input x u8[?,2]\nconst s f32[] = 0.5\nconst z u8[] = 3\nconst t f32[] = 2\n"
          "const w i8[2,3] = 1 2 3 4 5 6\nconst v f32[3] = 0.25 0.5 1\nconst n i8[3] = 0 0 0\n"
          "const b i8[3] = 1 2 3\nconst o i8[] = 1\n"
          "a = DequantizeLinear-13 (x, s, z)\nc = DequantizeLinear-13 (w, v, n) axis=1\n"
          "d = MatMul-13 (a, c) \"product\"\ne = QuantizeLinear-13 (d, t, z)\n"
          "f = DequantizeLinear-13 (e, t, z)\ng = DequantizeLinear-13 (b, s, o)\n"
          "h = Add-14 (f, g) \"bias\"\ny = QuantizeLinear-13 (h, s, z)\noutput y\n",
          "input x u8[?,2]\n"
          "const #17 i8[3,2] = 1 4 2 5 3 6\n"
          "const #18 i32[3] = -15 -21 -27\n"
          "const #19 f32[3] = 0.0625 0.125 0.25\n"
          "const #20 f32[3] = 0 0.5 1\n"
          "y = millpond.IntegerProduct-1 (x, #17, #18, #19, , , , , #20) \"product\" to=2 zero=3 "
          "between=2 sum=...\n"
          "output y\n",
          4);
    check("+byte_product",
          "input x u8[?,2]\ninput z u8[]\ninput s f32[]\nconst w i8[2,3] = 1 2 3 4 5 6\n"
          "const v f32[] = 0.5\nconst b f32[3] = 1 2 3\nq = Mul-14 (s, v) \"scale\"\n"
          "a = MatMulInteger-10 (x, w, z) \"product\"\nc = Cast-13 (a) to=1\n"
          "d = Mul-14 (c, q)\ny = Add-14 (b, d) \"bias\"\noutput y\n",
          "input x u8[?,2]\n"
          "input z u8[]\n"
          "input s f32[]\n"
          "const v f32[] = 0.5\n"
          "const b f32[3] = 1 2 3\n"
          "const w#11 i8[3,2] = 1 4 2 5 3 6\n"
          "const #12 i32[3] = 5 7 9\n"
          "y = millpond.IntegerProduct-1 (x, w#11, , v, , z, #12, s, b) \"product\" to=1\n"
          "output y\n",
          2);
}

TEST(graph_pass_byte_product_in_one_node) {
    check(
        "+byte_product",
        "input x u8[?,2]\nconst s f32[] = 0.5\nconst z u8[] = 3\n"
        "const w i8[2,3] = 1 2 3 4 5 6\nconst v f32[3] = 0.25 0.5 1\nconst n i8[3] = 0 0 0\n"
        "const t f32[] = 2\ny = QLinearMatMul-10 (x, s, z, w, v, n, t, z) \"product\"\noutput y\n",
        "input x u8[?,2]\nconst #8 i8[3,2] = 1 4 2 5 3 6\nconst #9 i32[3] = -15 -21 -27\n"
        "const #10 f32[3] = 0.0625 0.125 0.25\n"
        "y = millpond.IntegerProduct-1 (x, #8, #9, #10, , , , , ) \"product\" to=2 zero=3\n"
        "output y\n",
        1);
    /* weights of uint8 */
    LEFT_ALONE("+byte_product",
               "input x u8[?,2]\nconst s f32[] = 0.5\nconst z u8[] = 3\nconst w u8[2,1] = 1 2\n"
               "y = QLinearMatMul-10 (x, s, z, w, s, z, s, z) \"product\"\noutput y\n");
}

TEST(graph_pass_dequantized) {
    check(NULL,
          "input x f32[?,2]\nconst w i8[2,2] = 1 2 3 4\nconst s f32[2] = 1 0.5\n"
          "const z i8[2] = 0 1\nc = DequantizeLinear-13 (w, s, z) axis=0\n"
          "y = MatMul-13 (x, c) \"product\"\noutput y\n",
          "input x f32[?,2]\n"
          "const c f32[2,2] = 1 2 1 1.5\n"
          "y = MatMul-13 (x, c) \"product\"\n"
          "output y\n",
          1);
}

#define JOINED                                                                      \
    "input x u8[2,3]\ninput z u8[2,4]\nconst s f32[] = 0.5\nconst t f32[] = 0.25\n" \
    "const o u8[] = 3\n"

/* What has the scale of all is joined as it is. */
TEST(graph_pass_byte_concat) {
    check(NULL,
          JOINED "y = com.microsoft.QLinearConcat-1 (s, o, x, s, o, z, t, o) \"all\" axis=1\n"
                 "output y\n",
          "input x u8[2,3]\n"
          "input z u8[2,4]\n"
          "const s f32[] = 0.5\n"
          "const t f32[] = 0.25\n"
          "const o u8[] = 3\n"
          "z#8 = DequantizeLinear-13 (z, t, o) \"all\"\n"
          "z#9 = QuantizeLinear-13 (z#8, s, o) \"all\"\n"
          "y = Concat-13 (x, z#9) \"all\" axis=1\n"
          "output y\n",
          2);
    check(NULL,
          JOINED
          "a = DequantizeLinear-13 (x, s, o)\nb = DequantizeLinear-13 (z, t, o)\n"
          "c = Concat-13 (a, b) \"all\" axis=-1\ny = QuantizeLinear-13 (c, s, o)\noutput y\n",
          "input x u8[2,3]\n"
          "input z u8[2,4]\n"
          "const s f32[] = 0.5\n"
          "const t f32[] = 0.25\n"
          "const o u8[] = 3\n"
          "b = DequantizeLinear-13 (z, t, o)\n"
          "b#10 = QuantizeLinear-13 (b, s, o)\n"
          "y = Concat-13 (x, b#10) \"all\" axis=-1\n"
          "output y\n",
          2);
    /* integers of another scale that others read, too: floats are made of them once */
    LEFT_ALONE(NULL, JOINED "a = DequantizeLinear-13 (x, s, o)\nb = DequantizeLinear-13 (z, t, o)\n"
                            "c = Concat-13 (a, b) axis=-1\ny = QuantizeLinear-13 (c, s, o)\n"
                            "output y\noutput z\n");
    check(NULL,
          JOINED "y = com.microsoft.QLinearConcat-1 (s, o, x, s, o, z, t, o) \"all\" axis=1\n"
                 "output y\noutput z\n",
          "input x u8[2,3]\ninput z u8[2,4]\nconst s f32[] = 0.5\nconst t f32[] = 0.25\n"
          "const o u8[] = 3\nx#6 = DequantizeLinear-13 (x, s, o) \"all\"\n"
          "z#7 = DequantizeLinear-13 (z, t, o) \"all\"\n"
          "y#8 = Concat-13 (x#6, z#7) \"all\" axis=1\n"
          "y = QuantizeLinear-13 (y#8, s, o) \"all\"\n"
          "output y\noutput z\n",
          1);
    /* of floats, and what others read as floats */
    LEFT_ALONE(NULL, "input x u8[2,3]\ninput f f32[2,4]\nconst s f32[] = 0.5\nconst o u8[] = 3\n"
                     "a = DequantizeLinear-13 (x, s, o)\nc = Concat-13 (a, f) axis=1\n"
                     "y = QuantizeLinear-13 (c, s, o)\noutput y\n");
    LEFT_ALONE(NULL, JOINED "a = DequantizeLinear-13 (x, s, o)\nb = DequantizeLinear-13 (z, t, o)\n"
                            "c = Concat-13 (a, b) axis=-1\ny = QuantizeLinear-13 (c, s, o)\n"
                            "output y\noutput c\n");
}
