/* fused_rows_test.c - expressions with reductions as one kernel, against loops in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_run.h"
#include "op/op_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 6, TEXT = 1024 };

/* ---- as text ---- */

TEST(fused_rows_come_back_as_they_were) {
    static const char *const texts[] = {
        "row=1 x0=f32 t0=rowsum(x0) t1=div(x0,t0) -> t1",
        "row=2:long x0=f16 x1=f32:row x2=f32:flat n0=f32:3727c5ac t0=rowmean(x0) t1=sub(x0,t0) "
        "t2=mul(t1,t1) t3=rowmax(t2) t4=add(x1,x2) t5=rowmin(t1) t6=rowproduct(t1) -> t1 t3:flat "
        "t4",
    };
    for (size_t i = 0; i < MP_COUNT_OF(texts); i++) {
        mp_expression e;
        char *again = NULL;
        CHECK_OK(mp_expression_read(texts[i], &e));
        CHECK_OK(mp_expression_write(&e, &again));
        CHECK(strcmp(texts[i], again) == 0);
        free(again);
    }
}

TEST(fused_rows_that_are_wrong_say_where) {
    static const char *const wrong[] = {
        "x0=f32 t0=rowsum(x0) -> t0",                       /* there are no rows */
        "row=0 x0=f32 t0=rowsum(x0) -> t0",                 /* nor here */
        "row=99 x0=f32 t0=rowsum(x0) -> t0",                /* more than a tensor has */
        "row= x0=f32 t0=rowsum(x0) -> t0",                  /* no number */
        "row=1x0=f32 t0=rowsum(x0) -> t0",                  /* no space */
        "x0=f32 row=1 t0=rowsum(x0) -> t0",                 /* not at the beginning */
        "row=1 x0=f32 t0=rowsum(x0) t1=rowsum(t0) -> t1",   /* of a row already */
        "row=1 x0=f32:row t0=rowsum(x0) -> t0",             /* and here */
        "row=1 x0=f32 n0=f32:3f800000 t0=rowsum(n0) -> t0", /* and a number */
        "row=1 x0=i32 t0=rowsum(x0) -> t0",                 /* no float */
        "row=1 x0=f32 x1=f32 t0=rowsum(x0,x1) -> t0",       /* one operand */
        "row=1 x0=f32 t0=rowsum(t9) -> t0",                 /* no such term */
        "row=1 x0=f32 t0=rownone(x0) -> t0",                /* no such reduction */
        "x0=f32:row t0=exp(x0) -> t0",                      /* rows without a row */
        "row=1 x0=f32 t0=exp(x0) -> t0:flat",               /* not of rows */
        "x0=f32 t0=exp(x0) -> t0:flat",
        ("row=1 x0=f32 t0=rowsum(x0) t1=rowsum(x0) t2=rowsum(x0) t3=rowsum(x0) t4=rowsum(x0) "
         "t5=rowsum(x0) t6=rowsum(x0) t7=rowsum(x0) t8=rowsum(x0) -> t8"), /* too many */
    };
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        mp_expression e;
        CHECK_FAILS(mp_expression_read(wrong[i], &e), INVALID_ARGUMENT, "expression");
    }
}

/* What is of rows is needed until the end, since rows are gone through again. */
TEST(fused_rows_keep_what_is_of_rows) {
    mp_expression e;
    int16_t slots[MP_REGISTERS_MAX];
    mp_row_passes passes;
    CHECK_OK(mp_expression_read("row=1 x0=f32 x1=f32:row t0=add(x0,x1) t1=rowmax(t0) t2=neg(t1) "
                                "t3=sub(t0,t2) t4=exp(t3) t5=rowsum(t4) t6=div(t4,t5) -> t6",
                                &e));
    mp_expression_slots(&e, slots);
    static const int rows[] = {1, MP_FIRST_TERM + 1, MP_FIRST_TERM + 2, MP_FIRST_TERM + 5};
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        CHECK(mp_expression_is_row(&e, rows[i]));
        for (int reg = 0; reg < MP_FIRST_TERM + e.term_count; reg++) {
            if (reg != rows[i] && mp_expression_type(&e, reg) != MP_NONE) {
                CHECK(slots[reg] != slots[rows[i]]);
            }
        }
    }
    mp_row_passes_find(&e, &passes);
    CHECK_EQ_INT(passes.reducing, 2);
    CHECK_EQ_INT(passes.count, 3);
    CHECK_EQ_INT(passes.level[MP_FIRST_TERM + 6], 2);
}

