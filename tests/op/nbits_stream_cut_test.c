/* nbits_stream_cut_test.c - how products of one row with many packed weights are cut: it fits the
 * device, and no multiprocessor has room for two blocks of a kernel where it has it for one of the
 * next and of attention.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "op/quantize/nbits_stream_cut.h"
#include "unit/test.h"

enum { RESERVED = 1 << 10 /* of shared memory, for each block */ };

static const mp_device_info devices[] = {
    {.arch = 90, .multiprocessors = 132, .shared_bytes_max = 227 << 10},
    {.arch = 80, .multiprocessors = 108, .shared_bytes_max = 163 << 10},
    {.arch = 89, .multiprocessors = 24, .shared_bytes_max = 99 << 10},
};

TEST(nbits_stream_cut_fits) {
    static const int64_t widths[] = {2048, 4096, 5120, 14336, 28672};
    enum { WIDTHS = MP_COUNT_OF(widths) };
    int found = 0;
    for (size_t i = 0; i < MP_COUNT_OF(devices) * WIDTHS * WIDTHS * 4; i++) {
        const mp_device_info *device = &devices[i / (WIDTHS * WIDTHS * 4)];
        const mp_nbits_work work = {.m = 1,
                                    .n = widths[i / 4 % WIDTHS],
                                    .k = widths[i / 4 / WIDTHS % WIDTHS],
                                    .bits = i % 2 == 0 ? 4 : 8};
        mp_nbits_stream_cut cut;
        if (!mp_nbits_stream_cut_for(device, &work, 5, i / 2 % 2 == 0, &cut)) {
            continue;
        }
        found++;
        CHECK(cut.blocks > 0 && (int)cut.blocks <= device->multiprocessors);
        CHECK(cut.lanes % 32 == 0 && cut.lanes <= K_NBITS_STREAM_LANES);
        CHECK(cut.lanes / 32 * K_NBITS_STREAM_AHEAD * K_NBITS_STREAM_STAGE((uint32_t)work.bits) <=
              (uint32_t)cut.shared.row);
        CHECK(cut.shared.sums - cut.shared.row == work.k * 2 + work.k / K_NBITS_CHUNK * 4);
        CHECK(cut.shared.sums < cut.shared.bytes);
        CHECK((size_t)cut.shared.bytes + RESERVED <= device->shared_bytes_max);
    }
    CHECK(found > 100);
}

TEST(nbits_stream_cut_of_neighbours) {
    const mp_device_info *device = &devices[0];
    const int64_t room = (int64_t)device->shared_bytes_max + RESERVED; /* of a multiprocessor */
    enum { ATTENTION = 12 << 10 };
    static const int64_t widths[] = {4096, 6144, 14336, 28672};
    for (size_t i = 0; i < MP_COUNT_OF(widths) * 4; i++) {
        mp_nbits_work work = {.m = 1, .n = widths[i / 4], .k = 4096, .bits = i % 2 == 0 ? 4 : 8};
        mp_nbits_stream_cut made, given;
        CHECK(mp_nbits_stream_cut_for(device, &work, 5, true, &made));
        work.k = i / 2 % 2 == 0 ? 4096 : 14336;
        work.n = 4096;
        CHECK(mp_nbits_stream_cut_for(device, &work, 5, false, &given));
        CHECK(2 * ((int64_t)given.shared.bytes + RESERVED) > room);
        CHECK(made.shared.bytes + given.shared.bytes + ATTENTION + 3 * RESERVED <= room);
    }
}

TEST(nbits_stream_cut_leaves_others_alone) {
    const mp_nbits_work right = {.m = 1, .n = 4096, .k = 4096, .bits = 4};
    mp_nbits_stream_cut cut;
    CHECK(mp_nbits_stream_cut_for(&devices[0], &right, 5, true, &cut));
    CHECK(!mp_nbits_stream_cut_for(&devices[0], &right, 8, true, &cut));
    const mp_nbits_work wrong[] = {{.m = 2, .n = 4096, .k = 4096, .bits = 4},
                                   {.m = 1, .n = 4096 + 8, .k = 4096, .bits = 4},
                                   {.m = 1, .n = 4096, .k = 4096 + 32, .bits = 4},
                                   {.m = 1, .n = 1 << 16, .k = 1024, .bits = 4},
                                   {.m = 1, .n = 1024, .k = 4096, .bits = 4},
                                   {.m = 1, .n = 1 << 20, .k = 4096, .bits = 4}};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        CHECK(!mp_nbits_stream_cut_for(&devices[0], &wrong[i], 5, true, &cut));
    }
    const mp_device_info old = {.arch = 75, .multiprocessors = 40, .shared_bytes_max = 64 << 10};
    CHECK(!mp_nbits_stream_cut_for(&old, &right, 5, true, &cut));
}
