/* reduce.h - what each reduction does to an element, to two partial results and to the last one.
 * K_OP names the reduction.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_REDUCE_H
#define MP_KERNEL_REDUCE_H

#include "kernel/core/index.h"
#include "kernel/core/row_lanes.h"
#include "kernel/rows/row_args.h"

#define R_sum       1
#define R_max       2
#define R_min       3
#define R_prod      4
#define R_l1        5
#define R_sumsq     6
#define R_logsumexp 7
#define R_OP        K_JOIN(R_, K_OP)

#if R_OP == R_max
#define r_block k_block_max
#elif R_OP == R_min
#define r_block k_block_min
#elif R_OP == R_prod
#define r_block k_block_product
#else
#define r_block k_block_sum
#endif

K_FN K_SUM r_load(T element) {
    return (K_SUM)T_load(element);
}

/* What nothing reduces to. */
K_FN K_SUM r_identity(void) {
#if R_OP == R_prod
    return 1;
#elif R_OP == R_max && T_FLOAT
    return -(K_SUM)K_INF;
#elif R_OP == R_min && T_FLOAT
    return (K_SUM)K_INF;
#elif R_OP == R_max && T_SIGNED
    return (K_SUM)((uint64_t)-1 << (sizeof(T) * 8 - 1));
#elif R_OP == R_min && T_SIGNED
    return (K_SUM)(((uint64_t)1 << (sizeof(T) * 8 - 1)) - 1);
#elif R_OP == R_min
    return (K_SUM)(TC)-1;
#else
    return 0;
#endif
}

#if (R_OP == R_max || R_OP == R_min) && T_FLOAT && !T_DOUBLE && !K_HOST && __CUDA_ARCH__ >= 800
#define R_ONE_INSTRUCTION 1
#else
#define R_ONE_INSTRUCTION 0
#endif

K_FN K_SUM r_add(K_SUM a, K_SUM x) {
#if R_ONE_INSTRUCTION
    float most;
#if R_OP == R_max
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(x));
#else
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(x));
#endif
    return most;
#elif R_OP == R_max && T_FLOAT
    return a != a ? a : x != x ? x : a > x ? a : x;
#elif R_OP == R_max
    return a > x ? a : x;
#elif R_OP == R_min && T_FLOAT
    return a != a ? a : x != x ? x : a < x ? a : x;
#elif R_OP == R_min
    return a < x ? a : x;
#elif R_OP == R_prod
    return a * x;
#elif R_OP == R_l1
    return a + (x < 0 ? (K_SUM)-x : x);
#elif R_OP == R_sumsq
    return a + x * x;
#else
    return a + x;
#endif
}

/* Two partial results. */
K_FN K_SUM r_merge(K_SUM a, K_SUM b) {
#if R_OP == R_max || R_OP == R_min || R_OP == R_prod
    return r_add(a, b);
#else
    return a + b;
#endif
}

K_GROUP_REDUCE(r_group, K_SUM, r_block, r_merge(a, b))

#if T_FLOAT && !T_DOUBLE && !K_HOST
#define r_log  logf
#define r_sqrt sqrtf
#define r_exp  expf
typedef float R_REAL;
#else
#define r_log  log
#define r_sqrt sqrt
#define r_exp  exp
typedef double R_REAL;
#endif

K_FN T r_store(const mp_reduce_args *args, K_SUM a) {
#if R_OP == R_sum
    if (args->finish == K_REDUCE_MEAN) {
#if T_FLOAT
        return T_store((TC)(a / (K_SUM)args->reduced));
#else
        return T_store((TC)(args->reduced > 0 ? a / (K_SUM)args->reduced : 0));
#endif
    }
#endif
#if R_OP == R_sum && T_FLOAT
    if (args->finish == K_REDUCE_LOG) {
        return T_store((TC)r_log((R_REAL)a));
    }
#endif
#if R_OP == R_sumsq
    if (args->finish == K_REDUCE_ROOT) {
        return T_store((TC)r_sqrt((R_REAL)a));
    }
#endif
    (void)args;
    return T_store((TC)a);
}

/* Where element `i` of an iteration space of one view lies. */
K_FN int64_t r_offset(const k_layout *layout, int64_t i) {
    int64_t offset = 0;
    K_ONE_COPY
    for (int32_t d = layout->rank - 1; d > 0; d--) {
        const int64_t outer =
            layout->wide ? i / layout->dim[d] : (int64_t)k_divide((uint32_t)i, layout->divider[d]);
        offset += (i - outer * layout->dim[d]) * layout->stride[0][d];
        i = outer;
    }
    return offset + i * layout->stride[0][0];
}

K_FN int64_t r_kept(const mp_reduce_args *args, int64_t output) {
    return r_offset(&args->kept, output);
}

K_FN int64_t r_dropped(const mp_reduce_args *args, int64_t i) {
    return r_offset(&args->dropped, i);
}

#endif
