/* rank_compute.c - what a collective makes of all ranks' sources, on the CPU: sums are made in the
 * order of ranks, narrow floats in float, so that every rank has the same bits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/rank/rank_group.h"

#include "base/half.h"

#include <string.h>

/* `own` elements lie between those of two ranks. */
#define SUM_AS(word, type, wide, load, store)                                          \
    static void sum_##word(const void *sources, int ranks, size_t own, void *target) { \
        const type *x = sources;                                                       \
        type *y = target;                                                              \
        for (size_t i = 0; i < own; i++) {                                             \
            wide sum = load(x[i]);                                                     \
            for (int r = 1; r < ranks; r++) {                                          \
                sum += load(x[(size_t)r * own + i]);                                   \
            }                                                                          \
            y[i] = store(sum);                                                         \
        }                                                                              \
    }

SUM_AS(f32, float, float, , )
SUM_AS(f64, double, double, , )
SUM_AS(f16, uint16_t, float, mp_from_f16, mp_to_f16)
SUM_AS(bf16, uint16_t, float, mp_from_bf16, mp_to_bf16)

static void reduce(const mp_collective *what, int ranks, const char *sources, char *target) {
    const size_t own = (size_t)what->count;
    switch (what->type) {
    case MP_F64:
        sum_f64(sources, ranks, own, target);
        return;
    case MP_F16:
        sum_f16(sources, ranks, own, target);
        return;
    case MP_BF16:
        sum_bf16(sources, ranks, own, target);
        return;
    default:
        sum_f32(sources, ranks, own, target);
        return;
    }
}

void mp__group_compute(const mp_collective *what, int ranks, int rank, const char *sources,
                       char *target) {
    const size_t bytes = (size_t)what->count * mp_dtype_size(what->type);
    const size_t part = bytes / (size_t)ranks;
    switch (what->kind) {
    case MP_ALL_REDUCE:
        reduce(what, ranks, sources, target);
        return;
    case MP_ALL_GATHER:
        memcpy(target, sources, bytes * (size_t)ranks);
        return;
    case MP_ALL_TO_ALL:
        for (size_t r = 0; r < (size_t)ranks; r++) {
            memcpy(target + r * part, sources + r * bytes + (size_t)rank * part, part);
        }
        return;
    }
}
