/* gather_pass_test.c - elements picked out of products.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define WORDS "-matmul_epilogue -refold -known_sizes"
#define INPUTS                                 \
    "input x f32[2,3,8]\ninput w f32[2,8,4]\n" \
    "const i i64[2,2,3] = 0 3 1 2 2 0 3 3 3 0 0 1\n"
#define PICKED(axis, perm)                                  \
    "p = MatMul-13 (x, w) \"product\"\n"                    \
    "g = GatherElements-13 (p, i) \"pick\" axis=" axis "\n" \
    "y = Transpose-13 (g) \"turn\" perm=[" perm "]\noutput y\n"

TEST(graph_pass_turn_gather) {
    check(WORDS, INPUTS PICKED("-1", "0,2,1"),
          INPUTS "w#6 = Transpose-13 (w) \"product\" perm=[0,2,1]\n"
                 "x#7 = Transpose-13 (x) \"product\" perm=[0,2,1]\n"
                 "p#9 = MatMul-13 (w#6, x#7) \"product\"\n"
                 "i#8 = Transpose-13 (i) \"pick\" perm=[0,2,1]\n"
                 "y = GatherElements-13 (p#9, i#8) \"pick\" axis=1\noutput y\n",
          1);
}

TEST(graph_pass_turn_gather_leaves_what_does_not_fit) {
    LEFT_ALONE("-turn_gather -matmul_epilogue", INPUTS PICKED("2", "0,2,1"));
    LEFT_ALONE(WORDS, INPUTS PICKED("1", "0,2,1"));
    LEFT_ALONE(WORDS, INPUTS PICKED("0", "0,2,1"));
    LEFT_ALONE(WORDS, INPUTS PICKED("-1", "1,0,2"));
    LEFT_ALONE(WORDS, INPUTS PICKED("-1", "0,2,1") "output g\n");
    LEFT_ALONE(WORDS, INPUTS PICKED("-1", "0,2,1") "output p\n");
    /* indexes that are not known, which would have to be transposed each time */
    LEFT_ALONE(WORDS, "input x f32[2,3,8]\ninput w f32[2,8,4]\ninput i i64[2,2,3]\n" PICKED(
                          "-1", "0,2,1"));
    /* one matrix for all */
    LEFT_ALONE(WORDS, "input x f32[2,3,8]\ninput w f32[8,4]\n"
                      "const i i64[2,2,3] = 0 3 1 2 2 0 3 3 3 0 0 1\n" PICKED("-1", "0,2,1"));
}

DEVICE_TEST(turned_gathers_keep_results) {
    pass_check_run(device, INPUTS PICKED("-1", "0,2,1"),
                   (mp_shape[]){SHAPE(2, 3, 8), SHAPE(2, 8, 4)}, 1e-4, 1);
    /* a batch of one that the product repeats */
    pass_check_run(device,
                   "input x f32[1,3,8]\ninput w f32[2,8,4]\n"
                   "const i i64[2,2,3] = 0 3 1 2 2 0 3 3 3 0 0 1\n" PICKED("-1", "0,2,1"),
                   (mp_shape[]){SHAPE(1, 3, 8), SHAPE(2, 8, 4)}, 1e-4, 1);
}
