/* counted_loop.c - a Loop whose condition says no more than how often it runs is told so, and hands
 * its condition on, so that nobody waits for that between its rounds.
 *
 *     condition of a round = number < steps and carried + 1 < steps
 *
 * TensorFlow's while_loop has it for every recurrent layer. Rounds are counted here: the numbers
 * that the condition is made of, those carried from round to round included, are computed until it
 * does not hold.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/rounds.h"

#include <math.h>
#include <string.h>

enum {
    ROUNDS_MOST = 1 << 16,
    WORK_MOST = 1 << 22,
    DEEP = 32,
    CARRIED_MOST = 64,
    LARGEST = 1 << 24 /* up to here float32 has every integer */
};

/* One round: what is known of the numbers that it reads. */
typedef struct round_state {
    const mp_graph *outer;
    const mp_vertex *v; /* the loop */
    int64_t number;
    int64_t left; /* nodes that may still be computed: a graph can ask for one very often */
    double carried[CARRIED_MOST];
    bool is_known[CARRIED_MOST];
} round_state;

static bool is_integer(double x) {
    return x == floor(x) && fabs(x) <= LARGEST;
}

/* Types that have all integers near 0; bytes, which wrap around, are none. */
static bool is_counted_in(mp_dtype type) {
    return type == MP_F32 || type == MP_F16 || type == MP_BF16 || type == MP_I32 || type == MP_I64;
}

/* Whether no number near it is rounded. */
static bool is_exact(mp_dtype type, double x) {
    enum { LARGEST_BF16 = 1 << 8, LARGEST_F16 = 1 << 11 };
    const bool is_narrow = type == MP_BF16 || type == MP_NONE; /* which is not known */
    return fabs(x) < (is_narrow ? LARGEST_BF16 : type == MP_F16 ? LARGEST_F16 : LARGEST);
}

/* One number or boolean that a constant holds; integers of fewer bits would wrap around. */
static bool constant_of(const mp_graph *graph, int32_t value, double *out) {
    const mp_tensor *x = mp_graph_constant(graph, value);
    const mp_dtype type = value != MP_NO_VALUE ? mp_graph_type(graph, value) : MP_NONE;
    if (x != NULL && x->type == MP_BOOL && x->data != 0 && mp_shape_count(&x->shape) == 1) {
        *out = *(const bool *)x->data ? 1 : 0;
        return true;
    }
    return is_counted_in(type) && mp_graph_number(graph, value, out) && is_integer(*out) &&
           is_exact(type, *out);
}

static bool input_of(const round_state *r, int i, double *out) {
    const mp_loop *loop = r->v->loop;
    const int carried = i - MP_LOOP_HEAD_IN;
    if (i < MP_LOOP_HEAD_IN) {
        *out = i == 0 ? (double)r->number : 1; /* a round runs because the condition holds */
        return true;
    }
    if (carried < loop->carried) {
        *out = r->carried[carried];
        return r->is_known[carried];
    }
    return i < r->v->in_count && constant_of(r->outer, r->v->in[i], out);
}

