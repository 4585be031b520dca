/* rows_apart_test.c - operators whose rows lie within longer ones (mp_tensor.pitch): they give what
 * they give of rows one behind the other, and write nothing between them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/op_test.h"
#include "op/op_value.h"

#include <stdlib.h>
#include <string.h>

enum { GAP = 16 /* elements between rows */ };

static int64_t row_of(const mp_shape *shape) {
    return shape->dim[shape->rank - 1];
}

static int64_t rows_of(const mp_shape *shape) {
    return mp_shape_span(shape, 0, shape->rank - 1);
}

static void *numbers(mp_dtype type, const mp_shape *shape, uint64_t seed) {
    const int64_t count = mp_shape_count(shape);
    void *data = op_memory(type, count);
    for (int64_t i = 0; i < count; i++) {
        op_store_real(type, data, i, (double)op_value(seed, i) / 4);
    }
    return data;
}

/* The rows of input `i`, `pitch` elements apart. */
static void spread(op_case *c, int i, int64_t pitch) {
    const op_tensor *dense = &c->in[i];
    const size_t size = mp_dtype_size(dense->type), row = (size_t)row_of(&dense->shape) * size;
    const int64_t rows = rows_of(&dense->shape);
    unsigned char *data = op_memory(dense->type, rows * pitch);
    memset(data, 0xff, (size_t)(rows * pitch) * size); /* no number: who reads it shows */
    for (int64_t r = 0; r < rows; r++) {
        memcpy(data + (size_t)(r * pitch) * size,
               (const unsigned char *)dense->data + (size_t)r * row, row);
    }
    c->in[i].data = data;
    c->in_pitch[i] = pitch;
}

static void check_row(const op_tensor *got, const op_tensor *want, int64_t r, int64_t pitch) {
    const int64_t row = row_of(&want->shape);
    const size_t size = mp_dtype_size(want->type);
    for (int64_t i = 0; i < row; i++) {
        op_check_close(op_real(want->type, got->data, r * pitch + i),
                       op_real(want->type, want->data, r * row + i), op_precision(want->type) * 8,
                       "a row apart", r * row + i);
    }
    const unsigned char *bytes = got->data;
    for (size_t b = (size_t)(r * pitch + row) * size; b < (size_t)((r + 1) * pitch) * size; b++) {
        CHECK_EQ_INT(bytes[b], OP_BETWEEN);
    }
}

static void check_rows(const op_tensor *got, const op_tensor *want, int64_t pitch) {
    CHECK(mp_shape_equal(&got->shape, &want->shape));
    for (int64_t r = 0; r < rows_of(&want->shape); r++) {
        check_row(got, want, r, pitch > 0 ? pitch : row_of(&want->shape));
    }
}

/* Runs the case as it is, and with the operands of `apart` apart: bit i input i, bit 8 + o output
 * o.
 */
static void compare(mp_device *device, const op_case *dense, uint32_t apart) {
    op_case plain = *dense, c = *dense;
    op_run(device, &plain);
    for (int i = 0; i < c.in_count; i++) {
        if ((apart >> i & 1) != 0) {
            spread(&c, i, row_of(&c.in[i].shape) + GAP);
        }
    }
    for (int o = 0; o < c.out_count; o++) {
        c.out_pitch[o] = (apart >> (8 + o) & 1) != 0 ? row_of(&plain.out[o].shape) + GAP : 0;
    }
    op_run(device, &c);
    for (int o = 0; o < c.out_count; o++) {
        check_rows(&c.out[o], &plain.out[o], c.out_pitch[o]);
    }
    for (int i = 0; i < c.in_count; i++) {
        if (c.in_pitch[i] > 0) {
            free((void *)(uintptr_t)c.in[i].data);
        }
    }
    op_close(device, &c);
    op_close(device, &plain);
}

/* ---- convolutions ---- */

enum { X, W, BIAS, RESIDUAL, INPUTS };
/* Of a residual: in front of the activation, or behind it. */
typedef enum addition { NO_SUM, SUM, SUM_BEHIND } addition;

