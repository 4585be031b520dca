/* plain_pass_test.c - what ONNX Runtime's tools have fused, written out again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define PRODUCT(attrs) \
    "input x f32[2,5,8]\ninput z f32[2,7,8]\ny = com.microsoft.FusedMatMul-1 (x, z) \"p\" " attrs

TEST(graph_pass_plain_product) {
    check("-matmul_epilogue", PRODUCT("alpha=0.5f transB=1\noutput y\n"),
          "input x f32[2,5,8]\n"
          "input z f32[2,7,8]\n"
          "const alpha f32[] = 0.5\n"
          "z#3 = Transpose-13 (z) \"p\" perm=[0,2,1]\n"
          "y#4 = MatMul-13 (x, z#3) \"p\"\n"
          "y = Mul-14 (y#4, alpha) \"p\"\n"
          "output y\n",
          1);
    check("-matmul_epilogue",
          "input x f16[8,5]\ninput z f16[8,7]\n"
          "y = com.microsoft.TransposeMatMul-1 (x, z) \"p\" transA=1\noutput y\n",
          "input x f16[8,5]\n"
          "input z f16[8,7]\n"
          "x#3 = Transpose-13 (x) \"p\" perm=[1,0]\n"
          "y = MatMul-13 (x#3, z) \"p\"\n"
          "output y\n",
          1);
    /* what no other pass wants is as it was */
    check(NULL, PRODUCT("alpha=0.5f transA=0 transB=1\noutput y\n"),
          "input x f32[2,5,8]\n"
          "input z f32[2,7,8]\n"
          "y = com.microsoft.FusedMatMul-1 (x, z) \"p+p\" alpha=0.5f transB=1\n"
          "output y\n",
          2);
}

TEST(graph_pass_plain_product_leaves_what_does_not_fit) {
    LEFT_ALONE("-matmul_epilogue", PRODUCT("transBatchB=1 transB=1\noutput y\n"));
    LEFT_ALONE("-matmul_epilogue", "input x f64[2,8]\ninput z f64[8,5]\n"
                                   "y = com.microsoft.FusedMatMul-1 (x, z) alpha=0.5f\noutput y\n");
    LEFT_ALONE("-matmul_epilogue", "input x f32[2,8]\ninput z f32[...]\n"
                                   "y = com.microsoft.FusedMatMul-1 (x, z) transB=1\noutput y\n");
}

/* Scores as ONNX Runtime saves them. */
TEST(graph_pass_plain_product_in_attention) {
    check(NULL,
          "input x f32[2,4,5,8]\ninput z f32[2,4,7,8]\ninput v f32[2,4,7,8]\n"
          "s = com.microsoft.FusedMatMul-1 (x, z) \"p\" alpha=0.5f transB=1\n"
          "w = Softmax-13 (s) \"w\" axis=-1\ny = MatMul-13 (w, v) \"q\"\noutput y\n",
          "input x f32[2,4,5,8]\n"
          "input z f32[2,4,7,8]\n"
          "input v f32[2,4,7,8]\n"
          "const alpha f32[] = 0.5\n"
          "y = millpond.Attention-1 (x, z, v, , alpha) \"p+w+q\"\n"
          "output y\n",
          2);
}

