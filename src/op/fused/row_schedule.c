/* row_schedule.c - see row_schedule.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/row_schedule.h"

#include <assert.h>
#include <string.h>

typedef struct maker {
    const mp_expression *e;
    const mp_reading *readings;
    const mp_row_passes *passes;
    mp_row_schedule *to;
    bool is_kept[MP_REGISTERS_MAX];
    bool is_spread[MP_REGISTERS_MAX];
    bool taken[MP_ROW_SLOTS_MAX];
} maker;

/* What a pass computes and, of elements, reads. */
typedef struct reads {
    bool needed[MP_REGISTERS_MAX], used[MP_REGISTERS_MAX];
    int16_t last[MP_REGISTERS_MAX]; /* the term that reads it last; term_count for an output */
} reads;

static bool is_number(int reg) {
    return reg >= MP_FIRST_NUMBER && reg < MP_FIRST_TERM;
}

bool mp_row_reads_in_place(const mp_expression *e, const mp_reading *readings, int i) {
    const mp_dtype type = e->inputs[i];
    return type != MP_F16 && type != MP_BF16 &&
           (readings[i] == MP_READ_WHOLE || readings[i] == MP_READ_COLUMN);
}

static bool is_in_place(const maker *m, int i) {
    const bool is_column = m->readings[i] == MP_READ_COLUMN;
    return mp_row_reads_in_place(m->e, m->readings, i) &&
           !(is_column && m->to->keep == MP_KEEP_IN_SLOTS); /* there is one for several rows */
}

/* The same for all rows, in a slot for good. */
static bool is_once(const maker *m, int i) {
    return m->readings[i] == MP_READ_ONE ||
           (m->readings[i] == MP_READ_COLUMN && m->to->keep == MP_KEEP_IN_SLOTS);
}

/* ---- what a pass reads ---- */

static void read_by(int reg, int t, reads *out) {
    if (reg != MP_NO_REGISTER) {
        out->used[reg] = true;
        out->last[reg] = (int16_t)t;
    }
}

static void find_reads(const maker *m, int pass, const bool *known, reads *out) {
    const mp_expression *e = m->e;
    memset(out->used, 0, sizeof out->used);
    mp_row_pass_needs(e, m->passes, pass, known, out->needed);
    for (int t = 0; t < e->term_count; t++) {
        for (size_t k = 0; k < MP_COUNT_OF(e->terms[t].x) && out->needed[MP_FIRST_TERM + t]; k++) {
            read_by(e->terms[t].x[k], t, out);
        }
    }
    for (int i = 0; i < e->output_count && pass == m->passes->reducing; i++) {
        if (!mp_expression_is_row(e, e->outputs[i])) {
            read_by(e->outputs[i], e->term_count, out);
        }
    }
}

/* Adds the terms that a pass has computed, of all or of those that are kept. */
static void know(const maker *m, const reads *r, bool all, bool *known) {
    for (int t = 0; t < m->e->term_count; t++) {
        const int reg = MP_FIRST_TERM + t;
        known[reg] = known[reg] || (r->needed[reg] && (all || m->is_kept[reg]));
    }
}

/* ---- what is kept ---- */

/* Terms of elements that a later pass reads, too, if each is computed once. */
static void find_crossing(const maker *m, bool crosses[MP_REGISTERS_MAX]) {
    bool known[MP_REGISTERS_MAX] = {false};
    memset(crosses, 0, MP_REGISTERS_MAX * sizeof *crosses);
    for (int pass = 0; pass < m->passes->count; pass++) {
        reads r;
        find_reads(m, pass, known, &r);
        for (int t = 0; t < m->e->term_count; t++) {
            const int reg = MP_FIRST_TERM + t;
            crosses[reg] = crosses[reg] || (r.used[reg] && known[reg] && !m->e->terms[t].is_row);
        }
        know(m, &r, true, known);
    }
}

static void keep(maker *m, int reg) {
    if (m->to->kept_count < MP_ROW_KEPT_MAX) {
        m->is_kept[reg] = true;
        m->to->kept[m->to->kept_count++] = (int16_t)reg;
    }
}

