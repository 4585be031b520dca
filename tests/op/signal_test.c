/* signal_test.c - HannWindow, HammingWindow, BlackmanWindow and MelWeightMatrix against their
 * formulas in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

static const double pi = 3.14159265358979323846;

/* ---- windows ---- */

typedef struct window {
    const char *name;
    double weight[3]; /* of the cosines of no, one and two turns */
} window;

static const window windows[] = {{"HannWindow", {0.5, 0.5, 0}},
                                 {"HammingWindow", {25.0 / 46, 21.0 / 46, 0}},
                                 {"BlackmanWindow", {0.42, 0.5, 0.08}}};

static double window_at(const window *w, int64_t i, int64_t period) {
    const double turn = period > 0 ? 2 * pi * (double)i / (double)period : pi; /* one element: 1 */
    return w->weight[0] - w->weight[1] * cos(turn) + w->weight[2] * cos(2 * turn);
}

/* Weights are floats in ONNX's definition: 1e-7 whatever the type. */
static void check_value(mp_dtype type, const void *data, int64_t i, double want) {
    if (op_is_float(type)) {
        op_check_close(op_real(type, data, i), want, 1e-7 + op_precision(type), "window", i);
    } else { /* the fraction is dropped; peaks are whole */
        CHECK_EQ_INT(op_whole(type, data, i), (int64_t)(want + 1e-7));
    }
}

static void check_window(mp_device *device, const window *w, int64_t size, bool periodic,
                         mp_dtype type) {
    const mp_attr attrs[] = {OP_INT("periodic", periodic), OP_INT("output_datatype", type)};
    const int32_t narrow = (int32_t)size;
    op_case c = {.name = w->name,
                 .version = 17,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {periodic ? op_tensor_of(MP_I64, &size, 0, NULL)
                                 : op_tensor_of(MP_I32, &narrow, 0, NULL)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(c.out[0].type == type);
    CHECK_EQ_INT(c.out[0].shape.rank, 1);
    CHECK_EQ_INT(c.out[0].shape.dim[0], size);
    for (int64_t i = 0; i < size; i++) {
        check_value(type, c.out[0].data, i, window_at(w, i, periodic ? size : size - 1));
    }
    op_close(device, &c);
}

DEVICE_TEST(windows_of_every_type) {
    for (size_t i = 0; i < MP_COUNT_OF(windows); i++) {
        for (const mp_dtype *type = op_types; *type != MP_NONE; type++) {
            if ((MP_BIT(*type) & MP_NUMBERS) != 0) {
                check_window(device, &windows[i], 16, true, *type);
                check_window(device, &windows[i], 17, false, *type);
            }
        }
    }
}

DEVICE_TEST(windows_of_every_size) {
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 400, 1001, 70000};
    for (size_t i = 0; i < MP_COUNT_OF(windows) * MP_COUNT_OF(sizes); i++) {
        const window *w = &windows[i % MP_COUNT_OF(windows)];
        const int64_t size = sizes[i / MP_COUNT_OF(windows)];
        check_window(device, w, size, false, MP_F32);
        if (size != 1) { /* one element of a period of one is the foot, or the peak as in NumPy */
            check_window(device, w, size, true, MP_F64);
        }
    }
}

DEVICE_TEST(windows_refuse) {
    const int64_t sizes[2] = {-1, 4};
    mp_plan *plan = NULL;
    const mp_attr attrs[] = {OP_INT("output_datatype", MP_BOOL)};
    op_case c = {.name = "HannWindow",
                 .version = 17,
                 .attrs = attrs,
                 .in = {op_tensor_of(MP_I64, sizes, 0, NULL)},
                 .in_count = 1,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "size of -1");
    c.in[0] = op_i64(sizes, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "size");
    c.in[0] = op_tensor_of(MP_I64, sizes + 1, 0, NULL);
    c.attr_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "output_datatype");
}

/* ---- mel ---- */

typedef struct bands {
    int64_t count, length, rate;
    float low, high;
} bands;

static double mel_of(double hertz) {
    return 2595 * log(1 + hertz / 700) / log(10);
}

