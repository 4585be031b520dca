/* expression.c - builds expressions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/expression.h"

#include "op/core/host_float.h"

#include <assert.h>
#include <string.h>

mp_dtype mp_expression_type(const mp_expression *e, int reg) {
    const int number = reg - MP_FIRST_NUMBER;
    const int term = reg - MP_FIRST_TERM;
    if (term >= 0) {
        return term < MP_MIN(e->term_count, MP_TERMS_MAX) ? e->terms[term].type : MP_NONE;
    }
    if (number >= 0) {
        return number < MP_MIN(e->number_count, K_FUSED_NUMBERS) ? e->numbers[number].type
                                                                 : MP_NONE;
    }
    return reg >= 0 && reg < MP_MIN(e->input_count, K_FUSED_IN) ? e->inputs[reg] : MP_NONE;
}

static bool is_computed(mp_dtype type) {
    return (MP_BIT(type) & MP_ALL_TYPES) != 0;
}

int mp_expression_input(mp_expression *e, mp_dtype type) {
    if (e->input_count == K_FUSED_IN || !is_computed(type)) {
        return MP_NO_REGISTER;
    }
    e->inputs[e->input_count] = type;
    return MP_FIRST_INPUT + e->input_count++;
}

int mp_expression_row_input(mp_expression *e, mp_dtype type, bool flat) {
    const int reg = e->row_dims > 0 ? mp_expression_input(e, type) : MP_NO_REGISTER;
    if (reg != MP_NO_REGISTER) {
        e->row_inputs |= 1u << reg;
        e->flat_inputs |= (uint32_t)flat << reg;
    }
    return reg;
}

int mp_expression_number(mp_expression *e, mp_dtype type, float value) {
    const mp_dtypes kept = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16);
    const uint32_t bits = mp_float_bits(value); /* zeros of both signs are two numbers */
    for (int i = 0; i < e->number_count; i++) {
        if (e->numbers[i].type == type && mp_float_bits(e->numbers[i].value) == bits) {
            return MP_FIRST_NUMBER + i;
        }
    }
    if (e->number_count == K_FUSED_NUMBERS || (MP_BIT(type) & kept) == 0) {
        return MP_NO_REGISTER;
    }
    e->numbers[e->number_count] = (mp_number){.type = type, .value = value};
    return MP_FIRST_NUMBER + e->number_count++;
}

bool mp_expression_is_row(const mp_expression *e, int reg) {
    if (reg >= MP_FIRST_TERM) {
        return e->terms[reg - MP_FIRST_TERM].is_row;
    }
    return reg >= MP_FIRST_NUMBER || (e->row_inputs >> reg & 1) != 0;
}

static int add_term(mp_expression *e, const mp_term *term) {
    if (e->term_count == MP_TERMS_MAX) {
        return MP_NO_REGISTER;
    }
    mp_term *to = &e->terms[e->term_count];
    *to = *term;
    to->is_row = e->row_dims > 0;
    for (size_t k = 0; k < MP_COUNT_OF(to->x) && to->kind != MP_TERM_REDUCTION; k++) {
        to->is_row =
            to->is_row && (to->x[k] == MP_NO_REGISTER || mp_expression_is_row(e, to->x[k]));
    }
    return MP_FIRST_TERM + e->term_count++;
}

int mp_expression_function(mp_expression *e, const char *word, int x, int y, float a, float b) {
    const mp_function *function = mp_function_find(word);
    const mp_dtype type = mp_expression_type(e, x);
    if (function == NULL || type == MP_NONE ||
        (function->arity == 2 && mp_expression_type(e, y) != type) ||
        (function->arity == 1 && y != MP_NO_REGISTER)) {
        return MP_NO_REGISTER;
    }
    const mp_term term = {.kind = MP_TERM_FUNCTION,
                          .type = mp_function_is_test(function) ? MP_BOOL : type,
                          .from = mp_function_type(function, type),
                          .function = function,
                          .x = {(int16_t)x, (int16_t)y, MP_NO_REGISTER},
                          .a = a,
                          .b = b};
    return term.from != MP_NONE ? add_term(e, &term) : MP_NO_REGISTER;
}

int mp_expression_cast(mp_expression *e, int x, mp_dtype type) {
    const mp_dtype from = mp_expression_type(e, x);
    if (!is_computed(type) || from == MP_NONE) {
        return MP_NO_REGISTER;
    }
    const mp_term term = {.kind = MP_TERM_CAST,
                          .type = type,
                          .from = from,
                          .x = {(int16_t)x, MP_NO_REGISTER, MP_NO_REGISTER}};
    return from == type ? x : add_term(e, &term);
}

