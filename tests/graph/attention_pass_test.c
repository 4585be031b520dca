/* attention_pass_test.c - attention in primitive operators, from text to text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#include <stdio.h>

/* What follows is put between these. */
#define QKV                  \
    "input q f32[?,?,4,8]\n" \
    "input k f32[?,?,4,8]\n" \
    "input v f32[?,?,4,8]\n"
#define HEADS                               \
    "a = Transpose-13 (q) perm=[0,2,1,3]\n" \
    "b = Transpose-13 (k) perm=[0,2,3,1]\n" \
    "c = Transpose-13 (v) perm=[0,2,1,3]\n"
#define RESULT                                 \
    "w = Softmax-13 (s) \"weights\" axis=-1\n" \
    "r = MatMul-13 (w, c) \"result\"\n"        \
    "y = Transpose-13 (r) perm=[0,2,1,3]\n"    \
    "output y\n"
#define PERMS  " k_perm=[0,2,1,3] out_perm=[0,2,1,3] q_perm=[0,2,1,3]"
#define V_PERM " v_perm=[0,2,1,3]\noutput y\n"
#define NAME   " \"scores+weights+result\""

TEST(graph_pass_attention_with_scale_and_mask) {
    check(NULL,
          QKV "input m f32[?,1,1,?]\n"
              "const root f32[] = 2.5\n" HEADS "t = MatMul-13 (a, b) \"scores\"\n"
              "d = Div-14 (t, root)\n"
              "s = Add-14 (d, m)\n" RESULT,
          QKV "input m f32[?,1,1,?]\n"
              "const root f32[] = 2.5\n"
              "y = millpond.Attention-1 (q, k, v, m, root)" NAME " divided=1" PERMS V_PERM,
          1);
}

TEST(graph_pass_attention_scaled_on_both_sides_by_what_a_shape_gives) {
    check(NULL,
          QKV "const last i64[] = 3\n"
              "const one f32[] = 1\n" HEADS "sh = Shape-15 (q)\n"
              "n = Gather-13 (sh, last)\n"
              "f = Cast-13 (n) to=1\n"
              "root = Sqrt-13 (f)\n"
              "x = Mul-14 (a, one)\n"
              "z = Mul-14 (one, b)\n"
              "s = MatMul-13 (x, z) \"scores\"\n" RESULT,
          QKV "const one f32[] = 1\n"
              "y = millpond.Attention-1 (q, k, v, , one, one)" NAME PERMS V_PERM,
          5);
}

TEST(graph_pass_attention_with_conditions) {
    /* what is taken away is a number: the mask has the lowest one, since rows of nothing else are
     * even; two layers share it */
    check("-same,-dead",
          QKV "input m bool[1,1,?,?]\n"
              "const low f32[] = -10000\n" HEADS "t = MatMul-13 (a, b) \"scores\"\n"
              "s = Where-16 (m, t, low)\n" RESULT,
          QKV "input m bool[1,1,?,?]\n"
              "const unmasked f32[] = 0\n"
              "const masked f32[] = -3.40282347e+38\n"
              "mask = Where-16 (m, unmasked, masked)\n"
              "y = millpond.Attention-1 (q, k, v, mask)" NAME PERMS V_PERM,
          1);
    /* minus infinity: the condition itself */
    check("-same,-dead",
          QKV "input m bool[1,1,?,?]\n"
              "const low f32[] = -inf\n" HEADS "t = MatMul-13 (a, b) \"scores\"\n"
              "s = Where-16 (m, t, low)\n" RESULT,
          QKV "input m bool[1,1,?,?]\n"
              "y = millpond.Attention-1 (q, k, v, m)" NAME PERMS V_PERM,
          1);
    /* true takes away, and another mask comes on top */
    check("-same,-dead",
          QKV "input m bool[1,1,?,?]\n"
              "input n f32[?,1,1,?]\n"
              "const low f32[] = -inf\n" HEADS "t = MatMul-13 (a, b) \"scores\"\n"
              "u = Where-16 (m, low, t)\n"
              "s = Add-14 (n, u) \"sum\"\n" RESULT,
          QKV "input m bool[1,1,?,?]\n"
              "input n f32[?,1,1,?]\n"
              "const unmasked f32[] = 0\n"
              "const masked f32[] = -inf\n"
              "mask = Where-16 (m, masked, unmasked)\n"
              "mask#18 = Add-14 (mask, n) \"sum\"\n"
              "y = millpond.Attention-1 (q, k, v, mask#18)" NAME PERMS V_PERM,
          1);
}

