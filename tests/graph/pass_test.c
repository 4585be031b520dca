/* pass_test.c - each pass, from text to text.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass_kit.h"
#include "graph/program.h"
#include "op/core/kernel_cache.h"

#include <stdio.h>
#include <sys/resource.h>

/* With the nodes of the model that each node stands for. */
static void check_origins(const char *from, const char *to, int64_t rewrites) {
    check_by(mp_graph_write_origins, NULL, from, to, rewrites);
}

TEST(graph_text_comes_back_as_it_was) {
    const char *text = "input x f32[2,?,64]\n"
                       "input m any[...]\n"
                       "const w f32[64,64]\n"
                       "const s i64[3] = 2 -1 64\n"
                       "a = MatMul-13 (x, w) \"first product\"\n"
                       "b = Transpose-13 (a) perm=[0,2,1]\n"
                       "c = com.microsoft.QuickGelu-1 (b)\n"
                       "d, e = Dropout-13 (c, , m) seed=3\n"
                       "f = Elu-6 (d) alpha=0.5f\n"
                       "h = Reshape-14 (f, s)\n"
                       "g = millpond.MatMulBias-1 (h, w, w) \"one\" <- MatMul, Add \"two\", "
                       "com.microsoft.QuickGelu \"three\"\n"
                       "output g\n"
                       "output e\n";
    check_by(mp_graph_write_origins, "-dead", text, text, 0);
}

TEST(graph_text_of_branches_comes_back_as_it_was) {
    LEFT_ALONE("-dead", "input x f32[4]\n"
                        "input c bool[]\n"
                        "input d bool[]\n"
                        "when c\n"
                        "a = Relu-14 (x)\n"
                        "unless d\n"
                        "b = Neg-13 (a)\n"
                        "end\n"
                        "end\n"
                        "unless c\n"
                        "e = Exp-13 (x)\n"
                        "end\n"
                        "f = millpond.Choose-1 (c, a, e)\n"
                        "output f\n");
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
    CHECK_FAILS(mp_graph_read("when c\n", &graph), INVALID_ARGUMENT, "a condition");
    CHECK_FAILS(mp_graph_read("end\n", &graph), INVALID_ARGUMENT, "a branch before its end");
}

TEST(graph_nodes_absorb_others_once) {
    mp_graph *graph = NULL;
    char title[MP_TITLE_MAX];
    char *json = NULL;
    CHECK_OK(mp_graph_read("input x f32[4]\n"
                           "a = Relu-14 (x)\n"
                           "b = Relu-14 (a)\n"
                           "c = Exp-13 (b) \"two\"\n"
                           "d = com.microsoft.Gelu-1 (c) \"one\"\n"
                           "e = Neg-13 (d) \"five\"\n"
                           "output e\n",
                           &graph));
    mp_vertex_title(&graph->nodes[3], title, sizeof title);
    CHECK_EQ_INT(strcmp(title, "com.microsoft.Gelu 'one'"), 0);
    for (int32_t i = 1; i < 5; i++) {
        mp_graph_remove_node(graph, i);
        CHECK_OK(mp_graph_absorb(graph, 0, i));
        CHECK_OK(mp_graph_absorb(graph, 0, i)); /* is there already, also without a name */
    }
    CHECK_EQ_INT(graph->nodes[0].origins.count, 5);
    mp_vertex_title(&graph->nodes[0], title, sizeof title);
    CHECK_EQ_INT(strcmp(title, "Relu, Relu, Exp 'two' and 2 more"), 0);
    CHECK_EQ_INT(strcmp(graph->nodes[0].node.title, title), 0);
    CHECK_OK(mp_origins_json((mp_origins){graph->nodes[0].origins.list + 3, 2}, &json));
    CHECK_EQ_INT(strcmp(json, "[{\"op_type\":\"com.microsoft.Gelu\",\"name\":\"one\"},"
                              "{\"op_type\":\"Neg\",\"name\":\"five\"}]"),
                 0);
    free(json);
    mp_graph_destroy(graph);
}

/* A pattern becomes its last node, as passes make it: what made the values that it read is taken
 * out where nobody else reads it. */
