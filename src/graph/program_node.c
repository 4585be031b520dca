/* program_node.c - plans one node: as soon as its inputs are known, in the order of the graph. What
 * it waits for is asked for, and ends the segment.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/program_private.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 16 };

static void ask_for(mp_draft *draft, int32_t value) {
    draft->is_asked[value] = true;
    draft->asks = true;
}

/* ---- whether a node can be planned now ---- */

typedef enum readiness {
    READY,
    WAITS,
    GONE, /* it is in a branch that is not taken */
    OPEN, /* of a condition: it may hold or not, and both branches are planned */
} readiness;

/* Conditions and trip counts are read as one element, whatever their shape. */
static mp_status check_single(const mp_draft *draft, int32_t value) {
    const mp_shape *shape = &draft->tensors[value].shape;
    char text[MP_SHAPE_TEXT];
    return mp_shape_count(shape) == 1
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "'%s' is a condition or a trip count and has the shape %s; it must have "
                         "one element",
                         draft->graph->values[value].name, mp_shape_text(shape, text));
}

/* Whether the condition `value` holds. Asks for it where it is there, and not known. */
static mp_status condition_of(mp_draft *draft, int32_t value, readiness *ready, bool *holds) {
    const mp_tensor *tensor = &draft->tensors[value];
    *ready = draft->program->is_dead[value] ? GONE : WAITS;
    if (draft->program->is_dead[value] || tensor->type == MP_NONE) {
        return MP_OK;
    }
    MP_TRY(check_single(draft, value));
    if (draft->joins) {
        mp_draft_take_assumption(draft, value);
    }
    if (tensor->data == 0 && draft->joins) {
        *ready = OPEN;
        return MP_OK;
    }
    if (tensor->data == 0) {
        ask_for(draft, value);
        draft->program->waits_for_condition = true;
        return MP_OK;
    }
    *ready = READY;
    *holds = *(const bool *)(uintptr_t)tensor->data;
    return MP_OK;
}

static mp_status look_at_guard(mp_draft *draft, int32_t guard, readiness *ready) {
    bool holds = false;
    *ready = READY;
    if (guard == 0) {
        return MP_OK;
    }
    const mp_guard *g = &draft->graph->guards[guard - 1];
    MP_TRY(look_at_guard(draft, g->outer, ready));
    if (*ready != READY) {
        return MP_OK;
    }
    MP_TRY(condition_of(draft, g->condition, ready, &holds));
    *ready = *ready == READY && holds != g->wanted ? GONE : *ready == OPEN ? READY : *ready;
    return MP_OK;
}

/* Both branches have to be there, and to give the same. */
static void look_at_both(mp_draft *draft, const mp_vertex *v, mp_tensor *in, readiness *ready) {
    for (int i = 0; i < 3; i++) {
        in[i] = draft->tensors[v->in[i]];
    }
    const bool same = in[1].type == in[2].type && mp_shape_equal(&in[1].shape, &in[2].shape);
    const bool there = in[1].type != MP_NONE && in[2].type != MP_NONE;
    draft->gives_up = !there || !same;
    *ready = draft->gives_up ? WAITS : READY;
}

/* Of the two branches only one has to be there, where it is known which. */
static mp_status look_at_choice(mp_draft *draft, const mp_vertex *v, mp_tensor *in,
                                readiness *ready) {
    bool holds = false;
    MP_TRY(condition_of(draft, v->in[0], ready, &holds));
    if (*ready == OPEN) {
        look_at_both(draft, v, in, ready);
    }
    if (*ready != READY || mp_draft_is_open(draft, v->in[0])) {
        return MP_OK;
    }
    const int32_t chosen = v->in[holds ? 1 : 2];
    *ready = draft->program->is_dead[chosen]          ? GONE
             : draft->tensors[chosen].type == MP_NONE ? WAITS
                                                      : READY;
    in[0] = draft->tensors[v->in[0]];
    in[1] = holds ? draft->tensors[chosen] : (mp_tensor){.type = MP_NONE};
    in[2] = holds ? (mp_tensor){.type = MP_NONE} : draft->tensors[chosen];
    return MP_OK;
}

