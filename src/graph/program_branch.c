/* program_branch.c - both branches of an If in one program: which steps are in which branch, and
 * what brings their results to one place.
 *
 * Places of values are chosen as if both branches ran, one behind the other. A Choose is two steps,
 * one in each branch, which copy what the branch gives to the result, and are no steps where it can
 * be made there.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/program_private.h"

#include <stdlib.h>
#include <string.h>

bool mp_draft_is_open(const mp_draft *draft, int32_t condition) {
    const mp_tensor *tensor = &draft->tensors[condition];
    return draft->joins && tensor->type != MP_NONE && tensor->data == 0;
}

void mp_draft_keep_conditions(mp_draft *draft, bool kept) {
    const mp_graph *graph = draft->graph;
    for (int32_t g = 0; g < graph->guard_count; g++) {
        draft->outlives[graph->guards[g].condition] = kept;
    }
}

/* ---- assumptions ---- */

void mp_draft_take_assumption(const mp_draft *draft, int32_t condition) {
    static const bool words[] = {false, true};
    for (int i = 0; i < draft->assumed->count; i++) {
        const mp_assumption *at = &draft->assumed->list[i];
        if (at->condition == condition && draft->tensors[condition].data == 0) {
            draft->tensors[condition].data = (mp_addr)&words[at->holds];
        }
    }
}

/* The one open guard that nodes of this one are behind; 0 where there are none, or several: of
 * those only the outermost condition is always computed. */
static int32_t only_open(const mp_draft *draft, int32_t guard) {
    int32_t found = 0;
    int count = 0;
    for (int32_t g = guard; g != 0; g = draft->graph->guards[g - 1].outer) {
        if (mp_draft_is_open(draft, draft->graph->guards[g - 1].condition)) {
            found = g;
            count++;
        }
    }
    return count == 1 ? found : 0;
}

bool mp_draft_assume(mp_draft *draft, int32_t guard) {
    mp_assumptions *assumed = draft->assumed;
    const int32_t open = only_open(draft, guard);
    if (open == 0 || assumed->count == MP_ASSUMPTIONS_MOST) {
        return false;
    }
    const mp_guard *g = &draft->graph->guards[open - 1];
    assumed->list[assumed->count++] =
        (mp_assumption){.condition = g->condition, .holds = !g->wanted};
    assumed->is_new = true;
    draft->gives_up = true;
    return true;
}

/* ---- branches ---- */

static int depth_of(const mp_program *program, int32_t branch) {
    int depth = 0;
    for (; branch != 0; branch = program->branches[branch - 1].outer) {
        depth++;
    }
    return depth;
}

static int32_t find_or_add(mp_draft *draft, mp_program_branch wanted) {
    mp_program *program = draft->program;
    wanted.same = program->branch_count;
    for (int32_t b = 0; b < program->branch_count; b++) {
        const mp_program_branch *at = &program->branches[b];
        const bool same = at->condition == wanted.condition;
        if (same && at->wanted == wanted.wanted && at->outer == wanted.outer) {
            return b + 1;
        }
        wanted.same = same ? at->same : wanted.same;
    }
    if (program->branch_count == MP_BRANCHES_MOST ||
        depth_of(program, wanted.outer) == MP_BRANCH_DEPTH_MOST) {
        draft->gives_up = true;
        return wanted.outer;
    }
    program->branches[program->branch_count++] = wanted;
    return program->branch_count;
}

/* The innermost open one that nodes of the guard are in. */
static int32_t branch_of(mp_draft *draft, int32_t guard) {
    if (guard == 0) {
        return 0;
    }
    const mp_guard *g = &draft->graph->guards[guard - 1];
    const int32_t outer = branch_of(draft, g->outer);
    return mp_draft_is_open(draft, g->condition)
               ? find_or_add(draft, (mp_program_branch){.condition = g->condition,
                                                        .wanted = g->wanted,
                                                        .outer = outer})
               : outer;
}

/* ---- choices ---- */

/* One of its two steps. */
static mp_status add_choice(mp_draft *draft, int32_t node, bool holds) {
    static const bool words[] = {false, true};
    const mp_vertex *v = &draft->graph->nodes[node];
    const int chosen = holds ? 1 : 2;
    int32_t in[] = {MP_NO_VALUE, MP_NO_VALUE, MP_NO_VALUE};
    mp_tensor tensors[] = {draft->tensors[v->in[0]], {.type = MP_NONE}, {.type = MP_NONE}};
    mp_plan *plan = NULL;
    in[chosen] = v->in[chosen];
    tensors[0].data = (mp_addr)&words[holds];
    tensors[chosen] = draft->tensors[v->in[chosen]];
    tensors[chosen].data = 0;
    draft->is_wanted[v->in[chosen]] = true;
    MP_TRY(mp_plan_make(draft->program->device, &v->node, tensors, 3, 1, draft->program->align,
                        &plan));
    mp_program_step *step = mp_draft_step_of(
        draft,
        &(mp_step_ends){.node = node, .in = in, .out = v->out, .in_count = 3, .out_count = 1});
    step->op = v->node.op;
    step->plan = plan;
    step->is_choice = true;
    mp_draft_set_planned(draft, step);
    return mp_program_name_node(step, v);
}