static bool keeps_number(const mp_vertex *v) {
    static const char *const names[] = {"Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names));
}

static bool compute(const mp_vertex *v, double a, double b, double *out) {
    *out = mp_vertex_is(v, "Add")              ? a + b
           : mp_vertex_is(v, "Sub")            ? a - b
           : mp_vertex_is(v, "Max")            ? fmax(a, b)
           : mp_vertex_is(v, "Min")            ? fmin(a, b)
           : mp_vertex_is(v, "Less")           ? a < b
           : mp_vertex_is(v, "LessOrEqual")    ? a <= b
           : mp_vertex_is(v, "Greater")        ? a > b
           : mp_vertex_is(v, "GreaterOrEqual") ? a >= b
           : mp_vertex_is(v, "Equal")          ? a == b
           : mp_vertex_is(v, "And")            ? a != 0 && b != 0
           : mp_vertex_is(v, "Or")             ? a != 0 || b != 0
                                               : (double)NAN;
    return is_integer(*out);
}

/* A value of the body in this round, if it is one number that can be known. */
static bool value_of(round_state *r, int32_t value, int depth, double *out) {
    const mp_graph *body = r->v->loop->body;
    const int32_t n = mp_graph_maker(body, value, NULL);
    const mp_vertex *v = n != MP_NO_NODE ? &body->nodes[n] : NULL;
    double a = 0, b = 0;
    for (int i = 0; v == NULL && i < body->input_count; i++) {
        if (body->inputs[i] == value) {
            return input_of(r, i, out);
        }
    }
    if (v == NULL) {
        return constant_of(body, value, out);
    }
    if (depth == 0 || r->left-- <= 0 || v->guard != 0 || v->in_count < 1 ||
        !value_of(r, v->in[0], depth - 1, &a)) {
        return false;
    }
    if (keeps_number(v)) {
        const mp_dtype to = (mp_dtype)mp_node_int(&v->node, "to", MP_I64);
        *out = a;
        return is_counted_in(to) && is_exact(to, a);
    }
    if (mp_vertex_is(v, "Not")) {
        *out = a == 0;
        return true;
    }
    return v->in_count == 2 && value_of(r, v->in[1], depth - 1, &b) && compute(v, a, b, out) &&
           is_exact(mp_graph_type(body, value), *out);
}

/* The carried numbers of the next round. */
static void go_on(round_state *r) {
    const mp_loop *loop = r->v->loop;
    double next[CARRIED_MOST] = {0};
    for (int k = 0; k < loop->carried; k++) {
        const int32_t value = loop->body->outputs[MP_LOOP_HEAD_OUT + k];
        r->is_known[k] = r->is_known[k] && value_of(r, value, DEEP, &next[k]);
    }
    memcpy(r->carried, next, sizeof next);
    r->number++;
}

/* How many rounds there are; 0 where that is not known. */
static int64_t count_rounds(const mp_graph *graph, const mp_vertex *v) {
    const int32_t most = mp_vertex_in(v, 0), first = mp_vertex_in(v, 1);
    round_state r = {.outer = graph, .v = v, .left = WORK_MOST};
    double limit = ROUNDS_MOST, holds = 1;
    if (v->loop->carried > CARRIED_MOST ||
        (most != MP_NO_VALUE && !constant_of(graph, most, &limit)) ||
        (first != MP_NO_VALUE && !constant_of(graph, first, &holds)) || holds == 0) {
        return 0;
    }
    for (int k = 0; k < v->loop->carried; k++) {
        r.is_known[k] = constant_of(graph, mp_vertex_in(v, MP_LOOP_HEAD_IN + k), &r.carried[k]);
    }
    while ((double)r.number < limit && r.number < ROUNDS_MOST) {
        if (!value_of(&r, v->loop->body->outputs[0], DEEP, &holds)) {
            return 0;
        }
        go_on(&r);
        if (holds == 0) {
            return r.number;
        }
    }
    return most != MP_NO_VALUE && r.number == (int64_t)limit ? r.number : 0;
}

static mp_status rewrite(mp_graph *graph, int32_t n, int64_t rounds) {
    const mp_loop *loop = graph->nodes[n].loop;
    const mp_shape *before = mp_vertex_in(&graph->nodes[n], 0) != MP_NO_VALUE
                                 ? &graph->values[graph->nodes[n].in[0]].tensor.shape
                                 : &(const mp_shape){.rank = 0};
    const mp_tensor count = {.type = MP_I64, .shape = *before, .data = (mp_addr)&rounds};
    int32_t value = MP_NO_VALUE;
    MP_TRY(mp_graph_add_constant(graph, "", &count, &value));
    const int32_t condition = loop->body->outputs[0];
    graph->nodes[n].in[0] = value;
    loop->body->outputs[0] = loop->body->inputs[1];
    mp_graph_drop_unread(loop->body, condition);
    mp_graph_compact(loop->body);
    return MP_OK;
}

mp_status mp_pass_counted_loop(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        if (v->is_gone || v->loop == NULL || v->loop->is_scan || v->in_count < MP_LOOP_HEAD_IN ||
            mp_loop_hands_condition_on(v->loop)) {
            continue;
        }
        const int64_t rounds = count_rounds(graph, v);
        if (rounds > 0 && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, rounds));
        }
    }
    return MP_OK;
}
