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
