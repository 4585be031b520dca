/* attention_combine.cu - adds up what the blocks of attention_few.cu found in their shares of the
 * keys. One lane an element of the result.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"

K_KERNEL(mp_attention_args, args) {
    const k_score_rule *rule = &args.rule;
    const int64_t size = args.v_head_size, pitch = size + K_ATTENTION_STATE;
    K_GRID_LOOP(i, rule->batch * rule->heads * rule->rows * size) {
        const int64_t line = i / size, d = i - line * size;
        const int64_t unit = line / rule->rows, row = line - unit * rule->rows;
        const int64_t entry = unit / rule->heads, head = unit - entry * rule->heads;
        const float *part = (const float *)args.part + line * args.splits * pitch;
        const float sink = a_sink(rule, head);
        float top = sink, total = 0, sum = 0;
        for (int64_t s = 0; s < args.splits; s++) {
            top = part[s * pitch] > top ? part[s * pitch] : top;
        }
        for (int64_t s = 0; s < args.splits; s++) {
            const float *state = part + s * pitch;
            const float share = state[1] == 0 ? 0 : expf(state[0] - top);
            total += share * state[1];
            sum += state[1] == 0 ? 0 : share * state[K_ATTENTION_STATE + d];
        }
        ((T *)args.out)[entry * args.out_stride[0] + head * args.out_stride[1] +
                        row * args.out_stride[2] + d] = T_store(sum * a_norm(top, total, sink));
    }
}
