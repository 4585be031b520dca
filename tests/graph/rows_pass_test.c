/* rows_pass_test.c - rows that are products, and heads of attention.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

TEST(graph_pass_unflatten) {
    check(NULL,
          "input x f32[2,5,8]\nconst w f32[8,6]\nconst b f32[6]\nconst rows i64[2] = 10 8\n"
          "const back i64[3] = 2 5 6\nf = Reshape-14 (x, rows)\np = Gemm-13 (f, w, b) \"fc\"\n"
          "r = Reshape-14 (p, back)\ny = Exp-13 (r)\noutput y\n",
          "input x f32[2,5,8]\nconst w f32[8,6]\nconst b f32[6]\n"
          "r = millpond.MatMulBias-1 (x, w, b) \"fc\"\ny = Exp-13 (r)\noutput y\n",
          1);
    /* seen as heads at once; of a batch that is not known */
    check(NULL,
          "input x f32[?,5,8]\nconst w f32[8,6]\nconst b f32[6]\nconst rows i64[2] = -1 8\n"
          "const back i64[4] = -1 5 2 3\nf = Reshape-14 (x, rows)\n"
          "p = Gemm-13 (f, w, b) \"fc\"\nr = Reshape-14 (p, back)\ny = Exp-13 (r)\noutput y\n",
          "input x f32[?,5,8]\nconst w f32[8,6]\nconst b f32[6]\nconst back i64[4] = -1 5 2 3\n"
          "p#9 = millpond.MatMulBias-1 (x, w, b) \"fc\"\nr = Reshape-14 (p#9, back)\n"
          "y = Exp-13 (r)\noutput y\n",
          1);
    /* without a bias */
    check(NULL,
          "input x f32[2,5,8]\nconst w f32[8,6]\nconst rows i64[2] = 10 8\n"
          "const back i64[3] = 2 5 6\nf = Reshape-14 (x, rows)\np = Gemm-13 (f, w) \"fc\"\n"
          "r = Reshape-14 (p, back)\ny = Exp-13 (r)\noutput y\n",
          "input x f32[2,5,8]\nconst w f32[8,6]\nr = MatMul-13 (x, w) \"fc\"\n"
          "y = Exp-13 (r)\noutput y\n",
          1);
    /* dimensions of the product are asked for; a factor; other rows; read twice; no constant bias
     */
    LEFT_ALONE(NULL, "input x f32[2,5,8]\nconst w f32[8,6]\nconst b f32[6]\n"
                     "const rows i64[2] = 10 8\nconst back i64[3] = 0 2 3\n"
                     "f = Reshape-14 (x, rows)\np = Gemm-13 (f, w, b)\n"
                     "r = Reshape-14 (p, back)\ny = Exp-13 (r)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,5,8]\nconst w f32[8,6]\nconst b f32[6]\n"
                     "const rows i64[2] = 10 8\nconst back i64[3] = 2 5 6\n"
                     "f = Reshape-14 (x, rows)\np = Gemm-13 (f, w, b) alpha=2f\n"
                     "r = Reshape-14 (p, back)\ny = Exp-13 (r)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,5,16]\nconst w f32[8,6]\nconst b f32[6]\n"
                     "const rows i64[2] = 20 8\nconst back i64[3] = 4 5 6\n"
                     "f = Reshape-14 (x, rows)\np = Gemm-13 (f, w, b)\n"
                     "r = Reshape-14 (p, back)\ny = Exp-13 (r)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,5,8]\nconst w f32[8,6]\nconst b f32[6]\n"
                     "const rows i64[2] = 10 8\nconst back i64[3] = 2 5 6\n"
                     "f = Reshape-14 (x, rows)\np = Gemm-13 (f, w, b)\n"
                     "r = Reshape-14 (p, back)\ny = Exp-13 (r)\noutput y\noutput p\n");
    LEFT_ALONE(NULL, "input x f32[2,5,8]\ninput b f32[6]\nconst w f32[8,6]\n"
                     "const rows i64[2] = 10 8\nconst back i64[3] = 2 5 6\n"
                     "f = Reshape-14 (x, rows)\np = Gemm-13 (f, w, b)\n"
                     "r = Reshape-14 (p, back)\ny = Exp-13 (r)\noutput y\n");
}

