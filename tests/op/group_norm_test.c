/* group_norm_test.c - GroupNorm and SkipGroupNorm of com.microsoft against loops: packs of channels
 * and single ones, more channels than lanes, slices of many pixels, groups that cut packs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

typedef struct sizes {
    int64_t batch, pixels, channels, groups;
} sizes;

/* How the tensors are stored and what is added to X. */
typedef struct form {
    mp_dtype type, scale_type;
    bool last, skip, repeated;
    int32_t align;
} form;

static int64_t place(const sizes *s, bool last, int64_t n, int64_t pixel, int64_t channel) {
    return last ? (n * s->pixels + pixel) * s->channels + channel
                : (n * s->channels + channel) * s->pixels + pixel;
}

/* What is normalised, as it is stored. */
static double *summed(const sizes *s, const form *f, const void *x, const void *skip,
                      const void *bias) {
    const int64_t count = s->batch * s->pixels * s->channels;
    double *out = calloc((size_t)count, sizeof *out);
    for (int64_t n = 0; n < s->batch; n++) {
        for (int64_t c = 0; c < s->channels; c++) {
            for (int64_t k = 0; k < s->pixels; k++) {
                const int64_t at = place(s, f->last, n, k, c);
                double value = op_real(f->type, x, at);
                if (f->skip) {
                    value += op_real(f->type, skip, f->repeated ? n * s->channels + c : at);
                    value += op_real(f->type, bias, c);
                }
                out[at] = op_rounded(f->type, value);
            }
        }
    }
    return out;
}

static void check_group(const op_case *c, const sizes *s, const form *f, const double *sum,
                        int64_t n, int64_t group, const void *scale) {
    const int64_t each = s->channels / s->groups;
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < each * s->pixels; i++) {
        const int64_t at = place(s, f->last, n, i % s->pixels, group * each + i / s->pixels);
        mean += sum[at] / (double)(each * s->pixels);
    }
    for (int64_t i = 0; i < each * s->pixels; i++) {
        const int64_t at = place(s, f->last, n, i % s->pixels, group * each + i / s->pixels);
        squares += pow(sum[at] - mean, 2) / (double)(each * s->pixels);
    }
    for (int64_t i = 0; i < each * s->pixels; i++) {
        const int64_t channel = group * each + i / s->pixels;
        const int64_t at = place(s, f->last, n, i % s->pixels, channel);
        const double normal = (sum[at] - mean) / sqrt(squares + 0.01);
        const double value = normal * op_real(f->scale_type, scale, channel) +
                             op_real(f->scale_type, scale, s->channels - 1 - channel);
        op_check_close(op_real(f->type, c->out[0].data, at), value / (1 + exp(-value)),
                       op_precision(f->type) + 2e-5, "group norm", at);
    }
}

static void check(mp_device *device, sizes s, form f) {
    const int64_t count = s.batch * s.pixels * s.channels;
    void *x = op_numbers(f.type, 1, count), *skip = op_numbers(f.type, 2, count),
         *bias = op_numbers(f.type, 3, s.channels),
         *scale = op_numbers(f.scale_type, 4, s.channels);
    void *back = op_memory(f.scale_type, s.channels);
    for (int64_t c = 0; c < s.channels; c++) {
        op_store_real(f.scale_type, back, c, op_real(f.scale_type, scale, s.channels - 1 - c));
    }
    const mp_attr attrs[] = {OP_INT("groups", s.groups), OP_INT("activation", 1),
                             OP_INT("channels_last", f.last), OP_FLOAT("epsilon", 0.01f)};
    const op_tensor image = f.last ? OP_TENSOR(f.type, x, s.batch, s.pixels, s.channels)
                                   : OP_TENSOR(f.type, x, s.batch, s.channels, s.pixels);
    op_case c = {.domain = "com.microsoft",
                 .name = f.skip ? "SkipGroupNorm" : "GroupNorm",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 4,
                 .align = f.align,
                 .skew = f.align == 1 ? (uint32_t)mp_dtype_size(f.type) : 0,
                 .in = {image, OP_TENSOR(f.scale_type, scale, s.channels),
                        OP_TENSOR(f.scale_type, back, s.channels)},
                 .in_count = f.skip ? 5 : 3,
                 .out_count = f.skip ? 2 : 1};
    if (f.skip) {
        c.in[3] = image;
        c.in[3].data = skip;
        if (f.repeated) {
            c.in[3] = OP_TENSOR(f.type, skip, s.batch, s.channels);
        }
        c.in[4] = OP_TENSOR(f.type, bias, s.channels);
    }
    if (f.align == 1 && f.scale_type != f.type) {
        c.skew = 4;
    }
    op_run(device, &c);
    double *sum = summed(&s, &f, x, skip, bias);
    for (int64_t i = 0; i < s.batch * s.groups; i++) {
        check_group(&c, &s, &f, sum, i / s.groups, i % s.groups, scale);
    }
    for (int64_t i = 0; f.skip && i < count; i++) {
        op_check_close(op_real(f.type, c.out[1].data, i), sum[i], 0, "sum", i);
    }
    op_close(device, &c);
    free(x);
    free(skip);
    free(bias);
    free(scale);
    free(back);
    free(sum);
}