TEST(graph_pass_attention_with_shared_heads_and_a_cap) {
    check(NULL,
          "input q f16[?,6,?,8]\n"
          "input k f16[?,2,?,8]\n"
          "input v f16[?,2,?,8]\n"
          "input wide i64[5]\n"
          "input batch i64[1]\n"
          "const two i64[1] = 2\n"
          "const heads i64[3] = 6 -1 8\n"
          "const cap f16[] = 50\n"
          "ku = Unsqueeze-13 (k, two)\n"
          "ke = Expand-13 (ku, wide)\n"
          "to = Concat-13 (batch, heads) axis=0\n"
          "kr = Reshape-14 (ke, to)\n"
          "vu = Unsqueeze-13 (v, two)\n"
          "ve = Expand-13 (vu, wide)\n"
          "vr = Reshape-14 (ve, to)\n"
          "b = Transpose-13 (kr) perm=[0,1,3,2]\n"
          "t = MatMul-13 (q, b) \"scores\"\n"
          "d = Div-14 (t, cap)\n"
          "e = Tanh-13 (d)\n"
          "f = Mul-14 (e, cap)\n"
          "g = Cast-13 (f) to=1\n"
          "w = Softmax-13 (g) \"weights\" axis=3\n"
          "h = Cast-13 (w) to=10\n"
          "y = MatMul-13 (h, vr) \"result\"\n"
          "output y\n",
          "input q f16[?,6,?,8]\n"
          "input k f16[?,2,?,8]\n"
          "input v f16[?,2,?,8]\n"
          "input wide i64[5]\n"
          "input batch i64[1]\n"
          "const cap f16[] = 50\n"
          "y = millpond.Attention-1 (q, k, v, , cap, cap)" NAME " divided=2 grouped=1 softcap=50f\n"
          "output y\n",
          1);
}

/* As torch exports transformers: sizes follow from shapes, a group is asked of an Expand by way of
 * a Where, and weights go to float and back behind the Softmax. */
#define REPEATED(x, name, dims)                                                                    \
    dims name "u = Unsqueeze-13 (" x ", two)\n" name "e = Expand-13 (" name "u, " name "w)\n" name \
              "r = Reshape-14 (" name "e, " name "to)\n"
#define SIZES(x, name)                                                                         \
    name "s = Shape-15 (" x ")\n" name "g0 = Gather-13 (" name "s, n0)\n" name                 \
         "g1 = Gather-13 (" name "s, n1)\n" name "g2 = Gather-13 (" name "s, n2)\n" name       \
         "g3 = Gather-13 (" name "s, n3)\n" name "d0 = Unsqueeze-13 (" name "g0, zero)\n" name \
         "d1 = Unsqueeze-13 (" name "g1, zero)\n" name "d2 = Unsqueeze-13 (" name              \
         "g2, zero)\n" name "d3 = Unsqueeze-13 (" name "g3, zero)\n" name "m = Mul-14 (" name  \
         "g1, n3)\n" name "md = Unsqueeze-13 (" name "m, zero)\n" name "to = Concat-13 (" name \
         "d0, " name "md, " name "d2, " name "d3) axis=0\n" name "l = Concat-13 (" name        \
         "d0, " name "d1, three, " name "d2, " name "d3) axis=0\n" name "c = Equal-13 (" name  \
         "l, minus)\n" name "w = Where-16 (" name "c, ones, " name "l)\n"
#define EAGER                                                            \
    "input q f16[?,6,?,8]\ninput k f16[?,?,?,8]\ninput v f16[?,?,?,8]\n" \
    "input m f16[?,1,?,?]\nconst scale f16[] = 0.5\n"
#define EAGER_SIZES                                                                            \
    "const two i64[1] = 2\nconst zero i64[1] = 0\nconst three i64[1] = 3\n"                    \
    "const ones i64[5] = 1 1 1 1 1\nconst minus i64[5] = -1 -1 -1 -1 -1\nconst n0 i64[] = 0\n" \
    "const n1 i64[] = 1\nconst n2 i64[] = 2\nconst n3 i64[] = 3\n"
#define EAGER_BODY                                                                       \
    REPEATED("k", "k", SIZES("k", "k"))                                                  \
    REPEATED("v", "v", SIZES("v", "v"))                                                  \
    "b = Transpose-13 (kr) perm=[0,1,3,2]\nt = MatMul-13 (q, b) \"scores\"\n"            \
    "x = Mul-14 (t, scale)\ns = Add-14 (x, m)\nw = Softmax-13 (s) \"weights\" axis=-1\n" \
    "wf = Cast-13 (w) to=1\nwh = Cast-13 (wf) to=10\n"                                   \
    "y = MatMul-13 (wh, vr) \"result\"\noutput y\n"

TEST(graph_pass_attention_with_heads_that_shapes_repeat) {
    check("-cancel", EAGER EAGER_SIZES EAGER_BODY,
          EAGER "y = millpond.Attention-1 (q, k, v, m, scale)" NAME " grouped=1\noutput y\n", 1);
    /* casts that cancel each other leave no reader of the weights behind */
    check(NULL, EAGER EAGER_SIZES EAGER_BODY,
          EAGER "y = millpond.Attention-1 (q, k, v, m, scale)" NAME " grouped=1\noutput y\n", 2);
}