/* Of [2, 5, 4, 32] to 16 channels, or of 16 each by itself. */
static void compare_form(mp_device *device, mp_dtype type, int64_t side, bool depthwise,
                         const char *activation, addition sum, int32_t align, uint32_t apart) {
    const mp_attr attrs[] = {OP_INTS("pads", side / 2, side / 2, side / 2, side / 2),
                             OP_INT("group", depthwise ? 16 : 1),
                             OP_INT("residual_behind", sum == SUM_BEHIND),
                             OP_TEXT("activation", activation)};
    op_case c = {.domain = MP_OWN_NHWC_DOMAIN,
                 .name = "FusedConv",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = activation != NULL ? 4 : 2,
                 .options = {.tf32 = false},
                 .align = align,
                 .in = {OP_TENSOR(type, NULL, 2, 5, 4, depthwise ? 16 : 32),
                        OP_TENSOR(type, NULL, 16, depthwise ? 1 : 32, side, side),
                        OP_TENSOR(type, NULL, 16), OP_TENSOR(type, NULL, 2, 5, 4, 16)},
                 .in_count = sum != NO_SUM ? INPUTS : RESIDUAL,
                 .out_count = 1};
    for (int i = 0; i < INPUTS; i++) {
        c.in[i].data = numbers(type, &c.in[i].shape, (uint64_t)i + 1);
    }
    compare(device, &c, apart);
    for (int i = 0; i < INPUTS; i++) {
        free((void *)(uintptr_t)c.in[i].data);
    }
}

static void compare_conv(mp_device *device, mp_dtype type, int64_t side, const char *activation,
                         addition sum, int32_t align, uint32_t apart) {
    compare_form(device, type, side, false, activation, sum, align, apart);
}

enum { APART_X = 1, APART_Y = 1 << 8 };

static void compare_convs(mp_device *device, mp_dtype type) {
    static const uint32_t apart[] = {APART_X, APART_Y, APART_X | APART_Y};
    static const char *const activations[] = {NULL, "Relu", "Swish"};
    for (size_t a = 0; a < MP_COUNT_OF(apart); a++) {
        for (size_t k = 0; k < MP_COUNT_OF(activations); k++) {
            compare_conv(device, type, 1, activations[k], NO_SUM, 16, apart[a]);
            compare_conv(device, type, 1, activations[k], SUM, 16, apart[a]);
            compare_conv(device, type, 3, activations[k], NO_SUM, 16, apart[a]); /* copied */
            compare_conv(device, type, 3, activations[k], SUM, 16, apart[a]);
        }
        compare_conv(device, type, 3, "Swish", SUM_BEHIND, 16, apart[a]);
        compare_conv(device, type, 1, "Relu", SUM_BEHIND, 1, apart[a]);
        compare_form(device, type, 3, true, "Relu", NO_SUM, 16, apart[a]); /* in tiles */
        compare_form(device, type, 3, true, "Relu", SUM, 16, apart[a]);
        compare_form(device, type, 3, true, "Swish", SUM_BEHIND, 1, apart[a]);
        compare_form(device, type, 15, true, NULL, NO_SUM, 16, apart[a]); /* any window */
    }
}

DEVICE_TEST(rows_apart_of_fused_convolutions) {
    compare_convs(device, MP_F32);
}

DEVICE_TEST(rows_apart_of_fused_convolutions_of_halves) {
    compare_convs(device, MP_F16);
}

DEVICE_TEST(rows_apart_of_fused_convolutions_of_bfloat16) {
    compare_convs(device, MP_BF16);
}

/* ---- pools ---- */

/* Windows of neighbours by packs, and others by single channels. */
static void compare_pool(mp_device *device, const char *name, mp_dtype type, int64_t channels,
                         int64_t dilation) {
    const mp_attr attrs[] = {OP_INTS("kernel_shape", 3, 2), OP_INTS("strides", 1, 2),
                             OP_INTS("pads", 1, 1, 1, 0), OP_INTS("dilations", dilation, 1)};
    const mp_shape shape = {4, {2, 6, 5, channels}};
    void *data = numbers(type, &shape, 5);
    const op_case c = {.domain = MP_NHWC_DOMAIN,
                       .name = name,
                       .version = 22,
                       .attrs = attrs,
                       .attr_count = dilation > 1 ? 4 : 3,
                       .in = {OP_TENSOR(type, data, 2, 6, 5, channels)},
                       .in_count = 1,
                       .out_count = 1};
    compare(device, &c, APART_X);
    compare(device, &c, APART_Y);
    compare(device, &c, APART_X | APART_Y);
    free(data);
}

