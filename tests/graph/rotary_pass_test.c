/* rotary_pass_test.c - rotary positions in primitive operators.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

/* Angles of half a row, twice; cosines and sines for all heads. */
#define TWICE   "t = Concat-13 (a, a) axis=-1\n"
#define COSINES "c = Cos-7 (t)\ns = Sin-7 (t)\n"
/* Where x is parted. */
#define NUMBERS(half)                                                              \
    "const none i64[1] = 0\nconst half i64[1] = " half "\nconst all i64[1] = 99\n" \
    "const last i64[1] = 3\n"
#define TURNED(x)                                                                     \
    "l = Slice-13 (" x ", none, half, last)\nr = Slice-13 (" x ", half, all, last)\n" \
    "m = Neg-13 (r)\nh = Concat-13 (m, l) axis=-1\n"
#define SUM(x)    "p = Mul-14 (" x ", c)\nq = Mul-14 (h, s)\ny = Add-14 (p, q) \"sum\"\noutput y\n"
#define ALL(x)    TWICE COSINES TURNED(x) SUM(x)
#define TRANSPOSE "x = Transpose-13 (w) perm=[0,2,1,3]\n"

TEST(graph_pass_find_rotary) {
    check("-same", "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\n" NUMBERS("4") ALL("x"),
          "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\n" TWICE COSINES
          "y = millpond.RotaryHalves-1 (x, c, s) \"rotary+sum\"\noutput y\n",
          1);
    /* heads that a Transpose has brought together */
    check("-same", "input w f32[2,3,5,8]\ninput a f32[2,1,3,4]\n" NUMBERS("4") TRANSPOSE ALL("x"),
          "input w f32[2,3,5,8]\ninput a f32[2,1,3,4]\n" TWICE COSINES
          "y = millpond.RotaryHalves-1 (w, c, s) \"rotary+sum\" turned=1\noutput y\n",
          1);
}

TEST(graph_pass_find_rotary_leaves_what_does_not_fit) {
    /* halves that may differ, other parts than halves, double */
    LEFT_ALONE(NULL, "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\ninput b f32[2,1,3,4]\n" NUMBERS(
                         "4") "t = Concat-13 (a, b) axis=-1\n" COSINES TURNED("x") SUM("x"));
    LEFT_ALONE(NULL, "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\n" NUMBERS("2") ALL("x"));
    LEFT_ALONE(NULL, "input x f64[2,5,3,8]\ninput a f64[2,1,3,4]\n" NUMBERS("4") ALL("x"));
}

/* Heads that are normalised before, wherever they are put first. */
#define PORTS(type)                                                       \
    "input w " type "[2,3,5,8]\ninput c " type "[2,1,3,8]\ninput s " type \
    "[2,1,3,8]\nconst g " type "[8]\n"
#define NORM(from, attrs)  "n = RMSNormalization-23 (" from ", g) \"norm\" " attrs "epsilon=0.5f\n"
#define TURN(from)         "h = Transpose-13 (" from ") perm=[0,2,1,3]\n"
#define ROTATE(from, more) "y = millpond.RotaryHalves-1 (" from ", c, s) \"r\"" more "\noutput y\n"

TEST(graph_pass_norm_rotary) {
    static const char whole[] = PORTS("f16") "y = millpond.RotaryHalves-1 (w, c, s, g) \"norm+r\" "
                                             "epsilon=0.5f turned=1\noutput y\n";
    check(NULL, PORTS("f16") NORM("w", "") ROTATE("n", " turned=1"), whole, 1);
    check(NULL, PORTS("f16") TURN("w") NORM("h", "axis=3 ") ROTATE("n", ""), whole, 1);
    check(NULL,
          "input w f32[2,5,3,8]\ninput c f32[3,8]\ninput s f32[3,8]\nconst g f32[8]\n" NORM(
              "w", "axis=-1 ") ROTATE("n", ""),
          "input w f32[2,5,3,8]\ninput c f32[3,8]\ninput s f32[3,8]\nconst g f32[8]\n"
          "y = millpond.RotaryHalves-1 (w, c, s, g) \"norm+r\" epsilon=0.5f\noutput y\n",
          1);
}

