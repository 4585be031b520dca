/* plan_make.c - a plan's life: an operator's function is asked for its steps, and what it lists is
 * checked; references; what callers may know of a plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/op.h"
#include "op/core/plan.h"
#include "op/core/plan_record.h"

#include <stdlib.h>

static mp_status check_apart(const mp_op *op, int64_t pitch, bool allowed, int i) {
    return pitch == 0 || allowed
               ? MP_OK
               : MP_FAIL(INTERNAL, "%s takes no rows that lie apart, as those of operand %d do",
                         op->name, i);
}

/* After this, products of the dimensions of one input do not overflow. */
static mp_status check_inputs(const mp_op *op, const mp_tensor *in, int in_count) {
    for (int i = 0; i < in_count; i++) {
        size_t bytes = 0;
        MP_TRY(check_apart(op, in[i].pitch, mp_op_apart_in(op, (size_t)i), i));
        if (in[i].type == MP_NONE && op->variadic) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "input %d of %d is left out; this operator needs each of its inputs", i,
                           in_count);
        }
        if (in[i].type != MP_NONE) {
            MP_TRY(mp_shape_bytes(&in[i].shape, in[i].type, &bytes));
        }
    }
    return MP_OK;
}

static mp_status check_outputs(const mp_plan *plan) {
    for (int i = 0; i < plan->out_count; i++) {
        if (plan->out[i].type == MP_NONE) {
            return MP_FAIL(UNSUPPORTED, "output %d is not one that this operator computes", i);
        }
    }
    return MP_OK;
}

/* Which of an operator's functions lists the steps, and what for. */
typedef struct purpose {
    const int64_t *found;     /* what is to be finished with; NULL otherwise */
    int prepared;             /* the input that is to be prepared; -1 otherwise */
    const int64_t *out_pitch; /* as mp_planner.out_pitch */
} purpose;

static mp_status list_steps(mp_planner *planner, purpose why) {
    const mp_op *op = planner->node->op;
    if (why.prepared >= 0) {
        return op->prepare(planner, why.prepared);
    }
    if (why.found == NULL) {
        MP_TRY(op->plan(planner));
        if (op->finish == NULL) {
            return check_outputs(planner->plan);
        }
        return planner->plan->found_count > 0
                   ? MP_OK
                   : MP_FAIL(INTERNAL, "%s finds nothing to finish with", op->name);
    }
    if (op->finish == NULL) {
        return MP_FAIL(INTERNAL, "%s has nothing to finish", op->name);
    }
    MP_TRY(op->finish(planner, why.found));
    return check_outputs(planner->plan);
}

/* Puts the node in front of the sentence. */
static mp_status name_node(const mp_node *node, mp_status status) {
    if (node->title != NULL) {
        return mp__fail(status, "%s: %s", node->title, mp_error_message());
    }
    const char *quote = node->name[0] != '\0' ? "'" : "";
    return mp__fail(status, "%s%s%s%s%s: %s", node->op->name, quote[0] != '\0' ? " " : "", quote,
                    node->name, quote, mp_error_message());
}

static mp_status plan_open(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                           int in_count, int out_count, int32_t align, purpose why, mp_plan **out) {
    mp_plan *plan = calloc(1, sizeof *plan);
    mp_tensor *outputs = calloc(out_count > 0 ? (size_t)out_count : 1, sizeof *outputs);
    if (plan == NULL || outputs == NULL) {
        free(plan);
        free(outputs);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a plan of %s",
                       node->op->name);
    }
    plan->references = 1;
    plan->device = device;
    plan->out_count = out_count;
    plan->out = outputs;
    mp_planner planner = {.device = device,
                          .node = node,
                          .in = in,
                          .in_count = in_count,
                          .out_count = out_count,
                          .align = align,
                          .out_pitch = why.out_pitch,
                          .plan = plan};
    mp_status status = check_inputs(node->op, in, in_count);
    for (int i = 0; i < out_count && status == MP_OK; i++) {
        status = check_apart(node->op, mp_plan_out_pitch(&planner, i),
                             mp_op_apart_out(node->op, (size_t)i), i);
    }
    if (status == MP_OK) {
        status = list_steps(&planner, why);
    }
    if (status != MP_OK) {
        (void)name_node(node, status);
        mp_plan_release(plan);
        return status;
    }
    *out = plan;
    return MP_OK;
}

mp_status mp_plan_make(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                       int in_count, int out_count, int32_t align, mp_plan **out) {
    return mp_plan_make_apart(device, node, in, in_count, out_count, NULL, align, out);
}

mp_status mp_plan_make_apart(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                             int in_count, int out_count, const int64_t *out_pitch, int32_t align,
                             mp_plan **out) {
    const purpose run = {.prepared = -1, .out_pitch = out_pitch};
    return plan_open(device, node, in, in_count, out_count, align, run, out);
}

mp_status mp_plan_prepare(mp_device *device, const struct mp_node *node, const mp_tensor *in, int i,
                          int32_t align, mp_plan **out) {
    const purpose prepare = {.prepared = i};
    *out = NULL;
    if (node->op->prepare == NULL) {
        return MP_OK;
    }
    MP_TRY(plan_open(device, node, in, i + 1, 1, align, prepare, out));
    if ((*out)->out[0].type == MP_NONE) {
        mp_plan_release(*out);
        *out = NULL;
    }
    return MP_OK;
}

mp_status mp_plan_finish(mp_device *device, const struct mp_node *node, const mp_tensor *in,
                         int in_count, int out_count, int32_t align,
                         const int64_t found[MP_FOUND_MAX], mp_plan **out) {
    const purpose end = {.found = found, .prepared = -1};
    return plan_open(device, node, in, in_count, out_count, align, end, out);
}

void mp_plan_retain(mp_plan *plan) {
    atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
}

void mp_plan_release(mp_plan *plan) {
    if (plan == NULL || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    for (size_t at = 0; at < plan->used; at += step_at(plan, at)->size) {
        const plan_step *s = step_at(plan, at);
        if (s->kind == STEP_MATH || s->kind == STEP_COLLECTIVE) {
            mp_math *math = s->kind == STEP_MATH ? s->math.math : s->collective.math;
            plan->device->ops->math_release(plan->device, math);
        }
    }
    free(plan->steps);
    free(plan->out);
    free(plan);
}

int mp_plan_output_count(const mp_plan *plan) {
    return plan->out_count;
}

const mp_tensor *mp_plan_output_at(const mp_plan *plan, int i) {
    return &plan->out[i];
}

size_t mp_plan_scratch_bytes(const mp_plan *plan) {
    return plan->scratch;
}

uint64_t mp_plan_found_at(const mp_plan *plan, int *count) {
    *count = plan->found_count;
    return plan->found.offset;
}

int mp_plan_step_count(const mp_plan *plan) {
    return plan->step_count;
}

bool mp_plan_is_copy(const mp_plan *plan, size_t *offset) {
    size_t bytes = 0;
    if (plan->step_count != 1 || plan->out_count != 1 || plan->found_count != 0) {
        return false;
    }
    const plan_step *step = step_at(plan, 0);
    const mp_ref *target = &step->copy.target, *source = &step->copy.source;
    *offset = source->offset;
    return step->kind == STEP_COPY && target->place == MP_PLACE_OUT && target->index == 0 &&
           target->offset == 0 && source->place == MP_PLACE_IN && source->index == 0 &&
           mp_shape_bytes(&plan->out[0].shape, plan->out[0].type, &bytes) == MP_OK &&
           bytes == step->copy.size;
}
