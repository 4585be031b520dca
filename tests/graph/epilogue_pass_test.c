/* epilogue_pass_test.c - what comes behind convolutions and products becomes part of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#include <stdio.h>

TEST(graph_pass_conv_epilogue) {
    check(NULL,
          "input x f32[?,4,?,?]\ninput z f32[?,6,?,?]\nconst w f32[6,4,3,3]\nconst b f32[6]\n"
          "c = Conv-11 (x, w, b) \"conv\" pads=[1,1,1,1]\ns = Add-14 (z, c) \"sum\"\n"
          "y = Relu-14 (s) \"relu\"\noutput y\n",
          "input x f32[?,4,?,?]\ninput z f32[?,6,?,?]\nconst w f32[6,4,3,3]\nconst b f32[6]\n"
          "y = millpond.FusedConv-1 (x, w, b, z) \"conv+sum+relu\" pads=[1,1,1,1] "
          "activation=\"Relu\"\noutput y\n",
          1);
    /* a row that is added is no image */
    LEFT_ALONE(NULL, "input x f32[?,4,?,?]\nconst z f32[1,6,1,1]\nconst w f32[6,4,3,3]\n"
                     "c = Conv-11 (x, w)\ny = Add-14 (z, c)\noutput y\n");
    check(NULL,
          "input x f32[?,4,?,?]\nconst w f32[6,4,3,3]\n"
          "c = Conv-11 (x, w) \"conv\" pads=[1,1,1,1]\ny = Relu-14 (c) \"relu\"\noutput y\n",
          "input x f32[?,4,?,?]\nconst w f32[6,4,3,3]\n"
          "y = millpond.FusedConv-1 (x, w) \"conv+relu\" pads=[1,1,1,1] activation=\"Relu\"\n"
          "output y\n",
          1);
    LEFT_ALONE(NULL, "input x f32[?,4,?,?]\nconst w f32[6,4,3,3]\nc = Conv-11 (x, w)\n"
                     "y = Relu-14 (c)\noutput y\noutput c\n");
    check(NULL,
          "input x f32[?,4,?,?]\nconst w f32[6,4,3,3]\nconst low f32[] = 0\nconst top f32[] = 6\n"
          "c = Conv-11 (x, w) \"conv\"\ny = Clip-13 (c, low, top) \"clip\"\noutput y\n",
          "input x f32[?,4,?,?]\nconst w f32[6,4,3,3]\n"
          "y = millpond.FusedConv-1 (x, w) \"conv+clip\" activation=\"Clip\" "
          "activation_params=...\noutput y\n",
          1);
    /* x times sigmoid(x) is one node by then */
    check(NULL,
          "input x f32[?,4,?,?]\nconst w f32[6,4,3,3]\nc = Conv-11 (x, w) \"conv\"\n"
          "g = Sigmoid-13 (c) \"gate\"\ny = Mul-14 (c, g) \"product\"\noutput y\n",
          "input x f32[?,4,?,?]\nconst w f32[6,4,3,3]\n"
          "y = millpond.FusedConv-1 (x, w) \"conv+gate+product\" activation=\"Silu\"\noutput y\n",
          2);
    /* no activation */
    LEFT_ALONE(NULL, "input x f32[?,4,?,?]\nconst w f32[6,4,3,3]\nc = Conv-11 (x, w)\n"
                     "y = Exp-13 (c)\noutput y\n");
}

/* A sum behind an activation that no library has on the way to memory. */
TEST(graph_pass_conv_residual_behind) {
    check(NULL,
          "input x f32[?,4,?,?]\ninput z f32[?,6,?,?]\nconst w f32[6,4,3,3]\n"
          "c = Conv-11 (x, w) \"conv\" pads=[1,1,1,1]\n"
          "a = LeakyRelu-16 (c) \"leaky\" alpha=0.1f\ny = Add-14 (z, a) \"sum\"\noutput y\n",
          "input x f32[?,4,?,?]\ninput z f32[?,6,?,?]\nconst w f32[6,4,3,3]\n"
          "y = millpond.FusedConv-1 (x, w, , z) \"conv+leaky+sum\" pads=[1,1,1,1] "
          "activation=\"LeakyRelu\" activation_params=... residual_behind=1\noutput y\n",
          1);
    /* one sum is before the activation already */
    check(NULL,
          "input x f32[?,4,?,?]\ninput z f32[?,6,?,?]\nconst w f32[6,4,3,3]\n"
          "c = Conv-11 (x, w) \"conv\" pads=[1,1,1,1]\ns = Add-14 (c, z) \"sum\"\n"
          "a = Sigmoid-13 (s) \"gate\"\ny = Add-14 (z, a) \"again\"\noutput y\n",
          "input x f32[?,4,?,?]\ninput z f32[?,6,?,?]\nconst w f32[6,4,3,3]\n"
          "a = millpond.FusedConv-1 (x, w, , z) \"conv+sum+gate\" pads=[1,1,1,1] "
          "activation=\"Sigmoid\"\ny = Add-14 (z, a) \"again\"\noutput y\n",
          1);
    /* Relu, single pixels, each channel by itself: the convolution has the activation alone */
    static const char *const apart[][3] = {
        {"const w f32[6,6,3,3]\n", "", "Relu"},
        {"const w f32[6,6,1,1]\n", "", "Sigmoid"},
        {"const w f32[6,1,3,3]\n", " group=6", "Sigmoid"},
    };
    for (size_t i = 0; i < MP_COUNT_OF(apart); i++) {
        const char *const *c = apart[i];
        char from[256], to[256];
        (void)snprintf(from, sizeof from,
                       "input x f32[?,6,?,?]\n%sc = Conv-11 (x, w) \"c\"%s\n"
                       "a = %s-13 (c) \"a\"\ny = Add-14 (x, a) \"y\"\noutput y\n",
                       c[0], c[1], c[2]);
        (void)snprintf(to, sizeof to,
                       "input x f32[?,6,?,?]\n%sa = millpond.FusedConv-1 (x, w) \"c+a\"%s "
                       "activation=\"%s\"\ny = Add-14 (x, a) \"y\"\noutput y\n",
                       c[0], c[1], c[2]);
        check(NULL, from, to, 1);
    }
}

