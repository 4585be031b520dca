/* least_cut_test.c - least cuts against a search through all sets of points.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/least_cut.h"
#include "unit/random.h"
#include "unit/test.h"

enum { POINTS = 9 };

typedef struct ways {
    bool leads[POINTS][POINTS]; /* from a lower point to a higher one */
    bool is_source[POINTS], is_sink[POINTS];
    int64_t weight[POINTS];
} ways;

static mp_status build(const ways *w, mp_least_cut *cut) {
    MP_TRY(mp_least_cut_open(cut, POINTS));
    for (int32_t p = 0; p < POINTS; p++) {
        MP_TRY(mp_least_cut_weigh(cut, p, w->weight[p]));
        MP_TRY(w->is_source[p] ? mp_least_cut_source(cut, p) : MP_OK);
        MP_TRY(w->is_sink[p] ? mp_least_cut_sink(cut, p) : MP_OK);
        for (int32_t q = p + 1; q < POINTS; q++) {
            MP_TRY(w->leads[p][q] ? mp_least_cut_lead(cut, p, q) : MP_OK);
        }
    }
    return MP_OK;
}

/* Whether a way leads from a source to a sink beside the points of `set`. */
static bool is_open(const ways *w, unsigned set) {
    bool reached[POINTS] = {false};
    bool open = false;
    for (int p = 0; p < POINTS; p++) {
        reached[p] = w->is_source[p];
        for (int q = 0; q < p; q++) {
            reached[p] = reached[p] || (reached[q] && w->leads[q][p]);
        }
        reached[p] = reached[p] && (set >> p & 1) == 0;
        open = open || (reached[p] && w->is_sink[p]);
    }
    return open;
}

static int64_t weight_of(const ways *w, unsigned set) {
    int64_t sum = 0;
    for (int p = 0; p < POINTS; p++) {
        sum += (set >> p & 1) != 0 ? w->weight[p] : 0;
    }
    return sum;
}

TEST(least_cut_is_the_least) {
    uint64_t state = 7;
    for (int round = 0; round < 400; round++) {
        ways w;
        mp_least_cut cut;
        bool is_cut[POINTS];
        unsigned found = 0;
        for (int p = 0; p < POINTS; p++) {
            w.weight[p] = (int64_t)(test_random(&state) % 9);
            w.is_source[p] = p < 3 && test_random(&state) % 3 != 0;
            w.is_sink[p] = p > 3 && test_random(&state) % 3 == 0;
            for (int q = p + 1; q < POINTS; q++) {
                w.leads[p][q] = test_random(&state) % 3 == 0;
            }
        }
        CHECK_OK(build(&w, &cut));
        mp_least_cut_find(&cut, is_cut);
        mp_least_cut_close(&cut);
        for (int p = 0; p < POINTS; p++) {
            found |= is_cut[p] ? 1u << p : 0;
        }
        CHECK(!is_open(&w, found));
        for (unsigned set = 0; set < 1u << POINTS; set++) {
            CHECK(is_open(&w, set) || weight_of(&w, set) >= weight_of(&w, found));
        }
    }
}

/* Of a chain of equal points the first. */
TEST(least_cut_is_next_to_the_sources) {
    ways w = {.is_source = {true}, .is_sink = {[POINTS - 1] = true}};
    mp_least_cut cut;
    bool is_cut[POINTS];
    for (int p = 0; p < POINTS; p++) {
        w.weight[p] = 5;
        for (int q = p + 1; q < POINTS; q++) {
            w.leads[p][q] = q == p + 1;
        }
    }
    CHECK_OK(build(&w, &cut));
    mp_least_cut_find(&cut, is_cut);
    mp_least_cut_close(&cut);
    for (int p = 0; p < POINTS; p++) {
        CHECK_EQ_INT(is_cut[p], p == 0);
    }
}
