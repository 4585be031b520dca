/* quantize_test.c - QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear against plain loops:
 * every integer type, one scale, one for each slice, one for each block; types that ONNX Runtime's
 * CPU provider lacks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { OUTER = 3, ALONG = 7, INNER = 5, COUNT = OUTER * ALONG * INNER, BLOCK = 3, BLOCKS = 3 };

typedef enum spread { ONE, SLICES, BLOCKED } spread;

static int64_t scales_of(spread how) {
    return how == ONE ? 1 : how == SLICES ? ALONG : OUTER * BLOCKS * INNER;
}

/* Which scale element `i` has. */
static int64_t scale_at(spread how, int64_t i) {
    const int64_t inner = i % INNER, along = i / INNER % ALONG, outer = i / INNER / ALONG;
    return how == ONE      ? 0
           : how == SLICES ? along
                           : (outer * BLOCKS + along / BLOCK) * INNER + inner;
}

static op_tensor scale_tensor(spread how, mp_dtype type, const void *data) {
    return how == ONE      ? op_tensor_of(type, data, 0, NULL)
           : how == SLICES ? OP_TENSOR(type, data, ALONG)
                           : OP_TENSOR(type, data, OUTER, BLOCKS, INNER);
}

static bool below_zero(mp_dtype type) {
    return (MP_BIT(type) & (MP_SIGNED_INTS | MP_BIT(MP_I4) | MP_BIT(MP_I2))) != 0;
}

/* Element `i` of integers that may be packed. */
static int64_t stored_at(mp_dtype type, const void *data, int64_t i) {
    const int64_t bits = (int64_t)mp_dtype_bits(type);
    if (bits >= 8) {
        return op_whole(type, data, i);
    }
    const int64_t code = ((const uint8_t *)data)[i * bits / 8] >> i * bits % 8 & ((1 << bits) - 1);
    return below_zero(type) && code >= 1 << (bits - 1) ? code - (1 << bits) : code;
}

/* Gives: elements 0, 1, 2, ... of the type, as many as its bytes give room for (free them). */
static void *ramp(mp_dtype type, int64_t count) {
    const int64_t bits = (int64_t)mp_dtype_bits(type);
    uint8_t *data = calloc((size_t)count + 1, 4);
    CHECK(data != NULL);
    for (int64_t i = 0; i < count; i++) {
        if (bits >= 8) {
            op_store_whole(type, data, i, i * 5 % 256);
        } else {
            data[i * bits / 8] |= (uint8_t)((i & ((1 << bits) - 1)) << i * bits % 8);
        }
    }
    return data;
}

/* A case of x, scale and zero point, in slices along the second dimension or in blocks of it. */
typedef struct linear {
    void *x, *scale, *zero; /* free them */
    mp_attr attrs[2];
    op_case c;
} linear;

/* Gives: the case in `made`, with a zero point of ramp(); x and scale hold nothing yet or ramp().
 */
static void make_linear(linear *made, const char *name, mp_dtype x, mp_dtype scale, mp_dtype zero,
                        spread how, uint32_t skew) {
    const int64_t scales = scales_of(how);
    *made =
        (linear){.x = (MP_BIT(x) & MP_FLOATS) != 0 ? op_memory(x, COUNT) : ramp(x, COUNT),
                 .scale = op_memory(scale, scales),
                 .zero = ramp(zero, scales),
                 .attrs = {OP_INT("axis", -2), OP_INT("block_size", how == BLOCKED ? BLOCK : 0)}};
    made->c = (op_case){.name = name,
                        .version = 25,
                        .attrs = made->attrs,
                        .attr_count = 2,
                        .align = skew != 0 ? 1 : 16,
                        .skew = skew,
                        .in = {OP_TENSOR(x, made->x, OUTER, ALONG, INNER),
                               scale_tensor(how, scale, made->scale),
                               scale_tensor(how, zero, made->zero)},
                        .in_count = 3,
                        .out_count = 1};
}

