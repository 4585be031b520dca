/* store_test.c - graphs as bytes: kept and read again, and what is not as it was written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"
#include "graph/store.h"
#include "graph/store_private.h"
#include "graph/text.h"
#include "unit/test.h"

#include <stdlib.h>
#include <string.h>

enum { PORTS_MAX = 8, MUTATIONS = 2000 };

static const mp_op_options no_options = {.tf32 = false};

/* What a session would have: the graph's inputs, then its constants. */
typedef struct kept {
    mp_graph *graph;
    int32_t values[PORTS_MAX];
    mp_store_port ports[PORTS_MAX];
    size_t count;
    unsigned char *bytes;
    size_t size;
} kept;

static void keep(kept *k, const char *text) {
    *k = (kept){.count = 0};
    CHECK_OK(mp_graph_read(text, &k->graph));
    for (int32_t i = 0; i < k->graph->value_count; i++) {
        mp_value *v = &k->graph->values[i];
        if (v->producer != MP_NO_NODE) {
            v->tensor.type = MP_F32; /* text does not say it */
        } else {
            k->values[k->count] = i;
            k->ports[k->count++] = (mp_store_port){v->name, v->tensor, v->is_constant};
        }
    }
    CHECK_OK(mp_graph_store(k->graph, k->values, k->count, "1.2.3", &k->bytes, &k->size));
}

static void drop(const kept *k) {
    mp_graph_destroy(k->graph);
    free(k->bytes);
}

static mp_status load(const kept *k, mp_graph **out) {
    return mp_graph_load(k->bytes, k->size, "1.2.3", &no_options, k->ports, k->count, out);
}

/* The sum that is right for what is there. */
static void seal(const kept *k) {
    mp_store_head head;
    memcpy(&head, k->bytes, sizeof head);
    head.size = k->size - sizeof head;
    mp_sha256_of(k->bytes + sizeof head, (size_t)head.size, head.sum);
    memcpy(k->bytes, &head, sizeof head);
}

/* Every kind of attribute that text has, an input and an output that are left out, dimensions of
 * one name, small constants and large ones. */
static const char mixed[] = "input x f32[?,4,64]\n"
                            "input training bool[]\n"
                            "const w f32[64,64]\n"
                            "const axes i64[1] = 1\n"
                            "const ratio f32[] = 0.5\n"
                            "a = MatMul-13 (x, w) \"first\"\n"
                            "b, = Dropout-13 (a, , training) seed=3\n"
                            "c = ReduceSum-13 (b, axes) keepdims=1\n"
                            "d = Concat-13 (b, c, b) axis=1\n"
                            "e = Transpose-13 (d) perm=[0,2,1]\n"
                            "f = Pow-13 (e, ratio)\n"
                            "g = Gelu-20 (f) approximate=\"tanh\"\n"
                            "h = LeakyRelu-16 (g) alpha=0.25f\n"
                            "output h\n"
                            "output c\n";

TEST(store_and_load) {
    kept k;
    mp_graph *again = NULL;
    char *before = NULL;
    char *after = NULL;
    keep(&k, mixed);
    CHECK_OK(load(&k, &again));
    CHECK_OK(mp_graph_write_origins(k.graph, &before));
    CHECK_OK(mp_graph_write_origins(again, &after));
    CHECK_STR_HAS(before, after);
    CHECK_STR_HAS(after, before);
    CHECK(again->has_claimed_types);
    free(before);
    free(after);
    mp_graph_destroy(again);
    drop(&k);
}

TEST(store_of_another_version) {
    kept k;
    mp_graph *again = NULL;
    keep(&k, mixed);
    CHECK_FAILS(mp_graph_load(k.bytes, k.size, "1.2.4", &no_options, k.ports, k.count, &again),
                UNSUPPORTED, "made by Millpond 1.2.3");
    CHECK_FAILS(mp_graph_load(k.bytes, k.size, "1.2.3", &no_options, k.ports, k.count - 1, &again),
                INVALID_ARGUMENT, "a node with 5 inputs");
    k.ports[0].tensor.type = MP_F16;
    CHECK_FAILS(load(&k, &again), INVALID_ARGUMENT, "'x' is of another type");
    drop(&k);
}

/* What is kept is refused, with this sentence. */
static void check_kept_refused(kept *k, const char *sentence) {
    mp_graph *again = NULL;
    CHECK_FAILS(load(k, &again), INVALID_ARGUMENT, sentence);
    drop(k);
}

/* What a graph of nodes that ONNX Runtime would not take is refused with. */
static void check_refused(const char *text, const char *sentence) {
    kept k;
    keep(&k, text);
    check_kept_refused(&k, sentence);
}

