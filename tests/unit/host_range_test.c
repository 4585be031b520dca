/* host_range_test.c - tables of address ranges, against one byte for each address.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_range.h"
#include "unit/test.h"

enum { BYTES = 256, STEPS = 3000 };

static void compare(const host_ranges *ranges, const bool *in) {
    mp_addr end = 0;
    for (size_t i = 0; i < ranges->count; i++) { /* in order, apart, none empty */
        CHECK(ranges->items[i].size > 0 && ranges->items[i].begin >= end);
        end = ranges->items[i].begin + ranges->items[i].size;
    }
    for (mp_addr addr = 0; addr < BYTES; addr++) {
        CHECK((mp__host_range_find(ranges, addr) != NULL) == in[addr]);
    }
}

TEST(host_range_cuts_and_inserts) {
    host_ranges ranges = {0};
    bool in[BYTES] = {false};
    uint64_t random = test_seed();
    for (int i = 0; i < STEPS; i++) {
        const mp_addr addr = test_random(&random) % BYTES;
        const size_t size = 1 + test_random(&random) % (BYTES - addr);
        const bool insert = test_random(&random) % 2 == 0;
        CHECK_OK(mp__host_range_cut(&ranges, addr, size));
        memset(in + addr, 0, size);
        if (insert) {
            CHECK_OK(mp__host_range_insert(&ranges, (host_range){.begin = addr, .size = size}));
            memset(in + addr, 1, size);
        }
        compare(&ranges, in);
    }
    mp__host_range_clear(&ranges);
}
