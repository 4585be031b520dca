/* stand_in.c - see stand_in.h.
 * Kernels: fused/stand_in.cu, fused/row_stand_in.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/stand_in.h"

#include "op/fused/row_pass.h"

#include <assert.h>
#include <string.h>

static_assert((int)K_STAND_IN_SLOTS == (int)MP_SLOTS_MAX, "each register has a place");
static_assert(MP_SLOTS_MAX <= UINT8_MAX, "a place is a byte");
static_assert(offsetof(mp_stand_in_table, terms) == sizeof(k_stand_in_code),
              "the terms lie behind the code");
static_assert(offsetof(mp_row_stand_in_table, rows) == sizeof(k_stand_in_code) &&
                  offsetof(mp_row_stand_in_table, terms) ==
                      sizeof(k_stand_in_code) + sizeof(k_stand_in_rows),
              "what is of rows lies between them");
static_assert((int)K_STAND_IN_SUMS == (int)MP_REDUCTIONS_MAX &&
                  (int)K_STAND_IN_PASSES == (int)MP_REDUCTIONS_MAX + 1,
              "each reduction may be a pass");
static_assert((int)MP_TERMS_MAX <= UINT8_MAX, "the number of a term is a byte");
static_assert((int)K_STAND_IN_FUNCTION == (int)MP_TERM_FUNCTION &&
                  (int)K_STAND_IN_CAST == (int)MP_TERM_CAST &&
                  (int)K_STAND_IN_WHERE == (int)MP_TERM_WHERE &&
                  (int)K_STAND_IN_REDUCTION == (int)MP_TERM_REDUCTION,
              "kinds have one number");
static_assert((int)K_STAND_IN_SUM == (int)MP_ROW_SUM && (int)K_STAND_IN_MEAN == (int)MP_ROW_MEAN &&
                  (int)K_STAND_IN_MAX == (int)MP_ROW_MAX &&
                  (int)K_STAND_IN_MIN == (int)MP_ROW_MIN &&
                  (int)K_STAND_IN_PRODUCT == (int)MP_ROW_PRODUCT,
              "reductions have one number");
static_assert((int)K_STAND_IN_WHOLE == (int)MP_READ_WHOLE &&
                  (int)K_STAND_IN_ONE == (int)MP_READ_ONE &&
                  (int)K_STAND_IN_VIEW == (int)MP_READ_VIEW &&
                  (int)K_STAND_IN_COLUMN == (int)MP_READ_COLUMN &&
                  (int)K_STAND_IN_ROW == (int)MP_READ_ROW &&
                  (int)K_STAND_IN_ROWS == (int)MP_READ_ROWS,
              "readings have one number");
static_assert((int)K_ELEMENT_F32 == MP_F32 && (int)K_ELEMENT_F16 == MP_F16 &&
                  (int)K_ELEMENT_BF16 == MP_BF16 && (int)K_ELEMENT_BOOL == MP_BOOL &&
                  (int)K_ELEMENT_I8 == MP_I8 && (int)K_ELEMENT_I16 == MP_I16 &&
                  (int)K_ELEMENT_I32 == MP_I32 && (int)K_ELEMENT_I64 == MP_I64 &&
                  (int)K_ELEMENT_U8 == MP_U8 && (int)K_ELEMENT_U16 == MP_U16 &&
                  (int)K_ELEMENT_U32 == MP_U32 && (int)K_ELEMENT_U64 == MP_U64,
              "types have ONNX's numbers");

static bool is_computed(mp_dtype type) {
    return (MP_BIT(type) & MP_ALL_TYPES & ~MP_BIT(MP_F64)) != 0;
}

static bool can_compute(const mp_expression *e) {
    bool can = true;
    for (int i = 0; i < e->input_count; i++) {
        can = can && is_computed(e->inputs[i]);
    }
    for (int t = 0; t < e->term_count; t++) {
        can = can && is_computed(e->terms[t].type) && is_computed(e->terms[t].from);
    }
    return can;
}

static void write_term(const mp_term *term, const int16_t *slots, k_stand_in_term *out) {
    *out = (k_stand_in_term){
        .kind = (uint8_t)term->kind,
        .function = (uint8_t)(term->kind == MP_TERM_FUNCTION    ? mp_function_number(term->function)
                              : term->kind == MP_TERM_REDUCTION ? (int)term->reduction
                                                                : 0),
        .type = (uint8_t)term->type,
        .from = (uint8_t)term->from,
        .a = term->a,
        .b = term->b,
    };
    for (size_t k = 0; k < MP_COUNT_OF(term->x); k++) {
        /* What a function has not is read all the same: its first operand, which is there. */
        const int reg = term->x[k] != MP_NO_REGISTER ? term->x[k] : term->x[0];
        out->x[k] = (uint8_t)slots[reg];
    }
}

