/* program_place.c - where the values of a program lie.
 *
 * Values that share memory are a class: a view or a part and what it is of, a result and the input
 * whose place it takes, what is concatenated and the result. A class lies where its first member
 * does: in an input or a constant, which nobody may write, or in the block, or, if a later segment
 * reads it, in what is kept for that. A class of the block that holds an output of the graph moves
 * to that output's memory, if it is the only one; what is needed no more when that is written may
 * lie there before, unless the caller may have an input there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_private.h"
#include "graph/span_layout.h"

#include <stdlib.h>

typedef struct value_class {
    int32_t of;          /* the class that it is part of; itself where it is whole */
    int32_t first, last; /* steps between which it lives (mp_program_step.at) */
    size_t bytes;
    size_t at;     /* within what it is part of */
    bool outlives; /* the segment */
    mp_spot spot;
} value_class;

static int32_t find(const value_class *classes, int32_t value) {
    while (classes[value].of != value) {
        value = classes[value].of;
    }
    return value;
}

/* Where a value begins within its class. */
static size_t place_in(const value_class *classes, int32_t value) {
    size_t at = 0;
    while (classes[value].of != value) {
        at += classes[value].at;
        value = classes[value].of;
    }
    return at;
}

static mp_status bytes_of(const mp_draft *draft, int32_t value, size_t *out) {
    return mp_shape_bytes(&draft->tensors[value].shape, draft->tensors[value].type, out);
}

static mp_status open_classes(const mp_draft *draft, value_class *classes) {
    const mp_graph *graph = draft->graph;
    for (int32_t i = 0; i < graph->value_count; i++) {
        value_class *c = &classes[i];
        *c = (value_class){.of = i,
                           .first = draft->first[i],
                           .last = draft->last[i],
                           .outlives = draft->outlives[i],
                           .spot = draft->program->spots[i]};
        if (draft->is_made[i]) {
            MP_TRY(bytes_of(draft, i, &c->bytes));
            c->last = MP_MAX(c->last, c->first);
            c->spot = (mp_spot){.kind = MP_SPOT_BLOCK};
        } else if (c->spot.kind == MP_SPOT_NONE && graph->values[i].is_constant) {
            c->spot = (mp_spot){.kind = graph->values[i].device != 0 ? MP_SPOT_FIXED : MP_SPOT_NONE,
                                .offset = graph->values[i].device};
        }
    }
    for (int32_t i = 0; i < graph->input_count; i++) {
        classes[graph->inputs[i]].spot = (mp_spot){.kind = MP_SPOT_IN, .index = i};
    }
    return MP_OK;
}

/* `part`, a class of its own, lies from now on in `whole`, another one. */
static void join(value_class *classes, int32_t part, int32_t whole, size_t at) {
    value_class *to = &classes[whole];
    const value_class *from = &classes[part];
    classes[part].of = whole;
    classes[part].at = at;
    to->first = from->first >= 0 && from->first < to->first ? from->first : to->first;
    to->last = MP_MAX(to->last, from->last);
    to->outlives = to->outlives || from->outlives;
}

static int reads_of(const mp_program_step *step, const value_class *classes, int32_t class) {
    int reads = 0;
    for (int i = 0; i < step->in_count; i++) {
        reads += step->in[i] != MP_NO_VALUE && find(classes, step->in[i]) == class;
    }
    return reads;
}

/* ---- views ---- */

/* A view has the bytes of what it is of; else it is copied. */
static mp_status join_view(const mp_draft *draft, const mp_program_step *step,
                           value_class *classes) {
    const int from = step->view_of - 1;
    size_t bytes = 0;
    if (from < 0 || from >= step->in_count || step->out_count < 1 ||
        step->in[from] == MP_NO_VALUE || step->out[0] == MP_NO_VALUE) {
        return MP_OK;
    }
    MP_TRY(bytes_of(draft, step->in[from], &bytes));
    if (bytes == classes[step->out[0]].bytes && classes[step->out[0]].of == step->out[0]) {
        join(classes, step->out[0], find(classes, step->in[from]),
             place_in(classes, step->in[from]));
    }
    return MP_OK;
}

