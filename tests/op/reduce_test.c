/* reduce_test.c - every reduction over every subset of axes, in every type, against sums in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct reduction {
    const char *name;
    double start;                               /* what nothing reduces to */
    double (*add)(double so_far, double value); /* NULL: see expected() */
    bool whole;                                 /* for integers too */
} reduction;

static double add(double a, double x) {
    return a + x;
}
static double add_size(double a, double x) {
    return a + fabs(x);
}
static double add_square(double a, double x) {
    return a + x * x;
}
static double add_exp(double a, double x) {
    return a + exp(x);
}
static double multiply(double a, double x) {
    return a * x;
}
static double larger(double a, double x) {
    return isnan(a) || a > x ? a : x;
}
static double smaller(double a, double x) {
    return isnan(a) || a < x ? a : x;
}

static const reduction reductions[] = {
    {"ReduceSum", 0, add, true},
    {"ReduceMean", 0, add, true},
    {"ReduceMax", -(double)INFINITY, larger, true},
    {"ReduceMin", (double)INFINITY, smaller, true},
    {"ReduceProd", 1, multiply, true},
    {"ReduceL1", 0, add_size, true},
    {"ReduceL2", 0, add_square, true},
    {"ReduceSumSquare", 0, add_square, true},
    {"ReduceLogSum", 0, add, false},
    {"ReduceLogSumExp", 0, add_exp, false},
};

static int newest(const char *name) {
    return strcmp(name, "ReduceSum") == 0 ? 13 : 18;
}

static double finish(const reduction *r, mp_dtype type, double sum, double count) {
    if (strcmp(r->name, "ReduceMean") == 0) {
        return op_is_float(type) ? sum / count : trunc(sum / count);
    }
    if (strcmp(r->name, "ReduceL2") == 0) {
        return op_is_float(type) ? sqrt(sum) : trunc(sqrt(sum));
    }
    return strncmp(r->name, "ReduceLogSum", strlen("ReduceLogSum")) == 0 ? log(sum) : sum;
}

/* Output `o`, whose coordinates are those of the axes that `axes` leaves. */
static double expected(const reduction *r, mp_dtype type, const void *x, const mp_shape *shape,
                       uint32_t axes, int64_t o) {
    int64_t stride[MP_RANK_MAX] = {0};
    int64_t first = 0, count = 1;
    double sum = r->start;
    mp_shape_strides(shape, stride);
    for (int d = shape->rank - 1; d >= 0; d--) {
        if ((axes & 1u << d) == 0) {
            first += o % shape->dim[d] * stride[d];
            o /= shape->dim[d];
        } else {
            count *= shape->dim[d];
        }
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first, rest = i;
        for (int d = shape->rank - 1; d >= 0; d--) {
            if ((axes & 1u << d) != 0) {
                at += rest % shape->dim[d] * stride[d];
                rest /= shape->dim[d];
            }
        }
        sum = r->add(sum, op_real(type, x, at));
    }
    return finish(r, type, sum, (double)count);
}

static mp_shape without(const mp_shape *shape, uint32_t axes, bool keep) {
    mp_shape out = {.rank = 0};
    for (int d = 0; d < shape->rank; d++) {
        if ((axes & 1u << d) == 0 || keep) {
            out.dim[out.rank++] = (axes & 1u << d) != 0 ? 1 : shape->dim[d];
        }
    }
    return out;
}

/* Runs the newest version, axes as an input; those from the back are named by negative numbers. */
static void run_reduce(mp_device *device, const reduction *r, mp_dtype type, const void *x,
                       const mp_shape *shape, uint32_t axes, bool keep, op_case *c) {
    int64_t list[MP_RANK_MAX];
    int64_t count = 0;
    for (int d = 0; d < shape->rank; d++) {
        if ((axes & 1u << d) != 0) {
            list[count++] = d % 2 == 0 ? d : d - shape->rank;
        }
    }
    const mp_attr attrs[] = {OP_INT("keepdims", keep), OP_INT("noop_with_empty_axes", 1)};
    *c = (op_case){.name = r->name,
                   .version = newest(r->name),
                   .attrs = attrs,
                   .attr_count = 2,
                   .in = {{type, *shape, x}, op_i64(list, count)},
                   .in_count = 2,
                   .out_count = 1};
    op_run(device, c);
    c->attrs = NULL;
}

