/* fused_conv_test.c - convolutions with residual and activation, and those of each channel by
 * itself, against loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H, W, SIDES };
typedef enum residual { NO_RESIDUAL, WHOLE, ROW, LARGER } residual;

typedef struct geometry {
    int64_t batch, channels, out_channels, groups;
    int64_t in[SIDES], kernel[SIDES], stride[SIDES], dilation[SIDES], begin[SIDES], end[SIDES];
} geometry;

typedef struct setting {
    bool last; /* channels last */
    bool stem; /* channels first, of the output last */
    bool line; /* without the height, which is 1 */
    mp_dtype type;
    bool bias, constant;
    residual z;
    bool behind; /* the activation: z */
    const char *activation;
    float params[2];
    size_t count; /* of params */
    uint32_t skew;
} setting;

static int64_t out_of(const geometry *g, int d) {
    const int64_t reach = g->dilation[d] * (g->kernel[d] - 1) + 1;
    return (g->in[d] + g->begin[d] + g->end[d] - reach) / g->stride[d] + 1;
}

/* Where element (n, c, h, w) lies. */
static int64_t place(bool last, int64_t channels, const int64_t *size, int64_t n, int64_t c,
                     int64_t h, int64_t w) {
    return last ? ((n * size[H] + h) * size[W] + w) * channels + c
                : ((n * channels + c) * size[H] + h) * size[W] + w;
}

static mp_shape image(bool last, bool line, int64_t batch, int64_t channels, const int64_t *size) {
    if (line) {
        return last ? (mp_shape){3, {batch, size[W], channels}}
                    : (mp_shape){3, {batch, channels, size[W]}};
    }
    return last ? (mp_shape){4, {batch, size[H], size[W], channels}}
                : (mp_shape){4, {batch, channels, size[H], size[W]}};
}

static bool ends_last(const setting *s) {
    return s->last || s->stem;
}

static double activated(const setting *s, double x) {
    const double a = (double)s->params[0], b = (double)s->params[1];
    const char *name = s->activation;
    if (strcmp(name, "Relu") == 0) {
        return fmax(x, 0);
    }
    if (strcmp(name, "LeakyRelu") == 0) {
        return x < 0 ? a * x : x;
    }
    if (strcmp(name, "Clip") == 0) {
        return fmin(fmax(x, a), b);
    }
    if (strcmp(name, "Sigmoid") == 0) {
        return 1 / (1 + exp(-x));
    }
    if (strcmp(name, "Tanh") == 0) {
        return tanh(x);
    }
    if (strcmp(name, "HardSigmoid") == 0) {
        return fmin(fmax(a * x + b, 0), 1);
    }
    if (strcmp(name, "HardSwish") == 0) {
        return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    }
    if (strcmp(name, "Silu") == 0) {
        return x / (1 + exp(-x));
    }
    if (strcmp(name, "Swish") == 0) {
        return x / (1 + exp(-a * x));
    }
    if (strcmp(name, "Softsign") == 0) {
        return x / (1 + fabs(x));
    }
    return strcmp(name, "Gelu") == 0 ? x / 2 * (1 + erf(x / sqrt(2))) : x;
}

typedef struct tensors {
    op_tensor x, w, b, z;
    void *data[4];
} tensors;

static op_tensor numbers(mp_dtype type, mp_shape shape, uint64_t seed, void **data) {
    *data = op_numbers(type, seed, mp_shape_count(&shape));
    return (op_tensor){type, shape, *data};
}

static tensors make(const geometry *g, const setting *s) {
    const int64_t out[SIDES] = {out_of(g, H), out_of(g, W)};
    const int64_t inner = g->channels / g->groups;
    const mp_shape w = image(false, s->line, g->out_channels, inner, g->kernel);
    const mp_shape b = {1, {g->out_channels}};
    mp_shape z =
        image(s->last, s->line, s->z == LARGER ? 2 * g->batch : g->batch, g->out_channels, out);
    if (s->z == ROW) {
        z = (mp_shape){1, {s->last ? g->out_channels : out[W]}};
    }
    tensors t;
    t.x = numbers(s->type, image(s->last, s->line, g->batch, g->channels, g->in), 1, &t.data[0]);
    t.w = numbers(s->type, w, 2, &t.data[1]);
    t.b = numbers(s->type, b, 3, &t.data[2]);
    t.z = numbers(s->type, z, 4, &t.data[3]);
    return t;
}

