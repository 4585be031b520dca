/* norm_pass_test.c - normalisations, activations and residual sums in primitive operators.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define CONSTANTS                                                                                  \
    "const two f32[] = 2\nconst tiny f32[] = 0.5\nconst last i64[1] = -1\nconst g f32[24]\nconst " \
    "b f32[24]\n"
#define CENTRED(x)                               \
    "m = ReduceMean-18 (" x ", last) \"mean\"\n" \
    "d = Sub-14 (" x ", m)\n"                    \
    "q = Pow-15 (d, two)\n"                      \
    "v = ReduceMean-18 (q, last) \"var\"\n"      \
    "e = Add-14 (tiny, v)\n"                     \
    "s = Sqrt-13 (e)\n"                          \
    "n = Div-14 (d, s)\n"                        \
    "p = Mul-14 (g, n)\n"

TEST(graph_pass_find_norm) {
    check(NULL,
          "input x f32[?,3,24]\n" CONSTANTS CENTRED("x") "y = Add-14 (p, b) \"bias\"\noutput y\n",
          "input x f32[?,3,24]\nconst g f32[24]\nconst b f32[24]\n"
          "y = LayerNormalization-17 (x, g, b) \"var+bias\" axis=-1 epsilon=0.5f\noutput y\n",
          1);
    /* without a bias; axes in an attribute; 1 / root */
    check(NULL,
          "input x f32[?,4,6]\nconst tiny f32[] = 0.5\nconst one f32[] = 1\nconst g f32[4,6]\n"
          "m = ReduceMean-13 (x) axes=[1,2]\nd = Sub-14 (x, m)\nq = Mul-14 (d, d)\n"
          "v = ReduceMean-13 (q) \"var\" axes=[-1,-2]\ne = Add-14 (v, tiny)\ns = Sqrt-13 (e)\n"
          "r = Div-14 (one, s)\nn = Mul-14 (r, d)\ny = Mul-14 (n, g) \"scale\"\noutput y\n",
          "input x f32[?,4,6]\nconst g f32[4,6]\n"
          "y = LayerNormalization-17 (x, g) \"var+scale\" axis=-2 epsilon=0.5f\noutput y\n",
          1);
    /* no mean, computed in float */
    check(
        NULL,
        "input x f16[?,3,24]\nconst two f32[] = 2\nconst tiny f32[] = 0.5\nconst last i64[1] = -1\n"
        "const g f16[24]\nw = Cast-13 (x) to=1\nq = Pow-15 (w, two)\n"
        "v = ReduceMean-18 (q, last) \"var\"\ne = Add-14 (v, tiny)\ns = Sqrt-13 (e)\n"
        "r = Reciprocal-13 (s)\nn = Mul-14 (w, r)\nc = Cast-13 (n) to=10\n"
        "y = Mul-14 (g, c) \"scale\"\noutput y\n",
        "input x f16[?,3,24]\nconst g f16[24]\n"
        "y = RMSNormalization-23 (x, g) \"var+scale\" axis=-1 epsilon=0.5f\noutput y\n",
        1);
    check(
        NULL,
        "input x f16[?,3,24]\nconst two f32[] = 2\nconst tiny f32[] = 0.5\nconst last i64[1] = -1\n"
        "const g f32[24]\nconst b f32[24]\nx32 = Cast-13 (x) to=1\n" CENTRED(
            "x32") "z = Add-14 (p, b) \"bias\"\ny = Cast-13 (z) to=10\noutput y\n",
        "input x f16[?,3,24]\nconst g f32[24]\nconst b f32[24]\n"
        "z = LayerNormalization-1 (x, g, b) \"var+bias\" axis=-1 epsilon=0.5f\n"
        "y = Cast-13 (z) to=10\noutput y\n",
        1);
}

