/* window_pass_test.c - attention within the windows of an image, which are shifted by rolling it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

TEST(graph_pass_find_roll) {
    check(NULL,
          "input x f32[1,8,8,3]\nconst a i64[1] = 3\nconst e i64[1] = 9223372036854775807\n"
          "const z i64[1] = 0\nconst n i64[1] = -2\nconst p i64[1] = 6\nconst r i64[1] = 1\n"
          "const c i64[1] = 2\n"
          "b = Slice-13 (x, a, e, r)\nf = Slice-13 (x, z, a, r)\n"
          "y = Concat-13 (b, f) \"rows\" axis=1\n"
          "g = Slice-13 (y, n, e, c)\nh = Slice-13 (y, z, p, c)\n"
          "w = Concat-13 (g, h) \"both\" axis=-2\noutput w\n",
          "input x f32[1,8,8,3]\n"
          "w = millpond.Roll-1 (x) \"both\" axes=[1,2] starts=[3,-2]\noutput w\n",
          2);
    /* two along one axis; one that others read */
    check(NULL,
          "input x f32[?,?]\nconst a i64[1] = 3\nconst e i64[1] = 9223372036854775807\n"
          "const z i64[1] = 0\nconst r i64[1] = 1\n"
          "b = Slice-13 (x, a, e, r)\nf = Slice-13 (x, z, a, r)\ny = Concat-13 (b, f) axis=1\n"
          "g = Slice-13 (y, a, e, r)\nh = Slice-13 (y, z, a, r)\nw = Concat-13 (g, h) axis=1\n"
          "output w\n",
          "input x f32[?,?]\ny = millpond.Roll-1 (x) axes=[1] starts=[3]\n"
          "w = millpond.Roll-1 (y) axes=[1] starts=[3]\noutput w\n",
          2);
    /* other places, axes, values; more than is there */
    LEFT_ALONE(NULL, "input x f32[?,?]\nconst a i64[1] = 3\nconst m i64[1] = -3\n"
                     "const e i64[1] = 9223372036854775807\nconst z i64[1] = 0\n"
                     "const r i64[1] = 1\nb = Slice-13 (x, a, e, r)\nf = Slice-13 (x, z, m, r)\n"
                     "y = Concat-13 (b, f) axis=1\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,?]\nconst a i64[1] = 3\n"
                     "const e i64[1] = 9223372036854775807\nconst z i64[1] = 0\n"
                     "const r i64[1] = 1\nb = Slice-13 (x, a, e, r)\nf = Slice-13 (x, z, a, r)\n"
                     "y = Concat-13 (b, f) axis=0\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,?]\ninput v f32[?,?]\nconst a i64[1] = 3\n"
                     "const e i64[1] = 9223372036854775807\nconst z i64[1] = 0\n"
                     "const r i64[1] = 1\nb = Slice-13 (x, a, e, r)\nf = Slice-13 (v, z, a, r)\n"
                     "y = Concat-13 (b, f) axis=1\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,9]\nconst a i64[1] = 3\nconst e i64[1] = 8\n"
                     "const z i64[1] = 0\nconst r i64[1] = 1\nb = Slice-13 (x, a, e, r)\n"
                     "f = Slice-13 (x, z, a, r)\ny = Concat-13 (b, f) axis=1\noutput y\n");
}

#define ROLLED(type)                                                                           \
    "input x " type                                                                            \
    "\nconst a i64[1] = 3\nconst e i64[1] = 9223372036854775807\nconst z i64[1] = 0\n"         \
    "const m i64[1] = -2\nconst r i64[1] = 1\nconst c i64[1] = 2\nb = Slice-13 (x, a, e, r)\n" \
    "f = Slice-13 (x, z, a, r)\ny = Concat-13 (b, f) axis=1\ng = Slice-13 (y, m, e, c)\n"      \
    "h = Slice-13 (y, z, m, c)\nw = Concat-13 (g, h) axis=2\noutput w\n"