static void check_reduce(mp_device *device, const reduction *r, mp_dtype type, const void *x,
                         const mp_shape *shape, uint32_t axes, bool keep) {
    op_case c;
    char what[96];
    char text[MP_SHAPE_TEXT];
    (void)snprintf(what, sizeof what, "%s of %s over axes 0x%x", r->name, mp_dtype_name(type),
                   axes);
    run_reduce(device, r, type, x, shape, axes, keep, &c);
    const mp_shape want = without(shape, axes, keep);
    if (!mp_shape_equal(&c.out[0].shape, &want)) {
        test_fail(__FILE__, __LINE__, "%s has shape %s", what,
                  mp_shape_text(&c.out[0].shape, text));
    }
    for (int64_t o = 0; o < mp_shape_count(&want); o++) {
        const double sum = expected(r, type, x, shape, axes, o);
        const double got = op_real(type, c.out[0].data, o);
        if (op_is_float(type)) {
            op_check_close(got, op_rounded(type, sum), op_precision(type) * 8, what, o);
        } else {
            op_check_close(got, sum, 0, what, o);
        }
    }
    op_close(device, &c);
}

/* Numbers whose sums, products and squares fit the type. */
static void *reducible(const reduction *r, mp_dtype type, const mp_shape *shape) {
    const int64_t count = mp_shape_count(shape);
    void *x = op_numbers(type, 23, count);
    const bool positive = strcmp(r->name, "ReduceLogSum") == 0;
    const bool product = strcmp(r->name, "ReduceProd") == 0;
    for (int64_t i = 0; i < count; i++) {
        if (positive) {
            op_store_real(type, x, i, fabs(op_real(type, x, i)) + 0.25);
        } else if (product) { /* a few twos and minus ones among ones */
            op_store_real(type, x, i, i % 7 == 0 ? 2 : i % 5 == 0 && op_is_signed(type) ? -1 : 1);
        }
    }
    return x;
}

static bool takes(const reduction *r, mp_dtype type) {
    return (op_types_of(r->name, newest(r->name)) & MP_BIT(type)) != 0;
}

DEVICE_TEST(reduce_over_every_subset_of_axes) {
    const mp_shape shape = {.rank = 4, .dim = {3, 2, 5, 4}};
    for (size_t k = 0; k < MP_COUNT_OF(reductions); k++) {
        void *x = reducible(&reductions[k], MP_F32, &shape);
        for (uint32_t axes = 1; axes < 1u << shape.rank; axes++) {
            check_reduce(device, &reductions[k], MP_F32, x, &shape, axes, axes % 3 == 0);
        }
        free(x);
    }
}

DEVICE_TEST(reduce_knows_every_type) {
    const mp_shape shape = {.rank = 3, .dim = {3, 4, 5}};
    for (size_t k = 0; k < MP_COUNT_OF(reductions); k++) {
        for (int t = 0; op_types[t] != MP_NONE; t++) {
            if (takes(&reductions[k], op_types[t])) {
                void *x = reducible(&reductions[k], op_types[t], &shape);
                check_reduce(device, &reductions[k], op_types[t], x, &shape, 2, true);
                check_reduce(device, &reductions[k], op_types[t], x, &shape, 6, false);
                free(x);
            }
        }
    }
}