mp_status mp_draft_choice(mp_draft *draft, int32_t node) {
    draft->fates[node] = MP_FATE_STEP;
    draft->program->is_done[node] = true;
    return add_choice(draft, node, true);
}

static void set_choice_branch(mp_draft *draft, mp_program_step *step, bool wanted) {
    const mp_vertex *v = &draft->graph->nodes[step->node];
    step->branch = find_or_add(draft, (mp_program_branch){.condition = v->in[0],
                                                          .wanted = wanted,
                                                          .outer = branch_of(draft, v->guard)});
}

/* Appends the step, and behind a Choose's first one the second. */
static mp_status take_step(mp_draft *draft, const mp_program_step *old) {
    mp_program *program = draft->program;
    const int32_t node = old->node;
    mp_program_step *step = &program->steps[program->step_count++];
    *step = *old;
    if (!step->is_choice) {
        step->branch = branch_of(draft, draft->graph->nodes[node].guard);
        return MP_OK;
    }
    set_choice_branch(draft, step, true);
    MP_TRY(add_choice(draft, node, false));
    set_choice_branch(draft, &program->steps[program->step_count - 1], false);
    return MP_OK;
}

static mp_status take_steps(mp_draft *draft) {
    mp_program *program = draft->program;
    const int32_t count = program->step_count;
    mp_program_step *old = program->steps;
    mp_program_step *fresh = calloc(2 * (size_t)count + 1, sizeof *fresh);
    mp_status status = MP_OK;
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph");
    }
    program->steps = fresh;
    program->step_count = 0;
    for (int32_t i = 0; i < count; i++) {
        if (status == MP_OK) {
            status = take_step(draft, &old[i]);
        } else {
            mp_program_step_close(&old[i]);
        }
    }
    free(old);
    return status;
}

/* ---- their order ---- */

static bool makes(const mp_program_step *step, int32_t value) {
    bool does = false;
    for (int32_t k = 0; k < step->out_count && !does; k++) {
        does = step->out[k] == value && value != MP_NO_VALUE;
    }
    return does;
}

/* Whether `step` needs what `before` makes. */
static bool needs(const mp_program *program, const mp_program_step *step,
                  const mp_program_step *before) {
    bool does = false;
    for (int32_t k = 0; k < step->in_count && !does; k++) {
        does = makes(before, step->in[k]);
    }
    for (int32_t b = step->branch; b != 0 && !does; b = program->branches[b - 1].outer) {
        does = makes(before, program->branches[b - 1].condition);
    }
    return does;
}

/* The last step before `i` of the same branch, or of one within it, behind which it may run; -1:
 * none. */
static int32_t neighbour_of(const mp_program *program, int32_t i) {
    const mp_program_step *step = &program->steps[i];
    for (int32_t j = i - 1; j >= 0; j--) {
        if (mp_branch_is_within(program, program->steps[j].branch, step->branch)) {
            return j;
        }
        if (needs(program, step, &program->steps[j])) {
            return -1;
        }
    }
    return -1;
}

/* A launch comes to each stretch of steps of a branch by itself: fewer are faster. */
static void bring_together(mp_program *program) {
    for (int32_t i = 1; i < program->step_count; i++) {
        const int32_t j = program->steps[i].branch != 0 ? neighbour_of(program, i) : -1;
        if (j >= 0 && j < i - 1) {
            const mp_program_step moved = program->steps[i];
            memmove(&program->steps[j + 2], &program->steps[j + 1],
                    (size_t)(i - j - 1) * sizeof moved);
            program->steps[j + 1] = moved;
        }
    }
}

/* Whether each condition is there before the steps that wait for it; `there`: by value. */
static bool is_in_order(const mp_draft *draft, bool *there) {
    const mp_program *program = draft->program;
    bool right = true;
    for (int32_t i = 0; i < draft->graph->input_count; i++) {
        there[draft->graph->inputs[i]] = true;
    }
    for (int32_t i = 0; i < program->step_count && right; i++) {
        const mp_program_step *step = &program->steps[i];
        for (int32_t b = step->branch; b != 0; b = program->branches[b - 1].outer) {
            right = right && there[program->branches[b - 1].condition];
        }
        for (int32_t k = 0; k < step->out_count; k++) {
            if (step->out[k] != MP_NO_VALUE) {
                there[step->out[k]] = true;
                draft->made_in[step->out[k]] =
                    step->is_choice ? program->branches[step->branch - 1].outer : step->branch;
            }
        }
    }
    return right;
}

/* Graphs must be able to have branches where there are some left to launch. */
static mp_status ask_device(mp_draft *draft) {
    mp_device *device = draft->program->device;
    const bool asks = !draft->gives_up && draft->program->branch_count > 0;
    const mp_status status = asks ? device->ops->branch_prepare(device) : MP_OK;
    draft->gives_up = draft->gives_up || status != MP_OK;
    return status;
}

mp_status mp_draft_branches(mp_draft *draft) {
    MP_TRY(take_steps(draft));
    MP_TRY(ask_device(draft));
    if (draft->gives_up) {
        return MP_OK;
    }
    bool *there = calloc((size_t)draft->graph->value_count + 1, sizeof *there);
    if (there == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to plan a graph");
    }
    bring_together(draft->program);
    draft->gives_up = !is_in_order(draft, there);
    draft->program->launches += 2 * (int64_t)draft->program->branch_count;
    free(there);
    return MP_OK;
}
