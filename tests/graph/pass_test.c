/* pass_test.c - each pass, from text to text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"
#include "graph/text.h"
#include "unit/test.h"

#include <stdlib.h>
#include <string.h>

static void check(const char *words, const char *from, const char *to, int64_t rewrites) {
    mp_graph *graph = NULL;
    char *text = NULL;
    int64_t done = -1;
    CHECK_OK(mp_graph_read(from, &graph));
    CHECK_OK(mp_passes_run(graph, words, &done));
    CHECK_OK(mp_graph_write(graph, &text));
    CHECK_STR_HAS(text, to);
    CHECK_STR_HAS(to, text);
    CHECK_EQ_INT(done, rewrites);
    free(text);
    mp_graph_destroy(graph);
}

#define LEFT_ALONE(words, text) check((words), (text), (text), 0)

TEST(graph_text_comes_back_as_it_was) {
    LEFT_ALONE("-dead", "input x f32[2,?,64]\n"
                        "input m any[...]\n"
                        "const w f32[64,64]\n"
                        "const s i64[3] = 2 -1 64\n"
                        "a = MatMul-13 (x, w) \"first product\"\n"
                        "b = Transpose-13 (a) perm=[0,2,1]\n"
                        "c = com.microsoft.Gelu-1 (b)\n"
                        "d, e = Dropout-13 (c, , m) seed=3\n"
                        "f = Elu-6 (d) alpha=0.5f\n"
                        "g = Reshape-14 (f, s)\n"
                        "output g\n"
                        "output e\n");
}

TEST(graph_text_that_is_wrong_names_its_line) {
    mp_graph *graph = NULL;
    CHECK_FAILS(mp_graph_read("input x f32[1]\ny = Relu-14 (z)\n", &graph), INVALID_ARGUMENT,
                "line 2");
    CHECK_FAILS(mp_graph_read("y = NoSuch-14 ()\n", &graph), INVALID_ARGUMENT, "line 1");
    CHECK_FAILS(mp_graph_read("input x f99[1]\n", &graph), INVALID_ARGUMENT, "a type");
    CHECK_FAILS(mp_graph_read("input x f32[1]\ninput x f32[1]\n", &graph), INVALID_ARGUMENT,
                "another name");
    CHECK_FAILS(mp_graph_read("output y\n", &graph), INVALID_ARGUMENT, "a value");
}

TEST(graph_pass_words_are_checked) {
    mp_graph *graph = NULL;
    int64_t done = 0;
    CHECK_OK(mp_graph_read("input x f32[1]\noutput x\n", &graph));
    CHECK_FAILS(mp_passes_run(graph, "-same,-nosuch", &done), INVALID_ARGUMENT, "-nosuch");
    CHECK_FAILS(mp_passes_run(graph, "=x", &done), INVALID_ARGUMENT, "number of rewrites");
    CHECK_OK(mp_passes_run(graph, " -same, =3 ", &done));
    mp_graph_destroy(graph);
}

TEST(graph_pass_dead) {
    check(NULL, "input x f32[4]\na = Relu-14 (x)\nb = Exp-13 (a)\nc = Neg-13 (a)\noutput a\n",
          "input x f32[4]\na = Relu-14 (x)\noutput a\n", 2);
}

TEST(graph_pass_identity) {
    check(NULL,
          "input x f32[4,5]\n"
          "a = Identity-16 (x)\n"
          "b = Cast-13 (x) to=1\n"
          "c = Transpose-13 (b) perm=[0,1]\n"
          "d, m = Dropout-7 (c)\n"
          "e = Add-14 (a, d)\n"
          "y = Identity-16 (e)\n"
          "output y\noutput m\n",
          "input x f32[4,5]\n"
          "d, m = Dropout-7 (x)\n"
          "e = Add-14 (x, d)\n"
          "y = Identity-16 (e)\n"
          "output y\noutput m\n",
          3);
    LEFT_ALONE(NULL, "input x f32[4,5]\na = Cast-13 (x) to=10\nb = Transpose-13 (a) perm=[1,0]\n"
                     "output b\n");
}

TEST(graph_pass_cancel) {
    check(NULL,
          "input x f16[2,3,4]\n"
          "a = Cast-13 (x) to=1\n"
          "b = Cast-13 (a) to=10\n"
          "c = Transpose-13 (b) perm=[2,0,1]\n"
          "d = Transpose-13 (c) perm=[1,2,0]\n"
          "y = Relu-14 (d)\n"
          "output y\noutput c\n",
          "input x f16[2,3,4]\n"
          "c = Transpose-13 (x) perm=[2,0,1]\n"
          "y = Relu-14 (x)\n"
          "output y\noutput c\n",
          3);
    /* float16 does not hold all of float32; the second transposition is not the first's inverse */
    LEFT_ALONE(NULL, "input x f32[2,3,4]\n"
                     "a = Cast-13 (x) to=10\n"
                     "b = Cast-13 (a) to=1\n"
                     "c = Transpose-13 (b) perm=[2,0,1]\n"
                     "d = Transpose-13 (c) perm=[2,0,1]\n"
                     "y = Relu-14 (d)\n"
                     "output y\n");
}

