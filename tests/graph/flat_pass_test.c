/* flat_pass_test.c - products of batch and heads as one dimension.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

/* Queries and keys of some heads, seen as [batch * heads, rows, 8]; scores by heads again. */
#define SIDES(heads) "input q f32[2," heads ",5,8]\ninput k f32[2," heads ",7,8]\n"
#define LISTS(flat, wide) \
    "const flat i64[3] = " flat "\nconst wide i64[4] = " wide "\nconst scale f32[] = 0.5\n"
#define BIAS(dims)  "input b f32" dims "\n"
#define SEEN(sizes) "const rows i64[3] = " sizes "\nd = Reshape-14 (b, rows)\n"
#define PRODUCT                                                             \
    "x = Reshape-14 (q, flat)\nz = Reshape-14 (k, flat)\n"                  \
    "t = Transpose-13 (z) perm=[0,2,1]\np = MatMul-13 (x, t) \"product\"\n" \
    "s = Mul-14 (p, scale)\n"
#define ADDED        "e = Add-14 (s, d) \"biased\"\n"
#define BACK(scores) "y = Reshape-14 (" scores ", wide)\noutput y\n"
#define PLAIN        LISTS("8 -1 8", "2 4 5 7") PRODUCT BACK("s")
#define WITH_BIAS    LISTS("8 -1 8", "2 4 5 7") SEEN("8 1 7") PRODUCT ADDED BACK("e")
#define WORDS        "-matmul_epilogue -known_sizes"

/* Keys times a number before the product, and a bias of two parts added to it. */
#define PARTS(g, h) "input g f32" g "\ninput h f32" h "\n"
#define SUMMED(flat, wide)                                                 \
    LISTS(flat, wide)                                                      \
    "x = Reshape-14 (q, flat)\nz = Reshape-14 (k, flat)\n"                 \
    "t = Transpose-13 (z) perm=[0,2,1]\nr = Div-14 (t, scale) \"root\"\n"  \
    "p = MatMul-13 (x, r) \"product\"\nl = Mul-14 (h, scale) \"scaled\"\n" \
    "d = Add-14 (g, l) \"parts\"\ne = Add-14 (p, d) \"biased\"\n" BACK("e")

TEST(graph_pass_flat_heads) {
    check(WORDS, SIDES("4") PLAIN,
          SIDES("4") "const scale f32[] = 0.5\nk#11 = Transpose-13 (k) \"product\" perm=[0,1,3,2]\n"
                     "y#12 = MatMul-13 (q, k#11) \"product\"\ny = Mul-14 (y#12, scale)\noutput y\n",
          1);
}

TEST(graph_pass_flat_heads_leaves_what_does_not_fit) {
    LEFT_ALONE("-flat_heads -matmul_epilogue", SIDES("4") PLAIN);
    /* other rows than those there were; other scores; one head, which might be repeated */
    LEFT_ALONE(WORDS, SIDES("4") LISTS("8 -1 8", "4 2 5 7") PRODUCT BACK("s"));
    LEFT_ALONE(WORDS, SIDES("4") LISTS("8 -1 8", "2 4 7 5") PRODUCT BACK("s"));
    LEFT_ALONE(WORDS, SIDES("1") LISTS("2 -1 8", "2 1 5 7") PRODUCT BACK("s"));
    LEFT_ALONE(WORDS, SIDES("4") LISTS("4 -1 16", "2 2 5 7") PRODUCT BACK("s"));
    /* a batch that is not known to be two */
    LEFT_ALONE(WORDS, "input q f32[?,4,5,8]\ninput k f32[?,4,7,8]\n" PLAIN);
    /* what somebody else reads */
    LEFT_ALONE(WORDS, SIDES("4") LISTS("8 -1 8", "2 4 5 7") PRODUCT BACK("s") "output p\n");
    /* a bias of other heads, of each row, and one that has three dimensions itself */
    LEFT_ALONE(WORDS, SIDES("4") BIAS("[4,2,7]") WITH_BIAS);
    LEFT_ALONE(WORDS, SIDES("4") BIAS("[2,4,35]") LISTS("8 -1 8", "2 4 5 7") SEEN("8 5 7")
                          PRODUCT ADDED BACK("e"));
    LEFT_ALONE(WORDS, SIDES("4") "input d f32[8,1,7]\n" LISTS("8 -1 8", "2 4 5 7")
                          PRODUCT ADDED BACK("e"));
}

