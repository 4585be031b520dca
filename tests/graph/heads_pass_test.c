/* heads_pass_test.c - products of heads that were put first.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define WORDS "-matmul_epilogue -known_sizes"
#define ROWS(dims, weights, flat) \
    "input x f32" dims "\ninput w f32" weights "\nconst s i64[3] = " flat "\n"
#define FIRST   "t = Transpose-13 (x) perm=[0,2,1,3]\nr = Reshape-14 (t, s)\n"
#define PRODUCT FIRST "y = MatMul-13 (r, w) \"product\"\noutput y\n"

TEST(graph_pass_heads_product) {
    check(WORDS, ROWS("[1,5,4,8]", "[4,8,6]", "4 -1 8") PRODUCT,
          "input x f32[1,5,4,8]\ninput w f32[4,8,6]\nconst #6 i64[3] = -1 4 8\n"
          "x#7 = Reshape-13 (x, #6) \"x\"\n"
          "y = com.microsoft.FusedMatMul-1 (x#7, w) \"product\" transBatchA=1\noutput y\n",
          1);
    /* behind what made it one already, and with fewer weights than heads */
    check("-known_sizes",
          ROWS("[1,5,4,8]", "[1,6,8]", "4 -1 8") FIRST
          "z = Transpose-13 (w) perm=[0,2,1]\ny = MatMul-13 (r, z) \"product\"\noutput y\n",
          "input x f32[1,5,4,8]\ninput w f32[1,6,8]\nconst #7 i64[3] = -1 4 8\n"
          "x#8 = Reshape-13 (x, #7) \"x\"\n"
          "y = com.microsoft.FusedMatMul-1 (x#8, w) \"product\" transB=1 transBatchA=1\noutput y\n",
          2);
}

TEST(graph_pass_heads_product_behind) {
    check(WORDS,
          ROWS("[1,5,4,8]", "[4,6,5]", "4 -1 8") FIRST
          "y = MatMul-13 (w, r) \"product\"\noutput y\n",
          "input x f32[1,5,4,8]\ninput w f32[4,6,5]\nconst #6 i64[3] = -1 4 8\n"
          "x#7 = Reshape-13 (x, #6) \"x\"\n"
          "y = com.microsoft.FusedMatMul-1 (w, x#7) \"product\" transBatchB=1\noutput y\n",
          1);
}

TEST(graph_pass_heads_product_leaves_what_does_not_fit) {
    LEFT_ALONE("-heads_product -matmul_epilogue", ROWS("[1,5,4,8]", "[4,8,6]", "4 -1 8") PRODUCT);
    /* a batch of two, and one that is not known; heads that are taken apart; one matrix for all */
    LEFT_ALONE(WORDS, ROWS("[2,5,4,8]", "[8,8,6]", "8 -1 8") PRODUCT);
    LEFT_ALONE(WORDS, ROWS("[?,5,4,8]", "[4,8,6]", "4 -1 8") PRODUCT);
    LEFT_ALONE(WORDS, ROWS("[1,5,4,16]", "[8,8,6]", "8 -1 8") PRODUCT);
    LEFT_ALONE(WORDS, ROWS("[1,5,4,8]", "[8,6]", "4 -1 8") PRODUCT);
    /* what somebody else reads */
    LEFT_ALONE(WORDS, ROWS("[1,5,4,8]", "[4,8,6]", "4 -1 8") PRODUCT "output t\n");
    LEFT_ALONE(WORDS, ROWS("[1,5,4,8]", "[4,8,6]", "4 -1 8") PRODUCT "output r\n");
    /* what is read so already */
    LEFT_ALONE(WORDS, ROWS("[1,4,5,8]", "[5,8,6]", "5 -1 8") FIRST
               "y = com.microsoft.FusedMatMul-1 (r, w) transBatchA=1\noutput y\n");
}

