/* linear_attention.c - LinearAttention of com.microsoft, and LinearAttentionGate, which makes its
 * gates.
 * Kernel: recurrent/delta_gate.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/recurrent/delta_steps.h"

/* ---- LinearAttention ---- */

enum { QUERY, KEY, VALUE, PAST, DECAY, BETA };
enum { WINDOW_MAX = 8 };

static mp_status no_fit(const mp_planner *p, const char *why) {
    char q[MP_SHAPE_TEXT], k[MP_SHAPE_TEXT], v[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT,
                   "query of shape %s, key of shape %s and value of shape %s with %lld and %lld "
                   "heads: %s",
                   mp_shape_text(&p->in[QUERY].shape, q), mp_shape_text(&p->in[KEY].shape, k),
                   mp_shape_text(&p->in[VALUE].shape, v),
                   (long long)mp_node_int(p->node, "q_num_heads", 0),
                   (long long)mp_node_int(p->node, "kv_num_heads", 0), why);
}

static mp_status read_heads(const mp_planner *p, mp_delta_args *args) {
    const mp_shape *q = &p->in[QUERY].shape, *k = &p->in[KEY].shape, *v = &p->in[VALUE].shape;
    args->q_heads = mp_node_int(p->node, "q_num_heads", 0);
    args->heads = mp_node_int(p->node, "kv_num_heads", 0);
    const int64_t most = MP_MAX(args->q_heads, args->heads);
    const int64_t fewest = MP_MIN(args->q_heads, args->heads);
    if (fewest < 1 || most % fewest != 0 || most > INT32_MAX) {
        return no_fit(p, "one number of heads must be a multiple of the other");
    }
    if (q->rank != 3 || k->rank != 3 || v->rank != 3 || q->dim[0] != k->dim[0] ||
        q->dim[0] != v->dim[0] || q->dim[1] != k->dim[1] || q->dim[1] != v->dim[1]) {
        return no_fit(p, "they need three dimensions, the first two alike");
    }
    const int64_t size = q->dim[2] / args->q_heads, value = v->dim[2] / args->heads;
    if (size < 1 || size * args->q_heads != q->dim[2] || value * args->heads != v->dim[2] ||
        k->dim[2] % size != 0 || k->dim[2] < size || args->heads % (k->dim[2] / size) != 0 ||
        size > INT32_MAX || value > INT32_MAX) {
        return no_fit(p, "the last dimension must be whole heads, those of the key as long as the "
                         "query's");
    }
    args->k_heads = k->dim[2] / size;
    args->size = (int32_t)size;
    args->value = (int32_t)value;
    args->queries = (int32_t)MP_MAX(args->q_heads / args->heads, 1);
    args->batch = q->dim[0];
    args->rows = q->dim[1];
    args->tokens = args->batch * args->rows;
    args->q_pitch = q->dim[2];
    args->k_pitch = k->dim[2];
    args->v_pitch = v->dim[2];
    return MP_OK;
}

/* Whether input `i` has rows of `width` for each token. */
static bool is_gate(const mp_planner *p, int i, int64_t width) {
    const mp_tensor *gate = mp_plan_in(p, i);
    const mp_shape *q = &p->in[QUERY].shape;
    const mp_shape want = {.rank = 3, .dim = {q->dim[0], q->dim[1], width}};
    return gate != NULL && mp_shape_equal(&gate->shape, &want);
}

static mp_status read_gates(const mp_planner *p, mp_delta *d) {
    mp_delta_args *args = &d->args;
    MP_TRY(mp_delta_rule(p, args));
    if (args->decays) {
        const bool each = is_gate(p, DECAY, args->heads * args->size);
        if (!each && !is_gate(p, DECAY, args->heads)) {
            return no_fit(p, "this update_rule needs a decay for each token and head, or for each "
                             "of its elements");
        }
        args->decays = each && args->size > 1 ? 2 : 1;
        d->decay = MP_IN(DECAY);
    }
    if (args->retrieves) {
        if (!is_gate(p, BETA, args->heads) && !is_gate(p, BETA, 1)) {
            return no_fit(p,
                          "this update_rule needs beta for each token, or for each of its heads");
        }
        args->beta_heads = is_gate(p, BETA, args->heads) ? 0 : 1;
        d->beta = MP_IN(BETA);
    }
    return MP_OK;
}

