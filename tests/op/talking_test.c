/* talking_test.c - scores whose heads are mixed, made probabilities, and mixed again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

typedef struct talking {
    int64_t batch, from, between, to, rows, columns;
    bool turned, biased;
} talking;

/* out[k] of `count` heads: what `from` heads of `x` become, `step` apart. */
static double mixed(const double *x, int64_t step, mp_dtype type, const void *weight,
                    const void *bias, const talking *t, int64_t from, int64_t to, int64_t k) {
    double sum = bias != NULL ? op_real(type, bias, k) : 0;
    for (int64_t i = 0; i < from; i++) {
        sum += x[i * step] * op_real(type, weight, t->turned ? k * from + i : i * to + k);
    }
    return sum;
}

/* One query of all heads: `made` is [to, columns]. */
static void loops(mp_dtype type, const talking *t, const double *x, void *const *part,
                  double *made) {
    double *scores = calloc((size_t)(t->between * t->columns), sizeof *scores);
    for (int64_t k = 0; k < t->between; k++) {
        double *line = scores + k * t->columns, most = -HUGE_VAL, sum = 0;
        for (int64_t c = 0; c < t->columns; c++) {
            line[c] = mixed(x + c, t->columns, type, part[0], part[1], t, t->from, t->between, k);
            most = fmax(most, line[c]);
        }
        for (int64_t c = 0; c < t->columns; c++) {
            line[c] = exp(line[c] - most);
            sum += line[c];
        }
        for (int64_t c = 0; c < t->columns; c++) {
            line[c] /= sum;
        }
    }
    for (int64_t k = 0; k < t->to; k++) {
        for (int64_t c = 0; c < t->columns; c++) {
            made[k * t->columns + c] =
                mixed(scores + c, t->columns, type, part[2], part[3], t, t->between, t->to, k);
        }
    }
    free(scores);
}

static op_tensor matrix(const talking *t, mp_dtype type, void *data, int64_t from, int64_t to) {
    return t->turned ? OP_TENSOR(type, data, to, from, 1, 1) : OP_TENSOR(type, data, from, to);
}

static void check_talking(mp_device *device, mp_dtype type, const talking *t) {
    const mp_attr turned = OP_INT("turned", 1);
    const int64_t each = t->rows * t->columns;
    void *x = op_numbers(type, 1, t->batch * t->from * each);
    void *part[] = {op_numbers(type, 2, t->from * t->between),
                    t->biased ? op_numbers(type, 3, t->between) : NULL,
                    op_numbers(type, 4, t->between * t->to),
                    t->biased ? op_numbers(type, 5, t->to) : NULL};
    op_case c = {.domain = MP_OWN_DOMAIN,
                 .name = "TalkingHeads",
                 .version = 1,
                 .attrs = &turned,
                 .attr_count = t->turned,
                 .in = {OP_TENSOR(type, x, t->batch, t->from, t->rows, t->columns),
                        matrix(t, type, part[0], t->from, t->between),
                        {.type = MP_NONE},
                        matrix(t, type, part[2], t->between, t->to),
                        {.type = MP_NONE}},
                 .in_count = 5,
                 .out_count = 1};
    if (t->biased) {
        c.in[2] = OP_TENSOR(type, part[1], t->between);
        c.in[4] = OP_TENSOR(type, part[3], t->to);
    }
    op_run(device, &c);
    CHECK_EQ_INT(mp_shape_count(&c.out[0].shape), t->batch * t->to * each);
    double *given = calloc((size_t)(t->from * t->columns) + 1, sizeof *given);
    double *made = calloc((size_t)(t->to * t->columns) + 1, sizeof *made);
    for (int64_t i = 0; i < t->batch * t->rows; i++) {
        const int64_t entry = i / t->rows, row = i % t->rows;
        for (int64_t at = 0; at < t->from * t->columns; at++) {
            const int64_t head = entry * t->from + at / t->columns;
            given[at] = op_real(type, x, head * each + row * t->columns + at % t->columns);
        }
        loops(type, t, given, part, made);
        for (int64_t at = 0; at < t->to * t->columns; at++) {
            const int64_t head = entry * t->to + at / t->columns;
            const int64_t place = head * each + row * t->columns + at % t->columns;
            op_check_close(op_real(type, c.out[0].data, place), made[at],
                           1e-5 + 2 * op_precision(type), "made", place);
        }
    }
    op_close(device, &c);
    free(given);
    free(made);
    free(x);
    for (size_t i = 0; i < MP_COUNT_OF(part); i++) {
        free(part[i]);
    }
}

DEVICE_TEST(talking_heads_are_what_loops_give) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    static const talking cases[] = {
        {2, 3, 5, 2, 4, 7, false, true},    {1, 8, 8, 8, 3, 196, false, true},
        {1, 8, 8, 8, 3, 196, true, false},  {2, 16, 16, 16, 2, 300, true, true},
        {3, 1, 9, 1, 1, 1, false, false},   {1, 17, 4, 33, 2, 33, true, true},
        {0, 4, 4, 4, 5, 6, false, true},    {2, 4, 4, 4, 0, 6, false, true},
        {1, 4, 4, 4, 300, 129, true, true},
    };
    for (size_t i = 0; i < MP_COUNT_OF(types) * MP_COUNT_OF(cases); i++) {
        check_talking(device, types[i % MP_COUNT_OF(types)], &cases[i / MP_COUNT_OF(types)]);
    }
}

DEVICE_TEST(talking_heads_refuse) {
    float some[64] = {0};
    mp_plan *plan = NULL;
    op_case good = {.domain = MP_OWN_DOMAIN,
                    .name = "TalkingHeads",
                    .version = 1,
                    .in = {op_f32(some, 1, 4, 2, 3), op_f32(some, 4, 5), op_f32(some, 5),
                           op_f32(some, 5, 6), op_f32(some, 6)},
                    .in_count = 5,
                    .out_count = 1};
    op_case bad = good;
    bad.in[0] = op_f32(some, 4, 2, 3);
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "scores of shape 4x2x3");
    bad = good;
    bad.in[1] = op_f32(some, 5, 4);
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "4 heads are mixed by 5x4");
    bad = good;
    bad.in[2] = op_f32(some, 4);
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "a bias of shape 4");
    bad = good;
    bad.in[3] = op_f32(some, 4, 6);
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "5 heads are mixed by 4x6");
    bad = good;
    bad.in[3] = op_f32(some, 5);
    CHECK_FAILS(op_plan(device, &bad, &plan), INVALID_ARGUMENT, "5 heads are mixed by 5");
    bad = good;
    bad.in[0] = op_f32(some, 1, 4, 1, 1 << 13);
    CHECK_FAILS(op_plan(device, &bad, &plan), UNSUPPORTED,
                "1x4x1x8192, whose heads become 5 and these 6");
}