TEST(graph_pass_attention_leaves_what_does_not_fit) {
    /* a softmax along another axis; scores that are read twice, or an output */
    LEFT_ALONE(NULL, QKV HEADS "s = MatMul-13 (a, b)\n"
                               "w = Softmax-13 (s) axis=2\n"
                               "r = MatMul-13 (w, c)\noutput r\n");
    LEFT_ALONE(NULL, QKV HEADS "s = MatMul-13 (a, b)\n"
                               "w = Softmax-13 (s) axis=-1\n"
                               "r = MatMul-13 (w, c)\n"
                               "z = Relu-14 (s)\noutput r\noutput z\n");
    LEFT_ALONE(NULL, QKV HEADS "s = MatMul-13 (a, b)\n"
                               "w = Softmax-13 (s) axis=-1\n"
                               "r = MatMul-13 (w, c)\noutput r\noutput w\n");
    /* weights on the right; a scale that is no number; a mask of five dimensions */
    LEFT_ALONE(NULL, QKV HEADS "s = MatMul-13 (a, b)\n"
                               "w = Softmax-13 (s) axis=-1\n"
                               "r = MatMul-13 (c, w)\noutput r\n");
    LEFT_ALONE(NULL, QKV "input f f32[?]\n" HEADS "t = MatMul-13 (a, b)\n"
                         "s = Mul-14 (t, f)\n"
                         "w = Softmax-13 (s) axis=-1\n"
                         "r = MatMul-13 (w, c)\noutput r\n");
    LEFT_ALONE(NULL, QKV "input m f32[2,1,1,3,3]\n" HEADS "t = MatMul-13 (a, b)\n"
                         "s = Add-14 (t, m)\n"
                         "w = Softmax-13 (s) axis=-1\n"
                         "r = MatMul-13 (w, c)\noutput r\n");
    /* what takes the place of scores is near them; a mask before the scale */
    LEFT_ALONE(NULL,
               QKV "input m bool[1,1,?,?]\nconst low f32[] = -5\n" HEADS "t = MatMul-13 (a, b)\n"
                   "s = Where-16 (m, t, low)\n"
                   "w = Softmax-13 (s) axis=-1\n"
                   "r = MatMul-13 (w, c)\noutput r\n");
    LEFT_ALONE(NULL,
               QKV "input m f32[?,1,1,?]\nconst two f32[] = 2\n" HEADS "t = MatMul-13 (a, b)\n"
                   "u = Add-14 (t, m)\n"
                   "s = Mul-14 (u, two)\n"
                   "w = Softmax-13 (s) axis=-1\n"
                   "r = MatMul-13 (w, c)\noutput r\n");
    /* a rank that is not known */
    LEFT_ALONE(NULL, "input q f32[...]\ninput k f32[...]\ninput v f32[...]\n"
                     "s = MatMul-13 (q, k)\n"
                     "w = Softmax-13 (s) axis=-1\n"
                     "r = MatMul-13 (w, v)\noutput r\n");
}

/* Dimensions that there are not: ONNX Runtime does not look at them while a rank is not known. */
TEST(graph_pass_attention_leaves_a_wrong_transposition) {
    static const char *const wrong[] = {"1000000000", "-1", "0"};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        char text[512];
        (void)snprintf(text, sizeof text,
                       "input q f32[?,?,?,?]\ninput k f32[...]\ninput v f32[?,?,?,?]\n"
                       "a = Transpose-13 (k) perm=[1,0,2,3]\n"
                       "b = Transpose-13 (a) perm=[0,2,%s,1]\n"
                       "s = MatMul-13 (q, b)\nw = Softmax-13 (s) axis=-1\nr = MatMul-13 (w, v)\n"
                       "output r\n",
                       wrong[i]);
        LEFT_ALONE(NULL, text);
    }
}

TEST(graph_pass_read_parts) {
    /* of a Split in equal parts, and of a Gather out of five dimensions */
    check(NULL,
          "input x f32[?,?,96]\n"
          "const four i64[4] = 0 0 4 8\n"
          "a, b, c = Split-13 (x) axis=-1\n"
          "q = Reshape-14 (a, four)\n"
          "k = Reshape-14 (b, four)\n"
          "v = Reshape-14 (c, four)\n"
          "qt = Transpose-13 (q) perm=[0,2,1,3]\n"
          "kt = Transpose-13 (k) perm=[0,2,3,1]\n"
          "vt = Transpose-13 (v) perm=[0,2,1,3]\n"
          "s = MatMul-13 (qt, kt) \"scores\"\n"
          "w = Softmax-13 (s) \"weights\" axis=-1\n"
          "y = MatMul-13 (w, vt) \"result\"\noutput y\n",
          "input x f32[?,?,96]\n"
          "y = millpond.Attention-1 (x, x, x)" NAME
          " k_part=[32,4,8,8] q_part=[0,4,8,8] v_part=[64,4,8,8]\noutput y\n",
          4);
    check(NULL,
          "input x f32[?,?,96]\n"
          "input q f32[?,4,?,8]\n"
          "const five i64[5] = 0 0 4 3 8\n"
          "const one i64[] = 1\n"
          "const last i64[] = -1\n"
          "f = Reshape-14 (x, five)\n"
          "k = Gather-13 (f, one) axis=3\n"
          "v = Gather-13 (f, last) axis=3\n"
          "kt = Transpose-13 (k) perm=[0,2,3,1]\n"
          "vt = Transpose-13 (v) perm=[0,2,1,3]\n"
          "s = MatMul-13 (q, kt) \"scores\"\n"
          "w = Softmax-13 (s) \"weights\" axis=-1\n"
          "y = MatMul-13 (w, vt) \"result\"\noutput y\n",
          "input x f32[?,?,96]\n"
          "input q f32[?,4,?,8]\n"
          "y = millpond.Attention-1 (q, x, x)" NAME " k_part=[8,4,8,24] v_part=[16,4,8,24]\n"
          "output y\n",
          3);
}