TEST(graph_pass_find_norm_leaves_what_does_not_fit) {
    /* a scale of another length, no scale, a variance that is read twice, double */
    LEFT_ALONE(NULL, "input x f32[?,3,1]\n" CONSTANTS CENTRED("x") "y = Add-14 (p, b)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,3,24]\nconst two f32[] = 2\nconst tiny f32[] = 0.5\n"
                     "const last i64[1] = -1\nm = ReduceMean-18 (x, last)\nd = Sub-14 (x, m)\n"
                     "q = Pow-15 (d, two)\nv = ReduceMean-18 (q, last)\ne = Add-14 (tiny, v)\n"
                     "s = Sqrt-13 (e)\nn = Div-14 (d, s)\noutput n\n");
    LEFT_ALONE(NULL, "input x f32[?,3,24]\n" CONSTANTS CENTRED(
                         "x") "y = Add-14 (p, b)\noutput y\noutput v\n");
    LEFT_ALONE(NULL, "input x f64[?,3,24]\nconst two f64[] = 2\nconst tiny f64[] = 0.5\n"
                     "const last i64[1] = -1\nconst g f64[24]\nconst b f64[24]\n" CENTRED(
                         "x") "y = Add-14 (p, b)\noutput y\n");
    /* along another dimension */
    LEFT_ALONE(NULL, "input x f32[?,24,24]\nconst two f32[] = 2\nconst tiny f32[] = 0.5\n"
                     "const last i64[1] = 1\nconst g f32[24]\nconst b f32[24]\n" CENTRED(
                         "x") "y = Add-14 (p, b)\noutput y\n");
}

TEST(graph_pass_find_activation) {
    check(NULL,
          "input x f32[?]\nconst root f32[] = 1.41421354\nconst one f32[] = 1\nconst half f32[] = "
          "0.5\n"
          "d = Div-14 (x, root)\ne = Erf-13 (d) \"erf\"\na = Add-14 (e, one)\n"
          "m = Mul-14 (x, a)\ny = Mul-14 (m, half) \"half\"\noutput y\n",
          "input x f32[?]\ny = Gelu-20 (x) \"erf+half\"\noutput y\n", 1);
    check(NULL,
          "input x f16[?]\nconst root f16[] = 0.707\nconst one f16[] = 1\nconst half f16[] = 0.5\n"
          "d = Mul-14 (root, x)\ne = Erf-13 (d) \"erf\"\na = Add-14 (one, e)\n"
          "m = Mul-14 (half, x)\ny = Mul-14 (m, a) \"last\"\noutput y\n",
          "input x f16[?]\ny = Gelu-20 (x) \"erf+last\"\noutput y\n", 1);
    check(NULL,
          "input x f32[?]\nconst root f32[] = 0.79788456\nconst one f32[] = 1\nconst half f32[] = "
          "0.5\n"
          "const three f32[] = 3\nconst share f32[] = 0.044715\n"
          "c = Pow-15 (x, three)\nf = Mul-14 (share, c)\ng = Add-14 (x, f)\nh = Mul-14 (g, root)\n"
          "e = Tanh-13 (h) \"tanh\"\na = Add-14 (e, one)\nm = Mul-14 (half, a)\n"
          "y = Mul-14 (x, m) \"last\"\noutput y\n",
          "input x f32[?]\ny = Gelu-20 (x) \"tanh+last\" approximate=\"tanh\"\noutput y\n", 1);
    check(NULL,
          "input x f32[?]\nconst alpha f32[] = 1.75\n"
          "s = Sigmoid-13 (x) \"sigmoid\"\na = Mul-14 (x, s) \"times\"\nb = Mul-14 (a, alpha)\n"
          "t = Sigmoid-13 (b) \"again\"\ny = Mul-14 (t, a) \"last\"\noutput y\n",
          "input x f32[?]\na = com.microsoft.QuickGelu-1 (x) \"sigmoid+times\" alpha=1f\n"
          "y = com.microsoft.QuickGelu-1 (a) \"again+last\" alpha=1.75f\noutput y\n",
          2);
    /* another constant; a sigmoid of something else, or one that others read */
    LEFT_ALONE(NULL, "input x f32[?]\nconst root f32[] = 1.5\nconst one f32[] = 1\n"
                     "const half f32[] = 0.5\nd = Div-14 (x, root)\ne = Erf-13 (d)\n"
                     "a = Add-14 (e, one)\nm = Mul-14 (x, a)\ny = Mul-14 (m, half)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?]\ninput z f32[?]\ns = Sigmoid-13 (x)\ny = Mul-14 (z, s)\n"
                     "t = Sigmoid-13 (z)\nu = Mul-14 (z, t)\noutput y\noutput t\noutput u\n");
}