DEVICE_TEST(heads_products_keep_results) {
    pass_check_run(device, ROWS("[1,5,4,8]", "[4,8,6]", "4 -1 8") PRODUCT,
                   (mp_shape[]){SHAPE(1, 5, 4, 8), SHAPE(4, 8, 6)}, 1e-4, 1);
    pass_check_run(device, ROWS("[1,5,4,8]", "[1,8,6]", "4 -1 8") PRODUCT,
                   (mp_shape[]){SHAPE(1, 5, 4, 8), SHAPE(1, 8, 6)}, 1e-4, 1);
    pass_check_run(device, ROWS("[1,5,1,8]", "[3,8,6]", "1 -1 8") PRODUCT,
                   (mp_shape[]){SHAPE(1, 5, 1, 8), SHAPE(3, 8, 6)}, 1e-4, 1);
    pass_check_run(device,
                   ROWS("[1,5,4,8]", "[4,6,5]", "4 -1 8") FIRST "y = MatMul-13 (w, r)\noutput y\n",
                   (mp_shape[]){SHAPE(1, 5, 4, 8), SHAPE(4, 6, 5)}, 1e-4, 1);
    pass_check_run(device,
                   ROWS("[1,5,4,8]", "[4,6,8]", "4 -1 8") FIRST
                   "z = Transpose-13 (r) perm=[0,2,1]\ny = MatMul-13 (w, z)\noutput y\n",
                   (mp_shape[]){SHAPE(1, 5, 4, 8), SHAPE(4, 6, 8)}, 1e-4, 2);
}

/* Queries, keys and values of two heads of 4 elements in rows of 24, by three Gathers, which
 * products read that are no attention. */
#define GATHERED                                                                 \
    "input x f32[2,5,24]\nconst five i64[5] = 2 5 3 2 4\nconst zero i64[] = 0\n" \
    "const one i64[] = 1\nconst two i64[] = 2\nr = Reshape-14 (x, five)\n"       \
    "a = Gather-13 (r, zero) axis=2\nb = Gather-13 (r, one) axis=2\n"            \
    "c = Gather-13 (r, two) axis=2\nq = Transpose-13 (a) \"q\" perm=[0,2,1,3]\n"
#define READ_ALL                                                  \
    "s = MatMul-13 (q, k) \"scores\"\nh = Relu-14 (s) \"relu\"\n" \
    "v = Transpose-13 (c) \"v\" perm=[0,2,1,3]\ny = MatMul-13 (h, v) \"sum\"\noutput y\n"

#define KEYS                                                              \
    "input x f32[2,5,2,4,4]\ninput z f32[2,2,5,4]\nconst one i64[] = 1\n" \
    "g = Gather-13 (x, one) axis=3\nk = Transpose-13 (g) \"k\" perm=[0,2,3,1]\n"

TEST(graph_pass_turn_keys) {
    check(NULL, KEYS "y = MatMul-13 (z, k) \"product\"\noutput y\n",
          "input x f32[2,5,2,4,4]\ninput z f32[2,2,5,4]\nconst #7 i64[3] = 2 5 32\n"
          "x#8 = Reshape-13 (x, #7) \"x\"\n"
          "g#6 = millpond.HeadsPart-1 (x#8) \"k\" part=[4,2,4,16]\n"
          "y = com.microsoft.FusedMatMul-1 (z, g#6) \"product\" transB=1\noutput y\n",
          3);
    /* what others read, too, a product has on its left, or is no part of something */
    LEFT_ALONE(NULL, KEYS "y = MatMul-13 (z, k)\noutput y\noutput k\n");
    LEFT_ALONE(NULL, KEYS "y = MatMul-13 (k, z)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,5,2,4]\ninput z f32[2,2,5,4]\n"
                     "k = Transpose-13 (x) perm=[0,2,3,1]\ny = MatMul-13 (z, k)\noutput y\n");
}

