/* rotary_pass_test.c - rotary positions in primitive operators.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#include <stdio.h>

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

DEVICE_TEST(rotary_of_fewer_dimensions_for_sines_changes_no_result) {
    pass_check_run(device,
                   "input x f32[?,5,2,4]\nconst c f32[1,1,2,4] = 1 2 1 2 3 4 3 4\n"
                   "const s f32[2,4] = 5 6 5 6 7 8 7 8\n" NUMBERS("2") TURNED("x") SUM("x"),
                   (mp_shape[]){SHAPE(2, 5, 2, 4)}, 1e-5, 1);
}

TEST(graph_pass_find_rotary_leaves_what_does_not_fit) {
    /* halves that may differ, other parts than halves, double */
    LEFT_ALONE(NULL, "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\ninput b f32[2,1,3,4]\n" NUMBERS(
                         "4") "t = Concat-13 (a, b) axis=-1\n" COSINES TURNED("x") SUM("x"));
    LEFT_ALONE(NULL, "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\n" NUMBERS("2") ALL("x"));
    LEFT_ALONE(NULL, "input x f64[2,5,3,8]\ninput a f64[2,1,3,4]\n" NUMBERS("4") ALL("x"));
    /* cosines for each entry of the batch, sines for all of them */
    LEFT_ALONE("-fold", "input x f32[2,5,1,4]\nconst c f32[2,1,1,4] = 1 2 1 2 3 4 3 4\n"
                        "const s f32[1,4] = 1 2 1 2\n" NUMBERS("2") TURNED("x") SUM("x"));
}

/* ---- pairs of neighbours ---- */

/* Each angle of half a row twice; cosines and sines, each of them twice. */
#define EACH "au = Unsqueeze-13 (a, behind)\nat = Tile-13 (au, twos)\nt = Reshape-14 (at, seen)\n"
#define MADE                                                                               \
    "ca = Cos-7 (a)\nsa = Sin-7 (a)\n"                                                     \
    "cu = Unsqueeze-13 (ca, behind)\nct = Tile-13 (cu, twos)\nc = Reshape-14 (ct, seen)\n" \
    "su = Unsqueeze-13 (sa, behind)\nsw = Concat-13 (su, su) axis=4\n"                     \
    "s = Reshape-14 (sw, seen)\n"
/* The second of each pair, negated, and the first one. */
#define EVERY(x, first, second)                          \
    "l = Slice-13 (" x ", " first ", all, last, two)\n"  \
    "r = Slice-13 (" x ", " second ", all, last, two)\n" \
    "m = Neg-13 (r)\n"                                   \
    "mu = Unsqueeze-13 (m, behind)\n"                    \
    "lu = Unsqueeze-13 (l, behind)\n"                    \
    "st = Concat-13 (mu, lu) axis=-1\n"                  \
    "h = Reshape-14 (st, seen)\n"
#define PAIRED(x) EVERY(x, "none", "one") "p = Mul-14 (" x ", c)\nq = Mul-14 (h, s)\n"
#define PAIRS(x)  PAIRED(x) "y = Add-14 (p, q) \"sum\"\noutput y\n"
/* The lists by which a Slice takes every second element. */
#define SECOND(a, b, c, d)                                                 \
    "const #" a " i64[1] = 0\nconst #" b " i64[1] = 9223372036854775807\n" \
    "const #" c " i64[1] = -1\nconst #" d " i64[1] = 2\n"
#define LISTS(more)                                                                               \
    "const behind i64[1] = -1\nconst twos i64[5] = 1 1 1 1 2\n" more "const seen i64[4] = 0 0 0 " \
    "8\n"
#define TURNS                                                             \
    "const none i64[1] = 0\nconst one i64[1] = 1\nconst two i64[1] = 2\n" \
    "const all i64[1] = 99\nconst last i64[1] = 3\n"