TEST(graph_pass_join_residual) {
    check(NULL,
          "input x f32[?,?,24]\ninput z f32[?,?,24]\nconst g f32[24]\nconst b f32[24]\n"
          "s = Add-14 (x, z) \"sum\"\nr = Relu-14 (s)\n"
          "n = LayerNormalization-17 (s, g, b) \"norm\" axis=-1 epsilon=0.25f\n"
          "y = Add-14 (n, r)\noutput y\n",
          "input x f32[?,?,24]\ninput z f32[?,?,24]\nconst g f32[24]\nconst b f32[24]\n"
          "n, , , s = millpond.SkipLayerNormalization-1 (x, z, g, b) \"sum+norm\" epsilon=0.25f\n"
          "r = Relu-14 (s)\ny = Add-14 (n, r)\noutput y\n",
          1);
    check(NULL,
          "input x f32[?,?,24]\ninput z f32[?,?,24]\nconst g f32[24]\n"
          "s = Add-14 (x, z) \"sum\"\n"
          "n = RMSNormalization-23 (s, g) \"norm\"\noutput n\n",
          "input x f32[?,?,24]\ninput z f32[?,?,24]\nconst g f32[24]\n"
          "n = millpond.SkipSimplifiedLayerNormalization-1 (x, z, g) \"sum+norm\" "
          "epsilon=9.99999975e-06f\noutput n\n",
          1);
    /* a row that is added; statistics that are read; another axis */
    LEFT_ALONE(NULL, "input x f32[?,?,24]\ninput z f32[24]\nconst g f32[24]\ns = Add-14 (x, z)\n"
                     "n = RMSNormalization-23 (s, g)\noutput n\n");
    LEFT_ALONE(NULL,
               "input x f32[?,?,24]\ninput z f32[?,?,24]\nconst g f32[24]\ns = Add-14 (x, z)\n"
               "n, m = LayerNormalization-17 (s, g)\noutput n\noutput m\n");
    LEFT_ALONE(NULL, "input x f32[?,2,24]\ninput z f32[?,2,24]\nconst g f32[2,24]\n"
                     "s = Add-14 (x, z)\nn = LayerNormalization-17 (s, g) axis=1\noutput n\n");
}

/* ---- sums of three ---- */

#define THREE     "input x f32[?,?,24]\ninput z f32[?,?,24]\ninput w f32[?,?,24]\n"
#define KNOWN     "input x f32[2,5,24]\ninput z f32[2,5,24]\ninput w f32[2,5,24]\n"
#define SUM_ADDED "const g f32[24]\ns = Add-14 (x, z) \"first\"\nt = Add-14 (w, s) \"sum\"\n"

TEST(graph_pass_join_residual_of_three) {
    check(NULL,
          KNOWN SUM_ADDED "const b f32[24]\nr = Relu-14 (t)\n"
                          "n = LayerNormalization-17 (t, g, b) \"norm\"\ny = Add-14 (n, r)\n"
                          "output y\n",
          KNOWN "const g f32[24]\nconst b f32[24]\n"
                "n, , , t = millpond.SkipLayerNormalization-1 (x, z, g, b, w) \"sum+norm\" "
                "epsilon=9.99999975e-06f\nr = Relu-14 (t)\ny = Add-14 (n, r)\noutput y\n",
          1);
    check(NULL, KNOWN SUM_ADDED "n = LayerNormalization-17 (t, g) \"norm\"\noutput n\n",
          KNOWN "const g f32[24]\n"
                "n = millpond.SkipLayerNormalization-1 (x, z, g, , w) \"sum+norm\" "
                "epsilon=9.99999975e-06f\noutput n\n",
          1);
    check(NULL, KNOWN SUM_ADDED "n = RMSNormalization-23 (t, g) \"norm\"\noutput n\n",
          KNOWN "const g f32[24]\n"
                "n = millpond.SkipSimplifiedLayerNormalization-1 (x, z, g, w) \"sum+norm\" "
                "epsilon=9.99999975e-06f\noutput n\n",
          1);
    /* a first sum that others read; shapes that may differ; what could be computed with the sum */
    check(NULL, KNOWN SUM_ADDED "n = RMSNormalization-23 (t, g) \"norm\"\noutput n\noutput s\n",
          KNOWN "const g f32[24]\ns = Add-14 (x, z) \"first\"\n"
                "n = millpond.SkipSimplifiedLayerNormalization-1 (w, s, g) \"sum+norm\" "
                "epsilon=9.99999975e-06f\noutput n\noutput s\n",
          1);
    check(NULL, THREE SUM_ADDED "n = RMSNormalization-23 (t, g) \"norm\"\noutput n\n",
          THREE "const g f32[24]\ns = Add-14 (x, z) \"first\"\n"
                "n = millpond.SkipSimplifiedLayerNormalization-1 (w, s, g) \"sum+norm\" "
                "epsilon=9.99999975e-06f\noutput n\n",
          1);
    check(NULL,
          KNOWN "const g f32[24]\ne = Exp-13 (x)\ns = Add-14 (e, z)\nt = Add-14 (w, s) \"sum\"\n"
                "n = RMSNormalization-23 (t, g) \"norm\"\noutput n\n",
          KNOWN "const g f32[24]\ne = Exp-13 (x)\ns = Add-14 (e, z)\n"
                "n = millpond.SkipSimplifiedLayerNormalization-1 (w, s, g) \"sum+norm\" "
                "epsilon=9.99999975e-06f\noutput n\n",
          1);
}

