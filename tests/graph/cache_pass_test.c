/* cache_pass_test.c - caches of keys and values that grow in one launch.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass_kit.h"
#include "graph/pass_run.h"

/* Keys, values and a query; of the past keys and values, and of new ones. */
#define SIDES(type, past, new)                                                                 \
    "input q " type "[2,2," new ",20]\ninput a " type "[2,2," past ",20]\n"                    \
                                "input b " type "[2,2," new ",20]\ninput c " type "[2,2," past \
                                                            ",20]\n"                           \
                                                            "input d " type "[2,2," new ",20]\n"
#define CONCATS(axis) \
    "k = Concat-13 (a, b) \"keys\" axis=" axis "\nv = Concat-13 (c, d) \"values\" axis=" axis "\n"
#define READ "y = millpond.Attention-1 (q, k, v)\noutput y\noutput k\noutput v\n"
#define ALL  SIDES("f32", "3", "2") CONCATS("2") READ

TEST(graph_pass_join_caches) {
    check(NULL, ALL,
          SIDES("f32", "3", "2") "k, v = millpond.GrowCaches-1 (a, b, c, d) \"keys+values\"\n" READ,
          1);
    check(NULL, SIDES("f16", "?", "?") CONCATS("-2") READ,
          SIDES("f16", "?", "?") "k, v = millpond.GrowCaches-1 (a, b, c, d) \"keys+values\"\n" READ,
          1);
}

/* New keys and values within rows of one product, which the query is, too. */
#define IN_ROWS(type, past, new)                                                                   \
    "input q " type "[2,2," new ",20]\ninput j " type "[2," new ",120]\ninput a " type             \
                                                                "[2,2," past ",20]\ninput c " type \
                                                                "[2,2," past ",20]\n"
#define PARTS                                                \
    "b = millpond.HeadsPart-1 (j) \"b\" part=[40,2,20,20]\n" \
    "d = millpond.HeadsPart-1 (j) \"d\" part=[80,2,20,20]\n"

TEST(graph_pass_join_caches_reads_rows) {
    check(NULL, IN_ROWS("f32", "3", "2") PARTS CONCATS("2") READ,
          IN_ROWS("f32", "3", "2") "k, v = millpond.GrowCaches-1 (a, j, c, j) \"keys+values\" "
                                   "key_part=[40,2,20,20] value_part=[80,2,20,20]\n" READ,
          1);
    /* values that somebody else reads */
    check(NULL, IN_ROWS("f32", "3", "2") PARTS CONCATS("2") READ "output d\n",
          IN_ROWS("f32", "3", "2") "d = millpond.HeadsPart-1 (j) \"d\" part=[80,2,20,20]\n"
                                   "k, v = millpond.GrowCaches-1 (a, j, c, d) \"keys+values\" "
                                   "key_part=[40,2,20,20]\n" READ "output d\n",
          1);
}

DEVICE_TEST(caches_of_rows_change_no_result) {
    static const char open[] = IN_ROWS("f32", "?", "?") PARTS CONCATS("2") READ;
    static const char half[] = IN_ROWS("f16", "?", "?") PARTS CONCATS("2") READ;
    static const int64_t rows[][2] = {{3, 2}, {0, 5}, {7, 1}, {4, 0}, {0, 0}};
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        const mp_shape q = SHAPE(2, 2, rows[i][1], 20), j = SHAPE(2, rows[i][1], 120),
                       past = SHAPE(2, 2, rows[i][0], 20);
        pass_check_run(device, open, (mp_shape[]){q, j, past, past}, 0, 1);
        pass_check_run(device, half, (mp_shape[]){q, j, past, past}, 0, 1);
    }
}

TEST(graph_pass_join_caches_leaves_what_does_not_fit) {
    LEFT_ALONE("-join_caches", ALL);
    LEFT_ALONE(NULL, SIDES("f32", "2", "2") CONCATS("1") READ);
    LEFT_ALONE(NULL, SIDES("f64", "3", "2") CONCATS("2") READ);
    /* new values that follow from all keys */
    LEFT_ALONE(NULL, SIDES("f32", "3",
                           "2") "k = Concat-13 (a, b) \"keys\" axis=2\n"
                                "e = Neg-13 (k)\nv = Concat-13 (c, e) \"values\" axis=2\n" READ);
}

/* Queries and keys that are rotated alike; new keys go to a cache. */
#define PORT(name, type, heads, rows) "input " name " " type "[2," heads "," rows ",16]\n"
#define TOKENS(type, heads, past, new) \
    PORT("q", type, heads, new)        \
    PORT("b", type, heads, new)        \
    PORT("r", type, "1", new)          \
    PORT("a", type, heads, past)       \
    PORT("c", type, heads, past) PORT("d", type, heads, new) "s = Cos-7 (r)\nt = Sin-7 (r)\n"
