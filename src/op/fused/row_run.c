/* row_run.c - goes over rows in the passes of a schedule, a tile of them at a time.
 *
 * Which schedule it is depends on the length of rows (row_schedule.h). Where there is no memory for
 * buffers, or they would be too large, what they would keep is computed again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "op/fused/fused_run.h"
#include "op/fused/row_fold.h"

#include <string.h>

enum {
    KEPT_BYTES_MAX = 8 << 20, /* of a thread's buffers */
    LINE = 64,                /* of the cache */
    APART = 3 * LINE,
    FOLDED = 64, /* rows that are reduced at a time */
};

typedef struct runner {
    const mp_fused_program *program;
    const mp_fused_args *args;
    const mp_row_schedule *schedule;
    unsigned char *area, *kept; /* of slots, of buffers */
    int64_t pitch, kept_pitch;  /* bytes from one to the next */
    int64_t tile, columns;
    int64_t first_row;
    int64_t row, rows;         /* that it has now */
    int64_t column;            /* where a part of a longer row begins */
    mp_fused_frame elements;   /* of the rows, or of the part */
    mp_fused_frame each;       /* one for each row */
    double sums[MP_TERMS_MAX]; /* of the parts before */
} runner;

static unsigned char *slot_at(const runner *r, int slot) {
    return r->area + (size_t)slot * (size_t)r->pitch;
}

static bool has_parts(const runner *r) {
    return r->schedule->keep != MP_KEEP_IN_SLOTS;
}

/* ---- what is of rows ---- */

/* Its elements are as many as a tile or a part of a row has at most. */
static void spread(runner *r, int reg) {
    const mp_row_schedule *s = r->schedule;
    const size_t size = mp_fused_kept_size(&r->program->e, reg);
    if (s->spread[reg] != MP_LIES_NONE) {
        mp_row_spread(slot_at(r, s->spread[reg]), r->each.at[reg], size, r->rows,
                      MP_MIN(r->columns, r->tile));
    }
}

static void run_row_terms(runner *r, int pass) {
    const mp_fused_program *program = r->program;
    for (int t = 0; t < program->e.term_count; t++) {
        if (mp_row_pass_follows(&program->e, &program->passes, pass, t)) {
            mp__fused_run_step(&r->each, &program->steps[t]);
            spread(r, MP_FIRST_TERM + t);
        }
    }
}

static void load_row_inputs(runner *r) {
    const mp_expression *e = &r->program->e;
    for (int i = 0; i < e->input_count; i++) {
        if (mp_expression_is_row(e, i)) {
            mp__fused_load_rows(r->program, r->args, i, r->row, r->rows, r->each.at[i]);
            spread(r, i);
        }
    }
}

static void store_rows(const runner *r) {
    const mp_expression *e = &r->program->e;
    for (int i = 0; i < e->output_count; i++) {
        if (mp_expression_is_row(e, e->outputs[i])) {
            mp__fused_store(r->program, r->args, i, r->each.at[e->outputs[i]], r->row, r->rows);
        }
    }
}

/* ---- reductions ---- */

static void set_result(runner *r, int t, int64_t row, double result) {
    const mp_term *term = &r->program->e.terms[t];
    const double value = term->reduction == MP_ROW_MEAN ? result / (double)r->columns : result;
    const float narrow = (float)value;
    unsigned char *to = r->each.at[MP_FIRST_TERM + t];
    if (term->type == MP_F64) {
        memcpy(to + (size_t)row * sizeof value, &value, sizeof value);
    } else {
        memcpy(to + (size_t)row * sizeof narrow, &narrow, sizeof narrow);
    }
}

/* Of whole rows, or adds a part of one to those before. */
static void reduce(runner *r, int t) {
    const mp_term *term = &r->program->e.terms[t];
    const bool is_wide = term->type == MP_F64;
    const unsigned char *x = r->elements.at[term->x[0]];
    double results[FOLDED];
    if (has_parts(r)) {
        mp_row_fold(term->reduction, is_wide, x, 1, r->elements.count, results);
        r->sums[t] = mp_row_fold_both(term->reduction, r->sums[t], results[0]);
        return;
    }
    for (int64_t row = 0; row < r->rows; row += FOLDED) {
        const int64_t count = MP_MIN(r->rows - row, FOLDED);
        mp_row_fold(term->reduction, is_wide,
                    x + (size_t)(row * r->columns) * (is_wide ? sizeof(double) : sizeof(float)),
                    count, r->columns, results);
        for (int64_t k = 0; k < count; k++) {
            set_result(r, t, row + k, results[k]);
        }
    }
}

