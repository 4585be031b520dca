/* resize_test.c - Resize and Upsample against weights worked out for each output on its own, in
 * double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { TAPS = 64, RANK = 4 };

typedef struct resize {
    const char *mode, *transform, *nearest;
    double cubic_a;
    bool exclude_outside, antialias;
    float extrapolation;
    int rank;
    int64_t in[RANK], out[RANK];
    float scale[RANK], start[RANK], end[RANK];
} resize;

/* What one output coordinate of one axis is made of. */
typedef struct taps {
    bool outside;
    int count;
    int64_t index[TAPS];
    double weight[TAPS];
} taps;

static double origin_of(const resize *r, int d, int64_t o) {
    const double at = (double)o;
    const double in = (double)r->in[d];
    const double out = (double)r->out[d];
    const double scale = (double)r->scale[d];
    if (strcmp(r->transform, "half_pixel_symmetric") == 0) {
        return in / 2 * (1 - out / (scale * in)) + (at + 0.5) / scale - 0.5;
    }
    if (strcmp(r->transform, "pytorch_half_pixel") == 0) {
        return out > 1 ? (at + 0.5) / scale - 0.5 : 0;
    }
    if (strcmp(r->transform, "align_corners") == 0) {
        return out > 1 ? at * (in - 1) / (out - 1) : 0;
    }
    if (strcmp(r->transform, "asymmetric") == 0) {
        return at / scale;
    }
    if (strcmp(r->transform, "tf_crop_and_resize") == 0) {
        const double start = (double)r->start[d];
        const double end = (double)r->end[d];
        return out > 1 ? start * (in - 1) + at * (end - start) * (in - 1) / (out - 1)
                       : (start + end) / 2 * (in - 1);
    }
    return (at + 0.5) / scale - 0.5;
}

static double nearest_of(const resize *r, double origin) {
    if (strcmp(r->nearest, "floor") == 0) {
        return floor(origin);
    }
    if (strcmp(r->nearest, "ceil") == 0) {
        return ceil(origin);
    }
    return strcmp(r->nearest, "round_prefer_ceil") == 0 ? floor(origin + 0.5) : ceil(origin - 0.5);
}

/* The filter by which a mode weighs an input at a distance. */
static double filter(const resize *r, double distance) {
    const double a = r->cubic_a;
    const double t = fabs(distance);
    if (strcmp(r->mode, "linear") == 0) {
        return t < 1 ? 1 - t : 0;
    }
    return t < 1   ? (a + 2) * t * t * t - (a + 3) * t * t + 1
           : t < 2 ? a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a
                   : 0;
}

static taps taps_of(const resize *r, int d, int64_t o) {
    taps t = {.count = 0};
    const int64_t in = r->in[d];
    if (r->scale[d] == 1.0f) {
        return (taps){.count = 1, .index = {o}, .weight = {1}};
    }
    const double origin = origin_of(r, d, o);
    const bool crop = strcmp(r->transform, "tf_crop_and_resize") == 0;
    t.outside = crop && (origin < 0 || origin > (double)(in - 1));
    if (strcmp(r->mode, "nearest") == 0) {
        const double at = nearest_of(r, origin);
        const double most = (double)(in - 1);
        t.index[0] = (int64_t)(at < 0 ? 0 : at > most ? most : at);
        t.weight[0] = 1;
        t.count = 1;
        return t;
    }
    /* Every input, and as many places beyond each edge, which are the edge again. */
    const double stretch = r->antialias && r->scale[d] < 1.0f ? (double)r->scale[d] : 1;
    double sum = 0;
    for (int64_t n = -in - 16; n < 2 * in + 16; n++) {
        const bool beyond = n < 0 || n >= in;
        const double weight = filter(r, ((double)n - origin) * stretch);
        if (weight == 0 || (beyond && r->exclude_outside)) {
            continue;
        }
        CHECK(t.count < TAPS);
        t.index[t.count] = n < 0 ? 0 : n >= in ? in - 1 : n;
        t.weight[t.count++] = weight;
        sum += weight;
    }
    for (int k = 0; k < t.count; k++) {
        t.weight[k] /= sum;
    }
    return t;
}