TEST(store_checks_nodes) {
    check_refused("input x i64[2]\ny = Exp-13 (x)\noutput y\n", "input 0 has a type");
    check_refused("input x f32[2]\ny = Shape-15 (x)\noutput y\n", "output 0 has a type");
    check_refused("input x f32[2]\ninput z f64[2]\ny = Add-14 (x, z)\noutput y\n",
                  "input 1 has a type");
    check_refused("input x f32[2,2]\ny = MatMul-13 (x, )\noutput y\n", "input 1 is missing");
    check_refused("input x f32[2,2]\ny = MatMul-13 (x)\noutput y\n", "input 1 is missing");
    check_refused("input x f32[2]\ny = Relu-14 (x, x)\noutput y\n", "input 1 is one too many");
    check_refused("input x f32[2]\ny, z = Relu-14 (x)\noutput y\n", "output 1 is one too many");
    check_refused("input x f32[2]\ny = Concat-13 (x, x)\noutput y\n", "lacks the attribute 'axis'");
    check_refused("input x f32[2]\ny = Relu-8 (x)\noutput y\n", "has no version 8");
    check_refused("input x i64[2]\ny = Reshape-14 (x, x)\noutput y\n", "in two places");
}

/* ---- branches and loops ---- */

static const char branches[] = "input x f32[2]\n"
                               "input c bool[]\n"
                               "const big f32[600]\n"
                               "when c\n"
                               "a = Relu-14 (x)\n"
                               "d = Exp-13 (a)\n"
                               "end\n"
                               "unless c\n"
                               "b = ReduceSum-13 (big, ) keepdims=1\n"
                               "end\n"
                               "y = millpond.Choose-1 (c, d, b) \"choice\"\n"
                               "output y\n";

static void check_same(const kept *k, const mp_graph *again) {
    char *before = NULL;
    char *after = NULL;
    CHECK_OK(mp_graph_write(k->graph, &before));
    CHECK_OK(mp_graph_write(again, &after));
    CHECK_STR_HAS(before, after);
    CHECK_STR_HAS(after, before);
    free(before);
    free(after);
}

TEST(store_keeps_branches) {
    kept k;
    mp_graph *again = NULL;
    keep(&k, branches);
    CHECK_OK(load(&k, &again));
    check_same(&k, again);
    CHECK_EQ_INT(again->guard_count, 2);
    mp_graph_destroy(again);
    drop(&k);
    check_refused("input x f32[2]\ninput c bool[]\nwhen c\na = Relu-14 (x)\nend\ny = Exp-13 (a)\n"
                  "output y\n",
                  "another branch makes");
    check_refused("input x f32[2]\ninput c bool[]\nwhen c\na = Relu-14 (x)\nend\n"
                  "unless c\nb = Exp-13 (x)\nend\ny = millpond.Choose-1 (c, b, a)\noutput y\n",
                  "another branch makes");
    check_refused("input x f32[2]\ninput c f32[]\nwhen c\na = Relu-14 (x)\nend\noutput x\n",
                  "no such condition");
    check_refused("input x f32[2]\ninput c bool[]\nwhen c\na = Relu-14 (x)\nend\noutput a\n",
                  "an output is made by no node");
    check_refused("input x f32[2]\ninput z f64[2]\ninput c bool[]\n"
                  "y = millpond.Choose-1 (c, x, z)\noutput y\n",
                  "results of two branches differ");
    check_refused("input x f32[2]\ny = millpond.MatMulBias-1 (x, x, x)\noutput y\n", "no operator");
}

/* Branches within branches, so many, around one node. */
static mp_graph *nested(int depth) {
    mp_graph *graph = NULL;
    CHECK_OK(mp_graph_read("input x f32[2]\ninput c bool[]\n", &graph));
    const int32_t x = mp_graph_find_value(graph, "x");
    const int32_t c = mp_graph_find_value(graph, "c");
    const mp_tensor made = {.type = MP_F32, .shape = {.rank = 1, .dim = {2}}};
    const mp_node node = {.op = mp_op_find("", "Relu", 14), .version = 14, .name = "inmost"};
    int32_t y = MP_NO_VALUE;
    for (int i = 0; i < depth; i++) {
        CHECK_OK(mp_graph_open_guard(graph, c, true));
    }
    CHECK_OK(mp_graph_add_value(graph, "y", &made, &y));
    CHECK_OK(mp_graph_add_node(graph, &node, &x, 1, &y, 1));
    for (int i = 0; i < depth; i++) {
        mp_graph_close_guard(graph);
    }
    return graph;
}

TEST(store_limits_branches_within_branches) {
    unsigned char *bytes = NULL;
    size_t size = 0;
    mp_graph *graph = nested(MP_STORE_DEPTH);
    const int32_t values[] = {0, 1};
    CHECK_OK(mp_graph_store(graph, values, 2, "1.2.3", &bytes, &size));
    free(bytes);
    mp_graph_destroy(graph);
    graph = nested(MP_STORE_DEPTH + 1);
    CHECK_FAILS(mp_graph_store(graph, values, 2, "1.2.3", &bytes, &size), UNSUPPORTED, "32");
    mp_graph_destroy(graph);
}

/* A loop of 3 rounds that doubles, and gives what it had before; its body has a constant of its
 * own. */