TEST(graph_nodes_that_were_changed_stand_for_what_was_taken_out) {
    mp_graph *graph = NULL;
    char *text = NULL;
    CHECK_OK(mp_graph_read("input x f32[4]\n"
                           "a = Neg-13 (x) \"a\"\n"
                           "b = Exp-13 (a) \"b\"\n"
                           "c = Relu-14 (b) \"c\"\n"
                           "d = Abs-13 (b) \"d\"\n"
                           "e = Add-14 (c, d) \"e\"\n"
                           "f = Floor-13 (a) \"f\"\n"
                           "g = Sqrt-13 (e) \"g\"\n"
                           "output f\noutput g\n",
                           &graph));
    const mp_node node = {.op = mp_op_find("", "Erf", 13), .version = 13, .name = "e"};
    const int32_t a = mp_graph_find_value(graph, "a");
    const int32_t e = mp_graph_find_value(graph, "e");
    CHECK_OK(mp_graph_change_node(graph, 4, &node, &a, 1, &e, 1));
    for (int32_t n = 1; n <= 3; n++) {
        mp_graph_remove_node(graph, n);
    }
    CHECK_OK(mp_graph_absorb(graph, 5, 3)); /* said by a pass, so it is not looked for */
    CHECK_OK(mp_graph_settle(graph));
    mp_graph_compact(graph);
    CHECK_OK(mp_graph_write_origins(graph, &text));
    CHECK_STR_HAS(text, "a = Neg-13 (x) \"a\"\n"
                        "e = Erf-13 (a) \"e\" <- Exp \"b\", Relu \"c\", Add \"e\"\n"
                        "f = Floor-13 (a) \"f\" <- Abs \"d\", Floor \"f\"\n"
                        "g = Sqrt-13 (e) \"g\"\n");
    free(text);
    mp_graph_destroy(graph);
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

/* The same for reductions in them: then there are two clusters, and what is between. */
DEVICE_TEST(graph_pass_words_leave_row_clusters_out) {
    static const char *const words[] = {"-row_cluster", NULL};
    const mp_tensor in = {.type = MP_F32, .shape = {.rank = 2, .dim = {4, 8}}};
    for (int i = 0; i < 2; i++) {
        mp_graph *graph = NULL;
        mp_program *program = NULL;
        int64_t done = 0;
        CHECK_OK(mp_graph_read("input x f32[4,8]\nconst last i64[1] = -1\na = Relu-14 (x)\n"
                               "b = Exp-13 (a)\nc = ReduceSum-13 (b, last)\nd = Div-14 (b, c)\n"
                               "y = Neg-13 (d)\noutput y\n",
                               &graph));
        CHECK_OK(mp_passes_run(graph, words[i], &done));
        CHECK(graph->has_clusters);
        CHECK_EQ_INT(graph->has_row_clusters, i);
        CHECK_OK(mp_program_make(device, graph, &in, 16, NULL, &program));
        CHECK_EQ_INT(mp_program_step_count(program), i == 1 ? 1 : 3);
        mp_program_release(program);
        mp_graph_destroy(graph);
    }
    mp_kernel_cache_drop(device);
}

/* Clusters are made with programs: the word stays with the graph. */
DEVICE_TEST(graph_pass_words_leave_clusters_out) {
    static const char *const words[] = {"-cluster", "-same, -cluster", NULL, "-same"};
    const mp_tensor in = {.type = MP_F32, .shape = {.rank = 1, .dim = {8}}};
    for (int i = 0; i < 4; i++) {
        mp_graph *graph = NULL;
        mp_program *program = NULL;
        int64_t done = 0;
        CHECK_OK(mp_graph_read(
            "input x f32[8]\na = Relu-14 (x)\nb = Exp-13 (a)\ny = Neg-13 (b)\noutput y\n", &graph));
        CHECK(graph->has_clusters);
        CHECK_OK(mp_passes_run(graph, words[i], &done));
        CHECK_EQ_INT(graph->has_clusters, i >= 2);
        CHECK_OK(mp_program_make(device, graph, &in, 16, NULL, &program));
        CHECK_EQ_INT(mp_program_step_count(program), i >= 2 ? 1 : 3);
        mp_program_release(program);
        CHECK_FAILS(mp_passes_run(graph, "-clusters", &done), INVALID_ARGUMENT,
                    "-channels_last, -channel_packs, -cluster, or =N");
        CHECK_FAILS(mp_passes_run(graph, "fold", &done), INVALID_ARGUMENT, "such as -fold");
        mp_graph_destroy(graph);
    }
    mp_kernel_cache_drop(device);
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
          2);
    /* float16 does not hold all of float32; the second transposition is not the first's inverse */
    LEFT_ALONE("-join_turns", "input x f32[2,3,4]\n"
                              "a = Cast-13 (x) to=10\n"
                              "b = Cast-13 (a) to=1\n"
                              "c = Transpose-13 (b) perm=[2,0,1]\n"
                              "d = Transpose-13 (c) perm=[2,0,1]\n"
                              "y = Relu-14 (d)\n"
                              "output y\n");
}