/* The bin that point i of evenly spaced ones falls into. */
static int64_t bin_of(const bands *b, int64_t i) {
    const double low = mel_of((double)b->low), high = mel_of((double)b->high);
    const double mel = low + (high - low) * (double)i / (double)(b->count + 2);
    const double hertz = 700 * (exp(mel / 2595 * log(10)) - 1);
    const double bin = (double)(b->length + 1) * hertz / (double)b->rate;
    if (fabs(bin - round(bin)) < 1e-9) { /* an edge that is a bin: rounding must not decide */
        CHECK(i == 0);
        return (int64_t)round(bin);
    }
    return (int64_t)floor(bin);
}

/* A triangle from the bin below to that above, of height 1 at its own. */
static double weight_at(const bands *b, int64_t bin, int64_t band) {
    const int64_t low = bin_of(b, band), top = bin_of(b, band + 1), high = bin_of(b, band + 2);
    if (bin == top) {
        return 1;
    }
    if (bin < top) {
        return bin < low ? 0 : (double)(bin - low) / (double)(top - low);
    }
    return bin >= high ? 0 : (double)(high - bin) / (double)(high - top);
}

static void check_mel(mp_device *device, const bands *b, mp_dtype type) {
    const mp_attr attrs[] = {OP_INT("output_datatype", type)};
    op_case c = {
        .name = "MelWeightMatrix",
        .version = 17,
        .attrs = attrs,
        .attr_count = 1,
        .in = {op_tensor_of(MP_I64, &b->count, 0, NULL), op_tensor_of(MP_I64, &b->length, 0, NULL),
               op_tensor_of(MP_I64, &b->rate, 0, NULL), op_tensor_of(MP_F32, &b->low, 0, NULL),
               op_tensor_of(MP_F32, &b->high, 0, NULL)},
        .in_count = 5,
        .out_count = 1};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.rank, 2);
    CHECK_EQ_INT(c.out[0].shape.dim[0], b->length / 2 + 1);
    CHECK_EQ_INT(c.out[0].shape.dim[1], b->count);
    for (int64_t i = 0; i < mp_shape_count(&c.out[0].shape); i++) {
        const double want = weight_at(b, i / b->count, i % b->count);
        if (op_is_float(type)) {
            const double got = op_real(type, c.out[0].data, i);
            op_check_close(got, want, op_precision(type), "mel", i);
        } else {
            CHECK_EQ_INT(op_whole(type, c.out[0].data, i), (int64_t)want);
        }
    }
    op_close(device, &c);
}

DEVICE_TEST(mel_weights_of_every_type) {
    const bands b = {.count = 9, .length = 64, .rate = 8000, .low = 50, .high = 3900};
    for (const mp_dtype *type = op_types; *type != MP_NONE; type++) {
        if ((MP_BIT(*type) & MP_NUMBERS) != 0) {
            check_mel(device, &b, *type);
        }
    }
}

/* More bands than bins, so that triangles have no width; edges that need several uploads. */
DEVICE_TEST(mel_weights_of_every_size) {
    static const bands of[] = {{0, 16, 8000, 0, 4000},     {1, 1, 8000, 0, 300},
                               {80, 400, 16000, 0, 7999},  {40, 33, 22050, 80, 7600},
                               {600, 64, 16000, 20, 7800}, {7, 512, 44100, 300, 300}};
    for (size_t i = 0; i < MP_COUNT_OF(of); i++) {
        check_mel(device, &of[i], MP_F32);
    }
}

DEVICE_TEST(mel_weights_refuse) {
    const int64_t count = 4, length = 16, rate = 8000, none = 0;
    const float low = 10, high = 5;
    mp_plan *plan = NULL;
    op_case c = {.name = "MelWeightMatrix",
                 .version = 17,
                 .in = {op_tensor_of(MP_I64, &count, 0, NULL),
                        op_tensor_of(MP_I64, &length, 0, NULL),
                        op_tensor_of(MP_I64, &rate, 0, NULL), op_tensor_of(MP_F32, &low, 0, NULL),
                        op_tensor_of(MP_F32, &high, 0, NULL)},
                 .in_count = 5,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "above upper_edge_hertz");
    c.in[1].data = &none;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "dft_length is 0");
}
