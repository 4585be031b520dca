/* keras_pass_test.c - what Keras and tf2onnx write: selections as sums of products, an Einsum as a
 * product between dimensions of 1, rows taken apart for a product, norms by a factor.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

/* ---- selections ---- */

#define CHOICE                                                                                 \
    "one = Cast-13 (c) to=1\nno = Not-1 (c)\nother = Cast-13 (no) to=1\np = Mul-14 (one, a)\n" \
    "q = Mul-14 (b, other)\ny = Add-14 (p, q) \"choice\"\noutput y\n"

TEST(graph_pass_find_select) {
    check(NULL, "input c bool[?,3]\ninput a f32[?,3]\ninput b f32[3]\n" CHOICE,
          "input c bool[?,3]\ninput a f32[?,3]\ninput b f32[3]\n"
          "y = Where-16 (c, a, b) \"choice\"\noutput y\n",
          1);
    /* constants, of which one has the number */
    check(NULL,
          "input a f32[?,3]\nconst ones f32[3] = 1 0 0\nconst low f32[3] = 0 -7 -7\n"
          "p = Mul-14 (a, ones)\ny = Add-14 (low, p) \"choice\"\noutput y\n",
          "input a f32[?,3]\nconst ones#5 bool[3] = 1 0 0\nconst low#6 f32[] = -7\n"
          "y = Where-16 (ones#5, a, low#6) \"choice\"\noutput y\n",
          1);
    LEFT_ALONE(NULL, "input c bool[?,3]\ninput d bool[?,3]\ninput a f32[?,3]\ninput b f32[3]\n"
                     "one = Cast-13 (c) to=1\nother = Cast-13 (d) to=1\np = Mul-14 (one, a)\n"
                     "q = Mul-14 (b, other)\ny = Add-14 (p, q)\noutput y\n");
    LEFT_ALONE(NULL, "input a f32[?,3]\nconst ones f32[3] = 1 0 0\nconst low f32[3] = 0 -7 -8\n"
                     "p = Mul-14 (a, ones)\ny = Add-14 (low, p)\noutput y\n");
}

#define INDEX(count)                                                                           \
    "input i i32[?,4]\nconst table f32[9,4]\nconst zero f32[] = 0\nconst n i32[] = " count     \
    "\nf = Cast-13 (i) to=1\nc = Less-13 (f, zero)\nm = Add-14 (i, n)\nt = Cast-13 (c) to=6\n" \
    "no = Not-1 (c)\nu = Cast-13 (no) to=6\np = Mul-14 (t, m)\nq = Mul-14 (i, u)\n"            \
    "w = Add-14 (p, q) \"index\"\ny = Gather-13 (table, w) \"rows\" axis=0\noutput y\n"

TEST(graph_pass_find_select_of_indexes) {
    check(NULL, INDEX("9"),
          "input i i32[?,4]\nconst table f32[9,4]\n"
          "y = Gather-13 (table, i) \"rows\" axis=0\noutput y\n",
          2);
    check(NULL, INDEX("8"),
          "input i i32[?,4]\nconst table f32[9,4]\nconst zero f32[] = 0\nconst n i32[] = 8\n"
          "f = Cast-13 (i) to=1\nc = Less-13 (f, zero)\nm = Add-14 (i, n)\n"
          "w = Where-16 (c, m, i) \"index\"\n"
          "y = Gather-13 (table, w) \"rows\" axis=0\noutput y\n",
          1);
}

/* ---- dimensions of 1 ---- */