static const mp_dtype results[] = {MP_I8, MP_U8, MP_I16, MP_U16, MP_I4, MP_U4, MP_I2, MP_U2};
static const mp_dtype wides[] = {MP_F32, MP_F16, MP_BF16};

static void close_linear(mp_device *device, linear *made) {
    op_close(device, &made->c);
    free(made->x);
    free(made->scale);
    free(made->zero);
}

static void check_quantize(mp_device *device, mp_dtype to, mp_dtype from, spread how,
                           uint32_t skew) {
    const int bits = (int)mp_dtype_bits(to);
    const double low = below_zero(to) ? -ldexp(1, bits - 1) : 0, high = low + ldexp(1, bits) - 1;
    linear made;
    make_linear(&made, "QuantizeLinear", from, from, to, how, skew);
    for (int64_t i = 0; i < COUNT; i++) {
        op_store_real(from, made.x, i, (double)op_value(9, i) * (i % 7 == 0 ? 300 : 3));
    }
    op_store_real(from, made.x, 1, (double)NAN);
    op_store_real(from, made.x, 2, (double)INFINITY);
    op_store_real(from, made.x, 3, -(double)INFINITY);
    for (int64_t i = 0; i < scales_of(how); i++) {
        op_store_real(from, made.scale, i, 0.25 * (double)(1 + i % 4));
    }
    op_run(device, &made.c);
    CHECK(made.c.out[0].type == to);
    for (int64_t i = 0; i < COUNT; i++) {
        const int64_t at = scale_at(how, i);
        const float share = (float)op_real(from, made.x, i) / (float)op_real(from, made.scale, at);
        const double moved = (double)rintf(share) + (double)stored_at(to, made.zero, at);
        const double want = isnan(share) ? low : fmin(fmax(moved, low), high);
        CHECK_EQ_INT(stored_at(to, made.c.out[0].data, i), (int64_t)want);
    }
    close_linear(device, &made);
}

DEVICE_TEST(quantize_every_integer_type) {
    for (size_t t = 0; t < MP_COUNT_OF(results); t++) {
        for (size_t f = 0; f < MP_COUNT_OF(wides); f++) {
            check_quantize(device, results[t], wides[f], ONE, 0);
            check_quantize(device, results[t], wides[f], SLICES, 0);
            check_quantize(device, results[t], wides[f], BLOCKED, 0);
        }
        check_quantize(device, results[t], MP_F32, SLICES, 4);
    }
}

static void check_dequantize(mp_device *device, mp_dtype from, mp_dtype to, spread how,
                             uint32_t skew) {
    linear made;
    make_linear(&made, "DequantizeLinear", from, to, from, how, skew);
    for (int64_t i = 0; i < scales_of(how); i++) {
        op_store_real(to, made.scale, i, 0.3 * (double)(1 + i % 4));
    }
    op_run(device, &made.c);
    CHECK(made.c.out[0].type == to);
    for (int64_t i = 0; i < COUNT; i++) {
        const int64_t at = scale_at(how, i);
        const int64_t moved = stored_at(from, made.x, i) - stored_at(from, made.zero, at);
        const double scale = op_real(to, made.scale, at);
        const double want = op_rounded(to, (double)((float)moved * (float)scale));
        CHECK(op_real(to, made.c.out[0].data, i) == want);
    }
    close_linear(device, &made);
}

DEVICE_TEST(dequantize_every_integer_type) {
    for (size_t t = 0; t <= MP_COUNT_OF(results); t++) {
        const mp_dtype from = t < MP_COUNT_OF(results) ? results[t] : MP_I32;
        for (size_t f = 0; f < MP_COUNT_OF(wides); f++) {
            check_dequantize(device, from, wides[f], ONE, 0);
            check_dequantize(device, from, wides[f], SLICES, 0);
            check_dequantize(device, from, wides[f], BLOCKED, 0);
        }
        check_dequantize(device, from, MP_F32, SLICES, 4);
    }
}

/* ---- packs of neighbours that share a scale ---- */