/* ---- a reference ---- */

static double function_of(const char *word, double x, double y) {
    static const struct {
        const char *word;
        int which;
    } known[] = {{"add", 0},  {"sub", 1}, {"mul", 2}, {"div", 3},  {"exp", 4},  {"log", 5},
                 {"sqrt", 6}, {"abs", 7}, {"neg", 8}, {"relu", 9}, {"max", 10}, {"sigmoid", 11}};
    size_t i = 0;
    while (i < MP_COUNT_OF(known) && strcmp(known[i].word, word) != 0) {
        i++;
    }
    CHECK(i < MP_COUNT_OF(known));
    const double results[] = {x + y,
                              x - y,
                              x * y,
                              x / y,
                              exp(x),
                              log(x),
                              sqrt(x),
                              fabs(x),
                              -x,
                              x < 0 ? 0 : x,
                              isnan(x)   ? x
                              : isnan(y) ? y
                                         : fmax(x, y),
                              1 / (1 + exp(-x))};
    return results[known[i].which];
}

/* Sums are as exact as long double makes them. */
static double reduced(mp_reduction reduction, const double *x, int64_t count) {
    long double sum = 0, product = 1;
    double most = -HUGE_VAL, least = HUGE_VAL;
    bool has_nan = false;
    for (int64_t i = 0; i < count; i++) {
        sum += (long double)x[i];
        product *= (long double)x[i];
        most = x[i] > most ? x[i] : most;
        least = x[i] < least ? x[i] : least;
        has_nan = has_nan || isnan(x[i]);
    }
    const double results[] = {[MP_ROW_SUM] = (double)sum,
                              [MP_ROW_MEAN] = (double)(sum / (long double)count),
                              [MP_ROW_MAX] = has_nan ? (double)NAN : most,
                              [MP_ROW_MIN] = has_nan ? (double)NAN : least,
                              [MP_ROW_PRODUCT] = (double)product};
    return results[reduction];
}

typedef struct world {
    const mp_expression *e;
    mp_shape shape;
    int64_t count, columns;
    double *values[MP_REGISTERS_MAX]; /* one for each element, of rows, too; owned */
} world;

static void compute(world *w, int t) {
    const mp_term *term = &w->e->terms[t];
    double *out = w->values[MP_FIRST_TERM + t];
    const double *x = w->values[term->x[0]];
    const double *y = w->values[term->x[1] != MP_NO_REGISTER ? term->x[1] : term->x[0]];
    for (int64_t i = 0; i < w->count; i++) {
        if (term->kind == MP_TERM_REDUCTION) {
            const int64_t begin = i / w->columns * w->columns;
            out[i] = i > begin ? out[begin] : reduced(term->reduction, x + begin, w->columns);
        } else if (term->kind == MP_TERM_WHERE) {
            out[i] = x[i] != 0 ? y[i] : w->values[term->x[2]][i];
        } else if (term->kind == MP_TERM_CAST) {
            out[i] = term->type == MP_BOOL ? x[i] != 0 : op_rounded(term->type, x[i]);
        } else {
            out[i] = strcmp(term->function->word, "less") == 0
                         ? x[i] < y[i]
                         : function_of(term->function->word, x[i], y[i]);
        }
    }
}

static void make_world(world *w, const op_case *c) {
    for (int reg = 0; reg < MP_FIRST_TERM + w->e->term_count; reg++) {
        if (mp_expression_type(w->e, reg) != MP_NONE) {
            w->values[reg] = calloc((size_t)w->count, sizeof(double));
            CHECK(w->values[reg] != NULL);
        }
    }
    for (int k = 0; k < c->in_count; k++) {
        for (int64_t i = 0; i < w->count; i++) {
            const int64_t at = (w->e->flat_inputs >> k & 1) != 0
                                   ? i / w->columns
                                   : op_place(&w->shape, &c->in[k].shape, i);
            w->values[k][i] = op_real(c->in[k].type, c->in[k].data, at);
        }
    }
    for (int n = 0; n < w->e->number_count; n++) {
        for (int64_t i = 0; i < w->count; i++) {
            w->values[MP_FIRST_NUMBER + n][i] = (double)w->e->numbers[n].value;
        }
    }
    for (int t = 0; t < w->e->term_count; t++) {
        compute(w, t);
    }
}

/* ---- running ---- */

typedef struct rows_case {
    const char *text;   /* "T" stands for the type */
    const char *inputs; /* a letter each: see shape_of */
    double scale;       /* of what may be off, in units of the type's precision */
    int row_dims;
} rows_case;

