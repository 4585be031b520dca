/* product_pass_test.c - rows that are normalised become part of the product that reads them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#include <stdio.h>

#define NBITS "const w u8[8,2,16]\nconst s f16[8,2]\nconst z u8[8,1]\n"

TEST(graph_pass_norm_product) {
    check(NULL,
          "input x f16[?,?,64]\ninput z f16[?,?,64]\nconst g f16[64]\nconst w f16[64,32]\n"
          "n, , , t = com.microsoft.SkipSimplifiedLayerNormalization-1 (x, z, g) \"norm\" "
          "epsilon=0.25f\nr = Relu-14 (t) \"relu\"\ny = MatMul-13 (n, w) \"product\"\n"
          "output y\noutput r\n",
          "input x f16[?,?,64]\ninput z f16[?,?,64]\nconst g f16[64]\nconst w f16[64,32]\n"
          "y, t = millpond.NormMatMul-1 (x, w, , z, g) \"norm+product\" epsilon=0.25f\n"
          "r = Relu-14 (t) \"relu\"\noutput y\noutput r\n",
          1);
    check(NULL,
          "input x f32[1,1,64]\nconst g f32[64]\nconst w f32[64,32]\nconst b f32[32]\n"
          "n = RMSNormalization-23 (x, g) \"norm\" epsilon=0.25f\n"
          "y = millpond.MatMulBias-1 (n, w, b) \"product\"\noutput y\n",
          "input x f32[1,1,64]\nconst g f32[64]\nconst w f32[64,32]\nconst b f32[32]\n"
          "y = millpond.NormMatMul-1 (x, w, b, , g) \"norm+product\" epsilon=0.25f\noutput y\n",
          1);
    check(NULL,
          "input x f16[?,64]\nconst g f16[64]\n" NBITS
          "n = SimplifiedLayerNormalization-1 (x, g) \"norm\" epsilon=0.25f\n"
          "y = com.microsoft.MatMulNBits-1 (n, w, s, z) \"product\" K=64 N=8 bits=4 "
          "block_size=32\noutput y\n",
          "input x f16[?,64]\nconst g f16[64]\n" NBITS
          "y = millpond.NormMatMulNBits-1 (x, w, s, z, , , , g) \"norm+product\" K=64 N=8 bits=4 "
          "block_size=32 epsilon=0.25f\noutput y\n",
          1);
}

TEST(graph_pass_norm_product_of_gated_halves) {
    check(NULL,
          "input x f16[?,?,64]\nconst w f16[32,16]\n"
          "h = millpond.GatedHalves-1 (x) \"gate\" alpha=1f gate=\"swish\"\n"
          "y = MatMul-13 (h, w) \"product\"\noutput y\n",
          "input x f16[?,?,64]\nconst w f16[32,16]\n"
          "y = millpond.GatedMatMul-1 (x, w) \"gate+product\" alpha=1f gate=\"swish\"\noutput y\n",
          1);
    check(NULL,
          "input x f16[?,128]\n" NBITS "h = millpond.GatedHalves-1 (x) \"gate\" gate=\"gelu\"\n"
          "y = com.microsoft.MatMulNBits-1 (h, w, s, z) \"product\" K=64 N=8 bits=4 "
          "block_size=32\noutput y\n",
          "input x f16[?,128]\n" NBITS
          "y = millpond.GatedMatMulNBits-1 (x, w, s, z) \"gate+product\" K=64 N=8 bits=4 "
          "block_size=32 gate=\"gelu\"\noutput y\n",
          1);
    LEFT_ALONE(NULL, "input x f16[3,64]\nconst w f16[32,16]\n"
                     "h = millpond.GatedHalves-1 (x) gate=\"swish\"\ny = MatMul-13 (h, w)\n"
                     "output y\n");
}

#define WIDE "const w u8[12304,2,16]\nconst s f16[12304,2]\n"

TEST(graph_pass_gate_product) {
    check(NULL,
          "input x f16[?,64]\n" WIDE
          "p = com.microsoft.MatMulNBits-1 (x, w, s) \"product\" K=64 N=12304 bits=4 "
          "block_size=32\ny = millpond.GatedHalves-1 (p) \"gate\" gate=\"gelu\"\noutput y\n",
          "input x f16[?,64]\n" WIDE
          "y = millpond.MatMulNBitsGated-1 (x, w, s) \"product+gate\" K=64 N=12304 bits=4 "
          "block_size=32 gate=\"gelu\"\noutput y\n",
          1);
    check(NULL,
          "input x f16[?,64]\nconst g f16[64]\n" WIDE
          "n = SimplifiedLayerNormalization-1 (x, g) \"norm\" epsilon=0.25f\n"
          "p = com.microsoft.MatMulNBits-1 (n, w, s) \"product\" K=64 N=12304 bits=4 "
          "block_size=32\ny = millpond.GatedHalves-1 (p) \"gate\" gate=\"gelu\"\noutput y\n",
          "input x f16[?,64]\nconst g f16[64]\n" WIDE
          "y = millpond.NormMatMulNBitsGated-1 (x, w, s, , , , , g) \"norm+product+gate\" K=64 "
          "N=12304 bits=4 block_size=32 gate=\"gelu\" epsilon=0.25f\noutput y\n",
          2);
    /* two readers; halves that the next product makes */
    LEFT_ALONE(NULL, "input x f16[?,64]\n" WIDE
                     "p = com.microsoft.MatMulNBits-1 (x, w, s) K=64 N=12304 bits=4 "
                     "block_size=32\ny = millpond.GatedHalves-1 (p) gate=\"gelu\"\n"
                     "output y\noutput p\n");
    LEFT_ALONE(NULL, "input x f16[?,64]\nconst w u8[12288,2,16]\nconst s f16[12288,2]\n"
                     "p = com.microsoft.MatMulNBits-1 (x, w, s) K=64 N=12288 bits=4 "
                     "block_size=32\ny = millpond.GatedHalves-1 (p) gate=\"gelu\"\n"
                     "output y\n");
}

