/* conv_test.c - Conv and ConvTranspose against plain loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/kernel_cache.h"
#include "op/op_test.h"

#include <stdio.h>
#include <stdlib.h>

/* One case in three spatial dimensions; unused ones have size and kernel 1. */
typedef struct geometry {
    int spatial;
    bool transposed, bias;
    int64_t batch, in_channels, out_channels, groups;
    int64_t in[3], kernel[3], stride[3], dilation[3], begin[3], end[3];
    int64_t more[3]; /* output_padding */
} geometry;

static float *values(uint64_t seed, int64_t count) {
    float *data = calloc((size_t)(count + 1), sizeof *data);
    CHECK(data != NULL);
    for (int64_t i = 0; i < count; i++) {
        data[i] = op_value(seed, i);
    }
    return data;
}

static int64_t product(const int64_t *dims) {
    return dims[0] * dims[1] * dims[2];
}

static int64_t out_size(const geometry *g, int d) {
    const int64_t extent = g->dilation[d] * (g->kernel[d] - 1) + 1;
    return g->transposed
               ? g->stride[d] * (g->in[d] - 1) + g->more[d] + extent - g->begin[d] - g->end[d]
               : (g->in[d] + g->begin[d] + g->end[d] - extent) / g->stride[d] + 1;
}

static void split(int64_t i, const int64_t *dims, int64_t at[3]) {
    at[2] = i % dims[2];
    at[1] = i / dims[2] % dims[1];
    at[0] = i / dims[2] / dims[1];
}

/* Where tap `k` at point `p` of the side with strides meets the other side; -1 outside. */
static int64_t meet(const geometry *g, int64_t p, int64_t k, const int64_t *near,
                    const int64_t *far) {
    int64_t point[3];
    int64_t tap[3];
    int64_t at = 0;
    split(p, near, point);
    split(k, g->kernel, tap);
    for (int d = 0; d < 3; d++) {
        const int64_t x = point[d] * g->stride[d] + tap[d] * g->dilation[d] - g->begin[d];
        if (x < 0 || x >= far[d]) {
            return -1;
        }
        at = at * far[d] + x;
    }
    return at;
}

/* Adds one pair of channels of a group, for one image. */
static void add_pair(const geometry *g, const int64_t *out, const float *x, const float *w,
                     double *y) {
    const int64_t *near = g->transposed ? g->in : out;
    const int64_t *far = g->transposed ? out : g->in;
    for (int64_t p = 0; p < product(near); p++) {
        for (int64_t k = 0; k < product(g->kernel); k++) {
            const int64_t at = meet(g, p, k, near, far);
            if (at >= 0) {
                y[g->transposed ? at : p] += (double)w[k] * (double)x[g->transposed ? p : at];
            }
        }
    }
}

static double *expected(const geometry *g, const int64_t *out, const float *x, const float *w,
                        const float *bias) {
    const int64_t points = product(out);
    const int64_t group_in = g->in_channels / g->groups;
    const int64_t group_out = g->out_channels / g->groups;
    double *y = calloc((size_t)(g->batch * g->out_channels * points + 1), sizeof *y);
    CHECK(y != NULL);
    for (int64_t i = 0; i < g->batch * g->out_channels * points; i++) {
        y[i] = g->bias ? (double)bias[i / points % g->out_channels] : 0;
    }
    for (int64_t n = 0; n < g->batch * g->out_channels * group_in; n++) {
        const int64_t i = n % group_in;
        const int64_t o = n / group_in % g->out_channels;
        const int64_t image = n / group_in / g->out_channels;
        const int64_t group = o / group_out;
        const int64_t pair =
            g->transposed ? (group * group_in + i) * group_out + o % group_out : o * group_in + i;
        add_pair(g, out, x + (image * g->in_channels + group * group_in + i) * product(g->in),
                 w + pair * product(g->kernel), y + (image * g->out_channels + o) * points);
    }
    return y;
}

/* The dimensions of X or W: two of channels, then the used spatial ones. */
static op_tensor tensor(const float *data, int64_t first, int64_t second, const int64_t *spatial,
                        int count) {
    int64_t dims[5] = {first, second};
    memcpy(&dims[2], spatial, (size_t)count * sizeof *dims);
    return op_tensor_of(MP_F32, data, 2 + count, dims);
}

typedef struct attributes {
    int64_t pads[6];
    mp_attr list[5];
} attributes;

