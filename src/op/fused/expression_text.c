/* expression_text.c - an expression as text, and back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "op/fused/expression.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static void write_register(FILE *to, int reg) {
    if (reg >= MP_FIRST_TERM) {
        (void)fprintf(to, "t%d", reg - MP_FIRST_TERM);
    } else if (reg >= MP_FIRST_NUMBER) {
        (void)fprintf(to, "n%d", reg - MP_FIRST_NUMBER);
    } else {
        (void)fprintf(to, "x%d", reg);
    }
}

static void write_term(FILE *to, const mp_term *term) {
    switch (term->kind) {
    case MP_TERM_FUNCTION:
        (void)fprintf(to, "%s(", term->function->word);
        break;
    case MP_TERM_CAST:
        (void)fprintf(to, "cast.%s(", mp_dtype_word(term->type));
        break;
    case MP_TERM_WHERE:
        (void)fprintf(to, "where(");
        break;
    case MP_TERM_REDUCTION:
        (void)fprintf(to, "%s(", mp_reduction_word(term->reduction));
        break;
    }
    for (size_t k = 0; k < MP_COUNT_OF(term->x) && term->x[k] != MP_NO_REGISTER; k++) {
        (void)fprintf(to, "%s", k > 0 ? "," : "");
        write_register(to, term->x[k]);
    }
    if (term->a != 0 || term->b != 0) { /* by their bits: exact, and the same in every locale */
        (void)fprintf(to, ";%08x;%08x", mp_float_bits(term->a), mp_float_bits(term->b));
    }
    (void)fprintf(to, ") ");
}

static void write_all(FILE *to, const mp_expression *e) {
    if (e->row_dims > 0) {
        (void)fprintf(to, "row=%d%s ", e->row_dims, e->is_long ? ":long" : "");
    }
    for (int i = 0; i < e->input_count; i++) {
        const bool is_row = (e->row_inputs >> i & 1) != 0, is_flat = (e->flat_inputs >> i & 1) != 0;
        (void)fprintf(to, "x%d=%s%s ", i, mp_dtype_word(e->inputs[i]),
                      is_flat  ? ":flat"
                      : is_row ? ":row"
                               : "");
    }
    for (int i = 0; i < e->number_count; i++) {
        (void)fprintf(to, "n%d=%s:%08x ", i, mp_dtype_word(e->numbers[i].type),
                      mp_float_bits(e->numbers[i].value));
    }
    for (int t = 0; t < e->term_count; t++) {
        (void)fprintf(to, "t%d=", t);
        write_term(to, &e->terms[t]);
    }
    (void)fprintf(to, "->");
    for (int i = 0; i < e->output_count; i++) {
        (void)fprintf(to, " ");
        write_register(to, e->outputs[i]);
        (void)fprintf(to, "%s", (e->flat_outputs >> i & 1) != 0 ? ":flat" : "");
    }
    if (e->is_apart) {
        (void)fprintf(to, ":apart");
    }
}

mp_status mp_expression_write(const mp_expression *e, char **out) {
    size_t size = 0;
    char *text = NULL;
    FILE *to = open_memstream(&text, &size);
    if (to != NULL) {
        write_all(to, e);
    }
    if (to == NULL || fclose(to) != 0 || text == NULL) {
        free(text);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the text of an expression");
    }
    *out = text;
    return MP_OK;
}

/* ---- reading ---- */

enum { WORD_MAX = 32, OPERANDS_MAX = 3 };

typedef struct reader {
    const char *at;
    mp_expression *to;
} reader;

static mp_status complain(const reader *from, const char *what) {
    return MP_FAIL(INVALID_ARGUMENT, "the expression is wrong at '%.40s': %s", from->at, what);
}

static bool take(reader *from, char letter) {
    const bool there = *from->at == letter;
    from->at += there;
    return there;
}

