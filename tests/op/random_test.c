/* random_test.c - random numbers: the generator's published values, how numbers are spread, and
 * when they repeat.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static op_case draw_case(const char *name, const mp_attr *attrs, size_t count) {
    return (op_case){
        .name = name, .version = 22, .attrs = attrs, .attr_count = count, .out_count = 1};
}

/* Philox4x32-10 at counter 0 with key 0, as its authors publish it. */
DEVICE_TEST(random_words_are_those_of_philox) {
    const uint32_t words[] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
    const mp_attr attrs[] = {OP_INTS("shape", 4), OP_FLOAT("seed", 0)};
    op_case c = draw_case("RandomUniform", attrs, 2);
    op_run(device, &c);
    for (int64_t i = 0; i < 4; i++) {
        CHECK(((const float *)c.out[0].data)[i] == (float)(words[i] >> 8) * 0x1p-24f);
    }
    op_close(device, &c);
}

/* Mean, deviation and range of many numbers; bounds of six deviations of the mean of so many. */
static void check_spread(mp_device *device, const char *name, mp_dtype type, double a, double b) {
    const int64_t size = 40001;
    const bool normal = strcmp(name, "RandomNormal") == 0;
    const mp_attr attrs[] = {OP_INTS("shape", size), OP_FLOAT("seed", 7),
                             OP_FLOAT(normal ? "mean" : "low", (float)a),
                             OP_FLOAT(normal ? "scale" : "high", (float)b), OP_INT("dtype", type)};
    op_case c = draw_case(name, attrs, 5);
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].type, type);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < size; i++) {
        const double value = op_real(type, c.out[0].data, i);
        CHECK(normal ? fabs(value - a) < 6 * b : value >= a && value <= b);
        sum += value / (double)size;
        squares += value * value / (double)size;
    }
    const double mean = normal ? a : (a + b) / 2, deviation = normal ? b : (b - a) / sqrt(12);
    const double bound = 6 * deviation / sqrt((double)size) + op_precision(type);
    op_check_close(sum, mean, bound, name, 0);
    op_check_close(sqrt(squares - sum * sum), deviation, bound, name, 1);
    op_close(device, &c);
}

DEVICE_TEST(random_numbers_are_spread_as_asked) {
    const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    for (int t = 0; t < 4; t++) {
        check_spread(device, "RandomUniform", types[t], 0, 1);
        check_spread(device, "RandomUniform", types[t], -3, 5);
        check_spread(device, "RandomNormal", types[t], 0, 1);
        check_spread(device, "RandomNormal", types[t], 2, 0.5);
    }
}

/* Pairs of uniform numbers become pairs of normal ones by Box and Muller; the same seed has the
 * same words. */
static void check_normal(mp_device *device, mp_dtype type, int64_t size) {
    const mp_dtype from = type == MP_F64 ? MP_F64 : MP_F32;
    const double bound = type == MP_F64 ? 1e-14 : op_precision(type) * 4 + 0x1p-18;
    const mp_attr attrs[] = {OP_INTS("shape", size), OP_FLOAT("seed", 9), OP_INT("dtype", from)};
    const mp_attr normal_attrs[] = {OP_INTS("shape", size), OP_FLOAT("seed", 9),
                                    OP_INT("dtype", type), OP_FLOAT("mean", 0.25f),
                                    OP_FLOAT("scale", 0.5f)};
    op_case uniform = draw_case("RandomUniform", attrs, 3);
    op_case normal = draw_case("RandomNormal", normal_attrs, 5);
    op_run(device, &uniform);
    op_run(device, &normal);
    for (int64_t i = 0; i + 1 < size; i += 2) {
        const double radius = sqrt(-2 * log1p(-op_real(from, uniform.out[0].data, i)));
        const double angle = 2 * acos(-1) * op_real(from, uniform.out[0].data, i + 1);
        const double want[] = {radius * cos(angle), radius * sin(angle)};
        for (int k = 0; k < 2; k++) {
            const double got = op_real(type, normal.out[0].data, i + k);
            op_check_close(got, 0.25 + 0.5 * want[k], bound, "normal", i + k);
        }
    }
    op_close(device, &uniform);
    op_close(device, &normal);
}

DEVICE_TEST(random_normal_numbers_are_those_of_their_words) {
    const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16};
    for (int t = 0; t < 4; t++) {
        check_normal(device, types[t], 4);
        check_normal(device, types[t], 1);
        check_normal(device, types[t], 20006);
    }
}

