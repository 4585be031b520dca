/* float_scores_test.c - attention of halves whose scores are float.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define PORTS(type, size)                                                  \
    "input q " type "[?,?,4," size "]\ninput k " type "[?,?,4," size "]\n" \
    "input v " type "[?,?,4," size "]\ninput m f32[?,1,?,?]\nconst root f32[] = 2.5\n"
/* Casts before transpositions and behind them. */
#define SCORES                                                      \
    "a = Transpose-13 (q) perm=[0,2,1,3]\naf = Cast-13 (a) to=1\n"  \
    "kf = Cast-13 (k) to=1\nb = Transpose-13 (kf) perm=[0,2,3,1]\n" \
    "t = MatMul-13 (af, b) \"scores\"\nd = Div-14 (t, root)\n"      \
    "s = Add-14 (d, m)\nw = Softmax-13 (s) \"weights\" axis=-1\n"
#define RESULT(to)                                                     \
    "h = Cast-13 (w) to=" to "\nc = Transpose-13 (v) perm=[0,2,1,3]\n" \
    "r = MatMul-13 (h, c) \"result\"\ny = Transpose-13 (r) perm=[0,2,1,3]\noutput y\n"
#define ATTENTION                                                                      \
    "y = millpond.Attention-1 (q, k, v, m, root) \"scores+weights+result\" divided=1 " \
    "exact=1 k_perm=[0,2,1,3] out_perm=[0,2,1,3] q_perm=[0,2,1,3] v_perm=[0,2,1,3]\noutput y\n"

TEST(graph_pass_attention_of_float_scores) {
    check(NULL, PORTS("f16", "8") SCORES RESULT("10"), PORTS("f16", "8") ATTENTION, 1);
    check(NULL, PORTS("bf16", "256") SCORES RESULT("16"), PORTS("bf16", "256") ATTENTION, 1);
}

TEST(graph_pass_attention_leaves_float_scores) {
    /* longer heads, whose scores would be kept as halves; heads of which that is not known; and
     * values of another type than queries and keys */
    LEFT_ALONE("-matmul_epilogue", PORTS("f16", "264") SCORES RESULT("10"));
    LEFT_ALONE("-matmul_epilogue", PORTS("f16", "?") SCORES RESULT("10"));
    LEFT_ALONE("-matmul_epilogue",
               "input q f16[?,?,4,8]\ninput k f16[?,?,4,8]\ninput v bf16[?,?,4,8]\n"
               "input m f32[?,1,?,?]\nconst root f32[] = 2.5\n" SCORES RESULT("16"));
}

DEVICE_TEST(attention_of_float_scores_keeps_results) {
    static const char halves[] = PORTS("f16", "8") SCORES RESULT("10");
    static const char odd[] = PORTS("f16", "7") SCORES RESULT("10");
    static const char brain[] = PORTS("bf16", "16") SCORES RESULT("16");
    const mp_shape few[] = {SHAPE(2, 3, 4, 8), SHAPE(2, 5, 4, 8), SHAPE(2, 5, 4, 8),
                            SHAPE(2, 1, 3, 5)};
    const mp_shape some[] = {SHAPE(1, 24, 4, 7), SHAPE(1, 40, 4, 7), SHAPE(1, 40, 4, 7),
                             SHAPE(1, 1, 24, 40)};
    const mp_shape wide[] = {SHAPE(2, 24, 4, 16), SHAPE(2, 40, 4, 16), SHAPE(2, 40, 4, 16),
                             SHAPE(2, 1, 1, 40)};
    pass_check_run(device, halves, few, 4e-3, 1);
    pass_check_run(device, odd, some, 4e-3, 1);
    pass_check_run(device, brain, wide, 3e-2, 1);
}
