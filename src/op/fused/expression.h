/* expression.h - what is computed for each element, as terms.
 *
 *     x0=f32 x1=f16 n0=f32:3fc00000 t0=cast.f16.f32(x1) t1=mul.f32(x0,n0) t2=add.f32(t1,t0) -> t2
 *
 * Registers are inputs (x), which are tensors, numbers (n), which are scalars of the model, and
 * terms (t). A number is written by its bits. Each register has the type of the tensor that it
 * stands for; float16 and bfloat16 are kept as float, and rounded where they are cast or stored.
 *
 * An expression with reductions is computed row by row. A row is the last `row_dims` dimensions of
 * what it is computed over, and a term of each row is known before those that read it are computed:
 *
 *     row=1 x0=f16 t0=rowmean(x0) t1=sub(x0,t0) t2=mul(t1,t1) t3=rowsum(t2) -> t1 t3:flat
 *
 * Registers are then of elements or of rows (mp_expression_is_row): what a reduction gives, inputs
 * that are repeated along rows (:row), numbers, and terms of nothing else. Of the shape of rows,
 * inputs and outputs have dimensions of 1 where a row's are, or (:flat) lack those. Sums are kept
 * in float, those of doubles in double.
 *
 * Of an expression without reductions the one output may have rows that lie apart (:apart).
 *
 * Operators add to an expression what they compute (mp_op.express, .express_rows); whoever groups
 * them writes it as text, which is the attribute of the operator that runs it (fused.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_EXPRESSION_H
#define MP_OP_EXPRESSION_H

#include "kernel/fused/fused_args.h"
#include "op/core/op.h"
#include "op/fused/function.h"

enum {
    MP_TERMS_MAX = 240,
    MP_LIVE_MAX = 24, /* registers that are needed at one time */
    MP_REDUCTIONS_MAX = 8,
    MP_ROW_ELEMENTS_MAX = 1 << 30, /* of all rows together */
    MP_NO_REGISTER = -1,
    /* Where the numbers of registers begin. */
    MP_FIRST_INPUT = 0,
    MP_FIRST_NUMBER = 16,
    MP_FIRST_TERM = 32,
    MP_REGISTERS_MAX = MP_FIRST_TERM + MP_TERMS_MAX,
    MP_SLOTS_MAX = MP_LIVE_MAX + K_FUSED_NUMBERS + 1,
};

typedef enum mp_term_kind {
    MP_TERM_FUNCTION,
    MP_TERM_CAST,
    MP_TERM_WHERE,
    MP_TERM_REDUCTION, /* of the elements of a row */
} mp_term_kind;

/* In maxima and minima NaN wins. */
typedef enum mp_reduction {
    MP_ROW_SUM,
    MP_ROW_MEAN,
    MP_ROW_MAX,
    MP_ROW_MIN,
    MP_ROW_PRODUCT,
    MP_REDUCTION_END,
} mp_reduction;

typedef struct mp_term {
    mp_term_kind kind;
    mp_dtype type; /* of the result */
    mp_dtype from; /* of the operands; of a function the type that it is computed in */
    const mp_function *function;
    mp_reduction reduction;
    bool is_row;  /* one value for each row */
    int16_t x[3]; /* registers */
    float a, b;
} mp_term;

typedef struct mp_number {
    mp_dtype type; /* a float of 32 bits or less */
    float value;
} mp_number;

typedef struct mp_expression {
    int input_count, number_count, term_count, output_count;
    mp_dtype inputs[K_FUSED_IN];
    mp_number numbers[K_FUSED_NUMBERS];
    int16_t outputs[K_FUSED_OUT]; /* registers: terms */
    int row_dims;                 /* dimensions of a row; 0: there are no reductions */
    bool is_long;  /* rows are longer than lanes keep; no matter to what is computed */
    bool is_apart; /* the one output is the last view of the walk; no matter either */
    uint32_t row_inputs, flat_inputs, flat_outputs; /* bits: :row or :flat; :flat; :flat */
    mp_term terms[MP_TERMS_MAX];
} mp_expression;

/* ---- building; each gives a register, or MP_NO_REGISTER where there is no room for it, or a
 * register is not of a type that it must be ---- */

