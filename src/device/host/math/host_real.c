/* host_real.c - loops over elements for each type of library math.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/math/host_real.h"

#include "base/half.h"
#include "base/macros.h"

#include <string.h>

/* ---- computed types ---- */

/* Compiled for AVX2, too: the same operations, more at a time. */
#ifdef K_HOST_WIDE
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

enum { UNROLL = 16 }; /* a fixed inner length, which compilers turn into vector instructions */

#define DEFINE_REAL(T, word)                                                                     \
    static void fill_##word(void *to, const void *value, size_t count) {                         \
        T *y = to;                                                                               \
        const T v = value != NULL ? *(const T *)value : 0;                                       \
        for (size_t i = 0; i < count; i++) {                                                     \
            y[i] = v;                                                                            \
        }                                                                                        \
    }                                                                                            \
                                                                                                 \
    WIDE static void shift_##word(void *to, const void *value, size_t count) {                   \
        T *y = to;                                                                               \
        const T v = *(const T *)value;                                                           \
        for (size_t i = 0; i < count; i++) {                                                     \
            y[i] += v;                                                                           \
        }                                                                                        \
    }                                                                                            \
                                                                                                 \
    WIDE static void gather_##word(void *to, size_t to_step, const void *from, size_t from_step, \
                                   const void *weight, size_t count) {                           \
        T *restrict y = to;                                                                      \
        const T *restrict x = from;                                                              \
        const T w = *(const T *)weight;                                                          \
        if (to_step == 1 && from_step == 1) {                                                    \
            for (size_t i = 0; i < count; i++) {                                                 \
                y[i] += x[i] * w;                                                                \
            }                                                                                    \
        } else if (to_step == 1 && from_step == 2) {                                             \
            for (size_t i = 0; i < count; i++) {                                                 \
                y[i] += x[i * 2] * w;                                                            \
            }                                                                                    \
        } else {                                                                                 \
            for (size_t i = 0; i < count; i++) {                                                 \
                y[i * to_step] += x[i * from_step] * w;                                          \
            }                                                                                    \
        }                                                                                        \
    }                                                                                            \
                                                                                                 \
    static void add_##word(void *to, const void *more, size_t count, float scale) {              \
        const T w = (T)scale;                                                                    \
        gather_##word(to, 1, more, 1, &w, count);                                                \
    }

DEFINE_REAL(float, f32)
DEFINE_REAL(double, f64)

/* ---- stored types ---- */

#define DEFINE_STORED(S, T, word, widen, narrow)                                     \
    static void load_##word(void *to, const void *from, size_t count, size_t step) { \
        T *restrict y = to;                                                          \
        const S *restrict x = from;                                                  \
        size_t i = 0;                                                                \
        for (; step == 1 && i + UNROLL <= count; i += UNROLL) {                      \
            for (size_t j = 0; j < UNROLL; j++) {                                    \
                y[i + j] = widen(x[i + j]);                                          \
            }                                                                        \
        }                                                                            \
        for (; i < count; i++) {                                                     \
            y[i] = widen(x[i * step]);                                               \
        }                                                                            \
    }                                                                                \
                                                                                     \
    static void store_##word(void *to, const void *from, size_t count) {             \
        S *y = to;                                                                   \
        const T *x = from;                                                           \
        for (size_t i = 0; i < count; i++) {                                         \
            y[i] = narrow(x[i]);                                                     \
        }                                                                            \
    }

#define SAME(value) (value)
DEFINE_STORED(float, float, f32, SAME, SAME)
DEFINE_STORED(double, double, f64, SAME, SAME)
DEFINE_STORED(uint16_t, float, f16_plain, mp_from_f16, mp_to_f16)
DEFINE_STORED(uint16_t, float, bf16, mp_from_bf16, mp_to_bf16)

/* ---- float16 by the processor's own conversions, eight at a time ---- */

#if defined(__x86_64__)

#include <immintrin.h>

enum { EIGHT = 8 };

static bool has_f16c(void) {
    return __builtin_cpu_supports(
        "avx2"); /* never without F16C, which older compilers cannot name */
}

__attribute__((target("avx,f16c"))) static size_t load_eights(float *to, const uint16_t *from,
                                                              size_t count) {
    size_t i = 0;
    for (; i + EIGHT <= count; i += EIGHT) {
        __m128i halves;
        memcpy(&halves, from + i, sizeof halves);
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
    return i;
}

__attribute__((target("avx,f16c"))) static size_t store_eights(uint16_t *to, const float *from,
                                                               size_t count) {
    size_t i = 0;
    for (; i + EIGHT <= count; i += EIGHT) {
        const __m128i halves =
            _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
        memcpy(to + i, &halves, sizeof halves);
    }
    return i;
}

#else

static bool has_f16c(void) {
    return false;
}

static size_t load_eights(float *to, const uint16_t *from, size_t count) {
    (void)to, (void)from, (void)count;
    return 0;
}

static size_t store_eights(uint16_t *to, const float *from, size_t count) {
    (void)to, (void)from, (void)count;
    return 0;
}

#endif

static void load_f16(void *to, const void *from, size_t count, size_t step) {
    const size_t done = step == 1 && has_f16c() ? load_eights(to, from, count) : 0;
    load_f16_plain((float *)to + done, (const uint16_t *)from + done * step, count - done, step);
}

static void store_f16(void *to, const void *from, size_t count) {
    const size_t done = has_f16c() ? store_eights(to, from, count) : 0;
    store_f16_plain((uint16_t *)to + done, (const float *)from + done, count - done);
}

#define ROW(dtype, S, T, word, real)                                                            \
    {                                                                                           \
        .type = (dtype), .size = sizeof(S), .real_size = sizeof(T),                             \
        .direct = sizeof(S) == sizeof(T), .load = load_##word, .store = store_##word,           \
        .fill = fill_##real, .shift = shift_##real, .add = add_##real, .gather = gather_##real, \
        .product = mp__host_product_##real                                                      \
    }

const host_real *mp__host_real(mp_dtype type) {
    static const host_real rows[] = {
        ROW(MP_F32, float, float, f32, f32),
        ROW(MP_F64, double, double, f64, f64),
        ROW(MP_F16, uint16_t, float, f16, f32),
        ROW(MP_BF16, uint16_t, float, bf16, f32),
    };
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        if (rows[i].type == type) {
            return &rows[i];
        }
    }
    return NULL;
}
