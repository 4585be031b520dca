/* excitation_pass_test.c - squeeze and excitation becomes one node.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define WEIGHTS "input x f32[?,?,?,8]\nconst v f32[4,8,1,1]\nconst a f32[4]\nconst w f32[8,4,1,1]\n"
#define SQUEEZED                                                  \
    "p = com.ms.internal.nhwc.GlobalAveragePool-1 (x) \"pool\"\n" \
    "q = millpond.nhwc.FusedConv-1 (p, v, a) \"first\" activation=\"Relu\"\n"
#define GATED                                                           \
    WEIGHTS SQUEEZED "g = millpond.nhwc.FusedConv-1 (q, w) \"second\" " \
                     "activation=\"HardSigmoid\"\n"
#define EXCITED(out, names, more)                                                   \
    out " = millpond.nhwc.SqueezeExcite-1 (x, v, a, w, ) \"pool+first+second" names \
        "\" activation=\"Relu\" gating=\"HardSigmoid\"" more "\n"

static void becomes(const char *from, const char *to) {
    check("+find_excitation", from, to, 1);
}

TEST(graph_pass_find_excitation) {
    becomes(GATED "output g\n", WEIGHTS EXCITED("g", "", "") "output g\n");
    /* what others read, what has neighbours, what no kernel takes, and not asked for */
    LEFT_ALONE("+find_excitation",
               WEIGHTS SQUEEZED "y = com.ms.internal.nhwc.Conv-11 (q, w)\noutput y\noutput q\n");
    LEFT_ALONE("+find_excitation", WEIGHTS SQUEEZED
               "y = com.ms.internal.nhwc.Conv-11 (q, w) pads=[1,1,1,1]\noutput y\n");
    LEFT_ALONE("+find_excitation",
               "input x f32[?,?,?,7]\nconst v f32[4,7,1,1]\nconst w f32[8,4,1,1]\n"
               "p = com.ms.internal.nhwc.GlobalAveragePool-1 (x)\n"
               "q = com.ms.internal.nhwc.Conv-11 (p, v)\n"
               "y = com.ms.internal.nhwc.Conv-11 (q, w)\noutput y\n");
    LEFT_ALONE(NULL, GATED "output g\n");
    check("gpu", GATED "output g\n", WEIGHTS EXCITED("g", "", "") "output g\n", 1);
}

TEST(graph_pass_find_excitation_of_images) {
#define SCALED EXCITED("y", "+scale", " scales=1")
#define ADDED  EXCITED("y", "+scale+add", " scales=1 adds=1")
    becomes(GATED "y = Mul-14 (x, g) \"scale\"\noutput y\n", WEIGHTS SCALED "output y\n");
    becomes(GATED "y = Mul-14 (g, x) \"scale\"\noutput y\n", WEIGHTS SCALED "output y\n");
    becomes(GATED "s = Mul-14 (x, g) \"scale\"\ny = Add-14 (s, x) \"add\"\noutput y\n",
            WEIGHTS ADDED "output y\n");
    becomes(GATED "s = Mul-14 (g, x) \"scale\"\ny = Add-14 (x, s) \"add\"\noutput y\n",
            WEIGHTS ADDED "output y\n");
    /* a sum with something else, and one of a product that others read */
    becomes("input z f32[?,?,?,8]\n" GATED
            "y = Mul-14 (x, g) \"scale\"\nt = Add-14 (y, z) \"add\"\noutput t\n",
            "input z f32[?,?,?,8]\n" WEIGHTS SCALED "t = Add-14 (y, z) \"add\"\noutput t\n");
    becomes(GATED "y = Mul-14 (x, g) \"scale\"\nt = Add-14 (y, x) \"add\"\noutput t\noutput y\n",
            WEIGHTS SCALED "t = Add-14 (y, x) \"add\"\noutput t\noutput y\n");
    /* the gates alone: others read them, too; they are for another image */
    becomes(GATED "y = Mul-14 (x, g) \"scale\"\noutput y\noutput g\n",
            WEIGHTS EXCITED("g", "", "") "y = Mul-14 (x, g) \"scale\"\noutput y\noutput g\n");
    becomes("input z f32[?,?,?,8]\n" GATED "y = Mul-14 (z, g) \"scale\"\noutput y\n",
            "input z f32[?,?,?,8]\n" WEIGHTS EXCITED("g", "",
                                                     "") "y = Mul-14 (z, g) \"scale\"\noutput y\n");
#undef SCALED
#undef ADDED
}

