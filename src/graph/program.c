/* program.c - plans the nodes of a graph one behind the other, so that shapes flow.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/host_value.h"
#include "graph/program_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

void mp_program_retain(mp_program *program) {
    atomic_fetch_add_explicit(&program->references, 1, memory_order_relaxed);
}

void mp_program_release(mp_program *program) {
    if (program == NULL ||
        atomic_fetch_sub_explicit(&program->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    for (int32_t i = 0; i < program->step_count; i++) {
        mp_plan_release(program->steps[i].plan);
    }
    free(program->spots);
    free(program->steps);
    free(program->copies);
    free(program->outputs);
    free(program->lists);
    free(program->literals);
    free(program);
}

const mp_tensor *mp_program_output_at(const mp_program *program, int i) {
    return &program->outputs[i];
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

bool mp_program_draws(const mp_program *program) {
    return program->draws;
}

/* ---- the draft ---- */

/* The most inputs and outputs of a node. */
static size_t widest(const mp_graph *graph) {
    size_t most = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const size_t width = (size_t)v->in_count + (size_t)v->out_count;
        most = width > most ? width : most;
    }
    return most;
}

static size_t list_length(const mp_graph *graph) {
    size_t length = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        length += (size_t)graph->nodes[n].in_count + (size_t)graph->nodes[n].out_count;
    }
    return length;
}

static void draft_close(mp_draft *draft) {
    free(draft->tensors);
    free(draft->work);
    free(draft->last);
    free(draft->first);
    free(draft->is_made);
    free(draft->is_wanted);
}

static mp_status draft_open(mp_device *device, const mp_graph *graph, mp_draft *draft) {
    const size_t values = (size_t)graph->value_count + 1;
    const size_t outputs = (size_t)graph->output_count + 1;
    mp_program *program = calloc(1, sizeof *program);
    *draft = (mp_draft){.graph = graph,
                        .program = program,
                        .tensors = calloc(values, sizeof(mp_tensor)),
                        .work = calloc(widest(graph) + 1, sizeof(mp_tensor)),
                        .last = calloc(values, sizeof(int32_t)),
                        .first = calloc(values, sizeof(int32_t)),
                        .is_made = calloc(values, sizeof(bool)),
                        .is_wanted = calloc(values, sizeof(bool))};
    if (program != NULL) {
        program->references = 1;
        program->device = device;
        program->value_count = graph->value_count;
        program->output_count = graph->output_count;
        program->spots = calloc(values, sizeof *program->spots);
        program->steps = calloc((size_t)graph->node_count + 1, sizeof *program->steps);
        program->copies = calloc(outputs, sizeof *program->copies);
        program->outputs = calloc(outputs, sizeof *program->outputs);
        program->lists = calloc(list_length(graph) + 1, sizeof *program->lists);
    }
    const bool whole = program != NULL && program->spots != NULL && program->steps != NULL &&
                       program->copies != NULL && program->outputs != NULL &&
                       program->lists != NULL && draft->tensors != NULL && draft->work != NULL &&
                       draft->last != NULL && draft->first != NULL && draft->is_made != NULL &&
                       draft->is_wanted != NULL;
    return whole ? MP_OK
                 : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph of %d nodes",
                           (int)graph->node_count);
}

static void find_lives(mp_draft *draft) {
    const mp_graph *graph = draft->graph;
    for (int32_t i = 0; i < graph->value_count; i++) {
        draft->last[i] = draft->first[i] = -1;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int i = 0; i < v->in_count; i++) {
            if (v->in[i] != MP_NO_VALUE) {
                draft->last[v->in[i]] = n;
            }
        }
        for (int i = 0; i < v->out_count; i++) {
            if (v->out[i] != MP_NO_VALUE) {
                draft->first[v->out[i]] = n;
            }
        }
    }
    for (int32_t i = 0; i < graph->output_count; i++) {
        draft->last[graph->outputs[i]] = graph->node_count;
        draft->is_wanted[graph->outputs[i]] = true;
    }
}

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

/* ---- nodes ---- */

static mp_status gather_inputs(const mp_draft *draft, const mp_vertex *v, mp_tensor *in) {
    for (int i = 0; i < v->in_count; i++) {
        in[i] = v->in[i] != MP_NO_VALUE ? draft->tensors[v->in[i]] : (mp_tensor){.type = MP_NONE};
        if (v->in[i] != MP_NO_VALUE && in[i].type == MP_NONE) {
            return MP_FAIL(INTERNAL, "%s '%s' is planned before its input '%s'", v->node.op->name,
                           v->node.name, draft->graph->values[v->in[i]].name);
        }
    }
    return MP_OK;
}

/* Of inputs that a node reads on the host nothing else is needed; others it reads on the device. */
static mp_status check_host_inputs(const mp_draft *draft, const mp_vertex *v, mp_tensor *in) {
    for (int i = 0; i < v->in_count; i++) {
        const bool on_host = mp_op_host_in(v->node.op, (size_t)i);
        if (in[i].type == MP_NONE) {
            continue;
        }
        if (on_host && in[i].data == 0 && mp_shape_count(&in[i].shape) > 0) {
            return MP_FAIL(UNSUPPORTED,
                           "%s '%s' needs its input '%s' to be known when it is planned",
                           v->node.op->name, v->node.name, draft->graph->values[v->in[i]].name);
        }
        if (!on_host) {
            in[i].data = 0;
            draft->is_wanted[v->in[i]] = true;
        }
    }
    return MP_OK;
}

