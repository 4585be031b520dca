/* fused_kept_test.c - what the emulated device keeps of rows from one pass for the next.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_lane.h"
#include "op/fused/fused_run.h"
#include "op/op_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 4096 };

/* ---- schedules ---- */

static const char *const texts[] = {
    "row=1 x0=f32 t0=rowmax(x0) t1=sub(x0,t0) t2=exp(t1) t3=rowsum(t2) t4=div(t2,t3) -> t4",
    "row=1 x0=f16 x1=f16 x2=f16:row n0=f32:3f800000 t0=mul(x0,x1) t1=exp(t0) t2=rowsum(t1) "
    "t3=div(t1,t2) t4=abs(t3) t5=neg(t4) t6=rowmin(t5) t7=add(t1,t6) t8=mul(t7,x2) -> t8 t2",
    "row=1 x0=f64 x1=f64 x2=f64 t0=less(x0,x1) t1=where(t0,x0,x2) t2=rowmean(t1) t3=sub(t1,t2) "
    "t4=mul(t3,t3) t5=rowmean(t4) t6=sqrt(t5) t7=div(t3,t6) t8=where(t0,t7,x2) -> t1 t8 t6",
    "row=1 x0=f32 x1=f32 t0=add(x0,x1) t1=rowsum(t0) t2=mul(t0,t1) t3=rowmax(t2) t4=add(t2,t3) "
    "t5=rowmin(t4) t6=sub(t4,t5) t7=rowproduct(t6) t8=mul(t6,t7) t9=add(t8,t0) -> t9 t0",
    "row=1 x0=f32 x1=f32 t0=exp(x0) t1=rowsum(t0) t2=log(t1) -> t2",
};

/* Which register lies where, as a schedule is gone through. */
typedef struct holders {
    int slots[MP_ROW_SLOTS_MAX], kept[MP_ROW_KEPT_MAX], outputs[K_FUSED_OUT];
} holders;

static int *holder_at(holders *h, int place) {
    if (place < MP_LIES_KEPT) {
        CHECK(place >= 0 && place < MP_ROW_SLOTS_MAX);
        return &h->slots[place];
    }
    return place < MP_LIES_INPUT ? &h->kept[place - MP_LIES_KEPT]
                                 : &h->outputs[place - MP_LIES_OUTPUT];
}

static int place_in(const mp_row_plan *plan, int reg) {
    for (int i = 0; i < plan->place_count; i++) {
        if (plan->places[i].reg == reg) {
            return plan->places[i].place;
        }
    }
    return MP_LIES_NONE;
}

static void check_held(holders *h, const mp_row_plan *plan, int reg) {
    const int place = place_in(plan, reg);
    CHECK(place != MP_LIES_NONE);
    if (place < MP_LIES_INPUT || place >= MP_LIES_OUTPUT) {
        CHECK_EQ_INT(*holder_at(h, place), reg);
    }
}

static void hold(holders *h, const mp_row_schedule *s, const mp_expression *e, int reg, int place) {
    for (int other = 0; other < MP_FIRST_TERM + e->term_count; other++) { /* what is for good */
        CHECK(place >= MP_LIES_KEPT || (s->row_slots[other] != place && s->spread[other] != place));
    }
    *holder_at(h, place) = reg;
}

static void follow_pass(holders *h, const mp_row_schedule *s, const mp_expression *e, int pass,
                        const mp_row_passes *passes, int *computed) {
    const mp_row_plan *plan = &s->plans[pass];
    for (int i = 0; i < e->input_count; i++) {
        if ((plan->loads >> i & 1) != 0) {
            hold(h, s, e, i, place_in(plan, i));
        }
    }
    for (int k = 0; k < plan->term_count; k++) {
        const mp_term *term = &e->terms[plan->terms[k]];
        for (size_t x = 0; x < MP_COUNT_OF(term->x); x++) {
            if (term->x[x] != MP_NO_REGISTER) {
                check_held(h, plan, term->x[x]);
            }
        }
        if (term->kind != MP_TERM_REDUCTION) {
            const int reg = MP_FIRST_TERM + plan->terms[k];
            hold(h, s, e, reg, place_in(plan, reg));
            computed[plan->terms[k]]++;
        }
    }
    for (int i = 0; i < e->output_count && pass == passes->reducing; i++) {
        if (!mp_expression_is_row(e, e->outputs[i])) {
            check_held(h, plan, e->outputs[i]);
        }
    }
}