static bool is_all_of(const mp_draft *draft, const value_class *classes, int32_t value,
                      int32_t whole) {
    size_t bytes = 0;
    return bytes_of(draft, value, &bytes) == MP_OK && bytes == classes[whole].bytes &&
           place_in(classes, value) == 0;
}

/* Whether a result of the step lies in the class: one that nobody reads ends with the step, too. */
static bool is_written(const mp_program_step *step, const value_class *classes, int32_t class) {
    bool is = false;
    for (int o = 0; o < step->out_count && !is; o++) {
        is = step->out[o] != MP_NO_VALUE && find(classes, step->out[o]) == class;
    }
    return is;
}

/* A result takes the place of an input that nobody reads afterwards, nor twice now, and no other
 * result has taken. */
static void join_in_place(const mp_draft *draft, const mp_program_step *step,
                          value_class *classes) {
    for (int i = 0; i < step->in_place_count; i++) {
        const mp_alias alias = step->in_place[i];
        if (alias.in >= step->in_count || alias.out >= step->out_count ||
            step->in[alias.in] == MP_NO_VALUE || step->out[alias.out] == MP_NO_VALUE) {
            continue;
        }
        const int32_t out = step->out[alias.out];
        const int32_t in = step->in[alias.in];
        const int32_t whole = find(classes, in);
        if (classes[out].of == out && is_all_of(draft, classes, in, whole) && whole != out &&
            classes[whole].spot.kind == MP_SPOT_BLOCK &&
            classes[whole].bytes == classes[out].bytes && classes[whole].last == step->at &&
            !classes[whole].outlives && reads_of(step, classes, whole) == 1 &&
            !is_written(step, classes, whole)) {
            join(classes, out, whole, 0);
        }
    }
}

/* ---- parts ---- */

static bool fits(const mp_draft *draft, size_t at) {
    return at % (size_t)draft->program->align == 0;
}

/* Whether all outputs are pieces of the input, which then need no step. */
static bool join_pieces(const mp_draft *draft, const mp_program_step *step, value_class *classes) {
    size_t at = 0;
    for (int o = 0; o < step->out_count; o++) {
        if (step->out[o] != MP_NO_VALUE &&
            (!mp_part_of_input(draft, step, o, &at) || !fits(draft, at))) {
            return false;
        }
    }
    const int32_t whole = find(classes, step->in[0]);
    if (classes[whole].spot.kind == MP_SPOT_NONE) {
        return false;
    }
    for (int o = 0; o < step->out_count; o++) {
        if (step->out[o] != MP_NO_VALUE && mp_part_of_input(draft, step, o, &at)) {
            join(classes, step->out[o], whole, place_in(classes, step->in[0]) + at);
        }
    }
    return true;
}

/* Whether input `i` is a whole class of the block, and not the `i`th time that it is read here. */
static bool is_free(const mp_program_step *step, const value_class *classes, int i, size_t bytes) {
    const int32_t class = find(classes, step->in[i]);
    bool is_first = true;
    for (int k = 0; k < i; k++) {
        is_first = is_first && find(classes, step->in[k]) != class;
    }
    return is_first && classes[class].spot.kind == MP_SPOT_BLOCK && classes[class].bytes == bytes &&
           place_in(classes, step->in[i]) == 0;
}

/* Whether all inputs can lie in the output, each in its place: then nothing is left to be done. */
static mp_status join_inputs(const mp_draft *draft, const mp_program_step *step,
                             value_class *classes, bool *done) {
    size_t at = 0;
    *done = false;
    for (int i = 0; i < step->in_count; i++) {
        size_t bytes = 0;
        MP_TRY(bytes_of(draft, step->in[i], &bytes));
        if (!fits(draft, at) || !is_free(step, classes, i, bytes)) {
            return MP_OK;
        }
        at += bytes;
    }
    at = 0;
    for (int i = 0; i < step->in_count; i++) {
        const int32_t class = find(classes, step->in[i]);
        join(classes, class, step->out[0], at);
        at += classes[class].bytes;
    }
    *done = true;
    return MP_OK;
}