static void set_outputs(mp_draft *draft, const mp_vertex *v, const mp_tensor *out) {
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            draft->tensors[v->out[i]] = out[i];
        }
    }
}

static mp_status add_step(mp_draft *draft, int32_t node, const mp_tensor *in, int32_t align,
                          size_t *listed) {
    mp_program *program = draft->program;
    const mp_vertex *v = &draft->graph->nodes[node];
    mp_program_step *step = &program->steps[program->step_count];
    *step = (mp_program_step){.in = program->lists + *listed,
                              .out = program->lists + *listed + v->in_count,
                              .in_count = v->in_count,
                              .out_count = v->out_count,
                              .node = node};
    MP_TRY(
        mp_plan_make(program->device, &v->node, in, v->in_count, v->out_count, align, &step->plan));
    program->step_count++;
    program->draws = program->draws || v->node.op->draws;
    *listed += (size_t)v->in_count + (size_t)v->out_count;
    const int32_t most = v->in_count > v->out_count ? v->in_count : v->out_count;
    program->width = most > program->width ? most : program->width;
    memcpy(step->in, v->in, (size_t)v->in_count * sizeof *v->in);
    memcpy(step->out, v->out, (size_t)v->out_count * sizeof *v->out);
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            draft->tensors[v->out[i]] = *mp_plan_output_at(step->plan, i);
            draft->is_made[v->out[i]] = true;
        }
    }
    return MP_OK;
}

static mp_status plan_node(mp_draft *draft, int32_t node, int32_t align, mp_host_values *values,
                           size_t *listed) {
    const mp_vertex *v = &draft->graph->nodes[node];
    mp_tensor *in = draft->work;
    mp_tensor *out = in + v->in_count;
    bool done = false;
    MP_TRY(gather_inputs(draft, v, in));
    if (mp_host_value_is_known(&v->node, in, v->in_count)) {
        MP_TRY(mp_host_value_compute(values, &v->node, in, v->in_count, out, v->out_count, &done));
    }
    if (done) {
        set_outputs(draft, v, out);
        return MP_OK;
    }
    MP_TRY(check_host_inputs(draft, v, in));
    return add_step(draft, node, in, align, listed);
}

/* ---- literals ---- */

/* What is known on the host and wanted on the device, one behind the other. */
static mp_status collect_literals(mp_draft *draft) {
    mp_program *program = draft->program;
    size_t total = 0;
    for (int pass = 0; pass < 2; pass++) {
        total = 0;
        for (int32_t i = 0; i < program->value_count; i++) {
            size_t bytes = 0;
            const mp_tensor *tensor = &draft->tensors[i];
            const bool on_device = draft->graph->values[i].device != 0 || draft->is_made[i];
            if (!draft->is_wanted[i] || on_device || tensor->data == 0 ||
                (draft->first[i] < 0 && !draft->graph->values[i].is_constant)) {
                continue;
            }
            MP_TRY(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
            if (pass > 0) {
                program->spots[i] = (mp_spot){.kind = MP_SPOT_LITERAL, .offset = total};
                memcpy(program->literals + total, (const void *)tensor->data, bytes);
            }
            total += MP_ALIGN_UP(bytes, (size_t)MP_ALIGNMENT);
        }
        if (pass == 0 && total > 0) {
            program->literals = calloc(1, total);
            if (program->literals == NULL) {
                return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %zu bytes", total);
            }
        }
    }
    program->literal_bytes = total;
    return MP_OK;
}

/* ---- all ---- */

static mp_status plan_nodes(mp_draft *draft, int32_t align, mp_host_values *values) {
    size_t listed = 0;
    for (int32_t n = 0; n < draft->graph->node_count; n++) {
        MP_TRY(plan_node(draft, n, align, values, &listed));
    }
    return collect_literals(draft);
}

static mp_status make(mp_draft *draft, const mp_tensor *in, int32_t align) {
    mp_host_values values;
    find_lives(draft);
    set_known(draft, in);
    mp_host_values_open(&values);
    const mp_status status = plan_nodes(draft, align, &values);
    mp_host_values_close(&values);
    MP_TRY(status);
    for (int32_t i = 0; i < draft->program->output_count; i++) {
        draft->program->outputs[i] = draft->tensors[draft->graph->outputs[i]];
        draft->program->outputs[i].data = 0;
    }
    return mp_program_place(draft);
}

mp_status mp_program_make(mp_device *device, const mp_graph *graph, const mp_tensor *in,
                          int32_t align, mp_program **out) {
    mp_draft draft;
    mp_status status = draft_open(device, graph, &draft);
    if (status == MP_OK) {
        status = make(&draft, in, align);
    }
    draft_close(&draft);
    if (status != MP_OK) {
        mp_program_release(draft.program);
        return status;
    }
    *out = draft.program;
    return MP_OK;
}
