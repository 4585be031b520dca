/* fused_row_source.c - writes the text of a fused kernel that has reductions.
 *
 * The text of a row is its passes (row_pass.h), one behind the other: what is read, what is
 * computed for each element that a lane has, and the lanes' meeting. There are two classes of it.
 * Where a row is no longer than its lanes keep, each input is read once and each term is computed
 * once: what a later pass needs lies in registers. Of a long row each pass reads and computes again
 * what it needs, part by part; the inputs then come from the cache. How many lanes share a row is
 * no matter to the text, nor is whether rows are whole packs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_writer.h"
#include "op/fused/row_pass.h"

#include <string.h>

enum {
    PACKS_MOST = 2,
    KEPT_BYTES = 192, /* that a lane may have of a row: some 50 of its 128 registers */
    TERMS_MANY = 64,  /* more of them are not written for so many elements */
};

typedef struct row_writer {
    const mp_fused_writer *w;
    mp_row_passes passes;
    bool crosses[MP_REGISTERS_MAX];             /* terms that a later pass reads, of what is kept */
    int8_t first[K_FUSED_IN], last[K_FUSED_IN]; /* passes that read an input; -1: none */
} row_writer;

static const char *word(mp_dtype type) {
    return mp_dtype_word(type);
}

static const char *wide(mp_dtype type) {
    return type == MP_F64 ? "f64" : "f32";
}

/* What a mean is before it is divided. */
static const char *merging(const mp_term *term) {
    return mp_reduction_word(term->reduction == MP_ROW_MEAN ? MP_ROW_SUM : term->reduction);
}

/* ---- what is kept ---- */

static bool is_array(const mp_fused_writer *w, int i) {
    return !mp_expression_is_row(w->e, i) && w->readings[i] != MP_READ_ONE;
}

/* The registers that the needed terms and, in the last pass, the outputs read. */
static void find_used(const row_writer *r, int pass, const bool *needed, bool *used) {
    const mp_expression *e = r->w->e;
    memset(used, 0, MP_REGISTERS_MAX * sizeof *used);
    for (int t = 0; t < e->term_count; t++) {
        for (size_t k = 0; k < MP_COUNT_OF(e->terms[t].x) && needed[MP_FIRST_TERM + t]; k++) {
            if (e->terms[t].x[k] != MP_NO_REGISTER) {
                used[e->terms[t].x[k]] = true;
            }
        }
    }
    for (int i = 0; i < e->output_count && pass == r->passes.reducing; i++) {
        used[e->outputs[i]] = true;
    }
}

/* Adds what a pass has computed. */
static void know(const row_writer *r, const bool *needed, bool *known) {
    for (int t = 0; t < r->w->e->term_count; t++) {
        known[MP_FIRST_TERM + t] = known[MP_FIRST_TERM + t] || needed[MP_FIRST_TERM + t];
    }
}

static void find_crossing(row_writer *r) {
    const mp_expression *e = r->w->e;
    bool known[MP_REGISTERS_MAX] = {false};
    bool needed[MP_REGISTERS_MAX], used[MP_REGISTERS_MAX];
    memset(r->first, -1, sizeof r->first);
    memset(r->last, -1, sizeof r->last);
    for (int pass = 0; pass < r->passes.count; pass++) {
        mp_row_pass_needs(e, &r->passes, pass, known, needed);
        find_used(r, pass, needed, used);
        for (int t = 0; t < e->term_count; t++) {
            const int reg = MP_FIRST_TERM + t;
            r->crosses[reg] = r->crosses[reg] || (used[reg] && known[reg] && !e->terms[t].is_row);
        }
        for (int i = 0; i < e->input_count; i++) {
            if (used[i] && is_array(r->w, i)) {
                r->first[i] = (int8_t)(r->first[i] < 0 ? pass : r->first[i]);
                r->last[i] = (int8_t)pass;
            }
        }
        know(r, needed, known);
    }
}

static void open_rows(row_writer *r, const mp_fused_writer *w) {
    memset(r, 0, sizeof *r);
    r->w = w;
    mp_row_passes_find(w->e, &r->passes);
    find_crossing(r);
}

/* Registers' bytes of a value: elements of 16 bits take one each. */
static int64_t bytes_of(mp_dtype type) {
    return (int64_t)MP_MAX(mp_dtype_size(type), sizeof(float));
}

