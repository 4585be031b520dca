/* cast_test.c - every pair of element types over edges, and every 16-bit float.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

/* ---- the reference ---- */

/* A float cut off to an integer. What does not fit gives the lowest int64 for 64-bit targets and
 * uint32, otherwise the lowest int32, of which the target keeps the low bits. */
static int64_t whole_of(mp_dtype to, double value) {
    if (to == MP_U64 && value >= 0x1p63 && value < 0x1p64) {
        return (int64_t)(uint64_t)value;
    }
    if (to == MP_I64 || to == MP_U64 || to == MP_U32) {
        return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
    }
    const double cut = trunc(value);
    return cut >= -0x1p31 && cut < 0x1p31 ? (int64_t)cut : INT32_MIN;
}

static float narrow_whole(mp_dtype from, int64_t value) {
    return from == MP_U64 ? (float)(uint64_t)value : (float)value;
}

/* A number as the target's float, by way of float for the 16-bit ones. */
static void store_float(mp_dtype to, void *out, double wide, float narrow) {
    if (to == MP_F64) {
        *(double *)out = wide;
    } else if (to == MP_F32) {
        *(float *)out = narrow;
    } else {
        *(uint16_t *)out = to == MP_F16 ? mp_to_f16(narrow) : mp_to_bf16(narrow);
    }
}

static void cast_one(mp_dtype from, const void *x, int64_t i, mp_dtype to, void *out) {
    if (op_is_float(from)) {
        const double value = op_real(from, x, i);
        if (op_is_float(to)) {
            store_float(to, out, value, (float)value);
        } else {
            op_store_whole(to, out, 0, to == MP_BOOL ? value != 0 : whole_of(to, value));
        }
        return;
    }
    const int64_t value = op_whole(from, x, i);
    if (op_is_float(to)) {
        store_float(to, out, from == MP_U64 ? (double)(uint64_t)value : (double)value,
                    narrow_whole(from, value));
    } else {
        op_store_whole(to, out, 0, value);
    }
}

/* ---- the checks ---- */

static bool both_nan(mp_dtype type, const void *a, int64_t i, const void *b) {
    return op_is_float(type) && isnan(op_real(type, a, i)) && isnan(op_real(type, b, 0));
}