DEVICE_TEST(find_roll_keeps_results) {
    const mp_shape four[] = {SHAPE(3, 5, 7, 2)};
    const mp_shape wide[] = {SHAPE(2, 4, 4, 24)};
    const mp_shape small[] = {SHAPE(2, 2, 1, 3)}; /* starts beyond what is there */
    const mp_shape three[] = {SHAPE(3, 5, 7)};
    const mp_shape none[] = {SHAPE(3, 0, 7, 2)};
    pass_check_run(device, ROLLED("f32[?,?,?,?]"), four, 0, 2);
    pass_check_run(device, ROLLED("f16[?,?,?,?]"), wide, 0, 2);
    pass_check_run(device, ROLLED("f16[?,?,?,?]"), small, 0, 2);
    pass_check_run(device, ROLLED("f64[?,?,?]"), three, 0, 2);
    pass_check_run(device, ROLLED("bool[?,?,?,?]"), four, 0, 2);
    pass_check_run(device, ROLLED("f32[?,?,?,?]"), none, 0, 2);
}

TEST(graph_pass_identity_of_what_is_left_as_it_is) {
    check(NULL,
          "input x f32[2,6]\nconst n i64[4] = 0 0 0 0\nconst z i64[2] = 0 0\n"
          "const e i64[2] = 9 6\nconst r i64[2] = 0 -1\na = Pad-13 (x, n)\n"
          "b = Slice-13 (a, z, e, r)\ny = Relu-14 (b)\noutput y\n",
          "input x f32[2,6]\ny = Relu-14 (x)\noutput y\n", 2);
    LEFT_ALONE(NULL, "input x f32[2,6]\nconst n i64[4] = 0 0 1 0\na = Pad-13 (x, n)\n"
                     "y = Relu-14 (a)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,?]\nconst z i64[1] = 0\nconst e i64[1] = 6\n"
                     "const r i64[1] = 1\na = Slice-13 (x, z, e, r)\ny = Relu-14 (a)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,6]\nconst z i64[1] = 0\nconst e i64[1] = 6\n"
                     "const r i64[1] = 1\nconst s i64[1] = 2\na = Slice-13 (x, z, e, r, s)\n"
                     "y = Relu-14 (a)\noutput y\n");
}

