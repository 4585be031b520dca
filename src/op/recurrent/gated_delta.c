/* gated_delta.c - GatedDeltaNet of com.microsoft: linear attention over a packed batch, whose state
 * is float and has the rows of a column as neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/recurrent/delta_steps.h"

enum { QUERY, KEY, VALUE, STARTS, DECAY, BETA, STATE, LOG_RATE, BIAS, COUNTS, ACTIVE };
enum { CAPACITY_MAX = 8 };

static mp_status no_fit(const mp_planner *p, const char *why) {
    char q[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT, "query of shape %s: %s", mp_shape_text(&p->in[QUERY].shape, q),
                   why);
}

static bool is_given(const mp_planner *p, int i) {
    return mp_plan_in(p, i) != NULL;
}

/* Whether input `i` is `count` numbers in `rank` dimensions, or is absent and may be. */
static bool is_line(const mp_planner *p, int i, int64_t count) {
    const mp_tensor *given = mp_plan_in(p, i);
    return given == NULL || (given->shape.rank == 1 && given->shape.dim[0] == count);
}

/* Heads and their sizes from query, key and value, which lie apart. */
static mp_status read_apart(const mp_planner *p, mp_delta *d) {
    mp_delta_args *args = &d->args;
    const mp_shape *q = &p->in[QUERY].shape, *k = &p->in[KEY].shape, *v = &p->in[VALUE].shape;
    const int r = q->rank;
    if ((r != 3 && r != 4) || !mp_shape_equal(q, k) || v->rank != r || q->dim[0] != v->dim[0] ||
        (r == 4 && q->dim[1] != v->dim[1])) {
        return no_fit(p, "query and key need one shape of three or four dimensions, and value as "
                         "many tokens");
    }
    args->q_heads = q->dim[r - 2];
    args->heads = v->dim[r - 2];
    if (MP_MAX(q->dim[r - 1], v->dim[r - 1]) > INT32_MAX) {
        return no_fit(p, "its heads are too long");
    }
    args->size = (int32_t)q->dim[r - 1];
    args->value = (int32_t)v->dim[r - 1];
    args->q_pitch = args->k_pitch = args->q_heads * args->size;
    args->v_pitch = args->heads * args->value;
    d->q = MP_IN(QUERY);
    d->k = MP_IN(KEY);
    d->v = MP_IN(VALUE);
    return MP_OK;
}

/* The same where each token has query, key and value behind each other: the state tells. */
static mp_status read_packed(const mp_planner *p, mp_delta *d) {
    mp_delta_args *args = &d->args;
    const mp_shape *q = &p->in[QUERY].shape;
    const mp_tensor *state = mp_plan_in(p, STATE);
    if (is_given(p, KEY) || is_given(p, VALUE) || state == NULL || state->shape.rank != 4 ||
        (q->rank != 2 && q->rank != 3)) {
        return no_fit(p, "without key and value it needs two or three dimensions, and "
                         "initial_state four");
    }
    const int64_t *dim = state->shape.dim;
    const int64_t width = q->dim[q->rank - 1], rest = width - dim[1] * dim[2];
    if (dim[3] < 1 || dim[2] > INT32_MAX || dim[3] > INT32_MAX || rest < 1 ||
        rest % (2 * dim[3]) != 0) {
        return no_fit(p, "its rows are not queries, keys and values of the sizes of initial_state");
    }
    args->heads = dim[1];
    args->value = (int32_t)dim[2];
    args->size = (int32_t)dim[3];
    args->q_heads = rest / (2 * dim[3]);
    args->q_pitch = args->k_pitch = args->v_pitch = width;
    const uint64_t part = (uint64_t)rest / 2 * mp_dtype_size(d->type);
    d->q = MP_IN(QUERY);
    d->k = mp_ref_at(d->q, part);
    d->v = mp_ref_at(d->q, 2 * part);
    return MP_OK;
}

