/* causal_conv.c - CausalConvWithState and VarlenCausalConvWithState of com.microsoft: a convolution
 * of each channel along its tokens, with the tokens that the next run needs.
 * Kernels: recurrent/causal_conv.cu, recurrent/causal_conv_line.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/recurrent/delta_args.h"
#include "op/core/families.h"

enum { X, WEIGHT };
enum { KEPT_MAX = 8 };

/* Where each operator has its inputs; -1 for one that it lacks. */
typedef struct order {
    int bias, past, starts, counts;
} order;

static const order order_even = {.bias = 2, .past = 3, .starts = -1, .counts = -1};
static const order order_packed = {.bias = 3, .past = 4, .starts = 2, .counts = 5};

static const order *order_of(const mp_planner *p) {
    return p->node->op->detail;
}

static const mp_tensor *given(const mp_planner *p, int i) {
    return i >= 0 ? mp_plan_in(p, i) : NULL;
}

static mp_ref ref_of(const mp_planner *p, int i) {
    return given(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

static mp_status no_fit(const mp_planner *p, const char *why) {
    char x[MP_SHAPE_TEXT], w[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT, "input of shape %s and weight of shape %s: %s",
                   mp_shape_text(&p->in[X].shape, x), mp_shape_text(&p->in[WEIGHT].shape, w), why);
}

static mp_status read_kernel(const mp_planner *p, mp_causal_conv_args *args) {
    const mp_shape *w = &p->in[WEIGHT].shape;
    const mp_tensor *bias = given(p, order_of(p)->bias);
    const char *word = mp_node_string(p->node, "activation", "none");
    args->silu = strcmp(word, "silu") == 0 || strcmp(word, "swish") == 0;
    args->dilation = mp_node_int(p->node, "dilation", 1);
    if (!args->silu && strcmp(word, "none") != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "activation is \"%.40s\"; it can be none, silu or swish",
                       word);
    }
    if (w->rank != 3 || w->dim[0] != args->channels || w->dim[1] != 1 || w->dim[2] < 1) {
        return no_fit(p, "the weight needs a row of taps for each channel");
    }
    if (bias != NULL && (bias->shape.rank != 1 || bias->shape.dim[0] != args->channels)) {
        return no_fit(p, "the bias needs a number for each channel");
    }
    args->taps = w->dim[2];
    if (args->dilation < 1 ||
        __builtin_mul_overflow(args->taps - 1, args->dilation, &args->state) ||
        args->state > INT64_MAX / 4) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "dilation is %lld; it must be 1 or more, and %lld taps fit",
                       (long long)args->dilation, (long long)args->taps);
    }
    return MP_OK;
}

/* `name` as a number of at most KEPT_MAX. */
static mp_status read_kept(const mp_planner *p, const char *name, int64_t *out) {
    *out = mp_node_int(p->node, name, 0);
    return *out >= 0 && *out <= KEPT_MAX
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s is %lld; it can be 0 to %d", name, (long long)*out,
                         KEPT_MAX);
}

static mp_status check_past(const mp_planner *p, const mp_shape *want) {
    const mp_tensor *past = given(p, order_of(p)->past);
    char has[MP_SHAPE_TEXT], text[MP_SHAPE_TEXT];
    return past == NULL || mp_shape_equal(&past->shape, want)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "a past state of shape %s where %s is needed",
                         mp_shape_text(&past->shape, has), mp_shape_text(want, text));
}

