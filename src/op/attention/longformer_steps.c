/* longformer_steps.c - see longformer_steps.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/longformer_steps.h"

#include <math.h>

static mp_status check_input(const mp_planner *p, int i, const mp_shape *wanted) {
    if (!mp_shape_equal(&p->in[i].shape, wanted)) {
        char given[MP_SHAPE_TEXT];
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "input %d has shape %s; it must be %s", i,
                       mp_shape_text(&p->in[i].shape, given), mp_shape_text(wanted, text));
    }
    return MP_OK;
}

static mp_status read_sizes(const mp_planner *p, mp_longformer *x) {
    const mp_shape *shape = &p->in[0].shape;
    mp_dense *d = &x->d;
    char text[MP_SHAPE_TEXT];
    if (shape->rank != 3) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "an input of shape %s; it must be of batch, rows and width",
                       mp_shape_text(shape, text));
    }
    d->batch = shape->dim[0];
    d->rows = d->fresh = shape->dim[1];
    x->width = shape->dim[2];
    x->window = mp_node_int(p->node, "window", 0);
    MP_TRY(mp_dense_heads(p, &d->heads));
    if (d->batch > INT32_MAX || d->rows > INT32_MAX || x->width > INT32_MAX) {
        return MP_FAIL(UNSUPPORTED, "an input of shape %s; sizes are below 2147483648",
                       mp_shape_text(shape, text));
    }
    if (x->window < 1 || d->rows % x->window != 0 || d->rows / x->window % 2 != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%lld rows and a window of %lld on either side; rows must be a multiple of "
                       "twice the window, which padding with a mask below 0 makes them",
                       (long long)d->rows, (long long)x->window);
    }
    if (x->width % d->heads != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "rows of %lld elements for %lld heads",
                       (long long)x->width, (long long)d->heads);
    }
    d->head = d->value = x->width / d->heads;
    x->tokens = d->batch * d->rows;
    return MP_OK;
}

mp_status mp_longformer_read(const mp_planner *p, const mp_longformer_inputs *in, bool apart_too,
                             mp_longformer *out) {
    mp_longformer *x = out;
    *x = (mp_longformer){.apart = apart_too && p->in[in->weights].shape.rank == 3};
    MP_TRY(read_sizes(p, x));
    const int64_t width = x->width;
    const mp_shape beside = {.rank = 2, .dim = {width, 3 * width}};
    const mp_shape apart = {.rank = 3, .dim = {3, width, width}};
    const mp_shape *weights = x->apart ? &apart : &beside;
    const mp_shape bias = {.rank = 1, .dim = {(x->apart ? 5 : 3) * width}};
    const mp_shape global_bias = {.rank = 1, .dim = {(x->apart ? 1 : 3) * width}};
    const mp_shape tokens = {.rank = 2, .dim = {x->d.batch, x->d.rows}};
    MP_TRY(check_input(p, in->weights, weights));
    MP_TRY(check_input(p, in->bias, &bias));
    MP_TRY(check_input(p, in->mask, &tokens));
    MP_TRY(check_input(p, in->global_weights, weights));
    MP_TRY(check_input(p, in->global_bias, &global_bias));
    return check_input(p, in->flags, &tokens);
}

/* A token sees `window` keys before its own and as many behind it: it is taken for the one that is
 * last of these, as if that many keys were past. */
mp_status mp_longformer_attend(mp_planner *p, const mp_longformer *x,
                               const mp_longformer_inputs *in, const mp_dense own[2], mp_ref y) {
    const mp_dense *d = &x->d;
    const mp_tensor *mask = &p->in[in->mask];
    const mp_tensor broadcast = {.type = mask->type,
                                 .shape = {.rank = 4, .dim = {d->batch, 1, 1, d->rows}}};
    mp_attention a = {.type = own[0].type,
                      .q = own[0].q,
                      .k = own[0].k,
                      .v = own[0].v,
                      .out = mp_heads_last(y, d->heads, d->rows, d->head),
                      .head_size = d->head,
                      .v_head_size = d->head,
                      .rule = mp_score_rule(d->batch, d->heads, d->heads, d->rows, d->rows),
                      .mask = MP_IN(in->mask),
                      .debug_mode = MP_DEBUG_NONE};
    const mp_listed listed = {own[1].q.ref, own[1].k.ref, own[1].v.ref, MP_IN(in->flags)};
    if (x->tokens == 0 || x->width == 0) {
        return MP_OK;
    }
    a.rule.scale = 1 / sqrt((double)d->head);
    a.rule.causal = 1;
    a.rule.past = x->window;
    a.rule.window = 2 * x->window + 1;
    MP_TRY(mp_score_mask(&a.rule, &broadcast));
    return mp_plan_attention_listed(p, &a, &listed);
}
