/* lines_pass_test.c - convolutions over lines, such as sounds and texts, with their channels last.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#include <stdio.h>

#define LINE "input x f32[2,4,9]\nconst w f32[6,4,3]\n"

/* What exchanges both dimensions before and behind goes, also where the graph gives its result. */
TEST(graph_pass_lines_of_rows) {
    check("+channels_last",
          "input r f32[2,9,4]\nconst w f32[6,4,3]\nx = Transpose-13 (r) \"x\" perm=[0,2,1]\n"
          "a = Conv-11 (x, w) \"a\" pads=[1,1]\nt = Transpose-13 (a) \"t\" perm=[0,2,1]\n"
          "n = Softmax-13 (t) \"n\"\nu = Transpose-13 (n) \"u\" perm=[0,2,1]\n"
          "c = Add-14 (u, a) \"c\"\ny = Transpose-13 (c) \"y\" perm=[0,2,1]\noutput y\n",
          "input r f32[2,9,4]\nconst w f32[6,4,3]\n"
          "a#9 = com.ms.internal.nhwc.Conv-11 (r, w) \"a\" pads=[1,1]\n"
          "n = Softmax-13 (a#9) \"n\"\ny = Add-14 (n, a#9) \"c\"\noutput y\n",
          8);
    /* where no convolution wants it, all stay as they are */
    LEFT_ALONE("+channels_last", "input r f32[2,9,4]\nx = Transpose-13 (r) perm=[0,2,1]\n"
                                 "a = Relu-14 (x)\ny = Transpose-13 (a) perm=[0,2,1]\noutput y\n");
}

/* Nodes along axes. */
TEST(graph_pass_lines_along_axes) {
    check("+channels_last",
          LINE "const s i64[2] = 0 1\nconst e i64[2] = 3 8\nconst i i64[2] = 1 -1\n"
               "const p i64[6] = 0 0 2 0 0 1\nconst m i64[1] = 2\na = Conv-11 (x, w) \"a\"\n"
               "b = Slice-13 (a, s, e, i) \"b\"\nc = Pad-13 (b, p) \"c\"\n"
               "y = ReduceMax-18 (c, m) \"y\" keepdims=0\noutput y\n",
          LINE "const s i64[2] = 0 1\nconst e i64[2] = 3 8\nconst p i64[6] = 0 0 2 0 0 1\n"
               "const #13 i64[2] = 2 1\nconst #15 i64[6] = 0 2 1 3 5 4\nconst #18 i64[1] = 1\n"
               "x#11 = Transpose-13 (x) \"x\" perm=[0,2,1]\n"
               "a#12 = com.ms.internal.nhwc.Conv-11 (x#11, w) \"a\"\n"
               "b#14 = Slice-13 (a#12, s, e, #13) \"b\"\np#16 = Gather-13 (p, #15) \"p\"\n"
               "c#17 = Pad-13 (b#14, p#16) \"c\"\n"
               "y = ReduceMax-18 (c#17, #18) \"y\" keepdims=0\noutput y\n",
          7);
    check("+channels_last",
          LINE "a = Conv-11 (x, w) \"a\"\nb = Concat-13 (a, a) \"b\" axis=-2\n"
               "y = ReduceMax-13 (b) \"y\" axes=[-1] keepdims=1\noutput y\n",
          LINE "x#5 = Transpose-13 (x) \"x\" perm=[0,2,1]\n"
               "a#6 = com.ms.internal.nhwc.Conv-11 (x#5, w) \"a\"\n"
               "b#7 = Concat-13 (a#6, a#6) \"b\" axis=2\n"
               "y#8 = ReduceMax-13 (b#7) \"y\" keepdims=1 axes=[1]\n"
               "y = Transpose-13 (y#8) \"y\" perm=[0,2,1]\noutput y\n",
          5);
}

