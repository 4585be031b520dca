/* program_run.c - one walk over the steps of a program.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/nvtx.h"
#include "device/profile.h"
#include "graph/program_private.h"

#include <stdio.h>
#include <stdlib.h>

enum { FEW = 512 }; /* addresses that need no memory of their own */

static void collect(const mp_program *program, const mp_program_call *call, const int32_t *values,
                    int32_t count, mp_addr *out) {
    for (int32_t i = 0; i < count; i++) {
        out[i] = values[i] != MP_NO_VALUE ? mp_spot_address(&program->spots[values[i]], call) : 0;
    }
}

static mp_status queue_step(const mp_program *program, const mp_program_step *step,
                            mp_stream *stream, const mp_program_call *call, const mp_addr *in,
                            const mp_addr *out) {
    switch (step->kind) {
    case MP_STEP_PLAN:
        return mp_plan_run(step->plan, stream, in, out, call->block + step->scratch);
    case MP_STEP_COUNT:
        return mp_plan_run(step->plan, stream, in, NULL,
                           call->bases[program->base_first] + step->scratch);
    case MP_STEP_FINISH:
        return mp_plan_run_finish(step->plan, stream, in, out, call->block + step->scratch,
                                  mp_spot_address(&step->counted, call));
    case MP_STEP_LOOP:
        return mp_rounds_run(step->rounds, program->device, stream, in, out,
                             call->block + step->scratch, call->literals);
    }
    return MP_FAIL(INTERNAL, "a program has a step of unknown kind %d", (int)step->kind);
}

/* Gives: whether it has begun, to be ended. */
static bool begin_part(const mp_program *program, const mp_program_step *step) {
    char *text = NULL;
    if (mp_profile_listener() == 0 ||
        asprintf(&text, "%d %s", (int)(program->first_step + (step - program->steps)),
                 step->name->nodes) < 0) {
        return false;
    }
    const bool begun = mp_profile_part_begin(text);
    free(text);
    return begun;
}

/* A walk tells profilers for which nodes of the model it works; captured, the replays tell it. */
static mp_status run_step(const mp_program *program, const mp_program_step *step, mp_stream *stream,
                          const mp_program_call *call, const mp_addr *in, const mp_addr *out) {
    const bool is_part = begin_part(program, step);
    mp__nvtx_push(step->name->title);
    const mp_status status = queue_step(program, step, stream, call, in, out);
    mp__nvtx_pop();
    if (is_part) {
        mp_profile_part_end();
    }
    return status == MP_OK ? MP_OK
                           : mp__fail(status, "%s: %s", step->name->title, mp_error_message());
}

static mp_status run_copy(const mp_program *program, const mp_program_copy *copy, mp_stream *stream,
                          const mp_program_call *call) {
    mp_device *device = program->device;
    const mp_addr from = mp_spot_address(&program->spots[copy->value], call);
    const bool is_part = copy->step >= 0 && begin_part(program, &program->steps[copy->step]);
    const mp_status status =
        device->ops->copy(device, stream, call->out[copy->output], from, copy->bytes);
    if (is_part) {
        mp_profile_part_end();
    }
    return status;
}

static mp_status run_steps(mp_branch_walk *walk, mp_stream *stream, mp_addr *in, mp_addr *out) {
    const mp_program *program = walk->program;
    for (int32_t i = 0; i < program->step_count; i++) {
        const mp_program_step *step = &program->steps[i];
        mp_stream *to = stream;
        if (program->branch_count > 0) {
            MP_TRY(mp_branch_walk_to(walk, step, &to));
        }
        if (to != NULL) {
            collect(program, walk->call, step->in, step->in_count, in);
            collect(program, walk->call, step->out, step->out_count, out);
            MP_TRY(run_step(program, step, to, walk->call, in, out));
        }
    }
    return MP_OK;
}

static mp_status run_with(const mp_program *program, mp_stream *stream, const mp_program_call *call,
                          mp_addr *in, mp_addr *out) {
    mp_branch_walk walk;
    MP_TRY(mp_branch_walk_open(&walk, program, stream, call));
    const mp_status status = run_steps(&walk, stream, in, out);
    const mp_status closed = mp_branch_walk_close(&walk);
    MP_TRY(status != MP_OK ? status : closed);
    for (int32_t i = 0; i < program->copy_count; i++) {
        MP_TRY(run_copy(program, &program->copies[i], stream, call));
    }
    return MP_OK;
}

mp_status mp_program_run(const mp_program *program, mp_stream *stream,
                         const mp_program_call *call) {
    mp_addr few[2 * FEW];
    const size_t width = (size_t)program->width;
    mp_addr *many = width > FEW ? calloc(2 * width, sizeof *many) : NULL;
    if (width > FEW && many == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a run");
    }
    mp_addr *in = many != NULL ? many : few;
    const mp_status status = run_with(program, stream, call, in, in + (many ? width : FEW));
    free(many);
    return status;
}
