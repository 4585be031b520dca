/* random.cu - uniform and normal random numbers. Normal ones by Box and Muller.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/philox.h"
#include "kernel/pointwise/pointwise_args.h"

#if T_DOUBLE
enum { EACH = 2 }; /* numbers from one set of words */
#else
enum { EACH = 4 };
#endif

/* Two numbers of [0, 1) become two of a normal distribution. */
K_FN void to_normal(TC *pair) {
    const TC radius = K_M(sqrt)((TC)-2 * K_M(log)((TC)1 - pair[0])); /* the logarithm of (0, 1] */
    const TC angle = (TC)6.283185307179586477 * pair[1];
    pair[0] = radius * K_M(cos)(angle);
    pair[1] = radius * K_M(sin)(angle);
}

K_KERNEL(mp_random_args, args) {
    T *out = (T *)args.out;
    K_GRID_LOOP(i, (args.count + EACH - 1) / EACH) {
        const k_words words = k_philox(args.seed, args.run, (uint64_t)i);
        TC number[EACH];
        for (int k = 0; k < EACH; k++) {
#if T_DOUBLE
            number[k] = k_uniform_f64(words.at[2 * k], words.at[2 * k + 1]);
#else
            number[k] = k_uniform_f32(words.at[k]);
#endif
        }
        for (int k = 0; k < EACH && args.normal; k += 2) {
            to_normal(number + k);
        }
        for (int k = 0; k < EACH && i * EACH + k < args.count; k++) {
            out[i * EACH + k] = T_store((TC)args.a + (TC)args.b * number[k]);
        }
    }
}