static void describe(const geometry *g, attributes *a) {
    const size_t count = (size_t)g->spatial;
    for (int d = 0; d < g->spatial; d++) {
        a->pads[d] = g->begin[d];
        a->pads[g->spatial + d] = g->end[d];
    }
    const mp_attr list[] = {
        {.name = "strides", .kind = MP_ATTR_INTS, .ints = g->stride, .count = count},
        {.name = "dilations", .kind = MP_ATTR_INTS, .ints = g->dilation, .count = count},
        {.name = "pads", .kind = MP_ATTR_INTS, .ints = a->pads, .count = 2 * count},
        {.name = "group", .kind = MP_ATTR_INT, .i = g->groups},
        {.name = "output_padding", .kind = MP_ATTR_INTS, .ints = g->more, .count = count},
    };
    memcpy(a->list, list, sizeof list);
}

static void check_case(mp_device *device, const geometry *g) {
    int64_t out[3];
    attributes a;
    for (int d = 0; d < 3; d++) {
        out[d] = out_size(g, d);
    }
    describe(g, &a);
    const int64_t w_first = g->transposed ? g->in_channels : g->out_channels;
    const int64_t w_second = (g->transposed ? g->out_channels : g->in_channels) / g->groups;
    float *x = values(1, g->batch * g->in_channels * product(g->in));
    float *w = values(2, w_first * w_second * product(g->kernel));
    float *bias = values(3, g->out_channels);
    op_case c = {.name = g->transposed ? "ConvTranspose" : "Conv",
                 .version = 11,
                 .in_count = g->bias ? 3 : 2,
                 .out_count = 1,
                 .attrs = a.list,
                 .attr_count = g->transposed ? 5 : 4,
                 .options = {.tf32 = true}, /* which has room for all values */
                 .in = {tensor(x, g->batch, g->in_channels, g->in, g->spatial),
                        tensor(w, w_first, w_second, g->kernel, g->spatial),
                        op_f32(bias, g->out_channels)}};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.rank, 2 + g->spatial);
    CHECK_EQ_INT(c.out[0].shape.dim[1], g->out_channels);
    for (int d = 0; d < 3 && d < g->spatial; d++) {
        CHECK_EQ_INT(c.out[0].shape.dim[2 + d], out[d]);
    }
    double *want = expected(g, out, x, w, bias);
    for (int64_t i = 0; i < g->batch * g->out_channels * product(out); i++) {
        op_check_close((double)((const float *)c.out[0].data)[i], want[i], 1e-4, "Y", i);
    }
    op_close(device, &c);
    free(want);
    free(x);
    free(w);
    free(bias);
}

static int64_t below(uint64_t *row, int64_t count) {
    return (int64_t)(test_random(row) % (uint64_t)count);
}

static bool random_geometry(uint64_t *row, bool transposed, geometry *g) {
    const int64_t groups = 1 + below(row, 3);
    *g = (geometry){.spatial = 1 + (int)below(row, 3),
                    .transposed = transposed,
                    .bias = below(row, 2) != 0,
                    .batch = 1 + below(row, 2),
                    .groups = groups,
                    .in_channels = groups * (1 + below(row, 3)),
                    .out_channels = groups * (1 + below(row, 3))};
    for (int d = 0; d < 3; d++) {
        const bool used = d < g->spatial;
        g->in[d] = used ? 1 + below(row, 6) : 1;
        g->kernel[d] = used ? 1 + below(row, 3) : 1;
        g->stride[d] = used ? 1 + below(row, 3) : 1;
        g->dilation[d] = used ? 1 + below(row, 2) : 1;
        g->begin[d] = used ? below(row, 3) : 0;
        g->end[d] = used ? below(row, 3) : 0;
        g->more[d] = used ? below(row, g->stride[d]) : 0;
        const int64_t extent = g->dilation[d] * (g->kernel[d] - 1) + 1;
        if (out_size(g, d) < 1 || (!transposed && g->in[d] + g->begin[d] + g->end[d] < extent)) {
            return false;
        }
    }
    return true;
}

static void run_random(mp_device *device, bool transposed) {
    uint64_t row = test_seed() + (transposed ? 1000 : 0);
    for (int done = 0; done < 12;) {
        geometry g;
        if (random_geometry(&row, transposed, &g)) {
            check_case(device, &g);
            done++;
        }
    }
}

DEVICE_TEST(conv_agrees_with_loops) {
    run_random(device, false);
}

DEVICE_TEST(conv_transpose_agrees_with_loops) {
    run_random(device, true);
}

