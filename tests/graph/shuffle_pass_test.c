/* shuffle_pass_test.c - channels that are dealt to groups and taken from these in turns become one
 * operator, with what is joined before and cut behind.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#include <stdio.h>

#define HALVES      "input a f32[2,3,4,5]\ninput b f32[2,3,4,5]\n"
#define WHOLE       "input x f32[2,6,4,5]\n"
#define JOIN        "x = Concat-13 (a, b) axis=1\n"
#define LISTS(s, t) "const s i64[5] = " s "\nconst t i64[4] = " t "\n"
#define GOOD        LISTS("2 2 3 4 5", "2 6 4 5")
#define TURNS(perm) \
    "r = Reshape-14 (x, s)\nu = Transpose-13 (r) perm=" perm "\ny = Reshape-14 (u, t) \"y\"\n"
#define TURN   TURNS("[0,2,1,3,4]")
#define STARTS "const h i64[1] = 3\nconst e i64[1] = 9\nconst i i64[1] = 1\n"
#define ZERO   "const z i64[1] = 0\n"
#define CUT    "q = Slice-13 (y, h, e, i)\np = Slice-13 (y, z, h, i)\noutput p\noutput q\n"
#define ALL    "output y\n"

TEST(graph_pass_find_shuffle) {
    check(NULL, HALVES GOOD ZERO STARTS JOIN TURN CUT,
          HALVES "p, q = millpond.ShuffleParts-1 (a, b) \"y\" axis=1 groups=2 sizes=[3,3]\n"
                 "output p\noutput q\n",
          1);
    /* by a Split, and one of an older version */
    check(NULL,
          HALVES LISTS(
              "0 2 3 4 5",
              "0 6 -1 5") "const c i64[3] = 1 3 2\n" JOIN TURN
                          "p, q, w = Split-13 (y, c) axis=-3\noutput p\noutput q\noutput w\n",
          HALVES "p, q, w = millpond.ShuffleParts-1 (a, b) \"y\" axis=1 groups=2 "
                 "sizes=[1,3,2]\noutput p\noutput q\noutput w\n",
          1);
    check(NULL,
          WHOLE LISTS("2 3 -1 4 5", "2 -1 4 5") TURN
          "p, q = Split-2 (y) axis=1 split=[2,4]\noutput p\noutput q\n",
          WHOLE "p, q = millpond.ShuffleParts-1 (x) \"y\" axis=1 groups=3 sizes=[2,4]\n"
                "output p\noutput q\n",
          1);
    /* nothing in front or behind; channels last */
    check(NULL, WHOLE GOOD TURN ALL,
          WHOLE "y = millpond.ShuffleParts-1 (x) \"y\" axis=1 groups=2\n" ALL, 1);
    check(NULL, "input x f32[2,4,5,6]\n" LISTS("2 4 5 2 3", "2 4 5 6") TURNS("[0,1,2,4,3]") ALL,
          "input x f32[2,4,5,6]\ny = millpond.ShuffleParts-1 (x) \"y\" axis=3 groups=2\n" ALL, 1);
    /* parts that others read, too */
    check(NULL, HALVES GOOD JOIN TURN ALL "output x\n",
          HALVES "x = Concat-13 (a, b) axis=1\n"
                 "y = millpond.ShuffleParts-1 (a, b) \"y\" axis=1 groups=2\n" ALL "output x\n",
          1);
}

/* What reads the result is left where it does not cut all of it, along these channels. */
TEST(graph_pass_find_shuffle_leaves_readers) {
    static const char *const readers[] = {
        STARTS "q = Slice-13 (y, h, e, i)\noutput q\n",
        STARTS ZERO "q = Slice-13 (y, h, e, i)\np = Slice-13 (y, z, e, i)\noutput p\noutput q\n",
        STARTS ZERO "p = Slice-13 (y, z, h, i)\nq = Slice-13 (y, h, e, i)\nw = Relu-14 (y)\n"
                    "output p\noutput q\noutput w\n",
        STARTS ZERO
        "p = Slice-13 (y, z, h, i)\nq = Slice-13 (y, h, e, i)\noutput p\noutput q\n" ALL,
        "const c i64[2] = 2 2\np, q = Split-13 (y, c) axis=2\noutput p\noutput q\n",
        "p, q = Split-13 (y) axis=1\noutput p\noutput q\n", /* halves, of which nothing is known */
    };
    for (size_t i = 0; i < MP_COUNT_OF(readers); i++) {
        mp_graph *graph = NULL;
        char *text = NULL, from[1024];
        int64_t done = 0;
        (void)snprintf(from, sizeof from, "%s%s", WHOLE GOOD TURN, readers[i]);
        CHECK_OK(mp_graph_read(from, &graph));
        CHECK_OK(mp_passes_run(graph, NULL, &done));
        CHECK_OK(mp_graph_write(graph, &text));
        CHECK_STR_HAS(text, "y = millpond.ShuffleParts-1 (x) \"y\" axis=1 groups=2\n");
        CHECK_EQ_INT(done, 1);
        free(text);
        mp_graph_destroy(graph);
    }
}