#define CHOSEN "unless c\nn = Neg-13 (x)\nend\ny = millpond.Choose-1 (c, r, n)\noutput y\n"

/* What stands before a branch and what is in it are computed under different conditions. */
TEST(graph_passes_join_nothing_across_branches) {
    LEFT_ALONE(NULL, "input x f32[2,8]\ninput c bool[]\nconst w f32[8,8]\nconst b f32[8]\n"
                     "p = MatMul-13 (x, w)\nwhen c\nr = Add-14 (b, p)\nend\n" CHOSEN);
    LEFT_ALONE(NULL, "input x f32[1,4,8,8]\ninput c bool[]\nconst w f32[4,4,1,1]\n"
                     "p = Conv-11 (x, w)\nwhen c\nr = Relu-14 (p)\nend\n" CHOSEN);
    LEFT_ALONE(NULL, "input x f32[2,8]\ninput z f32[2,8]\ninput c bool[]\nconst s f32[8]\n"
                     "p = Add-14 (x, z)\nwhen c\nr = LayerNormalization-17 (p, s)\nend\n" CHOSEN);
    LEFT_ALONE(NULL, "input x f32[2,8]\ninput c bool[]\np = Sigmoid-13 (x)\nwhen c\n"
                     "r = Mul-14 (x, p)\nend\n" CHOSEN);
    /* within one they are */
    check(NULL,
          "input x f32[1,4,8,8]\ninput c bool[]\nconst w f32[4,4,1,1]\nwhen c\n"
          "p = Conv-11 (x, w) \"a\"\nr = Relu-14 (p) \"b\"\nend\n" CHOSEN,
          "input x f32[1,4,8,8]\ninput c bool[]\nconst w f32[4,4,1,1]\nwhen c\n"
          "r = millpond.FusedConv-1 (x, w) \"a+b\" activation=\"Relu\"\nend\n" CHOSEN,
          1);
    /* channels stay first */
    LEFT_ALONE("+channels_last",
               "input x f32[1,4,8,8]\ninput c bool[]\nconst w f32[4,4,1,1]\nwhen c\n"
               "r = Conv-11 (x, w)\nend\n" CHOSEN);
}

/* Each value is read three times by the next: ways through them are beyond counting. */
TEST(graph_questions_end_where_ways_part) {
    enum { LINKS = 40 };
    char text[LINKS * 40 + 64] = "input x0 f32[?,?]\n";
    mp_graph *graph = NULL;
    double number = 0;
    size_t used = strlen(text);
    for (int i = 1; i <= LINKS; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             "x%d = Concat-13 (x%d, x%d, x%d) axis=0\n", i, i - 1, i - 1, i - 1);
    }
    CHECK_OK(mp_graph_read(text, &graph));
    CHECK_EQ_INT(mp_graph_rank(graph, mp_graph_find_value(graph, "x3")), 2);
    CHECK_EQ_INT(mp_graph_rank(graph, mp_graph_find_value(graph, "x40")), MP_DIM_UNKNOWN);
    mp_graph_destroy(graph);
    for (char *at = strstr(text, "Concat-13"); at != NULL; at = strstr(at, "Concat-13")) {
        memcpy(at, "Where-16 ", 9);
        memset(strchr(at, ')') + 1, ' ', strlen(" axis=0"));
    }
    CHECK_OK(mp_graph_read(text, &graph));
    const int32_t last = mp_graph_find_value(graph, "x40");
    graph->values[last].tensor.shape.rank = 2;
    graph->values[last].tensor.shape.dim[0] = MP_DIM_UNKNOWN;
    CHECK_EQ_INT(mp_graph_dim(graph, last, 0), MP_DIM_UNKNOWN);
    CHECK(!mp_graph_number(graph, last, &number));
    CHECK(!mp_graph_is_planned(graph, last));
    mp_graph_destroy(graph);
}