/* The bias of a transposed convolution goes to what follows. */
TEST(graph_pass_transposed_bias) {
    check(NULL,
          "input x f32[?,2,?,?]\nconst w f32[2,3,3,3]\nconst b f32[3] = 1 2 3\n"
          "c = ConvTranspose-11 (x, w, b) \"c\" strides=[2,2]\ny = Relu-14 (c) \"y\"\noutput y\n",
          "input x f32[?,2,?,?]\nconst w f32[2,3,3,3]\nconst b#6 f32[3,1,1] = 1 2 3\n"
          "c#5 = ConvTranspose-11 (x, w) \"c\" strides=[2,2]\nc = Add-14 (c#5, b#6) \"c\"\n"
          "y = Relu-14 (c) \"y\"\noutput y\n",
          1);
    /* that others read, or no element-wise node, or whose bias is no constant */
    LEFT_ALONE(NULL, "input x f32[1,2,5]\nconst w f32[2,3,3]\nconst b f32[3]\n"
                     "c = ConvTranspose-11 (x, w, b)\ny = Relu-14 (c)\noutput c\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[1,2,5]\nconst w f32[2,3,3]\nconst b f32[3]\n"
                     "c = ConvTranspose-11 (x, w, b)\ny = Conv-11 (c, w)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[1,2,5]\ninput b f32[3]\nconst w f32[2,3,3]\n"
                     "c = ConvTranspose-11 (x, w, b)\ny = Relu-14 (c)\noutput y\n");
    /* of one element for three channels, which the operator refuses */
    LEFT_ALONE(NULL, "input x f32[1,2,5]\nconst w f32[2,3,3]\nconst b f32[1]\n"
                     "c = ConvTranspose-11 (x, w, b)\ny = Relu-14 (c)\noutput y\n");
}