DEVICE_TEST(sums_of_three_keep_results) {
    const mp_shape in[] = {SHAPE(2, 5, 24), SHAPE(2, 5, 24), SHAPE(2, 5, 24)};
    pass_check_run(device,
                   KNOWN SUM_ADDED "const b f32[24]\nn = LayerNormalization-17 (t, g, b)\n"
                                   "y = Add-14 (n, t)\noutput y\n",
                   in, 1e-5, 1);
    pass_check_run(device, KNOWN SUM_ADDED "y = RMSNormalization-23 (t, g)\noutput y\n", in, 1e-5,
                   1);
}

/* ---- sums of which one addend is times a constant row ---- */

TEST(graph_pass_join_residual_of_a_scaled_one) {
    check(NULL,
          THREE "const l f32[24]\nconst g f32[24]\nconst b f32[24]\np = Mul-14 (z, l) \"scale\"\n"
                "s = Add-14 (x, p) \"sum\"\nr = Relu-14 (s)\n"
                "n = LayerNormalization-17 (s, g, b) \"norm\"\ny = Add-14 (n, r)\noutput y\n",
          THREE "const l f32[24]\nconst g f32[24]\nconst b f32[24]\n"
                "n, , , s = millpond.SkipLayerNormalization-1 (x, z, g, b, l) \"sum+norm\" "
                "epsilon=9.99999975e-06f scaled=1\nr = Relu-14 (s)\ny = Add-14 (n, r)\noutput y\n",
          1);
    check(NULL,
          THREE "const l f32[24]\nconst g f32[24]\np = Mul-14 (l, z)\n"
                "s = Add-14 (p, x) \"sum\"\nn = RMSNormalization-23 (s, g) \"norm\"\noutput n\n",
          THREE "const l f32[24]\nconst g f32[24]\n"
                "n = millpond.SkipSimplifiedLayerNormalization-1 (x, z, g, l) \"sum+norm\" "
                "epsilon=9.99999975e-06f scaled=1\noutput n\n",
          1);
    /* a product that others read; one by a number, by whole rows, or by what is not constant */
    check(NULL,
          THREE "const l f32[24]\nconst g f32[24]\np = Mul-14 (z, l)\ns = Add-14 (x, p) \"sum\"\n"
                "n = RMSNormalization-23 (s, g) \"norm\"\noutput n\noutput p\n",
          THREE "const l f32[24]\nconst g f32[24]\np = Mul-14 (z, l)\n"
                "n = millpond.SkipSimplifiedLayerNormalization-1 (x, p, g) \"sum+norm\" "
                "epsilon=9.99999975e-06f\noutput n\noutput p\n",
          1);
    check(NULL,
          THREE "const l f32[]\nconst g f32[24]\np = Mul-14 (z, l)\ns = Add-14 (x, p) \"sum\"\n"
                "n = RMSNormalization-23 (s, g) \"norm\"\noutput n\n",
          THREE "const l f32[]\nconst g f32[24]\np = Mul-14 (z, l)\n"
                "n = millpond.SkipSimplifiedLayerNormalization-1 (x, p, g) \"sum+norm\" "
                "epsilon=9.99999975e-06f\noutput n\n",
          1);
    check(NULL,
          THREE "input l f32[24]\nconst g f32[24]\np = Mul-14 (z, l)\ns = Add-14 (x, p) \"sum\"\n"
                "n = RMSNormalization-23 (s, g) \"norm\"\noutput n\n",
          THREE "input l f32[24]\nconst g f32[24]\np = Mul-14 (z, l)\n"
                "n = millpond.SkipSimplifiedLayerNormalization-1 (x, p, g) \"sum+norm\" "
                "epsilon=9.99999975e-06f\noutput n\n",
          1);
}

