/* program_draft.c - plans the nodes of a graph one behind the other, so that shapes flow, as far as
 * what is known reaches, and settles what a segment is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

/* The most inputs and outputs of a node. */
static size_t widest(const mp_graph *graph) {
    size_t most = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        const size_t width = (size_t)v->in_count + (size_t)v->out_count;
        most = MP_MAX(width, most);
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

/* Where branches are joined, a node is one step, or two. */
static bool open_program(mp_device *device, const mp_graph *graph, int32_t align, bool joins,
                         mp_program *program) {
    const size_t values = (size_t)graph->value_count + 1;
    const size_t outputs = (size_t)graph->output_count + 1;
    const size_t nodes = (size_t)graph->node_count + 1;
    const size_t most = joins ? 2 : 1;
    program->references = 1;
    program->device = device;
    program->graph = graph;
    program->align = align;
    program->value_count = graph->value_count;
    program->output_count = graph->output_count;
    program->spots = calloc(values, sizeof *program->spots);
    program->steps = calloc(most * nodes, sizeof *program->steps);
    program->branches = joins ? calloc(MP_BRANCHES_MOST, sizeof *program->branches) : NULL;
    program->copies = calloc(outputs, sizeof *program->copies);
    program->outputs = calloc(outputs, sizeof *program->outputs);
    program->is_new = calloc(outputs, sizeof *program->is_new);
    program->over = calloc(outputs, sizeof *program->over);
    program->output_bytes = calloc(outputs, sizeof *program->output_bytes);
    program->lists = calloc(most * list_length(graph) + 1, sizeof *program->lists);
    program->step_of = calloc(nodes, sizeof *program->step_of);
    program->tensors = calloc(values, sizeof *program->tensors);
    program->is_done = calloc(nodes, sizeof *program->is_done);
    program->is_dead = calloc(values, sizeof *program->is_dead);
    program->repeats = calloc(nodes, sizeof *program->repeats);
    mp_host_values_open(&program->values);
    return program->spots != NULL && program->steps != NULL && program->copies != NULL &&
           program->outputs != NULL && program->is_new != NULL && program->over != NULL &&
           program->output_bytes != NULL && program->lists != NULL && program->step_of != NULL &&
           program->tensors != NULL && program->is_done != NULL && program->is_dead != NULL &&
           program->repeats != NULL && (program->branches != NULL || !joins);
}

void mp_draft_close(mp_draft *draft) {
    free(draft->work);
    free(draft->last);
    free(draft->first);
    free(draft->fates);
    free(draft->is_made);
    free(draft->is_wanted);
    free(draft->is_asked);
    free(draft->is_again);
    free(draft->outlives);
    free(draft->made_in);
    free(draft->pitches);
}

mp_status mp_draft_open(mp_device *device, const mp_graph *graph, int32_t align,
                        mp_assumptions *assumed, const mp_program *like, mp_draft *draft) {
    const bool joins = assumed != NULL;
    const size_t values = (size_t)graph->value_count + 1;
    mp_program *program = calloc(1, sizeof *program);
    *draft = (mp_draft){.graph = graph,
                        .program = program,
                        .like = like != NULL && like->align == align ? like : NULL,
                        .joins = joins,
                        .assumed = assumed,
                        .pitches = calloc(MP_MAX(widest(graph), K_FUSED_OUT), sizeof(int64_t)),
                        .work = calloc(widest(graph) + 1, sizeof(mp_tensor)),
                        .last = calloc(values, sizeof(int32_t)),
                        .first = calloc(values, sizeof(int32_t)),
                        .fates = calloc((size_t)graph->node_count + 1, sizeof(mp_node_fate)),
                        .is_made = calloc(values, sizeof(bool)),
                        .is_wanted = calloc(values, sizeof(bool)),
                        .is_asked = calloc(values, sizeof(bool)),
                        .is_again = calloc(values, sizeof(bool)),
                        .outlives = calloc(values, sizeof(bool)),
                        .made_in = joins ? calloc(values, sizeof(int32_t)) : NULL};
    const bool whole = program != NULL && open_program(device, graph, align, joins, program) &&
                       draft->work != NULL && draft->last != NULL && draft->first != NULL &&
                       draft->fates != NULL && draft->is_made != NULL && draft->is_wanted != NULL &&
                       draft->is_asked != NULL && draft->is_again != NULL &&
                       draft->outlives != NULL && draft->pitches != NULL &&
                       (draft->made_in != NULL || !joins);
    draft->tensors = program != NULL ? program->tensors : NULL;
    return whole ? MP_OK
                 : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph of %d nodes",
                           (int)graph->node_count);
}