/* Views are in front of what only the sum reads, so that it can be one with what comes behind. */
TEST(graph_pass_flat_heads_with_any_bias) {
    check(WORDS, SIDES("4") PARTS("[8,5,7]", "[8,1,7]") SUMMED("8 -1 8", "-1 4 5 7"),
          SIDES("4")
              PARTS("[8,5,7]", "[8,1,7]") "const scale f32[] = 0.5\nconst axes i64[1] = 0\nconst "
                                          "#20 i64[4] = -1 4 0 0\n"
                                          "const axes#22 i64[1] = 0\nconst #24 i64[4] = -1 4 0 0\n"
                                          "k#16 = Transpose-13 (k) \"product\" "
                                          "perm=[0,1,3,2]\nk#17 = Div-14 (k#16, scale) \"root\"\n"
                                          "y#28 = MatMul-13 (q, k#17) \"product\"\ng#19 = "
                                          "Unsqueeze-13 (g, axes) \"biased\"\n"
                                          "g#21 = Reshape-13 (g#19, #20) \"g\"\nh#23 = "
                                          "Unsqueeze-13 (h, axes#22) \"biased\"\n"
                                          "h#25 = Reshape-13 (h#23, #24) \"h\"\nl#26 = Mul-14 "
                                          "(h#25, scale) \"scaled\"\n"
                                          "d#27 = Add-14 (g#21, l#26) \"parts\"\ny = Add-14 (y#28, "
                                          "d#27) \"biased\"\noutput y\n",
          1);
}

TEST(graph_pass_flat_heads_leaves_other_biases) {
    const char *words = WORDS " -same";
    /* for all heads, and perhaps so; of sizes that are said for the batch, too, and of others */
    LEFT_ALONE(words, SIDES("4") PARTS("[1,5,7]", "[1,5,7]") SUMMED("8 -1 8", "-1 4 5 7"));
    LEFT_ALONE(words, SIDES("4") PARTS("[?,5,7]", "[?,5,7]") SUMMED("8 -1 8", "-1 4 5 7"));
    LEFT_ALONE(words, SIDES("4") PARTS("[8,5,7]", "[8,5,7]") SUMMED("8 -1 8", "2 4 5 7"));
    LEFT_ALONE(words, SIDES("4") PARTS("[8,5,7]", "[8,5,7]") SUMMED("8 -1 8", "-1 4 7 5"));
    /* somebody else reads the sum */
    LEFT_ALONE(words,
               SIDES("4") PARTS("[8,5,7]", "[8,5,7]") SUMMED("8 -1 8", "-1 4 5 7") "output e\n");
}

DEVICE_TEST(flat_heads_keep_results) {
    pass_check_run(device, SIDES("4") PLAIN, (mp_shape[]){SHAPE(2, 4, 5, 8), SHAPE(2, 4, 7, 8)},
                   1e-4, 1);
    pass_check_run(device, SIDES("4") BIAS("[2,4,7]") WITH_BIAS,
                   (mp_shape[]){SHAPE(2, 4, 5, 8), SHAPE(2, 4, 7, 8), SHAPE(2, 4, 7)}, 1e-4, 1);
    pass_check_run(
        device, SIDES("4") PARTS("[8,5,1]", "[1,1,7]") SUMMED("8 -1 8", "-1 4 5 7"),
        (mp_shape[]){SHAPE(2, 4, 5, 8), SHAPE(2, 4, 7, 8), SHAPE(8, 5, 1), SHAPE(1, 1, 7)}, 1e-4,
        1);
}