/* Normalisation of groups, also as torch writes it. */
TEST(graph_pass_lines_group_norm) {
    check(NULL,
          "input x f32[?,6,?]\nconst g i64[3] = 0 2 -1\nconst o f32[2] = 1 1\n"
          "const z f32[2] = 0 0\nconst s f32[6,1] = 1 2 3 4 5 6\nconst b f32[6,1] = 6 5 4 3 2 1\n"
          "h = Shape-13 (x)\nr = Reshape-13 (x, g)\n"
          "i = InstanceNormalization-6 (r, o, z) \"i\" epsilon=0.5f\nj = Reshape-13 (i, h)\n"
          "k = Mul-14 (j, s)\ny = Add-14 (k, b) \"y\"\noutput y\n",
          "input x f32[?,6,?]\nconst s#12 f32[6] = 1 2 3 4 5 6\nconst b#13 f32[6] = 6 5 4 3 2 1\n"
          "y = GroupNormalization-21 (x, s#12, b#13) \"i+y\" epsilon=0.5f num_groups=2\noutput y\n",
          1);
    check("+channels_last",
          LINE "const s f32[6]\nconst b f32[6]\na = Conv-11 (x, w) \"a\"\n"
               "c = GroupNormalization-21 (a, s, b) \"c\" epsilon=0.25f num_groups=3\n"
               "y = InstanceNormalization-6 (c, s, b) \"y\" epsilon=0.5f\noutput y\n",
          LINE "const s f32[6]\nconst b f32[6]\nx#7 = Transpose-13 (x) \"x\" perm=[0,2,1]\n"
               "a#8 = com.ms.internal.nhwc.Conv-11 (x#7, w) \"a\"\n"
               "c#9 = com.microsoft.GroupNorm-1 (a#8, s, b) \"c\" epsilon=0.25f groups=3\n"
               "y#10 = com.microsoft.GroupNorm-1 (c#9, s, b) \"y\" epsilon=0.5f groups=6\n"
               "y = Transpose-13 (y#10) \"y\" perm=[0,2,1]\noutput y\n",
          5);
}

/* The activation behind, which nobody else reads in front of. */
TEST(graph_pass_lines_group_norm_activation) {
    check("+channels_last",
          LINE "const s f32[6]\nconst b f32[6]\na = Conv-11 (x, w) \"a\"\n"
               "c = InstanceNormalization-6 (a, s, b) \"c\" epsilon=0.25f\n"
               "d = Relu-14 (c) \"d\"\n"
               "e = GroupNormalization-21 (d, s, b) \"e\" epsilon=0.5f num_groups=3\n"
               "f = Sigmoid-13 (e) \"f\"\ny = Mul-14 (e, f) \"y\"\noutput y\n",
          LINE "const s f32[6]\nconst b f32[6]\nx#10 = Transpose-13 (x) \"x\" perm=[0,2,1]\n"
               "a#11 = com.ms.internal.nhwc.Conv-11 (x#10, w) \"a\"\n"
               "d#12 = millpond.GroupNorm-1 (a#11, s, b) \"c+d\" epsilon=0.25f groups=6 "
               "activation=2\n"
               "y#13 = millpond.GroupNorm-1 (d#12, s, b) \"e+f+y\" epsilon=0.5f groups=3 "
               "activation=1\n"
               "y = Transpose-13 (y#13) \"y\" perm=[0,2,1]\noutput y\n",
          6);
}

