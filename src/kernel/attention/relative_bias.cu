/* relative_bias.cu - a bias for each head and each distance from query to key. Near distances have
 * a bucket each, farther ones share buckets that grow with the logarithm, and all beyond are in the
 * last. A lane finds the bucket once for all heads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/core/prelude.h"

K_FN int64_t bucket_of(const mp_relative_bias_args *args, int64_t ahead) {
    const int64_t distance = ahead < 0 ? -ahead : args->both ? ahead : 0;
    const int64_t first = args->both && ahead > 0 ? args->buckets : 0;
    if (distance < args->exact) {
        return first + distance;
    }
    const int32_t shared = args->buckets - args->exact;
    const float part = logf((float)distance / (float)args->exact) / args->log_range;
    const float at = part * (float)shared;
    return first + (at < (float)shared ? args->exact + (int64_t)at : args->buckets - 1);
}

K_KERNEL(mp_relative_bias_args, args) {
    const int64_t plane = args.rows * args.rows;
    const int64_t line = (int64_t)args.buckets * (args.both ? 2 : 1);
    K_GRID_LOOP(i, plane) {
        const int64_t query = i / args.rows, key = i - query * args.rows;
        const int64_t bucket = bucket_of(&args, key - query);
        for (int64_t head = 0; head < args.heads; head++) {
            ((T *)args.out)[head * plane + i] = ((const T *)args.table)[head * line + bucket];
        }
    }
}
