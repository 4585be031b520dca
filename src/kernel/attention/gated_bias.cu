/* gated_bias.cu - a bias of attention times a gate that follows from the query. A block finds the
 * gate of a row from sums over its head and writes the row. A gate is a sum over columns of a
 * product, so all its terms are added up at once and the product is never written down.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/core/block.h"

K_FN float g_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* `token` below 0: one that was left out, which counts as 0. */
K_FN float g_gate(const mp_gated_bias_args *args, int64_t token, int64_t head) {
    const int64_t first = head * args->size, half = args->columns / 2;
    const T *query = (const T *)args->query + (token * args->heads * args->size + first);
    const T *bias = (const T *)args->query_bias + first;
    float sum[2] = {0, 0};
    K_BLOCK_LOOP(i, args->size * args->columns) {
        const int64_t e = i / args->columns, c = i - e * args->columns;
        const float x = T_load(bias[e]) + (token < 0 ? 0.0f : T_load(query[e]));
        const float term = x * T_load(((const T *)args->weight)[i]);
        sum[0] += c < half ? term : 0.0f;
        sum[1] += c < half ? 0.0f : term;
    }
    K_BLOCK_LOOP(c, args->columns) {
        const float term = T_load(((const T *)args->weight_bias)[c]);
        sum[0] += c < half ? term : 0.0f;
        sum[1] += c < half ? 0.0f : term;
    }
    const float first_gate = g_sigmoid(k_block_sum_f32(sum[0]));
    const float second = g_sigmoid(k_block_sum_f32(sum[1]));
    return first_gate * (second * T_load(((const T *)args->limit)[head]) - 1.0f) + 2.0f;
}

K_BLOCK_KERNEL(mp_gated_bias_args, args) {
    const int64_t places = args.batch * args.rows;
    if (args.stage == K_GATED_BIAS_PLACES) { /* an offset that is out of range is of no token */
        K_GRID_LOOP(i, args.tokens) {
            const int64_t at = args.offsets[i];
            if (at >= 0 && at < places) {
                args.places[at] = (int32_t)i;
            }
        }
        return;
    }
    for (int64_t line = blockIdx.x; line < places * args.heads; line += gridDim.x) {
        const int64_t entry = line / (args.heads * args.rows);
        const int64_t at = line - entry * args.heads * args.rows;
        const int64_t head = at / args.rows, row = at - head * args.rows;
        const int64_t place = entry * args.rows + row;
        const int64_t token = args.places ? (int64_t)args.places[place] : place;
        const float gate = g_gate(&args, token, head);
        const T *bias = (const T *)args.bias + at * args.rows;
        T *out = (T *)args.out + line * args.rows;
        K_BLOCK_LOOP(i, args.rows) {
            out[i] = T_store(gate * T_load(bias[i]));
        }
    }
}