#define QUERIES "p = millpond.RotaryHalves-1 (q, s, t) \"query\"\n"
#define KEYS    "e = millpond.RotaryHalves-1 (b, s, t) \"key\"\n"
#define GROWN   "k, v = millpond.GrowCaches-1 (a, e, c, d) \"caches\"\n"
#define ATTEND  "y = millpond.Attention-1 (p, k, v)\noutput y\noutput k\noutput v\n"
#define ROWS    "input j f32[2,?,96]\n"
#define LIE     "part=[0,4,16,16]\n"
#define ROTATED "p, k, v = millpond.RotaryCaches-1 (q, b, s, t, a, c, d) \"query+caches\""

TEST(graph_pass_join_rotary) {
    check(NULL, TOKENS("f32", "2", "?", "?") QUERIES KEYS GROWN ATTEND,
          TOKENS("f32", "2", "?", "?") ROTATED "\n" ATTEND, 1);
    check(NULL, TOKENS("f16", "2", "?", "?") KEYS GROWN QUERIES ATTEND,
          TOKENS("f16", "2", "?", "?") ROTATED "\n" ATTEND, 1);
    /* heads that lie otherwise */
    check(NULL,
          ROWS TOKENS(
              "f32", "2", "?",
              "?") "p = millpond.RotaryHalves-1 (j, s, t) \"query\" " LIE
                   "e = millpond.RotaryHalves-1 (j, s, t) \"key\" part=[64,2,16,16]\n" GROWN ATTEND,
          ROWS TOKENS("f32", "2", "?", "?") "p, k, v = millpond.RotaryCaches-1 "
                                            "(j, j, s, t, a, c, d) \"query+caches\" "
                                            "part=[0,4,16,16] key_part=[64,2,16,16]\n" ATTEND,
          1);
}

/* Keys that attention reads as they are, whoever else does. */
#define G(type)        "input g " type "[16]\n"
#define PAIR           "p, e = millpond.RotaryPair-1 (q, b, s, t) \"query+key\""
#define NORMED_KEYS    "e = millpond.RotaryHalves-1 (b, s, t, g) \"key\" epsilon=0.5f\n"
#define NORMED_QUERIES "p = millpond.RotaryHalves-1 (q, s, t, g) \"query\" epsilon=0.5f\n"
#define NORMED_PAIR \
    "p, e = millpond.RotaryPair-1 (q, b, s, t, , g) \"query+key\" key_epsilon=0.5f\n"
#define NORMED_ALL \
    "p, k, v = millpond.RotaryCaches-1 (q, b, s, t, a, c, d, g, ) \"query+caches\" epsilon=0.5f\n"
#define NO_CACHE "y = millpond.Attention-1 (p, e, d)\noutput y\noutput e\n"

TEST(graph_pass_join_rotary_of_a_pair) {
    check(NULL, TOKENS("f32", "2", "?", "?") QUERIES KEYS NO_CACHE,
          TOKENS("f32", "2", "?", "?") PAIR "\n" NO_CACHE, 1);
    /* one of them normalised */
    check(NULL, G("bf16") TOKENS("bf16", "2", "?", "?") NORMED_KEYS QUERIES NO_CACHE,
          G("bf16") TOKENS("bf16", "2", "?", "?") NORMED_PAIR NO_CACHE, 1);
    check(NULL, G("f32") TOKENS("f32", "2", "?", "?") NORMED_QUERIES KEYS GROWN ATTEND,
          G("f32") TOKENS("f32", "2", "?", "?") NORMED_ALL ATTEND, 1);
    /* other angles; queries that follow from keys */
    LEFT_ALONE(NULL, TOKENS("f32", "2", "?", "?") QUERIES
               "e = millpond.RotaryHalves-1 (b, t, s) \"key\"\n" NO_CACHE);
    LEFT_ALONE(NULL, TOKENS("f32", "2", "?", "?") KEYS
               "f = Neg-13 (e)\np = millpond.RotaryHalves-1 (f, s, t) \"query\"\n" NO_CACHE);
    LEFT_ALONE(NULL, TOKENS("f32", "2", "?", "?") QUERIES
               "y = millpond.Attention-1 (p, p, d)\noutput y\n");
}

TEST(graph_pass_join_rotary_leaves_what_does_not_fit) {
    LEFT_ALONE("-join_rotary", TOKENS("f32", "2", "?", "?") QUERIES KEYS GROWN ATTEND);
    /* other angles; keys that somebody else reads; queries that follow from all keys */
    LEFT_ALONE(NULL, TOKENS("f32", "2", "?", "?") QUERIES
               "e = millpond.RotaryHalves-1 (b, t, s) \"key\"\n" GROWN ATTEND);
    LEFT_ALONE(NULL, TOKENS("f32", "2", "?", "?") QUERIES KEYS GROWN ATTEND "output e\n");
    LEFT_ALONE(NULL, TOKENS("f32", "2", "?", "?") KEYS GROWN
               "f = Neg-13 (k)\np = millpond.RotaryHalves-1 (f, s, t) \"query\"\n" ATTEND);
}

