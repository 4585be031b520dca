/* fused_writer.c - what the texts of all fused kernels have: functions, casts, terms and packs.
 * Each function is written in a namespace of its type, with the helpers of
 * kernel/pointwise/functions.h for that type.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_writer.h"

#include "base/half.h"

typedef mp_fused_writer writer;

static const char *word(mp_dtype type) {
    return mp_dtype_word(type);
}

/* ---- functions ---- */

static bool same_function(const mp_term *a, const mp_term *b) {
    return a->kind == b->kind && a->function == b->function && a->from == b->from &&
           (a->kind == MP_TERM_FUNCTION || a->type == b->type);
}

static bool is_first(const mp_expression *e, int t) {
    for (int before = 0; before < t; before++) {
        if (same_function(&e->terms[before], &e->terms[t])) {
            return false;
        }
    }
    return true;
}

/* What a namespace needs before its functions are written in it. */
static void open_space(const writer *w, mp_dtype type) {
    (void)fprintf(w->to,
                  "#undef K_T0\n#define K_T0 %s\n"
                  "namespace of_%s {\ntypedef k_%s T;\ntypedef kc_%s TC;\n"
                  "#include \"kernel/pointwise/functions.h\"\n",
                  word(type), word(type), word(type), word(type));
}

static void write_function(const writer *w, const mp_term *term) {
    (void)fprintf(w->to, "K_FN %s f_%s(TC x, %sfloat a, float b) {\n    (void)a, (void)b;\n",
                  mp_function_is_test(term->function) ? "uint8_t" : "TC", term->function->word,
                  term->function->arity == 2 ? "TC y, " : "");
    (void)fprintf(w->to, "    return (%s)(%s);\n}\n",
                  mp_function_is_test(term->function) ? "uint8_t" : "TC", term->function->text);
}

static void write_functions(const writer *w) {
    mp_dtypes done = 0;
    for (int t = 0; t < w->e->term_count; t++) {
        const mp_dtype type = w->e->terms[t].from;
        if (w->e->terms[t].kind != MP_TERM_FUNCTION || (done & MP_BIT(type)) != 0) {
            continue;
        }
        done |= MP_BIT(type);
        open_space(w, type);
        for (int other = t; other < w->e->term_count; other++) {
            const mp_term *term = &w->e->terms[other];
            if (term->kind == MP_TERM_FUNCTION && term->from == type && is_first(w->e, other)) {
                write_function(w, term);
            }
        }
        (void)fprintf(w->to, "}\n");
    }
}

static void write_casts(const writer *w) {
    for (int t = 0; t < w->e->term_count; t++) {
        const mp_term *term = &w->e->terms[t];
        if (term->kind == MP_TERM_CAST && is_first(w->e, t)) {
            const char *from = word(term->from);
            const char *to = word(term->type);
            (void)fprintf(w->to,
                          "#undef K_T0\n#define K_T0 %s\n#undef K_T1\n#define K_T1 %s\n"
                          "namespace %s_to_%s {\ntypedef k_%s T;\ntypedef kc_%s TC;\n"
                          "typedef k_%s U;\ntypedef kc_%s UC;\n"
                          "#include \"kernel/pointwise/cast_value.h\"\n}\n",
                          from, to, from, to, from, from, to, to);
        }
    }
}

/* ---- terms ---- */

const char *mp__fused_register(int reg, char name[16]) {
    const char kind = reg >= MP_FIRST_TERM ? 't' : reg >= MP_FIRST_NUMBER ? 'n' : 'x';
    const int first = reg >= MP_FIRST_TERM     ? MP_FIRST_TERM
                      : reg >= MP_FIRST_NUMBER ? MP_FIRST_NUMBER
                                               : MP_FIRST_INPUT;
    (void)snprintf(name, 16, "%c%d", kind, reg - first);
    return name;
}