/* Output `i` of the whole tensor. */
static double expected(const resize *r, mp_dtype type, const void *x, int64_t i) {
    taps t[RANK];
    int choice[RANK] = {0};
    double sum = 0;
    for (int d = r->rank - 1; d >= 0; d--) {
        t[d] = taps_of(r, d, i % r->out[d]);
        i /= r->out[d];
        if (t[d].outside) {
            return (double)r->extrapolation;
        }
    }
    for (;;) {
        double weight = 1;
        int64_t offset = 0;
        for (int d = 0; d < r->rank; d++) {
            weight *= t[d].weight[choice[d]];
            offset = offset * r->in[d] + t[d].index[choice[d]];
        }
        sum += weight * op_real(type, x, offset);
        int d = r->rank - 1;
        while (d >= 0 && ++choice[d] == t[d].count) {
            choice[d--] = 0;
        }
        if (d < 0) {
            return sum;
        }
    }
}

static int64_t count_of(const int64_t *dims, int rank) {
    int64_t count = 1;
    for (int d = 0; d < rank; d++) {
        count *= dims[d];
    }
    return count;
}

/* Sets the output sizes for `scales`. */
static resize make(const char *mode, int rank, const int64_t *in, const float *scales) {
    resize r = {.mode = mode,
                .transform = "half_pixel",
                .nearest = "round_prefer_floor",
                .cubic_a = -0.75,
                .extrapolation = 7.5f,
                .rank = rank};
    for (int d = 0; d < rank; d++) {
        r.in[d] = in[d];
        r.scale[d] = scales[d];
        r.out[d] = (int64_t)floorf((float)in[d] * scales[d]);
        r.start[d] = scales[d] == 1.0f ? 0.0f : 0.25f;
        r.end[d] = scales[d] == 1.0f ? 1.0f : d % 2 == 0 ? 1.25f : 0.75f;
    }
    return r;
}

static void check_resize(mp_device *device, const resize *r, mp_dtype type) {
    void *x = op_numbers(type, 17, count_of(r->in, r->rank));
    float roi[2 * RANK];
    memcpy(roi, r->start, (size_t)r->rank * sizeof *roi);
    memcpy(roi + r->rank, r->end, (size_t)r->rank * sizeof *roi);
    const mp_attr attrs[] = {
        OP_TEXT("mode", r->mode),
        OP_TEXT("coordinate_transformation_mode", r->transform),
        OP_TEXT("nearest_mode", r->nearest),
        OP_FLOAT("cubic_coeff_a", (float)r->cubic_a),
        OP_FLOAT("extrapolation_value", r->extrapolation),
        OP_INT("exclude_outside", r->exclude_outside),
        OP_INT("antialias", r->antialias),
    };
    op_case c = {.name = "Resize",
                 .version = 19,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .in = {op_tensor_of(type, x, r->rank, r->in), op_f32(roi, 2 * r->rank),
                        op_f32(r->scale, r->rank)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < count_of(r->out, r->rank); i++) {
        const double want = expected(r, type, x, i);
        const double got = op_real(type, c.out[0].data, i);
        if (op_is_float(type)) {
            op_check_close(got, want, op_precision(type) * 4 + 2e-6, r->mode, i);
        } else if (strcmp(r->mode, "nearest") == 0 || r->antialias) {
            op_check_close(got, want, 1.01, r->mode, i); /* rounded once an axis */
        } else {
            CHECK(fabs(got) <= fabs(want) + 1e-3 && fabs(got) > fabs(want) - 1 - 1e-3);
        }
    }
    op_close(device, &c);
    free(x);
}

static const char *const transforms[] = {"half_pixel",         "half_pixel_symmetric",
                                         "pytorch_half_pixel", "align_corners",
                                         "asymmetric",         "tf_crop_and_resize"};

DEVICE_TEST(resize_to_the_nearest) {
    static const char *const roundings[] = {"floor", "ceil", "round_prefer_floor",
                                            "round_prefer_ceil"};
    static const float scales[][RANK] = {{1, 1, 2, 2}, {1, 1, 0.5f, 1.5f}, {2, 0.75f, 1, 2.25f}};
    const int64_t in[RANK] = {2, 4, 5, 6};
    for (size_t t = 0; t < MP_COUNT_OF(transforms); t++) {
        for (size_t n = 0; n < MP_COUNT_OF(roundings); n++) {
            resize r = make("nearest", RANK, in, scales[(t + n) % MP_COUNT_OF(scales)]);
            r.transform = transforms[t];
            r.nearest = roundings[n];
            check_resize(device, &r, MP_F32);
        }
    }
}

DEVICE_TEST(resize_blends_linearly_along_any_axes) {
    const int64_t in[RANK] = {2, 3, 4, 5};
    for (uint32_t mask = 1; mask < 1u << RANK; mask++) {
        float scales[RANK];
        for (int d = 0; d < RANK; d++) {
            scales[d] = (mask & 1u << d) == 0 ? 1.0f : d % 2 == 0 ? 1.75f : 0.75f;
        }
        resize r = make("linear", RANK, in, scales);
        r.transform = transforms[mask % MP_COUNT_OF(transforms)];
        check_resize(device, &r, MP_F32);
    }
}

DEVICE_TEST(resize_blends_cubically) {
    const int64_t in[RANK] = {1, 2, 5, 6};
    const float scales[RANK] = {1, 1, 1.75f, 0.75f};
    for (size_t t = 0; t < 2 * MP_COUNT_OF(transforms); t++) {
        resize r = make("cubic", RANK, in, scales);
        r.transform = transforms[t / 2];
        r.exclude_outside = t % 2 != 0;
        r.cubic_a = t % 3 == 0 ? -0.5 : -0.75;
        check_resize(device, &r, MP_F32);
    }
}

DEVICE_TEST(resize_smooths_what_it_shrinks) {
    static const char *const modes[] = {"linear", "cubic"};
    static const float scales[][RANK] = {
        {1, 1, 0.5f, 0.25f}, {1, 1, 0.75f, 2}, {1, 0.5f, 1, 0.625f}};
    const int64_t in[RANK] = {1, 4, 8, 12};
    for (int k = 0; k < 12; k++) {
        resize r = make(modes[k % 2], RANK, in, scales[k % 3]);
        r.antialias = true;
        r.exclude_outside = k >= 6;
        check_resize(device, &r, MP_F32);
    }
}

DEVICE_TEST(resize_knows_every_type) {
    static const char *const modes[] = {"nearest", "linear", "cubic", "linear", "cubic"};
    const int64_t in[RANK] = {1, 2, 4, 6};
    const float scales[RANK] = {1, 1, 1.5f, 0.5f};
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        for (size_t m = 0; m < MP_COUNT_OF(modes); m++) {
            if ((op_types_of("Resize", 19) & MP_BIT(op_types[t])) != 0) {
                resize r = make(modes[m], RANK, in, scales);
                r.antialias = m >= 3;
                /* A cubic may overshoot what an unsigned integer holds; a triangle does not. */
                if (op_types[t] != MP_U8 || r.antialias == false || m == 3) {
                    check_resize(device, &r, op_types[t]);
                }
            }
        }
    }
}