DEVICE_TEST(sums_of_a_scaled_one_keep_results) {
    static const char *const text =
        "input x f32[?,?,24]\ninput z f32[?,?,24]\nconst l f32[24]\nconst g f32[24]\n"
        "p = Mul-14 (z, l)\ns = Add-14 (x, p)\nn = LayerNormalization-17 (s, g)\n"
        "y = Add-14 (n, s)\noutput y\n";
    const mp_shape alike[] = {SHAPE(2, 5, 24), SHAPE(2, 5, 24)};
    const mp_shape repeated[] = {SHAPE(2, 5, 24), SHAPE(1, 5, 24)};
    const mp_shape wider[] = {SHAPE(1, 5, 24), SHAPE(2, 1, 24)};
    const mp_shape none[] = {SHAPE(0, 5, 24), SHAPE(0, 5, 24)};
    pass_check_run(device, text, alike, 1e-5, 1);
    pass_check_run(device, text, repeated, 1e-5, 1);
    pass_check_run(device, text, wider, 1e-5, 1);
    pass_check_run(device, text, none, 1e-5, 1);
}

#undef THREE
#undef KNOWN
#undef SUM_ADDED

/* ---- sums that are kept from being infinite ---- */

#define SUMMED                                                                          \
    "input x f16[?,?,24]\ninput z f16[?,?,24]\nconst g f16[24]\nconst zero i64[] = 0\n" \
    "const low f32[] = 64504\nconst top f32[] = 65504\ns = Add-14 (x, z) \"sum\"\n"
#define ASKED                                                         \
    "d = Cast-13 (s) to=11\ni = IsInf-10 (d)\nc = Cast-13 (i) to=7\n" \
    "r = ReduceSum-13 (c) keepdims=0\na = Greater-13 (r, zero)\n"
#define ASKED_OTHERWISE                                              \
    "d = Cast-13 (s) to=1\ni = IsInf-10 (d)\nc = Cast-13 (i) to=7\n" \
    "r = ReduceMax-18 (c) keepdims=0\na = Cast-13 (r) to=9\n"
#define CHOSEN \
    "w = Where-16 (a, low, top)\nv = Neg-13 (w)\nl = Cast-13 (v) to=10\nu = Cast-13 (w) to=10\n"
#define CLIPPED "h = Clip-13 (s, l, u) \"clip\"\n"
#define NORMED  "n = RMSNormalization-23 (h, g) \"norm\"\n"
#define HELD                                                      \
    "input x f16[?,?,24]\ninput z f16[?,?,24]\nconst g f16[24]\n" \
    "sum_infinite, s = millpond.SumInfinite-1 (x, z) \"sum\"\n"
#define HELD_ATTRS " epsilon=9.99999975e-06f most=65504f most_found=64512f\n"

TEST(graph_pass_hold_infinite) {
    check(NULL, SUMMED ASKED CHOSEN CLIPPED NORMED "y = Add-14 (n, h)\noutput y\n",
          HELD
          "n, h = millpond.HeldRMSNormalization-1 (s, sum_infinite, g) \"clip+norm\"" HELD_ATTRS
          "y = Add-14 (n, h)\noutput y\n",
          1);
    check(NULL,
          SUMMED ASKED_OTHERWISE CHOSEN "m = Max-13 (s, l)\nh = Min-13 (m, u) \"clip\"\n" NORMED
                                        "output n\n",
          HELD "n = millpond.HeldRMSNormalization-1 (s, sum_infinite, g) \"clip+norm\"" HELD_ATTRS
               "output n\n",
          1);
}

