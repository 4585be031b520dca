/* reduce_lane.cu - one lane for each output, or for each piece of it: best where outputs are many
 * and neighbours in memory, or where little goes into each. Pieces are merged by reduce_block.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/reduce.h"

K_KERNEL(mp_reduce_args, args) {
    const int pieces = args.stage == K_REDUCE_PIECES;
    K_GRID_LOOP(i, pieces ? args.outputs * args.pieces : args.outputs) {
        const int64_t part = i / args.outputs, o = i - part * args.outputs;
        const int64_t start = part * args.piece, left = args.reduced - start;
        const int64_t end = pieces && left > args.piece ? start + args.piece : args.reduced;
        const T *x = (const T *)args.x + r_kept(&args, o);
        K_SUM sum = r_identity();
        for (int64_t c = start; c < end; c++) {
            sum = r_add(sum, r_load(x[r_dropped(&args, c)]));
        }
        if (pieces) {
            ((K_SUM *)args.partial)[o * args.pieces + part] = sum;
        } else {
            ((T *)args.out)[o] = r_store(sum, args.reduced);
        }
    }
}
