/* narrow_test.c - element types that are only stored: every code, and casts to each of them against
 * a search among all its values.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

/* ---- the reference: the value of each code ---- */

typedef struct format {
    mp_dtype type;
    int exponent, mantissa, bias; /* bits, bits, offset */
    bool infinite;                /* the highest exponent is for inf and NaN */
    bool top_is_nan;              /* only the highest code is NaN */
    bool minus_is_nan;            /* -0 is NaN */
} format;

static const format formats[] = {
    {MP_F8E4M3FN, 4, 3, 7, false, true, false}, {MP_F8E4M3FNUZ, 4, 3, 8, false, false, true},
    {MP_F8E5M2, 5, 2, 15, true, false, false},  {MP_F8E5M2FNUZ, 5, 2, 16, false, false, true},
    {MP_F4E2M1, 2, 1, 1, false, false, false},
};

static double value_of(const format *f, int code) {
    const int sign = code >> (f->exponent + f->mantissa) & 1;
    const int top = (1 << f->exponent) - 1;
    const int e = code >> f->mantissa & top;
    const int m = code & ((1 << f->mantissa) - 1);
    const int rest = code & ((1 << (f->exponent + f->mantissa)) - 1);
    if (f->minus_is_nan && sign != 0 && rest == 0) {
        return (double)NAN;
    }
    if (f->top_is_nan && rest == (1 << (f->exponent + f->mantissa)) - 1) {
        return (double)NAN;
    }
    if (f->infinite && e == top) {
        return m != 0 ? (double)NAN : sign != 0 ? -(double)INFINITY : (double)INFINITY;
    }
    const double size = e == 0 ? ldexp(m, 1 - f->bias - f->mantissa)
                               : ldexp((1 << f->mantissa) + m, e - f->bias - f->mantissa);
    return sign != 0 ? -size : size;
}

static int codes_of(const format *f) {
    return 2 << (f->exponent + f->mantissa);
}

/* ---- running a cast ---- */

static void run_cast(mp_device *device, op_tensor x, mp_dtype to, int64_t onnx, bool saturate,
                     op_case *c) {
    const mp_attr attrs[] = {OP_INT("to", onnx), OP_INT("saturate", saturate)};
    *c = (op_case){.name = "Cast",
                   .version = 25,
                   .attrs = attrs,
                   .attr_count = 2,
                   .in = {x},
                   .in_count = 1,
                   .out_count = 1};
    op_run(device, c);
    CHECK(c->out[0].type == to);
}

/* Gives: every code once, as stored (free it). */
static uint8_t *all_codes(const format *f, int *count) {
    *count = codes_of(f);
    const bool half = *count == 16;
    uint8_t *codes = malloc(256);
    CHECK(codes != NULL);
    for (int i = 0; i < *count; i++) {
        if (!half) {
            codes[i] = (uint8_t)i;
        } else if (i % 2 == 0) {
            codes[i / 2] = (uint8_t)(i | (i + 1) << 4);
        }
    }
    return codes;
}

static void check_value(double got, double want, const format *f, int code) {
    const bool same = isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want);
    if (!same) {
        test_fail(__FILE__, __LINE__, "code %d of %s is %g, not %g", code, mp_dtype_name(f->type),
                  got, want);
    }
}

DEVICE_TEST(narrow_every_code_has_its_value) {
    const mp_dtype wide[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(formats); i++) {
        for (size_t t = 0; t < MP_COUNT_OF(wide); t++) {
            int count = 0;
            op_case c;
            uint8_t *codes = all_codes(&formats[i], &count);
            run_cast(device, OP_TENSOR(formats[i].type, codes, count), wide[t], wide[t], true, &c);
            for (int code = 0; code < count; code++) {
                check_value(op_real(wide[t], c.out[0].data, code), value_of(&formats[i], code),
                            &formats[i], code);
            }
            op_close(device, &c);
            free(codes);
        }
    }
}

/* ---- rounding: the nearest of all values, of two the one with the even code ---- */