/* The sum of output (n, c, row, column), without bias. */
static double sum_of(const geometry *g, const setting *s, const tensors *t, int64_t n, int64_t c,
                     const int64_t *at) {
    const int64_t inner = g->channels / g->groups;
    const int64_t group = c / (g->out_channels / g->groups);
    double sum = 0;
    for (int64_t k = 0; k < inner * g->kernel[H] * g->kernel[W]; k++) {
        const int64_t tap[SIDES] = {k / g->kernel[W] % g->kernel[H], k % g->kernel[W]};
        const int64_t from = group * inner + k / g->kernel[W] / g->kernel[H];
        int64_t p[SIDES];
        for (int d = 0; d < SIDES; d++) {
            p[d] = at[d] * g->stride[d] + tap[d] * g->dilation[d] - g->begin[d];
        }
        if (p[H] >= 0 && p[H] < g->in[H] && p[W] >= 0 && p[W] < g->in[W]) {
            const int64_t x = place(s->last, g->channels, g->in, n, from, p[H], p[W]);
            sum += op_real(s->type, t->x.data, x) *
                   op_real(s->type, t->w.data, c * inner * g->kernel[H] * g->kernel[W] + k);
        }
    }
    return sum;
}

static void check_output(const geometry *g, const setting *s, const tensors *t,
                         const op_tensor *y) {
    const int64_t size[SIDES] = {out_of(g, H), out_of(g, W)};
    const mp_shape want = image(ends_last(s), s->line, s->z == LARGER ? 2 * g->batch : g->batch,
                                g->out_channels, size);
    CHECK(mp_shape_equal(&want, &y->shape));
    for (int64_t i = 0; i < want.dim[0] * g->out_channels * size[H] * size[W]; i++) {
        const int64_t at[SIDES] = {i / size[W] % size[H], i % size[W]};
        const int64_t c = i / size[W] / size[H] % g->out_channels;
        const int64_t n = i / size[W] / size[H] / g->out_channels;
        const int64_t out = place(ends_last(s), g->out_channels, size, n, c, at[H], at[W]);
        double x = sum_of(g, s, t, n % g->batch, c, at);
        x += s->bias ? op_real(s->type, t->b.data, c) : 0;
        double z = 0;
        if (s->z != NO_RESIDUAL) {
            const int64_t row = s->last ? c : at[W];
            z = op_real(s->type, t->z.data, s->z == ROW ? row : out);
        }
        const double made = s->behind ? activated(s, x) + z : activated(s, x + z);
        op_check_close(op_real(s->type, y->data, out), made, 8 * op_precision(s->type),
                       s->activation, i);
    }
}

