/* indexer_query.cu - heads of tokens that choose keys: normalised and turned, as float.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"

#include "kernel/attention/indexer.h"

K_BLOCK_KERNEL(mp_indexer_query_args, args) {
    K_SHARED(float, shared);
    const k_round t = k_rounds(K_INDEXER_WIDTH);
    const int64_t rows = args.at.tokens * args.heads;
    K_ROUND_LOOP(first, t, rows) {
        const int64_t row = first + t.group;
        x_token token = {-1, 0, 0};
        if (row < rows) {
            token = x_token_of(&args.at, row / args.heads);
        }
        const int32_t size = token.entry >= 0 ? args.size : 0;
        float *x = shared + t.group * args.size;
        const T *from = (const T *)args.x + row / args.heads * args.pitch +
                        row % args.heads * (int64_t)args.size;
        for (int32_t i = (int32_t)t.lane; i < size; i += (int32_t)t.width) {
            x[i] = T_load(from[i]);
        }
        x_norm(x, (const T *)args.weight, size, args.epsilon, t);
        __syncthreads();
        if (row < rows) { /* a token of no entry is 0 */
            float *to = (float *)args.out + row * args.size;
            for (int32_t i = (int32_t)t.lane; i < args.size; i += (int32_t)t.width) {
                to[i] =
                    size > 0 ? x_turned(&args.turn, x, size, token.entry, token.position, i) : 0.0f;
            }
        }
        __syncthreads();
    }
}