static void check_cast(mp_device *device, mp_dtype from, const void *x, int64_t count, mp_dtype to,
                       uint32_t skew) {
    const mp_attr attrs[] = {OP_INT("to", to)};
    const size_t size = mp_dtype_size(to);
    op_case c = {.name = "Cast",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = 1,
                 .align = skew != 0 ? 1 : 16,
                 .skew = skew,
                 .in = {OP_TENSOR(from, x, count)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(c.out[0].type == to);
    for (int64_t i = 0; i < count; i++) {
        uint64_t want = 0;
        cast_one(from, x, i, to, &want);
        if (memcmp((const char *)c.out[0].data + (size_t)i * size, &want, size) != 0 &&
            !both_nan(to, c.out[0].data, i, &want)) {
            test_fail(__FILE__, __LINE__, "%s to %s: %.17g gives %.17g, not %.17g",
                      mp_dtype_name(from), mp_dtype_name(to), op_real(from, x, i),
                      op_real(to, c.out[0].data, i), op_real(to, &want, 0));
        }
    }
    op_close(device, &c);
}

/* One number a line otherwise. */
/* clang-format off */
static const double edges[] = {
    0.0, -0.0, 1, -1, 0.5, -0.5, 0.99999, -0.99999, 1.5, 2.5, -2.5, 127, 128, -128, -129, 255,
    256, 32767, 32768, -32769, 65504, 65519, 65520, 65535, 65536, 0x1p24, 0x1p24 + 1, 2147483647,
    2147483648, -2147483648.0, -2147483649.0, 4294967295, 4294967296, 0x1p53, -0x1p53, 0x1p62,
    0x1.fffffep62, 0x1p63, -0x1p63, 0x1.8p63, 0x1p64, -0x1p64, 1e30, -1e30, 3.4e38, 1e300, -1e300,
    1e-7, 6e-8, 2.9e-8, 1e-40, -1e-45, 1e-300, 0x1.001p0, 0x1.002p0, 0x1.003p0, 0x1.01p0,
    0x1.03p0, (double)INFINITY, -(double)INFINITY, (double)NAN};
/* clang-format on */

/* One number a line otherwise. */
/* clang-format off */
static const int64_t whole_edges[] = {
    0, 1, -1, 2, 100, -100, INT8_MIN, INT8_MAX, UINT8_MAX, INT16_MIN, INT16_MAX, UINT16_MAX,
    INT32_MIN, INT32_MAX, UINT32_MAX, INT64_MIN, INT64_MAX, 2049, 2051, 257, 259, 16777217,
    16777219, (INT64_C(1) << 53) + 1, (INT64_C(1) << 40) + (INT64_C(1) << 16),
    -(INT64_C(1) << 40) - (INT64_C(1) << 16) - 1};
/* clang-format on */

/* Gives: the edges that `type` can tell apart, and some more than once. */
static void *edges_of(mp_dtype type, int64_t *count) {
    *count = op_is_float(type) ? (int64_t)MP_COUNT_OF(edges) : (int64_t)MP_COUNT_OF(whole_edges);
    void *x = op_memory(type, *count);
    for (int64_t i = 0; i < *count; i++) {
        if (op_is_float(type)) {
            op_store_real(type, x, i, edges[i]);
        } else {
            op_store_whole(type, x, i, whole_edges[i]);
        }
    }
    return x;
}

DEVICE_TEST(cast_between_all_types) {
    for (int f = 0; op_types[f] != MP_NONE; f++) {
        int64_t count = 0;
        void *x = edges_of(op_types[f], &count);
        for (int t = 0; op_types[t] != MP_NONE; t++) {
            check_cast(device, op_types[f], x, count, op_types[t], 0);
        }
        free(x);
    }
}

DEVICE_TEST(cast_needs_no_alignment) {
    for (int f = 0; op_types[f] != MP_NONE; f++) {
        int64_t count = 0;
        void *x = edges_of(op_types[f], &count);
        for (int t = 0; op_types[t] != MP_NONE; t++) {
            const size_t a = mp_dtype_size(op_types[f]);
            const size_t b = mp_dtype_size(op_types[t]);
            check_cast(device, op_types[f], x, count, op_types[t], (uint32_t)(a > b ? a : b));
        }
        free(x);
    }
}

DEVICE_TEST(cast_every_16_bit_float) {
    enum { PATTERNS = 65536 };
    uint16_t *x = malloc(PATTERNS * sizeof *x);
    CHECK(x != NULL);
    for (int i = 0; i < PATTERNS; i++) {
        x[i] = (uint16_t)i;
    }
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        check_cast(device, MP_F16, x, PATTERNS, op_types[t], 0);
        check_cast(device, MP_BF16, x, PATTERNS, op_types[t], 0);
    }
    free(x);
}

/* Floats at, just below and just above every tie between two 16-bit floats. */
DEVICE_TEST(cast_rounds_ties_to_even) {
    enum { PATTERNS = 0x7c00, AROUND = 3 };
    float *x = malloc((size_t)PATTERNS * AROUND * 2 * sizeof *x);
    CHECK(x != NULL);
    for (int i = 0; i < PATTERNS; i++) {
        const float from = mp_from_f16((uint16_t)i);
        const float next = i + 1 < PATTERNS ? mp_from_f16((uint16_t)(i + 1)) : 65536.0f;
        const float tie = from + (next - from) / 2;
        const uint32_t half = ((uint32_t)i << 16) + 0x8000; /* of bfloat16 */
        for (int k = 0; k < AROUND; k++) {
            x[i * AROUND + k] = k == 1 ? tie : nextafterf(tie, k == 0 ? -1.0f : 1e30f);
            x[(PATTERNS + i) * AROUND + k] = mp_float_of(half + (uint32_t)k - 1);
        }
    }
    check_cast(device, MP_F32, x, (int64_t)PATTERNS * AROUND * 2, MP_F16, 0);
    check_cast(device, MP_F32, x, (int64_t)PATTERNS * AROUND * 2, MP_BF16, 0);
    free(x);
}

DEVICE_TEST(cast_like_another_tensor) {
    const float x[] = {1.5f, -2.5f};
    const int32_t like[] = {0};
    op_case c = {.name = "CastLike",
                 .version = 15,
                 .in = {op_f32(x, 2), OP_TENSOR(MP_I32, like, 1)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(c.out[0].type == MP_I32);
    CHECK(((const int32_t *)c.out[0].data)[0] == 1 && ((const int32_t *)c.out[0].data)[1] == -2);
    op_close(device, &c);
}

DEVICE_TEST(cast_refuses_other_types) {
    const float x[] = {1};
    const mp_attr text[] = {OP_INT("to", 8)}; /* string */
    mp_plan *plan = NULL;
    const op_case c = {.name = "Cast",
                       .version = 13,
                       .attrs = text,
                       .attr_count = 1,
                       .in = {op_f32(x, 1)},
                       .in_count = 1,
                       .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "element type 8");
}