static readiness look_at_inputs(const mp_draft *draft, const mp_vertex *v, mp_tensor *in) {
    readiness ready = READY;
    for (int i = 0; i < v->in_count; i++) {
        const int32_t value = v->in[i];
        in[i] = value != MP_NO_VALUE ? draft->tensors[value] : (mp_tensor){.type = MP_NONE};
        if (value != MP_NO_VALUE && draft->program->is_dead[value]) {
            return GONE;
        }
        ready = value != MP_NO_VALUE && in[i].type == MP_NONE ? WAITS : ready;
    }
    return ready;
}

static mp_status look(mp_draft *draft, const mp_vertex *v, mp_tensor *in, readiness *ready) {
    MP_TRY(look_at_guard(draft, v->guard, ready));
    if (*ready != READY) {
        return MP_OK;
    }
    if (mp_vertex_is_own(v, "Choose")) {
        return look_at_choice(draft, v, in, ready);
    }
    *ready = look_at_inputs(draft, v, in);
    return MP_OK;
}

/* Of inputs that a node reads on the host nothing else is needed; others it reads on the device.
 * Returns false where one has to be read back first. */
static bool check_host_inputs(mp_draft *draft, const mp_vertex *v, mp_tensor *in) {
    bool lacks = false;
    for (int i = 0; i < v->in_count; i++) {
        const bool on_host = mp_op_host_in(v->node.op, (size_t)i);
        if (in[i].type != MP_NONE && on_host && in[i].data == 0 &&
            mp_shape_count(&in[i].shape) > 0) {
            lacks = true;
            ask_for(draft, v->in[i]);
        }
    }
    for (int i = 0; i < v->in_count && !lacks; i++) {
        if (in[i].type != MP_NONE && !mp_op_host_in(v->node.op, (size_t)i)) {
            in[i].data = v->loop != NULL ? in[i].data : 0;
            draft->is_wanted[v->in[i]] = true;
        }
    }
    return !lacks;
}

/* ---- steps ---- */

static void set_outputs(mp_draft *draft, const mp_vertex *v, const mp_tensor *out) {
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            draft->tensors[v->out[i]] = out[i];
        }
    }
}

static void set_gone(mp_draft *draft, const mp_vertex *v) {
    for (int i = 0; i < v->out_count; i++) {
        if (v->out[i] != MP_NO_VALUE) {
            draft->program->is_dead[v->out[i]] = true;
        }
    }
}

/* ---- nodes whose sizes depend on data ---- */

static mp_status add_count(mp_draft *draft, int32_t node, const mp_tensor *in) {
    mp_program *program = draft->program;
    const mp_vertex *v = &draft->graph->nodes[node];
    mp_plan *plan = NULL;
    int count = 0;
    MP_TRY(mp_plan_make(program->device, &v->node, in, v->in_count, v->out_count, program->align,
                        &plan));
    mp_program_step *step = mp_draft_step(draft, node, false);
    step->kind = MP_STEP_COUNT;
    step->plan = plan;
    MP_TRY(mp_program_name_node(step, v));
    program->launches += mp_plan_step_count(plan);
    (void)mp_plan_found_at(plan, &count);
    return mp_draft_read(draft, (mp_program_read){.value = MP_NO_VALUE,
                                                  .node = node,
                                                  .bytes = (size_t)count * sizeof(int64_t)});
}

/* What the segment before has counted for the node; NULL where it has not. */
static const mp_program_read *counted_before(const mp_program *program, int32_t node) {
    const mp_program *before = program->before;
    for (int32_t i = 0; before != NULL && i < before->read_count; i++) {
        if (before->reads[i].value == MP_NO_VALUE && before->reads[i].node == node) {
            return &before->reads[i];
        }
    }
    return NULL;
}

static mp_status add_finish(mp_draft *draft, int32_t node, const mp_tensor *in,
                            const mp_program_read *read) {
    mp_program *program = draft->program;
    const mp_vertex *v = &draft->graph->nodes[node];
    int64_t found[MP_FOUND_MAX] = {0};
    mp_plan *plan = NULL;
    memcpy(found, program->found + read->offset, read->bytes);
    MP_TRY(mp_plan_finish(program->device, &v->node, in, v->in_count, v->out_count, program->align,
                          found, &plan));
    mp_program_step *step = mp_draft_step(draft, node, true);
    step->kind = MP_STEP_FINISH;
    step->plan = plan;
    step->counted = (mp_spot){.kind = MP_SPOT_BASE,
                              .index = program->before->base_first,
                              .offset = program->before->steps[read->step].scratch};
    mp_draft_set_planned(draft, step);
    program->is_done[node] = true;
    return mp_program_name_node(step, v);
}