TEST(graph_pass_hold_infinite_leaves_what_does_not_fit) {
#define ALONE(text) LEFT_ALONE("-find_norm", text)
    ALONE(SUMMED ASKED CHOSEN CLIPPED "q = Mul-14 (z, g)\noutput h\noutput q\n"); /* no norm */
    ALONE(SUMMED ASKED CHOSEN "h = Clip-13 (z, l, u)\n" NORMED "output n\n");
    ALONE(SUMMED ASKED CHOSEN "h = Clip-13 (s, u, l)\n" NORMED "output n\n");
    ALONE(SUMMED "i = IsInf-20 (s) detect_negative=0\nc = Cast-13 (i) to=7\n"
                 "r = ReduceMax-18 (c) keepdims=0\na = Greater-13 (r, zero)\n" CHOSEN CLIPPED NORMED
                 "output n\n");
    ALONE(SUMMED "i = IsInf-20 (s)\nc = Cast-13 (i) to=7\n"
                 "r = ReduceMax-13 (c) axes=[-1]\na = Greater-13 (r, zero)\n" CHOSEN CLIPPED NORMED
                 "output n\n");
    ALONE(SUMMED "i = IsNaN-13 (s)\nc = Cast-13 (i) to=7\n"
                 "r = ReduceMax-18 (c) keepdims=0\na = Greater-13 (r, zero)\n" CHOSEN CLIPPED NORMED
                 "output n\n");
#undef ALONE
}

DEVICE_TEST(hold_infinite_changes_no_result) {
    static const char *const text =
        SUMMED ASKED CHOSEN CLIPPED NORMED "y = Add-14 (n, h)\noutput y\n";
    const mp_shape same[] = {SHAPE(2, 5, 24), SHAPE(2, 5, 24)};
    const mp_shape first[] = {SHAPE(1, 5, 24), SHAPE(2, 5, 24)};
    const mp_shape none[] = {SHAPE(2, 0, 24), SHAPE(2, 0, 24)};
    pass_check_run(device, text, same, 4e-3, 1);
    pass_check_run(device, text, first, 4e-3, 1);
    pass_check_run(device, text, none, 4e-3, 1);
}

#undef SUMMED
#undef ASKED
#undef ASKED_OTHERWISE
#undef CHOSEN
#undef CLIPPED
#undef NORMED
#undef HELD
#undef HELD_ATTRS

DEVICE_TEST(norm_passes_keep_results) {
    static const char *const text =
        "input x f32[?,?,24]\ninput z f32[?,?,24]\n" CONSTANTS
        "a = Add-14 (x, z)\n" CENTRED("a") "y = Add-14 (p, b)\n"
                                           "w = Add-14 (a, y)\noutput w\n";
    static const char *const narrow =
        "input x f16[?,24]\nconst two f32[] = 2\nconst tiny f32[] = 0.001\nconst last i64[1] = -1\n"
        "const g f16[24]\nw = Cast-13 (x) to=1\nq = Pow-15 (w, two)\n"
        "v = ReduceMean-18 (q, last)\ne = Add-14 (v, tiny)\ns = Sqrt-13 (e)\n"
        "r = Reciprocal-13 (s)\nn = Mul-14 (w, r)\nc = Cast-13 (n) to=10\n"
        "y = Mul-14 (g, c)\noutput y\n";
    const mp_shape same[] = {SHAPE(2, 5, 24), SHAPE(2, 5, 24)};
    const mp_shape first[] = {SHAPE(1, 5, 24), SHAPE(2, 5, 24)};
    const mp_shape second[] = {SHAPE(2, 5, 24), SHAPE(1, 5, 24)};
    const mp_shape across[] = {SHAPE(2, 1, 24), SHAPE(1, 5, 24)};
    const mp_shape columns[] = {SHAPE(2, 5, 24), SHAPE(2, 5, 1)};
    const mp_shape none[] = {SHAPE(2, 0, 24), SHAPE(2, 0, 24)};
    const mp_shape flat[] = {SHAPE(7, 24)};
    pass_check_run(device, text, same, 1e-5, 2);
    pass_check_run(device, text, first, 1e-5, 2);
    pass_check_run(device, text, second, 1e-5, 2);
    pass_check_run(device, text, across, 1e-5, 2);
    pass_check_run(device, text, columns, 1e-5, 2);
    pass_check_run(device, text, none, 1e-5, 2);
    pass_check_run(device, narrow, flat, 2e-3, 1);
}