static const sizes all[] = {{2, 9, 40, 4},     {1, 1, 16, 8},   {2, 700, 12, 3}, {1, 5, 2080, 5},
                            {3, 33, 7, 1},     {1, 3000, 1, 1}, {2, 20, 6, 6},   {1, 50, 320, 32},
                            {1, 2100, 24, 4},  {2, 4, 300, 3},  {1, 3, 4608, 1}, {1, 2, 4104, 3},
                            {1, 3, 1030, 1030}};

DEVICE_TEST(group_norm_with_channels_last) {
    for (size_t k = 0; k < MP_COUNT_OF(all); k++) {
        check(device, all[k], (form){MP_F32, MP_F32, .last = true, .align = 16});
        check(device, all[k], (form){MP_F16, MP_F32, .last = true, .align = 16});
        check(device, all[k], (form){MP_F16, MP_F16, .last = true, .align = 1});
        check(device, all[k],
              (form){MP_F32, MP_F16, .last = true, .skip = true, .align = k % 2 == 0 ? 16 : 1});
        check(device, all[k],
              (form){MP_F16, MP_F32, .last = true, .skip = true, .repeated = true, .align = 16});
    }
}

DEVICE_TEST(group_norm_with_channels_first) {
    for (size_t k = 0; k < MP_COUNT_OF(all); k++) {
        check(device, all[k], (form){MP_F32, MP_F32, .align = 16});
        check(device, all[k], (form){MP_F16, MP_F32, .align = 1});
        check(device, all[k], (form){MP_F32, MP_F16, .skip = true, .align = 16});
        check(device, all[k], (form){MP_F16, MP_F16, .skip = true, .repeated = true, .align = 1});
    }
}

/* GroupNorm of one image [pixels][channels]. */
static op_case plain(const float *x, int64_t pixels, int64_t channels, const float *scale,
                     const float *bias, const mp_attr *attrs, size_t attr_count) {
    return (op_case){
        .domain = "com.microsoft",
        .name = "GroupNorm",
        .version = 1,
        .attrs = attrs,
        .attr_count = attr_count,
        .in = {op_f32(x, 1, pixels, channels), op_f32(scale, channels), op_f32(bias, channels)},
        .in_count = 3,
        .out_count = 1};
}

/* A mean that is large beside the deviation: squares of the elements themselves would lose it. */
DEVICE_TEST(group_norm_far_from_zero) {
    enum { PIXELS = 4000, CHANNELS = 8 };
    float *x = calloc((size_t)PIXELS * CHANNELS, sizeof *x);
    const float one[CHANNELS] = {1, 1, 1, 1, 1, 1, 1, 1}, none[CHANNELS] = {0};
    const mp_attr attrs[] = {OP_INT("groups", 1), OP_INT("activation", 0), OP_FLOAT("epsilon", 0)};
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        x[i] = 4096 + (float)(i / CHANNELS % 2);
    }
    op_case c = plain(x, PIXELS, CHANNELS, one, none, attrs, 3);
    op_run(device, &c);
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        const double want = i / CHANNELS % 2 == 0 ? -1 : 1;
        op_check_close((double)((const float *)c.out[0].data)[i], want, 1e-3, "group norm", i);
    }
    op_close(device, &c);
    free(x);
}