/* ---- loops ---- */

static mp_status add_loop(mp_draft *draft, int32_t node, const mp_tensor *in) {
    mp_program *program = draft->program;
    const mp_vertex *v = &draft->graph->nodes[node];
    bool done = false;
    MP_TRY(mp_rounds_plan(draft, node, in, &done));
    if (done) {
        program->is_done[node] = true;
        return MP_OK;
    }
    program->repeats[program->repeat_count++] =
        (mp_program_repeat){.node = node, .offset = program->found_bytes};
    program->found_bytes += MP_ALIGN_UP((size_t)v->out_count * sizeof(mp_tensor), (size_t)ALIGNED);
    return MP_OK;
}

/* ---- nodes ---- */

/* Whether a reduction may be part of a cluster. A graph with branches is planned as segments first
 * and as one program later, and what is in a segment is not what is in the program: a sum in
 * another order would give other bits from one run to the next. */
static bool has_rows(const mp_graph *graph) {
    return graph->has_row_clusters && graph->guard_count == 0;
}

static mp_status plan_ready(mp_draft *draft, int32_t n, mp_tensor *in) {
    mp_program *program = draft->program;
    const mp_vertex *v = &draft->graph->nodes[n];
    mp_tensor *out = in + v->in_count;
    if (mp_vertex_is_own(v, "Choose") && mp_draft_is_open(draft, v->in[0])) {
        return mp_draft_choice(draft, n);
    }
    if (mp_host_value_is_known(&v->node, in, v->in_count)) {
        bool done = false;
        MP_TRY(mp_host_value_compute(&program->values, &v->node, in, v->in_count, out, v->out_count,
                                     &done));
        if (done) {
            set_outputs(draft, v, out);
            program->is_done[n] = true;
            return MP_OK;
        }
    }
    if (draft->graph->has_clusters && mp_cluster_takes(v, in, has_rows(draft->graph), out)) {
        const int64_t *pitches = mp_draft_pitches(draft, v->out, v->out_count);
        out->pitch = pitches != NULL ? pitches[0] : 0;
        set_outputs(draft, v, out);
        draft->fates[n] = MP_FATE_CLUSTER;
        program->is_done[n] = true;
        return MP_OK;
    }
    for (int i = 0; v->loop != NULL && !v->loop->is_scan && i < MP_LOOP_HEAD_IN; i++) {
        if (v->in[i] != MP_NO_VALUE) {
            MP_TRY(check_single(draft, v->in[i]));
        }
    }
    if (!check_host_inputs(draft, v, in)) {
        return MP_OK;
    }
    if (v->loop != NULL) {
        return add_loop(draft, n, in);
    }
    if (v->node.op->finish == NULL) {
        program->is_done[n] = true;
        return mp_draft_plan_step(draft, n, in);
    }
    const mp_program_read *read = counted_before(program, n);
    return read != NULL ? add_finish(draft, n, in, read) : add_count(draft, n, in);
}

/* Types that a file has claimed, which passes have gone by. */
static mp_status check_types(const mp_draft *draft, const mp_vertex *v) {
    for (int i = 0; draft->graph->has_claimed_types && i < v->out_count; i++) {
        const int32_t value = v->out[i];
        const mp_dtype said =
            value != MP_NO_VALUE ? draft->graph->values[value].tensor.type : MP_NONE;
        const mp_dtype made = said != MP_NONE ? draft->tensors[value].type : MP_NONE;
        if (made != MP_NONE && made != said) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "'%s' has elements of type %s, and the compiled model says %s: compile "
                           "the model again",
                           draft->graph->values[value].name, mp_dtype_name(made),
                           mp_dtype_name(said));
        }
    }
    return MP_OK;
}

mp_status mp_draft_node(mp_draft *draft, int32_t n) {
    const mp_vertex *v = &draft->graph->nodes[n];
    readiness ready = READY;
    MP_TRY(look(draft, v, draft->work, &ready));
    if (ready == GONE) {
        set_gone(draft, v);
        draft->program->is_done[n] = true;
    }
    if (ready == READY) {
        const mp_status status = plan_ready(draft, n, draft->work);
        if (status == MP_INVALID_ARGUMENT && draft->joins && mp_draft_assume(draft, v->guard)) {
            return MP_OK;
        }
        return status == MP_OK ? check_types(draft, v) : status;
    }
    return MP_OK;
}
