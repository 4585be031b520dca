/* sizes_pass_test.c - sizes that are known of shapes that are not, and what follows from them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass_kit.h"

#include <stdio.h>

/* Says what ONNX Runtime knows of a value, if a node makes one of this name. */
static void declare(mp_graph *graph, const char *name, mp_dtype type, mp_shape shape) {
    const int32_t value = mp_graph_find_value(graph, name);
    if (value != MP_NO_VALUE) {
        graph->values[value].tensor.type = type;
        graph->values[value].tensor.shape = shape;
    }
}

/* Rows seen as heads that are counted by -1, and a number that is asked of their shape: `made`, of
 * one element, by `nodes` from the shape `s`. */
#define HEADS                                                                                   \
    "input x f32[?,?,64]\nconst n0 i64[] = 0\nconst n1 i64[] = 1\nconst n2 i64[] = 2\n"         \
    "const n3 i64[] = 3\nconst l0 i64[1] = 0\nconst rest i64[1] = -1\nconst size i64[1] = 32\n" \
    "const order i64[4] = 0 2 1 3\nxs = Shape-15 (x)\nb = Gather-13 (xs, n0)\n"                 \
    "r = Gather-13 (xs, n1)\nbl = Unsqueeze-13 (b, l0)\nrl = Unsqueeze-13 (r, l0)\n"            \
    "list = Concat-13 (bl, rl, rest, size) axis=0\nh = Reshape-14 (x, list)\n"                  \
    "s = Shape-15 (h)\n"

/* The number that `nodes` are found to give; or MP_DIM_UNKNOWN. */
static int64_t known(const char *nodes, int rank) {
    char text[2048];
    mp_graph *graph = NULL;
    int64_t done = 0;
    (void)snprintf(text, sizeof text, HEADS "%soutput h\noutput use\n", nodes);
    CHECK_OK(mp_graph_read(text, &graph));
    declare(graph, "h", MP_F32, (mp_shape){.rank = 4, .dim = {-1, -1, -1, -1}});
    declare(graph, "made", MP_I64, (mp_shape){.rank = rank, .dim = {1}});
    declare(graph, "t", MP_I64, (mp_shape){.rank = 1, .dim = {4}});
    for (const char *one = "bcdr"; *one != '\0'; one++) {
        declare(graph, (const char[]){*one, '\0'}, MP_I64, (mp_shape){.rank = 0});
    }
    CHECK_OK(mp_passes_run(graph, "-fold,-refold,-same", &done));
    const int32_t value = mp_graph_find_value(graph, "made");
    const mp_tensor *constant = value != MP_NO_VALUE ? mp_graph_constant(graph, value) : NULL;
    const int64_t number =
        constant != NULL && constant->data != 0 ? *(const int64_t *)constant->data : MP_DIM_UNKNOWN;
    mp_graph_destroy(graph);
    return number;
}

TEST(graph_pass_known_sizes) {
    /* of heads, what -1 stands for, in another order, and numbers made of them */
    CHECK_EQ_INT(known("made = Gather-13 (s, n3)\nuse = Neg-13 (made)\n", 0), 32);
    CHECK_EQ_INT(known("made = Gather-13 (s, n2)\nuse = Neg-13 (made)\n", 0), 2);
    CHECK_EQ_INT(
        known("t = Gather-13 (s, order)\nmade = Gather-13 (t, n1)\nuse = Neg-13 (made)\n", 0), 2);
    CHECK_EQ_INT(known("c = Gather-13 (s, n3)\nd = Gather-13 (s, n2)\nmade = Div-14 (c, d)\n"
                       "use = Neg-13 (made)\n",
                       0),
                 16);
    CHECK_EQ_INT(known("c = Gather-13 (s, n3)\nmade = Mul-14 (c, n3)\nuse = Neg-13 (made)\n", 0),
                 96);
    CHECK_EQ_INT(
        known("c = Gather-13 (s, n3)\nmade = Unsqueeze-13 (c, l0)\nuse = Neg-13 (made)\n", 1), 32);
}