/* Forced: the graph is for no device that prefers it. */
TEST(graph_pass_channels_last) {
    check("+channels_last",
          "input x f32[1,4,8,8]\nconst w f32[4,4,3,3]\nconst v f32[4,4,1,1]\n"
          "const s f32[4,1,1] = 1 2 3 4\na = Conv-11 (x, w) \"a\" pads=[1,1,1,1]\n"
          "b = Mul-14 (a, s) \"b\"\nc = Conv-11 (b, v) \"c\"\n"
          "d = Concat-13 (b, c) \"d\" axis=1\ne = GlobalAveragePool-1 (d) \"e\"\n"
          "f = Flatten-13 (e) \"f\"\noutput f\n",
          "input x f32[1,4,8,8]\nconst w f32[4,4,3,3]\nconst v f32[4,4,1,1]\n"
          "const s#12 f32[1,1,1,4] = 1 2 3 4\nconst #18 i64[2] = 1 2\nconst #19 i64[2] = 2 3\n"
          "x#10 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "a#11 = com.ms.internal.nhwc.Conv-11 (x#10, w) \"a\" pads=[1,1,1,1]\n"
          "b#13 = Mul-14 (a#11, s#12) \"b\"\n"
          "c#14 = com.ms.internal.nhwc.Conv-11 (b#13, v) \"c\"\n"
          "d#15 = Concat-13 (b#13, c#14) \"d\" axis=3\n"
          "e#16 = com.ms.internal.nhwc.GlobalAveragePool-1 (d#15) \"e\"\n"
          "e#17 = Squeeze-13 (e#16, #18) \"e\"\ne = Unsqueeze-13 (e#17, #19) \"e\"\n"
          "f = Flatten-13 (e) \"f\"\noutput f\n",
          9);
    /* a number that makes more than an image of it */
    check("+channels_last",
          "input x f32[1,4,8,8]\nconst w f32[4,4,3,3]\nconst s f32[1,1,1,1,1] = 2\n"
          "a = Conv-11 (x, w) \"a\"\nb = Mul-14 (a, s) \"b\"\noutput b\n",
          "input x f32[1,4,8,8]\nconst w f32[4,4,3,3]\nconst s f32[1,1,1,1,1] = 2\n"
          "x#5 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "a#6 = com.ms.internal.nhwc.Conv-11 (x#5, w) \"a\"\n"
          "a = Transpose-13 (a#6) \"a\" perm=[0,3,1,2]\nb = Mul-14 (a, s) \"b\"\noutput b\n",
          1);
    /* a volume */
    check("+channels_last",
          "input x f32[1,4,8,8,8]\nconst w f32[4,4,3,3,3]\nconst s f32[4,1,1,1] = 1 2 3 4\n"
          "a = Conv-11 (x, w) \"a\"\nb = Mul-14 (a, s) \"b\"\n"
          "c = GlobalAveragePool-1 (b) \"c\"\noutput c\n",
          "input x f32[1,4,8,8,8]\nconst w f32[4,4,3,3,3]\nconst s#8 f32[1,1,1,1,4] = 1 2 3 4\n"
          "const #12 i64[3] = 1 2 3\nconst #13 i64[3] = 2 3 4\n"
          "x#6 = Transpose-13 (x) \"x\" perm=[0,2,3,4,1]\n"
          "a#7 = com.ms.internal.nhwc.Conv-11 (x#6, w) \"a\"\n"
          "b#9 = Mul-14 (a#7, s#8) \"b\"\n"
          "c#10 = com.ms.internal.nhwc.GlobalAveragePool-1 (b#9) \"c\"\n"
          "c#11 = Squeeze-13 (c#10, #12) \"c\"\nc = Unsqueeze-13 (c#11, #13) \"c\"\noutput c\n",
          5);
    /* a constant image */
    check("+channels_last",
          "input x f32[1,2,2,2]\nconst w f32[2,2,1,1]\nconst s f32[2,2,2] = 1 2 3 4 5 6 7 8\n"
          "a = Conv-11 (x, w) \"a\"\nb = Mul-14 (a, s) \"b\"\n"
          "y = ReduceMax-13 (b) \"y\" axes=[1] keepdims=0\noutput y\n",
          "input x f32[1,2,2,2]\nconst w f32[2,2,1,1]\n"
          "const s#8 f32[1,2,2,2] = 1 5 2 6 3 7 4 8\n"
          "x#6 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "a#7 = com.ms.internal.nhwc.Conv-11 (x#6, w) \"a\"\nb#9 = Mul-14 (a#7, s#8) \"b\"\n"
          "y = ReduceMax-13 (b#9) \"y\" keepdims=0 axes=[3]\noutput y\n",
          5);
    /* weights that are no constant */
    LEFT_ALONE("+channels_last", "input x f32[1,4,8,8]\ninput w f32[4,4,3,3]\ny = Conv-11 (x, w)\n"
                                 "output y\n");
    /* not asked for */
    LEFT_ALONE(NULL, "input x f32[1,4,8,8]\nconst w f32[4,4,3,3]\ny = Conv-11 (x, w)\n"
                     "output y\n");
}

/* Sizes that are asked for need no image with its channels first. */
TEST(graph_pass_channels_last_of_shapes) {
    check("+channels_last",
          "input x f32[1,4,8,8]\nconst w f32[4,4,3,3]\na = Conv-11 (x, w) \"a\"\n"
          "s = Shape-15 (a) \"s\" start=-2\nt = Shape-13 (a) \"t\"\noutput s\noutput t\n",
          "input x f32[1,4,8,8]\nconst w f32[4,4,3,3]\nconst #8 i64[2] = 1 2\n"
          "const #10 i64[4] = 0 3 1 2\nx#5 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "a#6 = com.ms.internal.nhwc.Conv-11 (x#5, w) \"a\"\ns#7 = Shape-13 (a#6) \"s\"\n"
          "s = Gather-13 (s#7, #8) \"s\"\nt#9 = Shape-13 (a#6) \"t\"\n"
          "t = Gather-13 (t#9, #10) \"t\"\noutput s\noutput t\n",
          4);
}

/* What stands for a constant may have more dimensions than that. */
TEST(graph_pass_channels_last_leaves_shapes_of_constants) {
    check("+channels_last,-conv_epilogue",
          "input x f32[1,4,8,8]\nconst w f32[4,4,3,3]\nconst k f32[4,1,1] = 1 2 3 4\n"
          "a = Conv-11 (x, w)\ny = Mul-14 (a, k)\ns = Shape-13 (k)\noutput y\noutput s\n",
          "input x f32[1,4,8,8]\nconst w f32[4,4,3,3]\nconst k f32[4,1,1] = 1 2 3 4\n"
          "const k#8 f32[1,1,1,4] = 1 2 3 4\nx#6 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "a#7 = com.ms.internal.nhwc.Conv-11 (x#6, w)\ny#9 = Mul-14 (a#7, k#8)\n"
          "s = Shape-13 (k)\ny = Transpose-13 (y#9) \"y\" perm=[0,3,1,2]\noutput y\noutput s\n",
          3);
}