static void follow(const mp_expression *e, const mp_reading *readings, mp_row_keep keep) {
    static mp_row_schedule s;
    mp_row_passes passes;
    holders h;
    int computed[MP_TERMS_MAX] = {0};
    memset(&h, 0xfe, sizeof h); /* nobody */
    mp_row_passes_find(e, &passes);
    mp_row_schedule_make(e, readings, &passes, keep, &s);
    for (int reg = 0; reg < MP_FIRST_TERM + e->term_count; reg++) {
        if (s.spread[reg] != MP_LIES_NONE) {
            h.slots[s.spread[reg]] = reg;
        }
        if (reg < e->input_count && (s.once >> reg & 1) != 0) {
            h.slots[s.once_slots[reg]] = reg;
        }
    }
    for (int pass = 0; pass < passes.count; pass++) {
        follow_pass(&h, &s, e, pass, &passes, computed);
    }
    for (int t = 0; t < e->term_count; t++) {
        CHECK(keep == MP_KEEP_NOTHING || computed[t] <= 1 || s.kept_count == MP_ROW_KEPT_MAX);
    }
}

/* Each reading of each input that may be so. */
static void follow_readings(const mp_expression *e, mp_row_keep keep) {
    static const mp_reading of_elements[] = {MP_READ_WHOLE, MP_READ_ONE, MP_READ_VIEW,
                                             MP_READ_COLUMN, MP_READ_ROWS};
    enum { WAYS = MP_COUNT_OF(of_elements) };
    for (int way = 0; way < WAYS * WAYS * WAYS; way++) {
        const int ways[] = {way % WAYS, way / WAYS % WAYS, way / WAYS / WAYS};
        mp_reading readings[K_FUSED_IN];
        for (int i = 0; i < e->input_count; i++) {
            readings[i] = mp_expression_is_row(e, i) ? MP_READ_ROW : of_elements[ways[i]];
        }
        follow(e, readings, keep);
    }
}

TEST(fused_kept_terms_are_there_when_they_are_read) {
    for (size_t i = 0; i < MP_COUNT_OF(texts); i++) {
        mp_expression e;
        CHECK_OK(mp_expression_read(texts[i], &e));
        for (int keep = 0; keep < MP_KEEP_END; keep++) {
            follow_readings(&e, (mp_row_keep)keep);
        }
    }
}

/* ---- running ---- */

/* sum_k sigmoid^(k)(x y) over its row's sum, where sigmoid^(k) is applied k times: each of them is
 * read in both passes. */
static void write_many(char *text, const char *type, int many) {
    int used = snprintf(text, TEXT, "row=1 x0=%s x1=%s t0=mul(x0,x1) t1=sigmoid(t0)", type, type);
    int t = 2;
    for (int k = 2; k <= many; k++, t++) {
        used += snprintf(text + used, (size_t)(TEXT - used), " t%d=sigmoid(t%d)", t, t - 1);
    }
    for (int round = 0; round < 2; round++) { /* the first sum is reduced, the second divided */
        used += snprintf(text + used, (size_t)(TEXT - used), " t%d=add(t1,t2)", t);
        for (int k = 3; k <= many; k++) {
            t++;
            used += snprintf(text + used, (size_t)(TEXT - used), " t%d=add(t%d,t%d)", t, t - 1, k);
        }
        t++;
        used += round == 0
                    ? snprintf(text + used, (size_t)(TEXT - used), " t%d=rowsum(t%d)", t, t - 1)
                    : snprintf(text + used, (size_t)(TEXT - used), " t%d=div(t%d,t%d)", t, t - 1,
                               t - many);
        t += round == 0;
    }
    (void)snprintf(text + used, (size_t)(TEXT - used), " -> t%d", t);
}

/* As the emulated device enters it, with one lane a block. */
static void enter(const mp_fused_args *args, uint32_t blocks) {
    const struct k_lane before = k_lane;
    for (uint32_t block = 0; block < blocks; block++) {
        k_lane = (struct k_lane){.block = {.x = block},
                                 .block_dim = {1, 1, 1},
                                 .grid_dim = {.x = blocks, .y = 1, .z = 1}};
        mp_fused_program_enter(args);
    }
    k_lane = before;
}

static double many_of(double x, int many) {
    double sum = 0;
    for (int k = 0; k < many; k++) {
        x = 1 / (1 + exp(-x));
        sum += x;
    }
    return sum;
}

/* Shares are multiplied by how many they are, so that bounds are those of numbers near 1. */
static void check_many(const void *x, const void *y, const void *out, mp_dtype type, int64_t rows,
                       int64_t columns, int many) {
    const double scale = (double)columns;
    for (int64_t row = 0; row < rows; row++) {
        long double sum = 0;
        for (int64_t c = 0; c < columns; c++) {
            sum += (long double)many_of(op_real(type, x, row * columns + c) * op_real(type, y, c),
                                        many);
        }
        for (int64_t c = 0; c < columns; c++) {
            const int64_t i = row * columns + c;
            const double of = many_of(op_real(type, x, i) * op_real(type, y, c), many);
            op_check_close(op_real(type, out, i) * scale,
                           op_rounded(type, of / (double)sum) * scale, op_precision(type) * 64,
                           "many", i);
        }
    }
}