int mp_expression_round(mp_expression *e, int x) {
    const mp_dtype type = mp_expression_type(e, x);
    if (type != MP_F16 && type != MP_BF16) {
        return x;
    }
    const mp_term term = {.kind = MP_TERM_CAST,
                          .type = type,
                          .from = type,
                          .x = {(int16_t)x, MP_NO_REGISTER, MP_NO_REGISTER}};
    return add_term(e, &term);
}

int mp_expression_where(mp_expression *e, int condition, int x, int y) {
    const mp_dtype type = mp_expression_type(e, x);
    if (mp_expression_type(e, condition) != MP_BOOL || type == MP_NONE ||
        mp_expression_type(e, y) != type) {
        return MP_NO_REGISTER;
    }
    const mp_term term = {.kind = MP_TERM_WHERE,
                          .type = type,
                          .from = type,
                          .x = {(int16_t)condition, (int16_t)x, (int16_t)y}};
    return add_term(e, &term);
}

static int reductions_of(const mp_expression *e) {
    int count = 0;
    for (int t = 0; t < e->term_count; t++) {
        count += e->terms[t].kind == MP_TERM_REDUCTION;
    }
    return count;
}

int mp_expression_reduction(mp_expression *e, mp_reduction reduction, int x) {
    const mp_dtype type = mp_expression_type(e, x);
    if (e->row_dims == 0 || (MP_BIT(type) & MP_FLOATS) == 0 || mp_expression_is_row(e, x) ||
        reductions_of(e) == MP_REDUCTIONS_MAX) {
        return MP_NO_REGISTER;
    }
    const mp_term term = {.kind = MP_TERM_REDUCTION,
                          .type = type,
                          .from = type,
                          .reduction = reduction,
                          .x = {(int16_t)x, MP_NO_REGISTER, MP_NO_REGISTER}};
    return add_term(e, &term);
}

const char *mp_reduction_word(mp_reduction reduction) {
    static const char *const words[] = {
        [MP_ROW_SUM] = "rowsum", [MP_ROW_MEAN] = "rowmean",       [MP_ROW_MAX] = "rowmax",
        [MP_ROW_MIN] = "rowmin", [MP_ROW_PRODUCT] = "rowproduct",
    };
    return words[reduction];
}

bool mp_expression_output(mp_expression *e, int reg) {
    if (e->output_count == K_FUSED_OUT || reg < MP_FIRST_TERM ||
        mp_expression_type(e, reg) == MP_NONE) {
        return false;
    }
    e->outputs[e->output_count++] = (int16_t)reg;
    return true;
}

/* ---- lives ---- */

void mp_expression_lives(const mp_expression *e, int16_t last[MP_REGISTERS_MAX]) {
    for (int i = 0; i < MP_REGISTERS_MAX; i++) {
        last[i] = -1;
    }
    for (int t = 0; t < e->term_count; t++) {
        for (size_t k = 0; k < MP_COUNT_OF(e->terms[t].x); k++) {
            if (e->terms[t].x[k] != MP_NO_REGISTER) {
                last[e->terms[t].x[k]] = (int16_t)t;
            }
        }
    }
    for (int i = 0; i < e->output_count; i++) {
        last[e->outputs[i]] = (int16_t)e->term_count;
    }
}

/* Whether it has a place that nothing else has, before or after: rows are gone through more than
 * once. */
static bool is_for_good(const mp_expression *e, int reg) {
    const bool is_number = reg >= MP_FIRST_NUMBER && reg < MP_FIRST_TERM;
    return is_number || (e->row_dims > 0 && mp_expression_type(e, reg) != MP_NONE &&
                         mp_expression_is_row(e, reg));
}

int mp_expression_live(const mp_expression *e) {
    int16_t last[MP_REGISTERS_MAX];
    int ended[MP_TERMS_MAX + 1] = {0}; /* registers whose last reader is that term */
    int live = e->input_count;
    mp_expression_lives(e, last);
    for (int reg = 0; reg < MP_FIRST_TERM + e->term_count; reg++) {
        const int own = reg - MP_FIRST_TERM;
        if (own >= 0 && is_for_good(e, reg)) {
            live++;
        } else if (!is_for_good(e, reg) && (last[reg] >= 0 || own >= 0)) {
            ended[MP_MAX(last[reg], own)]++;
        }
    }
    int most = live;
    for (int t = 0; t < e->term_count; t++) {
        live += !is_for_good(e, MP_FIRST_TERM + t);
        most = MP_MAX(most, live);
        live -= ended[t];
    }
    return most;
}

