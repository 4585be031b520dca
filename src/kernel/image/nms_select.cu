/* nms_select.cu - one block a list: again and again the best box that is left, after those that
 * overlap the one before are taken out; each round goes through the boxes once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/nms_box.h"

K_BLOCK_KERNEL(mp_nms_args, args) {
    for (int64_t list = blockIdx.x; list < args.lists; list += gridDim.x) {
        const float *boxes = args.boxes + list / args.classes * args.count * 4;
        const float *scores = args.scores + list * args.count;
        uint8_t *gone = args.gone + list * args.count;
        int64_t selected = 0, last = -1;
        while (selected < args.most) {
            int64_t best = -1;
            const box before = last >= 0 ? box_of(&args, boxes + last * 4) : box_of(&args, boxes);
            K_BLOCK_LOOP(i, args.count) {
                const int64_t rank = rank_where_fit(&args, scores, i);
                if (rank < 0 || (last >= 0 && gone[i])) {
                    gone[i] = 1;
                    continue;
                }
                gone[i] = i == last || (last >= 0 && overlaps(before, box_of(&args, boxes + i * 4),
                                                              args.overlap));
                best = !gone[i] && rank > best ? rank : best;
            }
            best = k_block_max_i64(best);
            if (best < 0) {
                break;
            }
            last = index_of(best);
            if (threadIdx.x == 0) {
                args.picked[list * args.most + selected] = (int32_t)last;
            }
            selected++;
        }
        if (threadIdx.x == 0) {
            args.starts[list] = selected;
        }
    }
}
