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

typedef struct kernel {
    int32_t head, size;
    bool masked;
} kernel;

static mp_direct_work work_of(int64_t units, int64_t rows, int64_t keys, kernel k, bool causal) {
    return (mp_direct_work){.units = units,
                            .rows = rows,
                            .keys = keys,
                            .head = k.head,
                            .size = k.size,
                            .causal = causal,
                            .masked = k.masked,
                            .added = k.masked && keys <= K_DIRECT_ADDED_KEYS};
}

static mp_direct_cut cut_of(const mp_device_info *device, int64_t units, int64_t rows, int64_t keys,
                            int32_t head, bool causal) {
    const mp_direct_work work = work_of(units, rows, keys, (kernel){head, 2, false}, causal);
    return mp_direct_cut_for(device, &work);
}

static void check_cut(const mp_device_info *device, const mp_direct_work *work) {
    const mp_direct_cut cut = mp_direct_cut_for(device, work);
    const int32_t warps = K_DIRECT_WARPS(work->head, cut.rows, work->size, work->masked);
    CHECK(cut.rows == K_MMA_ROWS ||
          (cut.rows == 2 * K_MMA_ROWS && work->size == 2 && !work->masked));
    CHECK(cut.row_warps > 0 && cut.sets > 0);
    CHECK(cut.share > 0 && cut.share % K_DIRECT_KEYS(work->head, cut.rows, work->size) == 0);
    CHECK(cut.resident > 0 && cut.resident * cut.row_warps * cut.sets <= warps);
    CHECK(cut.shared_bytes > 0 && cut.shared_bytes <= device->shared_bytes_max);
    const int32_t added = mp_direct_added(work, &cut);
    CHECK(work->added ? added >= work->keys && added % (cut.share * cut.sets) == 0 : added == 0);
}

TEST(direct_cut_fits) {
    static const kernel kernels[] = {{32, 2, false}, {64, 2, false},  {80, 2, false},
                                     {96, 2, false}, {128, 2, false}, {32, 2, true},
                                     {80, 2, true},  {128, 2, true},  {64, 4, false},
                                     {96, 4, true},  {128, 4, false}, {128, 4, true}};
    static const int64_t lengths[] = {1,       17,           128, 1000, K_DIRECT_ADDED_KEYS,
                                      1 << 15, INT32_MAX / 2};
    static const int64_t units[] = {1, 12, 4096};
    enum { LENGTHS = MP_COUNT_OF(lengths), UNITS = MP_COUNT_OF(units) };
    for (size_t i = 0; i < MP_COUNT_OF(devices) * LENGTHS * UNITS; i++) {
        for (size_t k = 0; k < MP_COUNT_OF(kernels); k++) {
            const int64_t length = lengths[i % LENGTHS];
            const mp_direct_work work =
                work_of(units[i / LENGTHS % UNITS], length, length, kernels[k], (i + k) % 2 == 0);
            check_cut(&devices[i / LENGTHS / UNITS], &work);
        }
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