static void check(mp_device *device, const geometry *given, const setting *s) {
    geometry own = *given;
    own.batch = s->z == LARGER ? 1 : given->batch; /* is repeated then */
    const geometry *g = &own;
    tensors t = make(g, s);
    mp_attr attrs[8];
    size_t count = 0;
    const int64_t pads[] = {g->begin[H], g->begin[W], g->end[H], g->end[W]};
    const int64_t line_pads[] = {g->begin[W], g->end[W]};
    const int first = s->line ? W : H;
    const size_t sides = s->line ? 1 : SIDES;
    attrs[count++] = (mp_attr)OP_INT("group", g->groups);
    attrs[count++] = (mp_attr){.name = "pads",
                               .kind = MP_ATTR_INTS,
                               .ints = s->line ? line_pads : pads,
                               .count = 2 * sides};
    attrs[count++] = (mp_attr){
        .name = "strides", .kind = MP_ATTR_INTS, .ints = g->stride + first, .count = sides};
    attrs[count++] = (mp_attr){
        .name = "dilations", .kind = MP_ATTR_INTS, .ints = g->dilation + first, .count = sides};
    if (s->activation[0] != '\0') {
        attrs[count++] = (mp_attr)OP_TEXT("activation", s->activation);
        attrs[count++] = (mp_attr){.name = "activation_params",
                                   .kind = MP_ATTR_FLOATS,
                                   .floats = s->params,
                                   .count = s->count};
    }
    if (s->behind && s->z != NO_RESIDUAL) {
        attrs[count++] = (mp_attr)OP_INT("residual_behind", 1);
    }
    op_case c = {.domain = s->last ? MP_OWN_DOMAIN ".nhwc" : MP_OWN_DOMAIN,
                 .name = s->stem ? "StemConv" : "FusedConv",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = count,
                 .options = {.tf32 = true}, /* which has room for all values */
                 .skew = s->skew,
                 .align = s->skew != 0 ? 1 : 16,
                 .in = {t.x, t.w, t.b, t.z},
                 .in_count = s->z != NO_RESIDUAL ? 4
                             : s->bias           ? 3
                                                 : 2,
                 .out_count = 1,
                 .constant = s->constant ? 2 : 0};
    if (!s->bias) {
        c.in[2].type = MP_NONE;
    }
    op_run(device, &c);
    check_output(g, s, &t, &c.out[0]);
    op_close(device, &c);
    for (size_t i = 0; i < MP_COUNT_OF(t.data); i++) {
        free(t.data[i]);
    }
}

static const geometry plain = {2, 4, 6, 1, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};

static const setting tails[] = {
    {.activation = "Relu", .bias = true},
    {.activation = "LeakyRelu", .params = {0.25F}, .count = 1},
    {.activation = "Clip", .params = {-0.5F, 3}, .count = 2, .bias = true},
    {.activation = "Sigmoid"},
    {.activation = "Tanh", .bias = true},
    {.activation = "HardSigmoid", .params = {0.2F, 0.5F}, .count = 2},
    {.activation = "HardSwish"},
    {.activation = "Silu", .bias = true},
    {.activation = "Swish", .params = {0.5F}, .count = 1},
    {.activation = "Gelu", .bias = true},
    {.activation = "", .z = WHOLE},
    {.activation = "Relu", .z = WHOLE, .bias = true},
    {.activation = "Relu", .z = ROW, .bias = true},
    {.activation = "Relu", .z = LARGER, .bias = true},
    {.activation = "", .z = LARGER},
    {.activation = "Softsign", .z = WHOLE, .bias = true}, /* which no kernel has */
    {.activation = "LeakyRelu", .params = {0.25F}, .count = 1, .z = WHOLE, .behind = true},
    {.activation = "Silu", .z = WHOLE, .bias = true, .behind = true},
    {.activation = "Relu", .z = LARGER, .bias = true, .behind = true},
    {.activation = "", .z = WHOLE, .behind = true},
};

DEVICE_TEST(fused_conv_does_what_follows) {
    for (size_t i = 0; i < 2 * MP_COUNT_OF(tails); i++) {
        setting s = tails[i / 2];
        s.last = i % 2 != 0;
        s.constant = i % 3 == 0;
        s.type = i % 5 == 0 ? MP_F16 : MP_F32;
        check(device, &plain, &s);
    }
}

