/* program_make.c - what a program is planned with: shapes of inputs, or the segment before it and
 * what was found behind that.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_private.h"
#include "op/core/kernel_batch.h"

#include <stdlib.h>
#include <string.h>

static void set_known(mp_draft *draft, const mp_tensor *in) {
    const mp_graph *graph = draft->graph;
    for (int32_t i = 0; i < graph->value_count; i++) {
        if (graph->values[i].is_constant) {
            draft->tensors[i] = graph->values[i].tensor;
        }
    }
    for (int32_t i = 0; i < graph->input_count; i++) {
        draft->tensors[graph->inputs[i]] = in[i];
    }
}

/* The kernels of all its steps are made ready together. */
static mp_status plan(mp_draft *draft) {
    mp_kernel_batch batch;
    mp_kernel_batch_open(&batch, draft->program->device);
    const mp_status status = mp_draft_plan(draft);
    if (draft->gives_up || draft->has_strayed) {
        batch.count = 0; /* nobody will launch them */
    }
    const mp_status made = mp_kernel_batch_close(&batch);
    return status == MP_OK ? made : status;
}

/* What is known before a draft is planned. */
typedef struct beginning {
    mp_device *device;
    const mp_graph *graph;
    int32_t align;
    mp_assumptions *assumed;
    const mp_program *like;
    const mp_tensor *in; /* of the first segment */
    mp_program *before;  /* of others, and what was found behind it */
    const void *found;
} beginning;

static mp_status begin(const beginning *from, mp_draft *draft);

/* One attempt; another one is to be made where values strayed. */
static mp_status try_make(const beginning *from, bool *strays, bool *again, mp_program **out) {
    mp_draft draft;
    mp_status status =
        mp_draft_open(from->device, from->graph, from->align, from->assumed, from->like, &draft);
    draft.strays = strays;
    if (status == MP_OK) {
        status = begin(from, &draft);
    }
    if (status == MP_OK) {
        status = plan(&draft);
    }
    mp_draft_close(&draft);
    *again = status == MP_OK && draft.has_strayed;
    *out = draft.program;
    if (status != MP_OK || draft.gives_up || draft.has_strayed) {
        mp_program_release(draft.program);
        *out = NULL;
    }
    return status;
}

static mp_status make(const beginning *from, mp_program **out) {
    const bool lays = from->graph->lays_within && from->assumed == NULL;
    bool *strays = lays ? calloc((size_t)from->graph->value_count + 1, sizeof *strays) : NULL;
    bool again = true;
    mp_status status = MP_OK;
    *out = NULL;
    if (lays && strays == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph");
    }
    while (status == MP_OK && again) {
        status = try_make(from, strays, &again, out);
    }
    free(strays);
    return status;
}

mp_status mp_program_make(mp_device *device, const mp_graph *graph, const mp_tensor *in,
                          int32_t align, const mp_program *like, mp_program **out) {
    const beginning from = {
        .device = device, .graph = graph, .align = align, .like = like, .in = in};
    return make(&from, out);
}

mp_status mp_program_join(mp_device *device, const mp_graph *graph, const mp_tensor *in,
                          int32_t align, mp_program **out) {
    mp_assumptions assumed = {.is_new = true};
    const beginning from = {
        .device = device, .graph = graph, .align = align, .assumed = &assumed, .in = in};
    while (assumed.is_new) {
        assumed.is_new = false;
        MP_TRY(make(&from, out));
    }
    return MP_OK;
}

/* ---- the next segment ---- */

static void set_found(mp_draft *draft, const mp_program *before) {
    const mp_program *program = draft->program;
    for (int32_t i = 0; i < before->read_count; i++) {
        const mp_program_read *read = &before->reads[i];
        if (read->value != MP_NO_VALUE) {
            draft->tensors[read->value].data = (mp_addr)(program->found + read->offset);
        }
    }
}

static void set_results(mp_draft *draft, const mp_program *before) {
    mp_program *program = draft->program;
    for (int32_t i = 0; i < before->repeat_count; i++) {
        const mp_program_repeat *repeat = &before->repeats[i];
        const mp_vertex *v = &draft->graph->nodes[repeat->node];
        for (int k = 0; k < v->out_count; k++) {
            if (v->out[k] == MP_NO_VALUE) {
                continue;
            }
            memcpy(&draft->tensors[v->out[k]],
                   program->found + repeat->offset + (size_t)k * sizeof(mp_tensor),
                   sizeof(mp_tensor));
            program->spots[v->out[k]] = (mp_spot){.kind = MP_SPOT_BASE, .index = repeat->base + k};
        }
        program->is_done[repeat->node] = true;
    }
}

/* Literals are a segment's own, and so is what does not outlive it. */
static void take_over(mp_draft *draft, const mp_program *before) {
    mp_program *program = draft->program;
    const size_t values = (size_t)program->value_count;
    memcpy(program->tensors, before->tensors, values * sizeof *program->tensors);
    memcpy(program->is_done, before->is_done, (size_t)draft->graph->node_count);
    memcpy(program->is_dead, before->is_dead, values);
    for (size_t i = 0; i < values; i++) {
        const mp_spot_kind kind = before->spots[i].kind;
        if (kind != MP_SPOT_LITERAL && kind != MP_SPOT_BLOCK) {
            program->spots[i] = before->spots[i];
        }
    }
    for (int32_t i = 0; i < program->output_count; i++) {
        program->outputs[i] = before->outputs[i];
        program->output_bytes[i] = before->output_bytes[i];
    }
    program->base_first = before->base_count;
}

static mp_status begin(const beginning *from, mp_draft *draft) {
    mp_program *program = draft->program, *before = from->before;
    if (before == NULL) {
        set_known(draft, from->in);
        return MP_OK;
    }
    program->found = malloc(before->found_bytes + 1);
    if (program->found == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph on");
    }
    memcpy(program->found, from->found, before->found_bytes);
    program->before = before;
    mp_program_retain(before);
    take_over(draft, before);
    set_found(draft, before);
    set_results(draft, before);
    return MP_OK;
}

mp_status mp_program_continue(mp_program *before, const void *found, const mp_program *like,
                              mp_program **out) {
    const beginning from = {.device = before->device,
                            .graph = before->graph,
                            .align = before->align,
                            .like = like,
                            .before = before,
                            .found = found};
    return make(&from, out);
}