#define FIVE(kind, width, picks)                                                                  \
    "input x " kind "\nconst five i64[5] = -1 5 3 4 8\n" width "f = Reshape-14 (x, five)\n" picks \
    "qt = Transpose-13 (q) perm=[0,2,1,3]\n"                                                      \
    "kt = Transpose-13 (k) perm=[0,2,3,1]\nvt = Transpose-13 (v) perm=[0,2,1,3]\n"                \
    "s = MatMul-13 (qt, kt) \"scores\"\nw = Softmax-13 (s) \"weights\" axis=-1\n"                 \
    "y = MatMul-13 (w, vt) \"result\"\noutput y\n"
#define GATHERED                                                   \
    "q = Gather-13 (f, n0) axis=2\nk = Gather-13 (f, n1) axis=2\n" \
    "v = Gather-13 (f, n2) axis=2\n"
#define SQUEEZED                                                                      \
    "a, b, c = Split-13 (f) axis=2\nq = Squeeze-13 (a, n2)\nk = Squeeze-13 (b, n2)\n" \
    "v = Squeeze-13 (c, n2)\n"
#define INDEXES "const n0 i64[] = 0\nconst n1 i64[] = 1\nconst n2 i64[] = 2\n"

/* Rows of a product whose batch and rows are one dimension are seen in three. */
/* Heads that are put first for a cache, cut out of rows. */
TEST(graph_pass_read_parts_puts_heads_first) {
    check(NULL,
          "input x f32[?,5,96]\nconst b i64[1] = 32\nconst e i64[1] = 64\nconst n i64[1] = 2\n"
          "const four i64[4] = 0 5 4 8\ns = Slice-13 (x, b, e, n)\nr = Reshape-14 (s, four)\n"
          "t = Transpose-13 (r) \"t\" perm=[0,2,1,3]\ny = Exp-13 (t)\noutput y\n",
          "input x f32[?,5,96]\nt = millpond.HeadsPart-1 (x) \"t\" part=[32,4,8,8]\n"
          "y = Exp-13 (t)\noutput y\n",
          1);
    /* some of the rows; more than heads */
    LEFT_ALONE("-known_sizes",
               "input x f32[?,5,32]\nconst b i64[1] = 1\nconst e i64[1] = 3\nconst n i64[1] = 1\n"
               "const four i64[4] = 0 2 4 8\ns = Slice-13 (x, b, e, n)\nr = Reshape-14 (s, four)\n"
               "t = Transpose-13 (r) \"t\" perm=[0,2,1,3]\ny = Exp-13 (t)\noutput y\n");
    LEFT_ALONE("-known_sizes",
               "input x f32[2,5,96]\nconst b i64[1] = 32\nconst e i64[1] = 96\nconst n i64[1] = 2\n"
               "const four i64[4] = 2 10 4 8\ns = Slice-13 (x, b, e, n)\nr = Reshape-14 (s, four)\n"
               "t = Transpose-13 (r) \"t\" perm=[0,2,1,3]\ny = Exp-13 (t)\noutput y\n");
}

/* Heads that were put first with more than they have in them, of which a cache grows. */
#define BY_CACHE(type, cut, concat)                                                      \
    "input x " type "[2,?,48]\ninput a " type                                            \
    "[2,4,?,4]\nconst b i64[1] = 4\nconst e i64[1] = 8\n"                                \
    "const n i64[1] = " cut "\nconst four i64[4] = 0 0 4 12\nr = Reshape-14 (x, four)\n" \
    "t = Transpose-13 (r) perm=[0,2,1,3]\ns = Slice-13 (t, b, e, n) \"s\"\n" concat "output y\n"
#define GROW "y = Concat-13 (a, s) axis=2\n"

TEST(graph_pass_read_parts_by_which_a_cache_grows) {
    check(NULL, BY_CACHE("f32", "3", GROW),
          "input x f32[2,?,48]\ninput a f32[2,4,?,4]\n"
          "s = millpond.HeadsPart-1 (x) \"s\" part=[4,4,4,12]\n" GROW "output y\n",
          1);
    /* no cache; in front of it; of other rows; of other types; what others read, too */
    LEFT_ALONE("-known_sizes", BY_CACHE("f32", "3", "y = Exp-13 (s)\n"));
    LEFT_ALONE("-known_sizes", BY_CACHE("f32", "3", "y = Concat-13 (s, a) axis=2\n"));
    LEFT_ALONE("-known_sizes", BY_CACHE("f32", "2", GROW));
    LEFT_ALONE("-known_sizes", BY_CACHE("i32", "3", GROW));
    LEFT_ALONE("-known_sizes", BY_CACHE("f32", "3", GROW "output s\n"));
}

DEVICE_TEST(read_parts_by_which_a_cache_grows_keeps_results) {
    pass_check_run(device, BY_CACHE("f32", "3", GROW),
                   (mp_shape[]){SHAPE(2, 5, 48), SHAPE(2, 4, 3, 4)}, 1e-6, 1);
    pass_check_run(device, BY_CACHE("f16", "3", GROW),
                   (mp_shape[]){SHAPE(2, 1, 48), SHAPE(2, 4, 0, 4)}, 1e-6, 1);
}