TEST(graph_pass_plain_gelu) {
    check(NULL, "input x f32[2,8]\ny = com.microsoft.Gelu-1 (x) \"g\"\noutput y\n",
          "input x f32[2,8]\n"
          "y = Gelu-20 (x) \"g\"\n"
          "output y\n",
          1);
    check(NULL,
          "input x f32[2,8]\ninput b f32[8]\ny = com.microsoft.BiasGelu-1 (x, b) \"g\"\noutput y\n",
          "input x f32[2,8]\n"
          "input b f32[8]\n"
          "x#3 = Add-14 (x, b) \"g\"\n"
          "y = Gelu-20 (x#3) \"g\"\n"
          "output y\n",
          1);
    check(NULL, "input x f32[2,8]\ny = com.microsoft.FastGelu-1 (x) \"g\"\noutput y\n",
          "input x f32[2,8]\n"
          "y = Gelu-20 (x) \"g\" approximate=\"tanh\"\n"
          "output y\n",
          1);
    /* the row is the product's then */
    check("-gemm_epilogue",
          "input x f32[2,8]\nconst w f32[8,6]\nconst b f32[6]\np = MatMul-13 (x, w) \"p\"\n"
          "y = com.microsoft.FastGelu-1 (p, b) \"g\"\noutput y\n",
          "input x f32[2,8]\n"
          "const w f32[8,6]\n"
          "const b f32[6]\n"
          "p#5 = millpond.MatMulBias-1 (x, w, b) \"p+g\"\n"
          "y = Gelu-20 (p#5) \"g\" approximate=\"tanh\"\n"
          "output y\n",
          2);
}

#define CONV                                                                          \
    "input x f32[1,2,4,4]\nconst w f32[3,1,1,2] = 1 2 3 4 5 6\nl = Transpose-13 (x) " \
    "perm=[0,2,3,1]\n"                                                                \
    "c = com.microsoft.NhwcConv-1 (l, w) \"c\"\n"

TEST(graph_pass_plain_conv) {
    check(NULL, CONV "t = Transpose-13 (c) perm=[0,3,1,2]\ny = Relu-14 (t)\noutput y\n",
          "input x f32[1,2,4,4]\n"
          "const w#6 f32[3,2,1,1] = 1 2 3 4 5 6\n"
          "y = millpond.FusedConv-1 (x, w#6) \"c+\" activation=\"Relu\"\n"
          "output y\n",
          4);
    LEFT_ALONE(NULL, CONV "y = Relu-14 (c)\noutput y\n");
    check("+plain_conv -channels_last", CONV "y = Relu-14 (c)\noutput y\n",
          "input x f32[1,2,4,4]\n"
          "const w#5 f32[3,2,1,1] = 1 2 3 4 5 6\n"
          "c#7 = Conv-11 (x, w#5) \"c\"\n"
          "c = Transpose-13 (c#7) \"c\" perm=[0,2,3,1]\n"
          "y = Relu-14 (c)\n"
          "output y\n",
          2);
}

/* What is added to the result is added before that is turned, by the convolution itself. */
TEST(graph_pass_plain_conv_and_a_sum) {
    check("+plain_conv -channels_last",
          "input x f32[1,2,4,4]\ninput z f32[1,3,4,4]\nconst w f32[3,1,1,2] = 1 2 3 4 5 6\n"
          "l = Transpose-13 (x) perm=[0,2,3,1]\nm = Transpose-13 (z) perm=[0,2,3,1]\n"
          "c = com.microsoft.NhwcConv-1 (l, w) \"c\"\ns = Add-14 (c, m) \"sum\"\n"
          "y = Sin-7 (s)\noutput y\n",
          "input x f32[1,2,4,4]\n"
          "input z f32[1,3,4,4]\n"
          "const w#8 f32[3,2,1,1] = 1 2 3 4 5 6\n"
          "s#11 = millpond.FusedConv-1 (x, w#8, , z) \"c+sum\"\n"
          "s = Transpose-13 (s#11) \"sum\" perm=[0,2,3,1]\n"
          "y = Sin-7 (s)\n"
          "output y\n",
          4);
}

/* Slices that ONNX Runtime has made one Split. */
TEST(graph_pass_find_roll_of_a_split) {
    check(NULL,
          "input x f32[2,8]\nconst s i64[2] = 3 5\na, b = Split-13 (x, s) axis=1\n"
          "y = Concat-13 (b, a) \"roll\" axis=1\noutput y\n",
          "input x f32[2,8]\n"
          "y = millpond.Roll-1 (x) \"roll\" axes=[1] starts=[3]\n"
          "output y\n",
          1);
    LEFT_ALONE("-join_pieces",
               "input x f32[2,9]\nconst s i64[3] = 3 5 1\na, b, c = Split-13 (x, s) axis=1\n"
               "y = Concat-13 (b, a) axis=1\noutput y\noutput c\n");
}

