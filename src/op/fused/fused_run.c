/* fused_run.c - see fused_run.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_run.h"

#include "kernel/core/walk.h"
#include "op/fused/row_fold.h"

#include <assert.h>
#include <string.h>

enum { SOME = 128, ELEMENT_MAX = 8 }; /* elements that are converted at a time, and their bytes */

/* ---- frames ---- */

static void set_walk(k_walk *walk, int64_t count) {
    walk->count = count;
    walk->length = (uint32_t)count;
    walk->by_length = mp_divider((uint32_t)count);
}

void mp__fused_frame_open(mp_fused_frame *frame) {
    const k_walk flat = {.whole = (1u << K_WALK_VIEWS) - 1,
                         .levels = 1,
                         .level = {{.dim = 1, .divider = mp_divider(1)}}};
    frame->count = 0;
    frame->two.walk = flat;
    frame->where.walk = flat;
}

void mp__fused_frame_resize(mp_fused_frame *frame, int64_t count) {
    if (frame->count != count) {
        frame->count = count;
        set_walk(&frame->two.walk, count);
        set_walk(&frame->where.walk, count);
    }
}

/* ---- terms ---- */

void mp__fused_convert(mp_host_entry *entry, const void *from, void *to, int64_t count) {
    const mp_pointwise1_args args = {.x = from, .out = to, .count = count};
    entry(&args);
}

static void run_function(mp_fused_frame *frame, const mp_fused_step *at) {
    const mp_term *term = &at->term;
    unsigned char *out = frame->at[at->out];
    if (term->function->arity == 1) {
        const mp_pointwise1_args args = {.x = frame->at[term->x[0]],
                                         .out = out,
                                         .count = frame->count,
                                         .a = term->a,
                                         .b = term->b};
        at->entries[0](&args);
        return;
    }
    mp_pointwise2_args *args = &frame->two;
    args->x = frame->at[term->x[0]];
    args->y = frame->at[term->x[1]];
    args->out = out;
    args->a = term->a;
    args->b = term->b;
    at->entries[0](args);
}

static void run_casts(mp_fused_frame *frame, const mp_fused_step *at) {
    const mp_term *term = &at->term;
    const mp_dtype kept = mp_fused_kept_as(term->type);
    const size_t from_size = mp_dtype_size(mp_fused_kept_as(term->from));
    const size_t size = mp_dtype_size(kept);
    unsigned char between[MP_FUSED_CASTS_MAX - 1][SOME * ELEMENT_MAX]
        __attribute__((aligned(MP_FUSED_ALIGNED)));
    for (int64_t done = 0; done < frame->count; done += SOME) {
        const int64_t count = MP_MIN(frame->count - done, SOME);
        const void *from = frame->at[term->x[0]] + (size_t)done * from_size;
        for (int i = 0; i < at->entry_count; i++) {
            void *to =
                i + 1 < at->entry_count ? between[i] : frame->at[at->out] + (size_t)done * size;
            mp__fused_convert(at->entries[i], from, to, count);
            from = to;
        }
    }
}

static void run_where(mp_fused_frame *frame, const mp_fused_step *at) {
    mp_where_args *args = &frame->where;
    args->condition = frame->at[at->term.x[0]];
    args->x = frame->at[at->term.x[1]];
    args->y = frame->at[at->term.x[2]];
    args->out = frame->at[at->out];
    at->entries[0](args);
}

void mp__fused_run_step(mp_fused_frame *frame, const mp_fused_step *at) {
    switch (at->term.kind) {
    case MP_TERM_FUNCTION:
        run_function(frame, at);
        break;
    case MP_TERM_CAST:
        run_casts(frame, at);
        break;
    case MP_TERM_WHERE:
        run_where(frame, at);
        break;
    case MP_TERM_REDUCTION: /* row_run.c */
        break;
    }
}

/* ---- inputs ---- */

/* How many of `most` elements from element `first` on are of one row of the walk, in which a view
 * is contiguous or one element; `*at`: where that begins in the view. */
static int64_t run_of(const k_walk *walk, int64_t first, int64_t most, int view, size_t *at) {
    const uint32_t i = (uint32_t)first;
    const int64_t left = walk->length - (i - k_divide(i, walk->by_length) * walk->length);
    uint32_t places[K_WALK_VIEWS];
    k_walk_to(walk, i, K_WALK_VIEWS, places);
    *at = places[view];
    return MP_MIN(left, most);
}

/* Run by run. */
static void gather(const k_walk *walk, int64_t first, int64_t all, const unsigned char *from,
                   size_t size, int view, unsigned char *to) {
    const bool is_repeated = (walk->repeated >> view & 1) != 0;
    int64_t done = 0;
    while (done < all) {
        size_t at = 0;
        const int64_t count = run_of(walk, first + done, all - done, view, &at);
        const unsigned char *row = from + at * size;
        if (is_repeated) {
            mp_row_spread(to + (size_t)done * size, row, size, 1, count);
        } else {
            memcpy(to + (size_t)done * size, row, (size_t)count * size);
        }
        done += count;
    }
}

static int view_of(const mp_fused_program *program, int i) {
    int view = 0;
    for (int k = 0; k < i; k++) {
        view += mp_reading_is_view(program->readings[k]);
    }
    return view;
}