/* Sides 3 to 11 with strides 1 and 2 have kernels of their own. */
static const geometry single[] = {
    {2, 8, 8, 8, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 16, 16, 16, {8, 9}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {1, 1}},
    {1, 5, 5, 5, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 0}, {0, 2}},
    {1, 12, 12, 12, {6, 7}, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {2, 8, 8, 8, {11, 10}, {5, 5}, {2, 2}, {1, 1}, {2, 1}, {1, 2}},
    {1, 24, 24, 24, {7, 7}, {7, 7}, {1, 1}, {1, 1}, {3, 3}, {3, 3}},
    {1, 8, 8, 8, {12, 13}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}},
    {1, 8, 8, 8, {9, 9}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}},
    {1, 9, 9, 9, {9, 8}, {2, 4}, {3, 1}, {1, 2}, {0, 3}, {1, 3}},
    {1, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {3, 1, 1, 1, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 40, 40, 40, {17, 21}, {7, 7}, {1, 1}, {1, 1}, {3, 3}, {3, 3}},
    {1, 36, 36, 36, {14, 14}, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {3, 20, 20, 20, {19, 35}, {5, 5}, {2, 2}, {1, 1}, {2, 2}, {2, 2}},
    {2, 18, 18, 18, {33, 30}, {7, 7}, {2, 2}, {1, 1}, {3, 0}, {2, 5}},
    {2, 17, 17, 17, {14, 14}, {9, 9}, {2, 2}, {1, 1}, {4, 4}, {4, 4}},
    {1, 36, 36, 36, {19, 37}, {11, 11}, {2, 2}, {1, 1}, {5, 4}, {5, 6}},
    {1, 33, 33, 33, {25, 18}, {3, 3}, {2, 2}, {1, 1}, {0, 1}, {1, 1}},
    {1, 17, 17, 17, {9, 20}, {5, 5}, {1, 1}, {1, 1}, {6, 0}, {0, 7}},
};

DEVICE_TEST(fused_conv_of_single_channels) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(single) * MP_COUNT_OF(types); i++) {
        setting s = tails[i % MP_COUNT_OF(tails)];
        s.last = true;
        s.constant = i % 2 == 0;
        s.type = types[i % MP_COUNT_OF(types)];
        s.skew = i % 7 == 0 ? 8 : 0;
        check(device, &single[i / MP_COUNT_OF(types)], &s);
    }
}

/* Lines with channels last are images of one row: each channel by itself, groups of some channels
 * (the last for the kernel of such), of pixels, few channels, and what is a library's. */
static const geometry lines[] = {
    {2, 8, 8, 8, {1, 11}, {1, 3}, {1, 1}, {1, 1}, {0, 1}, {0, 1}},
    {1, 24, 24, 24, {1, 70}, {1, 31}, {1, 1}, {1, 1}, {0, 15}, {0, 15}},
    {3, 5, 5, 5, {1, 40}, {1, 3}, {1, 2}, {1, 8}, {0, 16}, {0, 0}},
    {1, 40, 40, 40, {1, 9}, {1, 7}, {1, 1}, {1, 1}, {0, 9}, {0, 4}},
    {2, 16, 24, 4, {1, 12}, {1, 5}, {1, 1}, {1, 1}, {0, 2}, {0, 2}},
    {2, 32, 48, 4, {1, 24}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 16, 24, 1, {1, 13}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 3, 64, 1, {1, 50}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 1, 24, 1, {1, 300}, {1, 10}, {1, 5}, {1, 1}, {0, 0}, {0, 0}},
    {1, 8, 6, 1, {1, 30}, {1, 3}, {1, 1}, {1, 4}, {0, 4}, {0, 4}},
    {1, 8, 1, 1, {1, 30}, {1, 7}, {1, 1}, {1, 1}, {0, 3}, {0, 3}},
    {2, 72, 72, 3, {1, 29}, {1, 3}, {1, 1}, {1, 2}, {0, 2}, {0, 2}},
};

DEVICE_TEST(fused_conv_of_lines) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    const int arch = device->info.arch;
    for (size_t i = 0; i < 2 * MP_COUNT_OF(lines) * MP_COUNT_OF(types); i++) {
        setting s = tails[(i + test_seed()) % MP_COUNT_OF(tails)];
        device->info.arch = arch > 0 || i % 4 < 2 ? arch : 80; /* as on a GPU */
        s.line = true;
        s.last = i % 2 == 0;
        s.stem = i % 2 == 1;
        s.z = s.stem ? NO_RESIDUAL : s.z;
        s.constant = i % 3 == 0;
        s.type = types[i / 2 % MP_COUNT_OF(types)];
        s.skew = i % 7 == 0 ? 8 : 0;
        check(device, &lines[i / 2 / MP_COUNT_OF(types)], &s);
    }
    device->info.arch = arch;
}