/* Lines of whole runs, with a rest, and of less than a run, along the last axis or kept behind it.
 */
DEVICE_TEST(resize_makes_runs_of_any_lines) {
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const struct {
        int64_t in[RANK];
        float scales[RANK];
    } forms[] = {{{2, 3, 4, 8}, {1, 1, 2, 2}},    {{1, 2, 3, 9}, {1, 1, 2, 1.5f}},
                 {{3, 1, 2, 1}, {1, 1, 2, 3}},    {{2, 3, 4, 8}, {1, 2, 1.5f, 1}},
                 {{2, 3, 4, 3}, {1, 1.5f, 2, 1}}, {{2, 2, 4, 8}, {1, 1, 2, 1}},
                 {{1, 2, 4, 8}, {1, 2, 2, 1.5f}}, {{2, 3, 4, 5}, {2, 2, 1.5f, 1}}};
    int kind = 0;
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        for (size_t m = 0; m < MP_COUNT_OF(modes); m++) {
            for (int t = 0; op_types[t] != MP_NONE; t++) {
                resize r = make(modes[m], RANK, forms[f].in, forms[f].scales);
                r.transform = transforms[kind++ % (int)MP_COUNT_OF(transforms)];
                /* A cubic may overshoot what an integer holds. */
                if ((op_types_of("Resize", 19) & MP_BIT(op_types[t])) != 0 &&
                    (m < 2 || op_is_float(op_types[t]))) {
                    check_resize(device, &r, op_types[t]);
                }
            }
        }
    }
}