/* The outputs of two runs of one plan. */
static void run_twice(mp_device *device, const op_case *c, float *out, size_t count) {
    mp_plan *plan = NULL;
    mp_stream *stream = NULL;
    mp_addr memory = 0;
    const size_t size = count * sizeof *out;
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(op_plan(device, c, &plan));
    CHECK_OK(device->ops->alloc(device, size, &memory));
    for (int run = 0; run < 2; run++) {
        CHECK_OK(mp_plan_run(plan, stream, NULL, &memory, 0));
        CHECK_OK(
            device->ops->copy(device, stream, (mp_addr)(out + (size_t)run * count), memory, size));
        CHECK_OK(device->ops->stream_synchronize(device, stream));
    }
    device->ops->free(device, memory, size);
    device->ops->stream_destroy(device, stream);
    mp_plan_release(plan);
}

/* Whether `count` numbers are the same ones. */
static bool alike(const float *a, const float *b, size_t count) {
    size_t i = 0;
    while (i < count && a[i] == b[i]) {
        i++;
    }
    return i == count;
}

DEVICE_TEST(random_numbers_repeat_by_seed_and_run) {
    enum { COUNT = 64 };
    float first[2 * COUNT], again[2 * COUNT], other[2 * COUNT], unseeded[2 * COUNT];
    const mp_attr attrs[] = {OP_INTS("shape", COUNT), OP_FLOAT("seed", 3)};
    const mp_attr attrs_of_other[] = {OP_INTS("shape", COUNT), OP_FLOAT("seed", 4)};
    const op_case c = draw_case("RandomUniform", attrs, 2);
    const op_case d = draw_case("RandomUniform", attrs_of_other, 2);
    const op_case e = draw_case("RandomUniform", attrs, 1);
    run_twice(device, &c, first, COUNT);
    run_twice(device, &c, again, COUNT);
    run_twice(device, &d, other, COUNT);
    run_twice(device, &e, unseeded, COUNT);
    CHECK(alike(first, again, MP_COUNT_OF(first)));
    CHECK(!alike(first, first + COUNT, COUNT));
    CHECK(!alike(first, other, COUNT));
    CHECK(!alike(first, unseeded, COUNT));
    CHECK(!alike(unseeded, unseeded + COUNT, COUNT));
    run_twice(device, &e, again, COUNT);
    CHECK(!alike(again, unseeded, COUNT));
    op_case closing = c;
    closing.out_count = 0;
    op_close(device, &closing);
}

/* ---- Multinomial ---- */

DEVICE_TEST(multinomial_draws_classes_as_often_as_they_are_likely) {
    enum { CLASSES = 300, SAMPLES = 30000 };
    float x[2][CLASSES];
    for (int c = 0; c < CLASSES; c++) { /* one class in two, in four, ...; then all alike */
        x[0][c] = c < 5 ? -0.6931472f * (float)(c + 1) : -INFINITY;
        x[1][c] = 3;
    }
    x[0][CLASSES - 1] = x[0][4];
    const mp_attr attrs[] = {OP_INT("sample_size", SAMPLES), OP_INT("dtype", MP_I64),
                             OP_FLOAT("seed", 11)};
    op_case c = {.name = "Multinomial",
                 .version = 7,
                 .attrs = attrs,
                 .attr_count = 3,
                 .in = {op_f32(x, 2, CLASSES)},
                 .in_count = 1,
                 .out_count = 1};
    int64_t seen[2][CLASSES] = {{0}};
    op_run(device, &c);
    for (int64_t i = 0; i < (int64_t)2 * SAMPLES; i++) {
        const int64_t class = ((const int64_t *)c.out[0].data)[i];
        CHECK(class >= 0 && class < CLASSES);
        seen[i / SAMPLES][class]++;
    }
    for (int k = 0; k < CLASSES; k++) {
        const double likely[] = {k < 5              ? pow(0.5, k + 1)
                                 : k == CLASSES - 1 ? pow(0.5, 5)
                                                    : 0,
                                 1.0 / CLASSES};
        for (int row = 0; row < 2; row++) {
            const double spread = sqrt(likely[row] * (1 - likely[row]) / SAMPLES);
            op_check_close((double)seen[row][k] / SAMPLES, likely[row], 6 * spread, "class", k);
        }
    }
    op_close(device, &c);
}
