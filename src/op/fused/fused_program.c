/* fused_program.c - runs an expression by the kernels of single functions.
 *
 * Registers are slots of some elements on the stack; float16 and bfloat16 are kept as float. What a
 * term takes as it is, it reads where the input is. What is an output as it is, a term writes there
 * if no input is read later: an output may lie where an input does. Where there are reductions,
 * rows are gone through in passes (row_run.c).
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_program.h"

#include "kernel/core/prelude.h"
#include "op/core/kernel_cache.h"
#include "op/fused/fused_run.h"
#include "op/fused/row_fold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static mp_status find_cast(mp_dtype from, mp_dtype to, mp_host_entry **out) {
    char name[64];
    *out = NULL;
    if (from == to) {
        return MP_OK;
    }
    (void)snprintf(name, sizeof name, "cast_%s_%s", mp_dtype_word(from), mp_dtype_word(to));
    return mp_kernel_cache_host_entry(name, out);
}

static mp_status add_cast(mp_fused_step *to, mp_dtype from, mp_dtype type) {
    mp_host_entry *entry = NULL;
    MP_TRY(find_cast(from, type, &entry));
    if (entry != NULL) {
        to->entries[to->entry_count++] = entry;
    }
    return MP_OK;
}

static mp_status find_entries(mp_fused_step *to) {
    const mp_term *term = &to->term;
    char name[64];
    switch (term->kind) {
    case MP_TERM_FUNCTION:
        (void)snprintf(name, sizeof name, "pointwise%d_%s_%s", term->function->arity,
                       term->function->word, mp_dtype_word(mp_fused_kept_as(term->from)));
        break;
    case MP_TERM_WHERE:
        (void)snprintf(name, sizeof name, "where_b%zu",
                       8 * mp_dtype_size(mp_fused_kept_as(term->type)));
        break;
    case MP_TERM_CAST:
        MP_TRY(add_cast(to, mp_fused_kept_as(term->from), term->from));
        MP_TRY(add_cast(to, term->from, term->type));
        return add_cast(to, term->type, mp_fused_kept_as(term->type));
    case MP_TERM_REDUCTION: /* computed here */
        return MP_OK;
    }
    to->entry_count = 1;
    return mp_kernel_cache_host_entry(name, &to->entries[0]);
}

static mp_status make_steps(mp_fused_program *program) {
    const mp_expression *e = &program->e;
    for (int t = 0; t < e->term_count; t++) {
        mp_fused_step *at = &program->steps[t];
        at->term = e->terms[t];
        at->out = (int16_t)(MP_FIRST_TERM + t);
        MP_TRY(find_entries(at));
    }
    return MP_OK;
}

/* Whether a term behind `t` reads an input where it is. */
static bool is_read_behind(const mp_fused_program *program, int t) {
    int16_t last[MP_REGISTERS_MAX];
    mp_expression_lives(&program->e, last);
    for (int i = 0; i < program->e.input_count; i++) {
        if (mp_row_reads_in_place(&program->e, program->readings, i) && last[i] > t) {
            return true;
        }
    }
    return false;
}

static mp_status fill_program(mp_fused_program *program) {
    const mp_expression *e = &program->e;
    for (int i = 0; i < e->input_count; i++) {
        MP_TRY(find_cast(e->inputs[i], mp_fused_kept_as(e->inputs[i]), &program->load[i]));
    }
    MP_TRY(make_steps(program));
    for (int i = 0; i < e->output_count; i++) {
        const mp_dtype type = mp_expression_type(e, e->outputs[i]);
        MP_TRY(find_cast(mp_fused_kept_as(type), type, &program->store[i]));
    }
    return MP_OK;
}

static void place_registers(mp_fused_program *program) {
    const mp_expression *e = &program->e;
    if (e->row_dims > 0) {
        mp_row_passes_find(e, &program->passes);
        for (int keep = 0; keep < MP_KEEP_END; keep++) {
            mp_row_schedule_make(e, program->readings, &program->passes, (mp_row_keep)keep,
                                 &program->schedules[keep]);
        }
        return;
    }
    mp_expression_slots(e, program->slots);
    for (int reg = 0; reg < MP_FIRST_TERM + e->term_count; reg++) {
        if (mp_expression_type(e, reg) != MP_NONE) {
            program->slot_count = MP_MAX(program->slot_count, program->slots[reg] + 1);
        }
    }
    for (int i = 0; i < e->output_count; i++) {
        program->is_direct[i] = program->store[i] == NULL && !e->is_apart &&
                                !is_read_behind(program, e->outputs[i] - MP_FIRST_TERM);
    }
}