/* The largest finite value; values from halfway to the next on are beyond it. */
static double largest(const format *f, double *beyond) {
    double high = 0;
    double second = 0;
    for (int code = 0; code < codes_of(f) / 2; code++) {
        const double value = value_of(f, code);
        if (isfinite(value)) {
            second = high;
            high = value;
        }
    }
    *beyond = high + (high - second) / 2;
    return high;
}

static double nearest(const format *f, double x) {
    double best = 0;
    for (int code = 0; code < codes_of(f) / 2; code++) {
        const double value = value_of(f, code);
        const double off = fabs(fabs(x) - value);
        const double best_off = fabs(fabs(x) - best);
        if (isfinite(value) && (off < best_off || (off == best_off && code % 2 == 0))) {
            best = value;
        }
    }
    return signbit(x) && !(f->minus_is_nan && best == 0) ? -best : best;
}

/* Whether the last place of the largest value is odd, so that halfway above it rounds up. */
static bool tie_goes_up(const format *f) {
    double beyond = 0;
    const double high = largest(f, &beyond);
    for (int code = 0; code < codes_of(f) / 2; code++) {
        if (value_of(f, code) == high) {
            return code % 2 != 0;
        }
    }
    return false;
}

static double rounded(const format *f, double x, bool saturate) {
    double beyond = 0;
    const double high = largest(f, &beyond);
    const bool keeps = saturate || f->type == MP_F4E2M1;
    const bool over = fabs(x) > beyond || (fabs(x) == beyond && tie_goes_up(f));
    if (isnan(x)) {
        return f->type == MP_F4E2M1 ? (signbit(x) ? -0.0 : 0.0) : x;
    }
    if (over) {
        return keeps ? copysign(high, x)
                     : (f->infinite ? copysign((double)INFINITY, x) : (double)NAN);
    }
    return nearest(f, x);
}

static void check_rounding(mp_device *device, const format *f, const float *x, int64_t count,
                           bool saturate) {
    op_case c;
    op_case back;
    run_cast(device, OP_TENSOR(MP_F32, x, count), f->type, f->type, saturate, &c);
    run_cast(device, OP_TENSOR(f->type, c.out[0].data, count), MP_F32, MP_F32, true, &back);
    for (int64_t i = 0; i < count; i++) {
        const double got = op_real(MP_F32, back.out[0].data, i);
        const double want = rounded(f, (double)x[i], saturate);
        if (isnan(want) ? !isnan(got) : got != want || signbit(got) != signbit(want)) {
            test_fail(__FILE__, __LINE__, "%a to %s (saturate %d) is %g, not %g", (double)x[i],
                      mp_dtype_name(f->type), saturate, got, want);
        }
    }
    op_close(device, &back);
    op_close(device, &c);
}

/* Every value, the middle between it and the next, and the floats beside both; with both signs. */
DEVICE_TEST(narrow_rounds_to_the_nearest) {
    enum { AROUND = 6, ROOM = 256 * AROUND * 2 + 16 };
    static const float edges[] = {0,         -0.0f,      INFINITY, -INFINITY, NAN,
                                  3.4e38f,   -3.4e38f,   1e-45f,   1e-30f,    -1e-30f,
                                  0x1p-149f, 0x1.8p-17f, 65536,    1e6f,      -1e6f};
    float *x = malloc(ROOM * sizeof *x);
    CHECK(x != NULL);
    for (size_t i = 0; i < MP_COUNT_OF(formats); i++) {
        const format *f = &formats[i];
        int64_t count = 0;
        for (int code = 0; code < codes_of(f) / 2; code++) {
            const double value = value_of(f, code);
            const double next = value_of(f, code + 1);
            if (!isfinite(value)) {
                continue;
            }
            const float at = (float)value;
            const float middle = (float)(isfinite(next) && next > value ? value + (next - value) / 2
                                                                        : value * 1.125);
            const float near[AROUND] = {
                at,     nextafterf(at, INFINITY),     nextafterf(at, -INFINITY),
                middle, nextafterf(middle, INFINITY), nextafterf(middle, -INFINITY)};
            for (int k = 0; k < AROUND; k++) {
                x[count++] = near[k];
                x[count++] = -near[k];
            }
        }
        memcpy(&x[count], edges, sizeof edges);
        count += (int64_t)MP_COUNT_OF(edges);
        check_rounding(device, f, x, count, true);
        check_rounding(device, f, x, count, false);
    }
    free(x);
}

