/* pool_test.c - MaxPool and AveragePool against loops over every window, and what must be refused.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { DIMS = 3 };

/* A pool over up to three spatial dimensions; those in front that a tensor lacks are 1. */
typedef struct pool {
    int spatial;
    int64_t batch, channels;
    int64_t in[DIMS], out[DIMS], kernel[DIMS], stride[DIMS], dilation[DIMS];
    int64_t begin[DIMS], end[DIMS];
    bool ceil_mode, include_pad, column_major;
    bool last;     /* channels last */
    uint32_t skew; /* bytes by which tensors are off 16 */
} pool;

static int64_t below(uint64_t *state, uint64_t bound) {
    return (int64_t)(test_random(state) % bound);
}

/* Windows along one dimension. */
static int64_t outputs_of(const pool *p, int d) {
    const int64_t room =
        p->in[d] + p->begin[d] + p->end[d] - p->dilation[d] * (p->kernel[d] - 1) - 1;
    const int64_t out = room / p->stride[d] + 1;
    const bool one_more =
        p->ceil_mode && room % p->stride[d] != 0 && out * p->stride[d] < p->in[d] + p->begin[d];
    return out + one_more;
}

/* Gives a pool whose windows all fit. */
static pool random_pool(uint64_t *state, int spatial) {
    pool p = {.spatial = spatial,
              .batch = 1 + below(state, 2),
              .channels = 1 + below(state, 3),
              .ceil_mode = below(state, 2) != 0,
              .include_pad = below(state, 2) != 0,
              .column_major = below(state, 2) != 0};
    for (int d = 0; d < DIMS; d++) {
        const bool here = d >= DIMS - spatial;
        p.kernel[d] = here ? 1 + below(state, 4) : 1;
        p.stride[d] = here ? 1 + below(state, 4) : 1;
        p.dilation[d] = here ? 1 + below(state, 3) : 1;
        p.begin[d] = here ? below(state, (uint64_t)p.kernel[d]) : 0;
        p.end[d] = here ? below(state, (uint64_t)p.kernel[d]) : 0;
        p.in[d] = here ? p.dilation[d] * (p.kernel[d] - 1) + 1 + below(state, 7) : 1;
        p.out[d] = outputs_of(&p, d);
    }
    return p;
}

static op_tensor tensor_of(const pool *p, mp_dtype type, const void *x) {
    op_tensor tensor = {.type = type, .data = x, .shape = {.rank = 2 + p->spatial}};
    tensor.shape.dim[0] = p->batch;
    tensor.shape.dim[p->last ? 1 + p->spatial : 1] = p->channels;
    for (int d = 0; d < p->spatial; d++) {
        tensor.shape.dim[(p->last ? 1 : 2) + d] = p->in[DIMS - p->spatial + d];
    }
    return tensor;
}

static int64_t volume(const int64_t dims[DIMS]) {
    return dims[0] * dims[1] * dims[2];
}

/* Where point `offset` of a plane of these dimensions is stored. */
static int64_t place_of(const pool *p, int64_t plane, int64_t offset, const int64_t dims[DIMS]) {
    return p->last
               ? (plane / p->channels * volume(dims) + offset) * p->channels + plane % p->channels
               : plane * volume(dims) + offset;
}

typedef struct found {
    double most, sum;
    int64_t at[DIMS]; /* of `most` */
    int64_t inside, padded;
} found;

/* Looks at the window of one output. */
static found look(const pool *p, mp_dtype type, const void *x, int64_t plane,
                  const int64_t place[DIMS]) {
    found f = {.most = -(double)INFINITY, .at = {-1, -1, -1}};
    int64_t k[DIMS];
    for (k[0] = 0; k[0] < p->kernel[0]; k[0]++) {
        for (k[1] = 0; k[1] < p->kernel[1]; k[1]++) {
            for (k[2] = 0; k[2] < p->kernel[2]; k[2]++) {
                int64_t at[DIMS];
                bool inside = true;
                bool padded = true;
                for (int d = 0; d < DIMS; d++) {
                    at[d] = place[d] * p->stride[d] + k[d] * p->dilation[d] - p->begin[d];
                    inside = inside && at[d] >= 0 && at[d] < p->in[d];
                    padded = padded && at[d] < p->in[d] + p->end[d];
                }
                f.padded += padded;
                if (!inside) {
                    continue;
                }
                const int64_t offset = (at[0] * p->in[1] + at[1]) * p->in[2] + at[2];
                const double value = op_real(type, x, place_of(p, plane, offset, p->in));
                f.inside++;
                f.sum += value;
                if (f.at[0] < 0 || value > f.most || (isnan(value) && !isnan(f.most))) {
                    f.most = value;
                    memcpy(f.at, at, sizeof at);
                }
            }
        }
    }
    return f;
}