TEST(graph_pass_join_parts) {
    check(NULL, GATHERED "k = Transpose-13 (b) \"k\" perm=[0,2,3,1]\n" READ_ALL,
          "input x f32[2,5,24]\nconst #16 i64[5] = 0 0 3 2 4\nconst #22 i64[1] = 0\n"
          "q#17 = Reshape-13 (x, #16) \"q\"\n"
          "q#18 = Transpose-13 (q#17) \"q\" perm=[2,0,3,1,4]\n"
          "q#19, b#20, v#21 = Split-13 (q#18) \"q\" axis=0\nq = Squeeze-13 (q#19, #22) \"q\"\n"
          "b#15 = Squeeze-13 (b#20, #22) \"k\"\n"
          "s = com.microsoft.FusedMatMul-1 (q, b#15) \"scores\" transB=1\n"
          "h = Relu-14 (s) \"relu\"\nv = Squeeze-13 (v#21, #22) \"v\"\n"
          "y = MatMul-13 (h, v) \"sum\"\noutput y\n",
          6);
    /* two of three parts */
    check(NULL,
          GATHERED "k = Transpose-13 (b) \"k\" perm=[0,2,3,1]\n"
                   "y = MatMul-13 (q, k) \"scores\"\noutput y\n",
          "input x f32[2,5,24]\nq = millpond.HeadsPart-1 (x) \"q\" part=[0,2,4,4]\n"
          "b#12 = millpond.HeadsPart-1 (x) \"k\" part=[8,2,4,4]\n"
          "y = com.microsoft.FusedMatMul-1 (q, b#12) \"scores\" transB=1\noutput y\n",
          6);
}

DEVICE_TEST(joined_parts_keep_results) {
    const mp_shape in[] = {SHAPE(2, 5, 24)};
    pass_check_run(device, GATHERED "k = Transpose-13 (b) \"k\" perm=[0,2,3,1]\n" READ_ALL, in,
                   1e-4, 6);
}

/* Values that are made apart from queries and keys (ConViT). */
DEVICE_TEST(widened_products_keep_results) {
    static const char *const text =
        "input x f32[2,5,8]\nconst w f32[8,16]\nconst m f32[8,8]\nconst five i64[5] = 0 0 2 2 4\n"
        "const four i64[4] = 0 0 2 4\nconst zero i64[] = 0\nconst one i64[] = 1\n"
        "p = MatMul-13 (x, w)\nr = Reshape-14 (p, five)\na = Gather-13 (r, zero) axis=2\n"
        "b = Gather-13 (r, one) axis=2\nq = Transpose-13 (a) perm=[0,2,1,3]\n"
        "k = Transpose-13 (b) perm=[0,2,3,1]\ns = MatMul-13 (q, k)\nh = Relu-14 (s)\n"
        "o = MatMul-13 (x, m)\nc = Reshape-14 (o, four)\nv = Transpose-13 (c) perm=[0,2,1,3]\n"
        "y = MatMul-13 (h, v)\noutput y\n";
    const mp_shape in[] = {SHAPE(2, 5, 8)};
    pass_check_run(device, text, in, 1e-4, 6);
}

TEST(graph_pass_keep_reduced) {
    check(NULL,
          "input x f32[?,3,4]\nconst a i64[1] = -1\nconst b i64[1] = 2\n"
          "s = ReduceSum-13 (x, a) \"sum\" keepdims=0\nu = Unsqueeze-13 (s, b) \"back\"\n"
          "y = Div-14 (x, u)\noutput y\n",
          "input x f32[?,3,4]\nconst a i64[1] = -1\nu = ReduceSum-13 (x, a) \"sum\" keepdims=1\n"
          "y = Div-14 (x, u)\noutput y\n",
          1);
    /* another dimension; what others read */
    LEFT_ALONE(NULL, "input x f32[?,3,4]\nconst a i64[1] = -1\nconst b i64[1] = 1\n"
                     "s = ReduceSum-13 (x, a) keepdims=0\nu = Unsqueeze-13 (s, b)\n"
                     "y = Div-14 (x, u)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,3,4]\nconst a i64[1] = -1\nconst b i64[1] = 2\n"
                     "s = ReduceSum-13 (x, a) keepdims=0\nu = Unsqueeze-13 (s, b)\n"
                     "y = Div-14 (x, u)\noutput y\noutput s\n");
}