/* ---- literals: what is known on the host and wanted on the device ---- */

static bool is_literal(const mp_draft *draft, int32_t i) {
    const mp_value *value = &draft->graph->values[i];
    const mp_spot_kind kind = draft->program->spots[i].kind;
    const bool is_input = value->producer == MP_NO_NODE && !value->is_constant;
    return draft->is_wanted[i] && draft->tensors[i].data != 0 && value->device == 0 &&
           !draft->is_made[i] && !is_input && (kind == MP_SPOT_NONE || kind == MP_SPOT_LITERAL);
}

/* One behind the other: only where, if there is no memory for them yet. */
static mp_status lay_literals(mp_draft *draft) {
    mp_program *program = draft->program;
    size_t at = 0;
    for (int32_t i = 0; i < program->value_count; i++) {
        size_t bytes = 0;
        if (!is_literal(draft, i)) {
            continue;
        }
        MP_TRY(mp_shape_bytes(&draft->tensors[i].shape, draft->tensors[i].type, &bytes));
        program->spots[i] = (mp_spot){.kind = MP_SPOT_LITERAL, .offset = at};
        if (program->literals != NULL) {
            memcpy(program->literals + at, (const void *)draft->tensors[i].data, bytes);
        }
        at += MP_ALIGN_UP(bytes, (size_t)MP_ALIGNMENT);
    }
    for (int32_t i = 0; i < program->step_count; i++) {
        if (program->steps[i].kind == MP_STEP_LOOP) {
            at += mp_rounds_literals(program->steps[i].rounds, at,
                                     program->literals != NULL ? program->literals + at : NULL);
        }
    }
    program->literal_bytes = at;
    return MP_OK;
}

static mp_status collect_literals(mp_draft *draft) {
    mp_program *program = draft->program;
    MP_TRY(lay_literals(draft));
    if (program->literal_bytes == 0) {
        return MP_OK;
    }
    program->literals = calloc(1, program->literal_bytes);
    return program->literals != NULL
               ? lay_literals(draft)
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory for literals",
                         program->literal_bytes);
}

/* ---- lives ---- */

/* What nodes of later segments read, loops that run behind this one among them, and the conditions
 * that these wait for; but for what the next segment, which these loops are not of, computes again.
 */
static void find_outliving(mp_draft *draft) {
    const mp_graph *graph = draft->graph;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        for (int k = 0; k < v->in_count && !draft->program->is_done[n]; k++) {
            if (v->in[k] != MP_NO_VALUE && (v->loop != NULL || !draft->is_again[v->in[k]])) {
                draft->outlives[v->in[k]] = true;
            }
        }
        for (int32_t g = draft->program->is_done[n] ? 0 : v->guard; g != 0;) {
            draft->outlives[graph->guards[g - 1].condition] = true;
            g = graph->guards[g - 1].outer;
        }
    }
}

/* Two branches make the result of a Choose, one behind the other. */
static void add_maker(const mp_draft *draft, int32_t value, int32_t step) {
    if (draft->first[value] < 0) {
        draft->first[value] = step;
    } else {
        draft->last[value] = step;
    }
}

/* By the order of the steps. */
static void find_lives(mp_draft *draft) {
    const mp_graph *graph = draft->graph;
    for (int32_t i = 0; i < graph->value_count; i++) {
        draft->last[i] = draft->first[i] = -1;
    }
    for (int32_t i = 0; i < draft->program->step_count; i++) {
        mp_program_step *step = &draft->program->steps[i];
        step->at = i;
        for (int k = 0; k < step->in_count; k++) {
            if (step->in[k] != MP_NO_VALUE) {
                draft->last[step->in[k]] = i;
            }
        }
        for (int k = 0; k < step->out_count; k++) {
            if (step->out[k] != MP_NO_VALUE) {
                add_maker(draft, step->out[k], i);
            }
        }
        for (int32_t b = step->branch; b != 0; b = draft->program->branches[b - 1].outer) {
            draft->last[draft->program->branches[b - 1].condition] = i;
        }
    }
    for (int i = 0; i < draft->program->assumed.count; i++) { /* it is read at the end */
        draft->last[draft->program->assumed.list[i].condition] = mp_draft_end(draft);
    }
    for (int32_t i = 0; i < graph->value_count; i++) {
        draft->last[i] = draft->outlives[i] ? mp_draft_end(draft) : draft->last[i];
    }
    for (int32_t i = 0; i < graph->output_count; i++) {
        draft->last[graph->outputs[i]] = mp_draft_end(draft);
    }
}

/* ---- outputs ---- */