/* Parts without a twin are turned for the convolution that reads all of them. */
TEST(graph_pass_channels_last_of_parts) {
    check("+channels_last",
          "input x f32[1,4,8,8]\ninput p f32[1,1,8,8]\nconst w f32[4,4,3,3]\n"
          "const v f32[4,5,1,1]\na = Conv-11 (x, w) \"a\" pads=[1,1,1,1]\n"
          "d = Concat-13 (p, a) \"d\" axis=1\ny = Conv-11 (d, v) \"y\" pads=[1,1,1,1]\n"
          "output y\n",
          "input x f32[1,4,8,8]\ninput p f32[1,1,8,8]\nconst w f32[4,4,3,3]\n"
          "const v f32[4,5,1,1]\nx#7 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "a#8 = com.ms.internal.nhwc.Conv-11 (x#7, w) \"a\" pads=[1,1,1,1]\n"
          "p#9 = Transpose-13 (p) \"p\" perm=[0,2,3,1]\n"
          "d#10 = Concat-13 (p#9, a#8) \"d\" axis=3\n"
          "y#11 = com.ms.internal.nhwc.Conv-11 (d#10, v) \"y\" pads=[1,1,1,1]\n"
          "y = Transpose-13 (y#11) \"y\" perm=[0,3,1,2]\noutput y\n",
          5);
    /* where none does, the whole is not turned */
    check("+channels_last",
          "input x f32[1,4,8,8]\ninput p f32[1,1,8,8]\nconst w f32[4,4,3,3]\n"
          "a = Conv-11 (x, w) \"a\" pads=[1,1,1,1]\ny = Concat-13 (p, a) \"d\" axis=1\n"
          "output y\n",
          "input x f32[1,4,8,8]\ninput p f32[1,1,8,8]\nconst w f32[4,4,3,3]\n"
          "x#5 = Transpose-13 (x) \"x\" perm=[0,2,3,1]\n"
          "a#6 = com.ms.internal.nhwc.Conv-11 (x#5, w) \"a\" pads=[1,1,1,1]\n"
          "a = Transpose-13 (a#6) \"a\" perm=[0,3,1,2]\n"
          "y = Concat-13 (p, a) \"d\" axis=1\noutput y\n",
          1);
}

/* Pixels of 16 bytes for tensor cores. */
TEST(graph_pass_channels_last_of_few_channels) {
    check("+channels_last",
          "input x f16[?,5,?,?]\nconst w f16[2,5,1,1] = 1 2 3 4 5 6 7 8 9 10\n"
          "y = Conv-11 (x, w) \"a\"\noutput y\n",
          "input x f16[?,5,?,?]\n"
          "const w#4 f16[2,8,1,1] = 1 2 3 4 5 0 0 0 6 7 8 9 10 0 0 0\n"
          "x#3 = millpond.PadChannels-1 (x) \"x\"\n"
          "y#5 = com.ms.internal.nhwc.Conv-11 (x#3, w#4) \"a\"\n"
          "y = Transpose-13 (y#5) \"y\" perm=[0,3,1,2]\noutput y\n",
          1);
    /* that a kernel of ours reads as they are, whoever reads them besides */
    check("+channels_last",
          "input x f16[?,3,?,?]\nconst w f16[2,3,1,1] = 1 2 3 4 5 6\n"
          "a = Conv-11 (x, w) \"a\" strides=[2,2]\ny = Relu-14 (a) \"b\"\noutput x\noutput y\n",
          "input x f16[?,3,?,?]\nconst w f16[2,3,1,1] = 1 2 3 4 5 6\n"
          "y#4 = millpond.StemConv-1 (x, w) \"a+b\" strides=[2,2] activation=\"Relu\"\n"
          "y = Transpose-13 (y#4) \"y\" perm=[0,3,1,2]\noutput x\noutput y\n",
          2);
    /* in groups, or read by others, or without its channels known: only turned */
    static const char *const turned[][2] = {
        {"input x f32[?,2,?,?]\n", "group=2\n"},
        {"input x f32[?,1,?,?]\noutput x\n", "\n"},
        {"input x f32[?,?,?,?]\n", "\n"},
    };
    for (size_t i = 0; i < MP_COUNT_OF(turned); i++) {
        mp_graph *graph = NULL;
        char *text = NULL;
        char from[256];
        int64_t done = 0;
        (void)snprintf(from, sizeof from,
                       "%sconst w f32[2,1,1,1] = 1 2\ny = Conv-11 (x, w) %soutput y\n",
                       turned[i][0], turned[i][1]);
        CHECK_OK(mp_graph_read(from, &graph));
        CHECK_OK(mp_passes_run(graph, "+channels_last", &done));
        CHECK_OK(mp_graph_write(graph, &text));
        CHECK_STR_HAS(text, "Transpose-13 (x)");
        free(text);
        mp_graph_destroy(graph);
    }
}