static void load_view(const mp_fused_program *program, const mp_fused_args *args, int i,
                      int64_t first, int64_t all, unsigned char *to) {
    const size_t size = mp_dtype_size(program->e.inputs[i]);
    const size_t kept = mp_fused_kept_size(&program->e, i);
    const int view = view_of(program, i);
    unsigned char raw[SOME * ELEMENT_MAX] __attribute__((aligned(MP_FUSED_ALIGNED)));
    if (program->load[i] == NULL) {
        gather(&args->walk, first, all, args->in[i], size, view, to);
        return;
    }
    for (int64_t done = 0; done < all; done += SOME) {
        const int64_t count = MP_MIN(all - done, SOME);
        gather(&args->walk, first + done, count, args->in[i], size, view, raw);
        mp__fused_convert(program->load[i], raw, to + (size_t)done * kept, count);
    }
}

static void load_run(const mp_fused_program *program, int i, const unsigned char *from,
                     int64_t count, unsigned char *to) {
    if (program->load[i] != NULL) {
        mp__fused_convert(program->load[i], from, to, count);
    } else {
        memcpy(to, from, (size_t)count * mp_dtype_size(program->e.inputs[i]));
    }
}

static void load_one(const mp_fused_program *program, const mp_fused_args *args, int i,
                     int64_t count, unsigned char *to) {
    unsigned char one[ELEMENT_MAX] __attribute__((aligned(ELEMENT_MAX)));
    load_run(program, i, args->in[i], 1, one);
    mp_row_spread(to, one, mp_fused_kept_size(&program->e, i), 1, count);
}

void mp__fused_load(const mp_fused_program *program, const mp_fused_args *args, int i,
                    int64_t first, int64_t column, int64_t count, unsigned char *to) {
    const size_t size = mp_dtype_size(program->e.inputs[i]);
    const unsigned char *from = args->in[i];
    switch (program->readings[i]) {
    case MP_READ_WHOLE:
        load_run(program, i, from + (size_t)first * size, count, to);
        break;
    case MP_READ_ONE:
        load_one(program, args, i, count, to);
        break;
    case MP_READ_VIEW:
    case MP_READ_ROWS:
        load_view(program, args, i, first, count, to);
        break;
    case MP_READ_COLUMN:
        load_run(program, i, from + (size_t)column * size, count, to);
        break;
    case MP_READ_ROW: /* mp__fused_load_rows */
    case MP_READING_END:
        break;
    }
}

void mp__fused_load_rows(const mp_fused_program *program, const mp_fused_args *args, int i,
                         int64_t row, int64_t count, unsigned char *to) {
    const size_t kept = mp_fused_kept_size(&program->e, i);
    const size_t size = mp_dtype_size(program->e.inputs[i]);
    const unsigned char *from = args->in[i];
    if (program->readings[i] == MP_READ_ROW) {
        load_run(program, i, from + (size_t)row * size, count, to);
        return;
    }
    if (program->readings[i] == MP_READ_ONE) {
        load_one(program, args, i, count, to);
        return;
    }
    const int view = view_of(program, i);
    for (int64_t r = 0; r < count; r++) {
        uint32_t at[K_WALK_VIEWS];
        k_walk_to(&args->walk, (uint32_t)((row + r) * args->columns), K_WALK_VIEWS, at);
        load_run(program, i, from + (size_t)at[view] * size, 1, to + (size_t)r * kept);
    }
}

/* ---- outputs ---- */

/* The one output, row by row: the walk's last view. */
static void store_apart(const mp_fused_program *program, const mp_fused_args *args,
                        const unsigned char *from, int64_t first, int64_t all) {
    const mp_expression *e = &program->e;
    const size_t size = mp_dtype_size(mp_expression_type(e, e->outputs[0]));
    const size_t kept = mp_fused_kept_size(e, e->outputs[0]);
    const int view = view_of(program, e->input_count);
    for (int64_t done = 0; done < all;) {
        size_t at = 0;
        const int64_t count = run_of(&args->walk, first + done, all - done, view, &at);
        unsigned char *to = (unsigned char *)args->out[0] + at * size;
        if (program->store[0] != NULL) {
            mp__fused_convert(program->store[0], from + (size_t)done * kept, to, count);
        } else {
            memcpy(to, from + (size_t)done * size, (size_t)count * size);
        }
        done += count;
    }
}

void mp__fused_store(const mp_fused_program *program, const mp_fused_args *args, int i,
                     const unsigned char *from, int64_t first, int64_t count) {
    const size_t size = mp_dtype_size(mp_expression_type(&program->e, program->e.outputs[i]));
    unsigned char *to = (unsigned char *)args->out[i] + (size_t)first * size;
    if (program->e.is_apart) {
        store_apart(program, args, from, first, count);
        return;
    }
    if (program->store[i] != NULL) {
        mp__fused_convert(program->store[i], from, to, count);
    } else if (to != from) {
        memcpy(to, from, (size_t)count * size);
    }
}

/* ---- how many at a time ---- */

int64_t mp__fused_tile(const mp_expression *e, int slot_count) {
    size_t widest = 1;
    for (int reg = 0; reg < MP_FIRST_TERM + e->term_count; reg++) {
        if (mp_expression_type(e, reg) != MP_NONE) {
            widest = MP_MAX(widest, mp_fused_kept_size(e, reg));
        }
    }
    const int64_t tile = mp_fused_pitch(slot_count) / (int64_t)widest;
    assert(tile >= MP_FUSED_TILE_MIN);
    return MP_MIN(tile / MP_FUSED_TILE_MIN * MP_FUSED_TILE_MIN, MP_FUSED_TILE_MAX);
}