/* Heads of a line, and a line of heads. */
TEST(graph_pass_lines_of_heads) {
    check("+channels_last",
          "input x f32[?,4,9]\ninput r f32[?,2,2,9]\nconst w f32[4,4,1]\n"
          "const h i64[4] = 0 2 2 -1\nconst i i64[3] = 0 4 -1\na = Conv-11 (x, w) \"a\"\n"
          "k = Reshape-13 (x, h) \"k\"\nt = Transpose-13 (k) \"t\" perm=[0,1,3,2]\n"
          "c = Reshape-13 (r, i) \"c\"\nd = Conv-11 (c, w) \"d\"\noutput a\noutput t\noutput d\n",
          "input x f32[?,4,9]\ninput r f32[?,2,2,9]\nconst w f32[4,4,1]\n"
          "const #12 i64[4] = 0 0 2 2\nconst #16 i64[3] = 0 0 4\n"
          "x#10 = Transpose-13 (x) \"x\" perm=[0,2,1]\n"
          "a#11 = com.ms.internal.nhwc.Conv-11 (x#10, w) \"a\"\n"
          "k#13 = Reshape-13 (x#10, #12) \"k\"\n"
          "t = Transpose-13 (k#13) \"t\" perm=[0,2,1,3]\n"
          "r#15 = Transpose-13 (r) \"r\" perm=[0,3,1,2]\n"
          "c#14 = Reshape-13 (r#15, #16) \"c\"\n"
          "d#17 = com.ms.internal.nhwc.Conv-11 (c#14, w) \"d\"\n"
          "a = Transpose-13 (a#11) \"a\" perm=[0,2,1]\n"
          "d = Transpose-13 (d#17) \"d\" perm=[0,2,1]\noutput a\noutput t\noutput d\n",
          5);
    /* other heads than all channels make */
    check("+channels_last",
          "input x f32[?,4,9]\nconst w f32[4,4,1]\nconst h i64[4] = 0 2 4 -1\n"
          "a = Conv-11 (x, w) \"a\"\nk = Reshape-13 (x, h) \"k\"\noutput a\noutput k\n",
          "input x f32[?,4,9]\nconst w f32[4,4,1]\nconst h i64[4] = 0 2 4 -1\n"
          "x#5 = Transpose-13 (x) \"x\" perm=[0,2,1]\n"
          "a#6 = com.ms.internal.nhwc.Conv-11 (x#5, w) \"a\"\n"
          "k = Reshape-13 (x, h) \"k\"\na = Transpose-13 (a#6) \"a\" perm=[0,2,1]\n"
          "output a\noutput k\n",
          1);
}

/* Two of a Transpose are one; attention reads and writes across those that leave heads together. */
TEST(graph_pass_join_turns) {
    check(NULL,
          "input x f32[2,3,4]\na = Transpose-13 (x) \"a\" perm=[1,0,2]\n"
          "y = Transpose-13 (a) \"y\" perm=[2,1,0]\noutput y\n",
          "input x f32[2,3,4]\ny = Transpose-13 (x) \"y\" perm=[2,0,1]\noutput y\n", 1);
    check(NULL,
          "input q f32[2,5,3,4]\ninput k f32[2,4,3,5]\nt = Transpose-13 (q) \"t\" perm=[0,2,1,3]\n"
          "u = Transpose-13 (k) \"u\" perm=[0,2,1,3]\n"
          "a = millpond.Attention-1 (t, u, t) \"a\" k_perm=[0,1,3,2]\n"
          "y = Transpose-13 (a) \"y\" perm=[0,2,1,3]\noutput y\n",
          "input q f32[2,5,3,4]\ninput k f32[2,4,3,5]\n"
          "u = Transpose-13 (k) \"u\" perm=[0,2,1,3]\n"
          "y = millpond.Attention-1 (q, u, q) \"a\" k_perm=[0,1,3,2] q_perm=[0,2,1,3] "
          "v_perm=[0,2,1,3] out_perm=[0,2,1,3]\noutput y\n",
          3);
    /* one of them is broken */
    LEFT_ALONE(NULL, "input x f32[?,?]\na = Transpose-13 (x) perm=[1,0]\n"
                     "y = Transpose-13 (a) perm=[3,2,1,0]\noutput y\n");
}

#define HALVES                                                                         \
    "const z i64[1] = 0\nconst m i64[1] = 4\nconst e i64[1] = 8\nconst i i64[1] = 2\n" \
    "a = Slice-13 (x, z, m, i)\nb = Slice-13 (x, m, e, i)\n"

