/* pick_test.c - OneHot, Trilu, EyeLike, ReverseSequence, ImageScaler, Col2Im, and joining many
 * parts, against plain loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

/* ---- OneHot ---- */

static void check_one_hot(mp_device *device, mp_dtype index_type, mp_dtype value_type) {
    enum { DEPTH = 4, OUTER = 2, INNER = 5 };
    static const int64_t asked[OUTER * INNER] = {0, 3, -1, -4, 4, -5, 1, 100, 2, -100};
    void *indices = op_memory(index_type, OUTER * INNER);
    void *values = op_memory(value_type, 2);
    const int32_t depth[] = {DEPTH};
    op_store_real(value_type, values, 0, 0);
    op_store_real(value_type, values, 1, 1);
    for (int64_t i = 0; i < OUTER * INNER; i++) {
        op_store_real(index_type, indices, i, (double)asked[i]);
    }
    const mp_attr attrs[] = {OP_INT("axis", 1)};
    op_case c = {.name = "OneHot",
                 .version = 11,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {OP_TENSOR(index_type, indices, OUTER, INNER),
                        op_tensor_of(MP_I32, depth, 0, NULL), OP_TENSOR(value_type, values, 2)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(c.out[0].shape.rank == 3 && c.out[0].shape.dim[1] == DEPTH);
    for (int64_t i = 0; i < (int64_t)OUTER * DEPTH * INNER; i++) {
        const int64_t from = i / (DEPTH * INNER) * INNER + i % INNER;
        const double index = op_real(index_type, indices, from);
        const double place = (double)(i / INNER % DEPTH);
        const bool named = index >= place && index <= place;
        const bool named_back = index + DEPTH >= place && index + DEPTH <= place;
        const double want = named || (index < 0 && named_back) ? 1 : 0;
        op_check_close(op_real(value_type, c.out[0].data, i), want, 0, "OneHot", i);
    }
    op_close(device, &c);
    free(indices);
    free(values);
}

DEVICE_TEST(one_hot_of_every_type) {
    for (const mp_dtype *type = op_types; *type != MP_NONE; type++) {
        if ((MP_BIT(*type) & (MP_INTS | MP_IEEE_FLOATS)) != 0) {
            check_one_hot(device, *type, MP_F32);
            check_one_hot(device, MP_I64, *type);
        }
    }
    check_one_hot(device, MP_I32, MP_BOOL);
}

DEVICE_TEST(one_hot_refuses_a_depth_that_is_none) {
    const float values[] = {0, 1};
    const int64_t indices[] = {0};
    const float depths[] = {0.5f, -2, 1e30f, __builtin_nanf("")};
    mp_plan *plan = NULL;
    for (size_t k = 0; k < MP_COUNT_OF(depths); k++) {
        op_case c = {.name = "OneHot",
                     .version = 11,
                     .in = {op_i64(indices, 1), op_f32(depths + k, 1), op_f32(values, 2)},
                     .in_count = 3,
                     .out_count = 1};
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "depth must be positive");
    }
}

/* ---- Trilu and EyeLike ---- */

DEVICE_TEST(trilu_of_every_width) {
    static const mp_dtype widths[] = {MP_U8, MP_F16, MP_F32, MP_F64};
    enum { BATCH = 2, ROWS = 5, COLUMNS = 7 };
    static const int64_t diagonals[] = {0, 1, -2, 6, 40, -40, INT64_MIN, INT64_MAX};
    for (size_t n = 0; n < MP_COUNT_OF(widths) * MP_COUNT_OF(diagonals) * 2; n++) {
        const mp_dtype type = widths[n % MP_COUNT_OF(widths)];
        const int64_t k = diagonals[n / MP_COUNT_OF(widths) % MP_COUNT_OF(diagonals)];
        const bool upper = n / MP_COUNT_OF(widths) / MP_COUNT_OF(diagonals) != 0;
        void *x = op_numbers(type, n, BATCH * ROWS * COLUMNS);
        const mp_attr attrs[] = {OP_INT("upper", upper)};
        op_case c = {
            .name = "Trilu",
            .version = 14,
            .attrs = attrs,
            .attr_count = 1,
            .in = {OP_TENSOR(type, x, BATCH, ROWS, COLUMNS), op_tensor_of(MP_I64, &k, 0, NULL)},
            .in_count = 2,
            .out_count = 1};
        op_run(device, &c);
        for (int64_t i = 0; i < (int64_t)BATCH * ROWS * COLUMNS; i++) {
            const int64_t diagonal = i % COLUMNS - i / COLUMNS % ROWS;
            const bool kept = upper ? diagonal >= k : diagonal <= k;
            op_check_close(op_real(type, c.out[0].data, i), kept ? op_real(type, x, i) : 0, 0,
                           "Trilu", i);
        }
        op_close(device, &c);
        free(x);
    }
}

DEVICE_TEST(eye_like_of_every_type) {
    const float x[15] = {0};
    for (const mp_dtype *type = op_types; *type != MP_NONE; type++) {
        if ((MP_BIT(*type) & MP_ALL_TYPES) == 0) {
            continue;
        }
        const mp_attr attrs[] = {OP_INT("dtype", *type), OP_INT("k", 1)};
        op_case c = {.name = "EyeLike",
                     .version = 22,
                     .attrs = attrs,
                     .attr_count = 2,
                     .in = {op_f32(x, 3, 5)},
                     .in_count = 1,
                     .out_count = 1};
        op_run(device, &c);
        CHECK(c.out[0].type == *type);
        for (int64_t i = 0; i < 15; i++) {
            op_check_close(op_real(*type, c.out[0].data, i), i % 5 - i / 5 == 1 ? 1 : 0, 0,
                           "EyeLike", i);
        }
        op_close(device, &c);
    }
}

/* ---- ReverseSequence ---- */

DEVICE_TEST(reverse_sequence_of_any_length) {
    static const mp_dtype widths[] = {MP_U8, MP_F16, MP_F32, MP_F64};
    enum { TIME = 6, BATCH = 5, INNER = 8 };
    static const int64_t lengths[BATCH] = {0, 1, 6, 3, 99}; /* the last one is drawn to 6 */
    for (size_t n = 0; n < MP_COUNT_OF(widths) * 4; n++) {
        const mp_dtype type = widths[n % MP_COUNT_OF(widths)];
        const bool batch_first = n / MP_COUNT_OF(widths) % 2 != 0;
        const uint32_t skew = n / MP_COUNT_OF(widths) / 2 != 0 ? 8 : 0;
        const int64_t batch_step = batch_first ? TIME * INNER : INNER;
        const int64_t time_step = batch_first ? INNER : BATCH * INNER;
        void *x = op_numbers(type, n, TIME * BATCH * INNER);
        const mp_attr attrs[] = {OP_INT("batch_axis", !batch_first),
                                 OP_INT("time_axis", batch_first)};
        op_case c = {.name = "ReverseSequence",
                     .version = 10,
                     .attrs = attrs,
                     .attr_count = 2,
                     .align = skew > 0 ? 1 : 16,
                     .skew = skew,
                     .in = {batch_first ? OP_TENSOR(type, x, BATCH, TIME, INNER)
                                        : OP_TENSOR(type, x, TIME, BATCH, INNER),
                            op_i64(lengths, BATCH)},
                     .in_count = 2,
                     .out_count = 1};
        op_run(device, &c);
        for (int64_t i = 0; i < (int64_t)TIME * BATCH * INNER; i++) {
            const int64_t inner = i % INNER;
            const int64_t batch = batch_first ? i / (TIME * INNER) : i / INNER % BATCH;
            const int64_t time = batch_first ? i / INNER % TIME : i / (BATCH * INNER);
            const int64_t length = lengths[batch] < TIME ? lengths[batch] : TIME;
            const int64_t from = time < length ? length - 1 - time : time;
            op_check_close(op_real(type, c.out[0].data, i),
                           op_real(type, x, batch * batch_step + from * time_step + inner), 0,
                           "ReverseSequence", i);
        }
        op_close(device, &c);
        free(x);
    }
}

/* ---- ImageScaler and Col2Im ---- */

DEVICE_TEST(image_scaler_of_many_channels) {
    enum { CHANNELS = 300, PLACES = 6 };
    static float bias[CHANNELS];
    void *x = op_numbers(MP_F32, 4, 2 * CHANNELS * PLACES);
    for (int c = 0; c < CHANNELS; c++) {
        bias[c] = (float)c / 4;
    }
    const mp_attr attrs[] = {
        OP_FLOAT("scale", 0.5f),
        {.name = "bias", .kind = MP_ATTR_FLOATS, .floats = bias, .count = CHANNELS}};
    op_case c = {.name = "ImageScaler",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {op_f32(x, 2, CHANNELS, 2, 3)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < 2 * CHANNELS * PLACES; i++) {
        op_check_close(op_real(MP_F32, c.out[0].data, i),
                       op_real(MP_F32, x, i) / 2 + (double)bias[i / PLACES % CHANNELS], 0,
                       "ImageScaler", i);
    }
    op_close(device, &c);
    mp_plan *plan = NULL;
    c.in[0] = op_f32(x, 2, 3, 2, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "bias has 300 values");
    free(x);
}

/* Adds every block to the image, as the definition has it; the operator asks each place. */
DEVICE_TEST(col2im_adds_blocks_that_overlap) {
    enum { CHANNELS = 2, ROWS = 6, COLUMNS = 7, HIGH = 3, WIDE = 2, ACROSS = 3, DOWN = 3 };
    enum { TAPS = HIGH * WIDE, BLOCKS = DOWN * ACROSS };
    static const int64_t image[] = {ROWS, COLUMNS};
    static const int64_t block[] = {HIGH, WIDE};
    static const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        double want[CHANNELS * ROWS * COLUMNS] = {0};
        void *x = op_numbers(types[t], t, CHANNELS * TAPS * BLOCKS);
        for (int64_t i = 0; i < (int64_t)CHANNELS * TAPS * BLOCKS; i++) {
            const int64_t at = i % BLOCKS;
            const int64_t tap = i / BLOCKS % TAPS;
            const int64_t row = at / ACROSS * 2 + tap / WIDE - 1;        /* stride 2, pad 1 */
            const int64_t column = at % ACROSS * 2 + tap % WIDE * 3 - 1; /* dilation 3 */
            if (row >= 0 && row < ROWS && column >= 0 && column < COLUMNS) {
                want[(i / (TAPS * BLOCKS) * ROWS + row) * COLUMNS + column] +=
                    op_real(types[t], x, i);
            }
        }
        const mp_attr attrs[] = {OP_INTS("strides", 2, 2), OP_INTS("dilations", 1, 3),
                                 OP_INTS("pads", 1, 1, 0, 0)};
        op_case c = {.name = "Col2Im",
                     .version = 18,
                     .attrs = attrs,
                     .attr_count = 3,
                     .in = {OP_TENSOR(types[t], x, 1, CHANNELS * TAPS, BLOCKS), op_i64(image, 2),
                            op_i64(block, 2)},
                     .in_count = 3,
                     .out_count = 1};
        op_run(device, &c);
        for (int64_t i = 0; i < (int64_t)MP_COUNT_OF(want); i++) {
            op_check_close(op_real(types[t], c.out[0].data, i), want[i], op_precision(types[t]),
                           "Col2Im", i);
        }
        op_close(device, &c);
        free(x);
    }
}

/* ---- Concat and Split of many parts ---- */

static void check_parts(mp_device *device, mp_dtype type, int count, int64_t unit, uint32_t skew) {
    enum { ROWS = 3 };
    const size_t size = mp_dtype_size(type);
    int64_t sizes[OP_INPUTS];
    int64_t width = 0;
    for (int k = 0; k < count; k++) {
        sizes[k] = (k * 5 + 1) % 4 * unit; /* some are empty */
        width += sizes[k];
    }
    const mp_attr attrs[] = {OP_INT("axis", 1)};
    void *whole = op_numbers(type, 6, ROWS * width);
    char *parts = op_memory(type, ROWS * width);
    op_case c = {.name = "Concat",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = 1,
                 .align = skew > 0 ? 1 : 16,
                 .skew = skew,
                 .in_count = count,
                 .out_count = 1};
    size_t start = 0;
    int64_t column = 0;
    for (int k = 0; k < count; k++) {
        const size_t run = (size_t)sizes[k] * size;
        for (size_t row = 0; row < ROWS; row++) {
            memcpy(parts + start + row * run,
                   (char *)whole + (row * (size_t)width + (size_t)column) * size, run);
        }
        c.in[k] = OP_TENSOR(type, parts + start, ROWS, sizes[k]);
        start += ROWS * run;
        column += sizes[k];
    }
    op_run(device, &c);
    CHECK(op_same(&c.out[0], whole));
    op_close(device, &c);
    free(whole);
    free(parts);
}

DEVICE_TEST(concat_of_many_parts_of_any_size) {
    static const mp_dtype widths[] = {MP_U8, MP_F16, MP_F32, MP_F64};
    for (size_t w = 0; w < MP_COUNT_OF(widths); w++) {
        for (int count = 2; count <= OP_INPUTS; count += 7) {
            check_parts(device, widths[w], count, 1, 0);
            check_parts(device, widths[w], count, 1, 8);
            check_parts(device, widths[w], count, 8, 0);
            check_parts(device, widths[w], count, 16, 8);
        }
    }
}

DEVICE_TEST(concat_of_many_parts_is_one_launch) {
    const float x[] = {1, 2, 3, 4};
    mp_plan *plan = NULL;
    op_case c = {.name = "Concat", .version = 13, .in_count = OP_INPUTS, .out_count = 1};
    for (int k = 0; k < OP_INPUTS; k++) {
        c.in[k] = op_f32(x, 2, 2);
    }
    CHECK_OK(op_plan(device, &c, &plan));
    CHECK_EQ_INT(mp_plan_step_count(plan), 1);
    mp_plan_release(plan);
    op_close(device, &c);
}
