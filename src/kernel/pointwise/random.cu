/* random.cu - uniform and normal random numbers. Normal ones by Box and Muller; in float on a GPU
 * by its approximate functions, which is within 2^-18 of a deviation of the exact result.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/philox.h"
#include "kernel/core/vector.h"
#include "kernel/pointwise/pointwise_args.h"

enum { EACH = T_DOUBLE ? 2 : 4 }; /* numbers from one set of words */

#if T_DOUBLE

K_FN void to_uniform(k_words words, TC *number) {
    for (int k = 0; k < EACH; k++) {
        number[k] = k_uniform_f64(words.at[2 * k], words.at[2 * k + 1]);
    }
}

K_FN void to_normal(k_words words, TC *number) {
    TC pair[EACH];
    to_uniform(words, pair);
    const TC radius = sqrt(-2 * log(1 - pair[0])); /* the logarithm of (0, 1] */
    const TC angle = 6.283185307179586477 * pair[1];
    number[0] = radius * cos(angle);
    number[1] = radius * sin(angle);
}

#else

#if K_PTX
#define APPROXIMATE(name, word)                                 \
    K_FN float name(float x) {                                  \
        float y;                                                \
        asm(word ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); \
        return y;                                               \
    }
APPROXIMATE(quick_log2, "lg2")
APPROXIMATE(quick_root, "sqrt")
APPROXIMATE(quick_sine, "sin")
APPROXIMATE(quick_cosine, "cos")
#else
#define quick_log2   log2f
#define quick_root   sqrtf
#define quick_sine   sinf
#define quick_cosine cosf
#endif

K_FN void to_uniform(k_words words, TC *number) {
    for (int k = 0; k < EACH; k++) {
        number[k] = k_uniform_f32(words.at[k]);
    }
}

/* The root of -2 log(1 - u). Near 0 by the first terms: the approximation is of a fixed absolute
 * error. */
K_FN float radius_of(float u) {
    const float near = u * (2 + u * (1 + u * (2.0f / 3)));
    const float far = -1.386294361f * quick_log2(1 - u);
    return quick_root(u < 0x1p-6f ? near : far);
}

/* The angle counts from -1/2 to 1/2 turns, where sine and cosine are best. */
K_FN void to_normal(k_words words, TC *number) {
    for (int k = 0; k < EACH; k += 2) {
        const float radius = radius_of(k_uniform_f32(words.at[k]));
        const float angle = 6.283185307f * 0x1p-24f * (float)((int32_t)words.at[k + 1] >> 8);
        number[k] = radius * quick_cosine(angle);
        number[k + 1] = radius * quick_sine(angle);
    }
}

#endif

K_KERNEL(mp_random_args, args) {
    K_GRID_LOOP(i, (args.count + EACH - 1) / EACH) {
        const k_words words = k_philox(args.seed, args.run, (uint64_t)i);
        TC number[EACH];
        k_vector made;
        if (args.normal) {
            to_normal(words, number);
        } else {
            to_uniform(words, number);
        }
        for (int k = 0; k < EACH; k++) {
            made.lane[k] = T_store((TC)args.a + (TC)args.b * number[k]);
        }
        k_vector_write((T *)args.out, i * EACH, args.count, made);
    }
}
