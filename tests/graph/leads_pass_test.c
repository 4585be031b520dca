/* leads_pass_test.c - attention in five dimensions, and what is before and behind it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

/* Rows of heads within windows, and rows of windows between each other. */
#define SIDES(q, k, v) "input q f32" q "\ninput k f32" k "\ninput v f32" v "\n"
#define TURNED                                                                       \
    "a = Transpose-13 (q) perm=[0,1,3,2,4]\nb = Transpose-13 (k) perm=[0,1,3,4,2]\n" \
    "c = Transpose-13 (v) perm=[0,1,3,2,4]\n"
#define BETWEEN                                                                      \
    "a = Transpose-13 (q) perm=[0,3,2,1,4]\nb = Transpose-13 (k) perm=[0,3,2,4,1]\n" \
    "c = Transpose-13 (v) perm=[0,3,2,1,4]\n"
#define PERMS(q)     " k_perm=[0,2,1,3] out_perm=[0,2,1,3] " q "v_perm=[0,2,1,3]\n"
#define WEIGHTS      "w = Softmax-13 (s) axis=-1\n"
#define RESULT(perm) "r = MatMul-13 (w, c)\ny = Transpose-13 (r) perm=" perm "\noutput y\n"

TEST(graph_pass_attention_of_windows) {
    /* windows go into the batch; a mask is for all of them */
    check(
        "-dead",
        SIDES("[3,4,9,2,8]", "[3,4,5,2,8]",
              "[3,4,5,2,8]") "input m f32[2,9,5]\n" TURNED
                             "t = MatMul-13 (a, b)\ns = Add-14 (t, m)\n" WEIGHTS RESULT(
                                 "[0,1,3,2,4]"),
        SIDES(
            "[3,4,9,2,8]", "[3,4,5,2,8]",
            "[3,4,5,2,8]") "input m f32[2,9,5]\n"
                           "const #12 i64[4] = 12 9 2 8\nconst #14 i64[4] = 12 5 2 8\n"
                           "const #16 i64[4] = 12 5 2 8\nconst #19 i64[5] = 3 4 9 2 8\n"
                           "q#13 = Reshape-13 (q, #12) \"q\"\n"
                           "k#15 = Reshape-13 (k, #14) \"k\"\n"
                           "v#17 = Reshape-13 (v, #16) \"v\"\n"
                           "y#18 = millpond.Attention-1 (q#13, k#15, v#17, m) \"++\"" PERMS(
                               "q_perm=[0,2,1,3] ") "y = Reshape-13 (y#18, #19) \"++\"\noutput y\n",
        1);
    /* rows of windows lie between each other: these are heads */
    check(
        "-dead",
        SIDES("[?,9,4,2,8]", "[?,5,4,2,8]", "[?,5,4,2,8]") BETWEEN
        "s = MatMul-13 (a, b)\n" WEIGHTS RESULT("[0,3,2,1,4]"),
        SIDES(
            "[?,9,4,2,8]", "[?,5,4,2,8]",
            "[?,5,4,2,8]") "const #10 i64[4] = 0 9 8 8\nconst #12 i64[4] = 0 5 8 8\n"
                           "const #14 i64[4] = 0 5 8 8\nconst #17 i64[5] = 0 9 4 2 8\n"
                           "q#11 = Reshape-13 (q, #10) \"q\"\n"
                           "k#13 = Reshape-13 (k, #12) \"k\"\n"
                           "v#15 = Reshape-13 (v, #14) \"v\"\n"
                           "y#16 = millpond.Attention-1 (q#11, k#13, v#15) \"++\"" PERMS(
                               "q_perm=[0,2,1,3] ") "y = Reshape-13 (y#16, #17) \"++\"\noutput y\n",
        1);
    /* of which Q has its windows elsewhere */
    check(
        "-dead",
        SIDES("[?,2,4,9,8]", "[?,5,4,2,8]",
              "[?,5,4,2,8]") "b = Transpose-13 (k) perm=[0,3,2,4,1]\nc = Transpose-13 (v) "
                             "perm=[0,3,2,1,4]\n"
                             "s = MatMul-13 (q, b)\n" WEIGHTS RESULT("[0,3,2,1,4]"),
        SIDES("[?,2,4,9,8]", "[?,5,4,2,8]",
              "[?,5,4,2,8]") "const #10 i64[4] = 0 8 9 8\nconst #12 i64[4] = 0 5 8 8\n"
                             "const #14 i64[4] = 0 5 8 8\nconst #17 i64[5] = 0 9 4 2 8\n"
                             "q#9 = Transpose-13 (q) perm=[0,2,1,3,4]\nq#11 = Reshape-13 (q#9, "
                             "#10) \"q\"\n"
                             "k#13 = Reshape-13 (k, #12) \"k\"\nv#15 = Reshape-13 (v, #14) \"v\"\n"
                             "y#16 = millpond.Attention-1 (q#11, k#13, v#15) \"++\"" PERMS(
                                 "") "y = Reshape-13 (y#16, #17) \"++\"\noutput y\n",
        1);
}

