/* nms_order.cu - sorts the boxes of each list, the best first: a block counts for a box those that
 * are better. Behind those that may be selected come the others, as -1.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/nms_box.h"

K_BLOCK_KERNEL(mp_nms_args, args) {
    for (int64_t n = blockIdx.x; n < args.lists * args.count; n += gridDim.x) {
        const int64_t list = n / args.count, own = n % args.count;
        const float *scores = args.scores + list * args.count;
        const int64_t rank = rank_where_fit(&args, scores, own);
        int64_t better = 0;
        K_BLOCK_LOOP(i, args.count) {
            better += rank_where_fit(&args, scores, i) > rank;
        }
        better = k_block_sum_i64(better);
        if (threadIdx.x == 0) {
            const float *boxes = args.boxes + list / args.classes * args.count * 4;
            const int64_t at = list * args.count + better;
            args.order[at] = rank < 0 ? -1 : (int32_t)own;
            ((box *)args.sorted)[at] = box_of(&args, boxes + own * 4);
        }
    }
}
