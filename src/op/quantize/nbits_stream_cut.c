/* nbits_stream_cut.c - see nbits_stream_cut.h.
 *
 * Blocks of two kernels, one behind the other, are on a multiprocessor at a time, and one of
 * attention between them. Those that make their row take less than half of its shared memory, and
 * others more. So no two of the same kernel come to one multiprocessor, where their weights would
 * take twice as long as elsewhere, and each finds room beside the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/nbits_stream_cut.h"

#include "base/macros.h"

enum {
    ARCH = 80,           /* whose tensor cores the kernel is written for */
    NEAR = 1 << 24,      /* of columns and of k: places are numbers of 32 bits */
    COUNT_MIN = 8 << 20, /* of weights: with fewer, blocks of their own are done sooner */
    BLOCK_SHIFT_MAX = 7, /* scales of a stage and column are 4 bytes or more */
    WARPS_ENOUGH = 6,    /* have as much on their way as a multiprocessor needs */
    STAGE = K_NBITS_CHUNK * K_NBITS_STREAM_CHUNKS, /* weights of a column */
    FIXED = 1 << 10,      /* shared memory that the device takes for each block */
    ATTENTION = 14 << 10, /* that a block of attention has, with that */
    MORE_THAN_HALF = 1 << 10,
};

/* Lays out shared memory for so many warps; its bytes. */
static int64_t lay_out(const mp_device_info *info, const mp_nbits_work *work, int64_t warps,
                       mp_nbits_stream_cut *cut) {
    const int64_t tiles = work->n / K_NBITS_STREAM_COLUMNS;
    const int64_t each = MP_CEIL_DIV(tiles, (int64_t)info->multiprocessors);
    const int64_t ring = warps * K_NBITS_STREAM_AHEAD * K_NBITS_STREAM_STAGE(work->bits);
    const int64_t row = ring + K_NBITS_STREAM_NONE;
    const int64_t sums = row + K_NBITS_STREAM_ROW(work->k);
    const int64_t kept = warps * K_NBITS_STREAM_COLUMNS * (int64_t)sizeof(float);
    const int64_t bytes = sums + MP_MIN(each, K_NBITS_STREAM_KEPT) * kept;
    cut->lanes = (uint32_t)warps * 32;
    cut->blocks = (uint32_t)MP_MIN(tiles, (int64_t)info->multiprocessors);
    cut->shared =
        (k_nbits_shared){.bytes = (int32_t)bytes, .row = (int32_t)row, .sums = (int32_t)sums};
    return bytes;
}

bool mp_nbits_stream_cut_for(const mp_device_info *info, const mp_nbits_work *work, int block_shift,
                             bool made, mp_nbits_stream_cut *out) {
    const int64_t stages = work->k / STAGE;
    const int64_t room = (int64_t)info->shared_bytes_max - FIXED;
    const int64_t share = room / 2 - (made ? ATTENTION : 0);
    if (info->arch < ARCH || work->m != 1 || work->k > NEAR || work->n > NEAR ||
        work->k % STAGE != 0 || stages < WARPS_ENOUGH || work->n % K_NBITS_STREAM_COLUMNS != 0 ||
        block_shift > BLOCK_SHIFT_MAX || work->n * work->k < COUNT_MIN ||
        work->n * work->k > INT32_MAX) {
        return false;
    }
    int64_t warps = MP_MIN(stages, K_NBITS_STREAM_WARPS);
    int64_t bytes = lay_out(info, work, warps, out);
    while (bytes > share && warps > WARPS_ENOUGH) {
        bytes = lay_out(info, work, --warps, out);
    }
    if (!made && bytes <= share) {
        bytes = share + MORE_THAN_HALF;
        out->shared.bytes = (int32_t)bytes;
    }
    return bytes <= room;
}