/* A batch that is not known, as exporters ask for it, and an image of which nothing is. */
#define BATCH                                                                    \
    ZERO "const o i64[] = 0\nconst g i64[4] = 2 3 4 5\nconst f i64[3] = 6 4 5\n" \
         "k = Shape-15 (x)\nm = Gather-13 (k, o)\nn = Unsqueeze-13 (m, z)\n"     \
         "s = Concat-13 (n, g) axis=0\nt = Concat-13 (n, f) axis=0\n"
#define IMAGE                                                                                 \
    ZERO "const o i64[] = 0\nconst l i64[] = 2\nconst v i64[] = -1\nconst g i64[2] = 3 2\n"   \
         "const f i64[1] = 6\nk = Shape-15 (x)\nn = Gather-13 (k, o)\nm = Gather-13 (k, l)\n" \
         "q = Gather-13 (k, v)\nn1 = Unsqueeze-13 (n, z)\nm1 = Unsqueeze-13 (m, z)\n"         \
         "q1 = Unsqueeze-13 (q, z)\ns = Concat-13 (n1, g, m1, q1) axis=0\n"                   \
         "t = Concat-13 (n1, f, m1, q1) axis=0\n"

TEST(graph_pass_find_shuffle_of_unknown_sizes) {
    check(NULL, "input a f32[?,3,4,5]\ninput b f32[?,3,4,5]\n" STARTS JOIN BATCH TURN CUT,
          "input a f32[?,3,4,5]\ninput b f32[?,3,4,5]\n"
          "p, q = millpond.ShuffleParts-1 (a, b) \"y\" axis=1 groups=2 sizes=[3,3]\n"
          "output p\noutput q\n",
          1);
    check(NULL, "input x f32[?,6,?,?]\n" IMAGE TURN ALL,
          "input x f32[?,6,?,?]\ny = millpond.ShuffleParts-1 (x) \"y\" axis=1 groups=3\n" ALL, 1);
}

TEST(graph_pass_find_shuffle_leaves_others) {
    /* the batch, or the height, is not known to stay */
    LEFT_ALONE(NULL, "input x f32[?,6,?,?]\n" LISTS("-1 2 3 4 5", "-1 6 4 5") TURN ALL);
    LEFT_ALONE(NULL, "input x f32[?,6,?,5]\n" LISTS("0 2 3 4 -1", "0 6 4 -1") TURN ALL);
    LEFT_ALONE(NULL, WHOLE LISTS("1 2 3 8 5", "2 6 4 5") TURN ALL);
    LEFT_ALONE(NULL, WHOLE LISTS("2 2 3 4 5", "2 6 5 4") TURN ALL);
    LEFT_ALONE(NULL, WHOLE LISTS("2 2 3 4 5", "2 12 2 5") TURN ALL);
    LEFT_ALONE(NULL, WHOLE LISTS("2 4 3 2 5", "2 6 4 5") TURN ALL);
    /* another order; groups of one channel, and one group */
    LEFT_ALONE(NULL, WHOLE GOOD TURNS("[0,2,1,4,3]") ALL);
    LEFT_ALONE(NULL, WHOLE GOOD TURNS("[0,3,2,1,4]") ALL);
    LEFT_ALONE(NULL, WHOLE LISTS("2 6 1 4 5", "2 6 4 5") TURN ALL);
    LEFT_ALONE(NULL, WHOLE LISTS("2 1 6 4 5", "2 6 4 5") TURN ALL);
    /* what is between has other readers */
    LEFT_ALONE(NULL, WHOLE GOOD TURN ALL "output u\n");
    LEFT_ALONE(NULL, WHOLE GOOD TURN ALL "output r\n");
}

/* ---- channels last, and the same results ---- */

/* A half of a unit passes, the other one goes through convolutions, and so does what comes next. */
#define WEIGHTS "const w f32[4,4,1,1]\nconst d f32[3,4,3,3]\n"
#define UNIT(batch)                                                                      \
    "input a f32[" batch ",4,5,7]\n" WEIGHTS                                             \
    "const s i64[5] = 0 2 4 5 7\nconst t i64[4] = 0 8 5 7\nconst h i64[2] = 4 4\n"       \
    "b = Conv-11 (a, w) \"b\"\nx = Concat-13 (a, b) axis=1\n" TURN                       \
    "p, q = Split-13 (y, h) axis=1\nj = Conv-11 (q, d) \"j\" pads=[1,1,1,1]\noutput p\n" \
    "output j\n"