TEST(graph_pass_norm_product_leaves_others_alone) {
    /* two readers; five rows; a scale, or a matrix, that is no constant; an activation behind */
    LEFT_ALONE(NULL, "input x f32[?,64]\nconst g f32[64]\nconst w f32[64,32]\n"
                     "n = RMSNormalization-23 (x, g)\ny = MatMul-13 (n, w)\noutput y\noutput n\n");
    LEFT_ALONE(NULL, "input x f32[5,64]\nconst g f32[64]\nconst w f32[64,32]\n"
                     "n = RMSNormalization-23 (x, g)\ny = MatMul-13 (n, w)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,64]\ninput g f32[64]\nconst w f32[64,32]\n"
                     "n = RMSNormalization-23 (x, g)\ny = MatMul-13 (n, w)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,64]\ninput w f32[64,32]\nconst g f32[64]\n"
                     "n = RMSNormalization-23 (x, g)\ny = MatMul-13 (n, w)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,64]\nconst g f32[64]\nconst w f32[64,32]\nconst b f32[32]\n"
                     "n = RMSNormalization-23 (x, g)\n"
                     "y = millpond.MatMulBias-1 (n, w, b) activation=\"Relu\"\noutput y\n");
    /* a mean that is taken off; rows of two dimensions; a row that is added */
    LEFT_ALONE(NULL, "input x f32[?,64]\nconst g f32[64]\nconst w f32[64,32]\n"
                     "n = LayerNormalization-17 (x, g)\ny = MatMul-13 (n, w)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,2,64]\nconst g f32[2,64]\nconst w f32[64,32]\n"
                     "n = RMSNormalization-23 (x, g) axis=1\ny = MatMul-13 (n, w)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,64]\ninput z f32[?,64]\nconst g f32[64]\nconst b f32[64]\n"
                     "const w f32[64,32]\nn = com.microsoft.SkipSimplifiedLayerNormalization-1 "
                     "(x, z, g, b)\ny = MatMul-13 (n, w)\noutput y\n");
}

/* One row, which the product's kernel makes, and others, which a step before it does. */
DEVICE_TEST(norm_products_keep_results) {
    static const char *const text =
        "input x TYPE[?,?,64]\ninput z TYPE[?,?,64]\nconst g TYPE[64]\nconst w TYPE[64,264]\n"
        "const b TYPE[264]\n"
        "n, , , t = millpond.SkipSimplifiedLayerNormalization-1 (x, z, g) epsilon=0.01f\n"
        "y = millpond.MatMulBias-1 (n, w, b)\n"
        "m = RMSNormalization-23 (x, g)\nv = MatMul-13 (m, w)\noutput y\noutput t\noutput v\n";
    const mp_shape shapes[][2] = {
        {SHAPE(1, 1, 64), SHAPE(1, 1, 64)}, {SHAPE(1, 3, 64), SHAPE(1, 3, 64)},
        {SHAPE(2, 5, 64), SHAPE(2, 5, 64)}, {SHAPE(1, 4, 64), SHAPE(1, 1, 64)},
        {SHAPE(1, 0, 64), SHAPE(1, 0, 64)}, {SHAPE(1, 1, 64), SHAPE(2, 1, 64)},
    };
    static const struct {
        const char *word;
        double bound; /* a few roundings of the type: both ways round in the same places */
    } types[] = {{"f32", 1e-5}, {"f16", 1e-2}, {"bf16", 5e-2}};
    for (size_t i = 0; i < MP_COUNT_OF(shapes) * MP_COUNT_OF(types); i++) {
        char typed[1024] = "";
        const char *from = text;
        for (const char *at = strstr(from, "TYPE"); at != NULL; at = strstr(from, "TYPE")) {
            (void)strncat(typed, from, (size_t)(at - from));
            (void)strcat(typed, types[i % MP_COUNT_OF(types)].word);
            from = at + strlen("TYPE");
        }
        (void)strcat(typed, from);
        pass_check_run(device, typed, shapes[i / MP_COUNT_OF(types)],
                       types[i % MP_COUNT_OF(types)].bound, 2);
    }
}