static void write_code(const mp_expression *e, const mp_reading *readings, const int16_t *slots,
                       k_stand_in_code *out) {
    *out = (k_stand_in_code){.in_count = e->input_count,
                             .number_count = e->number_count,
                             .term_count = e->term_count,
                             .out_count = e->output_count,
                             .is_apart = e->is_apart};
    for (int i = 0; i < e->input_count; i++) {
        out->in_type[i] = (uint8_t)e->inputs[i];
        out->in_slot[i] = (uint8_t)slots[MP_FIRST_INPUT + i];
        out->in_reading[i] = (uint8_t)readings[i];
    }
    for (int i = 0; i < e->number_count; i++) {
        out->number_slot[i] = (uint8_t)slots[MP_FIRST_NUMBER + i];
    }
    for (int i = 0; i < e->output_count; i++) {
        out->out_type[i] = (uint8_t)mp_expression_type(e, e->outputs[i]);
        out->out_slot[i] = (uint8_t)slots[e->outputs[i]];
    }
}

static void write_terms(const mp_expression *e, const int16_t *slots, k_stand_in_term *out) {
    for (int t = 0; t < e->term_count; t++) {
        write_term(&e->terms[t], slots, &out[t]);
        out[t].out = (uint8_t)slots[MP_FIRST_TERM + t];
    }
}

size_t mp_stand_in_write(const mp_expression *e, const mp_reading *readings,
                         mp_stand_in_table *out) {
    int16_t slots[MP_REGISTERS_MAX];
    if (!can_compute(e) || e->row_dims > 0) {
        return 0;
    }
    mp_expression_slots(e, slots);
    memset(out, 0, sizeof *out);
    write_code(e, readings, slots, &out->code);
    write_terms(e, slots, out->terms);
    return sizeof out->code + (size_t)e->term_count * sizeof out->terms[0];
}

/* ---- rows ---- */

/* The passes' order while it is written. */
typedef struct order {
    k_stand_in_rows *rows;
    int count; /* of terms, also of those that there was no room for */
} order;

static void add_to(order *o, int t) {
    if (o->count < K_STAND_IN_ORDER) {
        o->rows->order[o->count] = (uint8_t)t;
    }
    o->count++;
}

static uint16_t end_of(const order *o) {
    return (uint16_t)MP_MIN(o->count, (int)K_STAND_IN_ORDER);
}

/* Of rows, what is known once `pass` passes are over. */
static void add_row_terms(const mp_expression *e, const mp_row_passes *passes, int pass, order *o) {
    for (int t = 0; t < e->term_count; t++) {
        if (mp_row_pass_follows(e, passes, pass, t)) {
            add_to(o, t);
        }
    }
    o->rows->row_end[pass] = end_of(o);
}

static bool add_passes(const mp_expression *e, k_stand_in_rows *rows) {
    mp_row_passes passes;
    bool needed[MP_REGISTERS_MAX];
    order o = {.rows = rows};
    mp_row_passes_find(e, &passes);
    rows->pass_count = passes.count;
    for (int pass = 0; pass < passes.count; pass++) {
        add_row_terms(e, &passes, pass, &o);
        mp_row_pass_needs(e, &passes, pass, NULL, needed);
        for (int t = 0; t < e->term_count; t++) {
            if (needed[MP_FIRST_TERM + t]) {
                add_to(&o, t);
            }
        }
        rows->element_end[pass] = end_of(&o);
    }
    add_row_terms(e, &passes, passes.count, &o);
    return o.count <= K_STAND_IN_ORDER;
}

size_t mp_row_stand_in_write(const mp_expression *e, const mp_reading *readings,
                             mp_row_stand_in_table *out) {
    int16_t slots[MP_REGISTERS_MAX];
    if (!can_compute(e) || e->row_dims == 0) {
        return 0;
    }
    const mp_row_packs packs = mp_fused_row_packs(e, readings);
    mp_expression_slots(e, slots);
    memset(out, 0, sizeof *out);
    write_code(e, readings, slots, &out->code);
    write_terms(e, slots, out->terms);
    out->rows.pack = packs.pack;
    out->rows.packs = packs.packs;
    for (int i = 0; i < e->input_count; i++) {
        out->rows.is_row_in[i] = mp_expression_is_row(e, MP_FIRST_INPUT + i);
    }
    for (int i = 0; i < e->output_count; i++) {
        out->rows.is_row_out[i] = mp_expression_is_row(e, e->outputs[i]);
    }
    return add_passes(e, &out->rows)
               ? sizeof out->code + sizeof out->rows + (size_t)e->term_count * sizeof out->terms[0]
               : 0;
}