/* What is not a number, or has no end, is of its group alone. */
DEVICE_TEST(group_norm_keeps_nan_to_its_group) {
    enum { PIXELS = 70, CHANNELS = 24, GROUPS = 3, EACH = CHANNELS / GROUPS };
    float x[PIXELS * CHANNELS];
    float one[CHANNELS];
    const mp_attr attrs[] = {OP_INT("groups", GROUPS), OP_INT("activation", 0)};
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        x[i] = op_value(1, i);
    }
    for (int i = 0; i < CHANNELS; i++) {
        one[i] = 1;
    }
    x[31 * CHANNELS + 2] = NAN;
    x[(PIXELS - 1) * CHANNELS + 2 * EACH] = INFINITY;
    op_case c = plain(x, PIXELS, CHANNELS, one, one, attrs, 2);
    op_run(device, &c);
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        const float got = ((const float *)c.out[0].data)[i];
        CHECK(isnan(got) == (i % CHANNELS / EACH != 1));
    }
    op_close(device, &c);
}

/* Channels of a group far from one another, and each nearly the same at all pixels. */
DEVICE_TEST(group_norm_with_channels_far_apart) {
    enum { PIXELS = 3000, CHANNELS = 4 };
    float *x = calloc((size_t)PIXELS * CHANNELS, sizeof *x);
    const float one[CHANNELS] = {1, 1, 1, 1}, none[CHANNELS] = {0};
    const mp_attr attrs[] = {OP_INT("groups", 1), OP_INT("activation", 0), OP_FLOAT("epsilon", 0)};
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        x[i] = 10000 * (float)(i % CHANNELS) + (float)(i / CHANNELS % 3);
    }
    op_case c = plain(x, PIXELS, CHANNELS, one, none, attrs, 3);
    op_run(device, &c);
    double mean = 0, variance = 0;
    op_moments(MP_F32, x, 0, PIXELS * CHANNELS, &mean, &variance);
    for (int i = 0; i < PIXELS * CHANNELS; i++) {
        op_check_close((double)((const float *)c.out[0].data)[i],
                       ((double)x[i] - mean) / sqrt(variance), 1e-6, "group norm", i);
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(group_norm_refuses_what_does_not_fit) {
    const float x[48] = {0};
    mp_attr attrs[] = {OP_INT("groups", 3), OP_INT("activation", 0), OP_INT("channels_last", 1)};
    mp_plan *plan = NULL;
    op_case c = {.domain = "com.microsoft",
                 .name = "SkipGroupNorm",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 3,
                 .in = {op_f32(x, 2, 2, 3, 4), op_f32(x, 4), op_f32(x, 4), op_f32(x, 2, 2, 3, 4)},
                 .in_count = 4,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "4 channels do not make 3 groups");
    attrs[0].i = 2;
    attrs[1].i = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "activation 2");
    attrs[1].i = 0;
    c.in[2] = op_f32(x, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "beta of shape 3; 4 values");
    c.in[2] = op_f32(x, 4);
    c.in[3] = op_f32(x, 2, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "skip of shape 2x3");
    attrs[2].i = 0;
    c.in[1] = op_f32(x, 2);
    c.in[2] = op_f32(x, 2);
    c.in[3] = op_f32(x, 2, 1, 1, 2); /* channels first: 2x2x1x1 */
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "skip of shape 2x1x1x2");
    attrs[0].i = 1;
    const op_case wide = plain(x, 1, 1 << 30, x, x, attrs, 2); /* nothing is read of it */
    CHECK_FAILS(op_plan(device, &wide, &plan), UNSUPPORTED, "fewer than 2^30 are needed");
}