/* Runs a Resize 19 of `x` with inputs sizes and given attributes, and checks the shape. */
static void check_sizes(mp_device *device, op_tensor x, op_tensor sizes, const mp_attr *attrs,
                        size_t attr_count, const mp_shape *want) {
    op_case c = {.name = "Resize",
                 .version = 19,
                 .attrs = attrs,
                 .attr_count = attr_count,
                 .in = {x, {.type = MP_NONE}, {.type = MP_NONE}, sizes},
                 .in_count = 4,
                 .out_count = 1};
    op_run(device, &c);
    char got[MP_SHAPE_TEXT];
    char expected_text[MP_SHAPE_TEXT];
    if (!mp_shape_equal(&c.out[0].shape, want)) {
        test_fail(__FILE__, __LINE__, "shape %s, not %s", mp_shape_text(&c.out[0].shape, got),
                  mp_shape_text(want, expected_text));
    }
    op_close(device, &c);
}

DEVICE_TEST(resize_keeps_the_aspect_ratio) {
    const float x[2 * 3 * 4] = {0};
    const int64_t sizes[] = {9, 6};
    const struct {
        const char *policy;
        mp_shape want;
    } forms[] = {{"stretch", {3, {2, 6, 9}}},
                 {"not_larger", {3, {2, 6, 8}}},
                 {"not_smaller", {3, {2, 7, 9}}}};
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        const mp_attr attrs[] = {OP_INTS("axes", -1, 1),
                                 OP_TEXT("keep_aspect_ratio_policy", forms[f].policy)};
        check_sizes(device, op_f32(x, 2, 3, 4), op_i64(sizes, 2), attrs, 2, &forms[f].want);
    }
}

DEVICE_TEST(resize_to_its_own_size_copies) {
    const float x[] = {1, NAN, INFINITY, 4, 5, 6};
    const float scales[] = {1, 1.25f};
    op_case c = {.name = "Resize",
                 .version = 13,
                 .in = {op_f32(x, 2, 3), {.type = MP_NONE}, op_f32(scales, 2)},
                 .in_count = 3,
                 .out_count = 1};
    op_run(device, &c);
    CHECK(op_same(&c.out[0], x));
    op_close(device, &c);
}

DEVICE_TEST(resize_of_nothing) {
    const int64_t sizes[] = {0, 3};
    const mp_shape want = {.rank = 2, .dim = {0, 3}};
    check_sizes(device, op_f32("", 0, 2), op_i64(sizes, 2), NULL, 0, &want);
}

/* The older forms: scales as an attribute or second input, coordinates without halves. */
DEVICE_TEST(upsample_repeats) {
    const float x[] = {1, 2, 3, 4};
    const float scales[] = {2, 3};
    const float want[] = {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 3, 3, 3, 4, 4, 4};
    const mp_attr by_attr[] = {
        {.name = "scales", .kind = MP_ATTR_FLOATS, .floats = scales, .count = 2}};
    const struct {
        const char *name;
        int version;
    } forms[] = {{"Upsample", 7}, {"Upsample", 9}, {"Resize", 10}};
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        op_case c = {.name = forms[f].name,
                     .version = forms[f].version,
                     .attrs = by_attr,
                     .attr_count = f == 0 ? 1 : 0,
                     .in = {op_f32(x, 2, 2), op_f32(scales, 2)},
                     .in_count = f == 0 ? 1 : 2,
                     .out_count = 1};
        op_run(device, &c);
        CHECK(op_same(&c.out[0], want));
        op_close(device, &c);
    }
}

DEVICE_TEST(resize_refuses_what_makes_no_sense) {
    const float x[6] = {0};
    const float scales[] = {1, -2, 1};
    const float huge[] = {1, 3e38f};
    const int64_t sizes[] = {2, -3};
    const op_tensor absent = {.type = MP_NONE};
    mp_plan *plan = NULL;
    const mp_attr bad_mode[] = {OP_TEXT("mode", "quadratic")};
    const mp_attr bad_axes[] = {OP_INTS("axes", 0, -2)};
    op_case c = {.name = "Resize",
                 .version = 19,
                 .in = {op_f32(x, 2, 3), absent, op_f32(scales, 2), absent},
                 .in_count = 4,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "the scale of axis 1 is -2");
    c.in[2] = op_f32(scales, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "scales has 3 values where 2");
    c.in[2] = op_f32(huge, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "too long");
    c.in[2] = absent;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "neither scales nor sizes");
    c.in[3] = op_i64(sizes, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "axis 1 of 3 elements cannot get -3");
    c.attrs = bad_mode;
    c.attr_count = 1;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "unknown value 'quadratic'");
    c.attrs = bad_axes;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "axes names axis 0 twice");
}