/* With channels first: planes in several bands and tiles, many small ones in a block, lines of all
 * alignments, padding beyond the kernel. */
static const geometry planes[] = {
    {2, 3, 3, 3, {40, 140}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 2, 2, 2, {70, 56}, {7, 7}, {1, 1}, {1, 1}, {3, 3}, {3, 3}},
    {1, 1, 1, 1, {45, 301}, {5, 5}, {2, 2}, {1, 1}, {2, 1}, {2, 2}},
    {3, 40, 40, 40, {7, 7}, {7, 7}, {1, 1}, {1, 1}, {3, 3}, {3, 3}},
    {2, 33, 33, 33, {7, 6}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {1, 1}},
    {1, 6, 6, 6, {3, 4}, {3, 3}, {1, 1}, {1, 1}, {5, 6}, {7, 5}},
    {1, 3, 3, 3, {20, 12}, {5, 5}, {1, 1}, {1, 1}, {0, 1}, {4, 3}},
    {1, 2, 2, 2, {3, 1}, {7, 7}, {2, 2}, {1, 1}, {9, 8}, {3, 13}},
    {1, 5, 5, 5, {9, 258}, {3, 3}, {2, 2}, {1, 1}, {1, 0}, {1, 1}},
    {1, 2, 2, 2, {20, 150}, {9, 9}, {1, 1}, {1, 1}, {4, 4}, {4, 4}},
    {2, 7, 7, 7, {9, 8}, {1, 7}, {1, 3}, {1, 1}, {0, 3}, {0, 4}},
    {1, 3, 3, 3, {31, 27}, {5, 2}, {2, 1}, {3, 4}, {5, 0}, {6, 1}},
    {1, 1, 1, 1, {70, 70}, {13, 13}, {4, 4}, {2, 1}, {0, 6}, {0, 6}},
    {1, 2, 2, 2, {130, 130}, {3, 3}, {1, 1}, {62, 62}, {0, 0}, {0, 0}}, /* a library's */
};

DEVICE_TEST(fused_conv_of_single_planes) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    const int arch = device->info.arch;
    device->info.arch = arch > 0 ? arch : 90; /* as on a GPU: the kernel is chosen there */
    const size_t more = MP_COUNT_OF(planes), count = more + MP_COUNT_OF(single);
    for (size_t i = 0; i < count * MP_COUNT_OF(types); i++) {
        const size_t row = i / MP_COUNT_OF(types);
        setting s = tails[(i + test_seed()) % MP_COUNT_OF(tails)];
        s.constant = i % 2 == 0;
        s.type = types[i % MP_COUNT_OF(types)];
        s.skew = i % 7 == 0 ? 8 : 0;
        check(device, row < more ? &planes[row] : &single[row - more], &s);
    }
    device->info.arch = arch;
}

/* Few channels: what networks begin with, and sizes that are no multiples of a tile, of a vector or
 * of a product. */
