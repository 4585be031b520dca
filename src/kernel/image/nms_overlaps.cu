/* nms_overlaps.cu - which of the boxes behind each one, in their order, overlap it: a bit for each.
 * The boxes are some of a list, unless enough of those before are selected. Neighbouring lanes have
 * neighbouring boxes and look at the same 64 others.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/nms_box.h"

K_KERNEL(mp_nms_args, args) {
    K_GRID_LOOP(n, args.lists * args.words * args.rows) {
        const int64_t row = n % args.rows, word = n / args.rows % args.words;
        const int64_t list = n / args.rows / args.words, own = args.first + row;
        if (word < own / K_NMS_WORD || own >= args.count ||
            args.order[list * args.count + own] < 0 ||
            (args.first > 0 && args.starts[list] >= args.most)) {
            continue; /* nobody reads it */
        }
        const box *sorted = (const box *)args.sorted + list * args.count;
        const box before = sorted[own];
        const int64_t first = word * K_NMS_WORD;
        uint64_t bits = 0;
        K_ONE_COPY
        for (int k = 0; k < K_NMS_WORD && first + k < args.count; k++) {
            if (first + k > own && overlaps(before, sorted[first + k], args.overlap)) {
                bits |= 1ull << k;
            }
        }
        args.bits[(list * args.rows + row) * args.words + word] = bits;
    }
}