/* A launch that writes the result, what is kept, or both. */
static mp_status launch(mp_planner *p, const mp_causal_conv_args *args, const char *word, bool out,
                        bool keeps, int64_t lanes) {
    const order *at = order_of(p);
    const mp_kernel *kernel = NULL;
    if (lanes == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "%s_%s", word, mp_dtype_word(p->in[X].type)));
    const mp_ref present = keeps && mp_plan_wants(p, 1) && args->state > 0 ? MP_OUT(1) : MP_NOWHERE;
    const mp_ref update =
        keeps && args->capacity > 0 && mp_plan_wants(p, 2) ? MP_OUT(2) : MP_NOWHERE;
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, lanes, 1), *args,
                     MP_BIND(mp_causal_conv_args, x, MP_IN(X)),
                     MP_BIND(mp_causal_conv_args, weight, MP_IN(WEIGHT)),
                     MP_BIND(mp_causal_conv_args, bias, ref_of(p, at->bias)),
                     MP_BIND(mp_causal_conv_args, past, ref_of(p, at->past)),
                     MP_BIND(mp_causal_conv_args, starts, ref_of(p, at->starts)),
                     MP_BIND(mp_causal_conv_args, counts, ref_of(p, at->counts)),
                     MP_BIND(mp_causal_conv_args, out, out ? MP_OUT(0) : MP_NOWHERE),
                     MP_BIND(mp_causal_conv_args, present, present),
                     MP_BIND(mp_causal_conv_args, update, update));
}

/* Elements of 16 bytes. */
static int64_t pack_of(const mp_planner *p) {
    return 16 / (int64_t)mp_dtype_size(p->in[X].type);
}

/* Whether causal_conv_line.cu is for this. */
static bool is_line(const mp_planner *p, const mp_causal_conv_args *args) {
    const int64_t pack = pack_of(p);
    return args->channels_first && p->align >= 16 && args->rows > 0 && args->rows % pack == 0 &&
           args->taps <= K_CAUSAL_CONV_TAPS && args->dilation == 1 && args->windows <= 1 &&
           args->channels > 0 && args->tokens / pack <= INT32_MAX / args->channels;
}

static mp_status plan_line(mp_planner *p, mp_causal_conv_args *args) {
    args->packs = args->rows / pack_of(p);
    args->by_packs = mp_divider((uint32_t)args->packs);
    args->by_channels = mp_divider((uint32_t)args->channels);
    return launch(p, args, "causal_conv_line", true, true,
                  args->batch * args->channels * args->packs);
}

static mp_status plan_steps(mp_planner *p, mp_causal_conv_args *args) {
    const bool keeps =
        (mp_plan_wants(p, 1) && args->state > 0) || (args->capacity > 0 && mp_plan_wants(p, 2));
    if (is_line(p, args)) {
        return plan_line(p, args);
    }
    args->stage = K_CAUSAL_CONV_OUT;
    MP_TRY(launch(p, args, "causal_conv", true, false, args->tokens * args->channels));
    args->stage = K_CAUSAL_CONV_STATE;
    return keeps ? launch(p, args, "causal_conv", false, true, args->batch * args->channels)
                 : MP_OK;
}

/* ---- entries of one length ---- */

static mp_status accept_even(const mp_planner *p) {
    const int64_t ndim = mp_node_int(p->node, "ndim", 1);
    return ndim == 1 ? MP_OK
                     : MP_FAIL(UNSUPPORTED, "ndim is %lld; 1 is supported", (long long)ndim);
}

static void set_steps(mp_causal_conv_args *args, int64_t step[3], int64_t places) {
    step[0] = places * args->channels;
    step[1] = args->channels_first ? 1 : args->channels;
    step[2] = args->channels_first ? places : 1;
}