DEVICE_TEST(rows_apart_of_pools) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16, MP_F64};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (int64_t channels = 16; channels >= 3; channels -= 13) {
            compare_pool(device, "MaxPool", types[t], channels, 1);
            compare_pool(device, "MaxPool", types[t], channels, 2);
            compare_pool(device, "AveragePool", types[t], channels, 1);
        }
    }
    compare_pool(device, "MaxPool", MP_U8, 16, 1);
}

/* A window that is all of an image is no reduction then. */
DEVICE_TEST(rows_apart_of_pools_of_whole_images) {
    const mp_attr kernel = OP_INTS("kernel_shape", 6, 5);
    const mp_shape shape = {4, {2, 6, 5, 16}};
    void *data = numbers(MP_F32, &shape, 5);
    const op_case c = {.domain = MP_NHWC_DOMAIN,
                       .name = "AveragePool",
                       .version = 22,
                       .attrs = &kernel,
                       .attr_count = 1,
                       .in = {OP_TENSOR(MP_F32, data, 2, 6, 5, 16)},
                       .in_count = 1,
                       .out_count = 1};
    compare(device, &c, APART_X);
    compare(device, &c, APART_X | APART_Y);
    free(data);
}

/* ---- resize ---- */

DEVICE_TEST(rows_apart_of_resized_images) {
    static const float twice[] = {1, 2, 2, 1}, less[] = {1, 0.5f, 1.5f, 1}, wider[] = {1, 2, 1, 2};
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    const mp_shape shape = {4, {2, 6, 5, 16}};
    const mp_dtype types[] = {MP_F32, MP_F16};
    mp_plan *plan = NULL;
    for (size_t i = 0; i < MP_COUNT_OF(modes) * MP_COUNT_OF(types); i++) {
        const mp_dtype type = types[i % 2];
        const mp_attr mode = OP_TEXT("mode", modes[i / 2]);
        void *data = numbers(type, &shape, 5);
        op_case c = {
            .name = "Resize",
            .version = 13,
            .attrs = &mode,
            .attr_count = 1,
            .in = {OP_TENSOR(type, data, 2, 6, 5, 16), {MP_NONE, {0}, NULL}, op_f32(twice, 4)},
            .in_count = 3,
            .out_count = 1};
        compare(device, &c, APART_X);
        compare(device, &c, APART_Y);
        c.in[2].data = less;
        compare(device, &c, APART_X | APART_Y);
        c.in[2].data = wider;
        c.in_pitch[0] = 32;
        CHECK_EQ_INT(op_plan(device, &c, &plan), MP_UNSUPPORTED);
        CHECK_STR_HAS(mp_error_message(), "rows that lie apart are not resized themselves");
        free(data);
    }
}

/* ---- expressions ---- */

DEVICE_TEST(rows_apart_of_expressions) {
    const mp_attr text = OP_TEXT("expression", "x0=f32 x1=f32 x2=f32 t0=mul(x0,x1) t1=add(t0,x2) "
                                               "t2=relu(t1) -> t2 t0");
    const mp_shape shape = {3, {2, 5, 20}}, row = {1, {20}};
    void *data = numbers(MP_F32, &shape, 5), *scale = numbers(MP_F32, &row, 6);
    const op_case c = {.domain = MP_OWN_DOMAIN,
                       .name = "Fused",
                       .version = 1,
                       .attrs = &text,
                       .attr_count = 1,
                       .in = {op_f32(data, 2, 5, 20), op_f32(scale, 20), op_f32(data, 2, 5, 20)},
                       .in_count = 3,
                       .out_count = 2};
    compare(device, &c, 1);
    compare(device, &c, 1 << 2);
    compare(device, &c, 1 << 2 | 1);
    free(data);
    free(scale);
}