int mp_expression_input(mp_expression *e, mp_dtype type);
int mp_expression_number(mp_expression *e, mp_dtype type, float value);
/* `y` is MP_NO_REGISTER for functions of one operand. */
int mp_expression_function(mp_expression *e, const char *word, int x, int y, float a, float b);
int mp_expression_cast(mp_expression *e, int x, mp_dtype type);
/* A float16 or bfloat16 as it would be stored, as a cast to its own type; others as they are. */
int mp_expression_round(mp_expression *e, int x);
int mp_expression_where(mp_expression *e, int condition, int x, int y);
bool mp_expression_output(mp_expression *e, int reg);

/* Of an expression that has rows. `flat`: the input lacks the dimensions of a row. */
int mp_expression_row_input(mp_expression *e, mp_dtype type, bool flat);
/* `x` is a float of each element. */
int mp_expression_reduction(mp_expression *e, mp_reduction reduction, int x);

mp_dtype mp_expression_type(const mp_expression *e, int reg);
bool mp_expression_is_row(const mp_expression *e, int reg);

const char *mp_reduction_word(mp_reduction reduction); /* "rowsum"; static storage */

/* The last term that reads each register, by register: term_count for outputs, -1 for none. */
void mp_expression_lives(const mp_expression *e, int16_t last[MP_REGISTERS_MAX]);
/* The most registers of terms and inputs that are needed at one time. */
int mp_expression_live(const mp_expression *e);
/* A place for each register, by register, where nothing else is that is still needed: numbers and
 * what is of rows have theirs for good, and a term's is none of its operands'. */
void mp_expression_slots(const mp_expression *e, int16_t slots[MP_REGISTERS_MAX]);

/* ---- how inputs are read ---- */

typedef enum mp_reading {
    MP_READ_WHOLE, /* an element for each of the output */
    MP_READ_ONE,   /* one element for all */
    MP_READ_VIEW,  /* repeated along some dimensions: the next view of the walk */
    /* Where there are rows: */
    MP_READ_COLUMN, /* an element for each of a row, the same for all rows */
    MP_READ_ROW,    /* an element for each row */
    MP_READ_ROWS,   /* rows, of which each is that of several: the next view of the walk */
    MP_READING_END,
} mp_reading;

static inline char mp_reading_letter(mp_reading reading) {
    return "w1vcrs"[reading];
}

static inline bool mp_reading_is_view(mp_reading reading) {
    return reading == MP_READ_VIEW || reading == MP_READ_ROWS;
}

/* How input `i`, of shape `in`, is read where the expression is computed over `shape`. */
mp_reading mp_expression_reading(const mp_expression *e, int i, const mp_shape *in,
                                 const mp_shape *shape);

/* ---- as text ---- */

/* Gives: `*out`, until free. Fails: OUT_OF_MEMORY (host). */
mp_status mp_expression_write(const mp_expression *e, char **out);
/* Fails: INVALID_ARGUMENT, saying where. */
mp_status mp_expression_read(const char *text, mp_expression *out);

/* ---- what operators say ---- */

/* Of one node. */
struct mp_expresser {
    const mp_node *node;
    const mp_tensor *in; /* types and shapes; `data` in host memory where it is known */
    int in_count;
    mp_expression *to;
    /* The register of input i, which is an input of the kernel only if it is asked for. */
    int (*input)(mp_expresser *self, int i);
    int dropped_dims; /* set by `express_rows`: of a row, which the output of a reduction lacks */
};

/* Both give the register of output 0, or MP_NO_REGISTER where this node is not one of
 * such, or there is no room left. The shape of the output is what those of the inputs that were
 * asked for give; where the register is of rows, without the extent of a row. */

/* Says that the node reduces the last `dims` dimensions of its input, or reads such rows, and
 * whether it may. */
bool mp_express_rows(const mp_expresser *e, int dims);

/* Zero, in the type of float that register `reg` has. */
int mp_expression_zero(mp_expression *e, int reg);

/* The one element of input i, where that is known and a float of 32 bits or less. */
bool mp_express_known(const mp_expresser *e, int i, float *out);

#endif