/* What a lane has for each element in a pass. Of a long row that is what is read and written. */
static int64_t bytes_in_pass(const row_writer *r, int pass, bool is_kept) {
    const mp_expression *e = r->w->e;
    int64_t bytes = 0;
    for (int i = 0; i < e->input_count; i++) {
        const bool is_there = r->first[i] <= pass && pass <= r->last[i];
        bytes += r->first[i] >= 0 && (is_there || !is_kept) ? bytes_of(e->inputs[i]) : 0;
    }
    for (int t = 0; t < e->term_count && is_kept; t++) {
        bytes += r->crosses[MP_FIRST_TERM + t] ? bytes_of(e->terms[t].type) : 0;
    }
    for (int i = 0; i < e->output_count && pass == r->passes.reducing; i++) {
        bytes += bytes_of(mp_expression_type(e, e->outputs[i]));
    }
    return bytes;
}

static int64_t pack_of(const mp_fused_writer *w) {
    return 16 / (int64_t)mp_dtype_size(mp_fused_widest(w->e, w->readings)); /* K_WALK */
}

/* Packs that a lane has at a time; 0 of a row that would have to be kept and cannot. */
static int packs_of(const row_writer *r, bool is_kept) {
    const int most = r->w->e->term_count > TERMS_MANY ? 1 : PACKS_MOST;
    int64_t bytes = 0;
    for (int pass = 0; pass < r->passes.count; pass++) {
        bytes = MP_MAX(bytes, bytes_in_pass(r, pass, is_kept));
    }
    bytes *= pack_of(r->w);
    int packs = most;
    while (packs > (is_kept ? 0 : 1) && packs * bytes > KEPT_BYTES) {
        packs--;
    }
    return packs;
}

mp_row_packs mp_fused_row_packs(const mp_expression *e, const mp_reading *readings) {
    const mp_fused_writer w = {.e = e, .readings = readings};
    row_writer r;
    open_rows(&r, &w);
    return (mp_row_packs){.pack = (int)pack_of(&w), .packs = packs_of(&r, !e->is_long)};
}

int64_t mp_fused_row_keep(const mp_expression *e, const mp_reading *readings) {
    mp_expression kept = *e;
    kept.is_long = false;
    const mp_row_packs packs = mp_fused_row_packs(&kept, readings);
    return (int64_t)packs.packs * packs.pack;
}

/* ---- what is of rows ---- */

static void write_row_inputs(const row_writer *r) {
    const mp_fused_writer *w = r->w;
    const int views = mp__fused_views(w);
    int view = 0;
    if (views > 0) { /* where the row begins in each view */
        (void)fprintf(w->to, "    uint32_t at[%d];\n    k_walk_to(&args.walk, p.begin, %d, at);\n",
                      views, views);
    }
    for (int i = 0; i < w->e->input_count; i++) {
        const bool is_view = mp_reading_is_view(w->readings[i]);
        if (is_array(w, i)) {
            view += is_view;
            continue;
        }
        const char *type = word(w->e->inputs[i]);
        (void)fprintf(w->to, "    const kc_%s x%d = k_load_%s(", type, i, type);
        if (w->readings[i] == MP_READ_ONE) {
            (void)fprintf(w->to, "one%d);\n", i);
        } else if (is_view) {
            (void)fprintf(w->to, "in%d[at[%d]]);\n", i, view++);
        } else {
            (void)fprintf(w->to, "in%d[p.row]);\n", i);
        }
    }
}

/* Terms of rows that are known once `pass` passes are over. */
static void write_row_terms(const row_writer *r, int pass) {
    const mp_expression *e = r->w->e;
    for (int t = 0; t < e->term_count; t++) {
        if (mp_row_pass_follows(e, &r->passes, pass, t)) {
            mp__fused_write_term(r->w, t);
        }
    }
}

static void write_row_outputs(const row_writer *r) {
    const mp_fused_writer *w = r->w;
    char name[16];
    for (int i = 0; i < w->e->output_count; i++) {
        const int reg = w->e->outputs[i];
        if (mp_expression_is_row(w->e, reg)) {
            (void)fprintf(w->to,
                          "    if (p.lane == 0 && p.columns > 0) {\n"
                          "        out%d[p.row] = k_store_%s(%s);\n    }\n",
                          i, word(mp_expression_type(w->e, reg)), mp__fused_register(reg, name));
        }
    }
}

/* ---- a pass ---- */