DEVICE_TEST(rows_apart_that_expressions_make) {
    static const char *const texts[] = {
        "x0=f32 x1=f32 t0=mul(x0,x1) t1=relu(t0) -> t1",
        "x0=f32 x1=f32 t0=mul(x0,x1) t1=cast.f16(t0) -> t1",
    };
    const mp_shape shape = {3, {2, 5, 24}}, row = {1, {24}};
    void *data = numbers(MP_F32, &shape, 5), *scale = numbers(MP_F32, &row, 6);
    for (size_t i = 0; i < MP_COUNT_OF(texts); i++) {
        const mp_attr text = OP_TEXT("expression", texts[i]);
        const op_case c = {.domain = MP_OWN_DOMAIN,
                           .name = "Fused",
                           .version = 1,
                           .attrs = &text,
                           .attr_count = 1,
                           .in = {op_f32(data, 2, 5, 24), op_f32(scale, 24)},
                           .in_count = 2,
                           .out_count = 1};
        compare(device, &c, APART_Y);
        compare(device, &c, APART_Y | APART_X);
    }
    free(data);
    free(scale);
}

/* ---- moves ---- */

DEVICE_TEST(rows_apart_are_cut_and_joined) {
    static const int64_t starts[] = {1, 8}, ends[] = {4, 24}, axes[] = {1, -1}, sizes[] = {24, 8};
    const mp_attr last = OP_INT("axis", -1);
    const mp_dtype types[] = {MP_F32, MP_F16, MP_U8};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        const mp_shape shape = {3, {2, 5, 32}};
        void *data = numbers(types[t], &shape, 3);
        op_case slice = {.name = "Slice",
                         .version = 13,
                         .in = {OP_TENSOR(types[t], data, 2, 5, 32), op_i64(starts, 2),
                                op_i64(ends, 2), op_i64(axes, 2)},
                         .in_count = 4,
                         .out_count = 1};
        op_case split = {.name = "Split",
                         .version = 13,
                         .attrs = &last,
                         .attr_count = 1,
                         .in = {OP_TENSOR(types[t], data, 2, 5, 32), op_i64(sizes, 2)},
                         .in_count = 2,
                         .out_count = 2};
        op_case concat = {
            .name = "Concat",
            .version = 13,
            .attrs = &last,
            .attr_count = 1,
            .in = {OP_TENSOR(types[t], data, 2, 5, 32), OP_TENSOR(types[t], data, 2, 5, 32)},
            .in_count = 2,
            .out_count = 1};
        compare(device, &slice, 1);
        compare(device, &split, 1);
        compare(device, &concat, 1 << 8);
        compare(device, &concat, 1 << 1);
        compare(device, &concat, 1 << 8 | 1);
        free(data);
    }
}

/* ---- what takes none ---- */

DEVICE_TEST(rows_apart_are_refused_by_others) {
    const op_case relu = {.name = "Relu",
                          .version = 14,
                          .in = {OP_TENSOR(MP_F32, NULL, 2, 16)},
                          .in_count = 1,
                          .out_count = 1,
                          .in_pitch = {32}};
    const mp_attr first = OP_INT("axis", 0);
    const op_case concat = {.name = "Concat",
                            .version = 13,
                            .attrs = &first,
                            .attr_count = 1,
                            .in = {OP_TENSOR(MP_F32, NULL, 2, 16)},
                            .in_count = 1,
                            .out_count = 1,
                            .out_pitch = {32}};
    const mp_attr rows = OP_TEXT("expression", "row=1 x0=f32 t0=rowsum(x0) -> t0");
    const op_case sum = {.domain = MP_OWN_DOMAIN,
                         .name = "Fused",
                         .version = 1,
                         .attrs = &rows,
                         .attr_count = 1,
                         .in = {OP_TENSOR(MP_F32, NULL, 2, 16)},
                         .in_count = 1,
                         .out_count = 1,
                         .in_pitch = {32}};
    mp_plan *plan = NULL;
    CHECK_EQ_INT(op_plan(device, &sum, &plan), MP_UNSUPPORTED);
    CHECK_STR_HAS(mp_error_message(), "no kernel takes rows that lie so far apart");
    CHECK_EQ_INT(op_plan(device, &relu, &plan), MP_INTERNAL);
    CHECK_STR_HAS(mp_error_message(), "Relu takes no rows that lie apart, as those of operand 0");
    CHECK_EQ_INT(op_plan(device, &concat, &plan), MP_INTERNAL);
    CHECK_STR_HAS(mp_error_message(), "rows that lie apart are cut along axis 0");
}