static mp_status set_graph_outputs(mp_draft *draft) {
    mp_program *program = draft->program;
    for (int32_t i = 0; i < program->output_count; i++) {
        const int32_t value = draft->graph->outputs[i];
        if (draft->tensors[value].type == MP_NONE || program->outputs[i].type != MP_NONE) {
            continue;
        }
        program->is_new[i] = true;
        program->outputs[i] = draft->tensors[value];
        draft->is_wanted[value] = true;
        MP_TRY(mp_shape_bytes(&program->outputs[i].shape, program->outputs[i].type,
                              &program->output_bytes[i]));
    }
    return MP_OK;
}

/* ---- all ---- */

static mp_status stuck(const mp_draft *draft, int32_t n) {
    char title[MP_TITLE_MAX];
    mp_vertex_title(&draft->graph->nodes[n], title, sizeof title);
    return MP_FAIL(INTERNAL, "%s waits for an input that nothing makes", title);
}

static mp_status find_end(mp_draft *draft) {
    mp_program *program = draft->program;
    const bool goes_on = program->read_count > 0 || program->repeat_count > 0;
    program->is_last = true;
    for (int32_t n = 0; n < draft->graph->node_count && program->is_last; n++) {
        program->is_last = program->is_done[n];
        if (!program->is_last && !goes_on) {
            return stuck(draft, n);
        }
    }
    program->base_count = program->base_first + !program->is_last;
    for (int32_t i = 0; i < program->repeat_count; i++) {
        program->repeats[i].base = program->base_count;
        program->base_count += draft->graph->nodes[program->repeats[i].node].out_count;
    }
    return MP_OK;
}

/* Steps that do nothing are gone now. */
static void number_counts(mp_program *program) {
    for (int32_t i = 0; i < program->read_count; i++) {
        mp_program_read *read = &program->reads[i];
        for (int32_t s = 0; s < program->step_count && read->value == MP_NO_VALUE; s++) {
            const mp_program_step *step = &program->steps[s];
            if (step->kind == MP_STEP_COUNT && step->node == read->node) {
                read->step = s;
            }
        }
    }
}

/* What only further segments need goes with the last one. */
static void forget(mp_program *program) {
    bool knows = false;
    for (int32_t i = 0; i < program->output_count; i++) {
        knows = knows || program->outputs[i].data != 0;
    }
    mp_host_values_rest(&program->values);
    if (!program->is_last) {
        return;
    }
    if (!knows) {
        mp_host_values_close(&program->values);
    }
    free(program->tensors);
    free(program->is_done);
    free(program->is_dead);
    free(program->repeats);
    program->tensors = NULL;
    program->is_done = program->is_dead = NULL;
    program->repeats = NULL;
}

static mp_status settle(mp_draft *draft) {
    MP_TRY(set_graph_outputs(draft));
    MP_TRY(collect_literals(draft));
    find_lives(draft);
    MP_TRY(mp_program_place(draft));
    mp_program_number(draft->program);
    number_counts(draft->program);
    forget(draft->program);
    return MP_OK;
}

/* All in one program, or nothing: what must be read back would end it. */
static mp_status plan_joined(mp_draft *draft) {
    mp_program *program = draft->program;
    bool is_done =
        !draft->asks && program->read_count == 0 && program->repeat_count == 0 && !program->draws;
    for (int32_t n = 0; n < draft->graph->node_count && is_done; n++) {
        is_done = program->is_done[n];
    }
    draft->gives_up = draft->gives_up || !is_done;
    if (draft->gives_up) {
        return MP_OK;
    }
    program->assumed = *draft->assumed;
    mp_draft_keep_conditions(draft, true);
    MP_TRY(mp_draft_clusters(draft));
    mp_draft_keep_conditions(draft, false);
    MP_TRY(mp_draft_branches(draft));
    if (draft->gives_up) {
        return MP_OK;
    }
    MP_TRY(find_end(draft));
    return settle(draft);
}

mp_status mp_draft_plan(mp_draft *draft) {
    for (int32_t n = 0; n < draft->graph->node_count && !draft->gives_up; n++) {
        if (draft->has_strayed) {
            return MP_OK;
        }
        if (!draft->program->is_done[n]) {
            MP_TRY(mp_draft_node(draft, n));
        }
    }
    if (draft->joins) {
        return plan_joined(draft);
    }
    MP_TRY(mp_draft_ask(draft));
    find_outliving(draft);
    MP_TRY(mp_draft_clusters(draft));
    mp_draft_find_strays(draft);
    if (draft->has_strayed) {
        return MP_OK;
    }
    MP_TRY(find_end(draft));
    return settle(draft);
}