TEST(graph_questions_about_numbers_end_where_ways_part) {
    enum { LINKS = 40 };
    char text[LINKS * 32 + 64] = "input x f32[3]\ns = Shape-15 (x)\nv0 = Cast-13 (s) to=1\n";
    mp_graph *graph = NULL;
    double number = 0;
    size_t used = strlen(text);
    for (int i = 1; i <= LINKS; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "v%d = Mul-14 (v%d, v%d)\n", i,
                                 i - 1, i - 1);
    }
    CHECK_OK(mp_graph_read(text, &graph));
    CHECK(mp_graph_is_planned(graph, mp_graph_find_value(graph, "v3")));
    CHECK(!mp_graph_is_planned(graph, mp_graph_find_value(graph, "v40")));
    CHECK(!mp_graph_number(graph, mp_graph_find_value(graph, "v40"), &number));
    mp_graph_destroy(graph);
}

TEST(graph_rank_of_a_product_by_a_row_is_not_guessed) {
    mp_graph *graph = NULL;
    CHECK_OK(mp_graph_read("input x f32[?,?,?]\ninput m f32[?,?]\ninput r f32[?]\n"
                           "a = MatMul-13 (x, m)\nb = MatMul-13 (x, r)\noutput a\noutput b\n",
                           &graph));
    CHECK_EQ_INT(mp_graph_rank(graph, mp_graph_find_value(graph, "a")), 3);
    CHECK_EQ_INT(mp_graph_rank(graph, mp_graph_find_value(graph, "b")), MP_DIM_UNKNOWN);
    mp_graph_destroy(graph);
}

/* The largest numbers that a model may hold, where passes add to them. */
TEST(graph_questions_about_sizes_take_any_number) {
    static const char text[] = "input x f32[?,?,?,?]\n"
                               "const high i64[1] = 9223372036854775807\n"
                               "const low i64[1] = -9223372036854775808\n"
                               "const far i64[] = 9223372036854775807\n"
                               "s = Shape-15 (x)\n"
                               "a = Slice-13 (s, high, low)\n"
                               "b = Gather-13 (s, far) axis=0\n"
                               "c = Gather-13 (s, low) axis=0\n"
                               "output a\noutput b\noutput c\n";
    static const char *const names[] = {"a", "b", "c"};
    mp_graph *graph = NULL;
    double number = 0;
    CHECK_OK(mp_graph_read(text, &graph));
    for (int i = 0; i < 3; i++) {
        const int32_t value = mp_graph_find_value(graph, names[i]);
        CHECK(!mp_graph_number(graph, value, &number));
        CHECK(!mp_graph_entry_is(graph, value, 1, 0, 1));
        CHECK(!mp_graph_entry_is(graph, value, 0, 0, 0));
    }
    mp_graph_destroy(graph);
}

/* Makers that go with their only reader, however many: without a frame of the stack for each. */
TEST(graph_drops_a_long_chain) {
    enum { LINKS = 12000 };
    const mp_tensor any = {.type = MP_NONE, .shape = {.rank = MP_DIM_UNKNOWN}};
    const mp_node node = {.op = mp_op_find("", "Relu", 14), .version = 14, .name = ""};
    struct rlimit before, small;
    mp_graph *graph = NULL;
    int32_t value = MP_NO_VALUE, next = MP_NO_VALUE;
    CHECK_OK(mp_graph_create(&graph));
    CHECK_OK(mp_graph_add_value(graph, "x", &any, &value));
    for (int i = 0; i < LINKS; i++) {
        CHECK_OK(mp_graph_add_value(graph, "", &any, &next));
        CHECK_OK(mp_graph_add_node(graph, &node, &value, 1, &next, 1));
        value = next;
    }
    CHECK(getrlimit(RLIMIT_STACK, &before) == 0);
    small = before;
    small.rlim_cur = (rlim_t)256 << 10;
    CHECK(setrlimit(RLIMIT_STACK, &small) == 0);
    mp_graph_drop_unread(graph, value);
    CHECK(setrlimit(RLIMIT_STACK, &before) == 0);
    mp_graph_compact(graph);
    CHECK_EQ_INT(graph->node_count, 0);
    mp_graph_destroy(graph);
}