/* ---- places ---- */

static int16_t take_slot(bool taken[MP_SLOTS_MAX]) {
    int16_t slot = 0;
    while (taken[slot]) {
        slot++;
        assert(slot < MP_SLOTS_MAX);
    }
    taken[slot] = true;
    return slot;
}

void mp_expression_slots(const mp_expression *e, int16_t slots[MP_REGISTERS_MAX]) {
    int16_t last[MP_REGISTERS_MAX];
    bool taken[MP_SLOTS_MAX] = {false};
    mp_expression_lives(e, last);
    for (int i = 0; i < e->input_count; i++) {
        slots[MP_FIRST_INPUT + i] = take_slot(taken);
    }
    for (int i = 0; i < e->number_count; i++) {
        slots[MP_FIRST_NUMBER + i] = take_slot(taken);
    }
    for (int t = 0; t < e->term_count; t++) {
        if (is_for_good(e, MP_FIRST_TERM + t)) {
            slots[MP_FIRST_TERM + t] = take_slot(taken);
        }
    }
    for (int t = 0; t < e->term_count; t++) {
        if (!is_for_good(e, MP_FIRST_TERM + t)) {
            slots[MP_FIRST_TERM + t] = take_slot(taken);
        }
        for (int reg = 0; reg <= MP_FIRST_TERM + t; reg++) {
            const bool is_over = last[reg] == t || (reg == MP_FIRST_TERM + t && last[reg] < 0);
            if (is_over && !is_for_good(e, reg)) {
                taken[slots[reg]] = false;
            }
        }
    }
}

/* ---- how inputs are read ---- */

/* Of what has the extent of a row. */
static mp_reading reading_of_rows(const mp_expression *e, const mp_shape *in,
                                  const mp_shape *shape) {
    const int first = MP_MAX(in->rank - e->row_dims, 0);
    const int64_t columns = mp_shape_span(shape, shape->rank - e->row_dims, shape->rank);
    return e->row_dims == 0 || mp_shape_span(in, first, in->rank) != columns ? MP_READ_VIEW
           : mp_shape_span(in, 0, first) == 1                                ? MP_READ_COLUMN
                                                                             : MP_READ_ROWS;
}

mp_reading mp_expression_reading(const mp_expression *e, int i, const mp_shape *in,
                                 const mp_shape *shape) {
    const int64_t own = mp_shape_count(in);
    const bool is_row = (e->row_inputs >> i & 1) != 0;
    const bool is_flat = (e->flat_inputs >> i & 1) != 0;
    /* Of one row, a vector is what it is where there are more: the same text serves both. */
    const bool has_rows = e->row_dims > 0 && e->row_dims < shape->rank;
    const bool is_short = has_rows && in->rank <= e->row_dims && !is_flat;
    if (is_row && own == mp_shape_span(shape, 0, shape->rank - e->row_dims) && !is_short) {
        return MP_READ_ROW;
    }
    if (own == mp_shape_count(shape) && !is_row && !is_short) {
        return MP_READ_WHOLE;
    }
    return own == 1 ? MP_READ_ONE : is_row ? MP_READ_VIEW : reading_of_rows(e, in, shape);
}

/* ---- what operators say ---- */

bool mp_express_rows(const mp_expresser *e, int dims) {
    if (dims < 1 || (e->to->row_dims != 0 && e->to->row_dims != dims)) {
        return false;
    }
    e->to->row_dims = dims;
    return true;
}

int mp_expression_zero(mp_expression *e, int reg) {
    const mp_dtype type = mp_expression_type(e, reg);
    return type == MP_F64 ? mp_expression_cast(e, mp_expression_number(e, MP_F32, 0), type)
                          : mp_expression_number(e, type, 0);
}

bool mp_express_known(const mp_expresser *e, int i, float *out) {
    const mp_tensor *in = &e->in[i];
    const mp_dtypes exact = MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16);
    if (in->data == 0 || mp_shape_count(&in->shape) != 1 || (exact & MP_BIT(in->type)) == 0) {
        return false;
    }
    *out = (float)mp_host_float(in, 0);
    return true;
}
