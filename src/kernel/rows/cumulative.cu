/* cumulative.cu - running sums or products along rows. By one lane a row; by one block a row; or by
 * a block for each piece of a row in three launches: the pieces' totals, from those what lies
 * before each piece, and the results. The order of additions depends on sizes alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/core/block_scan.h"
#include "kernel/rows/row_args.h"

enum { ITEMS = 4 }; /* neighbours that a lane has at a time */

K_FN int64_t s_first(const mp_cumulative_args *args, int64_t row) {
    const int64_t outer = row / args->inner;
    return outer * args->columns * args->inner + (row - outer * args->inner);
}

K_FN int64_t s_at(const mp_cumulative_args *args, int64_t c) {
    return (args->reverse ? args->columns - 1 - c : c) * args->inner;
}

/* The columns [c, end) in order, by whoever calls; gives what all up to `end` come to. */
K_FN K_SUM s_run(const mp_cumulative_args *args, const T *x, T *out, int64_t c, int64_t end,
                 K_SUM sum) {
    for (; c < end; c++) {
        const int64_t at = s_at(args, c);
        const K_SUM next = k_join(sum, (K_SUM)T_load(x[at]), args->product);
        if (out) {
            out[at] = T_store((TC)(args->exclusive ? sum : next));
        }
        sum = next;
    }
    return sum;
}

/* The columns [start, end) by the lanes of a block. */
K_FN K_SUM s_piece(const mp_cumulative_args *args, const T *x, T *out, int64_t start, int64_t end,
                   K_SUM carry) {
    const K_SUM none = args->product ? (K_SUM)1 : (K_SUM)0;
    const int64_t width = (int64_t)blockDim.x * ITEMS;
    for (int64_t from = start; from < end; from += width) {
        const int64_t c = from + (int64_t)threadIdx.x * ITEMS;
        const int64_t last = c + ITEMS < end ? c + ITEMS : end;
        K_SUM all = none;
        const K_SUM mine = s_run(args, x, 0, c, last, none);
        const K_SUM before = k_join(carry, k_block_join(mine, args->product, &all), args->product);
        if (out) {
            (void)s_run(args, x, out, c, last, before);
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
            (void)s_run(&args, x + first, out + first, 0, args.columns, none);
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