mp_status mp_fused_program_make(const mp_expression *e, const mp_reading *readings,
                                mp_fused_program **out) {
    const size_t steps = (size_t)e->term_count * sizeof(mp_fused_step);
    mp_fused_program *program = calloc(1, sizeof *program + steps);
    if (program == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an expression of %d terms",
                       e->term_count);
    }
    program->e = *e;
    memcpy(program->readings, readings, (size_t)e->input_count * sizeof *readings);
    const mp_status status = fill_program(program);
    if (status != MP_OK) {
        free(program);
        return status;
    }
    place_registers(program);
    *out = program;
    return MP_OK;
}

/* ---- running ---- */

static void run_block(const mp_fused_program *program, const mp_fused_args *args, int64_t first,
                      mp_fused_frame *frame) {
    const mp_expression *e = &program->e;
    for (int i = 0; i < e->input_count; i++) {
        if (mp_row_reads_in_place(e, program->readings, i)) {
            frame->at[i] = (unsigned char *)(uintptr_t)args->in[i] +
                           (size_t)first * mp_dtype_size(e->inputs[i]);
        } else {
            mp__fused_load(program, args, i, first, 0, frame->count, frame->at[i]);
        }
    }
    for (int i = 0; i < e->output_count; i++) {
        if (program->is_direct[i]) {
            frame->at[e->outputs[i]] =
                (unsigned char *)args->out[i] +
                (size_t)first * mp_dtype_size(mp_expression_type(e, e->outputs[i]));
        }
    }
    for (int t = 0; t < e->term_count; t++) {
        mp__fused_run_step(frame, &program->steps[t]);
    }
    for (int i = 0; i < e->output_count; i++) {
        mp__fused_store(program, args, i, frame->at[e->outputs[i]], first, frame->count);
    }
}

/* Blocks are dealt to lanes in turn. */
static void run_blocks(const mp_fused_program *program, const mp_fused_args *args,
                       unsigned char *area, int64_t number, int64_t lanes) {
    const mp_expression *e = &program->e;
    const int64_t share = MP_CEIL_DIV(args->walk.count, lanes); /* none idles for others' tiles */
    const int64_t tile = MP_MIN(mp__fused_tile(e, program->slot_count),
                                MP_ALIGN_UP(share, (int64_t)MP_FUSED_TILE_MIN));
    mp_fused_frame frame;
    mp__fused_frame_open(&frame);
    for (int reg = 0; reg < MP_FIRST_TERM + e->term_count; reg++) {
        frame.at[reg] =
            area + (size_t)program->slots[reg] * (size_t)mp_fused_pitch(program->slot_count);
    }
    for (int i = 0; i < e->number_count; i++) {
        mp_row_spread(frame.at[MP_FIRST_NUMBER + i], &args->numbers[i], sizeof(float), 1, tile);
    }
    for (int64_t first = number * tile; first < args->walk.count; first += lanes * tile) {
        mp__fused_frame_resize(&frame, MP_MIN(args->walk.count - first, tile));
        run_block(program, args, first, &frame);
    }
}

/* The kernels that are called within are those of a grid of one lane. */
void mp_fused_program_enter(const void *packed) {
    const mp_fused_args *args = packed;
    const mp_fused_program *program = args->program;
    const struct k_lane lane = k_lane;
    const int64_t number = (int64_t)lane.block.x * lane.block_dim.x + lane.thread.x;
    const int64_t lanes = (int64_t)lane.block_dim.x * lane.grid_dim.x;
    unsigned char area[MP_FUSED_AREA] __attribute__((aligned(MP_FUSED_ALIGNED)));
    k_lane = (struct k_lane){.block_dim = {1, 1, 1}, .grid_dim = {1, 1, 1}};
    if (program->e.row_dims > 0) {
        mp__fused_run_rows(program, args, area, k_share(args->rows, number, lanes),
                           k_share(args->rows, number + 1, lanes));
    } else {
        run_blocks(program, args, area, number, lanes);
    }
    k_lane = lane;
}