static mp_status plan_even(mp_planner *p) {
    mp_causal_conv_args args = {.channels_first = mp_node_int(p->node, "channels_last", 0) == 0};
    const mp_shape *x = &p->in[X].shape;
    MP_TRY(accept_even(p));
    if (x->rank < 3 || x->rank >= MP_RANK_MAX || (args.channels_first && x->rank != 3)) {
        return no_fit(p, "the input needs a batch, tokens and channels");
    }
    args.batch = x->dim[0];
    args.rows = x->dim[args.channels_first ? 2 : 1];
    args.channels = args.channels_first ? x->dim[1] : mp_shape_span(x, 2, x->rank);
    args.tokens = args.batch * args.rows;
    MP_TRY(read_kernel(p, &args));
    MP_TRY(read_kept(p, "state_window", &args.windows));
    set_steps(&args, args.x_step, args.rows);
    set_steps(&args, args.state_step, args.state);
    mp_shape state = *x;
    state.dim[args.channels_first ? 2 : 1] = args.state;
    if (args.windows > 0) {
        memmove(state.dim + 1, state.dim, (size_t)state.rank * sizeof *state.dim);
        state.dim[0] = args.windows;
        state.rank++;
    }
    MP_TRY(check_past(p, &state));
    MP_TRY(mp_plan_output(p, 0, p->in[X].type, x));
    if (p->out_count > 1) {
        MP_TRY(mp_plan_output(p, 1, p->in[X].type, &state));
    }
    return plan_steps(p, &args);
}

/* ---- a packed batch ---- */

static mp_status plan_packed(mp_planner *p) {
    mp_causal_conv_args args = {.windows = 0};
    const order *at = order_of(p);
    const mp_shape *x = &p->in[X].shape, *starts = &p->in[at->starts].shape;
    const mp_tensor *counts = given(p, at->counts);
    if (x->rank != 2 || starts->rank != 1 || starts->dim[0] < 1 || given(p, at->past) == NULL) {
        return no_fit(p, "the input needs tokens and channels, with an initial_state and "
                         "cumulative_sequence_length of one number more than there are sequences");
    }
    args.batch = starts->dim[0] - 1;
    args.tokens = x->dim[0];
    args.channels = x->dim[1];
    MP_TRY(read_kernel(p, &args));
    MP_TRY(read_kept(p, "state_update_capacity", &args.capacity));
    if ((counts != NULL) != (args.capacity > 0) ||
        (counts != NULL && (counts->shape.rank != 1 || counts->shape.dim[0] != args.batch))) {
        return no_fit(p, "capture_count needs a number for each sequence just where "
                         "state_update_capacity is not 0");
    }
    args.x_step[1] = args.channels;
    args.x_step[2] = args.state_step[1] = 1;
    args.state_step[0] = args.channels * args.state;
    args.state_step[2] = args.state;
    const mp_shape state = {.rank = 3, .dim = {args.batch, args.channels, args.state}};
    const mp_shape update = {.rank = 3, .dim = {args.batch, args.capacity, args.channels}};
    MP_TRY(check_past(p, &state));
    MP_TRY(mp_plan_output(p, 0, p->in[X].type, x));
    if (p->out_count > 1) {
        MP_TRY(mp_plan_output(p, 1, p->in[X].type, &state));
    }
    if (p->out_count > 2) {
        MP_TRY(mp_plan_output(p, 2, p->in[X].type, &update));
    }
    return plan_steps(p, &args);
}

/* ---- the rows ---- */

enum { TYPES = 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16 };

static const mp_attr_def attrs_even[] = {
    {"state_window", MP_ATTR_INT}, {"channels_last", MP_ATTR_INT}, {"dilation", MP_ATTR_INT},
    {"ndim", MP_ATTR_INT},         {"activation", MP_ATTR_STRING}, {NULL, 0}};
static const mp_attr_def attrs_packed[] = {{"state_update_capacity", MP_ATTR_INT},
                                           {"dilation", MP_ATTR_INT},
                                           {"activation", MP_ATTR_STRING},
                                           {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "CausalConvWithState",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}},
     .attrs = attrs_even,
     .plan = plan_even,
     .accept = accept_even,
     .detail = &order_even},
    {.domain = "com.microsoft",
     .name = "VarlenCausalConvWithState",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"M", MP_BIT(MP_I32)}},
     .attrs = attrs_packed,
     .plan = plan_packed,
     .detail = &order_packed},
};

const mp_op_family mp__family_causal_conv = {"causal_conv", ops, MP_COUNT_OF(ops)};