static int64_t index_of(const pool *p, const found *f, int64_t plane) {
    const int64_t *at = f->at;
    const int64_t row_major = (at[0] * p->in[1] + at[1]) * p->in[2] + at[2];
    /* Dimensions in front that the tensor lacks are 1, so they do not disturb either order. */
    const int64_t column_major = at[0] + p->in[0] * (at[1] + p->in[1] * at[2]);
    return plane * volume(p->in) + (p->column_major ? column_major : row_major);
}

static void check_pool(mp_device *device, const pool *p, bool max, mp_dtype type, void *x) {
    const int front = DIMS - p->spatial;
    const size_t count = (size_t)p->spatial;
    int64_t pads[2 * DIMS];
    for (int d = 0; d < p->spatial; d++) {
        pads[d] = p->begin[front + d];
        pads[p->spatial + d] = p->end[front + d];
    }
    const mp_attr attrs[] = {
        {.name = "kernel_shape", .kind = MP_ATTR_INTS, .ints = &p->kernel[front], .count = count},
        {.name = "strides", .kind = MP_ATTR_INTS, .ints = &p->stride[front], .count = count},
        {.name = "dilations", .kind = MP_ATTR_INTS, .ints = &p->dilation[front], .count = count},
        {.name = "pads", .kind = MP_ATTR_INTS, .ints = pads, .count = 2 * count},
        OP_INT("ceil_mode", p->ceil_mode),
        OP_INT("count_include_pad", p->include_pad),
        OP_INT("storage_order", p->column_major),
    };
    op_case c = {.domain = p->last ? "com.ms.internal.nhwc" : NULL,
                 .name = max ? "MaxPool" : "AveragePool",
                 .version = 22,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .align = p->skew != 0 ? 1 : 16,
                 .skew = p->skew,
                 .in = {tensor_of(p, type, x)},
                 .in_count = 1,
                 .out_count = max && !p->last ? 2 : 1};
    op_run(device, &c);
    for (int d = 0; d < p->spatial; d++) {
        CHECK_EQ_INT(c.out[0].shape.dim[(p->last ? 1 : 2) + d], p->out[front + d]);
    }
    for (int64_t i = 0; i < p->batch * p->channels * volume(p->out); i++) {
        const int64_t plane = i / volume(p->out);
        const int64_t place[DIMS] = {i / p->out[2] / p->out[1] % p->out[0],
                                     i / p->out[2] % p->out[1], i % p->out[2]};
        const found f = look(p, type, x, plane, place);
        const double got =
            op_real(type, c.out[0].data, place_of(p, plane, i % volume(p->out), p->out));
        if (!max) {
            const double mean =
                f.inside > 0 ? f.sum / (double)(p->include_pad ? f.padded : f.inside) : 0;
            op_check_close(got, mean, op_precision(type) * 4, "mean", i);
        } else if (f.inside > 0) {
            op_check_close(got, f.most, 0, "maximum", i);
            CHECK(p->last || op_whole(MP_I64, c.out[1].data, i) == index_of(p, &f, plane));
        }
    }
    op_close(device, &c);
}

DEVICE_TEST(pool_looks_at_every_window) {
    uint64_t state = test_seed();
    for (int i = 0; i < 24; i++) {
        const pool p = random_pool(&state, 1 + i % DIMS);
        void *x = op_numbers(MP_F32, test_random(&state), p.batch * p.channels * volume(p.in));
        check_pool(device, &p, i / DIMS % 2 == 0, MP_F32, x);
        free(x);
    }
}