/* A condition is read, though by no node. */
TEST(graph_counts_conditions_as_read) {
    mp_graph *graph = NULL;
    CHECK_OK(mp_graph_read("input x f32[4]\ninput b bool[]\nc = Not-1 (b)\nd = Not-1 (c)\nwhen c\n"
                           "y = Relu-14 (x)\nend\noutput y\noutput d\n",
                           &graph));
    const int32_t c = mp_graph_find_value(graph, "c");
    CHECK(mp_graph_is_condition(graph, c));
    CHECK_EQ_INT(mp_graph_uses(graph, c), 2);
    CHECK_EQ_INT(mp_graph_reader(graph, c, NULL), MP_NO_NODE);
    mp_graph_drop_unread(graph, c);
    CHECK(!graph->nodes[0].is_gone);
    mp_graph_destroy(graph);
}

/* What two branches compute is not the same, for only one of them does; what stands before both is.
 */
TEST(graph_pass_same_keeps_branches_apart) {
    static const char text[] = "input x f32[4]\n"
                               "input c bool[]\n"
                               "a = Relu-14 (x)\n"
                               "when c\n"
                               "b = Exp-13 (x)\n"
                               "d = Relu-14 (x)\n"
                               "e = Add-14 (b, d)\n"
                               "end\n"
                               "unless c\n"
                               "f = Exp-13 (x)\n"
                               "end\n"
                               "g = millpond.Choose-1 (c, e, f)\n"
                               "output g\n"
                               "output a\n";
    check("-dead", text,
          "input x f32[4]\n"
          "input c bool[]\n"
          "a = Relu-14 (x)\n"
          "when c\n"
          "b = Exp-13 (x)\n"
          "e = Add-14 (b, a)\n"
          "end\n"
          "unless c\n"
          "f = Exp-13 (x)\n"
          "end\n"
          "g = millpond.Choose-1 (c, e, f)\n"
          "output g\n"
          "output a\n",
          1);
}

TEST(graph_pass_same) {
    check_origins("input x f32[4,5]\n"
                  "a = Softmax-13 (x) \"one\" axis=1\n"
                  "b = Softmax-13 (x) \"two\" axis=1 \n"
                  "c = Softmax-13 (x) axis=0\n"
                  "d = Exp-13 (a)\n"
                  "e = Exp-13 (b)\n"
                  "f = Add-14 (d, e)\n"
                  "g = Add-14 (f, c)\n"
                  "output g\n",
                  "input x f32[4,5]\n"
                  "a = Softmax-13 (x) \"one\" <- Softmax \"one\", Softmax \"two\" axis=1\n"
                  "c = Softmax-13 (x) axis=0\n"
                  "d = Exp-13 (a) <- Exp, Exp\n"
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
    check_origins(
        "input x f32[2,?,8]\n"
        "const w f32[8,16]\n"
        "const b f32[16]\n"
        "p = MatMul-13 (x, w) \"product\"\n"
        "y = Add-14 (b, p) \"sum\"\n"
        "output y\n",
        "input x f32[2,?,8]\n"
        "const w f32[8,16]\n"
        "const b f32[16]\n"
        "y = millpond.MatMulBias-1 (x, w, b) \"product+sum\" <- MatMul \"product\", Add \"sum\"\n"
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

/* "=N" is of all the graphs of a session, and each says which pass changed it last. */
TEST(graph_passes_count_on_from_graph_to_graph) {
    const char *from =
        "input x f32[4]\na = Identity-16 (x)\nb = Exp-13 (a)\nc = Neg-13 (a)\noutput b\n";
    static const char *const last[] = {"dead", "identity", NULL};
    int64_t done = 0;
    for (int i = 0; i < 3; i++) {
        mp_graph *graph = NULL;
        CHECK_OK(mp_graph_read(from, &graph));
        CHECK_OK(mp_passes_run(graph, "=3", &done));
        CHECK_EQ_INT(done, i == 0 ? 2 : 3);
        CHECK(graph->last_pass == NULL ? last[i] == NULL
                                       : last[i] != NULL && strcmp(graph->last_pass, last[i]) == 0);
        mp_graph_destroy(graph);
    }
}
