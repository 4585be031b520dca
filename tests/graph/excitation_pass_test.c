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