TEST(graph_pass_find_rotary_of_pairs) {
    static const char ports[] = "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\n";
    char from[2048], to[2048];
    /* cosines of what is there twice: every second one of them */
    (void)snprintf(from, sizeof from, "%s%s", ports, LISTS(TURNS) EACH COSINES PAIRS("x"));
    (void)snprintf(to, sizeof to, "%s%s", ports,
                   LISTS("") SECOND("25", "26", "27", "28") SECOND("30", "31", "32", "33")
                       EACH COSINES "c#29 = Slice-13 (c, #25, #26, #27, #28) \"c\"\n"
                                    "s#34 = Slice-13 (s, #30, #31, #32, #33) \"s\"\n"
                                    "y = millpond.RotaryHalves-1 (x, c#29, s#34) \"rotary+sum\" "
                                    "interleaved=1\noutput y\n");
    check("-same,-dead", from, to, 1);
    /* cosines that are there twice themselves: what they were before */
    (void)snprintf(from, sizeof from, "%s%s", ports, LISTS(TURNS) MADE PAIRS("x"));
    (void)snprintf(to, sizeof to, "%s%s", ports,
                   "ca = Cos-7 (a)\nsa = Sin-7 (a)\n"
                   "y = millpond.RotaryHalves-1 (x, ca, sa) \"rotary+sum\" interleaved=1\n"
                   "output y\n");
    check("-same", from, to, 1);
}

/* The product of x and cosines, of heads in rows, in front of a Transpose of its own. */
#define BEHIND(dims)                                                                            \
    "ca = Cos-7 (b)\nsa = Sin-7 (a)\ncu = Unsqueeze-13 (ca, behind)\nct = Tile-13 (cu, twos)\n" \
    "c = Reshape-14 (ct, " dims ")\nsu = Unsqueeze-13 (sa, behind)\nst2 = Tile-13 (su, twos)\n" \
    "s = Reshape-14 (st2, seen)\n" TRANSPOSE EVERY(                                             \
        "x", "none", "one") "o = Mul-14 (w, c)\np = Transpose-13 (o) perm=[0,2,1,3]\n"          \
                            "q = Mul-14 (h, s)\ny = Add-14 (p, q) \"sum\"\noutput y\n"
#define BEHIND_PORTS "input w f32[2,3,5,8]\ninput a f32[2,1,3,4]\ninput b f32[2,3,1,4]\n"

TEST(graph_pass_find_rotary_with_a_product_before_heads_are_put_first) {
    char from[2048];
    (void)snprintf(from, sizeof from, "%s%s%s", BEHIND_PORTS,
                   LISTS(TURNS "const rows i64[4] = 0 0 1 8\n"), BEHIND("rows"));
    check("-same", from,
          BEHIND_PORTS "const #32 i64[4] = 0 1 -1 4\n"
                       "ca = Cos-7 (b)\nsa = Sin-7 (a)\nca#33 = Reshape-13 (ca, #32) \"ca\"\n"
                       "y = millpond.RotaryHalves-1 (w, ca#33, sa) \"rotary+sum\" interleaved=1 "
                       "turned=1\noutput y\n",
          1);
}

DEVICE_TEST(rotary_with_a_product_before_heads_are_put_first_changes_no_result) {
    pass_check_run(device,
                   "input w f32[?,?,5,8]\ninput a f32[?,1,?,4]\ninput b f32[?,?,1,4]\n" LISTS(
                       TURNS "const rows i64[4] = 0 0 1 8\n") BEHIND("rows"),
                   (mp_shape[]){SHAPE(2, 3, 5, 8), SHAPE(2, 1, 3, 4), SHAPE(2, 3, 1, 4)}, 1e-5, 1);
}

TEST(graph_pass_find_rotary_leaves_other_pairs) {
    /* the first of each pair negated, halves alike instead of pairs, seen in other dimensions */
    LEFT_ALONE("-dead", "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\n" LISTS(TURNS)
                            MADE EVERY("x", "one", "none") SUM("x"));
    LEFT_ALONE("-dead", "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\n"
                        "const behind i64[1] = -1\n" TURNS
                        "const seen i64[4] = 0 0 0 8\n" TWICE COSINES PAIRS("x"));
    LEFT_ALONE("-dead",
               "input x f32[2,5,3,8]\ninput a f32[2,1,3,4]\nconst other i64[4] = 2 3 5 8\n" LISTS(
                   TURNS) MADE "l = Slice-13 (x, none, all, last, two)\n"
                               "r = Slice-13 (x, one, all, last, two)\nm = Neg-13 (r)\n"
                               "mu = Unsqueeze-13 (m, behind)\nlu = Unsqueeze-13 (l, behind)\n"
                               "st = Concat-13 (mu, lu) axis=-1\nh = Reshape-14 (st, other)\n"
                               "p = Mul-14 (x, c)\nq = Mul-14 (h, s)\ny = Add-14 (p, q) \"sum\"\n"
                               "output y\n");
}

/* ---- heads that are put first behind it ---- */