TEST(graph_pass_find_activation_of_hard_ones) {
#define NUMBERS(type) \
    "const three " type "[] = 3\nconst none " type "[] = 0\nconst top " type "[] = 6\n"
#define SIXTH(type) "const sixth " type "[] = 0.16666667\n"
#define CLIPPED     "a = Add-14 (x, three)\nc = Clip-13 (a, none, top) \"clip\"\n"
#define RAMP        "input x f32[?]\n" NUMBERS("f32") CLIPPED
    static const char *const swish =
        "input x f32[?]\ny = HardSwish-14 (x) \"clip+last\"\noutput y\n";
    check(NULL, RAMP "m = Mul-14 (x, c)\ny = Div-14 (m, top) \"last\"\noutput y\n", swish, 1);
    check(NULL, RAMP SIXTH("f32") "m = Mul-14 (c, x)\ny = Mul-14 (sixth, m) \"last\"\noutput y\n",
          swish, 1);
    check(NULL, RAMP "g = Div-14 (c, top)\ny = Mul-14 (g, x) \"last\"\noutput y\n", swish, 1);
    check(NULL,
          "input x f16[?]\n" NUMBERS("f16") SIXTH("f16") CLIPPED
          "g = Mul-14 (c, sixth)\ny = Mul-14 (x, g) \"last\"\noutput y\n",
          "input x f16[?]\ny = HardSwish-14 (x) \"clip+last\"\noutput y\n", 1);
    check(NULL,
          "input x f32[?]\ng = HardSigmoid-6 (x) \"clip\" alpha=0.16666667f\n"
          "y = Mul-14 (x, g) \"last\"\noutput y\n",
          swish, 1);
    check(NULL, RAMP "y = Div-14 (c, top) \"last\"\noutput y\n",
          "input x f32[?]\ny = HardSigmoid-6 (x) \"clip+last\" alpha=0.166666672f beta=0.5f\n"
          "output y\n",
          1);
    /* another ramp or share; what others read */
    LEFT_ALONE(NULL, RAMP "y = Mul-14 (c, three)\noutput y\n");
    LEFT_ALONE(NULL, RAMP "m = Mul-14 (c, x)\ny = Div-14 (m, three)\noutput y\n");
    LEFT_ALONE(NULL, RAMP "y = Div-14 (c, top)\noutput y\noutput c\n");
    LEFT_ALONE(NULL, "input x f32[?]\nconst three f32[] = 3\na = Add-14 (x, three)\n"
                     "c = Clip-6 (a) min=0f max=1f\ny = Mul-14 (c, x)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?]\ng = HardSigmoid-6 (x)\ny = Mul-14 (x, g)\noutput y\n");
#undef NUMBERS
#undef SIXTH
#undef CLIPPED
#undef RAMP
}

DEVICE_TEST(activation_passes_keep_results) {
    static const char *const text =
        "input x f32[?]\nconst root f32[] = 0.79788456\nconst one f32[] = 1\n"
        "const half f32[] = 0.5\nconst share f32[] = 0.044715\nconst two f32[] = 1.41421354\n"
        "q = Mul-14 (x, x)\nf = Mul-14 (share, q)\ng = Add-14 (f, one)\nc = Mul-14 (g, x)\n"
        "h = Mul-14 (c, root)\n"
        "e = Tanh-13 (h)\na = Add-14 (e, one)\nm = Mul-14 (half, a)\nt = Mul-14 (x, m)\n"
        "k = Div-14 (x, two)\nl = Erf-13 (k)\nn = Add-14 (l, one)\no = Mul-14 (n, x)\n"
        "u = Mul-14 (half, o)\nv = Sigmoid-13 (x)\nw = Mul-14 (v, x)\n"
        "const three f32[] = 3\nconst none f32[] = 0\nconst six f32[] = 6\n"
        "ra = Add-14 (x, three)\nrb = Clip-13 (ra, none, six)\nrc = Mul-14 (rb, x)\n"
        "rd = Div-14 (rc, six)\nsa = Add-14 (w, three)\nsb = Clip-13 (sa, none, six)\n"
        "sc = Div-14 (sb, six)\n"
        "output t\noutput u\noutput w\noutput rd\noutput sc\n";
    const mp_shape in[] = {SHAPE(33)};
    pass_check_run(device, text, in, 1e-6, 5);
}