TEST(graph_pass_fewer_dims) {
    check("+fewer_dims -dead",
          "input x f32[?,4,6]\nconst two i64[1] = 2\nconst list i64[2] = -1 24\n"
          "u = Unsqueeze-13 (x, two)\nt = Transpose-13 (u) perm=[2,3,0,1]\n"
          "y = Reshape-14 (t, list) \"rows\"\noutput y\n",
          "input x f32[?,4,6]\nconst list i64[2] = -1 24\n"
          "t#6 = Transpose-13 (x) perm=[2,0,1]\n"
          "y = Reshape-14 (t#6, list) \"rows\"\noutput y\n",
          2);
    check(NULL,
          "input x f32[?,24]\nconst list i64[4] = -1 1 4 6\nconst one i64[1] = 1\n"
          "r = Reshape-14 (x, list) \"heads\"\ny = Squeeze-13 (r, one)\noutput y\n",
          "input x f32[?,24]\nconst #6 i64[3] = -1 4 6\n"
          "y = Reshape-14 (x, #6) \"heads\"\noutput y\n",
          2); /* the shorter list is a constant, too */
    /* a size that is read of a dimension that moves, and one that does not; others read it */
    LEFT_ALONE(NULL, "input x f32[2,3,4]\nconst one i64[1] = 1\nconst list i64[3] = 0 0 -1\n"
                     "u = Unsqueeze-13 (x, one)\n"
                     "y = Reshape-14 (u, list)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,24]\nconst list i64[3] = -1 1 24\nconst one i64[1] = 1\n"
                     "r = Reshape-14 (x, list)\ny = Squeeze-13 (r, one)\noutput y\noutput r\n");
}

TEST(graph_pass_bias_first) {
    check("-bias",
          "input x f32[?,3,8]\nconst w f32[8,6]\nconst b f32[2,3] = 1 2 3 4 5 6\n"
          "const list i64[4] = -1 3 2 3\nm = MatMul-13 (x, w) \"q\"\n"
          "h = Reshape-14 (m, list)\n"
          "y = Add-14 (h, b) \"sum\"\noutput y\n",
          "input x f32[?,3,8]\nconst w f32[8,6]\nconst list i64[4] = -1 3 2 3\n"
          "const b#7 f32[6] = 1 2 3 4 5 6\nm = MatMul-13 (x, w) \"q\"\n"
          "m#8 = Add-14 (m, b#7) \"sum\"\n"
          "y = Reshape-14 (m#8, list)\noutput y\n",
          1);
    /* a number for each head, and one for fewer elements than a row has */
    LEFT_ALONE(NULL, "input x f32[?,3,8]\nconst w f32[8,6]\nconst b f32[2,1] = 1 2\n"
                     "const list i64[4] = -1 3 2 3\nm = MatMul-13 (x, w)\n"
                     "h = Reshape-14 (m, list)\ny = Add-14 (h, b)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,3,8]\nconst w f32[8,6]\nconst b f32[3] = 1 2 3\n"
                     "const list i64[4] = -1 3 2 3\nm = MatMul-13 (x, w)\n"
                     "h = Reshape-14 (m, list)\ny = Add-14 (h, b)\noutput y\n");
}

/* ---- attention as an Einsum is taken apart ---- */

#define SIDE(name, at, perm, list)                                                            \
    "p" name " = MatMul-13 (x, w" name ")\nh" name " = Reshape-14 (p" name ", heads)\na" name \
    " = Add-14 (h" name ", b" name ")\nu" name " = Unsqueeze-13 (a" name ", " at ")\nt" name  \
    " = Transpose-13 (u" name ") perm=" perm "\nr" name " = Reshape-14 (t" name ", " list ")\n"
#define EINSUM_ATTENTION                                                                        \
    "input x f32[2,5,8]\nconst wq f32[8,12]\nconst wk f32[8,12]\nconst wv f32[8,12]\n"          \
    "const bq f32[3,4] = 1 0 -1 0.5 0.25 2 -2 3 0.5 0.5 1 -1\n"                                 \
    "const bk f32[3,4] = 0 1 -1 0.5 0.25 2 -2 1 0.5 0.5 1 -1\n"                                 \
    "const bv f32[3,4] = 1 1 -1 0.5 0.25 2 -2 3 0.5 0.75 1 -1\n"                                \
    "const heads i64[4] = 2 5 3 4\nconst flat i64[3] = 6 -1 4\nconst keys i64[3] = 6 -1 5\n"    \
    "const back i64[5] = 2 3 5 5 1\nconst there i64[5] = 2 3 5 4 1\nconst last i64[1] = -1\n"   \
    "const one i64[1] = 1\nconst two i64[1] = 2\nconst three i64[1] = 3\n"                      \
    "const scale f32[] = 0.5\n" SIDE("q", "three", "[0,2,1,3,4]", "flat")                       \
        SIDE("k", "one", "[0,3,1,2,4]", "flat")                                                 \
            SIDE("v", "two", "[0,3,2,4,1]",                                                     \
                 "keys") "kt = Transpose-13 (rk) perm=[0,2,1]\nscores = MatMul-13 (rq, kt)\n"   \
                         "wide = Reshape-14 (scores, back)\nfour = Squeeze-13 (wide, last)\n"   \
                         "scaled = Mul-14 (four, scale)\nprobs = Softmax-13 (scaled) axis=-1\n" \
                         "up = Unsqueeze-13 (probs, three)\nrp = Reshape-14 (up, keys)\n"       \
                         "vt = Transpose-13 (rv) perm=[0,2,1]\nseen = MatMul-13 (rp, vt)\n"     \
                         "five = Reshape-14 (seen, there)\nresult = Squeeze-13 (five, last)\n"  \
                         "y = Transpose-13 (result) perm=[0,2,1,3]\noutput y\n"