TEST(graph_pass_same) {
    check(NULL,
          "input x f32[4,5]\n"
          "a = Softmax-13 (x) axis=1\n"
          "b = Softmax-13 (x) axis=1 \n"
          "c = Softmax-13 (x) axis=0\n"
          "d = Exp-13 (a)\n"
          "e = Exp-13 (b)\n"
          "f = Add-14 (d, e)\n"
          "g = Add-14 (f, c)\n"
          "output g\n",
          "input x f32[4,5]\n"
          "a = Softmax-13 (x) axis=1\n"
          "c = Softmax-13 (x) axis=0\n"
          "d = Exp-13 (a)\n"
          "f = Add-14 (d, d)\n"
          "g = Add-14 (f, c)\n"
          "output g\n",
          2);
    LEFT_ALONE(NULL, "input x f32[4]\n"
                     "a = RandomUniformLike-1 (x)\n"
                     "b = RandomUniformLike-1 (x)\n"
                     "c = Add-14 (a, b)\n"
                     "output c\n");
}

TEST(graph_pass_bias) {
    check(NULL,
          "input x f32[2,?,8]\n"
          "const w f32[8,16]\n"
          "const b f32[16]\n"
          "p = MatMul-13 (x, w) \"product\"\n"
          "y = Add-14 (b, p) \"sum\"\n"
          "output y\n",
          "input x f32[2,?,8]\n"
          "const w f32[8,16]\n"
          "const b f32[16]\n"
          "y = millpond.MatMulBias-1 (x, w, b) \"product+sum\"\n"
          "output y\n",
          1);
    /* the product is read twice; it is an output; the row is too short, a column, no constant */
    LEFT_ALONE(NULL, "input x f32[2,8]\nconst w f32[8,16]\nconst b f32[16]\n"
                     "p = MatMul-13 (x, w)\na = Add-14 (p, b)\ny = Mul-14 (a, p)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,8]\nconst w f32[8,16]\nconst b f32[16]\n"
                     "p = MatMul-13 (x, w)\ny = Add-14 (p, b)\noutput y\noutput p\n");
    LEFT_ALONE(NULL, "input x f32[16,8]\nconst w f32[8,16]\nconst b f32[1]\n"
                     "p = MatMul-13 (x, w)\ny = Add-14 (p, b)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[16,8]\nconst w f32[8,16]\nconst b f32[16,1]\n"
                     "p = MatMul-13 (x, w)\ny = Add-14 (p, b)\noutput y\n");
    LEFT_ALONE(NULL, "input x f32[2,8]\ninput b f32[16]\nconst w f32[8,16]\n"
                     "p = MatMul-13 (x, w)\ny = Add-14 (p, b)\noutput y\n");
}

TEST(graph_passes_stop_after_a_number_of_rewrites) {
    const char *from =
        "input x f32[4]\na = Relu-14 (x)\nb = Exp-13 (x)\nc = Neg-13 (x)\noutput x\n";
    check("=1", from, "input x f32[4]\na = Relu-14 (x)\nb = Exp-13 (x)\noutput x\n", 1);
    check("=0", from, from, 0);
    check("-dead", from, from, 0);
}
