/* join_pass_test.c - products of one input that become one, whose parts rotations, caches and gates
 * read.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

/* ---- Q, K and V ---- */

#define ANGLES "input c f32[1,1,?,2]\ninput s f32[1,1,?,2]\n"
#define CACHES "input oldk f32[?,1,?,2]\ninput oldv f32[?,1,?,2]\n"
#define MATRICES                                                            \
    "const wq f32[2,4] = 1 2 3 4 5 6 7 8\nconst wk f32[2,2] = 9 10 11 12\n" \
    "const wv f32[2,2] = 13 14 15 16\n"
#define HEADS "const two i64[4] = 0 0 2 2\nconst one i64[4] = 0 0 1 2\n"
#define PRODUCTS                                                                          \
    "pq = MatMul-13 (x, wq) \"pq\"\npk = MatMul-13 (x, wk) \"pk\"\n"                      \
    "pv = MatMul-13 (x, wv) \"pv\"\nq = Reshape-14 (pq, two)\nk = Reshape-14 (pk, one)\n" \
    "v = Reshape-14 (pv, one)\n"
#define JOINED                                                        \
    "const wq+wk f32[2,8] = 1 2 3 4 9 10 13 14 5 6 7 8 11 12 15 16\n" \
    "joined = MatMul-13 (x, wq+wk) \"pq+pk+pv\"\n"
#define ATTENTION(k, v)                                                   \
    "t = MatMul-13 (qr, " k ")\nw = Softmax-13 (t) \"weights\" axis=-1\n" \
    "y = MatMul-13 (w, " v ")\n"

TEST(graph_pass_join_products_that_are_rotated) {
    check(NULL,
          "input x f32[?,?,2]\n" ANGLES MATRICES HEADS PRODUCTS
          "qr = millpond.RotaryHalves-1 (q, c, s) \"rq\" turned=1\n"
          "kr = millpond.RotaryHalves-1 (k, c, s) \"rk\" turned=1\n"
          "kt = Transpose-13 (kr) perm=[0,1,3,2]\nvt = Transpose-13 (v) perm=[0,2,1,3]\n" ATTENTION(
              "kt", "vt") "output y\n",
          "input x f32[?,?,2]\n" ANGLES JOINED
          "qr, kr = millpond.RotaryPair-1 (joined, joined, c, s) \"rq+rk\" part=[0,2,2,2] "
          "key_part=[4,1,2,2]\n"
          "y = millpond.Attention-1 (qr, kr, joined) \"+weights+\" v_part=[6,1,2,2]\noutput y\n",
          3);
}

TEST(graph_pass_join_products_that_a_cache_takes) {
    check(NULL,
          "input x f32[?,?,2]\n" ANGLES CACHES MATRICES HEADS PRODUCTS
          "qr = millpond.RotaryHalves-1 (q, c, s) \"rq\" turned=1\n"
          "kr = millpond.RotaryHalves-1 (k, c, s) \"rk\" turned=1\n"
          "kc = Concat-13 (oldk, kr) axis=2\nkt = Transpose-13 (kc) perm=[0,1,3,2]\n"
          "vt = Transpose-13 (v) perm=[0,2,1,3]\nvc = Concat-13 (oldv, vt) axis=2\n" ATTENTION(
              "kt", "vc") "output y\noutput kc\noutput vc\n",
          "input x f32[?,?,2]\n" ANGLES CACHES JOINED
          "qr = millpond.RotaryHalves-1 (joined, c, s) \"rq\" part=[0,2,2,2]\n"
          "kr = millpond.RotaryHalves-1 (joined, c, s) \"rk\" part=[4,1,2,2]\n"
          "kc = Concat-13 (oldk, kr) axis=2\n"
          "vt = millpond.HeadsPart-1 (joined) part=[6,1,2,2]\n"
          "vc = Concat-13 (oldv, vt) axis=2\n"
          "y = millpond.Attention-1 (qr, kc, vc) \"+weights+\"\noutput y\noutput kc\noutput vc\n",
          2);
}