/* What the graph says to lie in the rows of another value does, whatever else could be. */
static void join_within(const mp_draft *draft, value_class *classes) {
    for (int32_t i = 0; i < draft->graph->value_count; i++) {
        const mp_value *v = &draft->graph->values[i];
        if (draft->is_made[i] && mp_draft_lies_within(draft, i)) {
            const size_t at = (size_t)v->within_first * mp_dtype_size(draft->tensors[i].type);
            join(classes, i, find(classes, v->within - 1), place_in(classes, v->within - 1) + at);
        }
    }
}

/* Whether one of its operands lies so, which the plan has taken into account. */
static bool is_apart(const mp_draft *draft, const mp_program_step *step) {
    bool apart = false;
    for (int i = 0; i < step->in_count; i++) {
        apart = apart || (step->in[i] != MP_NO_VALUE && draft->tensors[step->in[i]].pitch > 0);
    }
    for (int i = 0; i < step->out_count; i++) {
        apart = apart || (step->out[i] != MP_NO_VALUE && draft->tensors[step->out[i]].pitch > 0);
    }
    return apart;
}

static mp_status join_parts(const mp_draft *draft, const mp_program_step *step,
                            value_class *classes, bool *done) {
    *done = false;
    if (step->kind != MP_STEP_PLAN) {
        return MP_OK;
    }
    if (is_apart(draft, step)) {
        *done = mp_plan_step_count(step->plan) == 0;
        return MP_OK;
    }
    if (mp_joins_inputs(draft, step)) {
        return join_inputs(draft, step, classes, done);
    }
    size_t at = 0;
    if (step->out_count > 0 && mp_part_of_input(draft, step, 0, &at)) {
        *done = join_pieces(draft, step, classes);
    }
    return MP_OK;
}

/* ---- what branches give ---- */

/* Whether all that lies in the class is made within the branch, so that nobody else misses what is
 * written over. */
static bool is_of_branch(const mp_draft *draft, const value_class *classes, int32_t class,
                         int32_t branch) {
    for (int32_t i = 0; i < draft->graph->value_count; i++) {
        if (draft->is_made[i] && find(classes, i) == class &&
            !mp_branch_is_within(draft->program, draft->made_in[i], branch)) {
            return false;
        }
    }
    return true;
}

/* What a branch gives is made where the Choose's result is, if it has a place of its own; then
 * nothing is left to be done. The first of the two branches may give its place, in which the other
 * one puts its own. */
static bool join_choice(const mp_draft *draft, const mp_program_step *step, value_class *classes) {
    const int32_t from = step->in[1] != MP_NO_VALUE ? step->in[1] : step->in[2];
    const int32_t out = step->out[0];
    const int32_t class = find(classes, from);
    const int32_t whole = find(classes, out);
    if (class == whole || classes[class].spot.kind != MP_SPOT_BLOCK || classes[class].outlives ||
        classes[class].bytes != classes[out].bytes || classes[whole].bytes != classes[out].bytes ||
        !is_all_of(draft, classes, from, class) ||
        !is_of_branch(draft, classes, class, step->branch)) {
        return false;
    }
    join(classes, class, whole, 0);
    return true;
}

/* ---- where classes lie ---- */

static int32_t step_of(const mp_program *program, int32_t value) {
    for (int32_t i = 0; i < program->step_count; i++) {
        for (int32_t k = 0; k < program->steps[i].out_count; k++) {
            if (program->steps[i].out[k] == value) {
                return i;
            }
        }
    }
    return -1;
}

/* 1 + the input of the graph that this input of the step is, whole, and that nobody reads after the
 * step, nor twice in it; 0 for none. */