TEST(graph_pass_read_parts_of_rows) {
    static const char *const out =
        "const #15 i64[3] = -1 5 96\nx#16 = Reshape-13 (x, #15) \"x\"\n"
        "y = millpond.Attention-1 (x#16, x#16, x#16)" NAME
        " k_part=[32,4,8,8] q_part=[0,4,8,8] v_part=[64,4,8,8]\noutput y\n";
    char text[512];
    (void)snprintf(text, sizeof text, "input x f32[?,96]\n%s", out);
    check(NULL, FIVE("f32[?,96]", INDEXES, GATHERED), text, 4);
    /* a Split along the parts, of rows that are there */
    check(NULL, FIVE("f32[?,5,96]", "const n2 i64[1] = 2\n", SQUEEZED),
          "input x f32[?,5,96]\ny = millpond.Attention-1 (x, x, x)" NAME
          " k_part=[32,4,8,8] q_part=[0,4,8,8] v_part=[64,4,8,8]\noutput y\n",
          5);
}

DEVICE_TEST(read_parts_of_rows_keeps_results) {
    const mp_shape flat[] = {SHAPE(15, 96)};
    const mp_shape none[] = {SHAPE(0, 96)};
    const mp_shape three[] = {SHAPE(2, 5, 96)};
    pass_check_run(device, FIVE("f16[?,96]", INDEXES, GATHERED), flat, 1e-2, 4);
    pass_check_run(device, FIVE("f32[?,96]", INDEXES, GATHERED), none, 1e-2, 4);
    pass_check_run(device, FIVE("f32[?,5,96]", "const n2 i64[1] = 2\n", SQUEEZED), three, 1e-4, 4);
}

/* As torch's MultiheadAttention has it, of one image: sizes are known, and what is turned is a view
 * of the product. */
#define TURNED(batch)                                                                         \
    "input x f32[5," batch ",96]\nconst five i64[5] = 5 " batch " 1 3 32\n"                   \
    "const three i64[3] = 5 " batch " 32\nconst heads i64[4] = 5 " batch " 4 8\n" INDEXES     \
    "f = Reshape-14 (x, five)\nt = Transpose-13 (f) perm=[3,0,1,2,4]\n"                       \
    "g0 = Gather-13 (t, n0)\ng1 = Gather-13 (t, n1)\ng2 = Gather-13 (t, n2)\n"                \
    "s0 = Reshape-14 (g0, heads)\ns1 = Reshape-14 (g1, heads)\ns2 = Reshape-14 (g2, heads)\n" \
    "q = Transpose-13 (s0) perm=[1,2,0,3]\nk = Transpose-13 (s1) perm=[1,2,3,0]\n"            \
    "v = Transpose-13 (s2) perm=[1,2,0,3]\ns = MatMul-13 (q, k) \"scores\"\n"                 \
    "w = Softmax-13 (s) \"weights\" axis=-1\ny = MatMul-13 (w, v) \"result\"\noutput y\n"

TEST(graph_pass_read_parts_of_what_is_turned) {
    check(NULL, TURNED("1"),
          "input x f32[5,1,96]\nconst #21 i64[3] = 1 5 96\nx#22 = Reshape-13 (x, #21) \"x\"\n"
          "y = millpond.Attention-1 (x#22, x#22, x#22)" NAME
          " k_part=[32,4,8,8] q_part=[0,4,8,8] v_part=[64,4,8,8]\noutput y\n",
          4);
    /* of several the rows of each are apart */
    check(NULL, TURNED("2"),
          "input x f32[5,2,96]\nconst five i64[5] = 5 2 1 3 32\nconst heads i64[4] = 5 2 4 8\n"
          "const n0 i64[] = 0\nconst n1 i64[] = 1\nconst n2 i64[] = 2\n"
          "f = Reshape-14 (x, five)\nt = Transpose-13 (f) perm=[3,0,1,2,4]\n"
          "g0 = Gather-13 (t, n0)\ng1 = Gather-13 (t, n1)\ng2 = Gather-13 (t, n2)\n"
          "s0 = Reshape-14 (g0, heads)\ns1 = Reshape-14 (g1, heads)\n"
          "s2 = Reshape-14 (g2, heads)\n"
          "y = millpond.Attention-1 (s0, s1, s2)" NAME
          " k_perm=[1,2,0,3] q_perm=[1,2,0,3] v_perm=[1,2,0,3]\noutput y\n",
          1);
}

DEVICE_TEST(read_parts_of_what_is_turned_keeps_results) {
    static const char *const sliced =
        "input x f32[2,5,48]\nconst c0 i64[1] = 0\nconst c1 i64[1] = 16\nconst c2 i64[1] = 32\n"
        "const c3 i64[1] = 9223372036854775807\nconst last i64[1] = -1\n"
        "const four i64[4] = 2 5 2 8\na = Slice-13 (x, c0, c1, last)\n"
        "b = Slice-13 (x, c1, c2, last)\nc = Slice-13 (x, c2, c3, last)\n"
        "rq = Reshape-14 (a, four)\nrk = Reshape-14 (b, four)\nrv = Reshape-14 (c, four)\n"
        "q = Transpose-13 (rq) perm=[0,2,1,3]\nk = Transpose-13 (rk) perm=[0,2,3,1]\n"
        "v = Transpose-13 (rv) perm=[0,2,1,3]\ns = MatMul-13 (q, k)\n"
        "w = Softmax-13 (s) axis=-1\ny = MatMul-13 (w, v)\noutput y\n";
    const mp_shape one[] = {SHAPE(5, 1, 96)};
    const mp_shape two[] = {SHAPE(5, 2, 96)};
    const mp_shape rows[] = {SHAPE(2, 5, 48)};
    pass_check_run(device, TURNED("1"), one, 1e-5, 4);
    pass_check_run(device, TURNED("2"), two, 1e-5, 1);
    pass_check_run(device, sliced, rows, 1e-5, 1);
}