TEST(graph_pass_join_products_leaves_heads_that_others_read) {
    LEFT_ALONE("-find_attention -join_rotary",
               "input x f32[?,?,2]\n" ANGLES MATRICES HEADS
               "pq = MatMul-13 (x, wq) \"pq\"\npk = MatMul-13 (x, wk) \"pk\"\n"
               "q = Reshape-14 (pq, two)\nk = Reshape-14 (pk, one)\n"
               "qr = millpond.RotaryHalves-1 (q, c, s) \"rq\" turned=1\n"
               "kr = millpond.RotaryHalves-1 (k, c, s) \"rk\" turned=1\n"
               "y = millpond.Attention-1 (qr, kr, kr) \"a\"\noutput y\noutput pk\noutput wv\n");
}

/* With a cache; keys and values have one head for all. */
#define DECODER(type, weights, products)                                                    \
    "input x " type "[?,?,32]\ninput c " type "[1,1,?,16]\ninput oldk " type "[?,1,?,16]\n" \
    "input oldv " type "[?,1,?,16]\nconst four i64[4] = 0 0 4 16\n"                         \
    "const one i64[4] = 0 0 1 16\n" weights products                                        \
    "q = Reshape-14 (pq, four)\nk = Reshape-14 (pk, one)\nv = Reshape-14 (pv, one)\n"       \
    "qr = millpond.RotaryHalves-1 (q, c, c) turned=1\n"                                     \
    "kr = millpond.RotaryHalves-1 (k, c, c) turned=1\n"                                     \
    "vt = Transpose-13 (v) perm=[0,2,1,3]\n"                                                \
    "everyk = Concat-13 (oldk, kr) axis=2\neveryv = Concat-13 (oldv, vt) axis=2\n"          \
    "kx = Transpose-13 (everyk) perm=[0,1,3,2]\nt = MatMul-13 (qr, kx)\n"                   \
    "w = Softmax-13 (t) axis=-1\nr = MatMul-13 (w, everyv)\n"                               \
    "y = Transpose-13 (r) perm=[0,2,1,3]\noutput y\noutput everyk\noutput everyv\n"
#define PLAIN_WEIGHTS(type) \
    "const wq " type "[32,64]\nconst wk " type "[32,16]\nconst wv " type "[32,16]\n"
#define PLAIN_PRODUCTS "pq = MatMul-13 (x, wq)\npk = MatMul-13 (x, wk)\npv = MatMul-13 (x, wv)\n"
#define PACKED_WEIGHTS(bytes, zeros, type)                                                    \
    "const wq u8[64,2," bytes "]\nconst wk u8[16,2," bytes "]\nconst wv u8[16,2," bytes "]\n" \
    "const sq " type "[128]\nconst sk " type "[32]\nconst sv " type "[32]\n"                  \
    "const zq u8[64," zeros "]\nconst zk u8[16," zeros "]\nconst zv u8[16," zeros "]\n"
#define PACKED_PRODUCT(name, n, bits)                                                        \
    "p" name " = com.microsoft.MatMulNBits-1 (x, w" name ", s" name ", z" name ") K=32 N=" n \
    " bits=" bits " block_size=16\n"
#define PACKED_PRODUCTS(bits) \
    PACKED_PRODUCT("q", "64", bits) PACKED_PRODUCT("k", "16", bits) PACKED_PRODUCT("v", "16", bits)

DEVICE_TEST(join_products_of_a_decoder_keeps_results) {
    const mp_shape prompt[] = {SHAPE(2, 5, 32), SHAPE(1, 1, 5, 16), SHAPE(2, 1, 0, 16),
                               SHAPE(2, 1, 0, 16)};
    const mp_shape step[] = {SHAPE(1, 1, 32), SHAPE(1, 1, 1, 16), SHAPE(1, 1, 7, 16),
                             SHAPE(1, 1, 7, 16)};
    const mp_shape none[] = {SHAPE(0, 1, 32), SHAPE(1, 1, 1, 16), SHAPE(0, 1, 7, 16),
                             SHAPE(0, 1, 7, 16)};
    pass_check_run(device, DECODER("f32", PLAIN_WEIGHTS("f32"), PLAIN_PRODUCTS), prompt, 1e-3, 2);
    pass_check_run(device, DECODER("f32", PLAIN_WEIGHTS("f32"), PLAIN_PRODUCTS), step, 1e-3, 2);
    pass_check_run(device, DECODER("f32", PLAIN_WEIGHTS("f32"), PLAIN_PRODUCTS), none, 1e-3, 2);
    pass_check_run(device, DECODER("f32", PACKED_WEIGHTS("8", "1", "f32"), PACKED_PRODUCTS("4")),
                   prompt, 1e-3, 2);
    pass_check_run(device, DECODER("f32", PACKED_WEIGHTS("16", "2", "f32"), PACKED_PRODUCTS("8")),
                   step, 1e-3, 2);
}

