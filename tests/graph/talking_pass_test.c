/* talking_pass_test.c - attention whose heads talk before and behind its softmax.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

#define PRODUCTS                                                                            \
    "input x f32[?,4,?,9]\nconst w f32[4,5]\nconst b f32[5]\nconst v f32[5,3]\n"            \
    "const c f32[3]\nt = Transpose-13 (x) perm=[0,2,3,1]\np = MatMul-13 (t, w) \"first\"\n" \
    "q = Add-14 (p, b)\n"
#define BEHIND "r = MatMul-13 (s, v)\nu = Add-14 (c, r)\ny = Transpose-13 (u) perm=[0,3,1,2]\n"
#define CONVS                                                                            \
    "input x f32[?,4,?,9]\nconst w f32[5,4,1,1]\nconst b f32[5]\nconst v f32[3,5,1,1]\n" \
    "p = Conv-11 (x, w, b)\n"

TEST(graph_pass_find_talking) {
    static const char made[] =
        "input x f32[?,4,?,9]\nconst w f32[4,5]\nconst b f32[5]\nconst v f32[5,3]\n"
        "const c f32[3]\ny = millpond.TalkingHeads-1 (x, w, b, v, c) \"talk\"\noutput y\n";
    check(NULL, PRODUCTS "s = Softmax-13 (q) \"talk\" axis=2\n" BEHIND "output y\n", made, 3);
    /* with a Transpose on each side of the softmax */
    check(NULL,
          PRODUCTS "f = Transpose-13 (q) perm=[0,3,1,2]\nz = Softmax-13 (f) \"talk\"\n"
                   "s = Transpose-13 (z) perm=[0,2,3,1]\n" BEHIND "output y\n",
          made, 3);
    check(NULL, CONVS "s = Softmax-13 (p) \"talk\" axis=3\ny = Conv-11 (s, v)\noutput y\n",
          "input x f32[?,4,?,9]\nconst w f32[5,4,1,1]\nconst b f32[5]\nconst v f32[3,5,1,1]\n"
          "y = millpond.TalkingHeads-1 (x, w, b, v, ) \"talk\" turned=1\noutput y\n",
          1);
}

TEST(graph_pass_find_talking_leaves_what_does_not_fit) {
    static const char *const words = "-conv_epilogue,-bias,-left_product";
    /* over other dimensions; keys that are not known; probabilities that are read once more */
    LEFT_ALONE(words, CONVS "s = Softmax-13 (p) axis=1\ny = Conv-11 (s, v)\noutput y\n");
    LEFT_ALONE(words, "input x f32[1,4,9,?]\nconst w f32[5,4,1,1]\nconst v f32[3,5,1,1]\n"
                      "p = Conv-11 (x, w)\ns = Softmax-13 (p)\ny = Conv-11 (s, v)\noutput y\n");
    LEFT_ALONE(words, CONVS "s = Softmax-13 (p)\ny = Conv-11 (s, v)\noutput y\noutput s\n");
    LEFT_ALONE(words, CONVS "s = Softmax-13 (p)\ny = Conv-11 (s, v)\noutput y\noutput p\n");
    /* a step of more than one; groups; one side only */
    LEFT_ALONE(words, CONVS "s = Softmax-13 (p)\ny = Conv-11 (s, v) strides=[1,2]\noutput y\n");
    LEFT_ALONE(words, "input x f32[1,4,9,9]\nconst w f32[4,2,1,1]\nconst v f32[3,4,1,1]\n"
                      "p = Conv-11 (x, w) group=2\ns = Softmax-13 (p)\ny = Conv-11 (s, v)\n"
                      "output y\n");
    LEFT_ALONE(words, "input x f32[?,4,?,9]\nconst w f32[5,4,1,1]\nconst b f32[5]\n"
                      "p = Conv-11 (x, w, b)\ny = Softmax-13 (p)\noutput y\n");
}

DEVICE_TEST(find_talking_keeps_results) {
    const mp_shape two[] = {SHAPE(2, 4, 3, 9)}, none[] = {SHAPE(2, 4, 0, 9)};
    static const char *const last = PRODUCTS "s = Softmax-13 (q) axis=-2\n" BEHIND "output y\n";
    static const char *const convs =
        CONVS "s = Softmax-13 (p) axis=3\ny = Conv-11 (s, v)\noutput y\n";
    pass_check_run(device, last, two, 1e-5, 3);
    pass_check_run(device, last, none, 1e-5, 3);
    pass_check_run(device, convs, two, 1e-5, 1);
}