/* Windows side by side have a product and a kernel of their own: rows of whole packs and others,
 * lines, and what is almost of that kind. */
DEVICE_TEST(conv_transpose_of_windows_side_by_side) {
    static const geometry all[] = {
        {2, true, true, 2, 5, 3, 1, {4, 8, 1}, {2, 2, 1}, {2, 2, 1}, {1, 1, 1}, {0}, {0}, {0}},
        {2, true, false, 1, 3, 4, 1, {3, 12, 1}, {1, 3, 1}, {1, 3, 1}, {1, 1, 1}, {0}, {0}, {0}},
        {2, true, true, 3, 2, 2, 1, {5, 4, 1}, {3, 4, 1}, {3, 4, 1}, {1, 1, 1}, {0}, {0}, {0}},
        {2, true, true, 2, 4, 3, 1, {3, 7, 1}, {2, 3, 1}, {2, 3, 1}, {1, 1, 1}, {0}, {0}, {0}},
        {1, true, true, 2, 3, 5, 1, {9, 1, 1}, {2, 1, 1}, {2, 1, 1}, {1, 1, 1}, {0}, {0}, {0}},
        {1, true, false, 1, 1, 1, 1, {16, 1, 1}, {4, 1, 1}, {4, 1, 1}, {1, 1, 1}, {0}, {0}, {0}},
        {2, true, true, 1, 4, 4, 2, {3, 4, 1}, {2, 2, 1}, {2, 2, 1}, {1, 1, 1}, {0}, {0}, {0}},
        {2, true, true, 1, 2, 2, 1, {3, 4, 1}, {2, 2, 1}, {2, 2, 1}, {1, 1, 1}, {1}, {1}, {0}},
        {2, true, true, 1, 2, 2, 1, {3, 4, 1}, {2, 2, 1}, {2, 2, 1}, {1, 1, 1}, {0}, {0}, {1, 0}},
        {2, true, true, 1, 2, 2, 1, {3, 4, 1}, {5, 5, 1}, {5, 5, 1}, {1, 1, 1}, {0}, {0}, {0}},
    };
    for (size_t i = 0; i < MP_COUNT_OF(all); i++) {
        check_case(device, &all[i]);
    }
}

DEVICE_TEST(conv_transpose_of_doubles_side_by_side) {
    enum { IMAGES = 2, IN = 3, OUT = 2, HIGH = 3, WIDE = 5, TAPS = 2 };
    double x[IMAGES * IN * HIGH * WIDE], w[IN * OUT * TAPS * TAPS], bias[OUT] = {0.1, 1e-13};
    const mp_attr attrs[] = {OP_INTS("strides", TAPS, TAPS)};
    for (size_t i = 0; i < MP_COUNT_OF(x); i++) {
        x[i] = 1.0 / (double)(i + 3);
    }
    for (size_t i = 0; i < MP_COUNT_OF(w); i++) {
        w[i] = (double)i / 7 - 1;
    }
    op_case c = {.name = "ConvTranspose",
                 .version = 11,
                 .in_count = 3,
                 .out_count = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {OP_TENSOR(MP_F64, x, IMAGES, IN, HIGH, WIDE),
                        OP_TENSOR(MP_F64, w, IN, OUT, TAPS, TAPS), OP_TENSOR(MP_F64, bias, OUT)}};
    op_run(device, &c);
    const double *y = (const double *)c.out[0].data;
    for (int64_t i = 0; i < (int64_t)IMAGES * OUT * HIGH * WIDE * TAPS * TAPS; i++) {
        const int64_t column = i % (WIDE * TAPS), line = i / (WIDE * TAPS);
        const int64_t row = line % (HIGH * TAPS), plane = line / (HIGH * TAPS);
        double sum = bias[plane % OUT];
        for (int64_t k = 0; k < IN; k++) {
            const int64_t from = ((plane / OUT * IN + k) * HIGH + row / TAPS) * WIDE;
            const int64_t tap = ((k * OUT + plane % OUT) * TAPS + row % TAPS) * TAPS;
            sum += x[from + column / TAPS] * w[tap + column % TAPS];
        }
        op_check_close(y[i], sum, 1e-14, "Y", i);
    }
    op_close(device, &c);
}

