/* program_within.c - values that lie in the rows of others (mp_value.within): only where one
 * segment makes both, which is known once all of it is planned.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/program_private.h"

bool mp_draft_lies_within(const mp_draft *draft, int32_t value) {
    return draft->strays != NULL && draft->graph->values[value].within != 0 &&
           !draft->strays[value];
}

/* What the value lies in, that lies in nothing else; `*row`: how long its rows are said to be. */
static int32_t whole_of(const mp_draft *draft, int32_t value, int64_t *row) {
    *row = 0;
    while (mp_draft_lies_within(draft, value)) {
        *row = draft->graph->values[value].within_row;
        value = draft->graph->values[value].within - 1;
    }
    return value;
}

const int64_t *mp_draft_pitches(mp_draft *draft, const int32_t *out, int out_count) {
    bool has_some = false;
    for (int i = 0; i < out_count; i++) {
        draft->pitches[i] = 0;
        if (out[i] != MP_NO_VALUE) {
            (void)whole_of(draft, out[i], &draft->pitches[i]);
        }
        has_some = has_some || draft->pitches[i] > 0;
    }
    return has_some ? draft->pitches : NULL;
}

/* Where input `i` of a Concat begins in its rows. */
static int64_t first_of(const mp_draft *draft, const mp_vertex *concat, int i) {
    int64_t first = 0;
    for (int k = 0; k < i; k++) {
        const mp_shape *shape = &draft->tensors[concat->in[k]].shape;
        first += shape->rank > 0 ? shape->dim[shape->rank - 1] : 0;
    }
    return first;
}

static bool is_there(const mp_draft *draft, const mp_vertex *concat, int i) {
    const mp_value *v = &draft->graph->values[concat->in[i]];
    return mp_draft_lies_within(draft, concat->in[i]) && v->within - 1 == concat->out[0] &&
           v->within_first == first_of(draft, concat, i);
}

void mp_draft_set_there(const mp_draft *draft, const mp_vertex *v, mp_tensor *in) {
    for (int i = 0; draft->strays != NULL && i < v->in_count && mp_vertex_is(v, "Concat"); i++) {
        in[i].is_there = in[i].pitch > 0 && is_there(draft, v, i);
    }
}

/* Whether the part begins in the whole where its maker puts it: dimensions that a model claims may
 * be others than there are. */
static bool is_in_place(const mp_draft *draft, int32_t value) {
    const int32_t whole = draft->graph->values[value].within - 1;
    const mp_vertex *maker = &draft->graph->nodes[draft->graph->values[whole].producer];
    bool joined = false, there = false;
    for (int i = 0; i < maker->in_count && mp_vertex_is(maker, "Concat"); i++) {
        joined = joined || maker->in[i] == value;
        there = there || (maker->in[i] == value && is_there(draft, maker, i));
    }
    return there || !joined;
}

/* Whether its rows are parts of those of what it lies in. */
static bool is_part(const mp_draft *draft, int32_t value) {
    const mp_value *v = &draft->graph->values[value];
    const mp_shape *part = &draft->tensors[value].shape;
    mp_shape whole = draft->tensors[v->within - 1].shape;
    const int last = part->rank - 1;
    if (last < 0 || whole.rank != part->rank ||
        v->within_first > whole.dim[last] - part->dim[last]) {
        return false;
    }
    whole.dim[last] = part->dim[last];
    return mp_shape_equal(&whole, part);
}

/* Whether a value that was planned so cannot lie there: its segment does not make the whole,
 * another one reads it, of whose nodes it is not known yet how they do, or kernels would count
 * further than they can. */
static bool is_stray(const mp_draft *draft, int32_t value) {
    const mp_value *v = &draft->graph->values[value];
    const mp_tensor *part = &draft->tensors[value];
    int64_t row = 0;
    const int32_t outer = v->within - 1, whole = whole_of(draft, value, &row);
    const size_t size = mp_dtype_size(part->type);
    return draft->outlives[value] || !draft->is_made[outer] || !draft->is_made[whole] ||
           draft->tensors[whole].pitch != 0 || draft->tensors[whole].type != part->type ||
           !is_part(draft, value) || !is_in_place(draft, value) || part->pitch != row ||
           draft->tensors[whole].shape.dim[part->shape.rank - 1] != row ||
           mp_shape_count(&draft->tensors[whole].shape) > INT32_MAX ||
           (size_t)v->within_first * size % (size_t)draft->program->align != 0;
}

static void add_stray(mp_draft *draft, int32_t value) {
    draft->strays[value] = draft->has_strayed = true;
}

/* Whether what a step reads and makes has strays: what `op` does not take (NULL: all). What was
 * planned before the step lies as its tensor says, also what strays by now. */
static bool add_strays(mp_draft *draft, const mp_op *op, const mp_step_ends *ends) {
    bool found = false;
    for (int i = 0; i < ends->in_count + ends->out_count; i++) {
        const bool is_in = i < ends->in_count;
        const int o = i - ends->in_count;
        const int32_t value = is_in ? ends->in[i] : ends->out[o];
        if (value == MP_NO_VALUE ||
            (is_in ? draft->tensors[value].pitch == 0 : !mp_draft_lies_within(draft, value))) {
            continue;
        }
        if (op == NULL ||
            !(is_in ? mp_op_apart_in(op, (size_t)i) : mp_op_apart_out(op, (size_t)o))) {
            add_stray(draft, value);
            found = true;
        }
    }
    return found;
}

bool mp_draft_suits(mp_draft *draft, const mp_op *op, const mp_step_ends *ends) {
    return !add_strays(draft, op, ends);
}

bool mp_draft_stray(mp_draft *draft, const mp_step_ends *ends) {
    return add_strays(draft, NULL, ends);
}

void mp_draft_find_strays(mp_draft *draft) {
    for (int32_t i = 0; i < draft->graph->value_count && draft->strays != NULL; i++) {
        if (draft->is_made[i] && mp_draft_lies_within(draft, i) && is_stray(draft, i)) {
            add_stray(draft, i);
        }
    }
}