static int32_t ends_in(const mp_draft *draft, const mp_program_step *step, int i,
                       const value_class *classes, size_t bytes) {
    size_t all = 0, own = 0;
    if (i >= step->in_count || step->in[i] == MP_NO_VALUE) {
        return 0;
    }
    const int32_t whole = find(classes, step->in[i]);
    const value_class *c = &classes[whole];
    return c->spot.kind == MP_SPOT_IN && place_in(classes, step->in[i]) == 0 &&
                   bytes_of(draft, whole, &all) == MP_OK && all == bytes &&
                   bytes_of(draft, step->in[i], &own) == MP_OK && own == bytes &&
                   c->last == step->at && !c->outlives && reads_of(step, classes, whole) == 1
               ? 1 + c->spot.index
               : 0;
}

/* The input in whose place the step that makes the output may put it, as the first that is written
 * there. */
static int32_t over_of(const mp_draft *draft, int32_t output, const value_class *classes) {
    const mp_program *program = draft->program;
    const value_class *c = &classes[output];
    const int32_t at = draft->joins || c->of != output ? -1 : step_of(program, output);
    const mp_program_step *step = at >= 0 ? &program->steps[at] : NULL;
    int32_t over = 0;
    for (int i = 0; step != NULL && step->at == c->first && i < step->in_place_count; i++) {
        const mp_alias alias = step->in_place[i];
        if (alias.out < step->out_count && step->out[alias.out] == output && over == 0) {
            over = ends_in(draft, step, alias.in, classes, c->bytes);
        }
    }
    return over;
}

/* Outputs of the graph, and what has to be copied to them. */
static void place_outputs(const mp_draft *draft, value_class *classes) {
    const mp_graph *graph = draft->graph;
    mp_program *program = draft->program;
    for (int32_t i = 0; i < graph->output_count; i++) {
        const size_t bytes = program->output_bytes[i];
        if (!program->is_new[i]) {
            continue;
        }
        value_class *c = &classes[find(classes, graph->outputs[i])];
        if (c->spot.kind == MP_SPOT_BLOCK && c->bytes == bytes) {
            c->spot = (mp_spot){.kind = MP_SPOT_OUT, .index = i};
            program->over[i] = over_of(draft, graph->outputs[i], classes);
        } else if (bytes > 0) {
            program->copies[program->copy_count++] =
                (mp_program_copy){.value = graph->outputs[i],
                                  .output = i,
                                  .step = step_of(program, graph->outputs[i]),
                                  .bytes = bytes};
        }
    }
}

/* An output's memory is there from the segment's first step on: until it is written, what is not
 * much smaller lies in it, one value behind the other, and takes no room in the block. From the
 * last on, since of a chain every other value then needs the block, and these need one place
 * together. */
static void lend_output(const mp_draft *draft, value_class *classes, int32_t output) {
    const value_class *to = &classes[output];
    int32_t end = to->first; /* the first step of what lies there later */
    for (int32_t i = draft->program->value_count - 1; i >= 0; i--) {
        value_class *c = &classes[i];
        if (c->of == i && c->spot.kind == MP_SPOT_BLOCK && !c->outlives && c->last < end &&
            c->bytes <= to->bytes && c->bytes > to->bytes / 2) {
            c->spot = to->spot;
            end = c->first;
        }
    }
}

static void lend_outputs(const mp_draft *draft, value_class *classes) {
    const mp_graph *graph = draft->graph;
    for (int32_t i = 0; i < graph->output_count; i++) {
        const int32_t output = find(classes, graph->outputs[i]);
        const mp_spot spot = classes[output].spot;
        if (draft->program->is_new[i] && draft->program->over[i] == 0 && spot.kind == MP_SPOT_OUT &&
            spot.index == i) {
            lend_output(draft, classes, output);
        }
    }
}

/* Two layouts, of the block and of what is kept: what lies in one takes no room in the other. */
typedef struct layouts {
    mp_span *block, *kept; /* by value, then by step; owned */
    size_t count;
} layouts;

