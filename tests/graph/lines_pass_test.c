/* lines_pass_test.c - convolutions over lines, such as sounds and texts, with their channels last.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"

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