/* How many images are turned for a device that prefers channels last. */
static int turned_in(const char *nodes) {
    mp_graph *graph = NULL;
    char *text = NULL;
    char from[512];
    int64_t done = 0;
    int count = 0;
    (void)snprintf(from, sizeof from,
                   "input x f16[2,16,8,8]\nconst w f16[16,16,1,1]\nconst d f16[16,1,3,3]\n"
                   "const v f16[16,16,3,3]\nconst b f16[16]\n%soutput y\n",
                   nodes);
    CHECK_OK(mp_graph_read(from, &graph));
    graph->prefers_last = true;
    CHECK_OK(mp_passes_run(graph, NULL, &done));
    CHECK_OK(mp_graph_write(graph, &text));
    for (const char *at = strstr(text, "= Transpose-"); at != NULL;
         at = strstr(at + 1, "= Transpose-")) {
        count++;
    }
    free(text);
    mp_graph_destroy(graph);
    return count;
}

/* Where the order matters little, an image is not turned for one convolution. */
TEST(graph_pass_channels_last_of_planes) {
    CHECK_EQ_INT(turned_in("y = Conv-11 (x, w)\n"), 0);
    CHECK_EQ_INT(turned_in("y = Conv-11 (x, d) group=16 pads=[1,1,1,1]\n"), 0);
    CHECK_EQ_INT(turned_in("a = Conv-11 (x, d, b) group=16 pads=[1,1,1,1]\ny = Relu-14 (a)\n"), 0);
    CHECK_EQ_INT(turned_in("a = Conv-11 (x, w)\ny = Conv-11 (a, d) group=16\n"), 0);
    CHECK_EQ_INT(turned_in("y = Conv-11 (x, v)\n"), 2);
    CHECK_EQ_INT(turned_in("y = Conv-11 (x, w) strides=[2,2]\n"), 2);
    CHECK_EQ_INT(turned_in("y = Conv-11 (x, w) pads=[0,1,0,1]\n"), 2);
    CHECK_EQ_INT(turned_in("y = Conv-11 (x, w, b)\n"), 2);
    CHECK_EQ_INT(turned_in("a = Conv-11 (x, w)\ny = Relu-14 (a)\n"), 2);
    CHECK_EQ_INT(turned_in("y = ConvTranspose-11 (x, v) strides=[2,2]\n"), 2);
    CHECK_EQ_INT(turned_in("a = ConvTranspose-11 (x, v)\ny = ConvTranspose-11 (a, d)\n"), 2);
    CHECK_EQ_INT(turned_in("y = ConvTranspose-11 (x, v) strides=[3,3]\n"), 0);
    CHECK_EQ_INT(turned_in("y = ConvTranspose-11 (x, d) group=16\n"), 0);
    CHECK_EQ_INT(turned_in("y = ConvTranspose-11 (x, d)\n"), 0);
    /* before and behind one that wants it */
    CHECK_EQ_INT(turned_in("a = Conv-11 (x, v)\np = Conv-11 (a, w)\ny = Conv-11 (p, d) group=16\n"),
                 2);
    CHECK_EQ_INT(turned_in("a = Conv-11 (x, w)\ny = Conv-11 (a, v)\n"), 2);
}