static const geometry stems[] = {
    {2, 3, 64, 1, {11, 48}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}},
    {1, 3, 16, 1, {32, 34}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {1, 3, 24, 1, {21, 32}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {1, 1}},
    {1, 3, 64, 1, {9, 24}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 3, 96, 1, {16, 32}, {4, 4}, {4, 4}, {1, 1}, {0, 0}, {0, 0}},
    {3, 1, 12, 1, {9, 19}, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {1, 4, 33, 1, {13, 11}, {3, 2}, {3, 1}, {2, 3}, {4, 0}, {1, 5}},
    {1, 2, 7, 1, {12, 9}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 3, 128, 1, {4, 16}, {6, 6}, {2, 2}, {1, 1}, {2, 2}, {2, 2}},
    {1, 1, 9, 1, {11, 10}, {3, 3}, {2, 3}, {1, 1}, {0, 7}, {9, 0}},
    {1, 3, 130, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},   /* a library's */
    {1, 5, 8, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},     /* the same */
    {1, 3, 2, 1, {70, 70}, {16, 16}, {9, 9}, {3, 3}, {1, 1}, {1, 1}}, /* the same */
};

DEVICE_TEST(fused_conv_of_few_channels) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    const int arch = device->info.arch;
    const bool as_gpu = arch == 0 && test_seed() % 4 != 0;
    device->info.arch = as_gpu ? 90 : arch; /* the kernel is chosen there; also as it is */
    for (size_t i = 0; i < 3 * MP_COUNT_OF(stems) * MP_COUNT_OF(types); i++) {
        const size_t row = i / MP_COUNT_OF(types) / 3;
        setting s = tails[(i + test_seed()) % MP_COUNT_OF(tails)];
        s.last = i % 3 == 1;
        s.stem = i % 3 == 2;
        s.z = s.stem ? NO_RESIDUAL : s.z;
        s.constant = i % 2 == 0;
        s.type = types[i / 3 % MP_COUNT_OF(types)];
        s.skew = i % 7 == 0 ? 8 : 0;
        check(device, &stems[row], &s);
    }
    device->info.arch = arch;
}

/* Lines of single channels with channels last: several tiles of one, several lines in a tile, also
 * those that dilation makes of one; windows in parts, longer than a line and away from it; and what
 * the kernel for lines leaves: strides, few channels, few neighbours. */
static const geometry single_lines[] = {
    {2, 40, 40, 40, {1, 300}, {1, 31}, {1, 1}, {1, 1}, {0, 15}, {0, 15}},
    {1, 17, 17, 17, {1, 50}, {1, 4}, {1, 1}, {1, 1}, {0, 3}, {0, 0}},
    {5, 32, 32, 32, {1, 9}, {1, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {3, 32, 32, 32, {1, 90}, {1, 3}, {1, 1}, {1, 5}, {0, 5}, {0, 5}},
    {1, 20, 20, 20, {1, 12}, {1, 70}, {1, 1}, {1, 1}, {0, 40}, {0, 40}},
    {2, 16, 16, 16, {1, 64}, {1, 7}, {1, 1}, {1, 2}, {0, 20}, {0, 1}},
    {1, 18, 18, 18, {1, 1400}, {1, 3}, {1, 1}, {1, 150}, {0, 150}, {0, 150}},
    {1, 68, 68, 68, {1, 140}, {1, 129}, {1, 1}, {1, 1}, {0, 64}, {0, 64}},
    {1, 24, 24, 24, {1, 33}, {1, 64}, {1, 1}, {1, 1}, {0, 63}, {0, 0}},
    {1, 16, 16, 16, {1, 40}, {1, 5}, {1, 1}, {1, 1}, {0, 30}, {0, 30}},
    {1, 16, 16, 16, {1, 60}, {1, 13}, {1, 2}, {1, 1}, {0, 6}, {0, 6}},
    {2, 12, 12, 12, {1, 60}, {1, 13}, {1, 1}, {1, 1}, {0, 6}, {0, 6}},
    {2, 16, 16, 16, {1, 60}, {1, 3}, {1, 1}, {1, 16}, {0, 16}, {0, 16}},
};

DEVICE_TEST(fused_conv_of_single_lines) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(single_lines) * MP_COUNT_OF(types); i++) {
        setting s = tails[(i + test_seed()) % MP_COUNT_OF(tails)];
        s.line = true;
        s.last = true;
        s.constant = i % 2 == 0;
        s.type = types[i % MP_COUNT_OF(types)];
        s.skew = i % 7 == 0 ? 8 : 0;
        check(device, &single_lines[i / MP_COUNT_OF(types)], &s);
    }
}