/* Over [2, 3, columns], or [2, 3, 2, columns / 2] where a row has two dimensions. */
static mp_shape whole_shape(const rows_case *c, int64_t columns) {
    return c->row_dims == 1 ? (mp_shape){3, {2, 3, columns}} : (mp_shape){4, {2, 3, 2, columns}};
}

static mp_shape shape_of(const rows_case *c, char letter, int64_t columns) {
    const bool two = c->row_dims == 2;
    switch (letter) {
    case 'w': /* whole */
        return whole_shape(c, columns);
    case 'c': /* one row for all */
        return two ? (mp_shape){2, {2, columns}} : (mp_shape){1, {columns}};
    case 'r': /* an element for each row */
        return two ? (mp_shape){4, {2, 3, 1, 1}} : (mp_shape){3, {2, 3, 1}};
    case 'f': /* the same, flat */
        return (mp_shape){2, {2, 3}};
    case 'v': /* rows that are repeated */
        return two ? (mp_shape){4, {2, 1, 2, columns}} : (mp_shape){3, {2, 1, columns}};
    case 'u': /* an element for some rows */
        return two ? (mp_shape){3, {3, 1, 1}} : (mp_shape){2, {3, 1}};
    case 'g': /* an element for each group of a row's columns */
        return (mp_shape){3, {3, 2, 1}};
    default:
        return (mp_shape){1, {1}};
    }
}

static void fill_text(const char *from, mp_dtype type, char *to) {
    size_t used = 0;
    for (; *from != '\0' && used + 8 < TEXT; from++) {
        used += *from == 'T' ? (size_t)snprintf(to + used, TEXT - used, "%s", mp_dtype_word(type))
                             : (size_t)snprintf(to + used, TEXT - used, "%c", *from);
    }
}

typedef void spoiler(mp_dtype type, void *data, int64_t count);

static void check_rows(mp_device *device, const rows_case *c, mp_dtype type, int64_t columns,
                       uint32_t skew, spoiler *spoil) {
    char text[TEXT];
    mp_expression e;
    void *data[TENSORS];
    fill_text(c->text, type, text);
    CHECK_OK(mp_expression_read(text, &e));
    const mp_attr expression = OP_TEXT("expression", text);
    op_case run = {.domain = MP_OWN_DOMAIN,
                   .name = "Fused",
                   .version = 1,
                   .attrs = &expression,
                   .attr_count = 1,
                   .skew = skew,
                   .align = skew != 0 ? 1 : 16,
                   .in_count = e.input_count,
                   .out_count = e.output_count};
    for (int i = 0; i < e.input_count; i++) {
        const mp_shape shape = shape_of(c, c->inputs[i], columns);
        data[i] = op_numbers(e.inputs[i], (uint64_t)i + 1, mp_shape_count(&shape));
        if (i == 0 && spoil != NULL) {
            spoil(e.inputs[i], data[i], mp_shape_count(&shape));
        }
        run.in[i] = (op_tensor){e.inputs[i], shape, data[i]};
    }
    world w = {.e = &e, .shape = whole_shape(c, columns)};
    w.count = mp_shape_count(&w.shape);
    w.columns = mp_shape_span(&w.shape, w.shape.rank - e.row_dims, w.shape.rank);
    make_world(&w, &run);
    op_run(device, &run);
    for (int o = 0; o < e.output_count; o++) {
        const bool is_row = mp_expression_is_row(&e, e.outputs[o]);
        const bool is_flat = (e.flat_outputs >> o & 1) != 0;
        const int64_t count = is_row ? w.count / w.columns : w.count;
        CHECK_EQ_INT(mp_shape_count(&run.out[o].shape), count);
        CHECK_EQ_INT(run.out[o].shape.rank, w.shape.rank - (is_flat ? e.row_dims : 0));
        for (int64_t i = 0; i < count; i++) {
            const double want = w.values[e.outputs[o]][is_row ? i * w.columns : i];
            const mp_dtype out = run.out[o].type;
            op_check_close(op_real(out, run.out[o].data, i), op_rounded(out, want),
                           op_precision(out) * c->scale, text, i);
        }
    }
    op_close(device, &run);
    for (int reg = 0; reg < MP_REGISTERS_MAX; reg++) {
        free(w.values[reg]);
    }
    for (int i = 0; i < e.input_count; i++) {
        free(data[i]);
    }
}