/* Inputs whose elements are to be fetched for more than one pass. */
static void keep_inputs(maker *m) {
    int passes[K_FUSED_IN] = {0};
    for (int pass = 0; pass < m->passes->count; pass++) {
        reads r;
        find_reads(m, pass, NULL, &r);
        for (int i = 0; i < m->e->input_count; i++) {
            passes[i] += r.used[i];
        }
    }
    for (int i = 0; i < m->e->input_count; i++) {
        const bool is_column = m->readings[i] == MP_READ_COLUMN;
        if (passes[i] > 0 && (passes[i] > 1 || is_column) && !mp_expression_is_row(m->e, i) &&
            !is_once(m, i) && !is_in_place(m, i)) {
            keep(m, i);
            m->to->kept_columns |= (uint32_t)(is_column && m->is_kept[i]) << i;
        }
    }
}

static void keep_terms(maker *m) {
    bool crosses[MP_REGISTERS_MAX];
    find_crossing(m, crosses);
    for (int reg = MP_FIRST_TERM; reg < MP_FIRST_TERM + m->e->term_count; reg++) {
        if (crosses[reg]) {
            keep(m, reg);
        }
    }
}

/* ---- slots ---- */

static int16_t take_slot(maker *m) {
    int16_t slot = 0;
    while (m->taken[slot]) {
        slot++;
        assert(slot < MP_ROW_SLOTS_MAX);
    }
    m->taken[slot] = true;
    m->to->slot_count = MP_MAX(m->to->slot_count, slot + 1);
    return slot;
}

static int16_t place_of_kept(const maker *m, int reg) {
    int k = 0;
    while (m->to->kept[k] != reg) {
        k++;
    }
    return (int16_t)(MP_LIES_KEPT + k);
}

/* Those that nothing else may have. */
static void take_for_good(maker *m, int16_t kept_slots[MP_REGISTERS_MAX]) {
    const mp_expression *e = m->e;
    for (int reg = 0; reg < MP_REGISTERS_MAX; reg++) {
        m->to->row_slots[reg] = m->to->spread[reg] = kept_slots[reg] = MP_LIES_NONE;
        if (mp_expression_type(e, reg) == MP_NONE) {
            continue;
        }
        if (mp_expression_is_row(e, reg)) {
            m->to->row_slots[reg] = take_slot(m);
            m->to->spread[reg] = m->is_spread[reg] ? take_slot(m) : MP_LIES_NONE;
        } else if (reg < MP_FIRST_NUMBER && is_once(m, reg)) {
            m->to->once |= 1u << reg;
            m->to->once_slots[reg] = kept_slots[reg] = take_slot(m);
        } else if (m->is_kept[reg]) {
            kept_slots[reg] =
                m->to->keep == MP_KEEP_IN_SLOTS ? take_slot(m) : place_of_kept(m, reg);
        }
    }
}

/* An output that is computed where it is to be: nothing that comes later may read an input there.
 */
static int16_t place_of_output(const maker *m, const reads *r, int t) {
    const mp_expression *e = m->e;
    int found = MP_LIES_NONE;
    for (int i = 0; i < e->output_count; i++) {
        if (e->outputs[i] == MP_FIRST_TERM + t) {
            found = i;
        }
    }
    const mp_dtype type = e->terms[t].type;
    if (found == MP_LIES_NONE || type == MP_F16 || type == MP_BF16) {
        return MP_LIES_NONE;
    }
    for (int i = 0; i < e->input_count; i++) {
        if (r->used[i] && is_in_place(m, i) && r->last[i] > t) {
            return MP_LIES_NONE;
        }
    }
    return (int16_t)(MP_LIES_OUTPUT + found);
}

/* ---- a pass ---- */

static void put(mp_row_plan *plan, int16_t *places, int reg, int16_t place) {
    places[reg] = place;
    plan->places[plan->place_count++] = (mp_row_place){(int16_t)reg, place};
}

static void place_inputs(maker *m, const reads *r, const int16_t *kept_slots, bool *loaded,
                         mp_row_plan *plan, int16_t *places) {
    for (int i = 0; i < m->e->input_count; i++) {
        if (!r->used[i] || mp_expression_is_row(m->e, i)) {
            continue;
        }
        if (kept_slots[i] != MP_LIES_NONE) {
            put(plan, places, i, kept_slots[i]);
        } else if (is_in_place(m, i)) {
            put(plan, places, i, (int16_t)(MP_LIES_INPUT + i));
        } else {
            put(plan, places, i, take_slot(m));
        }
        const bool is_there = is_once(m, i) || is_in_place(m, i) || (m->is_kept[i] && loaded[i]);
        plan->loads |= (uint32_t)!is_there << i;
        loaded[i] = true;
    }
}