/* Over one dimension or two, by the kernel of those. */
DEVICE_TEST(conv_of_few_channels) {
    uint64_t row = test_seed();
    const int arch = device->info.arch;
    device->info.arch = arch > 0 ? arch : 90; /* as on a GPU: the kernel is chosen there */
    for (int done = 0; done < 24;) {
        geometry g;
        if (!random_geometry(&row, false, &g) || g.spatial > 2) {
            continue;
        }
        g.groups = 1;
        g.in_channels = 1 + below(&row, 4);
        g.out_channels = 1 + below(&row, 100);
        for (int d = 0; d < g.spatial; d++) {
            g.in[d] += below(&row, 40);
        }
        check_case(device, &g);
        done++;
    }
    device->info.arch = arch;
}

/* ---- what the device refuses ---- */

static mp_status refuse(mp_device *device, const mp_conv *conv, mp_math **out, bool *whole) {
    (void)device;
    (void)conv;
    (void)out;
    *whole = false;
    return MP_FAIL(UNSUPPORTED, "no convolution");
}

DEVICE_TEST(conv_that_the_device_refuses) {
    /* In several passes: outputs of each image, and images forward and back. */
    static const geometry large[] = {
        {2, false, true, 1, 8, 2, 2, {63, 63, 1}, {16, 16, 1}, {1, 1, 1}, {1, 1, 1}, {0}, {0}, {0}},
        {2, false, true, 3, 4, 1, 1, {55, 55, 1}, {16, 16, 1}, {1, 1, 1}, {1, 1, 1}, {0}, {0}, {0}},
        {2, true, true, 3, 1, 4, 1, {40, 40, 1}, {16, 16, 1}, {2, 1, 1}, {1, 1, 1}, {3}, {1}, {0}},
    };
    const mp_device_ops *own = device->ops;
    mp_device_ops without = *own;
    without.conv_prepare = refuse;
    device->ops = &without;
    run_random(device, false);
    run_random(device, true);
    for (size_t i = 0; i < MP_COUNT_OF(large); i++) {
        check_case(device, &large[i]);
    }
    device->ops = own;
}

/* ---- shapes that attributes ask for ---- */

static mp_status plan_shape(mp_device *device, const op_case *c, mp_shape *out) {
    mp_plan *plan = NULL;
    MP_TRY(op_plan(device, c, &plan));
    *out = mp_plan_output_at(plan, 0)->shape;
    mp_plan_release(plan);
    mp_kernel_cache_drop(device);
    return MP_OK;
}

static mp_status plan_with(mp_device *device, const char *name, const mp_attr *attrs, size_t count,
                           mp_shape *out) {
    const op_case c = {.name = name,
                       .version = 11,
                       .in_count = 2,
                       .out_count = 1,
                       .attrs = attrs,
                       .attr_count = count,
                       .in = {op_f32(NULL, 1, 2, 7), op_f32(NULL, 2, 2, 3)}};
    return plan_shape(device, &c, out);
}

DEVICE_TEST(conv_sizes_follow_the_attributes) {
    const struct {
        const char *name;
        mp_attr attr;
        int64_t want;
    } rows[] = {
        {"Conv", OP_TEXT("auto_pad", "NOTSET"), 5},
        {"Conv", OP_TEXT("auto_pad", "VALID"), 5},
        {"Conv", OP_TEXT("auto_pad", "SAME_UPPER"), 7},
        {"Conv", OP_TEXT("auto_pad", "SAME_LOWER"), 7},
        {"ConvTranspose", OP_TEXT("auto_pad", "NOTSET"), 9},
        {"ConvTranspose", OP_TEXT("auto_pad", "SAME_UPPER"), 7},
        {"ConvTranspose", OP_INTS("output_shape", 8), 8},
        {"ConvTranspose", OP_INTS("output_shape", 1, 2, 6), 6},
    };
    mp_shape out;
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        CHECK_OK(plan_with(device, rows[i].name, &rows[i].attr, 1, &out));
        CHECK_EQ_INT(out.dim[2], rows[i].want);
    }
}