/* The shape of the states, with `state_window` of them behind each other. */
static mp_status read_states(const mp_planner *p, mp_delta *d, mp_shape *out) {
    mp_delta_args *args = &d->args;
    const mp_tensor *past = mp_plan_in(p, PAST);
    char text[MP_SHAPE_TEXT], want[MP_SHAPE_TEXT];
    args->windows = mp_node_int(p->node, "state_window", 0);
    if (args->windows < 0 || args->windows > WINDOW_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "state_window is %lld; it can be 0 to %d",
                       (long long)args->windows, WINDOW_MAX);
    }
    *out = (mp_shape){.rank = 5,
                      .dim = {args->windows, args->batch, args->heads, args->size, args->value}};
    if (args->windows == 0) {
        *out = (mp_shape){.rank = 4, .dim = {args->batch, args->heads, args->size, args->value}};
    }
    if (past != NULL && !mp_shape_equal(&past->shape, out)) {
        return MP_FAIL(INVALID_ARGUMENT, "past_state of shape %s where %s is needed",
                       mp_shape_text(&past->shape, text), mp_shape_text(out, want));
    }
    d->past = past != NULL ? MP_IN(PAST) : MP_NOWHERE;
    d->state_type = past != NULL ? past->type : d->type;
    args->row_step = args->value;
    args->column_step = 1;
    return MP_OK;
}

static mp_status plan_linear(mp_planner *p) {
    mp_delta d = {.type = p->in[QUERY].type};
    mp_shape state;
    MP_TRY(read_heads(p, &d.args));
    MP_TRY(read_gates(p, &d));
    MP_TRY(read_states(p, &d, &state));
    d.args.scale = mp_delta_scale(p, d.args.size);
    d.args.out_pitch = MP_MAX(d.args.q_heads, d.args.heads) * d.args.value;
    const mp_shape out = {.rank = 3, .dim = {d.args.batch, d.args.rows, d.args.out_pitch}};
    MP_TRY(mp_plan_output(p, 0, d.type, &out));
    if (p->out_count > 1) {
        MP_TRY(mp_plan_output(p, 1, d.state_type, &state));
    }
    d.q = MP_IN(QUERY);
    d.k = MP_IN(KEY);
    d.v = MP_IN(VALUE);
    d.out = MP_OUT(0);
    d.present = mp_plan_wants(p, 1) ? MP_OUT(1) : MP_NOWHERE;
    return mp_plan_delta(p, &d);
}

/* ---- LinearAttentionGate ---- */

static mp_status plan_gate(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const mp_tensor *y = mp_plan_in(p, 3);
    const mp_shape heads = {.rank = 1, .dim = {x->rank == 3 ? x->dim[2] : -1}};
    char text[MP_SHAPE_TEXT];
    if (!mp_shape_equal(&p->in[1].shape, &heads) || !mp_shape_equal(&p->in[2].shape, &heads) ||
        (y != NULL && !mp_shape_equal(&y->shape, x)) || (y == NULL && mp_plan_wants(p, 1))) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "a of shape %s needs three dimensions, dt_bias and decay_scale of its last "
                       "one, and b of its shape where beta is wanted",
                       mp_shape_text(x, text));
    }
    const mp_dtype type = p->in[0].type;
    const mp_delta_gate_args args = {.count = mp_shape_count(x), .heads = heads.dim[0]};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_output(p, 0, type, x));
    if (p->out_count > 1) {
        MP_TRY(mp_plan_output(p, 1, type, x));
    }
    if (args.count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "delta_gate_%s", mp_dtype_word(type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args.count, 1), args, MP_BIND(mp_delta_gate_args, x, MP_IN(0)),
        MP_BIND(mp_delta_gate_args, y, y != NULL ? MP_IN(3) : MP_NOWHERE),
        MP_BIND(mp_delta_gate_args, bias, MP_IN(1)), MP_BIND(mp_delta_gate_args, rate, MP_IN(2)),
        MP_BIND(mp_delta_gate_args, decay, MP_OUT(0)),
        MP_BIND(mp_delta_gate_args, beta, mp_plan_wants(p, 1) ? MP_OUT(1) : MP_NOWHERE));
}

/* ---- the rows ---- */

enum { TYPES = 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16 };

/* chunk_size is advice for kernels that take tokens in another order. */
static const mp_attr_def attrs_linear[] = {
    {"q_num_heads", MP_ATTR_INT},  {"kv_num_heads", MP_ATTR_INT},   {"scale", MP_ATTR_FLOAT},
    {"state_window", MP_ATTR_INT}, {"update_rule", MP_ATTR_STRING}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "LinearAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"S", TYPES}},
     .attrs = attrs_linear,
     .plan = plan_linear},
    {.domain = "com.microsoft",
     .name = "LinearAttentionGate",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"TF", MP_BIT(MP_F32)}},
     .plan = plan_gate},
};

const mp_op_family mp__family_linear_attention = {"linear_attention", ops, MP_COUNT_OF(ops)};