#define ROWS(shape, back)                                                                 \
    "input x f32" shape "\nconst rows i64[2] = 6 2\nconst w f32[4,2] = 1 2 3 4 5 6 7 8\n" \
    "const b f32[4] = 1 2 3 4\nconst back i64" back "\nf = Reshape-14 (x, rows)\n"        \
    "p = Gemm-13 (f, w, b) \"fc\" transB=1\n"

TEST(graph_pass_unflatten_transposed) {
    check(NULL, ROWS("[2,3,2]", "[3] = 2 3 4") "y = Reshape-14 (p, back) \"back\"\noutput y\n",
          "input x f32[2,3,2]\n"
          "const b f32[4] = 1 2 3 4\n"
          "const w#8 f32[2,4] = 1 3 5 7 2 4 6 8\n"
          "y = millpond.MatMulBias-1 (x, w#8, b) \"fc\"\n"
          "output y\n",
          1);
    /* a matrix that others read is not there twice */
    LEFT_ALONE(NULL,
               ROWS("[2,3,2]", "[3] = 2 3 4") "y = Reshape-14 (p, back)\noutput y\noutput w\n");
}

/* Sizes of the rows are those that they had. */
TEST(graph_pass_unflatten_to_sizes_of_rows) {
    check(NULL,
          "input x f32[?,?,2]\nconst rows i64[2] = -1 2\nconst w f32[2,4]\nconst four i64[1] = 4\n"
          "const i i64[] = 0\nconst j i64[] = 1\nconst axes i64[1] = 0\ns = Shape-15 (x)\n"
          "b = Gather-13 (s, i) axis=0\nc = Gather-13 (s, j) axis=0\nd = Unsqueeze-13 (b, axes)\n"
          "e = Unsqueeze-13 (c, axes)\nl = Concat-13 (d, e, four) axis=0\n"
          "f = Reshape-14 (x, rows)\np = Gemm-13 (f, w) \"fc\"\ny = Reshape-14 (p, l)\noutput y\n",
          "input x f32[?,?,2]\n"
          "const w f32[2,4]\n"
          "y = MatMul-13 (x, w) \"fc\"\n"
          "output y\n",
          1);
    /* and others */
    LEFT_ALONE(NULL, "input x f32[?,?,2]\ninput l i64[3]\nconst rows i64[2] = -1 2\n"
                     "const w f32[2,4]\nf = Reshape-14 (x, rows)\np = Gemm-13 (f, w)\n"
                     "y = Reshape-14 (p, l)\noutput y\n");
}

TEST(graph_pass_unflatten_rows_of_windows) {
    check(NULL,
          ROWS("[1,2,3,2]",
               "[4] = 2 3 2 2") "y = Reshape-14 (p, back) \"back\"\noutput y\n"
                                "const v f32[4,2] = 1 2 3 4 5 6 7 8\nq = Gemm-13 (f, v, b) "
                                "\"more\" transB=1\nz = Reshape-14 (q, back) \"again\"\noutput z\n",
          "input x f32[1,2,3,2]\n"
          "const b f32[4] = 1 2 3 4\n"
          "const back i64[4] = 2 3 2 2\n"
          "const #11 i64[3] = 2 3 2\n"
          "const w#13 f32[2,4] = 1 3 5 7 2 4 6 8\n"
          "const v#15 f32[2,4] = 1 3 5 7 2 4 6 8\n"
          "x#12 = Reshape-13 (x, #11) \"x\"\n"
          "p#14 = millpond.MatMulBias-1 (x#12, w#13, b) \"fc\"\n"
          "y = Reshape-14 (p#14, back) \"back\"\n"
          "q#16 = millpond.MatMulBias-1 (x#12, v#15, b) \"more\"\n"
          "z = Reshape-14 (q#16, back) \"again\"\n"
          "output y\n"
          "output z\n",
          2);
}