/* Rows long enough to be shared by the lanes of a block, and many neighbouring outputs. */
DEVICE_TEST(reduce_long_and_many) {
    const mp_shape shapes[] = {{2, {3, 3001}}, {2, {5, 1030}}, {3, {2, 9, 600}}};
    const uint32_t axes[] = {2, 1, 2};
    for (size_t s = 0; s < MP_COUNT_OF(shapes); s++) {
        for (size_t k = 0; k < MP_COUNT_OF(reductions); k++) {
            void *x = reducible(&reductions[k], MP_F64, &shapes[s]);
            if (strcmp(reductions[k].name, "ReduceProd") == 0) {
                for (int64_t i = 8; i < mp_shape_count(&shapes[s]); i++) {
                    op_store_real(MP_F64, x, i, 1);
                }
            }
            op_case c;
            run_reduce(device, &reductions[k], MP_F64, x, &shapes[s], axes[s], false, &c);
            const int64_t count = mp_shape_count(&c.out[0].shape);
            for (int64_t o = 0; o < count; o += count / 3) {
                op_check_close(op_real(MP_F64, c.out[0].data, o),
                               expected(&reductions[k], MP_F64, x, &shapes[s], axes[s], o), 1e-12,
                               reductions[k].name, o);
            }
            op_close(device, &c);
            free(x);
        }
    }
}

/* Many rows of a few packs and a bit, which blocks bring to shared memory; the last block has few.
 */
DEVICE_TEST(reduce_short_rows) {
    static const struct {
        const char *name;
        mp_dtype type;
    } cases[] = {{"ReduceMean", MP_F32}, {"ReduceSum", MP_F16}, {"ReduceMax", MP_U8}};
    const int64_t rows = (int64_t)device->info.multiprocessors * 2 * 128 + 5;
    const mp_shape shape = {.rank = 3, .dim = {rows, 5, 7}};
    for (size_t k = 0; k < MP_COUNT_OF(reductions); k++) {
        for (size_t n = 0; n < MP_COUNT_OF(cases); n++) {
            if (strcmp(reductions[k].name, cases[n].name) == 0) {
                void *x = reducible(&reductions[k], cases[n].type, &shape);
                check_reduce(device, &reductions[k], cases[n].type, x, &shape, 6, false);
                free(x);
            }
        }
    }
}

/* Few outputs, each from much: pieces of rows, of columns and of what lies apart, then merged. Sums
 * of so many are exact in double. */
/* Lines of less than a pack, so that several rows are one; what does not come out even is not. */
DEVICE_TEST(reduce_narrow_columns) {
    static const int64_t sizes[][2] = {{8, 2},     {40, 3},    {1000, 1},  {4104, 5},  {4104, 31},
                                       {65536, 2}, {65544, 3}, {32776, 7}, {65537, 2}, {4104, 33}};
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    for (size_t k = 0; k < MP_COUNT_OF(reductions); k++) {
        const bool is_sum = strcmp(reductions[k].name, "ReduceSum") == 0;
        for (size_t i = 0; i < MP_COUNT_OF(sizes); i++) {
            const mp_dtype type = types[i % MP_COUNT_OF(types)];
            const mp_shape shape = {.rank = 2, .dim = {sizes[i][0], sizes[i][1]}};
            if (is_sum || strcmp(reductions[k].name, "ReduceMean") == 0) {
                void *x = reducible(&reductions[k], type, &shape);
                check_reduce(device, &reductions[k], type, x, &shape, 1, false);
                free(x);
            }
        }
    }
}

