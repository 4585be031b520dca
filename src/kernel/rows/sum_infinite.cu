/* sum_infinite.cu - a sum of halves, or halves as they are, and whether any is infinite. A block
 * has a piece, and writes a byte for it. Who wants to know reads all bytes: so no block is the last
 * one, nothing is set to 0 before, and what is found does not depend on who comes first.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/core/word.h"
#include "kernel/rows/row_args.h"

enum { AHEAD = K_HOST ? 1 : 4 }; /* packs on their way to a lane */

/* Whether either half of the word is infinite: of its bits but for the sign, less those of
 * infinity, nothing is left. */
K_FN uint32_t s_infinite(uint32_t word) {
    const uint32_t left = (word & 0x7fff7fffu) ^ 0x7c007c00u;
    return (left - 0x00010001u) & ~left & 0x80008000u;
}

K_FN uint32_t s_sum(uint32_t word, uint32_t more) {
    float value[K_WORD], other[K_WORD];
    T_unpack(word, value);
    T_unpack(more, other);
    K_UNROLL
    for (int k = 0; k < K_WORD; k++) {
        value[k] += other[k];
    }
    return T_repack(value);
}

/* The lane's next `ahead` packs, a constant, from pack i on; those below `end`. */
K_FN uint32_t s_some(const mp_sum_infinite_args *args, int64_t i, int64_t end, int ahead) {
    const k_pack *x = (const k_pack *)args->x, *more = (const k_pack *)args->more;
    k_pack *sum = (k_pack *)args->sum;
    const int64_t step = blockDim.x;
    k_pack one[AHEAD], other[AHEAD];
    uint32_t found = 0;
    K_UNROLL
    for (int k = 0; k < ahead; k++) {
        one[k].words = x[i + k * step < end ? i + k * step : i].words;
    }
    if (more) {
        K_UNROLL
        for (int k = 0; k < ahead; k++) {
            other[k].words = more[i + k * step < end ? i + k * step : i].words;
        }
        K_UNROLL
        for (int k = 0; k < ahead; k++) {
            K_UNROLL
            for (int w = 0; w < 4; w++) {
                one[k].words.at[w] = s_sum(one[k].words.at[w], other[k].words.at[w]);
            }
            if (i + k * step < end) {
                sum[i + k * step].words = one[k].words;
            }
        }
    }
    K_UNROLL
    for (int k = 0; k < ahead; k++) {
        K_UNROLL
        for (int w = 0; w < 4; w++) {
            found |= s_infinite(one[k].words.at[w]);
        }
    }
    return found;
}

/* Packs [first, end). */
K_FN uint32_t s_packs(const mp_sum_infinite_args *args, int64_t first, int64_t end) {
    const int64_t step = blockDim.x;
    uint32_t found = 0;
    int64_t i = first + threadIdx.x;
    if (end - first <= step) { /* one for each lane */
        return i < end ? s_some(args, i, end, 1) : 0;
    }
    K_ONE_COPY
    for (; i < end; i += AHEAD * step) {
        found |= s_some(args, i, end, AHEAD);
    }
    return found;
}

/* Elements [first, end), one by one. */
K_FN uint32_t s_elements(const mp_sum_infinite_args *args, int64_t first, int64_t end) {
    const T *x = (const T *)args->x, *more = (const T *)args->more;
    T *sum = (T *)args->sum;
    uint32_t found = 0;
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        const T made = more ? T_store(T_load(x[i]) + T_load(more[i])) : x[i];
        found |= s_infinite(made.bits);
        if (more) {
            sum[i] = made;
        }
    }
    return found;
}

K_BLOCK_KERNEL_UP_TO(K_FOUND_LANES, mp_sum_infinite_args, args) {
    for (int64_t p = blockIdx.x; p < K_FOUND_PIECES; p += gridDim.x) {
        const int64_t first = p * args.piece, left = args.count - first;
        const int64_t end = left < 0 ? first : first + (left < args.piece ? left : args.piece);
        const int64_t last = args.packed ? end / K_PACK : first / K_PACK; /* whole packs before */
        uint32_t found = s_packs(&args, first / K_PACK, last);
        found |= s_elements(&args, last * K_PACK > first ? last * K_PACK : first, end);
        const int64_t any = k_block_max_i64(found != 0);
        if (threadIdx.x == 0) {
            ((uint8_t *)args.found)[p] = (uint8_t)any;
        }
    }
}