DEVICE_TEST(pool_knows_every_type) {
    uint64_t state = 7;
    const pool p = random_pool(&state, 2);
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        void *x = op_numbers(op_types[t], 3, p.batch * p.channels * volume(p.in));
        if ((op_types_of("MaxPool", 22) & MP_BIT(op_types[t])) != 0) {
            check_pool(device, &p, true, op_types[t], x);
        }
        if ((op_types_of("AveragePool", 22) & MP_BIT(op_types[t])) != 0) {
            check_pool(device, &p, false, op_types[t], x);
        }
        free(x);
    }
}

/* Channels that are packs and others, windows that packs are made of and others. */
DEVICE_TEST(pool_with_channels_last) {
    static const int64_t channels[] = {16, 5, 64, 24, 32, 1};
    static const mp_dtype types[] = {MP_F16, MP_F32, MP_BF16, MP_U8, MP_I8, MP_F64};
    uint64_t state = test_seed();
    for (int i = 0; i < 72; i++) {
        const mp_dtype type = types[i / 3 % 6];
        pool p = random_pool(&state, 1 + i % DIMS);
        p.last = true;
        p.channels = channels[(i + i / 12) % 6];
        p.skew = i % 7 == 3 ? 8 : 0;
        for (int d = 0; d < DIMS && i % 2 == 0; d++) { /* neighbours: as well as at random */
            const int64_t wide = p.dilation[d] * (p.kernel[d] - 1) + 1;
            p.in[d] -= wide - p.kernel[d];
            p.dilation[d] = 1;
            p.out[d] = outputs_of(&p, d);
        }
        void *x = op_numbers(type, test_random(&state), p.batch * p.channels * volume(p.in));
        for (int64_t k = 0; op_is_float(type) && k < p.batch * p.channels * volume(p.in); k += 37) {
            op_store_real(type, x, k, i % 4 == 0 ? (double)NAN : -(double)INFINITY);
        }
        check_pool(device, &p, true, type, x);
        if (op_is_float(type)) {
            check_pool(device, &p, false, type, x);
        }
        free(x);
    }
}

DEVICE_TEST(pool_passes_nan_on) {
    uint64_t state = 11;
    const pool p = random_pool(&state, 2);
    const int64_t count = p.batch * p.channels * volume(p.in);
    void *x = op_numbers(MP_F32, 5, count);
    for (int64_t i = 0; i < count; i += 5) {
        op_store_real(MP_F32, x, i, i % 2 == 0 ? (double)NAN : -(double)INFINITY);
    }
    check_pool(device, &p, true, MP_F32, x);
    free(x);
}