/* Gates are read in the rows that hold both halves. */
TEST(graph_pass_gate_halves) {
    check(
        NULL,
        "input x f16[?,9,8]\n" HALVES "c = Tanh-13 (a) \"c\"\nd = Sigmoid-13 (b) \"d\"\n"
        "y = Mul-14 (c, d) \"y\"\noutput y\n",
        "input x f16[?,9,8]\ny = millpond.GatedHalves-1 (x) \"d+y\" gate=\"sigmoid_tanh\" last=1\n"
        "output y\n",
        1);
    check(NULL,
          "input x f16[?,9,8]\n" HALVES "d = Sigmoid-13 (a) \"d\"\ny = Mul-14 (d, b) \"y\"\n"
          "output y\n",
          "input x f16[?,9,8]\ny = millpond.GatedHalves-1 (x) \"d+y\" gate=\"sigmoid\"\noutput y\n",
          1);
    /* of one row, whose halves are read where they lie; a half that others read */
    LEFT_ALONE(NULL, "input x f16[1,1,8]\n" HALVES "d = Sigmoid-13 (b)\ny = Mul-14 (a, d)\n"
                     "output y\n");
    LEFT_ALONE(NULL, "input x f16[?,9,8]\n" HALVES "d = Sigmoid-13 (b)\ny = Mul-14 (a, d)\n"
                     "output y\noutput b\n");
}

/* Parts of a convolution that go different ways are made apart. */
TEST(graph_pass_conv_parts) {
    const char *const parts = "input x f16[?,2,?]\ninput r f16[?,1,?]\ninput s f16[?,1,?]\n"
                              "const w f16[2,2,1] = 1 2 3 4\nconst b f16[2] = 5 6\n"
                              "const z i64[1] = 0\nconst o i64[1] = 1\nconst e i64[1] = 2\n"
                              "c = Conv-11 (x, w, b) \"c\"\np = Slice-13 (c, z, o, o)\n"
                              "q = Slice-13 (c, o, e, o)\n";
    char from[1024];
    (void)snprintf(from, sizeof from,
                   "%st = Add-14 (p, r) \"t\"\nu = Add-14 (s, q) \"u\"\n"
                   "output t\noutput u\n",
                   parts);
    check("+conv_parts", from,
          "input x f16[?,2,?]\ninput r f16[?,1,?]\ninput s f16[?,1,?]\n"
          "const w#13 f16[1,2,1] = 1 2\nconst b#14 f16[1] = 5\nconst w#16 f16[1,2,1] = 3 4\n"
          "const b#17 f16[1] = 6\n"
          "t = millpond.FusedConv-1 (x, w#13, b#14, r) \"c+t\"\n"
          "u = millpond.FusedConv-1 (x, w#16, b#17, s) \"c+u\"\noutput t\noutput u\n",
          3);
    /* one part is read otherwise */
    (void)snprintf(from, sizeof from,
                   "%st = Add-14 (p, r)\nu = Mul-14 (s, q)\noutput t\noutput u\n", parts);
    LEFT_ALONE("+conv_parts", from);
    /* a bias that is too short for the weights */
    LEFT_ALONE("+conv_parts",
               "input x f16[?,2,?]\ninput r f16[?,1,?]\nconst w f16[2,2,1] = 1 2 3 4\n"
               "const b f16[1] = 5\nconst z i64[1] = 0\nconst o i64[1] = 1\n"
               "const e i64[1] = 2\nc = Conv-11 (x, w, b)\n"
               "p = Slice-13 (c, z, o, o)\nq = Slice-13 (c, o, e, o)\n"
               "t = Add-14 (p, r)\nu = Add-14 (r, q)\noutput t\noutput u\n");
}