TEST(graph_pass_scale_heads) {
    check(NULL,
          "input x f32[?,?,8]\ninput k f32[?,2,4,?]\nconst c f32[] = 0.5\n"
          "const four i64[4] = 0 0 2 4\nm = Mul-14 (c, x) \"scale\"\n"
          "r = Reshape-14 (m, four) \"heads\"\nt = Transpose-13 (r) perm=[0,2,1,3]\n"
          "y = MatMul-13 (t, k)\noutput y\n",
          "input x f32[?,?,8]\ninput k f32[?,2,4,?]\nconst c f32[] = 0.5\n"
          "const four i64[4] = 0 0 2 4\nr#8 = Reshape-14 (x, four) \"heads\"\n"
          "r = Mul-14 (c, r#8) \"scale\"\nt = Transpose-13 (r) perm=[0,2,1,3]\n"
          "y = MatMul-13 (t, k)\noutput y\n",
          1);
    /* a row; a number divided by them; no product behind */
    LEFT_ALONE(NULL, "input x f32[?,?,8]\ninput k f32[?,2,4,?]\nconst c f32[8]\n"
                     "const four i64[4] = 0 0 2 4\nm = Mul-14 (x, c)\nr = Reshape-14 (m, four)\n"
                     "t = Transpose-13 (r) perm=[0,2,1,3]\ny = MatMul-13 (t, k)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,?,8]\ninput k f32[?,2,4,?]\nconst c f32[] = 0.5\n"
                     "const four i64[4] = 0 0 2 4\nm = Div-14 (c, x)\nr = Reshape-14 (m, four)\n"
                     "t = Transpose-13 (r) perm=[0,2,1,3]\ny = MatMul-13 (t, k)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[?,?,8]\nconst c f32[] = 0.5\nconst four i64[4] = 0 0 2 4\n"
                     "m = Mul-14 (x, c)\nr = Reshape-14 (m, four)\n"
                     "t = Transpose-13 (r) perm=[0,2,1,3]\ny = Exp-13 (t)\noutput y\n");
}

/* As Whisper has it: the scale before the heads, keys without a bias. */
#define WHISPER                                                                              \
    "input x f32[?,?,16]\nconst wq f32[16,16]\nconst wk f32[16,16]\nconst wv f32[16,16]\n"   \
    "const bq f32[16]\nconst bv f32[16]\nconst c f32[] = 0.5\nconst four i64[4] = 0 0 2 8\n" \
    "pq = MatMul-13 (x, wq)\nk = MatMul-13 (x, wk)\npv = MatMul-13 (x, wv)\n"                \
    "aq = Add-14 (pq, bq)\nv = Add-14 (pv, bv)\nq = Mul-14 (aq, c)\n"                        \
    "rq = Reshape-14 (q, four)\nrk = Reshape-14 (k, four)\nrv = Reshape-14 (v, four)\n"      \
    "tq = Transpose-13 (rq) perm=[0,2,1,3]\ntk = Transpose-13 (rk) perm=[0,2,3,1]\n"         \
    "tv = Transpose-13 (rv) perm=[0,2,1,3]\ns = MatMul-13 (tq, tk)\n"                        \
    "w = Softmax-13 (s) axis=-1\nr = MatMul-13 (w, tv)\n"                                    \
    "y = Transpose-13 (r) perm=[0,2,1,3]\noutput y\n"

TEST(graph_pass_join_products_of_which_one_has_no_bias) {
    mp_graph *graph = NULL;
    int64_t done = 0;
    CHECK_OK(mp_graph_read(WHISPER, &graph));
    for (int32_t i = 0; i < graph->value_count; i++) {
        void *bytes = NULL;
        if (graph->values[i].is_constant && graph->values[i].tensor.data == 0) {
            CHECK_OK(mp_graph_keep(graph, 1024, &bytes));
            graph->values[i].tensor.data = (mp_addr)bytes;
        }
    }
    CHECK_OK(mp_passes_run(graph, NULL, &done));
    CHECK_EQ_INT(graph->node_count, 2);
    CHECK_EQ_INT(strcmp(graph->nodes[0].node.op->name, "MatMulBias"), 0);
    mp_graph_destroy(graph);
}

DEVICE_TEST(rows_passes_keep_results) {
    static const char *const flat =
        "input x f32[?,5,8]\nconst w f32[8,6]\nconst b f32[6]\nconst rows i64[2] = -1 8\n"
        "const back i64[4] = -1 5 2 3\nf = Reshape-14 (x, rows)\np = Gemm-13 (f, w, b)\n"
        "r = Reshape-14 (p, back)\ny = Exp-13 (r)\noutput y\n";
    const mp_shape rows[] = {SHAPE(3, 5, 8)};
    const mp_shape none[] = {SHAPE(0, 5, 8)};
    const mp_shape heads[] = {SHAPE(2, 7, 16)};
    pass_check_run(device, flat, rows, 1e-4, 1);
    pass_check_run(device, flat, none, 1e-4, 1);
    pass_check_run(device, WHISPER, heads, 1e-4, 4);
}