/* What is read of inputs that have an element for each of a row. */
static void write_reads(const row_writer *r, int pass, const bool *used) {
    const mp_fused_writer *w = r->w;
    const int views = mp__fused_views(w);
    int view = 0;
    for (int i = 0; i < w->e->input_count; i++) {
        const char *type = word(w->e->inputs[i]);
        const int own = view;
        view += mp_reading_is_view(w->readings[i]);
        const bool is_read = w->e->is_long ? used[i] : r->first[i] == pass;
        if (!is_array(w, i) || !is_read) {
            continue;
        }
        (void)fprintf(w->to, "    k_%s e%d[F_KEEP];\n", type, i);
        if (w->readings[i] == MP_READ_VIEW) {
            (void)fprintf(w->to, "    f_view_%s(in%d, &args.walk, &p, %d, %d, e%d);\n", type, i,
                          views, own, i);
        } else if (w->readings[i] == MP_READ_ROWS) {
            (void)fprintf(w->to, "    f_run_%s(in%d + at[%d], &p, e%d);\n", type, i, own, i);
        } else {
            (void)fprintf(w->to, "    f_run_%s(in%d%s, &p, e%d);\n", type, i,
                          w->readings[i] == MP_READ_WHOLE ? " + p.begin" : "", i);
        }
    }
}

/* The sums of a part of a long row are added to those of the row, which are fewer then. */
static void write_sums(const row_writer *r, int pass, char kind) {
    const mp_expression *e = r->w->e;
    for (int t = 0; t < e->term_count; t++) {
        const mp_term *term = &e->terms[t];
        if (mp_row_pass_ends(e, &r->passes, pass, t)) {
            (void)fprintf(r->w->to, "    kc_%s %c%d = f_%s_none_%s();\n", wide(term->type), kind, t,
                          merging(term), wide(term->type));
        }
    }
}

static void write_elements(const row_writer *r, int pass, const bool *needed, const bool *used) {
    const mp_fused_writer *w = r->w;
    const mp_expression *e = w->e;
    char name[16];
    (void)fprintf(w->to, "    K_UNROLL\n    for (int32_t k = 0; k < F_KEEP; k++) {\n");
    for (int i = 0; i < e->input_count; i++) {
        if (used[i] && is_array(w, i)) {
            const char *type = word(e->inputs[i]);
            (void)fprintf(w->to, "    const kc_%s x%d = k_load_%s(e%d[k]);\n", type, i, type, i);
        }
    }
    for (int t = 0; t < e->term_count; t++) {
        const mp_term *term = &e->terms[t];
        const int reg = MP_FIRST_TERM + t;
        if (term->kind == MP_TERM_REDUCTION && needed[reg]) {
            const char *type = wide(term->type);
            (void)fprintf(w->to,
                          "    c%d = f_column(&p, k) < p.columns ? f_%s_of_%s(c%d, %s) : c%d;\n", t,
                          merging(term), type, t, mp__fused_register(term->x[0], name), t);
        } else if (needed[reg]) {
            mp__fused_write_term(w, t);
            if (r->crosses[reg] && !e->is_long) {
                (void)fprintf(w->to, "    v%d[k] = t%d;\n", t, t);
            }
        } else if (used[reg] && !term->is_row) {
            (void)fprintf(w->to, "    const kc_%s t%d = v%d[k];\n", word(term->type), t, t);
        }
    }
    for (int i = 0; i < e->output_count && pass == r->passes.reducing; i++) {
        if (!mp_expression_is_row(e, e->outputs[i])) {
            (void)fprintf(w->to, "    m%d[k] = k_store_%s(%s);\n", i,
                          word(mp_expression_type(e, e->outputs[i])),
                          mp__fused_register(e->outputs[i], name));
        }
    }
    (void)fprintf(w->to, "    }\n");
}

/* Room for the outputs' elements, or what writes them. */
static void write_outputs(const row_writer *r, int pass, bool is_room) {
    const mp_expression *e = r->w->e;
    for (int i = 0; i < e->output_count && pass == r->passes.reducing; i++) {
        const char *type = word(mp_expression_type(e, e->outputs[i]));
        if (mp_expression_is_row(e, e->outputs[i])) {
            continue;
        }
        if (is_room) {
            (void)fprintf(r->w->to, "    k_%s m%d[F_KEEP];\n", type, i);
        } else {
            (void)fprintf(r->w->to, "    f_put_%s(out%d + p.begin, &p, m%d);\n", type, i, i);
        }
    }
}

static void write_kept(const row_writer *r, const bool *needed) {
    const mp_expression *e = r->w->e;
    for (int t = 0; t < e->term_count && !e->is_long; t++) {
        if (r->crosses[MP_FIRST_TERM + t] && needed[MP_FIRST_TERM + t]) {
            (void)fprintf(r->w->to, "    kc_%s v%d[F_KEEP];\n", word(e->terms[t].type), t);
        }
    }
}