TEST(graph_pass_attention_of_windows_in_batches_that_may_differ) {
    /* the batch stays by itself, so that it may be repeated: what is put first for that is copied
     */
    check("-dead",
          SIDES("[?,4,9,2,8]", "[?,4,5,2,8]", "[?,4,5,2,8]") TURNED
          "s = MatMul-13 (a, b)\n" WEIGHTS RESULT("[0,1,3,2,4]"),
          SIDES("[?,4,9,2,8]", "[?,4,5,2,8]",
                "[?,4,5,2,8]") "const #11 i64[4] = 0 8 9 8\nconst #14 i64[4] = 0 8 5 8\n"
                               "const #17 i64[4] = 0 8 5 8\nconst #20 i64[5] = 0 4 2 9 8\n"
                               "q#10 = Transpose-13 (q) perm=[0,1,3,2,4]\nq#12 = Reshape-13 (q#10, "
                               "#11) \"q\"\n"
                               "k#13 = Transpose-13 (k) perm=[0,1,3,2,4]\nk#15 = Reshape-13 (k#13, "
                               "#14) \"k\"\n"
                               "v#16 = Transpose-13 (v) perm=[0,1,3,2,4]\nv#18 = Reshape-13 (v#16, "
                               "#17) \"v\"\n"
                               "r#19 = millpond.Attention-1 (q#12, k#15, v#18) \"++\"\n"
                               "r = Reshape-13 (r#19, #20) \"++\"\ny = Transpose-13 (r) "
                               "perm=[0,1,3,2,4]\noutput y\n",
          1);
}

/* Windows that may be repeated, also by a mask, or have masks of their own; sizes that have to be
 * known. What is left becomes part of products. */
#define NOT_FOUND "-dead,-matmul_epilogue"
TEST(graph_pass_attention_of_windows_that_differ) {
    LEFT_ALONE(NOT_FOUND, SIDES("[3,4,9,2,8]", "[3,1,5,2,8]", "[3,4,5,2,8]") TURNED
               "s = MatMul-13 (a, b)\n" WEIGHTS RESULT("[0,1,3,2,4]"));
    LEFT_ALONE(NOT_FOUND,
               SIDES("[3,4,9,2,8]", "[3,4,5,2,8]",
                     "[3,4,5,2,8]") "input m f32[4,2,9,5]\n" TURNED
                                    "t = MatMul-13 (a, b)\ns = Add-14 (t, m)\n" WEIGHTS RESULT(
                                        "[0,1,3,2,4]"));
    LEFT_ALONE(NOT_FOUND,
               SIDES("[3,4,9,2,8]", "[3,4,5,2,8]",
                     "[3,4,5,2,8]") "input m f32[?,9,5]\n" TURNED
                                    "t = MatMul-13 (a, b)\ns = Add-14 (t, m)\n" WEIGHTS RESULT(
                                        "[0,1,3,2,4]"));
    LEFT_ALONE(NOT_FOUND, SIDES("[3,4,9,2,8]", "[3,4,5,2,8]", "[3,4,5,2,?]") TURNED
               "s = MatMul-13 (a, b)\n" WEIGHTS RESULT("[0,1,3,2,4]"));
}

