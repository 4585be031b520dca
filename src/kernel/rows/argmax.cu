/* argmax.cu - where in each row the best element is. By one block a row; by several blocks, whose
 * partial results are merged in a second launch; or by one lane a row. As ONNX Runtime's CPU
 * provider has it, a NaN never wins, but one in the first place does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/block.h"
#include "kernel/rows/sort_args.h"
#include "kernel/rows/sort_key.h"

K_FN k_best better(k_best a, k_best b) {
    return b.key < a.key || (b.key == a.key && b.tie < a.tie) ? b : a;
}

K_FN k_best nothing(void) {
    k_best none;
    none.key = ~(uint64_t)0;
    none.tie = ~(uint64_t)0;
    return none;
}

enum { AT_ONCE = 8 /* loads of a lane */ };

/* Of the columns first, first + step, ... below `end`. */
K_FN k_best search(const mp_argmax_args *args, const T *x, int64_t first, int64_t end,
                   int64_t step) {
    k_best best = nothing();
    for (int64_t from = first; from < end; from += step * AT_ONCE) {
        T value[AT_ONCE];
        K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
            const int64_t c = from + i * step;
            value[i] = x[(c < end ? c : from) * args->inner];
        }
        K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
            const int64_t c = from + i * step;
            const uint64_t bits = value[i];
            k_best mine;
            mine.key = k_order_key(bits, args->order);
            mine.tie = (uint64_t)c ^ args->last;
            if (c < end && !k_order_is_nan(bits, args->order)) {
                best = better(best, mine);
            }
        }
    }
    return best;
}

K_FN k_best over_block(k_best mine) {
    k_best best;
    best.key = k_block_min_u64(mine.key);
    best.tie = k_block_min_u64(mine.key == best.key ? mine.tie : ~(uint64_t)0);
    return best;
}

K_FN const T *row_of(const mp_argmax_args *args, int64_t row) {
    const int64_t outer = args->inner == 1 ? row : row / args->inner;
    return (const T *)args->x + outer * args->columns * args->inner + (row - outer * args->inner);
}

K_FN void put(const mp_argmax_args *args, int64_t row, k_best best) {
    const uint64_t first = row_of(args, row)[0];
    const int64_t index = (int64_t)(best.tie ^ args->last);
    const int none = best.key == ~(uint64_t)0 && best.tie == ~(uint64_t)0;
    args->out[row] = none || k_order_is_nan(first, args->order) ? 0 : index;
}

K_BLOCK_KERNEL(mp_argmax_args, args) {
    if (args.stage == K_ARGMAX_LANES) {
        const int64_t lane = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
        for (int64_t row = lane; row < args.rows; row += (int64_t)gridDim.x * blockDim.x) {
            put(&args, row, search(&args, row_of(&args, row), 0, args.columns, 1));
        }
        return;
    }
    const int64_t parts = args.stage == K_ARGMAX_PIECES ? args.rows * args.pieces : args.rows;
    for (int64_t part = blockIdx.x; part < parts; part += gridDim.x) {
        k_best best = nothing();
        if (args.stage == K_ARGMAX_PIECES) {
            const int64_t row = part / args.pieces, start = (part - row * args.pieces) * args.piece;
            const int64_t left = args.columns - start;
            const int64_t end = start + (left < args.piece ? left : args.piece);
            best = search(&args, row_of(&args, row), start + threadIdx.x, end, blockDim.x);
        } else if (args.stage == K_ARGMAX_MERGE) {
            K_BLOCK_LOOP(i, args.pieces) {
                best = better(best, args.partial[part * args.pieces + i]);
            }
        } else {
            best = search(&args, row_of(&args, part), threadIdx.x, args.columns, blockDim.x);
        }
        best = over_block(best);
        if (threadIdx.x == 0 && args.stage == K_ARGMAX_PIECES) {
            args.partial[part] = best;
        } else if (threadIdx.x == 0) {
            put(&args, part, best);
        }
    }
}
