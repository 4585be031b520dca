/* program_place.c - where the values of a program lie.
 *
 * Values that share memory are a class: a view and what it is of, a result and the input whose
 * place it takes. A class lies where its first member does: in an input or a constant, which
 * nobody may write, or in the block. A class of the block that holds an output of the graph moves
 * to that output's memory, if it is the only one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_private.h"
#include "graph/span_layout.h"

#include <stdlib.h>

typedef struct value_class {
    int32_t of;          /* the class that it is part of; itself where it is whole */
    int32_t first, last; /* steps of the graph between which it lives */
    size_t bytes;
    mp_spot spot;
} value_class;

static int32_t find(const value_class *classes, int32_t value) {
    while (classes[value].of != value) {
        value = classes[value].of;
    }
    return value;
}

static mp_status bytes_of(const mp_draft *draft, int32_t value, size_t *out) {
    return mp_shape_bytes(&draft->tensors[value].shape, draft->tensors[value].type, out);
}

static mp_status open_classes(const mp_draft *draft, value_class *classes) {
    const mp_graph *graph = draft->graph;
    for (int32_t i = 0; i < graph->value_count; i++) {
        value_class *c = &classes[i];
        *c = (value_class){.of = i, .first = draft->first[i], .last = draft->last[i]};
        if (draft->is_made[i]) {
            MP_TRY(bytes_of(draft, i, &c->bytes));
            c->last = c->last > c->first ? c->last : c->first;
            c->spot.kind = MP_SPOT_BLOCK;
        } else if (draft->program->spots[i].kind == MP_SPOT_LITERAL) {
            c->spot = draft->program->spots[i];
        } else if (graph->values[i].is_constant) {
            c->spot = (mp_spot){.kind = graph->values[i].device != 0 ? MP_SPOT_FIXED : MP_SPOT_NONE,
                                .offset = graph->values[i].device};
        }
    }
    for (int32_t i = 0; i < graph->input_count; i++) {
        classes[graph->inputs[i]].spot = (mp_spot){.kind = MP_SPOT_IN, .index = i};
    }
    return MP_OK;
}

static void join(value_class *classes, int32_t part, int32_t whole) {
    value_class *to = &classes[whole];
    classes[part].of = whole;
    to->last = to->last > classes[part].last ? to->last : classes[part].last;
}

static int reads_of(const mp_program_step *step, const value_class *classes, int32_t class) {
    int reads = 0;
    for (int i = 0; i < step->in_count; i++) {
        reads += step->in[i] != MP_NO_VALUE && find(classes, step->in[i]) == class;
    }
    return reads;
}

/* A view has the bytes of what it is of; else it is copied. */
static mp_status join_view(const mp_draft *draft, const mp_program_step *step,
                           value_class *classes) {
    const mp_op *op = draft->graph->nodes[step->node].node.op;
    const int from = op->view_of - 1;
    size_t bytes = 0;
    if (from < 0 || from >= step->in_count || step->out_count < 1 ||
        step->in[from] == MP_NO_VALUE || step->out[0] == MP_NO_VALUE) {
        return MP_OK;
    }
    MP_TRY(bytes_of(draft, step->in[from], &bytes));
    if (bytes == classes[step->out[0]].bytes && classes[step->out[0]].of == step->out[0]) {
        join(classes, step->out[0], find(classes, step->in[from]));
    }
    return MP_OK;
}

/* A result takes the place of an input that nobody reads afterwards, nor twice now. */
static void join_in_place(const mp_draft *draft, const mp_program_step *step,
                          value_class *classes) {
    const mp_op *op = draft->graph->nodes[step->node].node.op;
    for (int i = 0; i < op->in_place_count; i++) {
        const mp_alias alias = op->in_place[i];
        if (alias.in >= step->in_count || alias.out >= step->out_count ||
            step->in[alias.in] == MP_NO_VALUE || step->out[alias.out] == MP_NO_VALUE) {
            continue;
        }
        const int32_t out = step->out[alias.out];
        const int32_t whole = find(classes, step->in[alias.in]);
        if (classes[out].of == out && whole != out && classes[whole].spot.kind == MP_SPOT_BLOCK &&
            classes[whole].bytes == classes[out].bytes && classes[whole].last == step->node &&
            reads_of(step, classes, whole) == 1) {
            join(classes, out, whole);
        }
    }
}

/* Outputs of the graph, and what has to be copied to them. */
static mp_status place_outputs(const mp_draft *draft, value_class *classes) {
    const mp_graph *graph = draft->graph;
    mp_program *program = draft->program;
    for (int32_t i = 0; i < graph->output_count; i++) {
        value_class *c = &classes[find(classes, graph->outputs[i])];
        size_t bytes = 0;
        MP_TRY(bytes_of(draft, graph->outputs[i], &bytes));
        if (c->spot.kind == MP_SPOT_BLOCK && c->bytes == bytes) {
            c->spot = (mp_spot){.kind = MP_SPOT_OUT, .index = i};
        } else if (bytes > 0) {
            program->copies[program->copy_count++] =
                (mp_program_copy){.value = graph->outputs[i], .output = i, .bytes = bytes};
        }
    }
    return MP_OK;
}

static mp_status place_block(const mp_draft *draft, value_class *classes) {
    const int32_t values = draft->graph->value_count;
    mp_program *program = draft->program;
    mp_span *spans = calloc((size_t)values + (size_t)program->step_count + 1, sizeof *spans);
    if (spans == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to lay a program out");
    }
    for (int32_t i = 0; i < values; i++) {
        const value_class *c = &classes[i];
        if (c->of == i && c->spot.kind == MP_SPOT_BLOCK) {
            spans[i] = (mp_span){.first = c->first, .last = c->last, .bytes = c->bytes};
        }
    }
    for (int32_t i = 0; i < program->step_count; i++) {
        const mp_program_step *step = &program->steps[i];
        spans[values + i] = (mp_span){
            .first = step->node, .last = step->node, .bytes = mp_plan_scratch_bytes(step->plan)};
    }
    const mp_status status =
        mp_layout_spans(spans, (size_t)values + (size_t)program->step_count, &program->block_bytes);
    for (int32_t i = 0; i < values; i++) {
        classes[i].spot.offset += classes[i].spot.kind == MP_SPOT_BLOCK ? spans[i].offset : 0;
    }
    for (int32_t i = 0; i < program->step_count; i++) {
        program->steps[i].scratch = spans[values + i].offset;
    }
    free(spans);
    return status;
}

static mp_status place(const mp_draft *draft, value_class *classes) {
    mp_program *program = draft->program;
    MP_TRY(open_classes(draft, classes));
    for (int32_t i = 0; i < program->step_count; i++) {
        MP_TRY(join_view(draft, &program->steps[i], classes));
        join_in_place(draft, &program->steps[i], classes);
    }
    MP_TRY(place_outputs(draft, classes));
    MP_TRY(place_block(draft, classes));
    for (int32_t i = 0; i < program->value_count; i++) {
        program->spots[i] = classes[find(classes, i)].spot;
    }
    return MP_OK;
}

mp_status mp_program_place(mp_draft *draft) {
    value_class *classes = calloc((size_t)draft->graph->value_count + 1, sizeof *classes);
    if (classes == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to lay a program out");
    }
    const mp_status status = place(draft, classes);
    free(classes);
    return status;
}
