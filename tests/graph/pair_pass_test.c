/* pair_pass_test.c - two products of rows with an activation between them become one operator.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define PAIR    "+pair_products"
#define WEIGHTS "const v f16[16,32]\nconst a f16[32]\nconst w f16[32,24]\nconst b f16[24]\n"
#define ROWS    "input x f16[2,5,16]\n" WEIGHTS
#define BARE    "input x f16[2,5,16]\nconst v f16[16,32]\nconst w f16[32,24]\n"
#define FIRST   "h = millpond.MatMulBias-1 (x, v, a) \"first\" activation=\"Gelu\"\n"
#define SECOND  "y = millpond.MatMulBias-1 (h, w, b) \"second\"\n"
#define ALL     "output y\n"

TEST(graph_pass_pair_products) {
    check(PAIR, ROWS FIRST SECOND ALL,
          ROWS
          "y = millpond.MatMulPair-1 (x, v, a, w, b) \"first+second\" activation=\"Gelu\"\n" ALL,
          1);
    /* on other devices than a GPU only if it is asked for */
    LEFT_ALONE(NULL, ROWS FIRST SECOND ALL);
    check("gpu", ROWS FIRST SECOND ALL,
          ROWS
          "y = millpond.MatMulPair-1 (x, v, a, w, b) \"first+second\" activation=\"Gelu\"\n" ALL,
          1);
    /* without biases, and with the activation's numbers */
    check(PAIR,
          BARE "h = millpond.MatMulBias-1 (x, v) \"first\" activation=\"Swish\" "
               "activation_alpha=1.5f\ny = MatMul-13 (h, w) \"second\"\n" ALL,
          BARE "y = millpond.MatMulPair-1 (x, v, , w) \"first+second\" activation=\"Swish\" "
               "activation_alpha=1.5f\n" ALL,
          1);
    /* of Gemms whose matrices have a line for each column */
    check(PAIR,
          "input x f16[5,16]\nconst v f16[32,16]\nconst w f16[24,32]\nconst b f16[24]\n"
          "h = com.microsoft.FusedGemm-1 (x, v) \"first\" activation=\"Relu\" transB=1\n"
          "y = Gemm-13 (h, w, b) \"second\" transB=1\n" ALL,
          "input x f16[5,16]\nconst v f16[32,16]\nconst w f16[24,32]\nconst b f16[24]\n"
          "y = millpond.MatMulPair-1 (x, v, , w, b) \"first+second\" activation=\"Relu\" "
          "turned=1\n" ALL,
          1);
}

#define IMAGE                                                                            \
    "input x f16[1,3,5,16]\nconst v f16[32,16,1,1]\nconst a f16[32]\nconst w f16[16,32," \
    "1,1]\nconst b f16[16]\n"

TEST(graph_pass_pair_products_of_pixels) {
    check(PAIR,
          IMAGE "h = millpond.nhwc.FusedConv-1 (x, v, a) \"first\" activation=\"Tanh\"\n"
                "y = millpond.nhwc.FusedConv-1 (h, w, b, x) \"second\"\n" ALL,
          IMAGE "y = millpond.MatMulPair-1 (x, v, a, w, b, x) \"first+second\" activation=\"Tanh\" "
                "turned=1\n" ALL,
          1);
    /* larger windows, and what is moved by two pixels */
    LEFT_ALONE(PAIR, "input x f16[1,3,5,16]\nconst v f16[32,16,1,1]\nconst w f16[16,32,3,1]\n"
                     "h = millpond.nhwc.FusedConv-1 (x, v) activation=\"Relu\"\n"
                     "y = com.ms.internal.nhwc.Conv-11 (h, w)\n" ALL);
    LEFT_ALONE(PAIR, IMAGE "h = millpond.nhwc.FusedConv-1 (x, v, a) activation=\"Relu\" "
                           "strides=[2,2]\ny = com.ms.internal.nhwc.Conv-11 (h, w, b)\n" ALL);
}

#define SCALED     "const s f16[24]\nm = Mul-14 (s, q) \"scale\"\n"
#define UNSCALED   "q = millpond.MatMulBias-1 (h, w, b) \"second\"\n"
#define ADDED(add) "input z f16[2,5,24]\n" ROWS FIRST UNSCALED SCALED "y = Add-14 " add "\n" ALL