TEST(graph_pass_gemm_epilogue) {
    check(
        NULL,
        "input x f32[2,8]\nconst w f32[8,16]\nconst b f32[16]\np = MatMul-13 (x, w) \"product\"\n"
        "s = Add-14 (b, p) \"sum\"\ny = Relu-14 (s) \"relu\"\noutput y\n",
        "input x f32[2,8]\nconst w f32[8,16]\nconst b f32[16]\n"
        "y = millpond.MatMulBias-1 (x, w, b) \"product+sum+relu\" activation=\"Relu\"\noutput y\n",
        2);
    check(NULL,
          "input x f16[2,8]\nconst w f16[16,8]\nconst b f16[16]\n"
          "p = Gemm-13 (x, w, b) \"product\" transB=1\n"
          "y = Gelu-20 (p) \"gelu\" approximate=\"tanh\"\noutput y\n",
          "input x f16[2,8]\nconst w f16[16,8]\nconst b f16[16]\n"
          "y = com.microsoft.FusedGemm-1 (x, w, b) \"product+gelu\" activation=\"Gelu\" "
          "activation_alpha=1f transB=1\noutput y\n",
          1);
    /* by erf, or x times a sigmoid, in front of a product */
    check(NULL,
          "input x f16[?,8]\nconst w f16[8,16]\nconst b f16[16]\nconst v f16[16,8]\n"
          "p = Gemm-13 (x, w, b) \"product\"\ng = Gelu-20 (p) \"gelu\"\n"
          "y = MatMul-13 (g, v)\noutput y\n",
          "input x f16[?,8]\nconst w f16[8,16]\nconst b f16[16]\nconst v f16[16,8]\n"
          "g = com.microsoft.FusedGemm-1 (x, w, b) \"product+gelu\" activation=\"Gelu\"\n"
          "y = MatMul-13 (g, v)\noutput y\n",
          1);
    check(NULL,
          "input x f16[2,8]\nconst w f16[8,16]\nconst b f16[16]\nconst v f16[16,8]\n"
          "p = MatMul-13 (x, w) \"product\"\ns = Add-14 (p, b) \"sum\"\n"
          "g = com.microsoft.QuickGelu-1 (s) \"gelu\" alpha=1.5f\ny = MatMul-13 (g, v)\noutput y\n",
          "input x f16[2,8]\nconst w f16[8,16]\nconst b f16[16]\nconst v f16[16,8]\n"
          "g = millpond.MatMulBias-1 (x, w, b) \"product+sum+gelu\" activation=\"Swish\" "
          "activation_alpha=1.5f\ny = MatMul-13 (g, v)\noutput y\n",
          2);
    /* without a bias: another product follows, not a gate */
    check(NULL,
          "input x f32[2,8]\nconst w f32[8,16]\nconst v f32[16,8]\n"
          "p = MatMul-13 (x, w) \"product\"\nr = Relu-14 (p) \"relu\"\n"
          "y = MatMul-13 (r, v)\noutput y\n",
          "input x f32[2,8]\nconst w f32[8,16]\nconst v f32[16,8]\n"
          "r = millpond.MatMulBias-1 (x, w) \"product+relu\" activation=\"Relu\"\n"
          "y = MatMul-13 (r, v)\noutput y\n",
          1);
    LEFT_ALONE(NULL, "input x f32[2,8]\ninput z f32[2,16]\nconst w f32[8,16]\n"
                     "p = MatMul-13 (x, w)\nr = Relu-14 (p)\ny = Mul-14 (r, z)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,8]\ninput w f32[8,16]\nconst v f32[16,8]\n"
                     "p = MatMul-13 (x, w)\nr = Relu-14 (p)\ny = MatMul-13 (r, v)\noutput y\n");
    /* in front of parts that are cut out, too */
    check(NULL,
          "input x f16[257,8]\nconst w f16[8,16]\nconst b f16[16]\nconst v f16[16,8]\n"
          "const n i64[1] = 0\nconst m i64[1] = 8\nconst one i64[1] = 1\n"
          "p = Gemm-13 (x, w, b) \"product\"\ng = Gelu-20 (p) \"gelu\"\n"
          "y = MatMul-13 (g, v)\nz = Slice-13 (g, n, m, one)\noutput y\noutput z\n",
          "input x f16[257,8]\nconst w f16[8,16]\nconst b f16[16]\nconst v f16[16,8]\n"
          "const n i64[1] = 0\nconst m i64[1] = 8\nconst one i64[1] = 1\n"
          "g = com.microsoft.FusedGemm-1 (x, w, b) \"product+gelu\" activation=\"Gelu\"\n"
          "y = MatMul-13 (g, v)\nz = Slice-13 (g, n, m, one)\noutput y\noutput z\n",
          1);
    /* an element-wise node besides; very many rows; floats that may not be rounded */
    LEFT_ALONE(NULL, "input x f16[2,8]\nconst w f16[8,16]\nconst v f16[16,8]\n"
                     "p = Gemm-13 (x, w)\ng = Gelu-20 (p)\ny = MatMul-13 (g, v)\n"
                     "z = Exp-13 (g)\noutput y\noutput z\n");
    LEFT_ALONE(NULL, "input x f16[65537,8]\nconst w f16[8,16]\nconst v f16[16,8]\n"
                     "p = Gemm-13 (x, w)\ng = Gelu-20 (p)\ny = MatMul-13 (g, v)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,8]\nconst w f32[8,16]\nconst v f32[16,8]\n"
                     "p = Gemm-13 (x, w)\ng = Gelu-20 (p)\ny = MatMul-13 (g, v)\noutput y\n");
    /* by erf; by tanh in float; an activation of its own */
    LEFT_ALONE(NULL, "input x f16[2,8]\nconst w f16[8,16]\np = Gemm-13 (x, w)\n"
                     "y = Gelu-20 (p)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,8]\nconst w f32[8,16]\np = Gemm-13 (x, w)\n"
                     "y = Gelu-20 (p) approximate=\"tanh\"\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,8]\nconst w f32[8,16]\np = Gemm-13 (x, w)\n"
                     "y = Tanh-13 (p)\noutput y\n");
}