DEVICE_TEST(reduce_in_pieces) {
    const mp_shape shapes[] = {
        {2, {2, 40000}}, {2, {1, 33001}}, {2, {3000, 40}}, {3, {2, 20000, 3}}};
    const uint32_t axes[] = {2, 2, 1, 2};
    const mp_dtype types[] = {MP_F64, MP_I32, MP_F32};
    for (size_t s = 0; s < MP_COUNT_OF(shapes); s++) {
        for (size_t n = 0; n < MP_COUNT_OF(reductions) * 3; n++) {
            const reduction *r = &reductions[n / 3];
            const mp_dtype type = types[n % 3];
            if (!takes(r, type)) {
                continue;
            }
            void *x = reducible(r, type, &shapes[s]);
            for (int64_t i = 8;
                 strcmp(r->name, "ReduceProd") == 0 && i < mp_shape_count(&shapes[s]); i++) {
                op_store_real(type, x, i, 1);
            }
            op_case c;
            run_reduce(device, r, type, x, &shapes[s], axes[s], false, &c);
            const int64_t last = mp_shape_count(&c.out[0].shape) - 1;
            op_check_close(op_real(type, c.out[0].data, last),
                           expected(r, type, x, &shapes[s], axes[s], last),
                           type == MP_F32 ? 1e-4 : 1e-12, r->name, last);
            op_close(device, &c);
            free(x);
        }
    }
}

DEVICE_TEST(reduce_of_nothing_gives_what_is_neutral) {
    const mp_shape shape = {.rank = 2, .dim = {3, 0}};
    for (size_t k = 0; k < MP_COUNT_OF(reductions); k++) {
        op_case c;
        run_reduce(device, &reductions[k], MP_F32, "", &shape, 2, true, &c);
        for (int64_t o = 0; o < 3; o++) {
            const double want = finish(&reductions[k], MP_F32, reductions[k].start, 0);
            op_check_close(op_real(MP_F32, c.out[0].data, o), want, 0, reductions[k].name, o);
        }
        op_close(device, &c);
    }
}

DEVICE_TEST(reduce_extremes_of_integers) {
    static const mp_dtype types[] = {MP_I8, MP_U8, MP_I32, MP_I64, MP_U32, MP_U64};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        const mp_dtype type = types[t];
        const int bits = (int)mp_dtype_size(type) * 8;
        const uint64_t top = (uint64_t)1 << (bits - 1); /* lowest, or half of the range */
        const int64_t ends[] = {op_wrapped(type, (int64_t)top),
                                op_wrapped(type, (int64_t)(top - 1))};
        const mp_shape shape = {.rank = 2, .dim = {2, 3}};
        void *x = op_memory(type, 6);
        for (int64_t i = 0; i < 6; i++) {
            op_store_whole(type, x, i, ends[i / 3]);
        }
        for (int k = 2; k <= 3; k++) {
            op_case c;
            run_reduce(device, &reductions[k], type, x, &shape, 2, false, &c);
            CHECK_EQ_INT(op_whole(type, c.out[0].data, 0), ends[0]);
            CHECK_EQ_INT(op_whole(type, c.out[0].data, 1), ends[1]);
            op_close(device, &c);
        }
        free(x);
    }
}

DEVICE_TEST(reduce_passes_nan_and_infinities_on) {
    const float x[] = {1, NAN, 2, INFINITY, 3, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    const mp_shape shape = {.rank = 2, .dim = {3, 3}};
    const struct {
        int k;
        double want[3];
    } forms[] = {{0, {(double)NAN, (double)NAN, -(double)INFINITY}},
                 {2, {(double)NAN, (double)INFINITY, -(double)INFINITY}},
                 {3, {(double)NAN, -(double)INFINITY, -(double)INFINITY}},
                 {9, {(double)NAN, (double)INFINITY, -(double)INFINITY}}};
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        op_case c;
        run_reduce(device, &reductions[forms[f].k], MP_F32, x, &shape, 2, false, &c);
        for (int64_t o = 0; o < 3; o++) {
            op_check_close(op_real(MP_F32, c.out[0].data, o), forms[f].want[o], 0, c.name, o);
        }
        op_close(device, &c);
    }
}

/* Without axes all are meant, unless noop_with_empty_axes says none; old versions have an
 * attribute. */