TEST(graph_pass_pair_products_with_what_follows) {
    check(PAIR, ADDED("(m, z) \"add\""),
          "input z f16[2,5,24]\n" ROWS "const s f16[24]\ny = millpond.MatMulPair-1 (x, v, a, w, b, "
          "z, s) \"first+second+scale+add\" "
          "activation=\"Gelu\"\n" ALL,
          1);
    /* what others read, too, and a residual that is repeated */
    check(PAIR, ROWS FIRST UNSCALED "r = Relu-14 (q)\n" SCALED "output m\noutput r\n",
          ROWS
          "const s f16[24]\nq = millpond.MatMulPair-1 (x, v, a, w, b) \"first+second\" "
          "activation=\"Gelu\"\nr = Relu-14 (q)\nm = Mul-14 (s, q) \"scale\"\noutput m\noutput r\n",
          1);
    check(PAIR,
          "input z f16[1,5,24]\n" ROWS FIRST "q = millpond.MatMulBias-1 (h, w, b) \"second\"\n"
          "y = Add-14 (z, q)\n" ALL,
          "input z f16[1,5,24]\n" ROWS
          "q = millpond.MatMulPair-1 (x, v, a, w, b) \"first+second\" activation=\"Gelu\"\n"
          "y = Add-14 (z, q)\n" ALL,
          1);
}

TEST(graph_pass_pair_products_leaves_others) {
    /* without an activation, or with a second one; matrices that are no constants or large */
    LEFT_ALONE(PAIR, ROWS "h = millpond.MatMulBias-1 (x, v, a)\n" SECOND ALL);
    LEFT_ALONE(PAIR, ROWS FIRST "y = millpond.MatMulBias-1 (h, w, b) activation=\"Relu\"\n" ALL);
    LEFT_ALONE(PAIR, ROWS FIRST SECOND ALL "output h\n");
    LEFT_ALONE(PAIR, "input w f16[32,24]\ninput x f16[2,5,16]\nconst v f16[16,32]\n"
                     "h = millpond.MatMulBias-1 (x, v) activation=\"Relu\"\n"
                     "y = MatMul-13 (h, w)\n" ALL);
    LEFT_ALONE(PAIR, "input x f16[2,5,16]\nconst v f16[16,32]\nconst w f16[32,264]\n"
                     "h = millpond.MatMulBias-1 (x, v) activation=\"Relu\"\n"
                     "y = MatMul-13 (h, w)\n" ALL);
    /* floats that are not multiplied by TF32 */
    LEFT_ALONE(PAIR, "input x f32[2,5,16]\nconst v f32[16,32]\nconst w f32[32,24]\n"
                     "h = millpond.MatMulBias-1 (x, v) activation=\"Relu\"\n"
                     "y = MatMul-13 (h, w)\n" ALL);
    /* only where it is wanted */
    LEFT_ALONE(NULL, ROWS FIRST SECOND ALL);
}

DEVICE_TEST(graph_pass_pair_products_runs) {
    const mp_shape rows[] = {SHAPE(2, 5, 24), SHAPE(2, 5, 16)}, image[] = {SHAPE(1, 3, 5, 16)};
    const mp_shape picture[] = {SHAPE(1, 16, 3, 5)};
    const mp_shape some[] = {SHAPE(40, 9, 24), SHAPE(40, 9, 16)};
    pass_check_run_by(device, PAIR, ADDED("(m, z)"), rows, 0.05, 1);
    pass_check_run_by(device, PAIR,
                      "input z f16[?,9,24]\ninput x f16[?,9,16]\n" WEIGHTS FIRST UNSCALED SCALED
                      "y = Add-14 (m, z)\n" ALL,
                      some, 0.05, 1);
    pass_check_run_by(device, PAIR,
                      IMAGE "h = millpond.nhwc.FusedConv-1 (x, v, a) activation=\"HardSwish\"\n"
                            "y = millpond.nhwc.FusedConv-1 (h, w, b, x)\n" ALL,
                      image, 0.05, 1);
    /* of convolutions as a model has them, with numbers of an activation */
    pass_check_run_by(device, "+channels_last " PAIR,
                      "input x f16[1,16,3,5]\nconst v f16[32,16,1,1]\nconst a f16[32]\n"
                      "const w f16[16,32,1,1]\nconst b f16[16]\nh = Conv-11 (x, v, a)\n"
                      "l = HardSigmoid-6 (h) alpha=0.4f beta=0.3f\nq = Conv-11 (l, w, b)\n"
                      "y = Add-14 (q, x)\n" ALL,
                      picture, 0.05, 4);
}
