/* dropout.cu - drops elements at random and scales the others. `out` may be x.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/philox.h"
#include "kernel/pointwise/pointwise_args.h"

enum { EACH = 4 };

K_KERNEL(mp_dropout_args, args) {
    const T *x = (const T *)args.x;
    T *out = (T *)args.out;
    const TC scale = (TC)1 / ((TC)1 - (TC)args.ratio);
    K_GRID_LOOP(i, (args.count + EACH - 1) / EACH) {
        const k_words words = k_philox(args.seed, args.run, (uint64_t)i);
        for (int k = 0; k < EACH; k++) {
            const int64_t at = i * EACH + k;
            const int stays = k_uniform_f32(words.at[k]) >= args.ratio;
            if (at < args.count) {
                out[at] = T_store(stays ? T_load(x[at]) * scale : (TC)0);
            }
            if (at < args.count && args.mask && args.typed_mask) {
                ((T *)args.mask)[at] = T_store((TC)stays);
            } else if (at < args.count && args.mask) {
                ((uint8_t *)args.mask)[at] = (uint8_t)stays;
            }
        }
    }
}
