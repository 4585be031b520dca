/* direct_cut_test.c - how attention whose scores are products is cut: it fits the device, and large
 * work is cut otherwise than small.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "op/attention/direct_cut.h"
#include "unit/test.h"

/* Of GPUs: multiprocessors and what their blocks may share. */
static const mp_device_info devices[] = {
    {.arch = 90, .multiprocessors = 132, .shared_bytes_max = 227 << 10},
    {.arch = 80, .multiprocessors = 108, .shared_bytes_max = 163 << 10},
    {.arch = 89, .multiprocessors = 24, .shared_bytes_max = 99 << 10}};

static mp_direct_cut cut_of(const mp_device_info *device, int64_t units, int64_t rows, int64_t keys,
                            int32_t head, bool causal) {
    const mp_direct_work work = {units, rows, keys, head, causal};
    return mp_direct_cut_for(device, &work);
}

TEST(direct_cut_fits) {
    static const int32_t heads[] = {32, 64, 80, 96, 128};
    static const int64_t lengths[] = {1, 17, 128, 1000, 1 << 15, INT32_MAX / 2};
    static const int64_t units[] = {1, 12, 4096};
    enum { HEADS = MP_COUNT_OF(heads), LENGTHS = MP_COUNT_OF(lengths), UNITS = MP_COUNT_OF(units) };
    for (size_t i = 0; i < MP_COUNT_OF(devices) * HEADS * LENGTHS * UNITS; i++) {
        const mp_device_info *device = &devices[i / (HEADS * LENGTHS * UNITS)];
        const int32_t head = heads[i % HEADS];
        const int64_t length = lengths[i / HEADS % LENGTHS];
        const mp_direct_cut cut =
            cut_of(device, units[i / HEADS / LENGTHS % UNITS], length, length, head, i % 2 == 0);
        CHECK(cut.rows == K_MMA_ROWS || cut.rows == 2 * K_MMA_ROWS);
        CHECK(cut.row_warps > 0 && cut.sets > 0);
        CHECK(cut.row_warps * cut.sets <= K_DIRECT_WARPS(cut.rows));
        CHECK(cut.share > 0 && cut.share % K_DIRECT_KEYS(head, cut.rows) == 0);
        CHECK(cut.resident > 0 &&
              cut.resident * cut.row_warps * cut.sets <= K_DIRECT_WARPS(cut.rows));
        CHECK(cut.shared_bytes > 0 && cut.shared_bytes <= device->shared_bytes_max);
    }
}

TEST(direct_cut_by_size) {
    const mp_direct_cut large = cut_of(&devices[0], 192, 2048, 2048, 64, true);
    const mp_direct_cut small = cut_of(&devices[0], 12, 128, 128, 64, false);
    const mp_direct_cut prompt = cut_of(&devices[0], 8, 4 * 2048, 2048, 128, true);
    const mp_direct_cut middle = cut_of(&devices[0], 24, 1024, 1024, 64, true);
    CHECK(large.rows == 2 * K_MMA_ROWS && large.row_warps >= 4);
    CHECK(small.rows == K_MMA_ROWS && small.row_warps * small.sets <= 4);
    CHECK(prompt.rows == 2 * K_MMA_ROWS && prompt.row_warps == 4);
    CHECK(middle.rows == 2 * K_MMA_ROWS && middle.row_warps == 4 && middle.sets == 2);
}

/* Without tensor cores there are plain loops, and nothing is shared. */
TEST(direct_cut_of_loops) {
    const mp_device_info device = {.multiprocessors = 2};
    CHECK(cut_of(&device, 12, 128, 128, 64, false).shared_bytes == 0);
}