/* Which tokens are whose. `lead` dimensions of the query are tokens. */
static mp_status read_tokens(const mp_planner *p, int lead, mp_delta *d) {
    mp_delta_args *args = &d->args;
    const mp_shape *q = &p->in[QUERY].shape;
    const mp_tensor *starts = mp_plan_in(p, STARTS), *state = mp_plan_in(p, STATE);
    args->tokens = mp_shape_span(q, 0, lead);
    if (starts != NULL) {
        if (lead != 1 || starts->shape.rank != 1 || starts->shape.dim[0] < 1) {
            return no_fit(p, "with cu_seqlens its tokens must be one dimension, and cu_seqlens "
                             "too, with one number more than there are requests");
        }
        args->batch = starts->shape.dim[0] - 1;
        d->starts = MP_IN(STARTS);
    } else if (lead == 2) {
        args->batch = q->dim[0];
        args->rows = q->dim[1];
    } else {
        args->batch = state != NULL && state->shape.rank == 4 ? state->shape.dim[0] : 0;
        if (state == NULL ||
            (args->batch == 0 ? args->tokens > 0 : args->tokens % args->batch != 0)) {
            return no_fit(p, "without cu_seqlens its tokens must be a multiple of the batch of "
                             "initial_state");
        }
        args->rows = args->batch > 0 ? args->tokens / args->batch : 0;
    }
    const mp_shape want = {.rank = 4, .dim = {args->batch, args->heads, args->value, args->size}};
    if (state != NULL && !mp_shape_equal(&state->shape, &want)) {
        return no_fit(p, "initial_state must have a matrix of value by key for each request and "
                         "head of value");
    }
    d->past = state != NULL ? MP_IN(STATE) : MP_NOWHERE;
    return MP_OK;
}

static bool is_gate(const mp_planner *p, int i, int lead, const mp_shape *want) {
    const mp_shape *gate = &p->in[i].shape;
    bool fits = gate->rank == lead + want->rank;
    for (int d = 0; fits && d < gate->rank; d++) {
        fits = gate->dim[d] == (d < lead ? p->in[QUERY].shape.dim[d] : want->dim[d - lead]);
    }
    return fits;
}

/* `name` is "none" or `other`. */
static mp_status read_word(const mp_planner *p, const char *name, const char *other, int32_t *out) {
    const char *word = mp_node_string(p->node, name, "none");
    *out = strcmp(word, other) == 0;
    return *out || strcmp(word, "none") == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s is \"%.40s\"; it can be none or %s", name, word,
                         other);
}

static mp_status read_gates(const mp_planner *p, int lead, mp_delta *d) {
    mp_delta_args *args = &d->args;
    const mp_shape heads = {.rank = 1, .dim = {args->heads}};
    const mp_shape rows = {.rank = 2, .dim = {args->heads, args->size}};
    MP_TRY(mp_delta_rule(p, args));
    MP_TRY(read_word(p, "gate_activation", "qwen", &args->gate_rates));
    MP_TRY(read_word(p, "beta_activation", "sigmoid", &args->beta_sigmoids));
    if (is_given(p, DECAY) != (args->decays != 0) || is_given(p, BETA) != (args->retrieves != 0)) {
        return no_fit(p, "decay and beta must be given just where update_rule has them");
    }
    if (is_given(p, LOG_RATE) != (args->gate_rates != 0) ||
        is_given(p, BIAS) != (args->gate_rates != 0) || !is_line(p, LOG_RATE, args->heads) ||
        !is_line(p, BIAS, args->heads)) {
        return no_fit(p, "a_log and dt_bias must be given just where gate_activation is qwen, with "
                         "a number for each head of value");
    }
    const bool each = args->decays && is_gate(p, DECAY, lead, &rows);
    if ((args->decays && !each && !is_gate(p, DECAY, lead, &heads)) ||
        (args->retrieves && !is_gate(p, BETA, lead, &heads))) {
        return no_fit(p, "decay and beta need a number for each token and head of value");
    }
    args->decays = each ? 2 : args->decays;
    args->gates_wide = true;
    d->decay = args->decays ? MP_IN(DECAY) : MP_NOWHERE;
    d->beta = args->retrieves ? MP_IN(BETA) : MP_NOWHERE;
    d->log_rate = args->gate_rates ? MP_IN(LOG_RATE) : MP_NOWHERE;
    d->bias = args->gate_rates ? MP_IN(BIAS) : MP_NOWHERE;
    return MP_OK;
}