TEST(graph_pass_join_residual_before_simplified_normalization) {
    check(NULL,
          "input x f32[2,3,8]\ninput z f32[2,3,8]\nconst g f32[8]\ns = Add-14 (x, z) \"sum\"\n"
          "y = SimplifiedLayerNormalization-1 (s, g) \"norm\" axis=-1 epsilon=0.5f\n"
          "output y\noutput s\n",
          "input x f32[2,3,8]\n"
          "input z f32[2,3,8]\n"
          "const g f32[8]\n"
          "y, , , s = millpond.SkipSimplifiedLayerNormalization-1 (x, z, g) \"sum+norm\" "
          "epsilon=0.5f\n"
          "output y\n"
          "output s\n",
          1);
}

#define PARTS(rows)                                                                         \
    "input x f32[2,3,2]\nconst w f32[2,4] = 1 2 3 4 5 6 7 8\nconst s i64[3] = 2 1 1\n" rows \
    "p = MatMul-13 (x, w) \"product\"\n"
#define FIRST_ROW "const a f32[2] = 1 2\n"
#define LAST_ROW  "const c f32[1] = 3\n"

/* What onnxsim makes of three products of one input. */
TEST(graph_pass_split_bias) {
    check(
        "-bias",
        PARTS(FIRST_ROW LAST_ROW) "q, k, v = Split-18 (p, s) axis=-1\ni = Add-14 (a, q) \"first\"\n"
                                  "y = Relu-14 (i)\nj = Add-14 (v, c) \"last\"\nz = Exp-13 (j)\n"
                                  "output y\noutput k\noutput z\n",
        "input x f32[2,3,2]\n"
        "const w f32[2,4] = 1 2 3 4 5 6 7 8\n"
        "const s i64[3] = 2 1 1\n"
        "const rows f32[4] = 1 2 0 3\n"
        "p = MatMul-13 (x, w) \"product\"\n"
        "p#14 = Add-14 (p, rows) \"first\"\n"
        "q, k, v = Split-18 (p#14, s) axis=-1\n"
        "y = Relu-14 (q)\n"
        "z = Exp-13 (v)\n"
        "output y\n"
        "output k\n"
        "output z\n",
        1);
    /* sizes whose sum is another number, what others read as it was, another row, a row of an
     * output */
    LEFT_ALONE("-bias", "input x f32[2,3,2]\nconst w f32[2,4] = 1 2 3 4 5 6 7 8\n"
                        "const s i64[3] = 9223372036854775807 9223372036854775807 6\n"
                        "const c f32[6] = 1 2 3 4 5 6\np = MatMul-13 (x, w)\n"
                        "q, k, v = Split-18 (p, s) axis=-1\nj = Add-14 (v, c)\nz = Exp-13 (j)\n"
                        "output q\noutput k\noutput z\n");
    LEFT_ALONE("-bias",
               PARTS(FIRST_ROW) "q, k, v = Split-18 (p, s) axis=-1\ni = Add-14 (a, q)\n"
                                "y = Relu-14 (i)\noutput y\noutput k\noutput v\noutput p\n");
    LEFT_ALONE("-bias", PARTS(LAST_ROW) "q, k, v = Split-18 (p, s) axis=-1\ni = Add-14 (c, q)\n"
                                        "y = Relu-14 (i)\noutput y\noutput k\noutput v\n");
    LEFT_ALONE("-bias", PARTS(FIRST_ROW) "q, k, v = Split-18 (p, s) axis=-1\ni = Add-14 (a, q)\n"
                                         "output i\noutput k\noutput v\n");
}