DEVICE_TEST(norm_products_of_few_bits_keep_results) {
    static const char *const text =
        "input x f32[?,64]\ninput z f32[?,64]\nconst g f32[64]\nconst w u8[8,2,16]\n"
        "const s f32[8,2]\nconst q u8[8,1]\n"
        "n, , , t = millpond.SkipSimplifiedLayerNormalization-1 (x, z, g) epsilon=0.01f\n"
        "y = com.microsoft.MatMulNBits-1 (n, w, s, q) K=64 N=8 bits=4 block_size=32\n"
        "output y\noutput t\n";
    const mp_shape shapes[][2] = {{SHAPE(1, 64), SHAPE(1, 64)},
                                  {SHAPE(3, 64), SHAPE(3, 64)},
                                  {SHAPE(0, 64), SHAPE(0, 64)},
                                  {SHAPE(20, 64), SHAPE(20, 64)}};
    for (size_t i = 0; i < MP_COUNT_OF(shapes); i++) {
        pass_check_run(device, text, shapes[i], 1e-5, 1);
    }
}

/* Behind the product, with rows that are made before and without. */
DEVICE_TEST(products_with_gates_behind_keep_results) {
    static const char *const gates[] = {"swish\" alpha=1.5f", "gelu\"", "gelu_tanh\""};
    const mp_shape shapes[][1] = {
        {SHAPE(1, 1, 64)}, {SHAPE(1, 3, 64)}, {SHAPE(5, 0, 64)}, {SHAPE(20, 1, 64)}};
    for (size_t i = 0; i < MP_COUNT_OF(shapes); i++) {
        char text[768];
        (void)snprintf(text, sizeof text,
                       "input x f32[?,?,64]\nconst w u8[12304,2,16]\nconst s f32[12304,2]\n"
                       "const g f32[64]\nn = SimplifiedLayerNormalization-1 (x, g)\n"
                       "p = com.microsoft.MatMulNBits-1 (n, w, s) K=64 N=12304 bits=4 "
                       "block_size=32\ny = millpond.GatedHalves-1 (p) gate=\"%s\n"
                       "q = com.microsoft.MatMulNBits-1 (x, w, s) K=64 N=12304 bits=4 "
                       "block_size=32\nz = millpond.GatedHalves-1 (q) gate=\"%s\n"
                       "output y\noutput z\n",
                       gates[i % MP_COUNT_OF(gates)], gates[(i + 1) % MP_COUNT_OF(gates)]);
        pass_check_run(device, text, shapes[i], 1e-4, 3);
    }
}

DEVICE_TEST(gated_products_keep_results) {
    static const char *const gates[] = {"swish\" alpha=1.5f", "gelu\"", "gelu_tanh\""};
    const mp_shape shapes[][1] = {{SHAPE(1, 1, 128)}, {SHAPE(1, 3, 128)}, {SHAPE(5, 0, 128)}};
    for (size_t i = 0; i < MP_COUNT_OF(gates) * MP_COUNT_OF(shapes); i++) {
        char text[512];
        (void)snprintf(text, sizeof text,
                       "input x f32[?,?,128]\nconst v f32[64,264]\nconst w u8[8,2,16]\n"
                       "const s f32[8,2]\ng = millpond.GatedHalves-1 (x) gate=\"%s\n"
                       "h = millpond.GatedHalves-1 (x) gate=\"%s\ny = MatMul-13 (g, v)\n"
                       "z = com.microsoft.MatMulNBits-1 (h, w, s) K=64 N=8 bits=4 block_size=32\n"
                       "output y\noutput z\n",
                       gates[i % MP_COUNT_OF(gates)], gates[(i + 1) % MP_COUNT_OF(gates)]);
        pass_check_run(device, text, shapes[i / MP_COUNT_OF(gates)], 1e-4, 2);
    }
}