/* How many transpositions there are for a device that prefers channels last. */
static int turned_in(int length, const char *nodes) {
    mp_graph *graph = NULL;
    char *text = NULL;
    char from[512];
    int64_t done = 0;
    int count = 0;
    (void)snprintf(from, sizeof from,
                   "input x f16[1,16,%d]\nconst w f16[16,16,1]\nconst d f16[16,1,3]\n"
                   "const v f16[16,16,3]\nconst b f16[16]\n%soutput y\n",
                   length, nodes);
    CHECK_OK(mp_graph_read(from, &graph));
    graph->prefers_last = true;
    CHECK_OK(mp_passes_run(graph, NULL, &done));
    CHECK_OK(mp_graph_write(graph, &text));
    for (const char *at = strstr(text, "Transpose-"); at != NULL;
         at = strstr(at + 1, "Transpose-")) {
        count++;
    }
    free(text);
    mp_graph_destroy(graph);
    return count;
}

TEST(graph_pass_lines_that_are_worth_it) {
    CHECK_EQ_INT(turned_in(40, "y = Conv-11 (x, v, b)\n"), 2);
    CHECK_EQ_INT(turned_in(40, "y = Conv-11 (x, w, b)\n"), 2);
    /* each channel by itself, and products, read lines as they are, unless those are turned */
    CHECK_EQ_INT(turned_in(40, "y = Conv-11 (x, d) group=16\n"), 0);
    CHECK_EQ_INT(turned_in(40, "y = Conv-11 (x, w)\n"), 0);
    CHECK_EQ_INT(turned_in(40, "a = Conv-11 (x, v)\ny = Conv-11 (a, d) group=16\n"), 2);
    CHECK_EQ_INT(turned_in(40, "a = Transpose-13 (x) perm=[0,2,1]\nc = Relu-14 (a)\n"
                               "e = Transpose-13 (c) perm=[0,2,1]\nf = Conv-11 (e, w)\n"
                               "y = Transpose-13 (f) perm=[0,2,1]\n"),
                 1);
}

/* Heads that are images, as for a convolution, and rows again behind it (MViT v2). */
#define HEADS_AS_IMAGES                                                                         \
    "input r f32[6,4,5,8]\nconst four i64[4] = 2 3 8 20\nx = Transpose-13 (r) perm=[0,3,1,2]\n" \
    "h = Reshape-14 (x, four) \"heads\"\n"

TEST(graph_pass_channels_last_of_heads_seen_as_images) {
    check("+channels_last",
          HEADS_AS_IMAGES "t = Transpose-13 (h) \"rows\" perm=[0,1,3,2]\n"
                          "y = Softmax-13 (t) \"y\"\noutput y\n",
          "input r f32[6,4,5,8]\nconst #6 i64[4] = -1 3 20 8\n"
          "t = Reshape-13 (r, #6) \"rows\"\ny = Softmax-13 (t) \"y\"\noutput y\n",
          1);
    /* another order, and pixels that are not all there */
    LEFT_ALONE("+channels_last", HEADS_AS_IMAGES "t = Transpose-13 (h) perm=[0,2,3,1]\n"
                                                 "y = Softmax-13 (t)\noutput y\n");
    LEFT_ALONE("+channels_last",
               "input r f32[6,4,5,8]\nconst four i64[4] = 2 3 10 16\n"
               "x = Transpose-13 (r) perm=[0,3,1,2]\nh = Reshape-14 (x, four)\n"
               "t = Transpose-13 (h) perm=[0,1,3,2]\ny = Softmax-13 (t)\noutput y\n");
}

DEVICE_TEST(heads_seen_as_images_keep_results) {
    const mp_shape in[] = {SHAPE(6, 4, 5, 8)};
    pass_check_run_by(device, "+channels_last",
                      HEADS_AS_IMAGES "t = Transpose-13 (h) perm=[0,1,3,2]\n"
                                      "y = Softmax-13 (t)\noutput y\n",
                      in, 1e-5, 1);
}