/* Over `rows` rows, with one row `y` for all. */
static void run_many(mp_dtype type, int many, int64_t rows, int64_t columns, uint32_t blocks) {
    char text[TEXT];
    mp_expression e;
    mp_fused_program *program = NULL;
    const mp_reading readings[] = {MP_READ_WHOLE, MP_READ_COLUMN};
    const int64_t count = rows * columns;
    write_many(text, mp_dtype_word(type), many);
    CHECK_OK(mp_expression_read(text, &e));
    CHECK_OK(mp_fused_program_make(&e, readings, &program));
    void *x = op_numbers(type, 1, count), *y = op_numbers(type, 2, columns);
    void *out = op_memory(type, count);
    const mp_fused_args args = {.in = {x, y},
                                .out = {out},
                                .program = program,
                                .walk = {.count = count},
                                .rows = rows,
                                .columns = (int32_t)columns};
    enter(&args, blocks);
    check_many(x, y, out, type, rows, columns, many);
    free(out);
    free(y);
    free(x);
    free(program);
}

static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16, MP_F64};

/* Fewer than there is room for, as many, and more. */
TEST(fused_kept_terms_may_be_many) {
    static const int counts[] = {2, 5, MP_ROW_KEPT_MAX - 1, MP_ROW_KEPT_MAX, MP_ROW_KEPT_MAX + 4};
    static const int64_t columns[] = {3, 100, 700, 5000};
    for (size_t k = 0; k < MP_COUNT_OF(counts); k++) {
        for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
            for (size_t n = 0; n < MP_COUNT_OF(columns); n++) {
                run_many(types[t], counts[k], 3, columns[n], 2);
            }
        }
    }
}

/* Most of the lanes have nothing to do. */
TEST(fused_kept_terms_of_fewer_rows_than_lanes) {
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        run_many(types[t], 4, 3, 40, 17);
        run_many(types[t], 4, 1, 9000, 17);
    }
}

/* Rows that have buffers, but for one element more would not. */
TEST(fused_kept_terms_of_rows_that_are_too_long) {
    const int many = MP_ROW_KEPT_MAX;
    const int64_t most = mp__fused_columns_kept(many, sizeof(double));
    for (int off = 0; off < 2; off++) {
        run_many(MP_F64, many, 2, most + off, 1);
        run_many(MP_F16, many - 1, 2, mp__fused_columns_kept(many, sizeof(float)) + off, 1);
    }
}

/* ---- an output where an input is ---- */

/* The first output lies where the first input does, or not: the results are the same. */
static void check_over_input(const char *text, mp_dtype type, int64_t rows, int64_t columns) {
    const mp_reading readings[] = {MP_READ_WHOLE, MP_READ_WHOLE};
    const int64_t count = rows * columns;
    const size_t size = (size_t)count * mp_dtype_size(type);
    mp_expression e;
    mp_fused_program *program = NULL;
    CHECK_OK(mp_expression_read(text, &e));
    CHECK_OK(mp_fused_program_make(&e, readings, &program));
    void *x = op_numbers(type, 1, count), *y = op_numbers(type, 2, count);
    void *first = op_memory(type, count), *second = op_memory(type, count);
    void *other = op_memory(type, count);
    mp_fused_args args = {.in = {x, y},
                          .out = {first, second},
                          .program = program,
                          .walk = {.count = count},
                          .rows = rows,
                          .columns = (int32_t)columns};
    enter(&args, 2);
    args.out[0] = x;
    args.out[1] = other;
    enter(&args, 2);
    CHECK(memcmp(x, first, size) == 0);
    CHECK(memcmp(other, second, size) == 0);
    free(other);
    free(second);
    free(first);
    free(y);
    free(x);
    free(program);
}

TEST(fused_outputs_may_lie_where_inputs_are) {
    static const char *const over[] = {
        "x0=f32 x1=f32 t0=neg(x0) t1=add(t0,x1) t2=mul(t1,x0) -> t0 t2",
        "x0=f32 x1=f32 t0=neg(x0) t1=add(t0,x1) t2=mul(t1,t0) -> t2 t1",
        "x0=f32 x1=f32 t0=less(x0,x1) t1=where(t0,x0,x1) t2=abs(x0) -> t1 t2",
        "row=1 x0=f32 x1=f32 t0=add(x0,x1) t1=rowmax(t0) t2=sub(t0,t1) t3=mul(x0,t2) -> t2 t3",
        "row=1 x0=f32 x1=f32 t0=rowmean(x0) t1=sub(x0,t0) t2=mul(t1,x1) t3=sub(x0,x1) -> t1 t3",
        "row=1 x0=f32 x1=f32 t0=sigmoid(x0) t1=rowsum(t0) t2=div(t0,t1) t3=add(t2,x0) -> t0 t3",
    };
    static const int64_t columns[] = {1, 2, 33, 1000, 9001};
    for (size_t i = 0; i < MP_COUNT_OF(over); i++) {
        for (size_t n = 0; n < MP_COUNT_OF(columns); n++) {
            check_over_input(over[i], MP_F32, 7, columns[n]);
        }
    }
}