static void begin_sums(runner *r, int pass) {
    const mp_expression *e = &r->program->e;
    for (int t = 0; t < e->term_count; t++) {
        if (mp_row_pass_ends(e, &r->program->passes, pass, t)) {
            r->sums[t] = mp_row_fold_none(e->terms[t].reduction);
        }
    }
}

static void end_sums(runner *r, int pass) {
    const mp_expression *e = &r->program->e;
    for (int t = 0; t < e->term_count; t++) {
        if (mp_row_pass_ends(e, &r->program->passes, pass, t)) {
            if (has_parts(r)) {
                set_result(r, t, 0, r->sums[t]);
            }
            spread(r, MP_FIRST_TERM + t);
        }
    }
}

/* ---- elements ---- */

static int64_t first_element(const runner *r) {
    return r->row * r->columns + r->column;
}

static unsigned char *place_at(const runner *r, mp_row_place at) {
    const mp_expression *e = &r->program->e;
    const size_t first = (size_t)first_element(r);
    const size_t size = mp_fused_kept_size(e, at.reg);
    if (at.place < MP_LIES_KEPT) {
        return slot_at(r, at.place);
    }
    if (at.place < MP_LIES_INPUT) {
        return r->kept + (size_t)(at.place - MP_LIES_KEPT) * (size_t)r->kept_pitch +
               (size_t)r->column * size;
    }
    if (at.place >= MP_LIES_OUTPUT) {
        return (unsigned char *)r->args->out[at.place - MP_LIES_OUTPUT] + first * size;
    }
    const bool is_column = r->program->readings[at.reg] == MP_READ_COLUMN;
    return (unsigned char *)(uintptr_t)r->args->in[at.reg] +
           (is_column ? (size_t)r->column : first) * size;
}

static void load_elements(runner *r, const mp_row_plan *plan) {
    for (int i = 0; i < r->program->e.input_count; i++) {
        const bool is_kept = (r->schedule->kept_columns >> i & 1) != 0 && r->row > r->first_row;
        if ((plan->loads >> i & 1) != 0 && !is_kept) {
            mp__fused_load(r->program, r->args, i, first_element(r), r->column, r->elements.count,
                           r->elements.at[i]);
        }
    }
}

/* The elements of a tile, in one pass. */
static void run_tile(runner *r, int pass) {
    const mp_fused_program *program = r->program;
    const mp_expression *e = &program->e;
    const mp_row_plan *plan = &r->schedule->plans[pass];
    for (int i = 0; i < plan->place_count; i++) {
        r->elements.at[plan->places[i].reg] = place_at(r, plan->places[i]);
    }
    load_elements(r, plan);
    for (int i = 0; i < plan->term_count; i++) {
        const int t = plan->terms[i];
        if (e->terms[t].kind == MP_TERM_REDUCTION) {
            reduce(r, t);
        } else {
            mp__fused_run_step(&r->elements, &program->steps[t]);
        }
    }
    for (int i = 0; i < e->output_count && pass == program->passes.reducing; i++) {
        if (!mp_expression_is_row(e, e->outputs[i])) {
            mp__fused_store(program, r->args, i, r->elements.at[e->outputs[i]], first_element(r),
                            r->elements.count);
        }
    }
}

static void run_pass(runner *r, int pass) {
    if (!has_parts(r)) {
        mp__fused_frame_resize(&r->elements, r->rows * r->columns);
        run_tile(r, pass);
        return;
    }
    begin_sums(r, pass);
    for (r->column = 0; r->column < r->columns; r->column += r->tile) {
        mp__fused_frame_resize(&r->elements, MP_MIN(r->columns - r->column, r->tile));
        run_tile(r, pass);
    }
    r->column = 0;
}

