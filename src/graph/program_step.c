/* program_step.c - adds a step to a draft.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/program_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static void name_release(mp_step_name *name) {
    if (name == NULL || atomic_fetch_sub_explicit(&name->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    free(name->title);
    free(name->nodes);
    free(name);
}

void mp_program_name_same(mp_program_step *step, const mp_program_step *same) {
    atomic_fetch_add_explicit(&same->name->references, 1, memory_order_relaxed);
    step->name = same->name;
}

mp_status mp_program_name_origins(mp_program_step *step, mp_origins origins, const char *title) {
    mp_step_name *name = calloc(1, sizeof *name);
    char *copy = strdup(title);
    if (name == NULL || copy == NULL) {
        free(name);
        free(copy);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the name of a step");
    }
    name->references = 1;
    name->title = copy;
    step->name = name;
    return mp_origins_json(origins, &name->nodes);
}

mp_status mp_program_name_node(mp_program_step *step, const mp_vertex *v) {
    char title[MP_TITLE_MAX];
    mp_vertex_title(v, title, sizeof title);
    return mp_program_name_origins(step, v->origins, title);
}

void mp_program_step_close(mp_program_step *step) {
    mp_plan_release(step->plan);
    mp_rounds_destroy(step->rounds);
    name_release(step->name);
    step->plan = NULL;
    step->rounds = NULL;
    step->name = NULL;
}

/* ---- steps ---- */

mp_program_step *mp_draft_step_of(mp_draft *draft, const mp_step_ends *ends) {
    mp_program *program = draft->program;
    mp_program_step *step = &program->steps[program->step_count++];
    *step = (mp_program_step){.in = program->lists + draft->listed,
                              .out = program->lists + draft->listed + ends->in_count,
                              .in_count = ends->in_count,
                              .out_count = ends->out_count,
                              .node = ends->node};
    draft->listed += (size_t)ends->in_count + (size_t)ends->out_count;
    program->width = MP_MAX(program->width, MP_MAX(ends->in_count, ends->out_count));
    memcpy(step->in, ends->in, (size_t)ends->in_count * sizeof *ends->in);
    memcpy(step->out, ends->out, (size_t)ends->out_count * sizeof *ends->out);
    for (int i = 0; i < step->out_count; i++) {
        if (step->out[i] != MP_NO_VALUE) {
            draft->is_made[step->out[i]] = true;
        }
    }
    return step;
}

mp_program_step *mp_draft_step(mp_draft *draft, int32_t node, bool has_outputs) {
    const mp_vertex *v = &draft->graph->nodes[node];
    const mp_step_ends ends = {.node = node,
                               .in = v->in,
                               .out = v->out,
                               .in_count = v->in_count,
                               .out_count = has_outputs ? v->out_count : 0};
    draft->fates[node] = MP_FATE_STEP; /* a loop that runs behind the segment has no step */
    draft->program->draws = draft->program->draws || v->node.op->draws;
    mp_program_step *step = mp_draft_step_of(draft, &ends);
    step->op = v->node.op;
    return step;
}

void mp_draft_set_planned(mp_draft *draft, const mp_program_step *step) {
    for (int i = 0; i < step->out_count; i++) {
        if (step->out[i] != MP_NO_VALUE) {
            draft->tensors[step->out[i]] = *mp_plan_output_at(step->plan, i);
        }
    }
    draft->program->launches += mp_plan_step_count(step->plan);
}

/* Where the outputs may lie. A Choose is what it has chosen; what a plan only copies may stay where
 * it is: a Transpose that moves no more than dimensions of 1, an Expand to the shape that is there.
 */
static void set_aliases(const mp_draft *draft, const mp_vertex *v, mp_program_step *step) {
    const mp_op *op = v->node.op;
    if (mp_vertex_is_own(v, "Choose")) {
        step->view_of = *(const bool *)(uintptr_t)draft->tensors[v->in[0]].data ? 2 : 3;
        return;
    }
    size_t offset = 0;
    step->view_of = op->view_of == 0 && mp_plan_is_copy(step->plan, &offset) ? 1 : op->view_of;
    step->in_place_count = op->in_place_count;
    memcpy(step->in_place, op->in_place, sizeof step->in_place);
}

/* As mp_node.constants. */
static uint32_t constants_of(const mp_graph *graph, const mp_vertex *v) {
    uint32_t constants = 0;
    for (int i = 0; i < v->in_count && i < 32; i++) {
        const mp_value *value = v->in[i] != MP_NO_VALUE ? &graph->values[v->in[i]] : NULL;
        if (value != NULL && value->is_constant && value->device != 0) {
            constants |= 1u << i;
        }
    }
    return constants;
}

mp_status mp_draft_plan_step(mp_draft *draft, int32_t node, mp_tensor *in) {
    const mp_vertex *v = &draft->graph->nodes[node];
    const mp_step_ends ends = {.node = node,
                               .in = v->in,
                               .out = v->out,
                               .in_count = v->in_count,
                               .out_count = v->out_count};
    mp_node planned = v->node;
    mp_step_plan made;
    if (!mp_draft_suits(draft, v->node.op, &ends)) {
        return MP_OK;
    }
    planned.constants = constants_of(draft->graph, v);
    mp_draft_set_there(draft, v, in);
    const mp_step_form form = {.out_pitch = mp_draft_pitches(draft, v->out, v->out_count)};
    const mp_status status = mp_draft_step_plan(draft, &ends, &planned, in, &form, &made);
    if (status == MP_UNSUPPORTED && mp_draft_stray(draft, &ends)) {
        return MP_OK; /* of these sizes the operator does not: it is planned again without */
    }
    MP_TRY(status);
    mp_program_step *step = mp_draft_step(draft, node, true);
    step->plan = made.plan;
    step->recipe = made.recipe;
    set_aliases(draft, v, step);
    mp_draft_set_planned(draft, step);
    const mp_program_step *like = mp_draft_like(draft, node);
    if (like != NULL && like->op == step->op) { /* no cluster that begins with the node */
        mp_program_name_same(step, like);
        return MP_OK;
    }
    return mp_program_name_node(step, v);
}
