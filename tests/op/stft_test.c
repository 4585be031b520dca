/* stft_test.c - STFT against sums of terms in double: frames that overlap, with windows and
 * without.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/spectrum_ref.h"

#include <math.h>
#include <stdlib.h>

typedef struct frames {
    mp_dtype type;
    int64_t length, frame, step, every;
    int parts;
    bool onesided, windowed, length_given;
} frames;

static void check_frames(mp_device *device, const frames *f) {
    enum { BATCH = 2 };
    void *x = op_numbers(f->type, 3, BATCH * f->length * f->parts);
    void *window = op_numbers(f->type, 4, f->frame);
    const mp_attr attrs[] = {OP_INT("onesided", f->onesided)};
    op_case c = {.name = "STFT",
                 .version = 17,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {OP_TENSOR(f->type, x, BATCH, f->length, f->parts),
                        op_tensor_of(MP_I64, &f->step, 0, NULL)},
                 .in_count = 4,
                 .out_count = 1};
    if (f->windowed) {
        c.in[2] = OP_TENSOR(f->type, window, f->frame);
    }
    if (f->length_given) {
        c.in[3] = op_tensor_of(MP_I64, &f->frame, 0, NULL);
    }
    op_run(device, &c);
    const op_tensor *out = &c.out[0];
    const int64_t count = (f->length - f->frame) / f->step + 1;
    const int64_t made = f->onesided ? f->frame / 2 + 1 : f->frame;
    CHECK_EQ_INT(out->shape.dim[0], BATCH);
    CHECK_EQ_INT(out->shape.dim[1], count);
    CHECK_EQ_INT(out->shape.dim[2], made);
    CHECK_EQ_INT(out->shape.dim[3], 2);
    complex_number *roots = ref_roots(f->frame);
    double squares[2] = {0, 0};
    for (int64_t row = 0; row < BATCH * count; row++) {
        const int64_t first = row / count * f->length + row % count * f->step;
        for (int64_t k = 0; k < made; k += f->every) {
            complex_number want = {0, 0};
            double norm = 0;
            for (int64_t t = 0; t < f->frame; t++) {
                const double weight = f->windowed ? op_real(f->type, window, t) : 1;
                complex_number value = {op_real(f->type, x, (first + t) * f->parts) * weight, 0};
                if (f->parts == 2) {
                    value.im = op_real(f->type, x, (first + t) * 2 + 1) * weight;
                }
                norm += ref_norm(value);
                ref_add(&want, value, roots[t * k % f->frame], false);
            }
            ref_check(out, row * made + k, 2, want, sqrt(norm), squares);
        }
    }
    ref_check_squares(f->type, squares);
    op_close(device, &c);
    free(roots);
    free(window);
    free(x);
}

DEVICE_TEST(stft_of_windows_and_lengths) {
    static const int64_t shapes[][3] = {{40, 16, 4},    {41, 20, 7},    {61, 20, 5},
                                        {40, 17, 3},    {64, 64, 9},    {90, 1, 8},
                                        {300, 128, 32}, {300, 128, 15}, {301, 64, 10}};
    for (size_t i = 0; i < MP_COUNT_OF(shapes); i++) {
        for (int form = 0; form < 8; form++) {
            const frames f = {.type = MP_F32,
                              .length = shapes[i][0],
                              .frame = shapes[i][1],
                              .step = shapes[i][2],
                              .every = 1,
                              .onesided = (form & 1) != 0,
                              .parts = (form & 3) == 2 ? 2 : 1,
                              .windowed = (form & 4) != 0,
                              .length_given = (form & 6) != 4};
            check_frames(device, &f);
        }
    }
}

DEVICE_TEST(stft_of_every_type) {
    for (const mp_dtype *type = op_types; *type != MP_NONE; type++) {
        static const int64_t sizes[] = {15, 16, 17, 64};
        for (size_t i = 0; op_is_float(*type) && i < MP_COUNT_OF(sizes); i++) {
            const frames f = {.type = *type,
                              .length = 80,
                              .frame = sizes[i],
                              .step = 6,
                              .every = 1,
                              .onesided = true,
                              .parts = 1,
                              .windowed = true};
            check_frames(device, &f);
        }
    }
}

DEVICE_TEST(stft_of_long_frames) {
    static const int64_t lengths[] = {9000, 8209};
    for (size_t i = 0; i < MP_COUNT_OF(lengths); i++) {
        const frames f = {.type = MP_F32,
                          .length = 9500,
                          .frame = lengths[i],
                          .step = 250,
                          .every = 1500,
                          .onesided = i == 0,
                          .parts = 1,
                          .windowed = true};
        check_frames(device, &f);
    }
}

DEVICE_TEST(stft_refuses_what_makes_no_sense) {
    const float x[32] = {0};
    const int64_t none = 0, step = 4, far = 99;
    mp_plan *plan = NULL;
    op_case c = {.name = "STFT",
                 .version = 17,
                 .in = {op_f32(x, 1, 32, 1), op_tensor_of(MP_I64, &none, 0, NULL)},
                 .in_count = 2,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "frame_step is 0");
    c.in[1] = op_tensor_of(MP_I64, &step, 0, NULL);
    c.in[3] = op_tensor_of(MP_I64, &far, 0, NULL);
    c.in_count = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "frames of 99");
}
