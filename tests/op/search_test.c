/* search_test.c - ArgMax, ArgMin, TopK and running sums against plain loops over each row.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

typedef struct rows {
    int64_t outer, columns, inner;
} rows;

static int64_t row_count(rows r) {
    return r.outer * r.inner;
}

static int64_t place(rows r, int64_t row, int64_t c) {
    return (row / r.inner * r.columns + c) * r.inner + row % r.inner;
}

/* Few different numbers, so that many are equal. */
static void *numbers(mp_dtype type, uint64_t seed, int64_t count) {
    void *data = op_memory(type, count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t value = (int64_t)((double)op_value(seed, i) * 8);
        if (op_is_float(type)) {
            op_store_real(type, data, i, (double)value / 4);
        } else {
            op_store_whole(type, data, i, op_is_signed(type) ? value : value + 16);
        }
    }
    return data;
}

/* Whether a comes before b when the largest come first. */
static bool before(mp_dtype type, const void *x, int64_t a, int64_t b, bool largest) {
    const double left = op_real(type, x, a), right = op_real(type, x, b);
    if (isnan(left) || isnan(right)) {
        return largest ? isnan(left) && !isnan(right) : isnan(right) && !isnan(left);
    }
    return largest ? left > right : left < right;
}

/* ---- ArgMax and ArgMin ---- */

static void check_arg(mp_device *device, mp_dtype type, rows r, bool largest, bool last) {
    void *x = numbers(type, 5, row_count(r) * r.columns);
    const mp_attr attrs[] = {OP_INT("axis", 1), OP_INT("select_last_index", last)};
    op_case c = {.name = largest ? "ArgMax" : "ArgMin",
                 .version = 13,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {OP_TENSOR(type, x, r.outer, r.columns, r.inner)},
                 .in_count = 1,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t row = 0; row < row_count(r); row++) {
        int64_t best = 0;
        for (int64_t i = 1; i < r.columns; i++) {
            const int64_t here = place(r, row, i), there = place(r, row, best);
            const bool wins = before(type, x, here, there, largest) ||
                              (last && !before(type, x, there, here, largest));
            best = wins ? i : best;
        }
        CHECK_EQ_INT(((const int64_t *)c.out[0].data)[row], best);
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(arg_of_every_type) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        if ((op_types_of("ArgMax", 13) & MP_BIT(op_types[t])) == 0) {
            continue;
        }
        for (int how = 0; how < 4; how++) {
            check_arg(device, op_types[t], (rows){3, 70, 1}, how < 2, how % 2 != 0);
            check_arg(device, op_types[t], (rows){2, 9, 3}, how < 2, how % 2 != 0);
        }
    }
}

DEVICE_TEST(arg_in_each_way_of_sharing) {
    for (int how = 0; how < 4; how++) {
        check_arg(device, MP_F32, (rows){2, 40000, 1}, how < 2, how % 2 != 0);
        check_arg(device, MP_I8, (rows){1, 33000, 2}, how < 2, how % 2 != 0);
        check_arg(device, MP_F32, (rows){50, 3, 1}, how < 2, how % 2 != 0);
        check_arg(device, MP_F16, (rows){3, 1, 2}, how < 2, how % 2 != 0);
    }
}

DEVICE_TEST(arg_of_rows_that_begin_anywhere) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_I8, MP_U8, MP_F64, MP_U32};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        for (int how = 0; how < 4; how++) {
            check_arg(device, types[t], (rows){9, 5, 1}, how < 2, how % 2 != 0);
            check_arg(device, types[t], (rows){7, 131, 1}, how < 2, how % 2 != 0);
            check_arg(device, types[t], (rows){2, 5003, 1}, how < 2, how % 2 != 0);
            check_arg(device, types[t], (rows){1100, 33, 1}, how < 2, how % 2 != 0);
        }
    }
    for (int how = 0; how < 4; how++) {
        static const mp_dtype kinds[] = {MP_F32, MP_F16, MP_I8, MP_F64};
        const int64_t most = 128 / (int64_t)mp_dtype_size(kinds[how]);
        const int64_t many = (int64_t)device->info.multiprocessors * 512;
        for (int64_t columns = 5; columns <= most; columns += 1 + columns / 6) {
            check_arg(device, kinds[how], (rows){many + 1, columns, 1}, how < 2, how % 2 != 0);
            check_arg(device, kinds[3 - how], (rows){many, 16, 1}, how < 2, how % 2 != 0);
        }
    }
}