#define ROWS3              "input x f32[2,3,5,8]\ninput c f32[2,3,1,4]\ninput s f32[2,3,1,4]\n"
#define MOVED              "c#6 = Reshape-13 (c, #5) \"c\"\ns#8 = Reshape-13 (s, #7) \"s\"\n"
#define ROTATED(out, more) out " = millpond.RotaryHalves-1 (x, c, s) \"r\" interleaved=1\n" more

TEST(graph_pass_turn_rotary) {
    check("-same", ROWS3 ROTATED("r", "y = Transpose-13 (r) perm=[0,2,1,3]\noutput y\n"),
          ROWS3 "const #5 i64[4] = 0 1 -1 4\nconst #7 i64[4] = 0 1 -1 4\n" MOVED
                "y = millpond.RotaryHalves-1 (x, c#6, s#8) \"r\" interleaved=1 turned=1\n"
                "output y\n",
          1);
    /* angles that heads share in any case */
    check("-same",
          "input x f32[2,3,5,8]\ninput c f32[8]\ninput s f32[8]\n"
          "r = millpond.RotaryHalves-1 (x, c, s) \"r\"\n"
          "y = Transpose-13 (r) perm=[0,2,1,3]\noutput y\n",
          "input x f32[2,3,5,8]\ninput c f32[8]\ninput s f32[8]\n"
          "y = millpond.RotaryHalves-1 (x, c, s) \"r\" turned=1\noutput y\n",
          1);
    /* angles of each head, what others read, and another order */
    LEFT_ALONE(NULL, "input x f32[2,3,5,8]\ninput c f32[2,3,5,4]\ninput s f32[2,3,5,4]\n" ROTATED(
                         "r", "y = Transpose-13 (r) perm=[0,2,1,3]\noutput y\n"));
    LEFT_ALONE(NULL,
               ROWS3 ROTATED("r", "y = Transpose-13 (r) perm=[0,2,1,3]\noutput y\noutput r\n"));
    LEFT_ALONE(NULL, ROWS3 ROTATED("r", "y = Transpose-13 (r) perm=[2,0,1,3]\noutput y\n"));
}

TEST(graph_pass_turn_rotary_for_attention) {
    check("-same,-join_rotary",
          ROWS3 "input k f32[2,5,3,8]\n" ROTATED(
              "r", "y = millpond.Attention-1 (r, k, k) \"at\" divided=1 q_perm=[0,2,1,3]\n"
                   "output y\n"),
          ROWS3 "input k f32[2,5,3,8]\nconst #7 i64[4] = 0 1 -1 4\nconst #9 i64[4] = 0 1 -1 4\n"
                "c#8 = Reshape-13 (c, #7) \"c\"\ns#10 = Reshape-13 (s, #9) \"s\"\n"
                "r#6 = millpond.RotaryHalves-1 (x, c#8, s#10) \"r\" interleaved=1 turned=1\n"
                "y = millpond.Attention-1 (r#6, k, k) \"at\" divided=1\noutput y\n",
          1);
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

DEVICE_TEST(rotary_passes_of_pairs_change_no_result) {
    static const char open[] =
        "input x f32[?,5,?,8]\ninput a f32[?,1,?,4]\n" LISTS(TURNS) MADE PAIRS("x");
    static const char twice[] =
        "input x f32[?,5,?,8]\ninput a f32[?,1,?,4]\n" LISTS(TURNS) EACH COSINES PAIRS("x");
    /* heads in rows, which are put first behind it */
    static const char rows[] = "input x f32[?,?,5,8]\ninput a f32[?,?,1,4]\n" LISTS(TURNS)
        MADE PAIRED("x") "z = Add-14 (p, q)\ny = Transpose-13 (z) perm=[0,2,1,3]\noutput y\n";
    pass_check_run(device, open, (mp_shape[]){SHAPE(2, 5, 3, 8), SHAPE(1, 1, 3, 4)}, 1e-5, 1);
    pass_check_run(device, open, (mp_shape[]){SHAPE(1, 5, 1, 8), SHAPE(2, 1, 3, 4)}, 1e-5, 1);
    pass_check_run(device, twice, (mp_shape[]){SHAPE(2, 5, 3, 8), SHAPE(2, 1, 3, 4)}, 1e-5, 1);
    pass_check_run(device, rows, (mp_shape[]){SHAPE(2, 3, 5, 8), SHAPE(2, 3, 1, 4)}, 1e-5, 2);
    pass_check_run(device, rows, (mp_shape[]){SHAPE(2, 3, 5, 8), SHAPE(1, 3, 1, 4)}, 1e-5, 2);
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
