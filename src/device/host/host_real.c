/* host_real.c - loops over elements for each type of library math.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_real.h"

#include "base/half.h"
#include "base/macros.h"

#include <string.h>

/* ---- computed types ---- */

enum { UNROLL = 16 }; /* a fixed inner length, which compilers turn into vector instructions */

#define DEFINE_REAL(T, word)                                                                \
    static void fill_##word(void *to, const void *value, size_t count) {                    \
        T *y = to;                                                                          \
        const T v = value != NULL ? *(const T *)value : 0;                                  \
        for (size_t i = 0; i < count; i++) {                                                \
            y[i] = v;                                                                       \
        }                                                                                   \
    }                                                                                       \
                                                                                            \
    static void shift_##word(void *to, const void *value, size_t count) {                   \
        T *y = to;                                                                          \
        const T v = *(const T *)value;                                                      \
        for (size_t i = 0; i < count; i++) {                                                \
            y[i] += v;                                                                      \
        }                                                                                   \
    }                                                                                       \
                                                                                            \
    static void gather_##word(void *to, size_t to_step, const void *from, size_t from_step, \
                              const void *weight, size_t count) {                           \
        T *restrict y = to;                                                                 \
        const T *restrict x = from;                                                         \
        const T w = *(const T *)weight;                                                     \
        size_t i = 0;                                                                       \
        for (; to_step == 1 && from_step == 1 && i + UNROLL <= count; i += UNROLL) {        \
            for (size_t j = 0; j < UNROLL; j++) {                                           \
                y[i + j] += x[i + j] * w;                                                   \
            }                                                                               \
        }                                                                                   \
        for (; i < count; i++) {                                                            \
            y[i * to_step] += x[i * from_step] * w;                                         \
        }                                                                                   \
    }                                                                                       \
                                                                                            \
    static void add_##word(void *to, const void *more, size_t count, float scale) {         \
        const T w = (T)scale;                                                               \
        gather_##word(to, 1, more, 1, &w, count);                                           \
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
    static void store_##word(void *to, const void *from, size_t count, bool relu) {  \
        S *y = to;                                                                   \
        const T *x = from;                                                           \
        for (size_t i = 0; i < count; i++) {                                         \
            y[i] = narrow(relu && x[i] < 0 ? 0 : x[i]);                              \
        }                                                                            \
    }

#define SAME(value) (value)
DEFINE_STORED(float, float, f32, SAME, SAME)
DEFINE_STORED(double, double, f64, SAME, SAME)
DEFINE_STORED(uint16_t, float, f16, mp_from_f16, mp_to_f16)
DEFINE_STORED(uint16_t, float, bf16, mp_from_bf16, mp_to_bf16)

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