DEVICE_TEST(attention_of_windows_keeps_results) {
    static const char *const turned = SIDES(
        "[3,4,9,2,8]", "[3,4,5,2,8]",
        "[3,4,5,2,8]") "input m f32[2,9,5]\n" TURNED
                       "t = MatMul-13 (a, b)\ns = Add-14 (t, m)\n" WEIGHTS RESULT("[0,1,3,2,4]");
    static const char *const between = SIDES("[?,9,4,2,8]", "[?,5,4,2,8]", "[?,5,4,2,8]") BETWEEN
        "s = MatMul-13 (a, b)\n" WEIGHTS RESULT("[0,3,2,1,4]");
    static const char *const apart =
        SIDES("[?,2,4,9,8]", "[?,5,4,2,8]",
              "[?,5,4,2,8]") "b = Transpose-13 (k) perm=[0,3,2,4,1]\nc = Transpose-13 (v) "
                             "perm=[0,3,2,1,4]\n"
                             "s = MatMul-13 (q, b)\n" WEIGHTS RESULT("[0,3,2,1,4]");
    const mp_shape windows[] = {SHAPE(3, 4, 9, 2, 8), SHAPE(3, 4, 5, 2, 8), SHAPE(3, 4, 5, 2, 8),
                                SHAPE(2, 9, 5)};
    const mp_shape units[] = {SHAPE(3, 9, 4, 2, 8), SHAPE(3, 5, 4, 2, 8), SHAPE(3, 5, 4, 2, 8)};
    const mp_shape spread[] = {SHAPE(3, 9, 4, 2, 8), SHAPE(1, 5, 4, 2, 8), SHAPE(3, 5, 4, 2, 8)};
    const mp_shape none[] = {SHAPE(0, 9, 4, 2, 8), SHAPE(0, 5, 4, 2, 8), SHAPE(0, 5, 4, 2, 8)};
    const mp_shape heads[] = {SHAPE(3, 2, 4, 9, 8), SHAPE(3, 5, 4, 2, 8), SHAPE(3, 5, 4, 2, 8)};
    pass_check_run(device, turned, windows, 1e-5, 1);
    pass_check_run(device, between, units, 1e-5, 1);
    pass_check_run(device, between, spread, 1e-5, 1);
    pass_check_run(device, between, none, 0, 1);
    pass_check_run(device, apart, heads, 1e-5, 1);
}

TEST(graph_pass_squeeze_first) {
    check(NULL,
          "input x f32[2,?,1,3]\nconst z i64[1] = 1\nt = Transpose-13 (x) perm=[3,2,0,1]\n"
          "y = Squeeze-13 (t, z) \"less\"\noutput y\n",
          "input x f32[2,?,1,3]\nconst #4 i64[1] = 2\nt#5 = Squeeze-13 (x, #4) \"less\"\n"
          "y = Transpose-13 (t#5) perm=[2,0,1]\noutput y\n",
          1);
    check(NULL,
          "input x f32[1,?,1,3]\nconst z i64[2] = -1 1\nt = Transpose-13 (x) perm=[3,2,1,0]\n"
          "y = Squeeze-13 (t, z)\noutput y\n",
          "input x f32[1,?,1,3]\nconst #4 i64[2] = 2 0\nt#5 = Squeeze-13 (x, #4)\n"
          "y = Transpose-13 (t#5) perm=[1,0]\noutput y\n",
          1);
    /* others read it; dimensions that are not said */
    LEFT_ALONE(NULL, "input x f32[2,?,1,3]\nconst z i64[1] = 1\n"
                     "t = Transpose-13 (x) perm=[3,2,0,1]\ny = Squeeze-13 (t, z)\noutput y\n"
                     "output t\n");
    LEFT_ALONE(NULL, "input x f32[2,?,1,3]\nt = Transpose-13 (x) perm=[3,2,0,1]\n"
                     "y = Squeeze-13 (t)\noutput y\n");
}