TEST(graph_pass_matmul_epilogue) {
    check(NULL,
          "input x f32[2,8,3]\ninput z f32[2,5,8]\nconst four f32[] = 4\n"
          "a = Transpose-13 (x) perm=[0,2,1]\nb = Transpose-13 (z) perm=[0,2,1]\n"
          "p = MatMul-13 (a, b) \"product\"\ny = Div-14 (p, four) \"scale\"\noutput y\n",
          "input x f32[2,8,3]\ninput z f32[2,5,8]\n"
          "y = com.microsoft.FusedMatMul-1 (x, z) \"product+scale\" alpha=0.25f transA=1 transB=1\n"
          "output y\n",
          1);
    /* numbers before, also in front of a transposition */
    check(NULL,
          "input x f16[2,8,3]\ninput z f16[2,8,5]\nconst four f16[] = 4\nconst two f16[1] = 2\n"
          "s = Mul-14 (four, x)\na = Transpose-13 (s) perm=[0,2,1]\nb = Div-14 (z, two)\n"
          "y = MatMul-13 (a, b) \"product\"\noutput y\n",
          "input x f16[2,8,3]\ninput z f16[2,8,5]\n"
          "y = com.microsoft.FusedMatMul-1 (x, z) \"product\" alpha=2f transA=1\noutput y\n",
          1);
    /* one that others read, too; a number divided by a matrix; rows of numbers; nothing */
    LEFT_ALONE(NULL, "input x f16[3,8]\ninput z f16[8,5]\nconst four f16[] = 4\n"
                     "s = Mul-14 (four, x)\ny = MatMul-13 (s, z)\noutput y\noutput s\n");
    LEFT_ALONE(NULL, "input x f16[3,8]\ninput z f16[8,5]\nconst four f16[] = 4\n"
                     "s = Div-14 (four, x)\ny = MatMul-13 (s, z)\noutput y\n");
    LEFT_ALONE(NULL, "input x f16[3,2]\ninput z f16[2,5]\nconst four f16[2] = 4 5\n"
                     "s = Mul-14 (four, x)\ny = MatMul-13 (s, z)\noutput y\n");
    LEFT_ALONE(NULL, "input x f16[3,2]\ninput z f16[2,5]\nconst none f16[] = 0\n"
                     "s = Mul-14 (none, x)\ny = MatMul-13 (s, z)\noutput y\n");
    /* another order; a number divided by the product; double */
    LEFT_ALONE(NULL, "input x f32[2,8,3]\ninput z f32[2,8,5]\nconst four f32[] = 4\n"
                     "a = Transpose-13 (x) perm=[2,0,1]\np = MatMul-13 (a, z)\n"
                     "y = Div-14 (four, p)\noutput y\n");
    LEFT_ALONE(NULL, "input x f64[2,3]\ninput z f64[3,5]\nconst four f64[] = 4\n"
                     "p = MatMul-13 (x, z)\ny = Mul-14 (p, four)\noutput y\n");
}

DEVICE_TEST(epilogue_passes_keep_results) {
    static const char *const products =
        "input x f32[?,8]\nconst w f32[8,16]\nconst b f32[16]\nconst v f32[16,8]\n"
        "const four f32[] = 4\np = MatMul-13 (x, w)\ns = Add-14 (b, p)\nr = Relu-14 (s)\n"
        "g = Gemm-13 (r, v)\nh = Relu-14 (g)\nt = Transpose-13 (x) perm=[1,0]\n"
        "m = MatMul-13 (t, h)\ny = Mul-14 (four, m)\noutput y\noutput r\n";
    static const char *const narrow =
        "input x f16[?,8]\nconst w f16[8,16]\nconst b f16[16]\np = MatMul-13 (x, w)\n"
        "s = Add-14 (b, p)\ny = Gelu-20 (s) approximate=\"tanh\"\nconst four f16[] = 4\n"
        "q = Div-14 (x, four)\nz = MatMul-13 (q, w)\noutput y\noutput z\n";
    static const char *const bare =
        "input x f16[?,8]\nconst w f16[8,16]\nconst v f16[16,8]\np = MatMul-13 (x, w)\n"
        "g = Gelu-20 (p) approximate=\"tanh\"\ny = MatMul-13 (g, v)\noutput y\n";
    static const char *const images =
        "input x f32[?,4,?,?]\ninput z f32[?,?,?,?]\nconst w f32[6,4,3,3]\nconst b f32[6]\n"
        "const v f32[6,6,1,1]\n"
        "c = Conv-11 (x, w, b) pads=[1,1,1,1]\nd = Relu-14 (c)\ne = Conv-11 (d, v)\n"
        "f = Add-14 (e, z)\n"
        "g = Relu-14 (f)\nh = Conv-11 (x, w) pads=[1,1,1,1]\ni = LeakyRelu-16 (h)\n"
        "j = Add-14 (z, i)\noutput g\noutput j\n";
    const mp_shape rows[] = {SHAPE(5, 8)};
    const mp_shape image[] = {SHAPE(2, 4, 5, 7), SHAPE(2, 6, 5, 7)};
    const mp_shape small[] = {SHAPE(2, 4, 5, 7), SHAPE(1, 6, 1, 1)};
    const mp_shape large[] = {SHAPE(1, 4, 5, 7), SHAPE(3, 6, 5, 7)};
    const mp_shape none[] = {SHAPE(0, 4, 5, 7), SHAPE(0, 6, 5, 7)};
    pass_check_run(device, products, rows, 1e-4, 4);
    pass_check_run(device, narrow, rows, 4e-3, 3);
    pass_check_run(device, bare, rows, 4e-3, 1);
    pass_check_run(device, images, image, 1e-4, 3);
    pass_check_run(device, images, small, 1e-4, 3);
    pass_check_run(device, images, large, 1e-4, 3);
    pass_check_run(device, images, none, 1e-4, 3);
}

