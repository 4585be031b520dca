/* packed_indexer.c - PackedSparseAttentionIndexer of com.microsoft: the tokens of a packed batch
 * choose what they will attend to. Keys and the tokens that wait to become some lie in memory of
 * one size; how many there are of each is on the device.
 * Kernels: attention/indexer_plan.cu, attention/indexer_state.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/indexer_steps.h"
#include "op/core/families.h"

enum {
    IN_STARTS = 6,
    IN_PAST,
    IN_KEYS = 12,
    IN_WAITING,
    IN_WAITING_GATES,
    IN_LENGTHS,
    IN_WANTED,
    IN_ACTIVE
};
enum { OUT_CHOSEN, OUT_COUNTS, OUT_KEYS, OUT_WAITING, OUT_WAITING_GATES, OUT_LENGTHS, OUT_UPDATE };

typedef struct state {
    mp_indexer x;
    int64_t capacity, kept_rows, updates;
} state;

/* ---- what is given ---- */

static mp_shape shape_of(int rank, int64_t a, int64_t b, int64_t c) {
    return (mp_shape){.rank = rank, .dim = {a, b, c}};
}

/* What the caller wants to know of new tokens. */
static mp_status read_updates(const mp_planner *p, state *s) {
    enum { MOST = 8 };
    const int64_t updates = mp_node_int(p->node, "state_update_capacity", 0);
    const bool gated = s->x.gated, wanted = mp_plan_in(p, IN_WANTED) != NULL;
    const bool active = mp_plan_in(p, IN_ACTIVE) != NULL;
    if (updates < 0 || updates > MOST || (gated && updates > 0)) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "state_update_capacity is %lld; it can be up to %d where policy_mode is qsa, "
            "and 0 where it is csa",
            (long long)updates, MOST);
    }
    if (!gated && mp_plan_wants(p, OUT_WAITING_GATES)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "present_gate_buffer must be left out where policy_mode is qsa");
    }
    const int rank = gated ? 0 : 1;
    MP_TRY(mp_indexer_check(p, IN_WANTED, "state_update_capture_count",
                            shape_of(wanted || updates > 0 ? rank : 0, s->x.at.batch, 0, 0)));
    MP_TRY(mp_indexer_check(p, IN_ACTIVE, "state_update_active",
                            shape_of(active ? rank : 0, 1, 0, 0)));
    s->updates = mp_plan_wants(p, OUT_UPDATE) && !gated ? updates : 0;
    return MP_OK;
}

static mp_status read_state(const mp_planner *p, state *s) {
    const mp_shape *starts = &p->in[IN_STARTS].shape;
    mp_indexer *x = &s->x;
    k_indexer *at = &x->at;
    MP_TRY(mp_indexer_read(p, 1, x));
    at->batch = starts->rank == 1 ? starts->dim[0] - 1 : -1;
    s->capacity = mp_node_int(p->node, "state_capacity", 0);
    s->kept_rows = 2 * at->ratio - 1;
    if (at->batch < 0 || (at->batch == 0 && at->tokens > 0) || s->capacity < 1 ||
        s->capacity > INT32_MAX || at->tokens > INT32_MAX - s->kept_rows) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "cumulative_sequence_lengths of shape %s for %lld tokens, with a "
                       "state_capacity of %lld; it needs a number more than there are requests, "
                       "and the latter must be between 1 and 2147483647",
                       mp_shape_text(starts, text), (long long)at->tokens, (long long)s->capacity);
    }
    const mp_shape waiting = shape_of(3, at->batch, s->kept_rows, x->width);
    MP_TRY(mp_indexer_read_turn(p, at->batch, x));
    MP_TRY(mp_indexer_check(p, IN_PAST, "past_sequence_lengths", shape_of(1, at->batch, 0, 0)));
    MP_TRY(mp_indexer_check(p, IN_KEYS, "past_key_state",
                            shape_of(3, at->batch, s->capacity, x->size)));
    MP_TRY(mp_indexer_check(p, IN_WAITING, "past_kv_buffer", waiting));
    MP_TRY(mp_indexer_check(p, IN_WAITING_GATES, "past_gate_buffer",
                            x->gated ? waiting : shape_of(0, 0, 0, 0)));
    MP_TRY(mp_indexer_check(p, IN_LENGTHS, "past_state_lengths", shape_of(2, at->batch, 2, 0)));
    return read_updates(p, s);
}

/* ---- steps ---- */

static mp_status declare(mp_planner *p, const state *s) {
    const mp_indexer *x = &s->x;
    size_t bytes = 0;
    const mp_tensor *keys = &p->in[IN_KEYS], *waiting = &p->in[IN_WAITING];
    MP_TRY(mp_plan_output(p, OUT_KEYS, x->type, &keys->shape));
    MP_TRY(mp_plan_output(p, OUT_WAITING, x->type, &waiting->shape));
    MP_TRY(mp_plan_output(p, OUT_WAITING_GATES, x->type, &waiting->shape));
    MP_TRY(mp_plan_output(p, OUT_LENGTHS, MP_I32, &p->in[IN_LENGTHS].shape));
    if (!x->gated && mp_plan_wants(p, OUT_UPDATE)) {
        const mp_shape update = shape_of(3, x->at.batch, s->updates, x->size);
        MP_TRY(mp_plan_output(p, OUT_UPDATE, x->type, &update));
    }
    MP_TRY(mp_shape_bytes(&keys->shape, x->type, &bytes));
    return mp_plan_copy(p, MP_OUT(OUT_KEYS), MP_IN(IN_KEYS), bytes);
}