/* ---- powers of two ---- */

DEVICE_TEST(narrow_powers_of_two) {
    static const float x[] = {1,          1.25f,     1.5f,        1.75f,          3, 0x1p127f,
                              0x1.8p127f, 0x1p-127f, 0x1.8p-127f, 0x1p-140f,      0, INFINITY,
                              -1,         NAN,       0x1p-126f,   0x1.000002p-20f};
    enum { COUNT = sizeof x / sizeof x[0], WRONG = 255 };
    static const struct {
        const char *mode;
        uint8_t saturated[COUNT], strict[COUNT];
    } modes[] = {
        {"up",
         {127, 128, 128, 128, 129, 254, 254, 0, 1, 0, 0, 254, 0, WRONG, 1, 108},
         {127, 128, 128, 128, 129, 254, WRONG, 0, 1, WRONG, WRONG, WRONG, WRONG, WRONG, 1, 108}},
        {"down",
         {127, 127, 127, 127, 128, 254, 254, 0, 0, 0, 0, 254, 0, WRONG, 1, 107},
         {127, 127, 127, 127, 128, 254, WRONG, 0, 0, WRONG, WRONG, WRONG, WRONG, WRONG, 1, 107}},
        {"nearest",
         {127, 127, 128, 128, 129, 254, 254, 0, 1, 0, 0, 254, 0, WRONG, 1, 107},
         {127, 127, 128, 128, 129, 254, WRONG, 0, 1, WRONG, WRONG, WRONG, WRONG, WRONG, 1, 107}},
    };
    for (size_t m = 0; m < MP_COUNT_OF(modes); m++) {
        for (int saturate = 0; saturate < 2; saturate++) {
            const mp_attr attrs[] = {OP_INT("to", 24), OP_INT("saturate", saturate),
                                     OP_TEXT("round_mode", modes[m].mode)};
            op_case c = {.name = "Cast",
                         .version = 25,
                         .attrs = attrs,
                         .attr_count = 3,
                         .in = {op_f32(x, COUNT)},
                         .in_count = 1,
                         .out_count = 1};
            op_run(device, &c);
            CHECK(c.out[0].type == MP_F8E8M0);
            CHECK(op_same(&c.out[0], saturate != 0 ? modes[m].saturated : modes[m].strict));
            op_close(device, &c);
        }
    }
}

/* ---- integers of less than a byte ---- */

static int64_t wrapped(mp_dtype type, int64_t value) {
    const int bits = (int)mp_dtype_bits(type);
    const bool has_sign = type == MP_I4 || type == MP_I2;
    const int64_t low = value & ((1 << bits) - 1);
    return has_sign && low >= 1 << (bits - 1) ? low - (1 << bits) : low;
}