/* ONNX Runtime's CPU provider starts from the first element and takes what compares as better. */
DEVICE_TEST(arg_passes_over_nan_unless_it_is_first) {
    const float x[] = {1, NAN, 3, 2, NAN, 1, 3, 2, NAN, NAN, NAN, NAN};
    const int64_t largest[] = {2, 0, 0}, smallest[] = {0, 0, 0};
    const mp_attr attrs[] = {OP_INT("axis", 1)};
    enum { MANY = 24000, ROWS = 3, COLUMNS = 5 }; /* rows that may be a lane's each */
    static float wide[MANY * ROWS][COLUMNS];
    for (int i = 0; i < MANY * ROWS; i++) {
        memcpy(wide[i], x + i % ROWS * (COLUMNS - 1), (COLUMNS - 1) * sizeof x[0]);
        wide[i][COLUMNS - 1] = NAN;
    }
    for (int which = 0; which < 2; which++) {
        op_case many = {.name = which == 0 ? "ArgMax" : "ArgMin",
                        .version = 13,
                        .attrs = attrs,
                        .attr_count = 1,
                        .in = {op_f32(wide[0], MANY * ROWS, COLUMNS)},
                        .in_count = 1,
                        .out_count = 1};
        op_run(device, &many);
        for (int i = 0; i < MANY * ROWS; i++) {
            const int64_t want = which == 0 ? largest[i % ROWS] : smallest[i % ROWS];
            CHECK_EQ_INT(((const int64_t *)many.out[0].data)[i], want);
        }
        op_close(device, &many);
        op_case c = {.name = which == 0 ? "ArgMax" : "ArgMin",
                     .version = 13,
                     .attrs = attrs,
                     .attr_count = 1,
                     .in = {op_f32(x, 3, 4)},
                     .in_count = 1,
                     .out_count = 1};
        op_run(device, &c);
        CHECK(op_same(&c.out[0], which == 0 ? largest : smallest));
        op_close(device, &c);
    }
}

DEVICE_TEST(arg_refuses_an_empty_axis) {
    mp_plan *plan = NULL;
    const op_case c = {
        .name = "ArgMax", .version = 13, .in = {op_f32("", 0, 3)}, .in_count = 1, .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "axis 0 of the shape 0x3 is empty");
}

/* ---- TopK ---- */

typedef struct topk {
    mp_dtype type;
    rows r;
    int64_t k;
    bool largest, sorted;
    int32_t align;
} topk;

static void run_topk(mp_device *device, const topk *t, const void *x, op_case *c) {
    const mp_attr attrs[] = {OP_INT("axis", 1), OP_INT("largest", t->largest),
                             OP_INT("sorted", t->sorted)};
    *c = (op_case){
        .name = "TopK",
        .version = 11,
        .attrs = attrs,
        .attr_count = 3,
        .align = t->align,
        .skew = t->align == 1 ? sizeof(int64_t) : 0, /* the indices' size */
        .in = {OP_TENSOR(t->type, x, t->r.outer, t->r.columns, t->r.inner), op_i64(&t->k, 1)},
        .in_count = 2,
        .out_count = 2};
    op_run(device, c);
    c->attrs = NULL;
}

/* The k indices in order, by selecting again and again. */
static void expected_topk(const topk *t, const void *x, int64_t row, bool *taken, int64_t *out) {
    memset(taken, 0, (size_t)t->r.columns);
    for (int64_t n = 0; n < t->k; n++) {
        int64_t best = -1;
        for (int64_t i = 0; i < t->r.columns; i++) {
            if (!taken[i] && (best < 0 || before(t->type, x, place(t->r, row, i),
                                                 place(t->r, row, best), t->largest))) {
                best = i;
            }
        }
        taken[best] = true;
        out[n] = best;
    }
}

