/* left_product_test.c - products over the rows of matrices that are transposed and back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define PORTS "input x f32[?,7,4]\nconst w f32[7,5]\nconst b f32[5]\n"
#define MORE  "const v f32[5,7]\nconst c f32[7]\n"
#define THERE "t = Transpose-13 (x) perm=[0,2,1]\n"
#define BACK  "y = Transpose-13 (e) perm=[0,2,1]\noutput y\n"

TEST(graph_pass_left_product) {
    /* a gate's product */
    check("-fold", PORTS THERE "p = MatMul-13 (t, w) \"fc\"\ne = Add-14 (p, b) \"bias\"\n" BACK,
          "input x f32[?,7,4]\nconst w f32[7,5]\nconst b f32[5]\nconst #7 i64[2] = 5 1\n"
          "e#9 = com.microsoft.FusedMatMul-1 (w, x) \"fc+bias\" transA=1\n"
          "b#8 = Reshape-13 (b, #7) \"b\"\ny = Add-14 (e#9, b#8) \"fc+bias\"\noutput y\n",
          2);
    /* without a bias; times a row and a column */
    check("-fold",
          "input x f32[2,7,4]\nconst w f32[7,5]\nconst r f32[5]\nconst s f32[1,4,1]\n" THERE
          "p = MatMul-13 (t, w) \"fc\"\nq = Mul-14 (r, p)\ne = Div-14 (q, s)\n" BACK,
          "input x f32[2,7,4]\nconst w f32[7,5]\nconst r f32[5]\nconst s f32[1,4,1]\n"
          "const #11 i64[2] = 5 1\nconst #13 i64[2] = 1 4\n"
          "p#9 = com.microsoft.FusedMatMul-1 (w, x) \"fc\" transA=1\n"
          "r#12 = Reshape-13 (r, #11) \"r\"\nq#10 = Mul-14 (r#12, p#9)\n"
          "s#14 = Reshape-13 (s, #13) \"s\"\ny = Div-14 (q#10, s#14)\noutput y\n",
          1);
}

TEST(graph_pass_left_product_leaves_what_does_not_fit) {
    /* no product; another order; a matrix that is no constant; a sum with what is no constant */
    LEFT_ALONE("-cancel,-fold", "input x f32[?,7,4]\n" THERE "e = Relu-14 (t)\n" BACK);
    LEFT_ALONE("-bias,-matmul_epilogue",
               PORTS "t = Transpose-13 (x) perm=[2,0,1]\np = MatMul-13 (t, w)\n"
                     "e = Add-14 (p, b)\n" BACK);
    LEFT_ALONE("-matmul_epilogue",
               "input x f32[2,7,4]\ninput w f32[7,5]\n" THERE "e = MatMul-13 (t, w)\n" BACK);
    LEFT_ALONE("-matmul_epilogue",
               "input x f32[2,7,4]\ninput z f32[2,4,5]\nconst w f32[7,5]\n" THERE
               "p = MatMul-13 (t, w)\nr = Exp-13 (p)\ne = Mul-14 (r, z)\n" BACK);
    /* a constant that varies along both dimensions; what is transposed is read once more */
    LEFT_ALONE("-matmul_epilogue", "input x f32[2,7,4]\nconst w f32[7,5]\nconst z f32[4,5]\n" THERE
                                   "p = MatMul-13 (t, w)\ne = Mul-14 (p, z)\n" BACK);
    LEFT_ALONE("-matmul_epilogue", "input x f32[2,7,4]\nconst w f32[7,5]\n" THERE
                                   "e = MatMul-13 (t, w)\n" BACK "output t\n");
    LEFT_ALONE("-matmul_epilogue", "input x f32[2,7,4]\nconst w f32[7,5]\n" THERE
                                   "e = MatMul-13 (t, w)\nz = Exp-13 (e)\n" BACK "output z\n");
    /* two biases, of which one has its activation on the way to memory, cost two launches */
    LEFT_ALONE("-bias,-gemm_epilogue,-matmul_epilogue",
               PORTS MORE THERE "p = millpond.MatMulBias-1 (t, w, b)\nr = Relu-14 (p)\n"
                                "e = millpond.MatMulBias-1 (r, v, c)\n" BACK);
}

DEVICE_TEST(left_product_keeps_results) {
    static const char *const mixes =
        PORTS MORE THERE "p = MatMul-13 (t, w)\ns = Add-14 (p, b)\ng = Gelu-20 (s)\n"
                         "q = MatMul-13 (g, v)\ne = Add-14 (c, q)\n" BACK;
    static const char *const halves =
        "input x f16[?,?,?]\nconst w f16[7,5]\nconst b f16[5]\nconst s f16[4,1]\n" THERE
        "p = MatMul-13 (t, w)\nq = Add-14 (p, b)\ne = Mul-14 (q, s)\n" BACK;
    static const char *const numbers =
        "input x f64[?,7,4]\nconst w f64[7,1]\nconst b f64[1]\nconst two f64[] = 2\n" THERE
        "p = MatMul-13 (t, w)\nq = Add-14 (p, b)\ne = Sub-14 (two, q)\n" BACK;
    const mp_shape one[] = {SHAPE(1, 7, 4)}, three[] = {SHAPE(3, 7, 4)}, none[] = {SHAPE(0, 7, 4)};
    pass_check_run(device, mixes, one, 1e-4, 3);
    pass_check_run(device, mixes, three, 1e-4, 3);
    pass_check_run(device, mixes, none, 1e-4, 3);
    pass_check_run(device, halves, three, 4e-3, 2);
    pass_check_run(device, numbers, three, 1e-5, 2);
}