DEVICE_TEST(reduce_without_axes) {
    const float x[] = {1, 2, 3, 4};
    const mp_attr none[] = {OP_INT("noop_with_empty_axes", 1)};
    const mp_attr old[] = {OP_INTS("axes", -1), OP_INT("keepdims", 0)};
    op_case all = {
        .name = "ReduceSum", .version = 13, .in = {op_f32(x, 2, 2)}, .in_count = 1, .out_count = 1};
    op_run(device, &all);
    CHECK_EQ_INT(all.out[0].shape.rank, 2);
    CHECK(*(const float *)all.out[0].data == 10.0f);
    op_close(device, &all);
    all.attrs = none;
    all.attr_count = 1;
    op_run(device, &all);
    CHECK(op_same(&all.out[0], x));
    op_close(device, &all);
    all.version = 11;
    all.attrs = old;
    all.attr_count = 2;
    op_run(device, &all);
    CHECK_EQ_INT(all.out[0].shape.rank, 1);
    CHECK(((const float *)all.out[0].data)[0] == 3.0f);
    CHECK(((const float *)all.out[0].data)[1] == 7.0f);
    op_close(device, &all);
}

/* Over dimensions of 1 most are what they are given, whose place an island gives them. */
DEVICE_TEST(reduce_of_single_elements_is_a_copy) {
    const float x[] = {-1, NAN, 3};
    const mp_attr last[] = {OP_INTS("axes", -1, 0)};
    for (size_t k = 0; k < MP_COUNT_OF(reductions); k++) {
        const char *name = reductions[k].name;
        const bool same = strcmp(name, "ReduceSum") == 0 || strcmp(name, "ReduceMean") == 0 ||
                          strcmp(name, "ReduceMax") == 0 || strcmp(name, "ReduceMin") == 0 ||
                          strcmp(name, "ReduceProd") == 0;
        op_case c = {.name = name,
                     .version = 11,
                     .in = {op_f32(x, 1, 3, 1)},
                     .in_count = 1,
                     .out_count = 1,
                     .attrs = last,
                     .attr_count = 1};
        mp_plan *plan = NULL;
        size_t offset = 1;
        CHECK_OK(op_plan(device, &c, &plan));
        CHECK_EQ_INT(mp_plan_is_copy(plan, &offset), same);
        CHECK(!same || offset == 0);
        mp_plan_release(plan);
        op_run(device, &c);
        CHECK(!same || op_same(&c.out[0], x));
        op_close(device, &c);
    }
}

DEVICE_TEST(reduce_global_pools) {
    float x[2 * 3 * 4];
    for (int i = 0; i < 24; i++) {
        x[i] = (float)(i * i % 11);
    }
    for (int max = 0; max < 2; max++) {
        op_case c = {.name = max != 0 ? "GlobalMaxPool" : "GlobalAveragePool",
                     .version = 1,
                     .in = {op_f32(x, 1, 2, 3, 4)},
                     .in_count = 1,
                     .out_count = 1};
        op_run(device, &c);
        CHECK_EQ_INT(c.out[0].shape.rank, 4);
        for (int64_t channel = 0; channel < 2; channel++) {
            double want = 0;
            for (int64_t i = 0; i < 12; i++) {
                const double value = (double)x[channel * 12 + i];
                want = max != 0 ? fmax(want, value) : want + value / 12;
            }
            op_check_close(op_real(MP_F32, c.out[0].data, channel), want, 1e-6, c.name, channel);
        }
        op_close(device, &c);
    }
}

DEVICE_TEST(reduce_refuses_axes_that_are_not_there) {
    const float x[4] = {0};
    const int64_t far[] = {2};
    const int64_t twice[] = {0, -2};
    mp_plan *plan = NULL;
    op_case c = {.name = "ReduceMax",
                 .version = 18,
                 .in = {op_f32(x, 2, 2), op_i64(far, 1)},
                 .in_count = 2,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "axes 2 is outside");
    c.in[1] = op_i64(twice, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "names axis 0 twice");
}
