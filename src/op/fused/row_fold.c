/* row_fold.c - see row_fold.h.
 *
 * Each loop has several partial results, which a compiler keeps in vectors. Sums and products are
 * of doubles. Extremes leave NaN out, and count it: where there is one, it is the result.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/row_fold.h"

#include <math.h>

enum { PARTS = 8 };

#define ADD(a, b)      ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define MOST(a, b)     ((b) > (a) ? (b) : (a))
#define LEAST(a, b)    ((b) < (a) ? (b) : (a))

/* A row that has not one element for each of the parts is soonest done one by one. */
#define FOLD_SHORT(name, type, combine, none)                                        \
    static void name(const void *from, int64_t rows, int64_t columns, double *out) { \
        const type *x = (const type *)from;                                          \
        for (int64_t r = 0; r < rows; r++, x += columns) {                           \
            double all = (double)(none);                                             \
            int odd = 0;                                                             \
            for (int64_t c = 0; c < columns; c++) {                                  \
                const double value = (double)x[c];                                   \
                all = combine(all, value);                                           \
                odd |= value != value;                                               \
            }                                                                        \
            out[r] = odd != 0 ? (double)NAN : all;                                   \
        }                                                                            \
    }

#define FOLD(name, type, combine, none)                                              \
    FOLD_SHORT(name##_short, type, combine, none)                                    \
    static void name(const void *from, int64_t rows, int64_t columns, double *out) { \
        const type *x = (const type *)from;                                          \
        if (columns < PARTS) {                                                       \
            name##_short(x, rows, columns, out);                                     \
            return;                                                                  \
        }                                                                            \
        for (int64_t r = 0; r < rows; r++, x += columns) {                           \
            double part[PARTS];                                                      \
            int64_t c = 0;                                                           \
            for (int k = 0; k < PARTS; k++) {                                        \
                part[k] = none;                                                      \
            }                                                                        \
            for (; c + PARTS <= columns; c += PARTS) {                               \
                for (int k = 0; k < PARTS; k++) {                                    \
                    part[k] = combine(part[k], (double)x[c + k]);                    \
                }                                                                    \
            }                                                                        \
            for (int k = 0; c + k < columns; k++) {                                  \
                part[k] = combine(part[k], (double)x[c + k]);                        \
            }                                                                        \
            for (int half = PARTS / 2; half > 0; half /= 2) {                        \
                for (int k = 0; k < half; k++) {                                     \
                    part[k] = combine(part[k], part[k + half]);                      \
                }                                                                    \
            }                                                                        \
            out[r] = part[0];                                                        \
        }                                                                            \
    }

/* `count` is an integer as wide as `type`. */
#define EXTREME(name, type, count, combine, none)                                    \
    FOLD_SHORT(name##_short, type, combine, none)                                    \
    static void name(const void *from, int64_t rows, int64_t columns, double *out) { \
        const type *x = (const type *)from;                                          \
        if (columns < PARTS) {                                                       \
            name##_short(x, rows, columns, out);                                     \
            return;                                                                  \
        }                                                                            \
        for (int64_t r = 0; r < rows; r++, x += columns) {                           \
            type part[PARTS];                                                        \
            count odd[PARTS] = {0};                                                  \
            int64_t c = 0;                                                           \
            for (int k = 0; k < PARTS; k++) {                                        \
                part[k] = none;                                                      \
            }                                                                        \
            for (; c + PARTS <= columns; c += PARTS) {                               \
                for (int k = 0; k < PARTS; k++) {                                    \
                    const type value = x[c + k];                                     \
                    part[k] = combine(part[k], value);                               \
                    odd[k] |= value != value;                                        \
                }                                                                    \
            }                                                                        \
            for (int k = 0; c + k < columns; k++) {                                  \
                part[k] = combine(part[k], x[c + k]);                                \
                odd[k] |= x[c + k] != x[c + k];                                      \
            }                                                                        \
            for (int k = 1; k < PARTS; k++) {                                        \
                part[0] = combine(part[0], part[k]);                                 \
                odd[0] |= odd[k];                                                    \
            }                                                                        \
            out[r] = odd[0] != 0 ? (double)NAN : (double)part[0];                    \
        }                                                                            \
    }

FOLD(sum_f32, float, ADD, 0)
FOLD(sum_f64, double, ADD, 0)
FOLD(product_f32, float, MULTIPLY, 1)
FOLD(product_f64, double, MULTIPLY, 1)
EXTREME(most_f32, float, int32_t, MOST, -HUGE_VALF)
EXTREME(most_f64, double, int64_t, MOST, -HUGE_VAL)
EXTREME(least_f32, float, int32_t, LEAST, HUGE_VALF)
EXTREME(least_f64, double, int64_t, LEAST, HUGE_VAL)

double mp_row_fold_none(mp_reduction reduction) {
    return reduction == MP_ROW_MAX       ? -HUGE_VAL
           : reduction == MP_ROW_MIN     ? HUGE_VAL
           : reduction == MP_ROW_PRODUCT ? 1
                                         : 0;
}

/* Of float, and of double. */
static void (*const folds[][2])(const void *, int64_t, int64_t, double *) = {
    [MP_ROW_SUM] = {sum_f32, sum_f64},
    [MP_ROW_MEAN] = {sum_f32, sum_f64},
    [MP_ROW_MAX] = {most_f32, most_f64},
    [MP_ROW_MIN] = {least_f32, least_f64},
    [MP_ROW_PRODUCT] = {product_f32, product_f64},
};

void mp_row_fold(mp_reduction reduction, bool is_wide, const void *x, int64_t rows, int64_t columns,
                 double *out) {
    folds[reduction][is_wide](x, rows, columns, out);
}

double mp_row_fold_both(mp_reduction reduction, double a, double b) {
    const double both[] = {a, b};
    double out = 0;
    mp_row_fold(reduction, true, both, 1, 2, &out);
    return out;
}

/* ---- repeating ---- */

#define SPREAD(name, type)                                                       \
    static void name(type *restrict to, const type *restrict from, int64_t rows, \
                     int64_t columns) {                                          \
        for (int64_t r = 0; r < rows; r++, to += columns) {                      \
            const type one = from[r];                                            \
            for (int64_t c = 0; c < columns; c++) {                              \
                to[c] = one;                                                     \
            }                                                                    \
        }                                                                        \
    }

SPREAD(spread_8, uint8_t)
SPREAD(spread_16, uint16_t)
SPREAD(spread_32, uint32_t)
SPREAD(spread_64, uint64_t)

void mp_row_spread(void *to, const void *from, size_t size, int64_t rows, int64_t columns) {
    switch (size) {
    case 1:
        spread_8(to, from, rows, columns);
        break;
    case 2:
        spread_16(to, from, rows, columns);
        break;
    case 4:
        spread_32(to, from, rows, columns);
        break;
    default:
        spread_64(to, from, rows, columns);
        break;
    }
}
