/* program.c - a program's life, and what others may know of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

void mp_program_retain(mp_program *program) {
    atomic_fetch_add_explicit(&program->references, 1, memory_order_relaxed);
}

static void destroy(mp_program *program) {
    for (int32_t i = 0; i < program->step_count; i++) {
        mp_program_step_close(&program->steps[i]);
    }
    mp_host_values_close(&program->values);
    free(program->spots);
    free(program->steps);
    free(program->branches);
    free(program->copies);
    free(program->outputs);
    free(program->is_new);
    free(program->over);
    free(program->output_bytes);
    free(program->lists);
    free(program->step_of);
    free(program->recipes);
    free(program->literals);
    free(program->tensors);
    free(program->is_done);
    free(program->is_dead);
    free(program->found);
    free(program->reads);
    free(program->repeats);
    free(program);
}

/* A segment holds the one before it: the last one that goes may take a long chain along. */
void mp_program_release(mp_program *program) {
    while (program != NULL &&
           atomic_fetch_sub_explicit(&program->references, 1, memory_order_acq_rel) == 1) {
        mp_program *before = program->before;
        destroy(program);
        program = before;
    }
}

/* ---- what others may know ---- */

const mp_tensor *mp_program_output_at(const mp_program *program, int i) {
    return &program->outputs[i];
}

size_t mp_program_output_bytes(const mp_program *program, int i) {
    return program->output_bytes[i];
}

int mp_program_over(const mp_program *program, int i) {
    return program->over[i] - 1;
}

bool mp_program_writes(const mp_program *program, int i) {
    return program->is_new[i];
}

const void *mp_program_output_known(const mp_program *program, int i) {
    return (const void *)program->outputs[i].data;
}

size_t mp_program_block_bytes(const mp_program *program) {
    return program->block_bytes;
}

const void *mp_program_literals(const mp_program *program, size_t *size) {
    *size = program->literal_bytes;
    return program->literals;
}

int mp_program_step_count(const mp_program *program) {
    return program->step_count;
}

int64_t mp_program_launch_count(const mp_program *program) {
    return program->launches;
}

bool mp_program_draws(const mp_program *program) {
    return program->draws;
}

bool mp_program_has_branches(const mp_program *program) {
    return program->branch_count > 0;
}

int mp_program_assumption_count(const mp_program *program) {
    return program->assumed.count;
}

mp_status mp_program_fetch_assumptions(const mp_program *program, mp_stream *stream,
                                       const mp_program_call *call, mp_addr pinned) {
    mp_device *device = program->device;
    for (int i = 0; i < program->assumed.count; i++) {
        const mp_spot *spot = &program->spots[program->assumed.list[i].condition];
        MP_TRY(
            device->ops->copy(device, stream, pinned + (size_t)i, mp_spot_address(spot, call), 1));
    }
    return MP_OK;
}

bool mp_program_assumed_right(const mp_program *program, const unsigned char *fetched) {
    bool right = true;
    for (int i = 0; i < program->assumed.count; i++) {
        right = right && (fetched[i] != 0) == program->assumed.list[i].holds;
    }
    return right;
}

bool mp_program_waits_for_condition(const mp_program *program) {
    return program->waits_for_condition;
}

bool mp_program_is_last(const mp_program *program) {
    return program->is_last;
}

int mp_program_base_count(const mp_program *program) {
    return program->base_count;
}

int mp_program_base_own(const mp_program *program) {
    return program->base_first;
}

size_t mp_program_kept_bytes(const mp_program *program) {
    return program->kept_bytes;
}

size_t mp_program_found_bytes(const mp_program *program) {
    return program->found_bytes;
}

int mp_program_read_count(const mp_program *program) {
    return program->read_count;
}

mp_program_span mp_program_read_at(const mp_program *program, int i, const mp_program_call *call) {
    const mp_program_read *read = &program->reads[i];
    mp_program_span span = {.offset = read->offset, .bytes = read->bytes, .input = -1};
    if (read->value == MP_NO_VALUE) {
        const mp_program_step *step = &program->steps[read->step];
        int count = 0;
        span.from =
            call->bases[program->base_first] + step->scratch + mp_plan_found_at(step->plan, &count);
        return span;
    }
    const mp_spot *spot = &program->spots[read->value];
    span.input = spot->kind == MP_SPOT_IN && spot->offset == 0 ? spot->index : -1;
    span.from = mp_spot_address(spot, call);
    return span;
}

int mp_program_repeat_count(const mp_program *program) {
    return program->repeat_count;
}

static const mp_vertex *repeated(const mp_program *program, int i) {
    return &program->graph->nodes[program->repeats[i].node];
}

mp_program_round mp_program_repeat_at(const mp_program *program, int i) {
    const mp_program_repeat *repeat = &program->repeats[i];
    const mp_vertex *v = repeated(program, i);
    return (mp_program_round){.loop = v->loop,
                              .name = v->node.name,
                              .in_count = v->in_count,
                              .out_count = v->out_count,
                              .base = repeat->base,
                              .offset = repeat->offset};
}

const mp_tensor *mp_program_repeat_in(const mp_program *program, int i, int k) {
    static const mp_tensor none = {.type = MP_NONE};
    const mp_vertex *v = repeated(program, i);
    return v->in[k] != MP_NO_VALUE ? &program->tensors[v->in[k]] : &none;
}

mp_addr mp_program_repeat_addr(const mp_program *program, int i, int k,
                               const mp_program_call *call) {
    const mp_vertex *v = repeated(program, i);
    return v->in[k] != MP_NO_VALUE ? mp_spot_address(&program->spots[v->in[k]], call) : 0;
}