TEST(graph_pass_norm_rotary_leaves_what_does_not_fit) {
    static const char open[] = "input w f32[2,3,5,?]\ninput c f32[2,1,3,8]\ninput s f32[2,1,3,8]\n"
                               "const g f32[8]\n" NORM("w", "") ROTATE("n", " turned=1");
    static const char given[] = "input w f32[2,3,5,8]\ninput c f32[2,1,3,8]\ninput s f32[2,1,3,8]\n"
                                "input g f32[8]\n" NORM("w", "") ROTATE("n", " turned=1");
    static const char mixed[] = "input w f32[2,3,5,8]\ninput c f16[2,1,3,8]\ninput s f16[2,1,3,8]\n"
                                "const g f16[8]\n" NORM("w", "") ROTATE("n", " turned=1");
    LEFT_ALONE("-norm_rotary", PORTS("f32") NORM("w", "") ROTATE("n", " turned=1"));
    LEFT_ALONE(NULL, open);
    LEFT_ALONE(NULL, given);
    LEFT_ALONE(NULL, mixed);
    LEFT_ALONE(NULL, PORTS("f32") NORM("w", "axis=2 ") ROTATE("n", " turned=1"));
    /* what others read, rows of several heads */
    LEFT_ALONE(NULL, PORTS("f32") NORM("w", "") ROTATE("n", " turned=1") "output n\n");
    LEFT_ALONE(NULL, "input w f32[2,3,40]\ninput c f32[2,1,3,8]\ninput s f32[2,1,3,8]\n"
                     "const g f32[40]\n" NORM("w", "") ROTATE("n", " part=[0,5,8,8]"));
}

DEVICE_TEST(norm_rotary_changes_no_result) {
    static const char open[] =
        "input w f32[?,?,5,8]\ninput a f32[?,1,?,4]\nconst g f32[8]\n" TWICE COSINES NORM("w", "")
            ROTATE("n", " turned=1");
    static const char half[] =
        "input w bf16[?,?,5,32]\ninput a bf16[?,1,?,16]\nconst g bf16[32]\n" TWICE COSINES NORM(
            "w", "") ROTATE("n", " turned=1");
    pass_check_run(device, open, (mp_shape[]){SHAPE(2, 3, 5, 8), SHAPE(1, 1, 3, 4)}, 1e-5, 1);
    pass_check_run(device, open, (mp_shape[]){SHAPE(2, 1, 5, 8), SHAPE(2, 1, 4, 4)}, 1e-5, 1);
    pass_check_run(device, half, (mp_shape[]){SHAPE(2, 3, 5, 32), SHAPE(2, 1, 3, 16)}, 0.04, 1);
}

DEVICE_TEST(rotary_passes_change_no_result) {
    static const char open[] = "input x f32[?,5,?,8]\ninput a f32[?,1,?,4]\n" NUMBERS("4") ALL("x");
    pass_check_run(device, "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\n" NUMBERS("4") ALL("x"),
                   (mp_shape[]){SHAPE(2, 5, 3, 8), SHAPE(2, 1, 3, 4)}, 1e-5, 1);
    pass_check_run(device,
                   "input w f32[2,3,5,8]\ninput a f32[2,1,3,4]\n" NUMBERS("4") TRANSPOSE ALL("x"),
                   (mp_shape[]){SHAPE(2, 3, 5, 8), SHAPE(2, 1, 3, 4)}, 1e-5, 1);
    /* one row of angles for all, and heads of one row for several rows of angles */
    pass_check_run(device, open, (mp_shape[]){SHAPE(2, 5, 3, 8), SHAPE(1, 1, 1, 4)}, 1e-5, 1);
    pass_check_run(device, open, (mp_shape[]){SHAPE(1, 5, 1, 8), SHAPE(2, 1, 3, 4)}, 1e-5, 1);
}