static int by_number(const void *a, const void *b) {
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void check_topk_of(mp_device *device, const topk *t, const void *x) {
    op_case c;
    bool *taken = calloc((size_t)t->r.columns, 1);
    int64_t *want = calloc((size_t)t->k + 1, sizeof *want);
    const rows out = {t->r.outer, t->k, t->r.inner};
    run_topk(device, t, x, &c);
    for (int64_t row = 0; row < row_count(t->r); row++) {
        expected_topk(t, x, row, taken, want);
        const bool in_row_order = !t->sorted && t->r.columns > 4096 && t->k > 256;
        if (in_row_order) {
            qsort(want, (size_t)t->k, sizeof *want, by_number);
        }
        for (int64_t n = 0; n < t->k; n++) {
            const int64_t at = place(out, row, n);
            CHECK_EQ_INT(((const int64_t *)c.out[1].data)[at], want[n]);
            const size_t size = mp_dtype_size(t->type);
            CHECK(memcmp((const char *)c.out[0].data + (size_t)at * size,
                         (const char *)x + (size_t)place(t->r, row, want[n]) * size, size) == 0);
        }
    }
    op_close(device, &c);
    free(taken);
    free(want);
}

static void check_topk(mp_device *device, topk t) {
    void *x = numbers(t.type, 9, row_count(t.r) * t.r.columns);
    check_topk_of(device, &t, x);
    free(x);
}

DEVICE_TEST(topk_of_every_type) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        if ((op_types_of("TopK", 24) & MP_BIT(op_types[t])) == 0) {
            continue;
        }
        for (int largest = 0; largest < 2; largest++) {
            check_topk(device, (topk){op_types[t], {3, 45, 1}, 7, largest != 0, true, 16});
            check_topk(device, (topk){op_types[t], {2, 6, 3}, 6, largest != 0, true, 1});
            check_topk(device, (topk){op_types[t], {1, 2100, 1}, 4, largest != 0, true, 16});
        }
    }
}

DEVICE_TEST(topk_of_long_rows) {
    for (int largest = 0; largest < 2; largest++) {
        check_topk(device, (topk){MP_F32, {1, 20000, 1}, 5, largest != 0, true, 16});
        check_topk(device, (topk){MP_F32, {2, 2600, 1}, 2100, largest != 0, true, 16});
        check_topk(device, (topk){MP_I32, {2, 2300, 1}, 2300, largest != 0, true, 16});
        check_topk(device, (topk){MP_I64, {1, 2300, 2}, 2300, largest != 0, true, 16});
        check_topk(device, (topk){MP_F16, {2, 3000, 1}, 40, largest != 0, false, 1});
        check_topk(device, (topk){MP_F16, {2, 5000, 1}, 1300, largest != 0, false, 1});
    }
    check_topk(device, (topk){MP_F32, {1, 4200, 1}, 4100, true, true, 16});
}

/* Rows that are sorted whole, and of longer ones what was selected: at the limits of both. */
DEVICE_TEST(topk_sorts_whole_rows) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_I8, MP_F64, MP_U16};
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        const bool largest = t % 2 == 0;
        check_topk(device, (topk){types[t], {3, 1, 1}, 1, largest, true, 1});
        check_topk(device, (topk){types[t], {2, 8, 1}, 8, largest, true, 16});
        check_topk(device, (topk){types[t], {2, 257, 1}, 257, !largest, true, 1});
        check_topk(device, (topk){types[t], {1, 1000, 1}, 999, largest, true, 16});
    }
    check_topk(device, (topk){MP_F32, {1, 4096, 1}, 4096, true, true, 16});
    check_topk(device, (topk){MP_F64, {1, 1025, 1}, 1024, false, true, 16});
    check_topk(device, (topk){MP_F16, {1, 4097, 1}, 4096, false, true, 1});
}

