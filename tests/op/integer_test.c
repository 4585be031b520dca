/* integer_test.c - products and convolutions of 8-bit integers against plain loops: tiles that are
 * not full, every mixture of signs, zero points of each kind.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

/* Gives: `count` bytes over the whole range of the type (free them). */
static uint8_t *bytes_of(uint64_t seed, int64_t count) {
    uint8_t *x = malloc((size_t)count + 1);
    CHECK(x != NULL);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = (uint8_t)(seed >> 40);
    }
    return x;
}

static int32_t byte_at(mp_dtype type, const uint8_t *x, int64_t i) {
    return type == MP_I8 ? (int8_t)x[i] : x[i];
}

/* ---- MatMulInteger ---- */

typedef struct product {
    int64_t batch, m, k, n;
    mp_dtype a, b;
    int zeros; /* 0: none; 1: one each; 2: for each row and column; 3: for each column of a batch */
    uint32_t skew;
} product;

static void check_product(mp_device *device, const product *x) {
    uint8_t *a = bytes_of(1, x->batch * x->m * x->k);
    uint8_t *b = bytes_of(2, x->batch * x->k * x->n);
    uint8_t *a_zero = bytes_of(3, x->m);
    uint8_t *b_zero = bytes_of(4, x->batch * x->n);
    op_case c = {
        .name = "MatMulInteger",
        .version = 10,
        .align = x->skew != 0 ? 1 : 16,
        .skew = x->skew,
        .in = {OP_TENSOR(x->a, a, x->batch, x->m, x->k), OP_TENSOR(x->b, b, x->batch, x->k, x->n)},
        .in_count = x->zeros > 0 ? 4 : 2,
        .out_count = 1};
    if (x->zeros == 1) {
        c.in[2] = OP_TENSOR(x->a, a_zero, 1);
        c.in[3] = OP_TENSOR(x->b, b_zero, 1);
    } else if (x->zeros > 1) {
        c.in[2] = OP_TENSOR(x->a, a_zero, x->m);
        c.in[3] = x->zeros == 2 ? OP_TENSOR(x->b, b_zero, x->n)
                                : OP_TENSOR(x->b, b_zero, x->batch, 1, x->n);
    }
    op_run(device, &c);
    CHECK(c.out[0].type == MP_I32);
    const int32_t *got = c.out[0].data;
    for (int64_t i = 0; i < x->batch * x->m * x->n; i++) {
        const int64_t column = i % x->n, row = i / x->n % x->m, batch = i / x->n / x->m;
        const int32_t za = x->zeros == 0   ? 0
                           : x->zeros == 1 ? byte_at(x->a, a_zero, 0)
                                           : byte_at(x->a, a_zero, row);
        const int64_t b_at = x->zeros == 3 ? batch * x->n + column : x->zeros == 2 ? column : 0;
        const int32_t zb = x->zeros == 0 ? 0 : byte_at(x->b, b_zero, b_at);
        int32_t sum = 0;
        for (int64_t k = 0; k < x->k; k++) {
            sum += (byte_at(x->a, a, (batch * x->m + row) * x->k + k) - za) *
                   (byte_at(x->b, b, (batch * x->k + k) * x->n + column) - zb);
        }
        CHECK_EQ_INT(got[i], sum);
    }
    op_close(device, &c);
    free(a);
    free(b);
    free(a_zero);
    free(b_zero);
}

DEVICE_TEST(integer_products) {
    static const product products[] = {
        {1, 1, 1, 1, MP_U8, MP_I8, 0, 0},       {1, 3, 4, 5, MP_U8, MP_U8, 1, 0},
        {1, 5, 0, 7, MP_U8, MP_I8, 2, 0},       {1, 33, 129, 37, MP_U8, MP_I8, 2, 0},
        {1, 33, 128, 36, MP_I8, MP_U8, 1, 0},   {2, 40, 64, 65, MP_I8, MP_I8, 3, 0},
        {3, 2, 131, 3, MP_U8, MP_U8, 3, 0},     {1, 65, 70, 68, MP_U8, MP_I8, 2, 4},
        {1, 64, 64, 64, MP_U8, MP_I8, 2, 4},    {1, 1, 300, 9, MP_I8, MP_I8, 0, 0},
        {1, 259, 1043, 21, MP_U8, MP_I8, 3, 0},
    };
    for (size_t i = 0; i < MP_COUNT_OF(products); i++) {
        check_product(device, &products[i]);
    }
}