typedef struct blocks {
    mp_dtype narrow, wide;
    int64_t rows, columns, inner, block; /* of columns; 0: one scale for all */
    bool has_zero;
    uint32_t skew;
} blocks;

/* The scale of element `i`: of a block of its row, or where elements are behind a column, of the
 * column. */
static int64_t block_at(const blocks *b, int64_t i) {
    const int64_t column = i / b->inner % b->columns, row = i / b->inner / b->columns;
    return b->block == 0  ? 0
           : b->inner > 1 ? column
                          : row * ((b->columns + b->block - 1) / b->block) + column / b->block;
}

static void check_blocks(mp_device *device, const blocks *b) {
    const int64_t count = b->rows * b->columns * b->inner;
    const int64_t across = b->block == 0 ? 1 : (b->columns + b->block - 1) / b->block;
    const int64_t scales = b->block == 0 ? 1 : b->inner > 1 ? b->columns : b->rows * across;
    void *x = ramp(b->narrow, count), *zero = ramp(b->narrow, scales + 3);
    void *scale = op_memory(b->wide, scales);
    for (int64_t i = 0; i < scales; i++) {
        op_store_real(b->wide, scale, i, 0.3 * (double)(1 + i % 5) * (i % 2 == 0 ? 1 : -1));
    }
    const mp_attr attrs[] = {OP_INT("axis", 1), OP_INT("block_size", b->inner > 1 ? 0 : b->block)};
    const op_tensor by[] = {op_tensor_of(b->wide, scale, 0, NULL),
                            op_tensor_of(b->narrow, zero, 0, NULL),
                            OP_TENSOR(b->wide, scale, b->columns),
                            OP_TENSOR(b->narrow, zero, b->columns),
                            OP_TENSOR(b->wide, scale, b->rows, across, 1),
                            OP_TENSOR(b->narrow, zero, b->rows, across, 1)};
    const int which = b->block == 0 ? 0 : b->inner > 1 ? 2 : 4;
    op_case c = {
        .name = "DequantizeLinear",
        .version = 21,
        .attrs = attrs,
        .attr_count = 2,
        .align = b->skew != 0 ? 1 : 16,
        .skew = b->skew,
        .in = {OP_TENSOR(b->narrow, x, b->rows, b->columns, b->inner), by[which], by[which + 1]},
        .in_count = b->has_zero ? 3 : 2,
        .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = block_at(b, i);
        const int64_t moved =
            stored_at(b->narrow, x, i) - (b->has_zero ? stored_at(b->narrow, zero, at) : 0);
        const float want = (float)moved * (float)op_real(b->wide, scale, at);
        CHECK(op_real(b->wide, c.out[0].data, i) == op_rounded(b->wide, (double)want));
    }
    op_close(device, &c);
    free(x);
    free(zero);
    free(scale);
}

DEVICE_TEST(dequantize_packs) {
    static const mp_dtype narrows[] = {MP_U8, MP_I8, MP_U4, MP_I4, MP_I16};
    for (size_t n = 0; n < MP_COUNT_OF(narrows); n++) {
        for (size_t w = 0; w < MP_COUNT_OF(wides); w++) {
            const bool has_zero = (n + w) % 2 == 0;
            const blocks some[] = {
                {.rows = 5, .columns = 96, .inner = 1, .block = 32},
                {.rows = 3, .columns = 40, .inner = 1, .block = 16},
                {.rows = 7, .columns = 8, .inner = 1, .block = 8},
                {.rows = 3, .columns = 44, .inner = 1, .block = 8},
                {.rows = 3, .columns = 48, .inner = 1, .block = 12},
                {.rows = 2, .columns = 3, .inner = 24, .block = 1},
                {.rows = 1, .columns = 3001, .inner = 1, .block = 0},
                {.rows = 1, .columns = 5, .inner = 1, .block = 0},
            };
            for (size_t i = 0; i < MP_COUNT_OF(some); i++) {
                blocks b = some[i];
                b.narrow = narrows[n];
                b.wide = wides[w];
                b.has_zero = has_zero;
                check_blocks(device, &b);
                b.has_zero = !has_zero;
                b.skew = i % 2 == 0 ? 0 : 4;
                check_blocks(device, &b);
            }
        }
    }
}