TEST(graph_pass_known_sizes_leaves_what_is_not_known) {
    CHECK_EQ_INT(known("made = Gather-13 (s, n1)\nuse = Neg-13 (made)\n", 0), MP_DIM_UNKNOWN);
    /* of which one side is known; what is no size */
    CHECK_EQ_INT(known("c = Gather-13 (s, n1)\nmade = Add-14 (n3, c)\nuse = Neg-13 (made)\n", 0),
                 MP_DIM_UNKNOWN);
    CHECK_EQ_INT(known("c = Gather-13 (s, n3)\nmade = Sub-14 (n3, c)\nuse = Neg-13 (made)\n", 0),
                 MP_DIM_UNKNOWN);
    CHECK_EQ_INT(known("c = Gather-13 (s, n2)\nmade = Div-14 (n1, c)\nuse = Neg-13 (made)\n", 0),
                 MP_DIM_UNKNOWN);
}

TEST(graph_pass_identity_of_something_and_nothing) {
    check("-dead",
          "input x f32[2,5]\ninput e f32[2,0]\na = Concat-13 (e, x) axis=-1\ny = Exp-13 (a)\n"
          "output y\n",
          "input x f32[2,5]\ninput e f32[2,0]\ny = Exp-13 (x)\noutput y\n", 1);
    LEFT_ALONE(NULL, "input x f32[2,5]\ninput e f32[2,?]\na = Concat-13 (e, x) axis=1\n"
                     "y = Exp-13 (a)\noutput y\n");
    LEFT_ALONE(NULL, "input d f32[2,0]\ninput e f32[2,0]\na = Concat-13 (d, e) axis=1\n"
                     "y = Exp-13 (a)\noutput y\n");
}

TEST(graph_pass_implied_expand) {
    mp_graph *graph = NULL;
    char *text = NULL;
    int64_t done = 0;
    CHECK_OK(mp_graph_read("input x f32[?,?,8]\ninput n f32[?,?,1]\ns = Shape-15 (x)\n"
                           "e = Expand-13 (n, s)\ny = Div-14 (x, e) \"d\"\noutput y\n",
                           &graph));
    declare(graph, "e", MP_F32, (mp_shape){.rank = 3, .dim = {-1, -1, -1}});
    CHECK_OK(mp_passes_run(graph, NULL, &done));
    CHECK_OK(mp_graph_write(graph, &text));
    CHECK_STR_HAS(text, "y = Div-14 (x, n) \"d\"\n");
    CHECK(strstr(text, "Expand") == NULL);
    free(text);
    mp_graph_destroy(graph);
    /* to more than the other has */
    LEFT_ALONE("-fold,-refold", "input x f32[1,8]\ninput n f32[4,1]\nconst s i64[2] = 4 8\n"
                                "e = Expand-13 (n, s)\ny = Div-14 (x, e)\noutput y\n");
}

TEST(graph_pass_einsum_product) {
    check("-matmul_epilogue",
          "input a f32[2,5,4,8]\ninput b f32[2,7,4,8]\n"
          "y = Einsum-12 (a, b) \"e\" equation=\"bihd, bjhd -> bhij\"\noutput y\n",
          "input a f32[2,5,4,8]\ninput b f32[2,7,4,8]\n"
          "a#3 = Transpose-13 (a) \"e\" perm=[0,2,1,3]\n"
          "b#4 = Transpose-13 (b) \"e\" perm=[0,2,3,1]\ny = MatMul-13 (a#3, b#4) \"e\"\noutput y\n",
          1);
    check("-matmul_epilogue",
          "input a f32[5,8]\ninput b f32[8,7]\ny = Einsum-12 (a, b) \"e\" "
          "equation=\"ik,kj->ji\"\noutput y\n",
          "input a f32[5,8]\ninput b f32[8,7]\ny#3 = MatMul-13 (a, b) \"e\"\n"
          "y = Transpose-13 (y#3) \"e\" perm=[1,0]\noutput y\n",
          1);
}