#define PROJECTIONS(second)                                                                   \
    "input x f32[?,?,16]\ninput z f32[?,?,16]\n"                                              \
    "const wq f32[16,32]\nconst wk f32[16,32]\nconst wv f32[16,32]\n"                         \
    "const bq f32[32]\nconst bk f32[32]\nconst bv f32[32]\n"                                  \
    "const four i64[4] = 0 0 4 8\n"                                                           \
    "pq = MatMul-13 (x, wq) \"pq\"\npk = MatMul-13 (" second ", wk) \"pk\"\n"                 \
    "pv = MatMul-13 (" second ", wv) \"pv\"\n"                                                \
    "aq = Add-14 (bq, pq) \"aq\"\nak = Add-14 (pk, bk) \"ak\"\nav = Add-14 (pv, bv) \"av\"\n" \
    "q = Reshape-14 (aq, four)\nk = Reshape-14 (ak, four)\nv = Reshape-14 (av, four)\n"       \
    "qt = Transpose-13 (q) perm=[0,2,1,3]\nkt = Transpose-13 (k) perm=[0,2,3,1]\n"            \
    "vt = Transpose-13 (v) perm=[0,2,1,3]\ns = MatMul-13 (qt, kt) \"scores\"\n"               \
    "w = Softmax-13 (s) \"weights\" axis=-1\nr = MatMul-13 (w, vt) \"result\"\n"              \
    "y = Transpose-13 (r) perm=[0,2,1,3]\noutput y\n"

TEST(graph_pass_join_products_leaves_constants_without_bytes) {
    /* what the matrices are is not known, so they cannot be put side by side */
    check("-dead", PROJECTIONS("x"),
          "input x f32[?,?,16]\ninput z f32[?,?,16]\n"
          "const wq f32[16,32]\nconst wk f32[16,32]\nconst wv f32[16,32]\n"
          "const bq f32[32]\nconst bk f32[32]\nconst bv f32[32]\n"
          "const four i64[4] = 0 0 4 8\n"
          "aq = millpond.MatMulBias-1 (x, wq, bq) \"pq+aq\"\n"
          "ak = millpond.MatMulBias-1 (x, wk, bk) \"pk+ak\"\n"
          "av = millpond.MatMulBias-1 (x, wv, bv) \"pv+av\"\n"
          "q = Reshape-14 (aq, four)\nk = Reshape-14 (ak, four)\nv = Reshape-14 (av, four)\n"
          "y = millpond.Attention-1 (q, k, v)" NAME PERMS V_PERM,
          4);
}

TEST(graph_pass_join_products) {
    /* K and V read another input than Q */
    check(NULL,
          "input x f32[?,?,2]\ninput z f32[?,?,2]\n"
          "const wq f32[2,2] = 1 2 3 4\nconst wk f32[2,2] = 5 6 7 8\n"
          "const wv f32[2,2] = 9 10 11 12\nconst two i64[4] = 0 -1 2 1\n"
          "pq = MatMul-13 (x, wq) \"pq\"\npk = MatMul-13 (z, wk) \"pk\"\n"
          "pv = MatMul-13 (z, wv) \"pv\"\n"
          "q = Reshape-14 (pq, two)\nk = Reshape-14 (pk, two)\nv = Reshape-14 (pv, two)\n"
          "qt = Transpose-13 (q) perm=[0,2,1,3]\nkt = Transpose-13 (k) perm=[0,2,3,1]\n"
          "vt = Transpose-13 (v) perm=[0,2,1,3]\ns = MatMul-13 (qt, kt) \"scores\"\n"
          "w = Softmax-13 (s) \"weights\" axis=-1\ny = MatMul-13 (w, vt) \"result\"\noutput y\n",
          "input x f32[?,?,2]\ninput z f32[?,?,2]\n"
          "const wq f32[2,2] = 1 2 3 4\nconst two i64[4] = 0 -1 2 1\n"
          "const wk+wv f32[2,4] = 5 6 9 10 7 8 11 12\n"
          "pq = MatMul-13 (x, wq) \"pq\"\njoined = MatMul-13 (z, wk+wv) \"pk+pv\"\n"
          "q = Reshape-14 (pq, two)\n"
          "y = millpond.Attention-1 (q, joined, joined)" NAME
          " k_part=[0,2,1,1] q_perm=[0,2,1,3] v_part=[2,2,1,1]\noutput y\n",
          2);
}

/* ---- results ---- */

