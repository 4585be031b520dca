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

TEST(graph_pass_join_caches_leaves_what_does_not_fit) {
    LEFT_ALONE("-join_caches", ALL);
    LEFT_ALONE(NULL, SIDES("f32", "2", "2") CONCATS("1") READ);
    LEFT_ALONE(NULL, SIDES("f64", "3", "2") CONCATS("2") READ);
    /* new values that follow from all keys */
    LEFT_ALONE(NULL, SIDES("f32", "3",
                           "2") "k = Concat-13 (a, b) \"keys\" axis=2\n"
                                "e = Neg-13 (k)\nv = Concat-13 (c, e) \"values\" axis=2\n" READ);
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