TEST(graph_pass_einsum_product_leaves_what_does_not_fit) {
    static const char *const equations[] = {
        "bik,bkj->bij", /* whose sum may be over one element for many */
        "bij,bkj->bi",  /* a sum along b's own dimension */
        "bij,bkl->bijkl",     "bii,bki->bk", "bij,bkj->bikj",
        "...ij,...kj->...ik", "bij,bkj",     "bij->bji",
    };
    for (size_t i = 0; i < sizeof equations / sizeof *equations; i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
                       "input a f32[2,3,?]\ninput b f32[2,?,3]\n"
                       "y = Einsum-12 (a, b) equation=\"%s\"\noutput y\n",
                       equations[i]);
        LEFT_ALONE("-known_sizes", text);
    }
}

/* Dimension `d` of what `node`, which makes y of four dimensions that nobody knows, is found to
 * give. */
static int64_t found(const char *node, int d) {
    char text[512];
    mp_graph *graph = NULL;
    int64_t done = 0;
    (void)snprintf(text, sizeof text,
                   "input x f32[?,3,10,12]\ninput z f32[?,1,3,10,12]\ninput w f32[4,3,3,2]\n%s\n"
                   "output y\n",
                   node);
    CHECK_OK(mp_graph_read(text, &graph));
    declare(graph, "y", MP_F32, (mp_shape){.rank = 4, .dim = {-1, -1, -1, -1}});
    CHECK_OK(mp_passes_run(graph, NULL, &done));
    const int64_t dim = graph->values[mp_graph_find_value(graph, "y")].tensor.shape.dim[d];
    mp_graph_destroy(graph);
    return dim > 0 ? dim : MP_DIM_UNKNOWN;
}

TEST(graph_pass_known_sizes_of_windows_and_what_is_left) {
    const char *conv = "y = Conv-11 (x, w) pads=[1,0,2,1] strides=[2,1] dilations=[1,3]";
    CHECK_EQ_INT(found(conv, 0), MP_DIM_UNKNOWN);
    CHECK_EQ_INT(found(conv, 1), 4);
    CHECK_EQ_INT(found(conv, 2), 6);
    CHECK_EQ_INT(found(conv, 3), 10);
    CHECK_EQ_INT(found("y = AveragePool-11 (x) kernel_shape=[3,3] strides=[2,2]", 1), 3);
    CHECK_EQ_INT(found("y = AveragePool-11 (x) kernel_shape=[3,3] strides=[2,2]", 3), 5);
    CHECK_EQ_INT(found("y = MaxPool-12 (x) kernel_shape=[11,3]", 2), MP_DIM_UNKNOWN);
    CHECK_EQ_INT(found("y = AveragePool-11 (x) kernel_shape=[3,3] ceil_mode=1", 2), MP_DIM_UNKNOWN);
    CHECK_EQ_INT(found("y = Conv-11 (x, w) auto_pad=\"SAME_UPPER\"", 2), MP_DIM_UNKNOWN);
    CHECK_EQ_INT(found("const a i64[1] = 1\ny = Squeeze-13 (z, a)", 1), 3);
    CHECK_EQ_INT(found("y = ReduceMax-13 (z) axes=[-4] keepdims=0", 3), 12);
    CHECK_EQ_INT(found("y, u = Split-13 (x) axis=2\noutput u", 2), 5);
    CHECK_EQ_INT(found("const a i64[2] = 2 1\nu, y = Split-13 (x, a) axis=1\noutput u", 1), 1);
    const char *sliced = "const s i64[2] = 1 -9\nconst e i64[2] = 9223372036854775807 -1\n"
                         "const a i64[2] = -1 2\nconst n i64[2] = 3 4\n"
                         "y = Slice-13 (x, s, e, a, n)";
    CHECK_EQ_INT(found(sliced, 0), MP_DIM_UNKNOWN);
    CHECK_EQ_INT(found(sliced, 1), 3);
    CHECK_EQ_INT(found(sliced, 2), 2);
    CHECK_EQ_INT(found(sliced, 3), 4);
    CHECK_EQ_INT(found("const s i64[2] = 0 1\nconst e i64[2] = 9 9\ny = Slice-13 (x, s, e)", 1), 2);
    CHECK_EQ_INT(found("const s i64[1] = 9\nconst e i64[1] = 0\nconst a i64[1] = 2\n"
                       "const n i64[1] = -1\ny = Slice-13 (x, s, e, a, n)",
                       2),
                 MP_DIM_UNKNOWN);
}