DEVICE_TEST(graph_attention_by_einsum) {
    pass_check_run(device, EINSUM_ATTENTION, (mp_shape[]){SHAPE(2, 5, 8)}, 1e-5, 8);
}

/* ---- rows of a product, norms, Gelu ---- */

TEST(graph_pass_unflatten_of_tensordot) {
    check(NULL,
          "input x f32[?,?,8]\nconst w f32[8,6]\nconst b f32[6]\nconst rows i64[2] = -1 8\n"
          "const free i64[2] = 0 1\nconst last i32[1] = 6\nr = Reshape-14 (x, rows)\n"
          "m = MatMul-13 (r, w) \"product\"\ns = Shape-15 (x)\nsmall = Cast-13 (s) to=6\n"
          "lead = Gather-13 (small, free) axis=0\nall = Concat-13 (lead, last) axis=0\n"
          "list = Cast-13 (all) to=7\nv = Reshape-14 (m, list)\n"
          "y = Add-14 (v, b) \"bias\"\noutput y\n",
          "input x f32[?,?,8]\nconst w f32[8,6]\nconst b f32[6]\n"
          "y = millpond.MatMulBias-1 (x, w, b) \"product+bias\"\noutput y\n",
          2);
}

#define MOMENTS(mean)                                                                      \
    "input x f32[?,5,4]\nconst tiny f32[] = 0.5\nconst g f32[1,1,4] = 1 2 3 4\n"           \
    "const b f32[1,1,4] = 4 3 2 1\nm = " mean " (x) \"mean\"\nd = Sub-14 (x, m)\n"         \
    "q = Mul-14 (d, d)\nv = " mean " (q) \"var\"\ne = Add-14 (v, tiny)\ns = Sqrt-13 (e)\n" \
    "r = Reciprocal-13 (s)\nf = Mul-14 (r, g)\n"
#define SHIFT(shift) shift "p = Mul-14 (x, f)\ny = Add-14 (p, h) \"last\"\noutput y\n"
#define NEGATED      "o = Neg-13 (m)\nk = Mul-14 (o, f)\nh = Add-14 (k, b)\n"

TEST(graph_pass_find_norm_of_keras) {
    const char *norm = "input x f32[?,5,4]\nconst g#17 f32[4] = 1 2 3 4\n"
                       "const b#18 f32[4] = 4 3 2 1\n"
                       "y = LayerNormalization-17 (x, g#17, b#18) \"var+last\" axis=-1 "
                       "epsilon=0.5f\noutput y\n";
    check(NULL, MOMENTS("GlobalAveragePool-1") SHIFT(NEGATED), norm, 1);
    /* as tf.nn.batch_normalization has it */
    check(NULL, MOMENTS("GlobalAveragePool-1") SHIFT("k = Mul-14 (m, f)\nh = Sub-14 (b, k)\n"),
          "input x f32[?,5,4]\nconst g#16 f32[4] = 1 2 3 4\nconst b#17 f32[4] = 4 3 2 1\n"
          "y = LayerNormalization-17 (x, g#16, b#17) \"var+last\" axis=-1 epsilon=0.5f\n"
          "output y\n",
          1);
    /* the factor is read once more; the shift is taken the wrong way round */
    LEFT_ALONE("-constant_norm", MOMENTS("GlobalAveragePool-1") SHIFT(NEGATED) "output f\n");
    LEFT_ALONE(NULL,
               MOMENTS("GlobalAveragePool-1") SHIFT("k = Mul-14 (m, f)\nh = Sub-14 (k, b)\n"));
    LEFT_ALONE(NULL,
               MOMENTS("GlobalAveragePool-1") SHIFT("k = Mul-14 (m, f)\nh = Add-14 (k, b)\n"));
}

