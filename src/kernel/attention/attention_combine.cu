/* attention_combine.cu - adds up what the blocks of attention_few.cu found in their shares of the
 * keys. One block a row: its lanes first find what each share is multiplied by, then an element of
 * the result each.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"
#include "kernel/core/block.h"

enum { AT_ONCE = 8 /* loads of a lane */ };

/* Sets `weight` of each share, of which it and `total` are as many floats of the block. Returns
 * what the weighted sums are multiplied by. */
K_FN float combine_weights(const float *part, int64_t pitch, int64_t splits, float sink,
                           float *weight, float *total) {
    float top = sink, all = 0;
    K_BLOCK_LOOP(s, splits) {
        weight[s] = part[s * pitch];
        total[s] = part[s * pitch + 1];
        top = weight[s] > top ? weight[s] : top;
    }
    top = k_block_max_f32(top);
    K_BLOCK_LOOP(s, splits) { /* each lane those that it has set */
        weight[s] = total[s] == 0 ? 0 : expf(weight[s] - top);
        all += weight[s] * total[s];
    }
    all = k_block_sum_f32(all);
    __syncthreads();
    return a_norm(top, all, sink);
}

K_FN float combine_element(const float *part, int64_t pitch, int64_t splits, const float *weight) {
    float sum = 0;
    for (int64_t first = 0; first < splits; first += AT_ONCE) {
        float value[AT_ONCE];
        K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
            value[i] = part[(first + i < splits ? first + i : first) * pitch];
        }
        K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
            const float share = first + i < splits ? weight[first + i] : 0;
            sum += share == 0 ? 0 : share * value[i];
        }
    }
    return sum;
}

K_BLOCK_KERNEL_UP_TO(K_ATTENTION_LANES, mp_attention_args, args) {
    K_SHARED(float, weight);
    const k_score_rule *rule = &args.rule;
    const int64_t pitch = args.v_head_size + K_ATTENTION_STATE;
    const int64_t lines = rule->batch * rule->heads * rule->rows;
    for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
        const int64_t unit = a_divide(line, rule->rows), row = line - unit * rule->rows;
        const int64_t entry = a_divide(unit, rule->heads), head = unit - entry * rule->heads;
        const float *part = (const float *)args.part + line * args.splits * pitch;
        T *out = (T *)args.out + entry * args.out_stride[0] + head * args.out_stride[1] +
                 row * args.out_stride[2];
        const float norm = combine_weights(part, pitch, args.splits, a_sink(rule, head), weight,
                                           weight + args.splits);
        K_BLOCK_LOOP(d, args.v_head_size) {
            out[d] = T_store(
                norm * combine_element(part + K_ATTENTION_STATE + d, pitch, args.splits, weight));
        }
        __syncthreads();
    }
}