DEVICE_TEST(attention_pass_keeps_results_of_heads_that_are_turned) {
    static const char *const text =
        QKV "input m f32[?,1,1,?]\nconst root f32[] = 3\n" HEADS "t = MatMul-13 (a, b)\n"
            "d = Div-14 (t, root)\ns = Add-14 (d, m)\n" RESULT;
    const mp_shape few[] = {SHAPE(2, 3, 4, 8), SHAPE(2, 5, 4, 8), SHAPE(2, 5, 4, 8),
                            SHAPE(2, 1, 1, 5)};
    const mp_shape many[] = {SHAPE(2, 70, 4, 8), SHAPE(2, 65, 4, 8), SHAPE(2, 65, 4, 8),
                             SHAPE(1, 1, 1, 65)};
    const mp_shape one[] = {SHAPE(1, 1, 4, 8), SHAPE(1, 1, 4, 8), SHAPE(1, 1, 4, 8),
                            SHAPE(1, 1, 1, 1)};
    const mp_shape none[] = {SHAPE(2, 0, 4, 8), SHAPE(2, 5, 4, 8), SHAPE(2, 5, 4, 8),
                             SHAPE(2, 1, 1, 5)};
    pass_check_run(device, text, few, 1e-5, 1);
    pass_check_run(device, text, many, 1e-5, 1);
    pass_check_run(device, text, one, 1e-5, 1);
    pass_check_run(device, text, none, 1e-5, 1);
}

DEVICE_TEST(attention_pass_keeps_results_of_dimensions_that_broadcast) {
    /* entries, heads, queries and keys are repeated as a product and a sum repeat them */
    static const char *const text = "input q f32[?,?,?,8]\ninput k f32[?,?,8,?]\n"
                                    "input v f32[?,?,?,6]\ninput m f32[?,?,?,?]\n"
                                    "t = MatMul-13 (q, k)\ns = Add-14 (m, t)\n"
                                    "w = Softmax-13 (s) axis=3\nr = MatMul-13 (w, v)\noutput r\n";
    const mp_shape entries[] = {SHAPE(1, 2, 3, 8), SHAPE(2, 1, 8, 5), SHAPE(1, 2, 5, 6),
                                SHAPE(2, 1, 1, 5)};
    const mp_shape masks[] = {SHAPE(1, 1, 1, 8), SHAPE(1, 1, 8, 5), SHAPE(1, 1, 5, 6),
                              SHAPE(3, 2, 4, 5)};
    const mp_shape keys[] = {SHAPE(2, 1, 3, 8), SHAPE(2, 3, 8, 1), SHAPE(2, 3, 7, 6),
                             SHAPE(1, 3, 3, 7)};
    pass_check_run(device, text, entries, 1e-5, 1);
    pass_check_run(device, text, masks, 1e-5, 1);
    pass_check_run(device, text, keys, 1e-5, 1);
}

DEVICE_TEST(attention_pass_keeps_results_of_fewer_dimensions) {
    static const char *const three = "input q f32[?,?,8]\ninput k f32[?,?,8]\ninput v f32[?,?,8]\n"
                                     "input m bool[?,?]\nconst low f32[] = -20000\n"
                                     "b = Transpose-13 (k) perm=[0,2,1]\n"
                                     "t = MatMul-13 (q, b)\ns = Where-16 (m, t, low)\n"
                                     "w = Softmax-13 (s) axis=-1\nr = MatMul-13 (w, v)\n"
                                     "y = Transpose-13 (r) perm=[2,0,1]\noutput y\n";
    static const char *const two = "input q f16[?,8]\ninput k f16[?,8]\ninput v f16[?,8]\n"
                                   "b = Transpose-13 (k) perm=[1,0]\n"
                                   "s = MatMul-13 (q, b)\nw = Softmax-13 (s) axis=1\n"
                                   "r = MatMul-13 (w, v)\noutput r\n";
    const mp_shape in[] = {SHAPE(6, 3, 8), SHAPE(6, 5, 8), SHAPE(6, 5, 8), SHAPE(3, 5)};
    const mp_shape flat[] = {SHAPE(20, 8), SHAPE(33, 8), SHAPE(33, 8)};
    pass_check_run(device, three, in, 1e-5, 1);
    pass_check_run(device, two, flat, 4e-3, 1);
}

DEVICE_TEST(attention_pass_keeps_results_of_shared_heads) {
    static const char *const text =
        "input q f32[?,6,?,8]\ninput k f32[?,2,?,8]\ninput v f32[?,2,?,8]\n"
        "const two i64[1] = 2\nconst wide i64[5] = 1 1 3 1 1\nconst to i64[4] = 2 6 9 8\n"
        "ku = Unsqueeze-13 (k, two)\n"
        "ke = Expand-13 (ku, wide)\nkr = Reshape-14 (ke, to)\n"
        "vu = Unsqueeze-13 (v, two)\nve = Expand-13 (vu, wide)\nvr = Reshape-14 (ve, to)\n"
        "b = Transpose-13 (kr) perm=[0,1,3,2]\ns = MatMul-13 (q, b)\n"
        "w = Softmax-13 (s) axis=3\ny = MatMul-13 (w, vr)\noutput y\n";
    const mp_shape in[] = {SHAPE(2, 6, 4, 8), SHAPE(2, 2, 9, 8), SHAPE(2, 2, 9, 8)};
    pass_check_run(device, text, in, 1e-5, 1);
}

