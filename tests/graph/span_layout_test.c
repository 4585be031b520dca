/* span_layout_test.c - places in one block: nothing that lives at the same time overlaps.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"
#include "graph/span_layout.h"
#include "unit/test.h"

#include <stdlib.h>

static void check_apart(const mp_span *spans, size_t count, size_t total) {
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ_INT(spans[i].offset % MP_ALIGNMENT, 0);
        CHECK(spans[i].offset + spans[i].bytes <= total);
        for (size_t k = 0; k < i; k++) {
            const bool at_once = spans[i].first <= spans[k].last && spans[k].first <= spans[i].last;
            const bool overlap = spans[i].offset < spans[k].offset + spans[k].bytes &&
                                 spans[k].offset < spans[i].offset + spans[i].bytes;
            CHECK(!at_once || !overlap);
        }
    }
}

/* The most that lives at one time: no block can be smaller. */
static size_t floor_of(const mp_span *spans, size_t count) {
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        size_t alive = 0;
        for (size_t k = 0; k < count; k++) {
            alive += spans[k].first <= spans[i].first && spans[i].first <= spans[k].last
                         ? spans[k].bytes
                         : 0;
        }
        most = alive > most ? alive : most;
    }
    return most;
}

TEST(span_layout_shares_memory_over_time) {
    mp_span chain[] = {{0, 1, 1000, 0}, {1, 2, 1000, 0}, {2, 3, 1000, 0}, {3, 4, 1000, 0}};
    size_t total = 0;
    CHECK_OK(mp_layout_spans(chain, 4, &total));
    check_apart(chain, 4, total);
    CHECK_EQ_INT(total, 2048);
}

TEST(span_layout_of_nothing) {
    mp_span none[] = {{0, 1, 0, 0}};
    size_t total = 7;
    CHECK_OK(mp_layout_spans(none, 1, &total));
    CHECK_EQ_INT(total, 0);
    CHECK_OK(mp_layout_spans(NULL, 0, &total));
    CHECK_EQ_INT(total, 0);
}

TEST(span_layout_refuses_what_overflows) {
    mp_span huge[] = {{0, 1, SIZE_MAX - 10, 0}, {0, 1, 4096, 0}};
    mp_span two[] = {{0, 1, SIZE_MAX / 2 + 1, 0}, {0, 1, SIZE_MAX / 2 + 1, 0}};
    size_t total = 0;
    CHECK_FAILS(mp_layout_spans(huge, 2, &total), INVALID_ARGUMENT, "memory");
    CHECK_FAILS(mp_layout_spans(two, 2, &total), INVALID_ARGUMENT, "memory");
}

TEST(span_layout_of_random_lives_is_sound_and_small) {
    enum { COUNT = 200, ROUNDS = 50 };
    uint64_t state = 12345;
    for (int round = 0; round < ROUNDS; round++) {
        mp_span spans[COUNT];
        size_t total = 0;
        for (int i = 0; i < COUNT; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const int32_t first = (int32_t)(state >> 40) % 100;
            spans[i] = (mp_span){.first = first,
                                 .last = first + (int32_t)(state >> 50) % 8,
                                 .bytes = (size_t)(state >> 33) % 100000};
        }
        CHECK_OK(mp_layout_spans(spans, COUNT, &total));
        check_apart(spans, COUNT, total);
        CHECK(total <= floor_of(spans, COUNT) * 5 / 4);
    }
}