/* A window that is the whole input goes another way. */
DEVICE_TEST(pool_of_the_whole_input) {
    pool p = {.spatial = 2, .batch = 2, .channels = 3, .in = {1, 9, 11}, .kernel = {1, 9, 11}};
    for (int d = 0; d < DIMS; d++) {
        p.out[d] = p.stride[d] = p.dilation[d] = 1;
    }
    void *x = op_numbers(MP_F32, 9, p.batch * p.channels * volume(p.in));
    const mp_attr attrs[] = {OP_INTS("kernel_shape", 9, 11)};
    op_case c = {.name = "MaxPool",
                 .version = 12,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {tensor_of(&p, MP_F32, x)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t plane = 0; plane < 6; plane++) {
        const found f = look(&p, MP_F32, x, plane, (const int64_t[DIMS]){0, 0, 0});
        op_check_close(op_real(MP_F32, c.out[0].data, plane), f.most, 0, "maximum", plane);
    }
    op_close(device, &c);
    check_pool(device, &p, false, MP_F32, x);
    free(x);
}

/* With ceil_mode the last window may hang over the end, also when it is the first. */
DEVICE_TEST(pool_rounds_up_over_the_end) {
    const float x[] = {3, 5, 4};
    const mp_attr attrs[] = {OP_INTS("kernel_shape", 4), OP_INTS("strides", 2),
                             OP_INT("ceil_mode", 1)};
    op_case c = {.name = "MaxPool",
                 .version = 12,
                 .attrs = attrs,
                 .attr_count = 3,
                 .in = {op_f32(x, 1, 1, 3)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[2], 1);
    CHECK(*(const float *)c.out[0].data == 5.0f);
    op_close(device, &c);
}

/* SAME: as many outputs as strides fit; the odd element of padding goes to the named side. */
DEVICE_TEST(pool_pads_to_the_same_size) {
    const float x[] = {1, 2, 3, 4, 5, 6};
    const float upper[] = {2, 4, 6};
    const float whole_upper[] = {2, 3, 4, 5, 6, 6};
    const float whole_lower[] = {1, 2, 3, 4, 5, 6};
    const struct {
        const char *pad;
        int64_t stride, count;
        const float *want;
    } forms[] = {{"SAME_UPPER", 2, 3, upper},
                 {"SAME_UPPER", 1, 6, whole_upper},
                 {"SAME_LOWER", 1, 6, whole_lower},
                 {"VALID", 2, 3, upper}};
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        const mp_attr attrs[] = {OP_INTS("kernel_shape", 2), OP_INTS("strides", forms[f].stride),
                                 OP_TEXT("auto_pad", forms[f].pad)};
        op_case c = {.name = "MaxPool",
                     .version = 12,
                     .attrs = attrs,
                     .attr_count = 3,
                     .in = {op_f32(x, 1, 1, 6)},
                     .in_count = 1,
                     .out_count = 1};
        op_run(device, &c);
        CHECK_EQ_INT(c.out[0].shape.dim[2], forms[f].count);
        for (int64_t i = 0; i < forms[f].count; i++) {
            op_check_close(op_real(MP_F32, c.out[0].data, i), (double)forms[f].want[i], 0,
                           forms[f].pad, i);
        }
        op_close(device, &c);
    }
}

DEVICE_TEST(pool_of_an_empty_batch) {
    const mp_attr attrs[] = {OP_INTS("kernel_shape", 2)};
    op_case c = {.name = "AveragePool",
                 .version = 11,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32("", 0, 2, 5)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[0], 0);
    CHECK_EQ_INT(c.out[0].shape.dim[2], 4);
    op_close(device, &c);
}

DEVICE_TEST(pool_refuses_what_does_not_fit) {
    const float x[24] = {0};
    mp_plan *plan = NULL;
    const mp_attr large[] = {OP_INTS("kernel_shape", 8)};
    const mp_attr flat[] = {OP_INTS("kernel_shape", 0)};
    const mp_attr pair[] = {OP_INTS("kernel_shape", 2, 2)};
    op_case c = {.name = "MaxPool",
                 .version = 12,
                 .attrs = large,
                 .attr_count = 1,
                 .in = {op_f32(x, 2, 2, 6)},
                 .in_count = 1,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a window over 8 elements");
    c.attrs = flat;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "kernel_shape has the value 0");
    c.attrs = pair;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "kernel_shape has 2 values");
    c.in[0] = op_f32(x, 4, 6);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "no spatial dimensions");
}

/* ---- LpPool ---- */

DEVICE_TEST(lp_pool_of_odd_powers) {
    const float x[] = {1, -2, 3, -4, 0, 2};
    const mp_attr attrs[] = {OP_INT("p", 3)};
    op_case c = {.name = "GlobalLpPool",
                 .version = 22,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 1, 2, 3)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    op_check_close((double)((const float *)c.out[0].data)[0], cbrt(36), 1e-6, "norm", 0);
    op_check_close((double)((const float *)c.out[0].data)[1], cbrt(72), 1e-6, "norm", 1);
    op_close(device, &c);
}

DEVICE_TEST(lp_pool_refuses_a_power_of_zero) {
    const float x[6] = {0};
    const mp_attr attrs[] = {OP_INT("p", 0)};
    mp_plan *plan = NULL;
    op_case c = {.name = "GlobalLpPool",
                 .version = 22,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 1, 2, 3)},
                 .in_count = 1,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "p is 0");
}
