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

/* ---- rows of several tables side by side ---- */

#define IDS "input x f32[?,1,2]\ninput ids i64[?,3]\ninput own i64[?]\n"
#define TABLES                                                     \
    "const t f32[3,2] = 0 1 2 3 4 5\nconst u f32[2,2] = 6 7 8 9\n" \
    "const w f32[2,2] = 10 11 12 13\n"
#define ROWS                                                                 \
    "const zero i64[] = 0\nconst last i64[] = -1\n" TABLES                   \
    "i0 = Gather-13 (ids, zero) axis=1\ni1 = Gather-13 (ids, last) axis=1\n" \
    "a = Gather-13 (t, i0)\nb = Gather-13 (u, i1) axis=0\nc = Gather-13 (w, own)\n"
#define APART                                                          \
    IDS "const axes i64[1] = 1\n" ROWS "a1 = Unsqueeze-13 (a, axes)\n" \
        "b1 = Unsqueeze-13 (b, axes)\nc1 = Unsqueeze-13 (c, axes)\n"   \
        "y = Concat-13 (x, a1, b1, c1) \"join\" axis=1\noutput y\n"
#define FLAT(axis)                                                                              \
    "input ids i64[?,3]\ninput own i64[?]\n" ROWS "y = Concat-13 (a, b, c) \"join\" axis=" axis \
    "\noutput y\n"

TEST(graph_pass_join_lookups) {
    check(NULL, APART,
          IDS TABLES "join = millpond.TableRows-1 (t, u, w, ids, ids, own) \"join\" "
                     "columns=[0,2,-1] flat=0\n"
                     "y = Concat-13 (x, join) \"join\" axis=1\noutput y\n",
          1);
    check(NULL, FLAT("-1"),
          "input ids i64[?,3]\ninput own i64[?]\n" TABLES
          "y = millpond.TableRows-1 (t, u, w, ids, ids, own) \"join\" columns=[0,2,-1] flat=1\n"
          "output y\n",
          1);
}

TEST(graph_pass_join_lookups_leaves_what_does_not_fit) {
    LEFT_ALONE(NULL, FLAT("0"));
    LEFT_ALONE(NULL, FLAT("1") "output b\n");
    LEFT_ALONE("-join_lookups", FLAT("1"));
}

DEVICE_TEST(joined_lookups_keep_results) {
    const mp_shape in[] = {SHAPE(4, 1, 2), SHAPE(4, 3), SHAPE(4)};
    pass_check_run(device, APART, in, 0, 1);
    pass_check_run(device, FLAT("1"), in + 1, 0, 1);
}