/* The same with channels first, long ones: in several tiles, away from the line, pictures of a row,
 * windows that are whole fours, and one more or less; and what a library has. */
static const geometry long_lines[] = {
    {2, 1, 1, 1, {1, 4000}, {1, 31}, {1, 1}, {1, 1}, {0, 15}, {0, 15}},
    {1, 2, 2, 2, {1, 2051}, {1, 4}, {1, 1}, {1, 1}, {0, 3}, {0, 0}},
    {2, 2, 2, 2, {1, 300}, {1, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 2, 2, 2, {1, 257}, {1, 33}, {1, 1}, {1, 1}, {0, 16}, {0, 16}},
    {1, 2, 2, 2, {1, 20}, {1, 256}, {1, 1}, {1, 1}, {0, 300}, {0, 200}},
    {1, 1, 1, 1, {1, 2200}, {1, 130}, {1, 1}, {1, 1}, {0, 0}, {0, 140}},
    {1, 2, 2, 2, {1, 900}, {1, 3}, {1, 1}, {1, 4}, {0, 4}, {0, 4}},
    {1, 2, 2, 2, {1, 900}, {1, 3}, {1, 2}, {1, 1}, {0, 1}, {0, 1}},
};

DEVICE_TEST(fused_conv_of_long_lines) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    const int arch = device->info.arch;
    device->info.arch = arch > 0 ? arch : 90; /* as on a GPU: the kernel is chosen there */
    for (size_t i = 0; i < MP_COUNT_OF(long_lines) * MP_COUNT_OF(types); i++) {
        setting s = tails[(i + test_seed()) % MP_COUNT_OF(tails)];
        s.line = i % 4 != 0;
        s.constant = i % 2 == 0;
        s.type = types[i % MP_COUNT_OF(types)];
        s.skew = i % 7 == 0 ? 8 : 0;
        check(device, &long_lines[i / MP_COUNT_OF(types)], &s);
    }
    device->info.arch = arch;
}

/* Up to eight outputs of a channel, those of all images, have a kernel of their own. */
static const geometry few[] = {
    {1, 3, 5, 1, {1, 640}, {1, 256}, {1, 128}, {1, 1}, {0, 0}, {0, 0}},
    {1, 129, 64, 1, {1, 4}, {1, 3}, {1, 2}, {1, 1}, {0, 1}, {0, 1}},
    {1, 64, 33, 1, {1, 1}, {1, 3}, {1, 1}, {1, 1}, {0, 1}, {0, 1}},
    {2, 6, 4, 2, {3, 3}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 4, 6, 1, {5, 3}, {2, 3}, {3, 1}, {2, 1}, {0, 1}, {0, 0}},
    {3, 40, 7, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 9, 9, 9, {2, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 8, 3, 1, {6, 5}, {2, 2}, {3, 3}, {1, 2}, {4, 0}, {0, 3}},
    {7, 1, 1, 1, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 900, 2, 1, {3, 3}, {3, 3}, {4, 4}, {1, 1}, {0, 0}, {0, 0}}, /* 8100 to sum */
};

DEVICE_TEST(fused_conv_of_few_outputs) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < MP_COUNT_OF(few) * MP_COUNT_OF(types); i++) {
        setting s = tails[(i + test_seed()) % MP_COUNT_OF(tails)];
        s.constant = i % 2 == 0;
        s.type = types[i % MP_COUNT_OF(types)];
        s.skew = i % 7 == 0 ? 8 : 0;
        check(device, &few[i / MP_COUNT_OF(types)], &s);
    }
}

/* Groups of single pixels are products: all groups of an image or all images of a group in a call,
 * so many calls that a library has it, and groups that are too narrow for it. */