/* Of what term `t` was the last to read. */
static void give_slots(maker *m, const reads *r, int t, const int16_t *kept_slots,
                       const int16_t *places) {
    for (size_t k = 0; k < MP_COUNT_OF(m->e->terms[t].x); k++) {
        const int reg = m->e->terms[t].x[k];
        if (reg != MP_NO_REGISTER && !mp_expression_is_row(m->e, reg) &&
            kept_slots[reg] == MP_LIES_NONE && places[reg] < MP_LIES_KEPT && r->last[reg] == t) {
            m->taken[places[reg]] = false;
        }
    }
}

static void make_plan(maker *m, int pass, const int16_t *kept_slots, bool *known, bool *loaded) {
    const mp_expression *e = m->e;
    mp_row_plan *plan = &m->to->plans[pass];
    int16_t places[MP_REGISTERS_MAX];
    bool before[MP_ROW_SLOTS_MAX];
    reads r;
    memcpy(before, m->taken, sizeof before);
    find_reads(m, pass, known, &r);
    place_inputs(m, &r, kept_slots, loaded, plan, places);
    for (int reg = MP_FIRST_NUMBER; reg < MP_FIRST_TERM + e->term_count; reg++) {
        const bool is_term = reg >= MP_FIRST_TERM;
        if (r.used[reg] && (is_number(reg) || mp_expression_is_row(e, reg))) {
            put(plan, places, reg, m->to->spread[reg]);
        } else if (is_term && r.used[reg] && !r.needed[reg]) {
            put(plan, places, reg, kept_slots[reg]);
        }
    }
    for (int i = 0; i < e->input_count; i++) {
        if (r.used[i] && mp_expression_is_row(e, i)) {
            put(plan, places, i, m->to->spread[i]);
        }
    }
    for (int t = 0; t < e->term_count; t++) {
        const int reg = MP_FIRST_TERM + t;
        if (!r.needed[reg]) {
            continue;
        }
        plan->terms[plan->term_count++] = (int16_t)t;
        if (e->terms[t].kind != MP_TERM_REDUCTION) {
            int16_t place = kept_slots[reg];
            if (place == MP_LIES_NONE && pass == m->passes->reducing) {
                place = place_of_output(m, &r, t);
            }
            put(plan, places, reg, place != MP_LIES_NONE ? place : take_slot(m));
        }
        give_slots(m, &r, t, kept_slots, places);
    }
    know(m, &r, false, known);
    memcpy(m->taken, before, sizeof before);
}

/* What is of rows and read by terms of elements. */
static void find_spread(maker *m) {
    for (int pass = 0; pass < m->passes->count; pass++) {
        reads r;
        find_reads(m, pass, NULL, &r);
        for (int reg = 0; reg < MP_FIRST_TERM + m->e->term_count; reg++) {
            m->is_spread[reg] =
                m->is_spread[reg] || (r.used[reg] && mp_expression_type(m->e, reg) != MP_NONE &&
                                      mp_expression_is_row(m->e, reg));
        }
    }
}

void mp_row_schedule_make(const mp_expression *e, const mp_reading *readings,
                          const mp_row_passes *passes, mp_row_keep keep_what,
                          mp_row_schedule *out) {
    maker m = {.e = e, .readings = readings, .passes = passes, .to = out};
    int16_t kept_slots[MP_REGISTERS_MAX];
    bool known[MP_REGISTERS_MAX] = {false}, loaded[K_FUSED_IN] = {false};
    memset(out, 0, sizeof *out);
    out->keep = keep_what;
    if (keep_what != MP_KEEP_NOTHING) {
        keep_inputs(&m);
        keep_terms(&m);
    }
    find_spread(&m);
    take_for_good(&m, kept_slots);
    for (int pass = 0; pass < passes->count; pass++) {
        make_plan(&m, pass, kept_slots, known, loaded);
    }
}