/* ---- rows over their length ---- */

#define CUBE     "input x f32[2,3,4]\nconst last i64[1] = -1\nconst least f32[] = 0.5\n"
#define L2(from) "l = ReduceL2-18 (" from ", last)\n"
#define OVER     "d = Clip-13 (l, least)\ny = Div-14 (x, d) \"div\"\noutput y\n"
#define BY_ROOT  "q = Mul-14 (x, x)\nm = ReduceSum-13 (q, last)\nl = Sqrt-13 (m)\n"
#define UNIT(x)  "y = millpond.LpNormalization-1 (" x ") \"length+div\" least=0.5f\noutput y\n"
/* lengths that were taken before rows changed their places */
#define TURNED(perm)                                                        \
    "input w f32[2,3,4]\nconst last i64[1] = -1\nconst least f32[] = 0.5\n" \
    "x = Transpose-13 (w) perm=" perm "\nk = ReduceL2-18 (w, last)\n"       \
    "l = Transpose-13 (k) perm=[1,0,2]\n" OVER

TEST(graph_pass_find_unit_rows) {
    check(NULL, CUBE L2("x") OVER, "input x f32[2,3,4]\n" UNIT("x"), 1);
    check(NULL, CUBE BY_ROOT "d = Max-13 (least, l)\ny = Div-14 (x, d) \"div\"\noutput y\n",
          "input x f32[2,3,4]\n" UNIT("x"), 1);
    check(NULL, TURNED("[1,0,2]"),
          "input w f32[2,3,4]\nx = Transpose-13 (w) perm=[1,0,2]\n" UNIT("x"), 1);
    check(NULL, "input x f16[2,3,4]\nconst last i64[1] = -1\nconst least f16[] = 0\n" L2("x") OVER,
          "input x f16[2,3,4]\ny = millpond.LpNormalization-1 (x) \"length+div\" least=0f\n"
          "output y\n",
          1);
}

TEST(graph_pass_find_unit_rows_leaves_what_does_not_fit) {
    LEFT_ALONE("-find_unit_rows", CUBE L2("x") OVER);
    /* other rows, another axis, no bound, one above, a length that somebody else reads, double */
    LEFT_ALONE(NULL, "input z f32[2,3,4]\n" CUBE L2("z") OVER);
    LEFT_ALONE(NULL,
               "input x f32[2,3,4]\nconst last i64[1] = 1\nconst least f32[] = 0.5\n" L2("x") OVER);
    LEFT_ALONE(NULL,
               "input x f32[2,3,4]\nconst last i64[1] = -1\nconst least f32[] = 0\n" L2("x") OVER);
    LEFT_ALONE(NULL, CUBE "const most f32[] = 2\n" L2(
                         "x") "d = Clip-13 (l, least, most)\ny = Div-14 (x, d)\noutput y\n");
    LEFT_ALONE(NULL, CUBE L2("x") OVER "output l\n");
    LEFT_ALONE(NULL, "input x f64[2,3,4]\nconst last i64[1] = -1\nconst least f64[] = 0.5\n" L2("x")
                         OVER);
    LEFT_ALONE(NULL, "input w f32[2,2,2,4]\nconst last i64[1] = -1\nconst least f32[] = 0.5\n"
                     "x = Transpose-13 (w) perm=[1,0,2,3]\nk = ReduceL2-18 (w, last)\n"
                     "l = Transpose-13 (k) perm=[0,2,1,3]\n" OVER);
}

DEVICE_TEST(find_unit_rows_changes_no_result) {
    pass_check_run(device, CUBE L2("x") OVER, (mp_shape[]){SHAPE(2, 3, 4)}, 1e-5, 1);
    pass_check_run(device, CUBE BY_ROOT OVER, (mp_shape[]){SHAPE(2, 3, 4)}, 1e-5, 1);
    pass_check_run(device, TURNED("[1,0,2]"), (mp_shape[]){SHAPE(2, 3, 4)}, 1e-5, 1);
}