/* The output of what changes the states. Where it is switched off it is 0. */
static mp_status read_update(mp_planner *p, mp_delta *d) {
    mp_delta_args *args = &d->args;
    int64_t active = 1;
    int count = 0;
    args->capacity = mp_node_int(p->node, "state_update_capacity", 0);
    MP_TRY(mp_host_ints(p, ACTIVE, "state_update_active", 1, &active, &count));
    const bool on = args->capacity > 0 && (count < 1 || active != 0);
    if (args->capacity < 0 || args->capacity > CAPACITY_MAX ||
        is_given(p, COUNTS) != (args->capacity > 0) || !is_line(p, COUNTS, args->batch) ||
        (args->capacity > 0 && args->decays == 2)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "state_update_capacity is %lld; it can be 0 to %d, with a capture_count for "
                       "each request just where it is not 0, and then with one decay for a head",
                       (long long)args->capacity, CAPACITY_MAX);
    }
    if (p->out_count < 3) {
        return MP_OK;
    }
    const int64_t width = args->heads + args->k_heads * args->size + args->heads * args->value;
    const mp_shape shape = {.rank = 2, .dim = {args->batch, args->capacity * width}};
    MP_TRY(mp_plan_output(p, 2, MP_F32, &shape));
    if (mp_plan_wants(p, 2) && mp_shape_count(&shape) > 0) {
        MP_TRY(mp_plan_fill(p, MP_OUT(2), 0, sizeof(float), (size_t)mp_shape_count(&shape)));
        d->update = on ? MP_OUT(2) : MP_NOWHERE;
        d->counts = on ? MP_IN(COUNTS) : MP_NOWHERE;
    }
    return MP_OK;
}

static mp_status declare(mp_planner *p, int lead, const mp_delta *d) {
    const mp_delta_args *args = &d->args;
    mp_shape out = {.rank = lead + 2};
    for (int i = 0; i < lead; i++) {
        out.dim[i] = p->in[QUERY].shape.dim[i];
    }
    out.dim[lead] = args->heads;
    out.dim[lead + 1] = args->value;
    MP_TRY(mp_plan_output(p, 0, d->type, &out));
    const mp_shape state = {.rank = 4, .dim = {args->batch, args->heads, args->value, args->size}};
    return p->out_count > 1 ? mp_plan_output(p, 1, MP_F32, &state) : MP_OK;
}

static mp_status plan_gated(mp_planner *p) {
    mp_delta d = {.type = p->in[QUERY].type, .state_type = MP_F32};
    mp_delta_args *args = &d.args;
    const bool apart = is_given(p, KEY) && is_given(p, VALUE);
    const int lead = p->in[QUERY].shape.rank - (apart ? 2 : 1);
    MP_TRY(apart ? read_apart(p, &d) : read_packed(p, &d));
    if (args->q_heads < 1 || args->heads < 1 || args->heads % args->q_heads != 0) {
        return no_fit(p, "the heads of value must be a positive multiple of its own");
    }
    args->k_heads = args->q_heads;
    args->queries = 1;
    MP_TRY(read_tokens(p, lead, &d));
    MP_TRY(read_gates(p, lead, &d));
    MP_TRY(declare(p, lead, &d));
    MP_TRY(read_update(p, &d));
    args->row_step = 1;
    args->column_step = args->size;
    args->out_pitch = args->heads * args->value;
    args->normed = mp_node_int(p->node, "qk_l2_norm", 0) != 0;
    args->scale = mp_delta_scale(p, args->size);
    d.out = MP_OUT(0);
    d.present = mp_plan_wants(p, 1) ? MP_OUT(1) : MP_NOWHERE;
    return mp_plan_delta(p, &d);
}

/* ---- the row ---- */

/* chunk_size is advice for kernels that take tokens in another order. */
static const mp_attr_def attrs[] = {{"state_update_capacity", MP_ATTR_INT},
                                    {"beta_activation", MP_ATTR_STRING},
                                    {"gate_activation", MP_ATTR_STRING},
                                    {"scale", MP_ATTR_FLOAT},
                                    {"qk_l2_norm", MP_ATTR_INT},
                                    {"update_rule", MP_ATTR_STRING},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "GatedDeltaNet",
     .since = 1,
     .until = 1,
     .types = {{"T", 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16},
               {"TS", MP_BIT(MP_F32)},
               {"TI", MP_BIT(MP_I32)}},
     .host_in = 1u << ACTIVE,
     .attrs = attrs,
     .plan = plan_gated},
};

const mp_op_family mp__family_gated_delta = {"gated_delta", ops, MP_COUNT_OF(ops)};