static void add_spans(const mp_draft *draft, const value_class *classes, const layouts *l) {
    const mp_program *program = draft->program;
    const int32_t end = mp_draft_end(draft);
    for (int32_t i = 0; i < program->value_count; i++) {
        const value_class *c = &classes[i];
        if (c->of == i && c->spot.kind == MP_SPOT_BLOCK) {
            mp_span *span = c->outlives ? &l->kept[i] : &l->block[i];
            *span = (mp_span){
                .first = c->first, .last = c->outlives ? end : c->last, .bytes = c->bytes};
        }
    }
    for (int32_t i = 0; i < program->step_count; i++) {
        const mp_program_step *step = &program->steps[i];
        const bool counts = step->kind == MP_STEP_COUNT;
        mp_span *span = &(counts ? l->kept : l->block)[program->value_count + i];
        *span = (mp_span){.first = step->at,
                          .last = counts ? end : step->at,
                          .bytes = step->plan != NULL ? mp_plan_scratch_bytes(step->plan)
                                                      : mp_rounds_scratch(step->rounds)};
    }
}

static void take_offsets(const mp_draft *draft, value_class *classes, const layouts *l) {
    mp_program *program = draft->program;
    for (int32_t i = 0; i < program->value_count; i++) {
        value_class *c = &classes[i];
        if (c->of == i && c->spot.kind == MP_SPOT_BLOCK && c->outlives) {
            c->spot = (mp_spot){
                .kind = MP_SPOT_BASE, .index = program->base_first, .offset = l->kept[i].offset};
        } else if (c->of == i && c->spot.kind == MP_SPOT_BLOCK) {
            c->spot.offset = l->block[i].offset;
        }
    }
    for (int32_t i = 0; i < program->step_count; i++) {
        mp_program_step *step = &program->steps[i];
        step->scratch =
            (step->kind == MP_STEP_COUNT ? l->kept : l->block)[program->value_count + i].offset;
    }
}

static mp_status place_block(const mp_draft *draft, value_class *classes) {
    mp_program *program = draft->program;
    const size_t count = (size_t)program->value_count + (size_t)program->step_count;
    mp_span *spans = calloc(2 * count + 1, sizeof *spans);
    if (spans == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to lay a program out");
    }
    const layouts l = {.block = spans, .kept = spans + count, .count = count};
    add_spans(draft, classes, &l);
    mp_status status = mp_layout_spans(l.block, count, &program->block_bytes);
    if (status == MP_OK) {
        status = mp_layout_spans(l.kept, count, &program->kept_bytes);
    }
    take_offsets(draft, classes, &l);
    free(spans);
    return status;
}

/* ---- all ---- */

static mp_status join_all(const mp_draft *draft, value_class *classes) {
    mp_program *program = draft->program;
    int32_t kept = 0;
    for (int32_t i = 0; i < program->step_count; i++) {
        mp_program_step *step = &program->steps[i];
        bool done = false;
        if (step->is_choice) {
            done = join_choice(draft, step, classes);
        } else {
            MP_TRY(join_parts(draft, step, classes, &done));
        }
        if (done) {
            program->launches -= mp_plan_step_count(step->plan);
            mp_program_step_close(step);
            continue;
        }
        MP_TRY(join_view(draft, step, classes));
        join_in_place(draft, step, classes);
        if (kept != i) {
            program->steps[kept] = *step;
            *step = (mp_program_step){.node = step->node}; /* what fails next frees each once */
        }
        kept++;
    }
    program->step_count = kept;
    return MP_OK;
}

static mp_status place(const mp_draft *draft, value_class *classes) {
    mp_program *program = draft->program;
    MP_TRY(open_classes(draft, classes));
    join_within(draft, classes);
    MP_TRY(join_all(draft, classes));
    place_outputs(draft, classes);
    lend_outputs(draft, classes);
    MP_TRY(place_block(draft, classes));
    for (int32_t i = 0; i < program->value_count; i++) {
        program->spots[i] = classes[find(classes, i)].spot;
        program->spots[i].offset += place_in(classes, i);
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