static const rows_case cases[] = {
    /* a softmax with a scale and a mask */
    {"row=1 x0=T x1=T n0=f32:3f000000 t0=add(x0,x1) t1=rowmax(t0) t2=sub(t0,t1) t3=exp(t2) "
     "t4=rowsum(t3) t5=div(t3,t4) -> t5",
     "wv", 8, 1},
    /* LayerNormalization with a scale and a bias along rows, and its mean and variance */
    {"row=1 x0=T x1=T x2=T t0=rowmean(x0) t1=sub(x0,t0) t2=mul(t1,t1) t3=rowmean(t2) "
     "t4=add(t3,t3) t5=sqrt(t3) t6=div(t1,t5) t7=mul(t6,x1) t8=add(t7,x2) -> t8 t0 t4:flat",
     "wcc", 64, 1},
    /* rows over their length, behind a residual that is a result, too */
    {"row=1 x0=T x1=T x2=T:row t0=add(x0,x1) t1=mul(t0,t0) t2=rowsum(t1) t3=sqrt(t2) t4=max(t3,x2) "
     "t5=div(t0,t4) -> t0 t5 t2",
     "wwr", 16, 1},
    /* log-sum-exp, less what each row has */
    {"row=1 x0=T x1=T:flat x2=T:row t0=rowmax(x0) t1=sub(x0,t0) t2=exp(t1) t3=rowsum(t2) "
     "t4=log(t3) "
     "t5=add(t4,t0) t6=sub(t5,x1) t7=mul(t5,x2) -> t6:flat t7",
     "wfu", 16, 1},
    /* extremes, and where; an element for all */
    {"row=1 x0=T x1=T t0=rowmin(x0) t1=rowmax(x0) t2=sub(t1,t0) t3=less(x0,x1) t4=sub(x0,t0) "
     "t5=where(t3,t4,t1) t6=rowsum(t5) -> t5 t2 t6",
     "w1", 16, 1},
    /* rows of two dimensions with a scale for each group of columns, as in GroupNorm */
    {"row=2 x0=T x1=T t0=rowmean(x0) t1=sub(x0,t0) t2=mul(t1,t1) t3=rowmean(t2) t4=sqrt(t3) "
     "t5=div(t1,t4) t6=mul(t5,x1) t7=sigmoid(t6) t8=mul(t6,t7) -> t8",
     "wg", 64, 2},
    /* rows of two dimensions with one row for all */
    {"row=2 x0=T x1=T t0=abs(x0) t1=rowsum(t0) t2=div(x0,t1) t3=add(t2,x1) -> t3 t1:flat", "wc", 16,
     2},
    /* a part that is of rows alone, before the first reduction */
    {"row=1 x0=T x1=T:row x2=T:row t0=exp(x1) t1=mul(x0,t0) t2=add(t0,x2) t3=rowmean(t1) "
     "t4=add(t3,t2) t5=sub(t1,t4) -> t4 t5",
     "wr1", 16, 1},
    /* what two later passes read, and terms between that would have its slot */
    {"row=1 x0=T x1=T t0=mul(x0,x1) t1=sigmoid(t0) t2=rowsum(t1) t3=div(t1,t2) t4=abs(t3) "
     "t5=neg(t4) t6=rowmin(t5) t7=add(t1,t6) t8=mul(t7,t3) -> t8 t2",
     "wc", 64, 1},
    /* the same of tests, beside an input that is repeated */
    {"row=1 x0=T x1=T t0=less(x0,x1) t1=where(t0,x0,x1) t2=rowmax(t1) t3=sub(x0,t2) "
     "t4=where(t0,t3,t1) t5=rowmean(t4) t6=sub(t4,t5) t7=where(t0,t6,t4) -> t7",
     "wv", 64, 1},
};

static const int64_t lengths[] = {1, 2, 5, 8, 31, 32, 33, 127, 128, 1024, 1025, 4097};
static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16, MP_F64};

DEVICE_TEST(fused_rows_are_what_loops_give) {
    for (size_t k = 0; k < MP_COUNT_OF(cases); k++) {
        for (size_t n = 0; n < MP_COUNT_OF(lengths); n++) {
            for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
                if (lengths[n] < 1000 || (n + k + t) % 2 == 0) {
                    check_rows(device, &cases[k], types[t], MP_MAX(lengths[n], 2), 0, NULL);
                }
            }
        }
        check_rows(device, &cases[k], MP_F32, 128, 4, NULL);
        check_rows(device, &cases[k], MP_F16, 256, 2, NULL);
    }
}