/* Enough tiles for the large kind on any device; several steps along k for the kinds of GPUs. */
DEVICE_TEST(integer_large_products) {
    static const product large[] = {{3, 650, 9, 1030, MP_U8, MP_I8, 2, 0},
                                    {1, 1409, 80, 1411, MP_I8, MP_U8, 1, 0},
                                    {1, 1409, 203, 1410, MP_I8, MP_I8, 0, 0},
                                    {1, 700, 144, 710, MP_U8, MP_U8, 2, 0},
                                    {1, 700, 131, 709, MP_U8, MP_I8, 2, 4}};
    const size_t count = device->info.arch > 0 ? MP_COUNT_OF(large) : 1;
    for (size_t i = 0; i < count; i++) {
        check_product(device, &large[i]);
    }
}

DEVICE_TEST(integer_products_refuse_what_does_not_fit) {
    const uint8_t x[64] = {0};
    mp_plan *plan = NULL;
    op_case c = {.name = "MatMulInteger",
                 .version = 10,
                 .in = {OP_TENSOR(MP_U8, x, 2, 4), OP_TENSOR(MP_I8, x, 4, 3),
                        OP_TENSOR(MP_U8, x, 1), OP_TENSOR(MP_I8, x, 2)},
                 .in_count = 4,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a zero point of B of shape 2");
    c.in[1] = OP_TENSOR(MP_I8, x, 5, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "inner dimensions");
}

/* ---- ConvInteger and QLinearConv ---- */

typedef struct conv {
    int64_t images, channels, filters, groups;
    int64_t in[2], kernel[2], stride[2], dilation[2], begin[2], end[2];
    mp_dtype x, w;
    bool linear; /* scales for each filter, a bias, a result of eight bits */
} conv;

static int64_t out_of(const conv *v, int d) {
    const int64_t room =
        v->in[d] + v->begin[d] + v->end[d] - v->dilation[d] * (v->kernel[d] - 1) - 1;
    return room / v->stride[d] + 1;
}

static int32_t sum_of(const conv *v, const uint8_t *x, const uint8_t *w, int32_t xz, int32_t wz,
                      int64_t image, int64_t filter, int64_t oy, int64_t ox) {
    const int64_t per_group = v->channels / v->groups;
    const int64_t group = filter / (v->filters / v->groups);
    int32_t sum = 0;
    for (int64_t c = 0; c < per_group; c++) {
        for (int64_t ky = 0; ky < v->kernel[0]; ky++) {
            for (int64_t kx = 0; kx < v->kernel[1]; kx++) {
                const int64_t y = oy * v->stride[0] - v->begin[0] + ky * v->dilation[0];
                const int64_t z = ox * v->stride[1] - v->begin[1] + kx * v->dilation[1];
                if (y < 0 || y >= v->in[0] || z < 0 || z >= v->in[1]) {
                    continue;
                }
                const int64_t from =
                    ((image * v->channels + group * per_group + c) * v->in[0] + y) * v->in[1] + z;
                const int64_t weight =
                    ((filter * per_group + c) * v->kernel[0] + ky) * v->kernel[1] + kx;
                sum += (byte_at(v->x, x, from) - xz) * (byte_at(v->w, w, weight) - wz);
            }
        }
    }
    return sum;
}

enum { FILTERS_MAX = 80 };

typedef struct linear {
    float x_scale, w_scale[FILTERS_MAX], y_scale;
    int32_t bias[FILTERS_MAX];
} linear;

static int32_t requantised(const linear *l, int64_t filter, int32_t sum, mp_dtype type,
                           int32_t zero) {
    const float scale = l->x_scale * l->w_scale[filter] / l->y_scale;
    const double value = (double)rintf((float)(sum + l->bias[filter]) * scale) + zero;
    const double low = type == MP_I8 ? -128 : 0;
    return (int32_t)fmin(fmax(value, low), low + 255);
}

static void check_conv(mp_device *device, const conv *v) {
    const int64_t per_group = v->channels / v->groups;
    uint8_t *x = bytes_of(5, v->images * v->channels * v->in[0] * v->in[1]);
    uint8_t *w = bytes_of(6, v->filters * per_group * v->kernel[0] * v->kernel[1]);
    uint8_t *zeros = bytes_of(7, FILTERS_MAX + 1);
    linear l = {.x_scale = 0.02f, .y_scale = 1.5f};
    for (int i = 0; i < FILTERS_MAX; i++) {
        l.w_scale[i] = 0.125f + 0.01f * (float)i;
        l.bias[i] = 37 * i - 900;
    }
    const mp_attr attrs[] = {OP_INTS("strides", v->stride[0], v->stride[1]),
                             OP_INTS("dilations", v->dilation[0], v->dilation[1]),
                             OP_INTS("pads", v->begin[0], v->begin[1], v->end[0], v->end[1]),
                             OP_INT("group", v->groups)};
    const op_tensor image = OP_TENSOR(v->x, x, v->images, v->channels, v->in[0], v->in[1]);
    const op_tensor weights = OP_TENSOR(v->w, w, v->filters, per_group, v->kernel[0], v->kernel[1]);
    const op_tensor x_zero = OP_TENSOR(v->x, &zeros[FILTERS_MAX], 1);
    const op_tensor w_zero = OP_TENSOR(v->w, zeros, v->filters);
    op_case c = {.name = v->linear ? "QLinearConv" : "ConvInteger",
                 .version = 10,
                 .attrs = attrs,
                 .attr_count = 4,
                 .out_count = 1};
    if (v->linear) {
        const op_tensor all[] = {image,
                                 op_f32(&l.x_scale, 1),
                                 x_zero,
                                 weights,
                                 op_f32(l.w_scale, v->filters),
                                 w_zero,
                                 op_f32(&l.y_scale, 1),
                                 x_zero,
                                 OP_TENSOR(MP_I32, l.bias, v->filters)};
        memcpy(c.in, all, sizeof all);
        c.in_count = 9;
    } else {
        const op_tensor all[] = {image, weights, x_zero, w_zero};
        memcpy(c.in, all, sizeof all);
        c.in_count = 4;
    }
    op_run(device, &c);
    const int64_t height = out_of(v, 0), width = out_of(v, 1);
    for (int64_t i = 0; i < v->images * v->filters * height * width; i++) {
        const int64_t filter = i / (height * width) % v->filters;
        const int32_t xz = byte_at(v->x, zeros, FILTERS_MAX);
        const int32_t sum =
            sum_of(v, x, w, xz, byte_at(v->w, zeros, filter), i / (height * width * v->filters),
                   filter, i / width % height, i % width);
        const int32_t want = v->linear ? requantised(&l, filter, sum, v->x, xz) : sum;
        CHECK_EQ_INT(v->linear ? byte_at(v->x, c.out[0].data, i)
                               : ((const int32_t *)c.out[0].data)[i],
                     want);
    }
    op_close(device, &c);
    free(x);
    free(w);
    free(zeros);
}

DEVICE_TEST(integer_convolutions) {
    static const conv convs[] = {
        {1, 3, 4, 1, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, MP_U8, MP_I8, false},
        {2, 3, 5, 1, {7, 9}, {3, 2}, {2, 3}, {1, 2}, {1, 0}, {2, 3}, MP_U8, MP_U8, false},
        {1, 8, 70, 1, {1, 80}, {1, 11}, {1, 1}, {1, 3}, {0, 15}, {0, 15}, MP_U8, MP_I8, false},
        {2, 6, 6, 3, {9, 8}, {2, 3}, {1, 1}, {2, 1}, {1, 1}, {1, 1}, MP_I8, MP_I8, false},
        {1, 4, 4, 4, {9, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, MP_U8, MP_I8, false},
        {2, 3, 5, 1, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, MP_U8, MP_I8, true},
        {1, 6, 6, 3, {9, 8}, {2, 3}, {1, 2}, {1, 1}, {1, 0}, {1, 1}, MP_I8, MP_I8, true},
        {1, 2, 40, 1, {5, 5}, {5, 5}, {1, 1}, {1, 1}, {4, 4}, {4, 4}, MP_U8, MP_U8, true},
        {1, 2, 3, 1, {7, 9}, {2, 3}, {1, 1}, {1, 1}, {-1, -2}, {-1, 0}, MP_U8, MP_I8, false},
        {1, 2, 3, 1, {7, 9}, {2, 3}, {2, 1}, {1, 1}, {-2, 3}, {1, -1}, MP_U8, MP_U8, true},
        {1, 2, 3, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {-4, 0}, {4, 0}, MP_U8, MP_U8, true},
        {2, 6, 8, 2, {5, 9}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, MP_U8, MP_I8, true},
        {2, 7, 5, 1, {6, 8}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, MP_I8, MP_U8, false},
        {1, 7, 5, 1, {6, 8}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 1}, MP_U8, MP_I8, false},
        {1, 60, 79, 1, {3, 17}, {3, 3}, {1, 2}, {1, 1}, {1, 1}, {1, 1}, MP_U8, MP_I8, false},
        {4, 5, 79, 1, {24, 25}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, MP_U8, MP_I8, true},
        {12, 3, 80, 1, {40, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, MP_U8, MP_I8, false},
    };
    for (size_t i = 0; i < MP_COUNT_OF(convs); i++) {
        check_conv(device, &convs[i]);
    }
}

DEVICE_TEST(integer_convolutions_refuse_what_does_not_fit) {
    const uint8_t x[256] = {0};
    mp_plan *plan = NULL;
    op_case c = {.name = "ConvInteger",
                 .version = 10,
                 .in = {OP_TENSOR(MP_U8, x, 1, 4, 5, 5), OP_TENSOR(MP_I8, x, 2, 3, 2, 2)},
                 .in_count = 2,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "do not go together");
    c.in[1] = OP_TENSOR(MP_I8, x, 2, 4, 2, 2);
    c.in[2] = OP_TENSOR(MP_U8, x, 4);
    c.in_count = 3;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "zero point of the input");
}

/* ---- floats from integers ---- */

/* Signs that ONNX Runtime's CPU provider does not mix, and results in float16. */
DEVICE_TEST(integer_products_to_float) {
    enum { M = 5, K = 20, N = 7 };
    const mp_dtype types[] = {MP_F32, MP_F16};
    uint8_t *a = bytes_of(1, M * K);
    uint8_t *b = bytes_of(2, K * N);
    uint8_t zeros[N];
    memset(zeros, 9, sizeof zeros);
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        void *a_scale = op_memory(types[t], 1);
        void *b_scale = op_memory(types[t], N);
        void *bias = op_memory(types[t], N);
        op_store_real(types[t], a_scale, 0, 0.0078125);
        for (int i = 0; i < N; i++) {
            op_store_real(types[t], b_scale, i, 0.0625 * (i + 1));
            op_store_real(types[t], bias, i, 0.5 * i - 2);
        }
        op_case c = {.domain = "com.microsoft",
                     .name = "MatMulIntegerToFloat",
                     .version = 1,
                     .in = {OP_TENSOR(MP_I8, a, M, K), OP_TENSOR(MP_U8, b, K, N),
                            OP_TENSOR(types[t], a_scale, 1), OP_TENSOR(types[t], b_scale, N),
                            OP_TENSOR(MP_I8, zeros, 1), OP_TENSOR(MP_U8, zeros, N),
                            OP_TENSOR(types[t], bias, N)},
                     .in_count = 7,
                     .out_count = 1};
        op_run(device, &c);
        for (int i = 0; i < M * N; i++) {
            int32_t sum = 0;
            for (int k = 0; k < K; k++) {
                sum += ((int8_t)a[i / N * K + k] - 9) * (b[k * N + i % N] - 9);
            }
            const double want = sum * 0.0078125 * 0.0625 * (i % N + 1) + 0.5 * (i % N) - 2;
            op_check_close(op_real(types[t], c.out[0].data, i), want, op_precision(types[t]) * 2,
                           "product", i);
        }
        op_close(device, &c);
        free(a_scale);
        free(b_scale);
        free(bias);
    }
    free(a);
    free(b);
}
