/* program_cluster.c - the steps of nodes that one kernel computes, and the order of all steps.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_private.h"

#include <stdlib.h>

/* Each element is read before the one in its place is written, if it is as large and not repeated.
 * What is of rows is not: a row of another input may be as many elements. */
static void set_in_place(const mp_draft *draft, const mp_unit *unit, mp_program_step *step) {
    for (int o = 0; o < unit->out_count; o++) {
        const mp_tensor *out = &draft->tensors[unit->out[o]];
        for (int i = 0; i < unit->in_count && step->in_place_count < MP_ALIASES_MAX; i++) {
            const mp_tensor *in = &draft->tensors[unit->in[i]];
            if (mp_shape_count(&in->shape) == unit->elements &&
                mp_shape_count(&out->shape) == unit->elements &&
                mp_dtype_size(in->type) == mp_dtype_size(out->type)) {
                step->in_place[step->in_place_count++] = (mp_alias){.in = i, .out = o};
            }
        }
    }
}

static int by_number(const void *a, const void *b) {
    const int32_t left = ((const mp_origin *)a)->number;
    const int32_t right = ((const mp_origin *)b)->number;
    return (left > right) - (left < right);
}

/* What the nodes of a cluster stand for, each once. Gives: a list, until free; NULL without memory.
 */
static mp_origin *origins_of(const mp_graph *graph, const mp_units *units, const mp_unit *unit,
                             int32_t *out_count) {
    size_t count = 0;
    int32_t kept = 0;
    for (int32_t i = 0; i < unit->count; i++) {
        count += (size_t)graph->nodes[units->nodes[unit->first + i]].origins.count;
    }
    mp_origin *all = calloc(count + 1, sizeof *all);
    if (all == NULL) {
        return NULL;
    }
    count = 0;
    for (int32_t i = 0; i < unit->count; i++) {
        const mp_origins own = graph->nodes[units->nodes[unit->first + i]].origins;
        for (int32_t k = 0; k < own.count; k++) {
            all[count++] = own.list[k];
        }
    }
    qsort(all, count, sizeof *all, by_number);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || all[kept - 1].number != all[i].number) {
            all[kept++] = all[i];
        }
    }
    *out_count = kept;
    return all;
}

static mp_status name_cluster(const mp_draft *draft, const mp_units *units, const mp_unit *unit,
                              mp_program_step *step) {
    char title[MP_TITLE_MAX];
    int32_t count = 0;
    mp_origin *all = origins_of(draft->graph, units, unit, &count);
    if (all == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the name of a step");
    }
    const mp_origins origins = {.list = all, .count = count};
    mp_origins_title(origins, title, sizeof title);
    const mp_status status = mp_program_name_origins(step, origins, title);
    free(all);
    return status;
}

static mp_status add_cluster(mp_draft *draft, const mp_units *units, const mp_unit *unit) {
    const mp_attr expression = {
        .name = "expression", .kind = MP_ATTR_STRING, .s = unit->expression};
    const mp_node *first = &draft->graph->nodes[unit->node].node;
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "Fused", 1),
                          .version = 1,
                          .name = first->name,
                          .attrs = &expression,
                          .attr_count = 1,
                          .options = first->options};
    const mp_step_ends ends = {.node = unit->node,
                               .in = unit->in,
                               .out = unit->out,
                               .in_count = unit->in_count,
                               .out_count = unit->out_count};
    mp_tensor in[K_FUSED_IN];
    mp_step_plan made;
    if (!mp_draft_suits(draft, node.op, &ends)) {
        return MP_OK;
    }
    for (int i = 0; i < unit->in_count; i++) {
        in[i] = draft->tensors[unit->in[i]];
        in[i].data = 0;
        draft->is_wanted[unit->in[i]] = true;
    }
    const mp_step_form form = {.expression = unit->expression,
                               .out_pitch = mp_draft_pitches(draft, unit->out, unit->out_count)};
    const mp_status status = mp_draft_step_plan(draft, &ends, &node, in, &form, &made);
    if (status == MP_UNSUPPORTED && mp_draft_stray(draft, &ends)) {
        return MP_OK; /* no kernel knows such rows: it is planned again without */
    }
    MP_TRY(status);
    mp_program_step *step = mp_draft_step_of(draft, &ends);
    step->plan = made.plan;
    step->recipe = made.recipe;
    step->op = node.op;
    set_in_place(draft, unit, step);
    mp_draft_set_planned(draft, step);
    if (made.same != NULL) {
        mp_program_name_same(step, made.same);
        return MP_OK;
    }
    return name_cluster(draft, units, unit, step);
}

/* A node that is alone after all. What it reads on the host is known. */
static mp_status add_single(mp_draft *draft, int32_t node) {
    const mp_vertex *v = &draft->graph->nodes[node];
    mp_tensor *in = draft->work;
    for (int i = 0; i < v->in_count; i++) {
        in[i] = (mp_tensor){.type = MP_NONE};
        if (v->in[i] != MP_NO_VALUE) {
            in[i] = draft->tensors[v->in[i]];
            if (!mp_op_host_in(v->node.op, (size_t)i)) {
                in[i].data = 0;
                draft->is_wanted[v->in[i]] = true;
            }
        }
    }
    return mp_draft_plan_step(draft, node, in);
}

/* Steps that are not there yet come behind the others; `step_of`: by node, where its step is. */
static mp_status add_missing(mp_draft *draft, const mp_units *units, int32_t *step_of) {
    const mp_program *program = draft->program;
    for (int32_t i = 0; i < program->step_count; i++) {
        step_of[program->steps[i].node] = i;
    }
    for (int32_t i = 0; i < units->count; i++) {
        const mp_unit *unit = &units->units[i];
        if (draft->fates[unit->node] != MP_FATE_CLUSTER) {
            continue;
        }
        step_of[unit->node] = program->step_count;
        MP_TRY(unit->expression != NULL ? add_cluster(draft, units, unit)
                                        : add_single(draft, unit->node));
    }
    return MP_OK;
}

static mp_status take_units(mp_draft *draft, const mp_units *units) {
    mp_program *program = draft->program;
    const size_t nodes = (size_t)draft->graph->node_count + 1;
    int32_t *step_of = calloc(nodes, sizeof *step_of);
    mp_program_step *sorted = calloc(nodes, sizeof *sorted);
    mp_status status =
        step_of != NULL && sorted != NULL
            ? add_missing(draft, units, step_of)
            : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph of %d nodes",
                      (int)draft->graph->node_count);
    const bool is_whole = status == MP_OK && !draft->has_strayed; /* else steps are missing */
    for (int32_t i = 0; i < units->count && is_whole; i++) {
        sorted[i] = program->steps[step_of[units->units[i].node]];
    }
    if (is_whole) { /* there are as many units as steps */
        free(program->steps);
        program->steps = sorted;
        sorted = NULL;
    }
    free(sorted);
    free(step_of);
    return status;
}

mp_status mp_draft_clusters(mp_draft *draft) {
    mp_units units;
    MP_TRY(mp_units_make(draft->graph, draft->tensors, draft->fates, draft->outlives, &units));
    const mp_status status = take_units(draft, &units);
    mp_units_close(&units);
    return status;
}
