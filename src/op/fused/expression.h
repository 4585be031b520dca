/* expression.h - what is computed for each element, as terms.
 *
 *     x0=f32 x1=f16 n0=f32:3fc00000 t0=cast.f16.f32(x1) t1=mul.f32(x0,n0) t2=add.f32(t1,t0) -> t2
 *
 * Registers are inputs (x), which are tensors, numbers (n), which are scalars of the model, and
 * terms (t). A number is written by its bits. Each register has the type of the tensor that it
 * stands for; float16 and bfloat16 are kept as float, and rounded where they are cast or stored.
 *
 * Operators add to an expression what they compute (mp_op.express); whoever groups them writes it
 * as text, which is the attribute of the operator that runs it (fused.c).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_EXPRESSION_H
#define MP_OP_EXPRESSION_H

#include "kernel/fused/fused_args.h"
#include "op/core/op.h"
#include "op/fused/function.h"

enum {
    MP_TERMS_MAX = 240,
    MP_LIVE_MAX = 24, /* registers that are needed at one time */
    MP_NO_REGISTER = -1,
    /* Where the numbers of registers begin. */
    MP_FIRST_INPUT = 0,
    MP_FIRST_NUMBER = 16,
    MP_FIRST_TERM = 32,
    MP_REGISTERS_MAX = MP_FIRST_TERM + MP_TERMS_MAX,
    MP_SLOTS_MAX = MP_LIVE_MAX + K_FUSED_NUMBERS + 1,
};

typedef enum mp_term_kind { MP_TERM_FUNCTION, MP_TERM_CAST, MP_TERM_WHERE } mp_term_kind;

typedef struct mp_term {
    mp_term_kind kind;
    mp_dtype type; /* of the result */
    mp_dtype from; /* of the operands; of a function the type that it is computed in */
    const mp_function *function;
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
    mp_term terms[MP_TERMS_MAX];
} mp_expression;

/* ---- building; each gives a register, or MP_NO_REGISTER where there is no room for it, or a
 * register is not of a type that it must be ---- */

int mp_expression_input(mp_expression *e, mp_dtype type);
int mp_expression_number(mp_expression *e, mp_dtype type, float value);
/* `y` is MP_NO_REGISTER for functions of one operand. */
int mp_expression_function(mp_expression *e, const char *word, int x, int y, float a, float b);
int mp_expression_cast(mp_expression *e, int x, mp_dtype type);
int mp_expression_where(mp_expression *e, int condition, int x, int y);
bool mp_expression_output(mp_expression *e, int reg);

mp_dtype mp_expression_type(const mp_expression *e, int reg);

/* The last term that reads each register, by register: term_count for outputs, -1 for none. */
void mp_expression_lives(const mp_expression *e, int16_t last[MP_REGISTERS_MAX]);
/* The most registers of terms and inputs that are needed at one time. */
int mp_expression_live(const mp_expression *e);
/* A place for each register, by register, where nothing else is that is still needed: numbers have
 * theirs for good, and a term's is none of its operands'. */
void mp_expression_slots(const mp_expression *e, int16_t slots[MP_REGISTERS_MAX]);

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
};

/* mp_op.express gives the register of output 0, or MP_NO_REGISTER where this node is not one of
 * such, or there is no room left. The shape of the output is what those of the inputs that were
 * asked for give. */

/* The one element of input i, where that is known and a float of 32 bits or less. */
bool mp_express_known(const mp_expresser *e, int i, float *out);

#endif