TEST(graph_pass_find_shuffle_with_channels_last) {
    check("+channels_last", UNIT("?"),
          "input a f32[?,4,5,7]\n" WEIGHTS "a#14 = Transpose-13 (a) \"a\" perm=[0,2,3,1]\n"
          "b#15 = com.ms.internal.nhwc.Conv-11 (a#14, w) \"b\"\n"
          "p#16, q#17 = millpond.ShuffleParts-1 (a#14, b#15) \"y\" groups=2 sizes=[4,4] axis=3\n"
          "j#18 = com.ms.internal.nhwc.Conv-11 (q#17, d) \"j\" pads=[1,1,1,1]\n"
          "p = Transpose-13 (p#16) \"p\" perm=[0,3,1,2]\n"
          "j = Transpose-13 (j#18) \"j\" perm=[0,3,1,2]\noutput p\noutput j\n",
          6);
}

DEVICE_TEST(graph_pass_find_shuffle_runs) {
    const mp_shape one[] = {SHAPE(1, 4, 5, 7)}, three[] = {SHAPE(3, 4, 5, 7)};
    const mp_shape halves[] = {SHAPE(2, 3, 4, 5), SHAPE(2, 3, 4, 5)};
    static const char *const words[] = {"-dead", "-dead +channels_last"};
    for (int i = 0; i < 2; i++) {
        pass_check_run_by(device, words[i], UNIT("1"), one, 1e-5, 1 + 3 * i);
        pass_check_run_by(device, words[i], UNIT("?"), three, 1e-5, 1 + 3 * i);
    }
    pass_check_run(device, HALVES GOOD ZERO STARTS JOIN TURN CUT, halves, 0, 1);
}

/* ---- ends of units ---- */

#define END(batch, activation)                                                       \
    "input a f32[" batch ",4,5,7]\nconst f f32[4,4,1,1]\nconst w f32[4,1,3,3]\n"     \
    "const wb f32[4]\nconst g f32[4,4,1,1]\nconst gb f32[4]\nconst d f32[3,4,1,1]\n" \
    "const s i64[5] = 0 2 4 5 7\nconst t i64[4] = 0 8 5 7\nconst h i64[2] = 4 4\n"   \
    "o = Conv-11 (a, f)\nc = Conv-11 (o, w, wb) group=4 pads=[1,1,1,1]\n"            \
    "m = Conv-11 (c, g, gb)\nb = " activation "\nx = Concat-13 (a, b) axis=1\n" TURN \
    "p, q = Split-13 (y, h) axis=1\nj = Conv-11 (q, d)\noutput p\noutput j\n"
#define LAST "+channels_last +find_shuffle_end"

/* Sums of products differ by their order; three images, and one. */
DEVICE_TEST(graph_pass_find_shuffle_end_runs) {
    const mp_shape one[] = {SHAPE(1, 4, 5, 7)}, three[] = {SHAPE(3, 4, 5, 7)};
    const mp_shape strided[] = {SHAPE(1, 4, 5, 7), SHAPE(1, 6, 9, 14)};
    pass_check_run_by(device, LAST, END("1", "Relu-14 (m)"), one, 1e-4, 12);
    pass_check_run_by(device, LAST, END("3", "Relu-14 (m)"), three, 1e-4, 12);
    /* not joined: another activation, as many images as there are */
    pass_check_run_by(device, LAST, END("1", "Sigmoid-13 (m)"), one, 1e-4, 11);
    pass_check_run_by(device, LAST, END("?", "Relu-14 (m)"), three, 1e-4, 11);
    /* the first unit of a stage: another image in turns, and half as many pixels */
    pass_check_run_by(device, LAST,
                      "input a f32[1,4,5,7]\ninput v f32[1,6,9,14]\nconst f f32[4,4,1,1]\n"
                      "const w f32[6,1,3,3]\nconst g f32[4,6,1,1]\nconst d f32[3,8,1,1]\n"
                      "const s i64[5] = 1 2 4 5 7\nconst t i64[4] = 1 8 5 7\n"
                      "o = Conv-11 (a, f)\nc = Conv-11 (v, w) group=6 pads=[1,1,1,1] "
                      "strides=[2,2]\nm = Conv-11 (c, g)\nb = Relu-14 (m)\n"
                      "x = Concat-13 (a, b) axis=1\n" TURN
                      "j = Conv-11 (y, d)\noutput j\noutput o\n",
                      strided, 1e-4, 11);
}