TEST(graph_pass_window_mask) {
    check(NULL,
          "input s f32[2,3,4,4]\nconst m f32[1,2,1,4,4]\nconst wide i64[5] = 1 2 3 4 4\n"
          "const four i64[4] = -1 3 4 4\nw = Reshape-14 (s, wide)\na = Add-14 (w, m) \"mask\"\n"
          "b = Reshape-14 (a, four)\ny = Softmax-13 (b) axis=-1\noutput y\n",
          "input s f32[2,3,4,4]\nconst m f32[1,2,1,4,4]\nconst #8 i64[4] = 2 1 4 4\n"
          "mask = Reshape-13 (m, #8) \"mask\"\nb = Add-14 (s, mask) \"mask\"\n"
          "y = Softmax-13 (b) axis=-1\noutput y\n",
          1);
    check("-fold",
          "input s f32[4,3,4,4]\ninput m f32[2,1,4,4]\nconst wide i64[5] = 2 2 3 4 4\n"
          "const four i64[4] = 4 3 4 4\nw = Reshape-14 (s, wide)\na = Add-14 (m, w) \"mask\"\n"
          "b = Reshape-14 (a, four)\ny = Softmax-13 (b) axis=-1\noutput y\n",
          "input s f32[4,3,4,4]\ninput m f32[2,1,4,4]\nconst #8 i64[5] = 2 2 1 4 4\n"
          "const #10 i64[4] = 4 1 4 4\nmask = Expand-13 (m, #8) \"mask\"\n"
          "mask#11 = Reshape-13 (mask, #10) \"mask\"\nb = Add-14 (s, mask#11) \"mask\"\n"
          "y = Softmax-13 (b) axis=-1\noutput y\n",
          1);
    check(NULL,
          "input s f32[2,3,4,4]\nconst m f32[1,2,1,4,4]\nconst wide i64[5] = 1 2 3 4 4\n"
          "const four i64[4] = -1 3 4 4\nw = Reshape-14 (s, wide)\na = Add-14 (w, m) \"mask\"\n"
          "c = Add-14 (m, a) \"again\"\nb = Reshape-14 (c, four)\ny = Softmax-13 (b) axis=-1\n"
          "output y\n",
          "input s f32[2,3,4,4]\nconst m f32[1,2,1,4,4]\nconst #9 i64[4] = 2 1 4 4\n"
          "const #12 i64[4] = 2 1 4 4\nmask = Reshape-13 (m, #9) \"mask\"\n"
          "mask#11 = Add-14 (s, mask) \"mask\"\nagain = Reshape-13 (m, #12) \"again\"\n"
          "b = Add-14 (mask#11, again) \"again\"\ny = Softmax-13 (b) axis=-1\noutput y\n",
          2);
    /* a batch that is not known; another mask for each image; other scores behind; read elsewhere
     */
    LEFT_ALONE(NULL,
               "input s f32[?,3,4,4]\nconst m f32[1,2,1,4,4]\nconst wide i64[5] = -1 2 3 4 4\n"
               "const four i64[4] = -1 3 4 4\nw = Reshape-14 (s, wide)\na = Add-14 (w, m)\n"
               "b = Reshape-14 (a, four)\ny = Softmax-13 (b) axis=-1\noutput y\n");
    LEFT_ALONE(NULL, "input s f32[4,3,4,4]\nconst m f32[2,2,1,4,4]\nconst wide i64[5] = 2 2 3 4 4\n"
                     "const four i64[4] = -1 3 4 4\nw = Reshape-14 (s, wide)\na = Add-14 (w, m)\n"
                     "b = Reshape-14 (a, four)\ny = Softmax-13 (b) axis=-1\noutput y\n");
    LEFT_ALONE(NULL, "input s f32[4,3,4,4]\nconst m f32[1,2,1,4,4]\nconst wide i64[5] = 2 2 3 4 4\n"
                     "const four i64[4] = -1 4 3 4\nw = Reshape-14 (s, wide)\na = Add-14 (w, m)\n"
                     "b = Reshape-14 (a, four)\ny = Softmax-13 (b) axis=-1\noutput y\n");
    LEFT_ALONE(NULL, "input s f32[4,3,4,4]\nconst m f32[1,2,1,4,4]\nconst wide i64[5] = 2 2 3 4 4\n"
                     "const four i64[4] = -1 3 4 4\nw = Reshape-14 (s, wide)\na = Add-14 (w, m)\n"
                     "b = Reshape-14 (a, four)\ny = Softmax-13 (b) axis=-1\noutput y\noutput a\n");
}

DEVICE_TEST(window_mask_keeps_results) {
    static const char *const text =
        "input s f32[4,3,4,5]\nconst m f32[2,1,4,5]\nconst zero i64[1] = 0\n"
        "const wide i64[5] = 2 2 3 4 5\nconst four i64[4] = -1 3 4 5\n"
        "u = Unsqueeze-13 (m, zero)\nw = Reshape-14 (s, wide)\na = Add-14 (w, u) \"mask\"\n"
        "b = Reshape-14 (a, four)\ny = Softmax-13 (b) axis=-1\noutput y\n";
    static const char *const twice =
        "input s f32[4,3,4,5]\nconst m f32[1,2,1,4,5]\nconst o f32[1,2,1,4,5]\n"
        "const wide i64[5] = 2 2 3 4 5\nconst four i64[4] = -1 3 4 5\n"
        "w = Reshape-14 (s, wide)\na = Add-14 (w, m) \"mask\"\nc = Add-14 (a, o) \"again\"\n"
        "b = Reshape-14 (c, four)\ny = Softmax-13 (b) axis=-1\noutput y\n";
    const mp_shape in[] = {SHAPE(4, 3, 4, 5)};
    pass_check_run(device, text, in, 1e-6, 2);
    pass_check_run(device, twice, in, 1e-6, 2);
}

/* Scores of 2 x 3 pixels with 2 x 2 keys, and what `adds` adds to them. */
#define WIDE_SCORES                                                              \
    "input s f32[2,3,6,4]\ninput h f32[2,3,2,3,2,1]\ninput w f32[2,3,2,3,1,2]\n" \
    "const wide i64[6] = 2 3 2 3 2 2\nconst four i64[4] = 2 3 6 4\nv = Reshape-14 (s, wide)\n"

