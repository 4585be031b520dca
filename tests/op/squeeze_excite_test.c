/* squeeze_excite_test.c - gates of channels, and images times these, against loops.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct setting {
    int64_t images, height, width, channels, inner, gates;
    mp_dtype type;
    bool bias;
    const char *activation, *gating;
    uint32_t skew;
    enum { GATES, SCALES, ADDS } form;
} setting;

enum { INPUTS = 5, ATTRS = 4 };

static double activated(const char *name, double x) {
    if (strcmp(name, "Relu") == 0) {
        return fmax(x, 0);
    }
    if (strcmp(name, "Silu") == 0) {
        return x / (1 + exp(-x));
    }
    if (strcmp(name, "Sigmoid") == 0) {
        return 1 / (1 + exp(-x));
    }
    if (strcmp(name, "HardSwish") == 0) {
        return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    }
    return strcmp(name, "HardSigmoid") == 0 ? fmin(fmax(0.2 * x + 0.5, 0), 1) : x;
}

static double bias_of(const setting *s, const op_tensor *b, int64_t i) {
    return s->bias ? op_real(s->type, b->data, i) : 0;
}

static double sum_of_pixels(const setting *s, const op_tensor *x, int64_t image, int64_t c) {
    const int64_t pixels = s->height * s->width;
    double sum = 0;
    for (int64_t i = 0; i < pixels; i++) {
        sum += op_real(s->type, x->data, (image * pixels + i) * s->channels + c);
    }
    return sum;
}

/* One product and what follows it. */
static double made_of(const setting *s, const double *from, int64_t count, const op_tensor *w,
                      const op_tensor *b, int64_t n, const char *activation) {
    double sum = bias_of(s, b, n);
    for (int64_t i = 0; i < count; i++) {
        sum += from[i] * op_real(s->type, w->data, n * count + i);
    }
    return activated(activation, sum);
}

/* Numbers small enough for gates to stay apart. */
static void *weights(mp_dtype type, uint64_t seed, int64_t count, int64_t depth) {
    void *data = op_numbers(type, seed, count);
    double by = 1;
    while (by * (double)depth > 4) {
        by /= 2;
    }
    for (int64_t i = 0; i < count; i++) {
        op_store_real(type, data, i, op_real(type, data, i) * by);
    }
    return data;
}

/* The gates of an image as they are stored. */
static void gates_of(const setting *s, const op_tensor *in, int64_t image, double *out) {
    double *mean = calloc((size_t)s->channels, sizeof *mean);
    double *inner = calloc((size_t)s->inner, sizeof *inner);
    CHECK(mean != NULL && inner != NULL);
    for (int64_t c = 0; c < s->channels; c++) {
        mean[c] = sum_of_pixels(s, &in[0], image, c) / (double)(s->height * s->width);
    }
    for (int64_t k = 0; k < s->inner; k++) {
        inner[k] = made_of(s, mean, s->channels, &in[1], &in[2], k, s->activation);
    }
    for (int64_t n = 0; n < s->gates; n++) {
        out[n] = made_of(s, inner, s->inner, &in[3], &in[4], n, s->gating);
    }
    free(mean);
    free(inner);
}

static void check_image(const setting *s, const op_tensor *in, const op_tensor *y, int64_t image) {
    const int64_t pixels = s->height * s->width;
    const double precision = op_precision(s->type);
    double *gates = calloc((size_t)s->gates, sizeof *gates);
    CHECK(gates != NULL);
    gates_of(s, in, image, gates);
    for (int64_t n = 0; s->form == GATES && n < s->gates; n++) {
        op_check_close(op_real(s->type, y->data, image * s->gates + n), gates[n], 8 * precision,
                       s->gating, n);
    }
    for (int64_t i = 0; s->form != GATES && i < pixels * s->channels; i++) {
        const int64_t at = image * pixels * s->channels + i;
        const double x = op_real(s->type, in[0].data, at);
        const double want = x * (gates[i % s->channels] + (s->form == ADDS ? 1 : 0));
        op_check_close(op_real(s->type, y->data, at), want, 16 * precision * fmax(fabs(x), 1),
                       "a pixel", at);
    }
    free(gates);
}

