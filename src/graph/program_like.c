/* program_like.c - plans that two programs of a graph have in common.
 *
 * A mask that grows by a token makes other shapes of few nodes. The plans of all others are as
 * they were, and are taken over from the program that ran last: to plan them again takes longer
 * than to run them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/growing.h"
#include "graph/program_private.h"

#include <string.h>

/* A recipe: the expression of a cluster, then of each input a word for type, rank and whether its
 * values are known, its pitch, its dimensions, and these values, then the pitches of the outputs. A
 * plan of more bytes of values is made anew. */
enum { VALUES_MOST = 4096 };

static bool write(mp_program *program, const void *bytes, size_t size) {
    if (!mp_grow(&program->recipes, program->recipe_bytes + size, &program->recipe_capacity, 1)) {
        return false;
    }
    memcpy(program->recipes + program->recipe_bytes, bytes, size);
    program->recipe_bytes += size;
    return true;
}

static bool write_tensor(mp_program *program, const mp_tensor *in, size_t values) {
    const int64_t head[] = {(int64_t)in->type << 16 | (int64_t)in->shape.rank << 8 |
                                (in->data != 0),
                            in->pitch, in->is_there};
    return write(program, head, sizeof head) &&
           write(program, in->shape.dim, (size_t)in->shape.rank * sizeof in->shape.dim[0]) &&
           (values == 0 || write(program, (const void *)(uintptr_t)in->data, values));
}

/* Bytes of its values that are known. */
static size_t values_of(const mp_tensor *in) {
    size_t bytes = 0;
    const bool fits = in->type == MP_NONE || in->data == 0 ||
                      mp_shape_bytes(&in->shape, in->type, &bytes) == MP_OK;
    return fits ? bytes : SIZE_MAX;
}

static bool is_kept(const mp_draft *draft, int32_t node, const mp_tensor *in, int in_count) {
    bool kept = !draft->graph->nodes[node].node.op->draws;
    for (int i = 0; i < in_count; i++) {
        kept = kept && values_of(&in[i]) <= VALUES_MOST;
    }
    return kept;
}

const mp_program_step *mp_draft_like(const mp_draft *draft, int32_t node) {
    const mp_program *like = draft->like;
    const int32_t step = like != NULL ? like->step_of[node] : -1;
    return step >= 0 ? &like->steps[step] : NULL;
}

static bool is_same(const mp_program *a, mp_recipe of_a, const mp_program *b, mp_recipe of_b) {
    return of_a.size == of_b.size &&
           memcmp(a->recipes + of_a.first, b->recipes + of_b.first, of_a.size) == 0;
}

/* Writes the recipe down, whose size is 0 where the plan is only this program's. */
static mp_status write_recipe(mp_draft *draft, const mp_step_ends *ends, const mp_tensor *in,
                              const mp_step_form *form, mp_recipe *recipe) {
    mp_program *program = draft->program;
    const char *expression = form->expression;
    *recipe = (mp_recipe){.first = program->recipe_bytes};
    if (!is_kept(draft, ends->node, in, ends->in_count)) {
        return MP_OK;
    }
    bool whole = expression == NULL || write(program, expression, strlen(expression) + 1);
    for (int i = 0; i < ends->in_count && whole; i++) {
        whole = write_tensor(program, &in[i], values_of(&in[i]));
    }
    if (form->out_pitch != NULL && whole) {
        whole =
            write(program, form->out_pitch, (size_t)ends->out_count * sizeof form->out_pitch[0]);
    }
    recipe->size = program->recipe_bytes - recipe->first;
    return whole ? MP_OK
                 : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the recipe of a plan");
}

mp_status mp_draft_step_plan(mp_draft *draft, const mp_step_ends *ends, const mp_node *node,
                             const mp_tensor *in, const mp_step_form *form, mp_step_plan *out) {
    const mp_program *program = draft->program;
    const mp_program_step *like = mp_draft_like(draft, ends->node);
    *out = (mp_step_plan){.plan = NULL};
    MP_TRY(write_recipe(draft, ends, in, form, &out->recipe));
    if (like != NULL && out->recipe.size > 0 &&
        is_same(program, out->recipe, draft->like, like->recipe)) {
        out->same = like;
        out->plan = like->plan;
        mp_plan_retain(out->plan);
        return MP_OK;
    }
    return mp_plan_make_apart(program->device, node, in, ends->in_count, ends->out_count,
                              form->out_pitch, program->align, &out->plan);
}

void mp_program_number(mp_program *program) {
    program->first_step =
        program->before != NULL ? program->before->first_step + program->before->step_count : 0;
    for (int32_t n = 0; n < program->graph->node_count; n++) {
        program->step_of[n] = -1;
    }
    for (int32_t i = program->step_count - 1; i >= 0; i--) {
        program->step_of[program->steps[i].node] = i;
    }
}