#define VALUES "d = millpond.HeadsPart-1 (j) \"d\" part=[96,2,16,16]\n"
#define SHARED "y = millpond.Attention-1 (p, k, v) grouped=1\noutput y\noutput k\noutput v\n"
#define GROWS  "k = Concat-13 (a, e) \"k\" axis=2\nv = Concat-13 (c, d) \"v\" axis=2\n"
#define IN_ONE(type)                                                               \
    "input j " type "[2,?,128]\ninput r " type "[2,1,?,8]\ninput a " type          \
    "[2,2,?,16]\ninput c " type                                                    \
    "[2,2,?,16]\ns0 = Cos-7 (r)\nt0 = Sin-7 (r)\ns = Concat-13 (s0, s0) axis=-1\n" \
    "t = Concat-13 (t0, t0) axis=-1\n"                                             \
    "p = millpond.RotaryHalves-1 (j, s, t) \"q\" part=[0,4,16,16]\n"               \
    "e = millpond.RotaryHalves-1 (j, s, t) \"e\" part=[64,2,16,16]\n"

TEST(graph_pass_join_rotary_reads_values_in_rows) {
    char *text = NULL;
    mp_graph *graph = NULL;
    int64_t done = 0;
    CHECK_OK(mp_graph_read(IN_ONE("f32") VALUES GROWS SHARED, &graph));
    CHECK_OK(mp_passes_run(graph, NULL, &done));
    CHECK_OK(mp_graph_write(graph, &text));
    CHECK_STR_HAS(text, "p, k, v = millpond.RotaryCaches-1 (j, j, s, t, a, c, j) \"q+k+v\" "
                        "part=[0,4,16,16] key_part=[64,2,16,16] value_part=[96,2,16,16]\n");
    free(text);
    mp_graph_destroy(graph);
}

DEVICE_TEST(rotary_caches_of_rows_change_no_result) {
    static const char f32[] = IN_ONE("f32") VALUES GROWS SHARED;
    static const char bf16[] = IN_ONE("bf16") VALUES GROWS SHARED;
    static const int64_t rows[][2] = {{3, 2}, {0, 5}, {7, 1}, {64, 1}, {4, 0}};
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        const mp_shape j = SHAPE(2, rows[i][1], 128), r = SHAPE(2, 1, rows[i][1], 8),
                       past = SHAPE(2, 2, rows[i][0], 16);
        pass_check_run(device, f32, (mp_shape[]){j, r, past, past}, 1e-5, 2);
        pass_check_run(device, bf16, (mp_shape[]){j, r, past, past}, 0.04, 2);
    }
}

/* Sizes that one launch takes, and others; nothing yet, nothing new. */
DEVICE_TEST(rotary_cache_passes_change_no_result) {
    static const char f32[] = TOKENS("f32", "2", "?", "?") QUERIES KEYS GROWN ATTEND;
    static const char one[] = TOKENS("f32", "1", "?", "?") KEYS GROWN QUERIES ATTEND;
    static const char none[] = TOKENS("f32", "0", "?", "?") QUERIES KEYS GROWN ATTEND;
    static const char bf16[] = TOKENS("bf16", "2", "?", "?") QUERIES KEYS GROWN ATTEND;
    static const int64_t rows[][2] = {{3, 2}, {0, 5}, {7, 1}, {64, 1}, {4, 0}};
    const struct {
        const char *text;
        int64_t heads;
        double far;
    } kinds[] = {{f32, 2, 1e-5}, {one, 1, 1e-5}, {bf16, 2, 0.04}, {none, 0, 0}};
    for (size_t i = 0; i < MP_COUNT_OF(rows) * MP_COUNT_OF(kinds); i++) {
        const int64_t past = rows[i % MP_COUNT_OF(rows)][0], fresh = rows[i % MP_COUNT_OF(rows)][1];
        const int64_t heads = kinds[i / MP_COUNT_OF(rows)].heads;
        const mp_shape in[] = {SHAPE(2, heads, fresh, 16), SHAPE(2, heads, fresh, 16),
                               SHAPE(2, 1, fresh, 16),     SHAPE(2, heads, past, 16),
                               SHAPE(2, heads, past, 16),  SHAPE(2, heads, fresh, 16)};
        pass_check_run(device, kinds[i / MP_COUNT_OF(rows)].text, in,
                       kinds[i / MP_COUNT_OF(rows)].far, 1);
    }
}

DEVICE_TEST(cache_passes_change_no_result) {
    enum { HEADS = 2, SIZE = 20 };
    static const char open[] = SIDES("f32", "?", "?") CONCATS("2") READ;
    static const int64_t rows[][2] = {{3, 2}, {0, 5}, {7, 1}, {4, 0}};
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        const mp_shape q = SHAPE(2, HEADS, rows[i][1], SIZE),
                       past = SHAPE(2, HEADS, rows[i][0], SIZE),
                       fresh = SHAPE(2, HEADS, rows[i][1], SIZE);
        pass_check_run(device, open, (mp_shape[]){q, past, fresh, past, fresh}, 0, 1);
    }
}