static void check_result(const setting *s, const op_tensor *in, const op_tensor *y) {
    const mp_shape gates = {4, {s->images, 1, 1, s->gates}};
    CHECK(mp_shape_equal(s->form == GATES ? &gates : &in[0].shape, &y->shape));
    for (int64_t image = 0; image < s->images; image++) {
        check_image(s, in, y, image);
    }
}

static void check(mp_device *device, const setting *s) {
    const mp_shape shapes[INPUTS] = {{4, {s->images, s->height, s->width, s->channels}},
                                     {4, {s->inner, s->channels, 1, 1}},
                                     {1, {s->inner}},
                                     {4, {s->gates, s->inner, 1, 1}},
                                     {1, {s->gates}}};
    const int64_t depths[INPUTS] = {1, s->channels, 1, s->inner, 1};
    const mp_attr attrs[ATTRS] = {OP_TEXT("activation", s->activation),
                                  OP_TEXT("gating", s->gating), OP_INT("scales", s->form != GATES),
                                  OP_INT("adds", s->form == ADDS)};
    op_case c = {.domain = MP_OWN_DOMAIN ".nhwc",
                 .name = "SqueezeExcite",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = MP_COUNT_OF(attrs),
                 .skew = s->skew,
                 .align = s->skew != 0 ? 1 : 16,
                 .in_count = INPUTS,
                 .out_count = 1};
    void *data[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
        data[i] = weights(s->type, (uint64_t)i + 1, mp_shape_count(&shapes[i]), depths[i]);
        c.in[i] = (op_tensor){s->type, shapes[i], data[i]};
        if (!s->bias && (i == 2 || i == 4)) {
            c.in[i].type = MP_NONE;
        }
    }
    op_run(device, &c);
    check_result(s, c.in, &c.out[0]);
    op_close(device, &c);
    for (int i = 0; i < INPUTS; i++) {
        free(data[i]);
    }
}

/* By one launch and by two, whose parts are in memory; one pixel and many, rows of one pack and of
 * more than a block has lanes, several images. */
static const setting settings[] = {
    {1, 7, 7, 960, 60, 240, MP_F16, true, "Relu", "HardSigmoid", 0, GATES},
    {1, 14, 15, 96, 24, 96, MP_F32, true, "Relu", "Sigmoid", 0, GATES},
    {3, 5, 4, 64, 6, 72, MP_BF16, true, "Silu", "Sigmoid", 0, GATES},
    {2, 1, 1, 8, 1, 5, MP_F32, false, "", "", 0, GATES},
    {40, 3, 2, 16, 4, 16, MP_F16, false, "Relu", "Sigmoid", 0, GATES},
    {1, 40, 33, 24, 10, 24, MP_F16, true, "Silu", "Sigmoid", 8, GATES},
    {1, 3, 3, 2304, 12, 130, MP_F32, true, "Relu", "HardSigmoid", 0, GATES},
    {2, 2, 3, 12, 3, 12, MP_F32, true, "Relu", "HardSigmoid", 8, GATES},
    {1, 104, 70, 24, 6, 24, MP_F32, true, "Relu", "HardSigmoid", 0, GATES},
    {2, 26, 19, 48, 3, 20, MP_F16, true, "HardSwish", "Sigmoid", 0, GATES},
    {5, 9, 9, 40, 11, 7, MP_F32, true, "Relu", "Sigmoid", 0, GATES},
    {0, 2, 3, 16, 3, 16, MP_F32, true, "Relu", "HardSigmoid", 0, GATES},
    {1, 7, 7, 960, 60, 960, MP_F16, true, "Relu", "HardSigmoid", 0, SCALES},
    {3, 14, 14, 480, 20, 480, MP_F16, true, "Silu", "Sigmoid", 0, SCALES},
    {1, 112, 112, 32, 8, 32, MP_F16, true, "Silu", "Sigmoid", 0, SCALES},
    {1, 104, 152, 24, 6, 24, MP_F32, true, "Relu", "HardSigmoid", 0, ADDS},
    {1, 13, 19, 384, 96, 384, MP_F32, true, "Relu", "HardSigmoid", 0, SCALES},
    {3, 28, 27, 72, 24, 72, MP_BF16, false, "Relu", "HardSigmoid", 0, ADDS},
    {1, 1, 1, 2048, 128, 2048, MP_F32, true, "Relu", "Sigmoid", 0, SCALES},
    {2, 1, 1, 8, 1, 8, MP_F16, true, "", "HardSwish", 0, ADDS},
    {2, 6, 5, 20, 5, 20, MP_F32, true, "Relu", "HardSigmoid", 8, SCALES},
    {3, 128, 96, 16, 3, 16, MP_F32, true, "Relu", "Sigmoid", 8, ADDS},
    {1, 128, 192, 40, 10, 40, MP_F16, true, "Relu", "HardSigmoid", 0, SCALES},
    {150, 3, 3, 48, 12, 48, MP_F16, true, "Relu", "Sigmoid", 0, SCALES},
    {1, 160, 130, 24, 6, 10, MP_F32, true, "Relu", "Sigmoid", 0, GATES},
    {0, 2, 3, 16, 3, 16, MP_F32, true, "Relu", "HardSigmoid", 0, SCALES},
    {2, 0, 3, 16, 3, 16, MP_F32, true, "Relu", "HardSigmoid", 0, SCALES},
};