/* Floats of eight bits by scales that are powers of two, as in the MX formats. */
DEVICE_TEST(dequantize_by_powers_of_two) {
    const uint8_t x[] = {0x38, 0xb8, 0x40, 0x7e}; /* 1, -1, 2, 448 in float8e4m3fn */
    const uint8_t scale[] = {127, 130};           /* 1, 8 */
    const float want[] = {1, -1, 16, 3584};
    const mp_attr attrs[] = {OP_INT("axis", 0), OP_INT("block_size", 2), OP_INT("output_dtype", 1)};
    op_case c = {.name = "DequantizeLinear",
                 .version = 25,
                 .attrs = attrs,
                 .attr_count = 3,
                 .in = {OP_TENSOR(MP_F8E4M3FN, x, 4), OP_TENSOR(MP_F8E8M0, scale, 2)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(c.out[0].type == MP_F32 && op_same(&c.out[0], want));
    op_close(device, &c);
}

/* ---- DynamicQuantizeLinear: one block, one range for several, parts of a range ---- */

DEVICE_TEST(quantize_by_its_own_range) {
    static const int64_t counts[] = {0, 1, 7, 4096, 8193, 70001};
    for (size_t s = 0; s < MP_COUNT_OF(counts); s++) {
        float *x = op_numbers(MP_F32, s, counts[s]);
        float low = 0;
        float high = 0;
        for (int64_t i = 0; i < counts[s]; i++) {
            x[i] = x[i] * 3 + 1;
            low = fminf(low, x[i]);
            high = fmaxf(high, x[i]);
        }
        op_case c = {.name = "DynamicQuantizeLinear",
                     .version = 11,
                     .in = {op_f32(x, counts[s])},
                     .in_count = 1,
                     .out_count = 3};
        op_run(device, &c);
        const float scale = high == low ? 1.0f : (high - low) / 255.0f;
        const float zero = fminf(fmaxf(rintf(-low / scale), 0), 255);
        CHECK(c.out[1].shape.rank == 0 && ((const float *)c.out[1].data)[0] == scale);
        CHECK_EQ_INT(((const uint8_t *)c.out[2].data)[0], (int64_t)zero);
        for (int64_t i = 0; i < counts[s]; i++) {
            const float want = fminf(fmaxf(rintf(x[i] / scale) + zero, 0), 255);
            CHECK_EQ_INT(((const uint8_t *)c.out[0].data)[i], (int64_t)want);
        }
        op_close(device, &c);
        free(x);
    }
}

/* ---- what does not fit ---- */

DEVICE_TEST(quantize_refuses_scales_that_do_not_fit) {
    const float x[24] = {1};
    const int8_t zeros[4] = {0};
    mp_plan *plan = NULL;
    mp_attr attrs[] = {OP_INT("axis", 1), OP_INT("block_size", 0), OP_INT("output_dtype", 0)};
    op_case c = {.name = "QuantizeLinear",
                 .version = 21,
                 .attrs = attrs,
                 .attr_count = 3,
                 .in = {op_f32(x, 2, 3, 4), op_f32(x, 2), OP_TENSOR(MP_I8, zeros, 2)},
                 .in_count = 3,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a scale of shape 2 does not fit");
    c.in[1] = op_f32(x, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a zero point of shape 2");
    c.in[2] = OP_TENSOR(MP_I8, zeros, 3);
    attrs[0].i = 5;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "axis 5");
    attrs[0].i = 1;
    attrs[1].i = -1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "block_size is -1");
    attrs[1].i = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "with block_size 2");
    attrs[1].i = 0;
    attrs[2].i = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "uint8 cannot be quantised with");
    attrs[2].i = 8;
    CHECK_FAILS(op_plan(device, &c, &plan), UNSUPPORTED, "element type 8");
}
