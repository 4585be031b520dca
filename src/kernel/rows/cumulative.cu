/* cumulative.cu - running sums or products along rows. By one lane a row; by one block a row; or by
 * a block for each piece of a row in three launches: the pieces' totals, from those what lies
 * before each piece, and the results. The order of additions depends on sizes alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/core/block_scan.h"
#include "kernel/core/row_lanes.h"
#include "kernel/rows/row_args.h"

enum { AT_ONCE = K_HOST ? 1 : 8 /* loads of a lane that has a row */ };

K_FN int64_t s_first(const mp_cumulative_args *args, int64_t row) {
    const int64_t outer = row / args->inner;
    return outer * args->columns * args->inner + (row - outer * args->inner);
}

K_FN int64_t s_at(const mp_cumulative_args *args, int64_t c) {
    return (args->reverse ? args->columns - 1 - c : c) * args->inner;
}

/* A whole row by the lane that calls. */
K_FN void s_single(const mp_cumulative_args *args, const T *x, T *out, K_SUM sum) {
    for (int64_t c = 0; c < args->columns; c += AT_ONCE) {
        T element[AT_ONCE];
        K_UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            element[i] = x[s_at(args, c + i < args->columns ? c + i : c)];
        }
        K_UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            if (c + i < args->columns) {
                const K_SUM next = k_join(sum, (K_SUM)T_load(element[i]), args->product);
                out[s_at(args, c + i)] = T_store((TC)(args->exclusive ? sum : next));
                sum = next;
            }
        }
    }
}

/* Neighbours that a lane has at a time, in the direction of the scan: columns [c, c + count). */
typedef struct s_items {
    K_SUM at[K_PACK];
    int32_t count;
} s_items;

K_FN s_items s_load(const mp_cumulative_args *args, const T *x, int64_t c, int64_t end,
                    K_SUM none) {
    s_items items;
    k_pack pack;
    const int64_t left = end - c;
    items.count = left > K_PACK ? K_PACK : left > 0 ? (int32_t)left : 0;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        pack.at[i] = T_store(0);
    }
    if (args->packed && items.count > 0) {
        pack = *(const k_pack *)(x + (args->reverse ? args->columns - c - K_PACK : c));
    } else {
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            if (i < items.count) {
                pack.at[i] = x[s_at(args, c + i)];
            }
        }
    }
    const int turned = args->packed && args->reverse;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        const T element = turned ? pack.at[K_PACK - 1 - i] : pack.at[i];
        items.at[i] = i < items.count ? (K_SUM)T_load(element) : none;
    }
    return items;
}

K_FN void s_store(const mp_cumulative_args *args, T *out, int64_t c, s_items items, K_SUM sum) {
    k_pack pack;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        const K_SUM next = k_join(sum, items.at[i], args->product);
        pack.at[i] = T_store((TC)(args->exclusive ? sum : next));
        sum = next;
    }
    if (args->packed && items.count > 0) {
        k_pack turned = pack;
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            turned.at[i] = args->reverse ? pack.at[K_PACK - 1 - i] : pack.at[i];
        }
        k_put_bytes(out + (args->reverse ? args->columns - c - K_PACK : c), &turned,
                    sizeof(k_pack));
        return;
    }
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        if (i < items.count) {
            out[s_at(args, c + i)] = pack.at[i];
        }
    }
}

/* The same by packs of neighbours. */
K_FN void s_packs(const mp_cumulative_args *args, const T *x, T *out, K_SUM sum) {
    for (int64_t c = 0; c < args->columns; c += K_PACK) {
        const s_items items = s_load(args, x, c, args->columns, sum);
        s_store(args, out, c, items, sum);
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            sum = k_join(sum, items.at[i], args->product);
        }
    }
}

/* The columns [start, end) by the lanes of a block; gives what they come to, and `carry`. */
K_FN K_SUM s_piece(const mp_cumulative_args *args, const T *x, T *out, int64_t start, int64_t end,
                   K_SUM carry) {
    const K_SUM none = args->product ? (K_SUM)1 : (K_SUM)0;
    const int64_t width = (int64_t)blockDim.x * K_PACK;
    for (int64_t from = start; from < end; from += width) {
        const int64_t c = from + (int64_t)threadIdx.x * K_PACK;
        const s_items items = s_load(args, x, c, end, none);
        K_SUM all = none, mine = none;
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            mine = k_join(mine, items.at[i], args->product);
        }
        const K_SUM before = k_join(carry, k_block_join(mine, args->product, &all), args->product);
        if (out) {
            s_store(args, out, c, items, before);
        }
        carry = k_join(carry, all, args->product);
    }
    return carry;
}

K_FN void s_carries(const mp_cumulative_args *args, K_SUM *carry, K_SUM none) {
    K_SUM before = none;
    for (int64_t i = 0; i < args->pieces; i += blockDim.x) {
        const int64_t mine = i + threadIdx.x;
        K_SUM all = none;
        const K_SUM total = mine < args->pieces ? carry[mine] : none;
        const K_SUM sum = k_block_join(total, args->product, &all);
        if (mine < args->pieces) {
            carry[mine] = k_join(before, sum, args->product);
        }
        before = k_join(before, all, args->product);
    }
}

K_BLOCK_KERNEL(mp_cumulative_args, args) {
    const T *x = (const T *)args.x;
    T *out = (T *)args.out;
    K_SUM *carries = (K_SUM *)args.carries;
    const K_SUM none = args.product ? (K_SUM)1 : (K_SUM)0;
    if (args.stage == K_CUMULATIVE_LANES) {
        const int64_t lane = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
        for (int64_t row = lane; row < args.rows; row += (int64_t)gridDim.x * blockDim.x) {
            const int64_t first = s_first(&args, row);
            if (args.packed) {
                s_packs(&args, x + first, out + first, none);
            } else {
                s_single(&args, x + first, out + first, none);
            }
        }
        return;
    }
    const int64_t parts = args.stage == K_CUMULATIVE_CARRIES ? args.rows : args.rows * args.pieces;
    for (int64_t part = blockIdx.x; part < parts; part += gridDim.x) {
        if (args.stage == K_CUMULATIVE_CARRIES) {
            s_carries(&args, carries + part * args.pieces, none);
            continue;
        }
        const int64_t row = part / args.pieces, start = (part - row * args.pieces) * args.piece;
        const int64_t left = args.columns - start, first = s_first(&args, row);
        const int64_t end = start + (left < args.piece ? left : args.piece);
        const int writes = args.stage == K_CUMULATIVE_WRITE;
        const K_SUM carry = writes && carries ? carries[part] : none;
        const K_SUM total = s_piece(&args, x + first, writes ? out + first : 0, start, end, carry);
        if (!writes && threadIdx.x == 0) {
            carries[part] = total;
        }
    }
}
