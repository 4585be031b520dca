/* moe_route.cu - the k best experts of each row and their weights.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/moe_pick.h"
#include "kernel/rows/sort_args.h"

enum { GROUP = 32 };

K_BLOCK_KERNEL(mp_moe_route_args, args) {
    const k_round t = k_rounds(GROUP);
    const int32_t k = args.from.k;
    for (int64_t first = t.first; first < args.rows; first += t.step) {
        const int64_t row = first + t.group < args.rows ? first + t.group : args.rows - 1;
        const int writes = t.lane == 0 && first + t.group < args.rows;
        const e_scores scores = e_scores_of(&args.from, row);
        k_pair *pairs = (k_pair *)args.pairs + row * k;
        float *weight = (float *)args.weight + row * k;
        e_walk walk = e_begin();
        for (int32_t j = 0; j < k; j++) {
            const float share = e_step(&t, &scores, &walk);
            if (writes) {
                pairs[j].key = (uint64_t)walk.last.expert;
                pairs[j].index = row * k + j;
                weight[j] = share;
            }
        }
        if (writes && args.from.normalize) {
            e_normalize(weight, k);
        }
    }
}