DEVICE_TEST(attention_pass_keeps_results_of_heads_that_shapes_repeat) {
    const mp_shape in[] = {SHAPE(2, 6, 4, 8), SHAPE(2, 2, 9, 8), SHAPE(2, 2, 9, 8),
                           SHAPE(2, 1, 4, 9)};
    pass_check_run(device, EAGER EAGER_SIZES EAGER_BODY, in, 1e-2, 2);
}

DEVICE_TEST(attention_pass_keeps_results_of_projections) {
    const mp_shape in[] = {SHAPE(2, 5, 16), SHAPE(2, 7, 16)};
    pass_check_run(device, PROJECTIONS("x"), in, 1e-4, 5); /* attention, three biases, one join */
    pass_check_run(device, PROJECTIONS("z"), in, 1e-4, 5);
}

DEVICE_TEST(attention_pass_keeps_results_of_parts) {
    static const char *const split =
        "input x f32[?,?,80]\nconst sizes i64[3] = 32 16 32\nconst four i64[4] = 0 0 4 8\n"
        "const two i64[4] = 0 0 4 4\n"
        "a, b, c = Split-13 (x, sizes) axis=2\n"
        "q = Reshape-14 (a, four)\nk = Reshape-14 (c, four)\nv = Reshape-14 (b, two)\n"
        "qt = Transpose-13 (q) perm=[0,2,1,3]\nkt = Transpose-13 (k) perm=[0,2,3,1]\n"
        "vt = Transpose-13 (v) perm=[0,2,1,3]\ns = MatMul-13 (qt, kt)\n"
        "w = Softmax-13 (s) axis=-1\ny = MatMul-13 (w, vt)\noutput y\n";
    static const char *const gather =
        "input x f16[?,?,96]\nconst five i64[5] = 0 0 3 4 8\nconst n0 i64[] = 0\n"
        "const n1 i64[] = 1\nconst n2 i64[] = 2\nf = Reshape-14 (x, five)\n"
        "q = Gather-13 (f, n0) axis=2\nk = Gather-13 (f, n1) axis=2\nv = Gather-13 (f, n2) axis=2\n"
        "qt = Transpose-13 (q) perm=[0,2,1,3]\nkt = Transpose-13 (k) perm=[0,2,3,1]\n"
        "vt = Transpose-13 (v) perm=[0,2,1,3]\ns = MatMul-13 (qt, kt)\n"
        "w = Softmax-13 (s) axis=-1\ny = MatMul-13 (w, vt)\noutput y\n";
    const mp_shape wide[] = {SHAPE(2, 5, 80)};
    const mp_shape five[] = {SHAPE(2, 40, 96)};
    pass_check_run(device, split, wide, 1e-5, 4);
    pass_check_run(device, gather, five, 1e-2, 4);
}

/* ---- cosines ---- */

#define COSINES(scale) \
    "input q f32[2,3,4,8]\ninput l f32[2,3,4,1]\ninput k f32[2,3,8,4]\nconst s f32" scale "\n"

TEST(graph_pass_cosine_scale) {
    check(NULL,
          COSINES("[3,1,1]") "n = Div-14 (q, l)\np = MatMul-13 (n, k) \"product\"\n"
                             "y = Mul-14 (s, p) \"scale\"\noutput y\n",
          COSINES("[3,1,1]") "n = Div-14 (q, l)\nscale_query = Mul-14 (n, s) \"scale_query\"\n"
                             "y = MatMul-13 (scale_query, k) \"product\"\noutput y\n",
          1);
    /* what is no quotient; a number of each row; one for all; scores that others read */
    LEFT_ALONE(NULL, COSINES("[3,1,1]") "p = MatMul-13 (q, k)\nt = Mul-14 (p, s)\n"
                                        "y = Mul-14 (t, l)\noutput y\n");
    LEFT_ALONE(NULL, COSINES("[3,4,1]") "n = Div-14 (q, l)\np = MatMul-13 (n, k)\n"
                                        "y = Mul-14 (p, s)\noutput y\n");
    LEFT_ALONE(NULL, COSINES("[4]") "n = Div-14 (q, l)\np = MatMul-13 (n, k)\n"
                                    "y = Mul-14 (p, s)\noutput y\n");
    LEFT_ALONE(NULL, COSINES("[3,1,1]") "n = Div-14 (q, l)\np = MatMul-13 (n, k)\n"
                                        "y = Mul-14 (p, s)\noutput y\noutput p\n");
}

DEVICE_TEST(cosine_scale_changes_no_result) {
    const mp_shape in[] = {SHAPE(2, 3, 4, 8), SHAPE(2, 3, 4, 8), SHAPE(2, 3, 8, 4)};
    pass_check_run(device,
                   "input q f32[2,3,4,8]\ninput z f32[2,3,4,8]\ninput k f32[2,3,8,4]\n"
                   "const s f32[3,1,1]\ne = Exp-13 (z)\nn = Div-14 (q, e)\n"
                   "p = MatMul-13 (n, k)\ny = Mul-14 (p, s)\noutput y\n",
                   in, 1e-4, 1);
}

#undef COSINES