/* ---- gates ---- */

#define GATED(type, n, activation)                                                         \
    "input x " type "[?,?,16]\nconst wg " type "[16," n "]\nconst wu " type "[16," n "]\n" \
    "g = MatMul-13 (x, wg) \"g\"\nu = MatMul-13 (x, wu) \"u\"\n" activation                \
    "y = Mul-14 (a, u)\noutput y\n"
#define PACKED_GATE(matrix_g, scales_g, matrix_u, scales_u)                                       \
    "input x f32[?,32]\nconst wg " matrix_g "\nconst wu " matrix_u "\nconst sg " scales_g         \
    "\nconst su " scales_u                                                                        \
    "\ng = com.microsoft.MatMulNBits-1 (x, wg, sg) K=32 N=16 bits=4 block_size=16\n"              \
    "u = com.microsoft.MatMulNBits-1 (x, wu, su) K=32 N=16 bits=4 block_size=16\na = Gelu-20 (g)" \
    "\ny = Mul-14 (a, u)\noutput y\n"
#define SWISH "z = Sigmoid-13 (g)\na = Mul-14 (g, z)\n"

TEST(graph_pass_join_gated) {
    check(NULL,
          "input x f16[?,?,2]\nconst wg f16[2,2] = 1 2 3 4\nconst wu f16[2,2] = 5 6 7 8\n"
          "g = MatMul-13 (x, wg) \"g\"\nu = MatMul-13 (x, wu) \"u\"\n"
          "z = Sigmoid-13 (g) \"z\"\na = Mul-14 (g, z) \"a\"\ny = Mul-14 (u, a) \"m\"\noutput y\n",
          "input x f16[?,?,2]\nconst wg+wu f16[2,4] = 1 2 5 6 3 4 7 8\n"
          "joined = MatMul-13 (x, wg+wu) \"g+u\"\n"
          "y = millpond.GatedHalves-1 (joined) \"z+a+m\" alpha=1f gate=\"swish\"\noutput y\n",
          2);
}

/* A model may hold anything: elements of constants are moved by what their shapes say. */
TEST(graph_pass_join_gated_leaves_constants_of_wrong_sizes) {
    /* a bias that is repeated, and one too long */
    LEFT_ALONE(NULL, "input x f32[?,2]\nconst wg f32[2,2] = 1 2 3 4\nconst bg f32[1] = 1\n"
                     "const wu f32[2,2] = 5 6 7 8\ng = millpond.MatMulBias-1 (x, wg, bg)\n"
                     "u = MatMul-13 (x, wu)\na = Gelu-20 (g)\ny = Mul-14 (a, u)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,2]\nconst wg f32[2,2] = 1 2 3 4\nconst bg f32[3] = 1 2 3\n"
                     "const wu f32[2,2] = 5 6 7 8\ng = millpond.MatMulBias-1 (x, wg, bg)\n"
                     "u = MatMul-13 (x, wu)\na = Gelu-20 (g)\ny = Mul-14 (a, u)\noutput y\n");
    /* fewer rows than N; scales of another number for a column; scales that are too few for one */
    LEFT_ALONE(NULL, PACKED_GATE("u8[8,2,8]", "f32[32]", "u8[16,2,8]", "f32[32]"));
    LEFT_ALONE(NULL, PACKED_GATE("u8[16,2,8]", "f32[32]", "u8[16,2,8]", "f32[16]"));
    LEFT_ALONE(NULL, PACKED_GATE("u8[16,2,8]", "f32[3]", "u8[16,2,8]", "f32[3]"));
}

