/* half_norm_test.c - norms in float between casts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define ROWS "input x f16[?,2]\nconst g f32[2] = 1 0.5\nconst b f32[2] = 2 3\n"
#define CAST "c = Cast-13 (x) to=1\n"
#define NORM "n = LayerNormalization-17 (c, g, b) \"norm\" axis=-1 epsilon=0.5f\n"
#define BACK "y = Cast-13 (n) to=10\n"

TEST(graph_pass_half_norm) {
    check(NULL, ROWS CAST NORM BACK "output y\n",
          "input x f16[?,2]\nconst g#6 f16[2] = 1 0.5\nconst b#7 f16[2] = 2 3\n"
          "y = LayerNormalization-17 (x, g#6, b#7) \"norm\" axis=-1 epsilon=0.5f\noutput y\n",
          1);
    /* what is cast is read elsewhere, too */
    check(NULL, ROWS CAST NORM BACK "z = Exp-13 (c)\noutput y\noutput z\n",
          "input x f16[?,2]\nconst g#7 f16[2] = 1 0.5\nconst b#8 f16[2] = 2 3\n" CAST
          "y = LayerNormalization-17 (x, g#7, b#8) \"norm\" axis=-1 epsilon=0.5f\n"
          "z = Exp-13 (c)\noutput y\noutput z\n",
          1);
}

TEST(graph_pass_half_norm_of_a_sum) {
    check(NULL,
          "input x f16[?,3,2]\ninput z f16[?,3,2]\nconst g f32[2] = 1 0.5\n"
          "c = Cast-13 (x) to=1\nd = Cast-13 (z) to=1\n"
          "n, , , s = com.microsoft.SkipSimplifiedLayerNormalization-1 (c, d, g) \"norm\"\n"
          "y = Cast-13 (n) to=10\nt = Cast-13 (s) to=10\noutput y\noutput t\n",
          "input x f16[?,3,2]\ninput z f16[?,3,2]\nconst g#9 f16[2] = 1 0.5\n"
          "y, , , t = com.microsoft.SkipSimplifiedLayerNormalization-1 (x, z, g#9) \"norm\"\n"
          "output y\noutput t\n",
          1);
}

TEST(graph_pass_half_norm_rounds_nothing) {
    /* numbers that float16 has not, and one that it has but as an infinity */
    LEFT_ALONE(
        NULL,
        "input x f16[?,2]\nconst g f32[2] = 1 0.100000001\nconst b f32[2] = 2 3\n" CAST NORM BACK
        "output y\n");
    LEFT_ALONE(NULL,
               "input x f16[?,2]\nconst g f32[2] = 1 131072\nconst b f32[2] = 2 3\n" CAST NORM BACK
               "output y\n");
    /* a result that is read in float, is of another half type, or of rows that were float */
    LEFT_ALONE(NULL, ROWS CAST NORM BACK "z = Exp-13 (n)\noutput y\noutput z\n");
    LEFT_ALONE(NULL, ROWS CAST NORM "y = Cast-13 (n) to=16\noutput y\n");
    LEFT_ALONE(NULL, "input c f32[?,2]\nconst g f32[2] = 1 0.5\nconst b f32[2] = 2 3\n" NORM BACK
                     "output y\n");
}