static const geometry pixels[] = {
    {1, 32, 48, 4, {1, 24}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {3, 16, 16, 2, {5, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 27, 36, 3, {4, 4}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {9, 80, 80, 10, {1, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 16, 24, 4, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 16, 16, 2, {6, 5}, {1, 1}, {2, 1}, {1, 1}, {0, 0}, {0, 0}},
};

DEVICE_TEST(fused_conv_of_groups_of_pixels) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t i = 0; i < 3 * MP_COUNT_OF(pixels) * MP_COUNT_OF(types); i++) {
        setting s = tails[(i + test_seed()) % MP_COUNT_OF(tails)];
        s.last = i % 3 == 1;
        s.stem = i % 3 == 2;
        s.z = s.stem ? NO_RESIDUAL : s.z;
        s.constant = i % 2 == 0;
        s.type = types[i / 3 % MP_COUNT_OF(types)];
        s.skew = i % 7 == 0 ? 8 : 0;
        check(device, &pixels[i / MP_COUNT_OF(types) / 3], &s);
    }
}

/* Groups of some channels, whose numbers libraries have no kernels for: several parts of a group,
 * words behind the last of a lane, tiles that end in the next image, padding beyond the kernel. */
static const geometry groups[] = {
    {2, 72, 72, 3, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 48, 96, 2, {8, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {3, 120, 48, 3, {5, 5}, {3, 2}, {1, 2}, {2, 1}, {4, 0}, {1, 3}},
    {1, 80, 48, 2, {6, 7}, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {2, 48, 144, 2, {4, 11}, {1, 3}, {1, 1}, {1, 1}, {0, 1}, {0, 1}},
    {1, 112, 16, 2, {7, 6}, {3, 3}, {2, 1}, {1, 1}, {0, 2}, {2, 2}},
    {1, 336, 336, 14, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
};

DEVICE_TEST(fused_conv_of_groups_of_channels) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    const int arch = device->info.arch;
    device->info.arch = arch > 0 ? arch : 90; /* the kernel is chosen there */
    for (size_t i = 0; i < 2 * MP_COUNT_OF(groups) * MP_COUNT_OF(types); i++) {
        setting s = tails[(i + test_seed()) % MP_COUNT_OF(tails)];
        s.last = true;
        s.constant = i % 2 == 0;
        s.type = types[i / 2 % MP_COUNT_OF(types)];
        s.skew = i % 7 == 0 ? 8 : 0;
        check(device, &groups[i / 2 / MP_COUNT_OF(types)], &s);
    }
    device->info.arch = arch;
}

static mp_status refuse(mp_device *device, const mp_conv *conv, mp_math **out, bool *whole) {
    (void)device;
    (void)conv;
    (void)out;
    *whole = false;
    return MP_FAIL(UNSUPPORTED, "no convolution");
}

DEVICE_TEST(fused_conv_that_the_device_refuses) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    const mp_device_ops *own = device->ops;
    mp_device_ops without = *own;
    without.conv_prepare = refuse;
    device->ops = &without;
    for (size_t i = 0; i < 2 * MP_COUNT_OF(tails); i++) {
        setting s = tails[i / 2];
        s.last = i % 2 != 0;
        s.constant = i % 3 == 0;
        s.type = types[i % MP_COUNT_OF(types)];
        check(device, &plain, &s);
    }
    device->ops = own;
}

DEVICE_TEST(fused_conv_with_a_wrong_activation_is_refused) {
    float x[32] = {0};
    const float three[] = {1, 2, 3};
    const mp_attr attrs[] = {OP_TEXT("activation", "Softmin")};
    const mp_attr many[] = {
        OP_TEXT("activation", "Clip"),
        {.name = "activation_params", .kind = MP_ATTR_FLOATS, .floats = three, .count = 3}};
    op_case c = {.domain = "com.microsoft",
                 .name = "FusedConv",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 1, 1, 3, 3), op_f32(x, 1, 1, 3, 3)},
                 .in_count = 2,
                 .out_count = 1};
    mp_plan *plan = NULL;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "'Softmin' is not known");
    c.attrs = many;
    c.attr_count = 2;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "3 numbers for the activation Clip");
}