/* One gate for all channels is none for each. */
TEST(graph_pass_find_excitation_of_fewer_gates) {
    becomes("input x f32[?,?,?,8]\nconst v f32[4,8,1,1]\nconst w f32[1,4,1,1]\n"
            "p = com.ms.internal.nhwc.GlobalAveragePool-1 (x) \"a\"\n"
            "q = com.ms.internal.nhwc.Conv-11 (p, v) \"b\"\n"
            "g = com.ms.internal.nhwc.Conv-11 (q, w) \"c\"\ny = Mul-14 (x, g) \"d\"\noutput y\n",
            "input x f32[?,?,?,8]\nconst v f32[4,8,1,1]\nconst w f32[1,4,1,1]\n"
            "g = millpond.nhwc.SqueezeExcite-1 (x, v, , w, ) \"a+b+c\"\n"
            "y = Mul-14 (x, g) \"d\"\noutput y\n");
}

/* Products of rows are convolutions of pixels by the same weights, or by these turned. */
TEST(graph_pass_pooled_products) {
#define IMAGE                                                                \
    "input x f32[?,2,?,?]\nconst v f32[3,2] = 1 2 3 4 5 6\nconst a f32[3]\n" \
    "const w f32[3,2] = 1 2 3 4 5 6\nconst flat i64[2] = 0 -1\n"
#define AXES "const back i64[2] = 2 3\n"
#define MADE                                                                    \
    "p = GlobalAveragePool-1 (x) \"pool\"\nf = Reshape-14 (p, flat) \"flat\"\n" \
    "q = Gemm-13 (f, v, a) \"first\" transB=1\nr = Relu-14 (q) \"relu\"\n"      \
    "s = MatMul-13 (r, w) \"second\"\ng = Sigmoid-13 (s) \"gates\"\n"
#define BACK   "u = Unsqueeze-13 (g, back) \"back\"\n"
#define SHAPED "u = Reshape-14 (g, back) \"back\"\n"
#define SCALED "y = Mul-14 (x, u) \"scale\"\noutput y\n"
    static const char *const words = "+pooled_products,-conv_epilogue,-gemm_epilogue";
    static const char *const made =
        "input x f32[?,2,?,?]\nconst a f32[3]\nconst v#16 f32[3,2,1,1] = 1 2 3 4 5 6\n"
        "const w#19 f32[2,3,1,1] = 1 3 5 2 4 6\n"
        "p#14 = GlobalAveragePool-1 (x) \"pool\"\n"
        "q#15 = Conv-11 (p#14, v#16, a) \"first\"\nr#17 = Relu-14 (q#15) \"relu\"\n"
        "s#18 = Conv-11 (r#17, w#19) \"second\"\nu = Sigmoid-13 (s#18) \"gates\"\n"
        "y = Mul-14 (x, u) \"scale\"\noutput y\n";
    check(words, IMAGE AXES MADE BACK SCALED, made, 1);
    check(words, IMAGE "const back i64[4] = 0 2 1 1\n" MADE SHAPED SCALED, made, 1);
    /* what are no pixels; what others read, too; gates of something else; not asked for */
    LEFT_ALONE(words, IMAGE "const back i64[4] = 0 1 2 1\n" MADE SHAPED SCALED);
    LEFT_ALONE(words, IMAGE AXES MADE BACK SCALED "output g\n");
    LEFT_ALONE(words, "input z f32[?,2,?,?]\n" IMAGE AXES MADE BACK
                      "y = Mul-14 (z, u) \"scale\"\noutput y\n");
    LEFT_ALONE("-gemm_epilogue", IMAGE AXES MADE BACK SCALED);
#undef IMAGE
#undef AXES
#undef MADE
#undef BACK
#undef SHAPED
#undef SCALED
}