static void write_merges(const row_writer *r, int pass) {
    const mp_expression *e = r->w->e;
    for (int t = 0; t < e->term_count; t++) {
        const mp_term *term = &e->terms[t];
        const char *type = wide(term->type);
        if (mp_row_pass_ends(e, &r->passes, pass, t)) {
            (void)fprintf(r->w->to, "    const kc_%s t%d = f_%s_%s(%c%d, t.width)", type, t,
                          merging(term), type, e->is_long ? 's' : 'c', t);
            if (term->reduction == MP_ROW_MEAN) {
                (void)fprintf(r->w->to, " / (kc_%s)args.columns", type);
            }
            (void)fprintf(r->w->to, ";\n");
        }
    }
}

static void write_part(const row_writer *r, int pass, const bool *needed, const bool *used) {
    write_reads(r, pass, used);
    write_sums(r, pass, 'c');
    write_kept(r, needed);
    write_outputs(r, pass, true);
    write_elements(r, pass, needed, used);
    write_outputs(r, pass, false);
}

static void write_long_pass(const row_writer *r, int pass) {
    const mp_expression *e = r->w->e;
    bool needed[MP_REGISTERS_MAX], used[MP_REGISTERS_MAX];
    mp_row_pass_needs(e, &r->passes, pass, NULL, needed);
    find_used(r, pass, needed, used);
    write_sums(r, pass, 's');
    (void)fprintf(r->w->to, "    K_ONE_COPY\n    for (p.base = 0; p.base < p.columns; p.base += "
                            "p.width * F_KEEP) {\n");
    write_part(r, pass, needed, used);
    for (int t = 0; t < e->term_count; t++) {
        if (mp_row_pass_ends(e, &r->passes, pass, t)) {
            (void)fprintf(r->w->to, "    s%d = f_%s_of_%s(s%d, c%d);\n", t, merging(&e->terms[t]),
                          wide(e->terms[t].type), t, t);
        }
    }
    (void)fprintf(r->w->to, "    }\n");
}

static void write_passes(const row_writer *r) {
    bool known[MP_REGISTERS_MAX] = {false};
    bool needed[MP_REGISTERS_MAX], used[MP_REGISTERS_MAX];
    write_row_terms(r, 0);
    for (int pass = 0; pass < r->passes.count; pass++) {
        if (r->w->e->is_long) {
            write_long_pass(r, pass);
        } else {
            mp_row_pass_needs(r->w->e, &r->passes, pass, known, needed);
            find_used(r, pass, needed, used);
            write_part(r, pass, needed, used);
            know(r, needed, known);
        }
        write_merges(r, pass);
        write_row_terms(r, pass + 1);
    }
    write_row_outputs(r);
}

/* ---- the kernel ---- */

static void write_access(const mp_fused_writer *w) {
    mp_dtypes types = 0;
    for (int i = 0; i < w->e->input_count; i++) {
        types |= is_array(w, i) ? MP_BIT(w->e->inputs[i]) : 0;
    }
    for (int i = 0; i < w->e->output_count; i++) {
        types |= MP_BIT(mp_expression_type(w->e, w->e->outputs[i]));
    }
    for (int type = 0; type < MP_DTYPE_END; type++) {
        if ((types & MP_BIT(type)) != 0) {
            (void)fprintf(w->to, "F_ROW_ACCESS(%s)\n", word((mp_dtype)type));
        }
    }
}

void mp__fused_write_rows(const mp_fused_writer *w) {
    char headers[64];
    row_writer r;
    open_rows(&r, w);
    (void)snprintf(headers, sizeof headers,
                   "#define F_PACKS %d\n#include \"kernel/fused/fused_rows.h\"\n",
                   packs_of(&r, !w->e->is_long));
    mp__fused_write_head(w, headers);
    write_access(w);
    (void)fprintf(w->to, "K_BLOCK_KERNEL_UP_TO(K_FUSED_ROW_LANES, mp_fused_args, args) {\n");
    mp__fused_write_addresses(w);
    for (int i = 0; i < w->e->number_count; i++) {
        (void)fprintf(w->to, "    const float n%d = args.numbers[%d];\n", i, i);
    }
    (void)fprintf(w->to, "    const k_round t = k_rounds(args.width);\n"
                         "    const int packed = f_is_packed(&args, skew);\n"
                         "    K_ONE_COPY\n"
                         "    K_ROUND_LOOP(first, t, args.rows) {\n"
                         "    f_part p = f_part_of(&args, &t, first + t.group, packed);\n");
    write_row_inputs(&r);
    write_passes(&r);
    (void)fprintf(w->to, "    }\n}\n");
}