DEVICE_TEST(conv_refuses_what_does_not_fit) {
    const struct {
        const char *name;
        mp_attr attr;
        const char *part;
    } rows[] = {
        {"Conv", OP_INT("group", 0), "group 0"},
        {"Conv", OP_INT("group", -1), "group -1"},
        {"Conv", OP_INT("group", 2), "group 2"},
        {"Conv", OP_INT("group", INT64_MAX), "group 92"},
        {"Conv", OP_INT("group", INT64_MIN), "group -92"},
        {"Conv", OP_INTS("dilations", 4), "does not fit"},
        {"Conv", OP_INTS("pads", INT64_MAX, 0), "pads"},
        {"ConvTranspose", OP_INT("group", INT64_MAX), "group"},
        {"ConvTranspose", OP_INTS("pads", 8, 8), "-7 elements"},
        {"ConvTranspose", OP_INTS("output_padding", -1), "output_padding of -1"},
        {"ConvTranspose", OP_INTS("output_shape", INT64_MIN), "output_shape"},
        {"ConvTranspose", OP_INTS("output_shape", INT64_MAX), "output_shape"},
        {"ConvTranspose", OP_INTS("output_shape", 1, 2), "output_shape has 2 values"},
        {"ConvTranspose", OP_INTS("output_shape", INT64_MAX / 4), "reaches over 9"},
        {"ConvTranspose", OP_INTS("output_shape", 10), "would have 10 elements"},
    };
    mp_shape out;
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        CHECK_FAILS(plan_with(device, rows[i].name, &rows[i].attr, 1, &out), INVALID_ARGUMENT,
                    rows[i].part);
        CHECK_STR_HAS(mp_error_message(), rows[i].name);
        CHECK_STR_HAS(mp_error_message(), "'test'");
    }
}

DEVICE_TEST(conv_refuses_tensors_that_do_not_fit) {
    const struct {
        const char *name;
        op_tensor x, w, bias;
    } rows[] = {
        {"Conv", op_f32(NULL, 2, 7), op_f32(NULL, 2, 3), {.type = MP_NONE}},
        {"Conv", op_f32(NULL, 1, 2, 7), op_f32(NULL, 2, 2, 3, 3), {.type = MP_NONE}},
        {"Conv", op_f32(NULL, 1, 3, 7), op_f32(NULL, 2, 2, 3), {.type = MP_NONE}},
        {"Conv", op_f32(NULL, 1, 2, 7), op_f32(NULL, 2, 2, 9), {.type = MP_NONE}},
        {"Conv", op_f32(NULL, 1, 2, 7), op_f32(NULL, 2, 2, 0), {.type = MP_NONE}},
        {"Conv", op_f32(NULL, 1, 2, 7), op_f32(NULL, 2, 2, 3), op_f32(NULL, 3)},
        {"Conv", op_f32(NULL, 1, 2, 7), op_f32(NULL, 2, 2, 3), op_f32(NULL, 1, 2)},
        {"ConvTranspose", op_f32(NULL, 1, 3, 7), op_f32(NULL, 2, 2, 3), {.type = MP_NONE}},
    };
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        const op_case c = {.name = rows[i].name,
                           .version = 11,
                           .in_count = 3,
                           .out_count = 1,
                           .in = {rows[i].x, rows[i].w, rows[i].bias}};
        mp_plan *plan = NULL;
        CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, rows[i].name);
    }
}

/* ---- nothing to sum ---- */

static void check_bias_only(mp_device *device, const char *name, op_tensor x, op_tensor w) {
    const float bias[] = {3, -2};
    for (int biased = 0; biased < 2; biased++) {
        const mp_attr attrs[] = {OP_INTS("pads", 2, 2)};
        op_case c = {.name = name,
                     .version = 11,
                     .in_count = 2 + biased,
                     .out_count = 1,
                     .attrs = attrs,
                     .attr_count = strcmp(name, "Conv") == 0,
                     .in = {x, w, op_f32(bias, 2)}};
        op_run(device, &c);
        const int64_t points = c.out[0].shape.dim[2];
        CHECK(points > 0);
        for (int64_t i = 0; i < 2 * points; i++) {
            CHECK(((const float *)c.out[0].data)[i] == (biased ? bias[i / points] : 0.0f));
        }
        op_close(device, &c);
    }
}

DEVICE_TEST(conv_over_nothing_gives_the_bias) {
    check_bias_only(device, "Conv", op_f32("", 1, 0, 5), op_f32("", 2, 0, 3));
    check_bias_only(device, "Conv", op_f32("", 1, 1, 0),
                    op_f32("abcdefghabcdefghabcdefgh", 2, 1, 3));
    check_bias_only(device, "ConvTranspose", op_f32("", 1, 0, 5), op_f32("", 0, 2, 3));
}

DEVICE_TEST(conv_of_an_empty_batch_is_empty) {
    const float w[6] = {0};
    op_case c = {.name = "Conv",
                 .version = 11,
                 .in_count = 2,
                 .out_count = 1,
                 .in = {op_f32("", 0, 1, 5), op_f32(w, 2, 1, 3)}};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[0], 0);
    CHECK_EQ_INT(c.out[0].shape.dim[2], 3);
    op_close(device, &c);
}