/* Odd counts, so that the last byte is not full, from every type and back. */
DEVICE_TEST(narrow_integers_keep_their_low_bits) {
    static const struct {
        mp_dtype type;
        int onnx;
    } packed[] = {{MP_U4, 21}, {MP_I4, 22}, {MP_U2, 25}, {MP_I2, 26}};
    static const int64_t values[] = {0, 1, -1, 2, -2, 7, -8, 8, 15, 16, -17, 100, -100, 3, 5, 6, 9};
    enum { COUNT = sizeof values / sizeof values[0] };
    for (size_t t = 0; t < MP_COUNT_OF(packed); t++) {
        for (int f = 0; op_types[f] != MP_NONE; f++) {
            const mp_dtype from = op_types[f];
            op_case c;
            op_case back;
            void *x = op_memory(from, COUNT);
            for (int i = 0; i < COUNT; i++) {
                const bool below = (MP_BIT(from) & (MP_UNSIGNED_INTS | MP_BIT(MP_BOOL))) != 0;
                const int64_t value = below && values[i] < 0 ? -values[i] : values[i];
                op_is_float(from) ? op_store_real(from, x, i, (double)value)
                                  : op_store_whole(from, x, i, value);
            }
            run_cast(device, OP_TENSOR(from, x, COUNT), packed[t].type, packed[t].onnx, true, &c);
            run_cast(device, OP_TENSOR(packed[t].type, c.out[0].data, COUNT), MP_I64, MP_I64, true,
                     &back);
            for (int i = 0; i < COUNT; i++) {
                const int64_t value =
                    op_is_float(from) ? (int64_t)op_real(from, x, i) : op_whole(from, x, i);
                CHECK_EQ_INT(op_whole(MP_I64, back.out[0].data, i), wrapped(packed[t].type, value));
            }
            op_close(device, &back);
            op_close(device, &c);
            free(x);
        }
    }
}

DEVICE_TEST(narrow_casts_need_no_alignment) {
    enum { COUNT = 1021 };
    const mp_attr attrs[] = {OP_INT("to", 22)};
    float *x = op_numbers(MP_F32, 3, COUNT);
    for (uint32_t skew = 0; skew <= 4; skew += 4) {
        op_case back;
        op_case c = {.name = "Cast",
                     .version = 25,
                     .attrs = attrs,
                     .attr_count = 1,
                     .align = skew != 0 ? 1 : 16,
                     .skew = skew,
                     .in = {op_f32(x, COUNT)},
                     .in_count = 1,
                     .out_count = 1};
        op_run(device, &c);
        run_cast(device, OP_TENSOR(MP_I4, c.out[0].data, COUNT), MP_F32, MP_F32, true, &back);
        for (int i = 0; i < COUNT; i++) {
            CHECK(((const float *)back.out[0].data)[i] == roundf(x[i]));
        }
        op_close(device, &back);
        op_close(device, &c);
    }
    free(x);
}

/* ---- tests of values ---- */

DEVICE_TEST(narrow_isnan_and_isinf) {
    for (size_t i = 0; i < MP_COUNT_OF(formats); i++) {
        const format *f = &formats[i];
        int count = 0;
        uint8_t *codes = all_codes(f, &count);
        if (f->type == MP_F4E2M1) {
            free(codes);
            continue;
        }
        for (int which = 0; which < 4; which++) {
            const mp_attr attrs[] = {OP_INT("detect_positive", which != 2),
                                     OP_INT("detect_negative", which != 3)};
            op_case c = {.name = which == 0 ? "IsNaN" : "IsInf",
                         .version = 20,
                         .attrs = attrs,
                         .attr_count = which == 0 ? 0 : 2,
                         .in = {OP_TENSOR(f->type, codes, count)},
                         .in_count = 1,
                         .out_count = 1};
            op_run(device, &c);
            for (int code = 0; code < count; code++) {
                const double value = value_of(f, code);
                const bool infinite = isinf(value) && (signbit(value) ? which != 3 : which != 2);
                const bool want = which == 0 ? isnan(value) : infinite;
                CHECK_EQ_INT(((const uint8_t *)c.out[0].data)[code], want);
            }
            op_close(device, &c);
        }
        free(codes);
    }
}

DEVICE_TEST(narrow_cast_refuses_a_mode_it_does_not_know) {
    const float x[] = {1};
    const mp_attr attrs[] = {OP_INT("to", 24), OP_TEXT("round_mode", "sideways")};
    mp_plan *plan = NULL;
    const op_case c = {.name = "Cast",
                       .version = 25,
                       .attrs = attrs,
                       .attr_count = 2,
                       .in = {op_f32(x, 1)},
                       .in_count = 1,
                       .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "'sideways'");
}
