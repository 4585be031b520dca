/* reduce.h - what each reduction does to an element, to two partial results and to the last one.
 * K_OP names the reduction. SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_REDUCE_H
#define MP_KERNEL_REDUCE_H

#include "kernel/index.h"
#include "kernel/reduce_args.h"
#include "kernel/row_lanes.h"

#define R_sum       1
#define R_mean      2
#define R_max       3
#define R_min       4
#define R_prod      5
#define R_l1        6
#define R_l2        7
#define R_sumsq     8
#define R_logsum    9
#define R_logsumexp 10
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

K_FN K_SUM r_add(K_SUM a, K_SUM x) {
#if R_OP == R_max && T_FLOAT
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
#elif R_OP == R_l2 || R_OP == R_sumsq
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

K_FN T r_store(K_SUM a, int64_t count) {
    (void)count;
#if R_OP == R_mean && T_FLOAT
    return T_store((TC)(a / (K_SUM)count));
#elif R_OP == R_mean
    return T_store((TC)(count > 0 ? a / (K_SUM)count : 0));
#elif R_OP == R_l2
    return T_store((TC)sqrt((double)a));
#elif R_OP == R_logsum
    return T_store((TC)log((double)a));
#else
    return T_store((TC)a);
#endif
}

K_FN int64_t r_kept(const mp_reduce_args *args, int64_t output) {
    int64_t at[1];
    k_offsets(&args->kept, output, 1, at);
    return at[0];
}

K_FN int64_t r_dropped(const mp_reduce_args *args, int64_t i) {
    if (args->dropped.rank == 1) {
        return i * args->dropped.stride[0][0];
    }
    int64_t at[1];
    k_offsets(&args->dropped, i, 1, at);
    return at[0];
}

#endif