DEVICE_TEST(graph_norm_of_keras) {
    pass_check_run(device, MOMENTS("GlobalAveragePool-1") SHIFT(NEGATED),
                   (mp_shape[]){SHAPE(2, 5, 4)}, 1e-5, 1);
}

TEST(graph_pass_find_activation_by_erfc) {
#define GELU(negated, sum)                                                                     \
    "input x f32[?]\nconst root f32[] = 0.707106769\nconst one f32[] = 1\nconst half f32[] = " \
    "0.5\n"                                                                                    \
    "n = " negated " (x)\nm = Mul-14 (n, root)\ne = Erf-13 (m) \"erf\"\nc = " sum              \
    "\nh = Mul-14 (half, x)\ny = Mul-14 (h, c) \"gelu\"\noutput y\n"
    check(NULL, GELU("Neg-13", "Sub-14 (one, e)"),
          "input x f32[?]\ny = Gelu-20 (x) \"erf+gelu\"\noutput y\n", 1);
    LEFT_ALONE(NULL, GELU("Neg-13", "Add-14 (one, e)"));
    LEFT_ALONE(NULL, GELU("Neg-13", "Sub-14 (e, one)"));
    LEFT_ALONE(NULL, GELU("Abs-13", "Sub-14 (one, e)"));
#undef GELU
}

TEST(graph_pass_same_view) {
    check(
        NULL,
        "input x f32[?,8,1,1]\nconst axes i64[2] = 2 3\nconst image i64[4] = -1 8 1 1\n"
        "s = Squeeze-13 (x, axes)\nr = Reshape-14 (s, image)\ny = Relu-14 (r) \"gate\"\noutput y\n",
        "input x f32[?,8,1,1]\ny = Relu-14 (x) \"gate\"\noutput y\n", 1);
    check(NULL,
          "input x f32[2,3]\nconst list i64[2] = -1 3\nr = Reshape-14 (x, list)\ny = Relu-14 (r)\n"
          "output y\n",
          "input x f32[2,3]\ny = Relu-14 (x)\noutput y\n", 1);
    /* other dimensions, more of them, two that are not known, and what the graph gives */
    LEFT_ALONE(NULL, "input x f32[8]\nconst image i64[4] = 1 8 1 1\n"
                     "r = Reshape-14 (x, image)\ny = Relu-14 (r)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,8,1,1]\nconst image i64[4] = -1 1 8 1\n"
                     "r = Reshape-14 (x, image)\ny = Relu-14 (r)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,?]\nconst list i64[2] = -1 0\n"
                     "r = Reshape-14 (x, list)\ny = Relu-14 (r)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,3]\nconst list i64[2] = -1 3\ny = Reshape-14 (x, list)\n"
                     "output y\n");
}

#define LINE(pads, row)                                                                          \
    "input x f32[?,2,9]\nconst two i64[1] = 2\nconst w f32[3,2,1,2] = 1 2 3 4 5 6 7 8 9 1 2 3\n" \
    "const p i64[6] = " pads "\nconst b f32[1,3,1] = 1 2 3\nconst s f32[3,1] = 2 1 4\n"          \
    "z = Pad-13 (x, p) mode=\"constant\"\nu = Unsqueeze-13 (z, two)\n"                           \
    "c = Conv-11 (u, w) \"conv\" auto_pad=\"NOTSET\" dilations=[1,2] kernel_shape=[1,2] "        \
    "strides=[1,1] pads=" row " group=1\nq = Squeeze-13 (c, two)\na = Add-14 (q, b)\n"           \
    "y = Mul-14 (a, s)\noutput y\n"

