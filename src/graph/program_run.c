/* program_run.c - one walk over the steps of a program.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_private.h"

#include <stdlib.h>

enum { FEW = 512 }; /* addresses that need no memory of their own */

static mp_addr address_of(const mp_spot *spot, const mp_program_call *call) {
    switch (spot->kind) {
    case MP_SPOT_NONE:
        return 0;
    case MP_SPOT_IN:
        return call->in[spot->index];
    case MP_SPOT_OUT:
        return call->out[spot->index];
    case MP_SPOT_FIXED:
        return spot->offset;
    case MP_SPOT_LITERAL:
        return call->literals + spot->offset;
    case MP_SPOT_BLOCK:
        return call->block + spot->offset;
    }
    return 0;
}

static void collect(const mp_program *program, const mp_program_call *call, const int32_t *values,
                    int32_t count, mp_addr *out) {
    for (int32_t i = 0; i < count; i++) {
        out[i] = values[i] != MP_NO_VALUE ? address_of(&program->spots[values[i]], call) : 0;
    }
}

static mp_status run_with(const mp_program *program, mp_stream *stream, const mp_program_call *call,
                          mp_addr *in, mp_addr *out) {
    for (int32_t i = 0; i < program->step_count; i++) {
        const mp_program_step *step = &program->steps[i];
        collect(program, call, step->in, step->in_count, in);
        collect(program, call, step->out, step->out_count, out);
        MP_TRY(mp_plan_run(step->plan, stream, in, out, call->block + step->scratch));
    }
    for (int32_t i = 0; i < program->copy_count; i++) {
        const mp_program_copy *copy = &program->copies[i];
        const mp_addr from = address_of(&program->spots[copy->value], call);
        MP_TRY(program->device->ops->copy(program->device, stream, call->out[copy->output], from,
                                          copy->bytes));
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