/* Elements of a row that the emulated device has at a time. */
static int64_t tile_of(const rows_case *c, mp_dtype type) {
    static mp_row_schedule schedule;
    char text[TEXT];
    mp_expression e;
    mp_reading readings[K_FUSED_IN];
    mp_row_passes passes;
    fill_text(c->text, type, text);
    CHECK_OK(mp_expression_read(text, &e));
    const mp_shape whole = whole_shape(c, 64);
    for (int i = 0; i < e.input_count; i++) {
        const mp_shape shape = shape_of(c, c->inputs[i], 64);
        readings[i] = mp_expression_reading(&e, i, &shape, &whole);
    }
    mp_row_passes_find(&e, &passes);
    mp_row_schedule_make(&e, readings, &passes, MP_KEEP_IN_SLOTS, &schedule);
    return mp__fused_tile(&e, schedule.slot_count);
}

/* Rows that just fit a tile, and that just do not. */
DEVICE_TEST(fused_rows_may_end_with_a_tile) {
    for (size_t k = 0; k < MP_COUNT_OF(cases); k++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            const int64_t tile = tile_of(&cases[k], types[t]) / cases[k].row_dims;
            for (int64_t off = -1; off <= 1 && (k + t) % 2 == 0; off++) {
                check_rows(device, &cases[k], types[t], tile + off, 0, NULL);
                check_rows(device, &cases[k], types[t], tile / 2 + off, 0, NULL);
            }
        }
    }
}

/* Of a row that is longer than lanes keep. */
DEVICE_TEST(fused_rows_may_be_long) {
    for (size_t k = 0; k < MP_COUNT_OF(cases); k++) {
        check_rows(device, &cases[k], MP_F32, 9000, 0, NULL);
        check_rows(device, &cases[k], MP_F16, 16391, 0, NULL);
    }
}

static const rows_case products = {
    "row=1 x0=T x1=T t0=div(x0,x1) t1=rowproduct(t0) t2=add(x0,t1) -> t1 t2", "w1", 64, 1};

static void set_near_one(mp_dtype type, void *data, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        op_store_real(type, data, i, i % 2 == 0 ? -1.25 : 0.8125);
    }
}

DEVICE_TEST(fused_rows_have_products) {
    for (size_t n = 0; n < 8; n++) {
        check_rows(device, &products, MP_F64, MP_MAX(lengths[n], 2), 0, set_near_one);
    }
}

/* NaN in one row, both infinities in others; a row of -inf. */
static void set_odd(mp_dtype type, void *data, int64_t count) {
    const int64_t columns = count / 6;
    op_store_real(type, data, columns / 2, (double)NAN);
    op_store_real(type, data, columns + columns / 3, HUGE_VAL);
    op_store_real(type, data, columns * 2 + columns - 1, -HUGE_VAL);
    for (int64_t i = columns * 4; i < columns * 5; i++) {
        op_store_real(type, data, i, -HUGE_VAL);
    }
}

DEVICE_TEST(fused_rows_keep_nan_and_inf) {
    static const size_t some[] = {0, 1, 3, 4};
    for (size_t k = 0; k < MP_COUNT_OF(some); k++) {
        for (size_t n = 1; n < 10; n++) {
            check_rows(device, &cases[some[k]], MP_F32, lengths[n], 0, set_odd);
            check_rows(device, &cases[some[k]], MP_F64, lengths[n], 0, set_odd);
        }
    }
}

/* ---- what does not fit ---- */

DEVICE_TEST(fused_rows_that_do_not_fit_are_refused) {
    static const mp_shape flat[] = {{2, {4, 5}}, {1, {5}}}, row[] = {{2, {4, 5}}, {2, {1, 5}}};
    static const mp_shape large[] = {{2, {1 << 16, 1 << 16}}};
    op_refuse_fused(device, "row=1 x0=f32 x1=f32:flat t0=rowsum(x0) t1=add(t0,x1) -> t1", flat, 2,
                    MP_INVALID_ARGUMENT, "is none for rows");
    op_refuse_fused(device, "row=1 x0=f32 x1=f32:row t0=rowsum(x0) t1=add(t0,x1) -> t1", row, 2,
                    MP_INVALID_ARGUMENT, "is none for rows");
    op_refuse_fused(device, "row=3 x0=f32 t0=rowsum(x0) -> t0", flat, 1, MP_INVALID_ARGUMENT,
                    "rows of 3 dimensions");
    op_refuse_fused(device, "row=1 x0=f32 t0=rowsum(x0) -> t0", large, 1, MP_UNSUPPORTED,
                    "too many for one kernel");
}