TEST(graph_pass_wide_scores) {
    check(NULL,
          WIDE_SCORES "a = Add-14 (v, h) \"rows\"\nb = Add-14 (w, a) \"columns\"\n"
                      "r = Reshape-14 (b, four) \"back\"\ny = Softmax-13 (r) axis=-1\noutput y\n",
          "input s f32[2,3,6,4]\ninput h f32[2,3,2,3,2,1]\ninput w f32[2,3,2,3,1,2]\n"
          "const #11 i64[4] = 2 3 6 4\nrows = Add-14 (h, w) \"rows\"\n"
          "rows#12 = Reshape-13 (rows, #11) \"rows\"\nr = Add-14 (s, rows#12) \"rows\"\n"
          "y = Softmax-13 (r) axis=-1\noutput y\n",
          1);
    /* which do not fill all scores; others that read them; something between */
    LEFT_ALONE(NULL, WIDE_SCORES "a = Add-14 (v, h)\nr = Reshape-14 (a, four)\n"
                                 "y = Softmax-13 (r) axis=-1\noutput y\n");
    LEFT_ALONE(NULL, WIDE_SCORES "a = Add-14 (v, h)\nb = Add-14 (a, w)\nr = Reshape-14 (b, four)\n"
                                 "y = Softmax-13 (r) axis=-1\noutput y\noutput a\n");
    LEFT_ALONE(NULL, WIDE_SCORES "a = Add-14 (v, h)\nb = Add-14 (a, w)\nc = Relu-14 (b)\n"
                                 "r = Reshape-14 (c, four)\ny = Softmax-13 (r) axis=-1\n"
                                 "output y\n");
}

DEVICE_TEST(wide_scores_keep_results) {
    const mp_shape in[] = {SHAPE(2, 3, 6, 4), SHAPE(2, 3, 2, 3, 2, 1), SHAPE(2, 3, 2, 3, 1, 2)};
    pass_check_run(device,
                   WIDE_SCORES "a = Add-14 (v, h)\nb = Add-14 (w, a)\nr = Reshape-14 (b, four)\n"
                               "y = Softmax-13 (r) axis=-1\noutput y\n",
                   in, 1e-5, 1);
}

#define SCATTERED "input x f32[2,2,3]\ninput u f32[2,2,3]\n"

TEST(graph_pass_identity_of_what_is_scattered_in_order) {
    check(NULL,
          SCATTERED "const all i64[2,2,2] = 0 0 0 1 1 0 1 1\nconst rows i64[2,1] = 0 1\n"
                    "a = ScatterND-18 (x, all, u) reduction=\"none\"\n"
                    "b = ScatterND-16 (a, rows, u)\ny = Relu-14 (b)\noutput y\n",
          SCATTERED "y = Relu-14 (u)\noutput y\n", 2);
    /* in another order; some; what is added to them */
    LEFT_ALONE(NULL, SCATTERED "const turned i64[2,2,2] = 0 0 1 0 0 1 1 1\n"
                               "a = ScatterND-18 (x, turned, u)\ny = Relu-14 (a)\noutput y\n");
    LEFT_ALONE(NULL, SCATTERED "const some i64[1,2,2] = 0 0 0 1\n"
                               "a = ScatterND-18 (x, some, u)\ny = Relu-14 (a)\noutput y\n");
    LEFT_ALONE(NULL, SCATTERED "const rows i64[2,1] = 0 1\n"
                               "a = ScatterND-18 (x, rows, u) reduction=\"add\"\n"
                               "y = Relu-14 (a)\noutput y\n");
    /* of another shape than what they change, which is an error that stays one */
    LEFT_ALONE(NULL, "input x f32[2,2,3]\ninput u f32[2,2,4]\nconst rows i64[2,1] = 0 1\n"
                     "a = ScatterND-18 (x, rows, u)\ny = Relu-14 (a)\noutput y\n");
}