DEVICE_TEST(squeeze_excite) {
    for (size_t i = 0; i < MP_COUNT_OF(settings); i++) {
        check(device, &settings[i]);
    }
}

/* What it says to weights of these shapes, with what follows. */
static mp_status accepted_as(const mp_shape *w1, const mp_shape *w2, const char *gating,
                             bool scales) {
    const mp_attr attrs[] = {OP_TEXT("gating", gating), OP_INT("scales", scales)};
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN ".nhwc", "SqueezeExcite", 1),
                          .version = 1,
                          .attrs = attrs,
                          .attr_count = MP_COUNT_OF(attrs)};
    const mp_tensor in[INPUTS] = {{.type = MP_NONE},
                                  {.type = MP_F32, .shape = *w1},
                                  {.type = MP_NONE},
                                  {.type = MP_F32, .shape = *w2},
                                  {.type = MP_NONE}};
    const mp_planner p = {.node = &node, .in = in, .in_count = INPUTS};
    return node.op->accept(&p);
}

static mp_status accepted(const mp_shape *w1, const mp_shape *w2, const char *gating) {
    return accepted_as(w1, w2, gating, false);
}

/* What the kernel does not take is refused before it is planned. */
TEST(squeeze_excite_refuses) {
    static const mp_shape right[] = {{4, {4, 8, 1, 1}}, {4, {8, 4, 1, 1}}};
    static const mp_shape wrong[][2] = {
        {{4, {4, 9, 1, 1}}, {4, {9, 4, 1, 1}}},
        {{4, {4, 8, 3, 1}}, {4, {8, 4, 1, 1}}},
        {{2, {4, 8}}, {2, {8, 4}}},
        {{4, {4, 8, 1, 1}}, {4, {8, 5, 1, 1}}},
        {{4, {4, 8192, 1, 1}}, {4, {8, 4, 1, 1}}},
    };
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        CHECK(accepted(&wrong[i][0], &wrong[i][1], "Sigmoid") == MP_UNSUPPORTED);
    }
    CHECK(accepted(&right[0], &right[1], "Tanh") == MP_UNSUPPORTED);
    CHECK_OK(accepted(&right[0], &right[1], "Sigmoid"));
    CHECK_OK(accepted_as(&right[0], &right[1], "Sigmoid", true));
    /* fewer gates than channels */
    const mp_shape few = {4, {4, 4, 1, 1}};
    CHECK_OK(accepted(&right[0], &few, "Sigmoid"));
    CHECK(accepted_as(&right[0], &few, "Sigmoid", true) == MP_UNSUPPORTED);
}