static void keep_loop(kept *k, const char *body_text) {
    mp_graph *body = NULL;
    *k = (kept){.count = 0};
    CHECK_OK(mp_graph_read("input x f32[2]\nconst n i64[] = 3\nconst go bool[] = 1\n", &k->graph));
    CHECK_OK(mp_graph_read(body_text, &body));
    for (int32_t i = 0; i < body->value_count; i++) {
        if (body->values[i].producer != MP_NO_NODE) {
            body->values[i].tensor.type = MP_F32;
        }
    }
    const mp_loop loop = {.body = body, .carried = 1, .stacked = 1};
    const mp_tensor made = {.type = MP_F32, .shape = {.rank = MP_DIM_UNKNOWN}};
    const mp_node node = {.name = "loop"};
    int32_t in[3], out[2];
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"n", "go", "x"};
        in[i] = mp_graph_find_value(k->graph, names[i]);
        k->values[k->count] = in[i];
        const mp_value *v = &k->graph->values[in[i]];
        k->ports[k->count++] = (mp_store_port){v->name, v->tensor, v->is_constant};
    }
    CHECK_OK(mp_graph_add_value(k->graph, "last", &made, &out[0]));
    CHECK_OK(mp_graph_add_value(k->graph, "all", &made, &out[1]));
    CHECK_OK(mp_graph_add_loop(k->graph, &node, &loop, in, 3, out, 2));
    CHECK_OK(mp_graph_add_output(k->graph, out[1]));
    CHECK_OK(mp_graph_store(k->graph, k->values, k->count, "1.2.3", &k->bytes, &k->size));
}

static const char doubling[] = "input i i64[]\ninput go bool[]\ninput s f32[2]\n"
                               "const two f32[1] = 2\n"
                               "t = Mul-14 (s, two)\noutput go\noutput t\noutput s\n";

TEST(store_keeps_loops) {
    kept k;
    mp_graph *again = NULL;
    keep_loop(&k, doubling);
    CHECK_OK(load(&k, &again));
    check_same(&k, again);
    CHECK_EQ_INT(again->body_count, 1);
    const mp_graph *body = again->bodies[0];
    const mp_value *two = &body->values[mp_graph_find_value(body, "two")];
    CHECK(two->is_constant && body->has_claimed_types);
    CHECK(*(const float *)two->tensor.data == 2.0f);
    mp_graph_destroy(again);
    drop(&k);
}

static void check_body_refused(const char *body_text, const char *sentence) {
    kept k;
    keep_loop(&k, body_text);
    check_kept_refused(&k, sentence);
}

TEST(store_checks_loops) {
    check_body_refused("input i i64[]\ninput go bool[]\ninput s f32[2]\n"
                       "output go\noutput s\n",
                       "a loop and its body differ"); /* too few */
    check_body_refused("input i i64[]\ninput go bool[]\ninput s f64[2]\n"
                       "output go\noutput s\noutput s\n",
                       "a loop and its body differ");
    check_body_refused("input i i64[]\ninput go bool[]\ninput s f32[2]\n"
                       "output i\noutput s\noutput s\n",
                       "a loop and its body differ");
    check_body_refused("input i i32[]\ninput go bool[]\ninput s f32[2]\n"
                       "output go\noutput s\noutput s\n",
                       "a loop and its body differ");
    check_body_refused("input i i64[]\ninput go bool[]\ninput s f32[2]\n"
                       "t = Relu-14 (s, s)\noutput go\noutput s\noutput t\n",
                       "one too many");
}

/* ---- changed bytes ---- */

static void change(kept k) {
    int refused = 0;
    unsigned char *whole = malloc(k.size);
    CHECK(whole != NULL);
    memcpy(whole, k.bytes, k.size);
    const size_t size = k.size;
    uint32_t random = (uint32_t)test_seed() * UINT32_C(2654435761) + 1;
    for (int i = 0; i < MUTATIONS; i++) {
        mp_graph *again = NULL;
        random = random * UINT32_C(1664525) + UINT32_C(1013904223);
        const size_t at = sizeof(mp_store_head) + (random >> 8) % (size - sizeof(mp_store_head));
        random = random * UINT32_C(1664525) + UINT32_C(1013904223);
        k.size = (random >> 28) == 0 ? at : size; /* cut, now and then */
        if (k.size == size) {
            k.bytes[at] = (random >> 27 & 1) != 0 ? (unsigned char)(random >> 8)
                                                  : (unsigned char)(0xff + (random >> 20 & 3));
        }
        seal(&k);
        const mp_status status = load(&k, &again);
        CHECK(status == MP_OK || status == MP_INVALID_ARGUMENT || status == MP_UNSUPPORTED);
        refused += status != MP_OK;
        mp_graph_destroy(again);
        memcpy(k.bytes, whole, size);
    }
    CHECK(refused > MUTATIONS / 4);
    free(whole);
    drop(&k);
}

TEST(store_survives_changes) {
    kept k;
    keep(&k, mixed);
    change(k);
    keep(&k, branches);
    change(k);
    keep_loop(&k, doubling);
    change(k);
}