/* The keys that are all ones are those of elements, not of what pads a row. */
DEVICE_TEST(topk_sorts_the_last_keys) {
    enum { COLUMNS = 300 };
    int8_t narrow[COLUMNS];
    int32_t wide[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        narrow[i] = i % 3 == 0 ? INT8_MIN : INT8_MAX;
        wide[i] = i % 3 == 0 ? INT32_MIN : INT32_MAX;
    }
    for (int largest = 0; largest < 2; largest++) {
        const topk bytes = {MP_I8, {1, COLUMNS, 1}, COLUMNS, largest != 0, true, 16};
        const topk words = {MP_I32, {1, COLUMNS, 1}, COLUMNS, largest != 0, true, 16};
        check_topk_of(device, &bytes, narrow);
        check_topk_of(device, &words, wide);
    }
}

DEVICE_TEST(topk_of_many_of_long_rows) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_I8, MP_F64, MP_I64};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        check_topk(device, (topk){types[t], {1, 33001, 1}, 300, t % 2 == 0, true, 16});
        check_topk(device, (topk){types[t], {2, 2501, 1}, 1100, t % 2 != 0, true, 1});
    }
}

DEVICE_TEST(topk_of_few_of_many) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_I8, MP_U8, MP_F64, MP_I64, MP_U32};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const bool largest = t % 2 == 0;
        check_topk(device, (topk){types[t], {3, 301, 1}, 1, largest, true, 1});
        check_topk(device, (topk){types[t], {2, 2051, 1}, 10, !largest, true, 16});
        check_topk(device, (topk){types[t], {1, 30011, 1}, 17, largest, true, 16});
        check_topk(device, (topk){types[t], {1, 4501, 1}, 100, !largest, true, 16});
    }
    check_topk(device, (topk){MP_F32, {1, 9001, 1}, 250, true, true, 16});
    check_topk(device, (topk){MP_I64, {1, 2100, 2}, 200, false, true, 16});
}

/* The limit is a place where all keys are alike, the worst or the best there are. */
DEVICE_TEST(topk_of_few_of_equals) {
    enum { COLUMNS = 3001 };
    const int8_t keys[] = {INT8_MIN, INT8_MAX, 0};
    for (size_t i = 0; i < sizeof keys; i++) {
        for (int largest = 0; largest < 2; largest++) {
            const topk t = {MP_I8, {1, COLUMNS, 1}, 9, largest != 0, true, 16};
            const topk wide = {MP_I32, {1, COLUMNS / 4, 1}, 9, largest != 0, true, 16};
            int8_t x[COLUMNS];
            int32_t y[COLUMNS / 4];
            memset(x, keys[i], sizeof x);
            for (int c = 0; c < COLUMNS / 4; c++) {
                y[c] = keys[i] == 0 ? 0 : keys[i] > 0 ? INT32_MAX : INT32_MIN;
            }
            check_topk_of(device, &t, x);
            check_topk_of(device, &wide, y);
        }
    }
}

DEVICE_TEST(topk_puts_nan_above_all) {
    const float x[] = {1, NAN, INFINITY, -INFINITY, NAN, 0, -0.0f, 3};
    for (int largest = 0; largest < 2; largest++) {
        const topk t = {MP_F32, {1, 8, 1}, 8, largest != 0, true, 16};
        check_topk_of(device, &t, x);
    }
}

DEVICE_TEST(topk_of_few_puts_nan_above_all) {
    const float some[] = {1, NAN, INFINITY, -INFINITY, -NAN, 0, -0.0f, 3};
    float x[2][600];
    for (int i = 0; i < 600; i++) {
        x[0][i] = some[i * 5 % 8];
        x[1][i] = NAN;
    }
    for (int largest = 0; largest < 2; largest++) {
        const topk t = {MP_F32, {2, 600, 1}, 140, largest != 0, true, 16};
        check_topk_of(device, &t, x);
    }
}