TEST(graph_pass_line_conv) {
    check(NULL, LINE("0 0 2 0 0 0", "[0,0,0,1]"),
          "input x f32[?,2,9]\nconst conv#14 f32[3] = 2 2 12\n"
          "const w#15 f32[3,2,2] = 2 4 6 8 5 6 7 8 36 4 8 12\n"
          "y = Conv-11 (x, w#15, conv#14) \"conv\" kernel_shape=[2] strides=[1] dilations=[2] "
          "pads=[2,1] group=1\noutput y\n",
          4);
    /* channels are padded; rows of zeros are made */
    check(NULL, LINE("0 1 0 0 -1 0", "[0,0,0,1]"),
          "input x f32[?,2,9]\nconst p i64[6] = 0 1 0 0 -1 0\nconst conv#14 f32[3] = 2 2 12\n"
          "const w#15 f32[3,2,2] = 2 4 6 8 5 6 7 8 36 4 8 12\n"
          "z = Pad-13 (x, p) mode=\"constant\"\n"
          "y = Conv-11 (z, w#15, conv#14) \"conv\" kernel_shape=[2] strides=[1] dilations=[2] "
          "pads=[0,1] group=1\noutput y\n",
          3);
    LEFT_ALONE(NULL, LINE("0 0 2 0 0 0", "[1,0,0,0]"));
    /* together more than there are numbers for */
    check(NULL, LINE("0 0 0 0 0 9223372036854775807", "[0,0,0,1]"),
          "input x f32[?,2,9]\nconst p i64[6] = 0 0 0 0 0 9223372036854775807\n"
          "const conv#14 f32[3] = 2 2 12\nconst w#15 f32[3,2,2] = 2 4 6 8 5 6 7 8 36 4 8 12\n"
          "z = Pad-13 (x, p) mode=\"constant\"\n"
          "y = Conv-11 (z, w#15, conv#14) \"conv\" kernel_shape=[2] strides=[1] dilations=[2] "
          "pads=[0,1] group=1\noutput y\n",
          3);
}

DEVICE_TEST(graph_line_conv) {
    pass_check_run(device, LINE("0 0 2 0 0 0", "[0,0,0,1]"), (mp_shape[]){SHAPE(2, 2, 9)}, 1e-4, 4);
}

#define REPEATED(times, list)                                                                    \
    "input x f32[?,2,3,4]\nconst three i64[1] = 3\nconst r i64[5] = 1 1 1 3 1\n"                 \
    "const s i64[5] = " times "\nconst a i64[5] = -1 9 4 1 2\nconst b i64[4] = " list            \
    "\nu = Unsqueeze-13 (x, three)\nt = Tile-13 (u, r)\nn = Transpose-13 (t) perm=[0,2,3,4,1]\n" \
    "v = Reshape-14 (n, a)\nw = Tile-13 (v, s)\ny = Reshape-14 (w, b) \"up\"\noutput y\n"

TEST(graph_pass_find_upsample) {
    check(NULL, REPEATED("1 1 1 2 1", "-1 9 8 2"),
          "input x f32[?,2,3,4]\nconst #12 f32[4] = 1 1 3 2\n"
          "x#13 = Resize-13 (x, , #12) \"up\" mode=\"nearest\" "
          "coordinate_transformation_mode=\"asymmetric\" nearest_mode=\"floor\"\n"
          "y = Transpose-13 (x#13) \"up\" perm=[0,2,3,1]\noutput y\n",
          1);
    /* more often than floats count */
    LEFT_ALONE(NULL, REPEATED("1 1 1 2097152 1", "-1 9 8388608 2"));
    /* a whole dimension again; dimensions that are no longer those of x */
    LEFT_ALONE(NULL, REPEATED("1 1 2 1 1", "-1 9 8 2"));
    LEFT_ALONE(NULL, REPEATED("1 1 1 2 1", "-1 18 4 2"));
}

DEVICE_TEST(graph_upsample) {
    pass_check_run(device, REPEATED("1 1 1 2 1", "-1 9 8 2"), (mp_shape[]){SHAPE(2, 2, 3, 4)}, 0,
                   1);
}