static mp_status launch(mp_planner *p, const state *s, const mp_kernel *kernel, int64_t count) {
    const mp_indexer *x = &s->x;
    const bool gated = x->gated, tells = s->updates > 0;
    const mp_indexer_state_args args = {.pitch = {x->pitch, x->width},
                                        .kept_rows = s->kept_rows,
                                        .capacity = s->capacity,
                                        .updates = s->updates,
                                        .size = (int32_t)x->width,
                                        .gated = gated,
                                        .at = x->at};
    const mp_ref active = mp_plan_in(p, IN_ACTIVE) != NULL ? MP_IN(IN_ACTIVE) : MP_NOWHERE;
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, count, 1), args,
        MP_BIND(mp_indexer_state_args, lengths, MP_IN(IN_LENGTHS)),
        MP_BIND(mp_indexer_state_args, wanted, tells ? MP_IN(IN_WANTED) : MP_NOWHERE),
        MP_BIND(mp_indexer_state_args, active, active),
        MP_BIND(mp_indexer_state_args, lengths_out, MP_OUT(OUT_LENGTHS)),
        MP_BIND(mp_indexer_state_args, windows, x->windows),
        MP_BIND(mp_indexer_state_args, fresh[0], x->key),
        MP_BIND(mp_indexer_state_args, fresh[1], gated ? MP_IN(MP_INDEXER_GATE) : MP_NOWHERE),
        MP_BIND(mp_indexer_state_args, kept[0], MP_IN(IN_WAITING)),
        MP_BIND(mp_indexer_state_args, kept[1], gated ? MP_IN(IN_WAITING_GATES) : MP_NOWHERE),
        MP_BIND(mp_indexer_state_args, kept_out[0], MP_OUT(OUT_WAITING)),
        MP_BIND(mp_indexer_state_args, kept_out[1], gated ? MP_OUT(OUT_WAITING_GATES) : MP_NOWHERE),
        MP_BIND(mp_indexer_state_args, update, tells ? MP_OUT(OUT_UPDATE) : MP_NOWHERE),
        MP_BIND(mp_indexer_state_args, at.starts, x->starts),
        MP_BIND(mp_indexer_state_args, at.past, x->past));
}

static mp_status keep(mp_planner *p, state *s) {
    const mp_indexer *x = &s->x;
    const mp_kernel *plan = NULL, *move = NULL;
    const int64_t rows = s->kept_rows * (x->gated ? 2 : 1) + s->updates;
    const mp_ref gates = x->gated ? MP_IN(IN_WAITING_GATES) : MP_NOWHERE;
    const mp_indexer_keys keys = {
        .source = x->gated ? "gated" : "mean",
        .fresh = x->key,
        .kept = MP_IN(IN_WAITING),
        .kept_gate = gates,
        .out = MP_OUT(OUT_KEYS),
        .update = s->updates > 0 ? MP_OUT(OUT_UPDATE) : MP_NOWHERE,
        .kept_rows = s->kept_rows,
        .windows_most = MP_MIN(s->capacity, (x->at.tokens + x->at.ratio - 1) / x->at.ratio),
        .capacity = s->capacity,
        .updates = s->updates};
    MP_TRY(mp_plan_scratch(p, (size_t)x->at.batch * sizeof(k_windows), &s->x.windows));
    MP_TRY(mp_plan_kernel(p, &plan, "indexer_plan"));
    MP_TRY(mp_plan_kernel(p, &move, "indexer_state_b%zu", mp_dtype_size(x->type) * 8));
    MP_TRY(launch(p, s, plan, x->at.batch));
    MP_TRY(launch(p, s, move, x->at.batch * rows * x->width));
    return mp_plan_indexer_keys(p, x, &keys);
}

static mp_status plan_packed(mp_planner *p) {
    state s = {.capacity = 0};
    MP_TRY(read_state(p, &s));
    s.x.starts = MP_IN(IN_STARTS);
    s.x.past = MP_IN(IN_PAST);
    MP_TRY(declare(p, &s));
    if (s.x.at.batch > 0) {
        MP_TRY(keep(p, &s));
    }
    return mp_plan_indexer_choice(p, &s.x, MP_OUT(OUT_KEYS), s.x.type, s.capacity, s.capacity,
                                  OUT_COUNTS);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"policy_mode", MP_ATTR_STRING},
                                    {"compress_ratio", MP_ATTR_INT},
                                    {"token_budget", MP_ATTR_INT},
                                    {"index_topk", MP_ATTR_INT},
                                    {"epsilon", MP_ATTR_FLOAT},
                                    {"scale", MP_ATTR_FLOAT},
                                    {"head_weight_scale", MP_ATTR_FLOAT},
                                    {"state_capacity", MP_ATTR_INT},
                                    {"state_update_capacity", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "PackedSparseAttentionIndexer",
     .since = 1,
     .until = 1,
     .types = {{"T", 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16},
               {"I", MP_BIT(MP_I64)},
               {"M", MP_BIT(MP_I32)}},
     .in_place = {{IN_KEYS, OUT_KEYS}},
     .in_place_count = 1,
     .attrs = attrs,
     .plan = plan_packed},
};

const mp_op_family mp__family_packed_indexer = {"packed_indexer", ops, MP_COUNT_OF(ops)};
