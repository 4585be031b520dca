/* narrow.c - the table of types that are only stored.
 * Kernel: pointwise/byte_set.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/pointwise/narrow.h"

#include "base/macros.h"
#include "op/core/op.h"

#include <math.h>

/* ---- formats ---- */

enum { NEVER = 0xffff }; /* a code that no element has */

typedef struct float_format {
    mp_dtype type;
    int mantissa, bias;
    uint32_t largest, infinity, nan;
    bool no_minus, always_saturates;
} float_format;

static const float_format float_formats[] = {
    {MP_F8E4M3FN, 3, 7, 0x7e, NEVER, 0x7f, false, false},
    {MP_F8E4M3FNUZ, 3, 8, 0x7f, NEVER, 0x80, true, false},
    {MP_F8E5M2, 2, 15, 0x7b, 0x7c, 0x7f, false, false},
    {MP_F8E5M2FNUZ, 2, 16, 0x7f, NEVER, 0x80, true, false},
    {MP_F4E2M1, 1, 1, 0x7, NEVER, 0x0, false, true}, /* without NaN: it becomes 0 */
};

static k_narrow narrow_float(const float_format *f, mp_narrowing how) {
    const bool keeps = how.saturate || f->always_saturates;
    const uint32_t over = f->infinity != NEVER ? f->infinity : f->nan;
    return (k_narrow){
        .kind = K_NARROW_FLOAT,
        .width = (int32_t)mp_dtype_bits(f->type),
        .mantissa = (uint32_t)f->mantissa,
        .rebase = (uint32_t)(127 - f->bias) << 23,
        .unit = ldexpf(1, 127 - f->bias),
        .magic = ldexpf(1, 1 - f->bias - f->mantissa + 23),
        .sign = 1u << (mp_dtype_bits(f->type) - 1),
        .largest = f->largest,
        .infinity = f->infinity,
        .beyond = keeps ? f->largest : over,
        .nan = f->nan,
        .no_minus = f->no_minus,
    };
}

static k_narrow narrow_int(mp_dtype dtype) {
    const bool has_sign = (MP_BIT(dtype) & (MP_SIGNED_INTS | MP_BIT(MP_I4) | MP_BIT(MP_I2))) != 0;
    const int bits = (int)mp_dtype_bits(dtype);
    const int64_t span = (int64_t)1 << bits;
    return (k_narrow){
        .kind = has_sign ? K_NARROW_SIGNED : K_NARROW_UNSIGNED,
        .width = bits,
        .low = (int32_t)(has_sign ? -span / 2 : 0),
        .high = (int32_t)((has_sign ? span / 2 : span) - 1),
    };
}

k_narrow mp_narrow(mp_dtype dtype, mp_narrowing how) {
    for (size_t i = 0; i < MP_COUNT_OF(float_formats); i++) {
        if (float_formats[i].type == dtype) {
            return narrow_float(&float_formats[i], how);
        }
    }
    if (dtype == MP_F8E8M0) {
        return (k_narrow){
            .kind = K_NARROW_SCALE, .width = 8, .saturate = how.saturate, .round = how.round};
    }
    return narrow_int(dtype);
}

float mp_narrow_value(mp_dtype dtype, uint32_t bits) {
    const k_narrow type = mp_narrow(dtype, (mp_narrowing){.saturate = true});
    const uint32_t code = bits & (type.sign - 1);
    const float sign = (bits & type.sign) != 0 ? -1.0f : 1.0f;
    if (code > type.largest || (type.no_minus && bits == type.sign)) {
        return code == type.infinity ? sign * INFINITY : NAN;
    }
    const uint32_t exponent = code >> type.mantissa;
    const uint32_t rest = code & ((1u << type.mantissa) - 1);
    const uint32_t whole = exponent > 0 ? rest | 1u << type.mantissa : rest;
    const int bias = 127 - (int)(type.rebase >> 23);
    const int power = (exponent > 0 ? (int)exponent : 1) - bias;
    return sign * ldexpf((float)whole, power - (int)type.mantissa);
}

/* ---- tests of bytes ---- */

static void set_range(mp_byte_set_args *args, uint32_t from, uint32_t to) {
    for (uint32_t byte = from; byte <= to; byte++) {
        args->set[byte / 32] |= 1u << byte % 32;
    }
}

static mp_status test_bytes(mp_planner *p, mp_byte_set_args *args, mp_ref x, mp_ref out,
                            int64_t count) {
    const mp_kernel *kernel = NULL;
    args->count = count;
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "byte_set"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, K_GROUP), *args,
                     MP_BIND(mp_byte_set_args, x, x), MP_BIND(mp_byte_set_args, out, out));
}

mp_status mp_plan_narrow_isnan(mp_planner *p, mp_dtype dtype, mp_ref x, mp_ref out, int64_t count) {
    const k_narrow type = mp_narrow(dtype, (mp_narrowing){.saturate = true});
    mp_byte_set_args args = {.count = 0};
    if (type.no_minus) {
        set_range(&args, type.sign, type.sign);
    } else {
        const uint32_t first = (type.infinity != NEVER ? type.infinity : type.largest) + 1;
        set_range(&args, first, type.sign - 1);
        set_range(&args, first + type.sign, 2 * type.sign - 1);
    }
    return test_bytes(p, &args, x, out, count);
}

mp_status mp_plan_narrow_isinf(mp_planner *p, mp_dtype dtype, bool positive, bool negative,
                               mp_ref x, mp_ref out, int64_t count) {
    const k_narrow type = mp_narrow(dtype, (mp_narrowing){.saturate = true});
    mp_byte_set_args args = {.count = 0};
    if (type.infinity != NEVER && positive) {
        set_range(&args, type.infinity, type.infinity);
    }
    if (type.infinity != NEVER && negative) {
        set_range(&args, type.infinity + type.sign, type.infinity + type.sign);
    }
    return test_bytes(p, &args, x, out, count);
}