/* Letters, digits and underscores. */
static bool take_word(reader *from, char word[WORD_MAX]) {
    const size_t length = strspn(from->at, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (length == 0 || length >= WORD_MAX) {
        return false;
    }
    memcpy(word, from->at, length);
    word[length] = '\0';
    from->at += length;
    return true;
}

static mp_dtype take_type(reader *from) {
    char word[WORD_MAX];
    if (!take_word(from, word)) {
        return MP_NONE;
    }
#define X(name, word_, size, onnx, text) \
    if (strcmp(word, #word_) == 0) {     \
        return MP_##name;                \
    }
    MP_DTYPE_LIST(X)
#undef X
    return MP_NONE;
}

static bool take_float(reader *from, float *out) {
    char *end = NULL;
    *out = mp_float_of((uint32_t)strtoul(from->at, &end, 16));
    const bool there = end != from->at;
    from->at = end;
    return there;
}

/* "x3"; whether it exists is checked where it is used. */
static int take_register(reader *from) {
    static const struct {
        char letter;
        int first, count;
    } kinds[] = {{'x', MP_FIRST_INPUT, K_FUSED_IN},
                 {'n', MP_FIRST_NUMBER, K_FUSED_NUMBERS},
                 {'t', MP_FIRST_TERM, MP_TERMS_MAX}};
    for (size_t i = 0; i < MP_COUNT_OF(kinds); i++) {
        if (take(from, kinds[i].letter)) {
            char *end = NULL;
            const long number = strtol(from->at, &end, 10);
            const bool good = end != from->at && number >= 0 && number < kinds[i].count;
            from->at = end;
            return good ? kinds[i].first + (int)number : MP_NO_REGISTER;
        }
    }
    return MP_NO_REGISTER;
}

typedef struct call {
    char word[WORD_MAX];
    mp_dtype type; /* of a cast */
    int count, x[OPERANDS_MAX];
    float a, b;
} call;

static mp_status take_call(reader *from, call *out) {
    *out = (call){.x = {MP_NO_REGISTER, MP_NO_REGISTER, MP_NO_REGISTER}};
    if (!take_word(from, out->word)) {
        return complain(from, "a function is expected");
    }
    if (take(from, '.')) {
        out->type = take_type(from);
    }
    if (!take(from, '(')) {
        return complain(from, "( is expected");
    }
    do {
        out->x[out->count++] = take_register(from);
    } while (out->count < OPERANDS_MAX && take(from, ','));
    if (take(from, ';') &&
        (!take_float(from, &out->a) || !take(from, ';') || !take_float(from, &out->b))) {
        return complain(from, "two numbers are expected");
    }
    return take(from, ')') ? MP_OK : complain(from, ") is expected");
}

static int add_call(mp_expression *e, const call *c) {
    for (int i = 0; i < MP_REDUCTION_END; i++) {
        if (strcmp(c->word, mp_reduction_word((mp_reduction)i)) == 0) {
            return c->count == 1 ? mp_expression_reduction(e, (mp_reduction)i, c->x[0])
                                 : MP_NO_REGISTER;
        }
    }
    if (strcmp(c->word, "cast") == 0) {
        return c->type == mp_expression_type(e, c->x[0]) ? mp_expression_round(e, c->x[0])
                                                         : mp_expression_cast(e, c->x[0], c->type);
    }
    if (strcmp(c->word, "where") == 0) {
        return mp_expression_where(e, c->x[0], c->x[1], c->x[2]);
    }
    return mp_expression_function(e, c->word, c->x[0], c->x[1], c->a, c->b);
}

/* ":flat" and the like. */
static bool take_mark(reader *from, const char *mark) {
    const size_t length = strlen(mark);
    const bool there = strncmp(from->at, mark, length) == 0;
    from->at += there ? length : 0;
    return there;
}

static int read_input(reader *from, mp_dtype type) {
    const bool is_flat = take_mark(from, ":flat");
    return is_flat || take_mark(from, ":row") ? mp_expression_row_input(from->to, type, is_flat)
                                              : mp_expression_input(from->to, type);
}

/* "row=2:long", at the beginning. */
static mp_status read_rows(reader *from) {
    const reader begin = *from;
    if (!take_mark(from, "row=")) {
        return MP_OK;
    }
    char *end = NULL;
    const long dims = strtol(from->at, &end, 10);
    from->at = end;
    if (dims < 1 || dims > MP_RANK_MAX) {
        return complain(&begin, "a row has from one dimension on as many as a tensor");
    }
    from->to->row_dims = (int)dims;
    from->to->is_long = take_mark(from, ":long");
    return take(from, ' ') ? MP_OK : complain(from, "a space is expected");
}

static mp_status read_output(reader *from) {
    mp_expression *to = from->to;
    const reader begin = *from;
    const int reg = take_register(from);
    if (!mp_expression_output(to, reg)) {
        return complain(&begin, "a term is expected");
    }
    if (take_mark(from, ":flat")) {
        if (to->row_dims == 0 || !mp_expression_is_row(to, reg)) {
            return complain(&begin, "a term of rows is expected");
        }
        to->flat_outputs |= 1u << (to->output_count - 1);
    }
    to->is_apart = take_mark(from, ":apart");
    return to->is_apart && (to->row_dims > 0 || to->output_count > 1)
               ? complain(&begin, "only the one output of elements lies apart")
               : MP_OK;
}

static mp_status read_register(reader *from) {
    const reader begin = *from;
    const int reg = take_register(from);
    int made = MP_NO_REGISTER;
    if (reg == MP_NO_REGISTER || !take(from, '=')) {
        return complain(&begin, "a register and = are expected");
    }
    if (reg >= MP_FIRST_TERM) {
        call c;
        MP_TRY(take_call(from, &c));
        made = add_call(from->to, &c);
    } else {
        const mp_dtype type = take_type(from);
        float value = 0;
        if (reg >= MP_FIRST_NUMBER && take(from, ':') && take_float(from, &value)) {
            made = mp_expression_number(from->to, type, value);
        } else if (reg < MP_FIRST_NUMBER) {
            made = read_input(from, type);
        }
    }
    return made == reg ? MP_OK : complain(&begin, "types or numbers of registers do not fit");
}

mp_status mp_expression_read(const char *text, mp_expression *out) {
    reader from = {.at = text, .to = out};
    memset(out, 0, sizeof *out);
    MP_TRY(read_rows(&from));
    while (!take(&from, '-')) {
        MP_TRY(read_register(&from));
        if (!take(&from, ' ')) {
            return complain(&from, "a space is expected");
        }
    }
    if (!take(&from, '>')) {
        return complain(&from, "-> is expected");
    }
    while (!out->is_apart && take(&from, ' ')) {
        MP_TRY(read_output(&from));
    }
    return *from.at == '\0' && out->output_count > 0 && mp_expression_live(out) <= MP_LIVE_MAX
               ? MP_OK
               : complain(&from, "outputs are expected, and no more than can be computed at once");
}
