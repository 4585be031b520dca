/* nbits_cut_test.c - how products of some rows with packed weights are cut: it fits the device, all
 * of the result is in a tile, and few tiles are shared by blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "op/quantize/nbits_cut.h"
#include "unit/test.h"

static const mp_device_info devices[] = {
    {.arch = 90, .multiprocessors = 132, .shared_bytes_max = 227 << 10, .cluster_blocks_max = 16},
    {.arch = 80, .multiprocessors = 108, .shared_bytes_max = 163 << 10},
    {.arch = 89, .multiprocessors = 24, .shared_bytes_max = 99 << 10},
    {.arch = 120, .multiprocessors = 84, .shared_bytes_max = 99 << 10, .cluster_blocks_max = 8}};

TEST(nbits_cut_fits) {
    static const int64_t rows[] = {5, 9, 16, 17, 32, 33, 64, 65, 192};
    static const int64_t widths[] = {8, 576, 4096, 28672};
    enum { ROWS = MP_COUNT_OF(rows), WIDTHS = MP_COUNT_OF(widths) };
    for (size_t i = 0; i < MP_COUNT_OF(devices) * ROWS * WIDTHS * WIDTHS * 16; i++) {
        const mp_device_info *device = &devices[i / (ROWS * WIDTHS * WIDTHS * 16)];
        const mp_nbits_work work = {.m = rows[i / 16 % ROWS],
                                    .n = widths[i / 16 / ROWS % WIDTHS],
                                    .k = widths[i / 16 / ROWS / WIDTHS % WIDTHS],
                                    .bits = i % 2 == 0 ? 4 : 8,
                                    .size = i / 8 % 2 == 0 ? 2 : 4,
                                    .zeros = i / 2 % 2 == 0,
                                    .gated = i / 4 % 2 == 0};
        const int64_t stages = MP_CEIL_DIV(work.k, K_NBITS_CHUNK * K_NBITS_TILE_CHUNKS);
        mp_nbits_cut cut;
        if (!mp_nbits_cut_for(device, &work, &cut)) {
            CHECK(work.m > (work.size == 2 && work.n * work.k >= 32 << 20 ? 128 : 32) ||
                  (work.m <= 8 && work.size == 2)); /* others are sooner */
            continue;
        }
        CHECK(cut.rows == 8 || cut.rows == 16 ||
              (work.size == 2 && (cut.rows == 32 || cut.rows == 64)));
        CHECK(cut.shared.bytes > 0 && (size_t)cut.shared.bytes < device->shared_bytes_max);
        CHECK(1 << cut.splits_log <= MP_MAX(device->cluster_blocks_max, 1));
        CHECK(1 << cut.splits_log <= stages);
        const int64_t tiles = cut.blocks >> cut.splits_log;
        const int64_t each = MP_CEIL_DIV(work.m, (int64_t)cut.rows);
        CHECK(tiles % each == 0 && tiles / each * K_NBITS_TILE_COLUMNS >= work.n);
        CHECK((tiles / each - 1) * K_NBITS_TILE_COLUMNS < work.n);
    }
}

TEST(nbits_cut_by_size) {
    mp_nbits_work work = {.m = 32, .n = 4096, .k = 4096, .bits = 4, .size = 2};
    mp_nbits_cut cut;
    CHECK(mp_nbits_cut_for(&devices[0], &work, &cut));
    CHECK(cut.rows == 32 && cut.blocks == 256); /* two for nearly all multiprocessors */
    work.n = 28672;
    CHECK(mp_nbits_cut_for(&devices[0], &work, &cut));
    CHECK(cut.splits_log == 0 && cut.blocks == 224);
    work.m = 8;
    CHECK(mp_nbits_cut_for(&devices[0], &work, &cut) && cut.rows == 8);
    work.n = work.k = 576; /* few weights have kernels of their own for up to 8 rows, ... */
    CHECK(!mp_nbits_cut_for(&devices[0], &work, &cut));
    work.m = 9;
    CHECK(mp_nbits_cut_for(&devices[0], &work, &cut));
    work.m = 1 << 10; /* ... and many rows are the library's */
    CHECK(!mp_nbits_cut_for(&devices[0], &work, &cut));
}

TEST(nbits_cut_of_floats) {
    mp_nbits_work work = {.m = 4, .n = 4096, .k = 4096, .bits = 8, .size = 4};
    mp_nbits_cut cut;
    CHECK(!mp_nbits_cut_for(&devices[0], &work, &cut)); /* the fewest have a kernel of their own */
    work.m = 5;
    CHECK(mp_nbits_cut_for(&devices[0], &work, &cut) && cut.rows == 8);
    work.m = 32;
    CHECK(mp_nbits_cut_for(&devices[0], &work, &cut) && cut.rows == 16);
    work.m = 33;
    CHECK(!mp_nbits_cut_for(&devices[0], &work, &cut));
}
