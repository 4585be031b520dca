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
