/* stand_in.c - see stand_in.h.
 * Kernel: fused/stand_in.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/stand_in.h"

#include <assert.h>
#include <string.h>

static_assert((int)K_STAND_IN_SLOTS == (int)MP_SLOTS_MAX, "each register has a place");
static_assert(MP_SLOTS_MAX <= UINT8_MAX, "a place is a byte");
static_assert(offsetof(mp_stand_in_table, terms) == sizeof(k_stand_in_code),
              "the terms lie behind the code");
static_assert((int)K_STAND_IN_FUNCTION == (int)MP_TERM_FUNCTION &&
                  (int)K_STAND_IN_CAST == (int)MP_TERM_CAST &&
                  (int)K_STAND_IN_WHERE == (int)MP_TERM_WHERE,
              "kinds have one number");
static_assert((int)K_STAND_IN_WHOLE == (int)MP_READ_WHOLE &&
                  (int)K_STAND_IN_ONE == (int)MP_READ_ONE &&
                  (int)K_STAND_IN_VIEW == (int)MP_READ_VIEW,
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

/* Of rows there is no stand-in: to give their bits it would have to add in the same order, and so
 * be written for each expression, too. They wait for the compiler, as all did before; it is at work
 * on all cores, and what it makes is kept for the next process. */
static bool can_compute(const mp_expression *e) {
    bool can = e->row_dims == 0;
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
        .function =
            (uint8_t)(term->kind == MP_TERM_FUNCTION ? mp_function_number(term->function) : 0),
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

size_t mp_stand_in_write(const mp_expression *e, const mp_reading *readings,
                         mp_stand_in_table *out) {
    int16_t slots[MP_REGISTERS_MAX];
    if (!can_compute(e)) {
        return 0;
    }
    mp_expression_slots(e, slots);
    memset(out, 0, sizeof *out);
    out->code = (k_stand_in_code){.in_count = e->input_count,
                                  .number_count = e->number_count,
                                  .term_count = e->term_count,
                                  .out_count = e->output_count,
                                  .is_apart = e->is_apart};
    for (int i = 0; i < e->input_count; i++) {
        out->code.in_type[i] = (uint8_t)e->inputs[i];
        out->code.in_slot[i] = (uint8_t)slots[MP_FIRST_INPUT + i];
        out->code.in_reading[i] = (uint8_t)readings[i];
    }
    for (int i = 0; i < e->number_count; i++) {
        out->code.number_slot[i] = (uint8_t)slots[MP_FIRST_NUMBER + i];
    }
    for (int t = 0; t < e->term_count; t++) {
        write_term(&e->terms[t], slots, &out->terms[t]);
        out->terms[t].out = (uint8_t)slots[MP_FIRST_TERM + t];
    }
    for (int i = 0; i < e->output_count; i++) {
        out->code.out_type[i] = (uint8_t)mp_expression_type(e, e->outputs[i]);
        out->code.out_slot[i] = (uint8_t)slots[e->outputs[i]];
    }
    return sizeof out->code + (size_t)e->term_count * sizeof out->terms[0];
}
