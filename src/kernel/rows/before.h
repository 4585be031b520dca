/* before.h - a row that is made before it is multiplied, by each block for itself: sooner done than
 * by a kernel before, whose launch and end take longer than the row. What is rounded between two
 * kernels is rounded here.
 *
 * The emulated device, whose lane has all packs, reads them again.
 *
 * A kernel that wants more than packs one behind the other defines B_PUT(row, packs, i, each,
 * pack) before, which puts pack `i` there, if it is one of `packs`, and is called by all lanes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_BEFORE_H
#define MP_KERNEL_BEFORE_H

#include "kernel/core/late.h"
#include "kernel/core/row_lanes.h"
#include "kernel/core/word.h"
#include "kernel/pointwise/gate.h"
#include "kernel/rows/before_args.h"

#if T_DOUBLE || K_HOST
#define b_sqrt sqrt
#else
#define b_sqrt sqrtf
#endif

/* Visits pack `i` of the lane, which is kept at `j`; on a GPU also those that are not there. */
#if K_HOST
enum { B_KEPT = 1 };
#define B_PACK_LOOP(i, j, packs) \
    for (int32_t i = (int32_t)threadIdx.x, j = 0; i < (int32_t)(packs); i += (int32_t)blockDim.x)
#else
enum { B_KEPT = K_BEFORE_PACKS };
#define B_PACK_LOOP(i, j, packs) \
    K_UNROLL                     \
    for (int32_t j = 0, i = (int32_t)threadIdx.x; j < B_KEPT; j++, i += (int32_t)blockDim.x)
#endif

#ifndef B_PUT
K_FN void b_put(k_pack *row, int32_t packs, int32_t i, int32_t each, k_pack pack) {
    if (i < packs) {
        row[each > 0 ? i + i / each : i].words = pack.words;
    }
}
#define B_PUT(row, packs, i, each, pack) b_put(row, packs, i, each, pack)
#endif

/* Pack `i` of what begins at x; zeros where there is none. */
K_FN k_pack b_read(const void *x, int32_t i, int is) {
    k_pack pack;
    K_UNROLL
    for (int w = 0; w < 4; w++) {
        pack.words.at[w] = 0;
    }
    if (is) {
        pack.words = ((const k_pack *)x)[i].words;
    }
    return pack;
}

/* Both of these wait for the kernel before, and make the row in shared memory, with a gap of a pack
 * behind each `each`, or none. All lanes call. */

#if K_BEFORE == K_BEFORE_GATE
K_FN void b_make(const k_before *b, k_pack *row, int32_t each) {
    const int32_t packs = (int32_t)(b->columns / K_PACK);
    k_pack gate[B_KEPT], x[B_KEPT];
    k_wait();
#if !K_HOST
    B_PACK_LOOP(i, j, packs) {
        gate[j] = b_read(b->x, i, i < packs);
        x[j] = b_read(b->x, packs + i, i < packs);
    }
#endif
    B_PACK_LOOP(i, j, packs) {
#if K_HOST
        gate[j] = b_read(b->x, i, 1);
        x[j] = b_read(b->x, packs + i, 1);
#endif
        k_pack made;
        K_UNROLL
        for (int e = 0; e < K_PACK; e++) {
            made.at[e] = g_gated(b->gate, b->alpha, gate[j].at[e], x[j].at[e]);
        }
        B_PUT(row, packs, i, each, made);
    }
    __syncthreads();
}
#else
K_FN void b_numbers(k_pack pack, float *out) {
    K_UNROLL
    for (int w = 0; w < 4; w++) {
        T_unpack(pack.words.at[w], out + w * K_WORD);
    }
}

K_FN k_pack b_pack(const float *numbers) {
    k_pack pack;
    K_UNROLL
    for (int w = 0; w < 4; w++) {
        pack.words.at[w] = T_repack(numbers + w * K_WORD);
    }
    return pack;
}

/* k_block_sum() for any number of warps. */
#if K_HOST
#define b_total k_block_sum
#else
K_FN K_SUM b_total(K_SUM value) {
    __shared__ K_SUM slot[32];
    const int32_t warps = (int32_t)blockDim.x / 32;
    const int32_t half = warps > 1 ? 1 << (31 - __clz(warps - 1)) : 0;
    const int32_t mine = (int32_t)threadIdx.x & (2 * half - 1);
    K_UNROLL
    for (int32_t by = 16; by > 0; by /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, by);
    }
    if (threadIdx.x % 32 == 0) {
        slot[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = half == 0 ? value : mine < warps ? slot[mine] : 0;
    for (int32_t by = half; by > 0; by /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, by);
    }
    return value;
}
#endif

/* x + skip */
K_FN void b_sum(k_pack x, k_pack skip, float *out) {
    float more[K_PACK];
    b_numbers(x, out);
    b_numbers(skip, more);
    K_UNROLL
    for (int e = 0; e < K_PACK; e++) {
        out[e] += more[e];
    }
}

K_FN void b_make(const k_before *b, k_pack *row, int32_t each) {
    const int32_t packs = (int32_t)(b->columns / K_PACK);
    k_pack scale[B_KEPT], x[B_KEPT], skip[B_KEPT];
    float sum[B_KEPT][K_PACK];
    K_SUM squares = 0;
#if !K_HOST
    B_PACK_LOOP(i, j, packs) {
        scale[j] = b_read(b->scale, i, i < packs);
    }
#endif
    k_wait();
#if !K_HOST
    B_PACK_LOOP(i, j, packs) {
        x[j] = b_read(b->x, i, i < packs);
        skip[j] = b_read(b->skip, i, i < packs && b->skip != 0);
    }
#endif
    B_PACK_LOOP(i, j, packs) {
#if K_HOST
        x[j] = b_read(b->x, i, 1);
        skip[j] = b_read(b->skip, i, b->skip != 0);
#endif
        b_sum(x[j], skip[j], sum[j]);
        K_UNROLL
        for (int e = 0; e < K_PACK; e++) {
            squares += (K_SUM)sum[j][e] * (K_SUM)sum[j][e];
        }
    }
    squares = b_total(squares);
    const K_SUM inverse =
        (K_SUM)1 / b_sqrt(squares / (K_SUM)(int32_t)b->columns + (K_SUM)b->epsilon);
    B_PACK_LOOP(i, j, packs) {
        float by[K_PACK];
#if K_HOST
        b_sum(b_read(b->x, i, 1), b_read(b->skip, i, b->skip != 0), sum[j]);
        scale[j] = b_read(b->scale, i, 1);
#endif
        b_numbers(scale[j], by);
        if (i < packs && b->sum != 0 && blockIdx.x == 0) {
            ((k_pack *)b->sum)[i].words = b_pack(sum[j]).words;
        }
        K_UNROLL
        for (int e = 0; e < K_PACK; e++) {
            by[e] *= (float)((K_SUM)sum[j][e] * inverse);
        }
        B_PUT(row, packs, i, each, b_pack(by));
    }
    __syncthreads();
}
#endif

#endif