static void write_call(const writer *w, const mp_term *term) {
    char name[16];
    (void)fprintf(w->to, "(kc_%s)of_%s::f_%s(", word(term->type), word(term->from),
                  term->function->word);
    for (int k = 0; k < term->function->arity; k++) {
        (void)fprintf(w->to, "(kc_%s)%s, ", word(term->from), mp__fused_register(term->x[k], name));
    }
    (void)fprintf(w->to, "k_float_of_bits(0x%xu), k_float_of_bits(0x%xu))", mp_float_bits(term->a),
                  mp_float_bits(term->b));
}

void mp__fused_write_term(const writer *w, int t) {
    const mp_term *term = &w->e->terms[t];
    char name[3][16];
    for (size_t k = 0; k < MP_COUNT_OF(term->x); k++) {
        (void)mp__fused_register(term->x[k], name[k]);
    }
    (void)fprintf(w->to, "    const kc_%s t%d = ", word(term->type), t);
    switch (term->kind) {
    case MP_TERM_FUNCTION:
        write_call(w, term);
        break;
    case MP_TERM_CAST:
        (void)fprintf(w->to, "k_load_%s(%s_to_%s::c_cast(k_store_%s(%s)))", word(term->type),
                      word(term->from), word(term->type), word(term->from), name[0]);
        break;
    case MP_TERM_WHERE:
        (void)fprintf(w->to, "%s ? %s : %s", name[0], name[1], name[2]);
        break;
    case MP_TERM_REDUCTION: /* a pass ends with it */
        break;
    }
    (void)fprintf(w->to, ";\n");
}

/* ---- packs and addresses ---- */

static void write_packs(const writer *w) {
    mp_dtypes types = 0;
    for (int i = 0; i < w->e->input_count; i++) {
        types |= w->readings[i] != MP_READ_ONE ? MP_BIT(w->e->inputs[i]) : 0;
    }
    for (int i = 0; i < w->e->output_count; i++) {
        types |= MP_BIT(mp_expression_type(w->e, w->e->outputs[i]));
    }
    for (int type = 0; type < MP_DTYPE_END; type++) {
        if ((types & MP_BIT(type)) != 0) {
            const char *name = word((mp_dtype)type);
            (void)fprintf(w->to,
                          "K_WALK_PACK(pack_%s, k_%s)\nK_WALK_READ(read_%s, pack_%s, k_%s)\n", name,
                          name, name, name, name);
        }
    }
}

void mp__fused_write_addresses(const writer *w) {
    for (int i = 0; i < w->e->input_count; i++) {
        const char *type = word(w->e->inputs[i]);
        (void)fprintf(w->to, "    const k_%s *in%d = (const k_%s *)args.in[%d];\n", type, i, type,
                      i);
        if (w->readings[i] == MP_READ_ONE) {
            (void)fprintf(w->to, "    const k_%s one%d = in%d[0];\n", type, i, i);
        }
    }
    for (int i = 0; i < w->e->output_count; i++) {
        const char *type = word(mp_expression_type(w->e, w->e->outputs[i]));
        (void)fprintf(w->to, "    k_%s *out%d = (k_%s *)args.out[%d];\n", type, i, type, i);
    }
    (void)fprintf(w->to, "    const uint64_t skew = 0");
    for (int i = 0; i < w->e->output_count; i++) {
        (void)fprintf(w->to, " | K_WALK_SKEW(out%d, k_%s)", i,
                      word(mp_expression_type(w->e, w->e->outputs[i])));
    }
    for (int i = 0; i < w->e->input_count; i++) {
        if (w->readings[i] == MP_READ_WHOLE) {
            (void)fprintf(w->to, " | K_WALK_SKEW(in%d, k_%s)", i, word(w->e->inputs[i]));
        }
    }
    (void)fprintf(w->to, ";\n");
}

int mp__fused_views(const writer *w) {
    int views = 0;
    for (int i = 0; i < w->e->input_count; i++) {
        views += mp_reading_is_view(w->readings[i]);
    }
    return views;
}

/* ---- the head ---- */

void mp__fused_write_head(const writer *w, const char *headers) {
    const char *widest = word(mp_fused_widest(w->e, w->readings));
    (void)fprintf(w->to, "#define K_T0 %s\n#define K_T1 %s\n%s", widest, widest, headers);
    write_functions(w);
    write_casts(w);
    write_packs(w);
}