TEST(graph_pass_join_gated_leaves_what_does_not_fit) {
    /* another input; columns that are repeated; a gate that others read */
    LEFT_ALONE(NULL, "input x f32[?,2]\ninput z f32[?,2]\nconst wg f32[2,2] = 1 2 3 4\n"
                     "const wu f32[2,2] = 5 6 7 8\ng = MatMul-13 (x, wg)\nu = MatMul-13 (z, wu)\n"
                     "a = Gelu-20 (g)\ny = Mul-14 (a, u)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,2]\nconst wg f32[2,2] = 1 2 3 4\n"
                     "const wu f32[2,1] = 5 6\ng = MatMul-13 (x, wg)\nu = MatMul-13 (x, wu)\n"
                     "a = Gelu-20 (g)\ny = Mul-14 (a, u)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,2]\nconst wg f32[2,2] = 1 2 3 4\n"
                     "const wu f32[2,2] = 5 6 7 8\ng = MatMul-13 (x, wg)\nu = MatMul-13 (x, wu)\n"
                     "a = Gelu-20 (g)\ny = Mul-14 (a, u)\noutput y\noutput g\n");
}

DEVICE_TEST(join_gated_keeps_results) {
    const mp_shape rows[] = {SHAPE(2, 5, 16)};
    const mp_shape none[] = {SHAPE(0, 5, 16)};
    pass_check_run(device, GATED("f32", "24", SWISH), rows, 1e-4, 2);
    pass_check_run(device, GATED("f32", "7", SWISH), rows, 1e-4, 2);
    pass_check_run(device, GATED("f16", "24", SWISH), rows, 2e-2, 2);
    pass_check_run(device, GATED("f16", "24", SWISH), none, 2e-2, 2);
    pass_check_run(device, GATED("f32", "24", "a = Gelu-20 (g)\n"), rows, 1e-4, 1);
    pass_check_run(device, GATED("f32", "9", "a = Gelu-20 (g) approximate=\"tanh\"\n"), rows, 1e-4,
                   1);
    pass_check_run(device, GATED("f32", "8", "a = com.microsoft.QuickGelu-1 (g)\n"), rows, 1e-4, 1);
}

#define THIRDS                                                                       \
    "input x f32[?,9]\nconst z i64[1] = 0\nconst a i64[1] = 2\nconst b i64[1] = 5\n" \
    "const e i64[1] = 99\nconst i i64[1] = -1\n"

/* Slices that are all of a value, whichever comes first. */
TEST(graph_pass_join_slices) {
    check(NULL,
          THIRDS "v = Slice-13 (x, a, b, i) \"v\"\nu = Slice-13 (x, z, a, i) \"u\"\n"
                 "w = Slice-13 (x, b, e, i) \"w\"\noutput u\noutput v\noutput w\n",
          "input x f32[?,9]\nconst #9 i64[3] = 2 3 4\n"
          "u, v, w = Split-13 (x, #9) \"u+w\" axis=1\noutput u\noutput v\noutput w\n",
          1);
    /* which overlap, or are less than all */
    LEFT_ALONE(NULL, THIRDS "u = Slice-13 (x, z, a, i)\nv = Slice-13 (x, a, b, i)\n"
                            "w = Slice-13 (x, a, e, i)\noutput u\noutput v\noutput w\n");
    LEFT_ALONE(NULL, "input x f32[?,9]\nconst z i64[1] = 0\nconst a i64[1] = 2\n"
                     "const b i64[1] = 5\nconst e i64[1] = 8\nconst i i64[1] = -1\n"
                     "u = Slice-13 (x, z, a, i)\nv = Slice-13 (x, a, b, i)\n"
                     "w = Slice-13 (x, b, e, i)\noutput u\noutput v\noutput w\n");
    /* of a size that is not known */
    LEFT_ALONE(NULL, "input x f32[?,?]\nconst z i64[1] = 0\nconst a i64[1] = 2\n"
                     "const b i64[1] = 5\nconst e i64[1] = 99\nconst i i64[1] = -1\n"
                     "u = Slice-13 (x, z, a, i)\nv = Slice-13 (x, a, b, i)\n"
                     "w = Slice-13 (x, b, e, i)\noutput u\noutput v\noutput w\n");
}