static void run_group(runner *r) {
    mp__fused_frame_resize(&r->each, r->rows);
    load_row_inputs(r);
    run_row_terms(r, 0);
    for (int pass = 0; pass < r->program->passes.count; pass++) {
        run_pass(r, pass);
        end_sums(r, pass);
        run_row_terms(r, pass + 1);
    }
    store_rows(r);
}

/* ---- all ---- */

/* Bytes from one buffer to the next, which begin at different places of a page. `columns` is an
 * int32_t, so that nothing overflows. */
static int64_t kept_pitch(int64_t columns, size_t widest) {
    return MP_ALIGN_UP(columns * (int64_t)widest, LINE) + APART;
}

int64_t mp__fused_columns_kept(int kept_count, size_t widest) {
    return (KEPT_BYTES_MAX / kept_count - APART) / LINE * LINE / (int64_t)widest;
}

/* Buffers, unless there are none, or the row is too long for them, or there is no memory. */
static bool find_buffers(runner *r, const mp_row_schedule *s) {
    size_t widest = 1;
    for (int k = 0; k < s->kept_count; k++) {
        widest = MP_MAX(widest, mp_fused_kept_size(&r->program->e, s->kept[k]));
    }
    if (s->kept_count == 0 || r->columns > mp__fused_columns_kept(s->kept_count, widest)) {
        return false;
    }
    r->kept_pitch = kept_pitch(r->columns, widest);
    r->kept = k_host_scratch((size_t)(r->kept_pitch * s->kept_count));
    return r->kept != NULL;
}

static void choose_schedule(runner *r) {
    const mp_row_schedule *schedules = r->program->schedules;
    r->schedule = &schedules[MP_KEEP_IN_SLOTS];
    r->tile = mp__fused_tile(&r->program->e, r->schedule->slot_count);
    if (r->columns > r->tile) {
        const bool is_kept = find_buffers(r, &schedules[MP_KEEP_IN_BUFFERS]);
        r->schedule = &schedules[is_kept ? MP_KEEP_IN_BUFFERS : MP_KEEP_NOTHING];
        r->tile = mp__fused_tile(&r->program->e, r->schedule->slot_count);
    }
}

/* What is the same for all rows. */
static void load_once(runner *r) {
    const mp_expression *e = &r->program->e;
    const mp_row_schedule *s = r->schedule;
    for (int i = 0; i < e->number_count; i++) {
        const int reg = MP_FIRST_NUMBER + i;
        mp_row_spread(r->each.at[reg], &r->args->numbers[i], sizeof(float), 1, r->rows);
        spread(r, reg);
    }
    for (int i = 0; i < e->input_count; i++) {
        if ((s->once >> i & 1) == 0) {
            continue;
        }
        const bool is_column = r->program->readings[i] == MP_READ_COLUMN;
        const int64_t count = MP_MIN(r->columns, r->tile);
        const size_t size = (size_t)count * mp_fused_kept_size(e, i);
        unsigned char *to = slot_at(r, s->once_slots[i]);
        mp__fused_load(r->program, r->args, i, 0, 0, is_column ? r->columns : count, to);
        for (int64_t row = 1; row < r->rows; row++) {
            memcpy(to + (size_t)row * size, to, size);
        }
    }
}

void mp__fused_run_rows(const mp_fused_program *program, const mp_fused_args *args,
                        unsigned char *area, int64_t first, int64_t last) {
    const mp_expression *e = &program->e;
    runner r = {.program = program, .args = args, .columns = args->columns, .first_row = first};
    r.area = area;
    choose_schedule(&r);
    r.pitch = mp_fused_pitch(r.schedule->slot_count);
    mp__fused_frame_open(&r.elements);
    mp__fused_frame_open(&r.each);
    for (int reg = 0; reg < MP_FIRST_TERM + e->term_count; reg++) {
        if (r.schedule->row_slots[reg] != MP_LIES_NONE) {
            r.each.at[reg] = slot_at(&r, r.schedule->row_slots[reg]);
        }
    }
    const int64_t group = has_parts(&r) ? 1 : r.tile / r.columns;
    r.rows = MP_MIN(group, last - first);
    if (r.rows > 0) {
        load_once(&r);
    }
    for (r.row = first; r.row < last; r.row += group) {
        r.rows = MP_MIN(group, last - r.row);
        run_group(&r);
    }
}