#define CUT                                                                                \
    "input x f32[2,5,3,3]\ninput s f32[2,3,3,3]\nconst z i64[1] = 0\nconst k i64[1] = 3\n" \
    "const e i64[1] = 5\nconst i i64[1] = 1\na = Slice-13 (x, z, k, i) \"a\"\n"            \
    "b = Slice-13 (x, k, e, i) \"b\"\n"

/* A sum with some channels, of which nobody else sees anything. */
TEST(graph_pass_part_residual) {
    check(NULL, CUT "c = Add-14 (s, a) \"c\"\ny = Concat-13 (c, b) \"y\" axis=1\noutput y\n",
          "input x f32[2,5,3,3]\ninput s f32[2,3,3,3]\nconst #10 i64[8] = 0 0 0 0 0 2 0 0\n"
          "const #11 f32[] = -0\ny#12 = Pad-13 (s, #10, #11) \"y\"\n"
          "y = Add-14 (x, y#12) \"c\"\noutput y\n",
          1);
    LEFT_ALONE(NULL, CUT "c = Add-14 (a, s)\ny = Concat-13 (c, b) axis=1\noutput y\noutput c\n");
    LEFT_ALONE(NULL, CUT "c = Add-14 (a, s)\ny = Concat-13 (b, c) axis=1\noutput y\n");
    LEFT_ALONE(NULL, CUT "c = Sub-14 (a, s)\ny = Concat-13 (c, b) axis=1\noutput y\n");
    LEFT_ALONE(NULL, CUT "c = Add-14 (a, s)\ny = Concat-13 (c, b) axis=3\noutput y\n");
    LEFT_ALONE(NULL, "input r f32[2,1,3,3]\n" CUT "c = Add-14 (a, r)\n"
                     "y = Concat-13 (c, b) axis=1\noutput y\noutput s\n");
}

DEVICE_TEST(graph_pass_part_residual_runs) {
#define PARTS(type)                                                                             \
    "input p " type "[?,5,?,?]\ninput s " type "[?,3,?,?]\nconst z i64[1] = 0\n"                \
    "const k i64[1] = -2\nconst e i64[1] = 99\nconst i i64[1] = 1\na = Slice-13 (p, z, k, i)\n" \
    "b = Slice-13 (p, k, e, i)\nc = Add-14 (a, s)\ny = Concat-13 (c, b) axis=1\noutput y\n"
    static const mp_shape in[] = {SHAPE(2, 5, 3, 5), SHAPE(2, 3, 3, 5)};
    static const mp_shape none[] = {SHAPE(0, 5, 3, 5), SHAPE(0, 3, 3, 5)};
    pass_check_run(device, PARTS("f32"), in, 0, 1);
    pass_check_run(device, PARTS("f16"), in, 0, 1);
    pass_check_run(device, PARTS("bf16"), in, 0, 1);
    pass_check_run(device, PARTS("f32"), none, 0, 1);
#undef PARTS
}

/* Two halves of an image's channels, each of which a product makes something of. */
#define HALVES(axis)                                                        \
    "input x f32[2,16,3,5]\nconst w f32[12,8,1,1]\nconst v f32[12,8,1,1]\n" \
    "const a f32[12]\nconst b f32[12]\ns, t = Split-13 (x) \"parts\" axis=" axis "\n"
#define PRODUCTS                                         \
    "c = Conv-11 (s, w, a) \"one\" kernel_shape=[1,1]\n" \
    "d = Conv-11 (t, v, b) \"other\" kernel_shape=[1,1]\n"

TEST(graph_pass_join_convs) {
    /* of constants whose bytes are not here, and in another order */
    LEFT_ALONE("+join_convs",
               HALVES("1") PRODUCTS "y = Concat-13 (c, d) \"all\" axis=1\noutput y\n");
    LEFT_ALONE("+join_convs",
               HALVES("1") PRODUCTS "y = Concat-13 (d, c) \"all\" axis=1\noutput y\n");
}

DEVICE_TEST(join_convs_keeps_results) {
    const mp_shape in[] = {SHAPE(2, 16, 3, 5)};
    pass_check_run_by(device, "+join_convs",
                      HALVES("1") PRODUCTS "y = Concat-13 (c, d) axis=1\noutput y\n", in, 1e-5, 1);
    pass_check_run_by(device, "+join_convs,+channels_last",
                      HALVES("1") PRODUCTS "y = Concat-13 (c, d) axis=1\noutput y\n", in, 1e-5, 2);
    pass_check_run_by(device, "+join_convs",
                      HALVES("1") PRODUCTS "y = Concat-13 (d, c) axis=1\noutput y\n", in, 1e-5, 0);
}