DEVICE_TEST(topk_refuses_what_does_not_fit) {
    const float x[6] = {0};
    const int64_t four[] = {4}, two[] = {1, 2};
    mp_plan *plan = NULL;
    op_case c = {.name = "TopK",
                 .version = 11,
                 .in = {op_f32(x, 2, 3), op_i64(four, 1)},
                 .in_count = 2,
                 .out_count = 2};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "k is 4; axis 1 has 3 elements");
    c.in[1] = op_i64(two, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "a list of at most 1");
}

/* ---- CumSum and CumProd ---- */

static void check_scan(mp_device *device, const char *name, int version, mp_dtype type, rows r,
                       int how) {
    const bool product = strcmp(name, "CumProd") == 0;
    const bool exclusive = (how & 1) != 0, reverse = (how & 2) != 0;
    const int64_t axis[] = {1}, count = row_count(r) * r.columns;
    void *x = op_numbers(type, 3, count);
    for (int64_t i = 0; product && i < count; i++) { /* products that stay exact */
        op_store_real(type, x, i, i % 5 == 0 ? 2 : i % 5 == 1 && op_is_float(type) ? 0.5 : 1);
    }
    const mp_attr attrs[] = {OP_INT("exclusive", exclusive), OP_INT("reverse", reverse)};
    op_case c = {.name = name,
                 .version = version,
                 .attrs = attrs,
                 .attr_count = 2,
                 .in = {OP_TENSOR(type, x, r.outer, r.columns, r.inner), op_i64(axis, 1)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t row = 0; row < row_count(r); row++) {
        double sum = product ? 1 : 0, size = 1;
        int64_t whole = product ? 1 : 0;
        for (int64_t i = 0; i < r.columns; i++) {
            const int64_t at = place(r, row, reverse ? r.columns - 1 - i : i);
            const double next = product ? sum * op_real(type, x, at) : sum + op_real(type, x, at);
            const int64_t value = op_is_float(type) ? 0 : op_whole(type, x, at);
            const uint64_t wrapped =
                product ? (uint64_t)whole * (uint64_t)value : (uint64_t)whole + (uint64_t)value;
            size = fmax(size, fabs(next));
            if (op_is_float(type)) {
                op_check_close(op_real(type, c.out[0].data, at) / size,
                               op_rounded(type, exclusive ? sum : next) / size,
                               op_precision(type) + 1e-5, name, at);
            } else {
                CHECK_EQ_INT(op_whole(type, c.out[0].data, at),
                             op_wrapped(type, exclusive ? whole : (int64_t)wrapped));
            }
            sum = next;
            whole = (int64_t)wrapped;
        }
    }
    op_close(device, &c);
    free(x);
}

DEVICE_TEST(scan_of_every_type) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        if ((op_types_of("CumSum", 14) & MP_BIT(op_types[t])) == 0) {
            continue;
        }
        for (int how = 0; how < 4; how++) {
            check_scan(device, "CumSum", 14, op_types[t], (rows){3, 150, 1}, how);
            check_scan(device, "CumSum", 14, op_types[t], (rows){2, 5, 4}, how);
            check_scan(device, "CumProd", 26, op_types[t], (rows){2, 40, 3}, how);
        }
    }
}

DEVICE_TEST(scan_of_long_rows) {
    for (int how = 0; how < 4; how++) {
        check_scan(device, "CumSum", 14, MP_F32, (rows){2, 20001, 1}, how);
        check_scan(device, "CumSum", 14, MP_I32, (rows){1, 17000, 3}, how);
        check_scan(device, "CumProd", 26, MP_I64, (rows){1, 20000, 1}, how);
        check_scan(device, "CumSum", 14, MP_F16, (rows){3, 1032, 1}, how);
        check_scan(device, "CumSum", 14, MP_I64, (rows){2, 16390, 1}, how);
        check_scan(device, "CumSum", 14, MP_F32, (rows){1, 13, 700}, how);
    }
}
