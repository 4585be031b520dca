/* rotary_caches.c - RotaryCaches, what the compiler makes of the new tokens of a decoder: queries
 * and keys are rotated as by RotaryHalves, and caches grow as by GrowCaches. In are queries, keys,
 * their cosines and sines, past keys, past values and new values; out are rotated queries, all keys
 * and all values. `part`, `turned` say how queries lie, `key_part` and `key_turned` how keys do,
 * and `value_part` how new values do; `interleaved` is of both. Two more inputs are what queries
 * and keys are normalised by before they are rotated, and `epsilon` and `key_epsilon` go with
 * these.
 *
 * One launch, where sizes allow it; otherwise one after the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/heads_part.h"
#include "op/attention/kv_steps.h"
#include "op/attention/rotary_halves.h"
#include "op/core/families.h"

#include <string.h>

enum { IN_QUERY, IN_KEY, IN_COSINE, IN_SINE, IN_PAST_KEY, IN_PAST_VALUE, IN_VALUE, IN_WEIGHT };
enum { OUT_QUERY, OUT_KEYS, OUT_VALUES };

static mp_status check_types(const mp_planner *p) {
    for (int i = 1; i < p->in_count; i++) {
        if (mp_plan_in(p, i) != NULL && p->in[i].type != p->in[0].type) {
            return MP_FAIL(INVALID_ARGUMENT, "input %d is of type %s, and input 0 of type %s", i,
                           mp_dtype_name(p->in[i].type), mp_dtype_name(p->in[0].type));
        }
    }
    return MP_OK;
}

/* All keys or all values: `fresh` is the shape of the new ones. */
static mp_status read_cache(mp_planner *p, int past, const mp_shape *fresh, int out,
                            mp_kv_append *a) {
    const int side = out - OUT_KEYS;
    const mp_shape *before = &p->in[past].shape;
    mp_shape whole = *before, like = *fresh;
    char x[MP_SHAPE_TEXT], y[MP_SHAPE_TEXT];
    if (whole.rank == 4 && like.rank == 4) {
        like.dim[2] = whole.dim[2];
    }
    if (whole.rank != 4 || !mp_shape_equal(&like, &whole) ||
        __builtin_add_overflow(whole.dim[2], fresh->dim[2], &whole.dim[2])) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "a cache of shape %s and new rows of %s differ beside axis 2",
                       mp_shape_text(before, x), mp_shape_text(fresh, y));
    }
    MP_TRY(mp_plan_output(p, out, p->in[past].type, &whole));
    a->size[side] = whole.dim[3];
    a->past[side] = MP_IN(past);
    a->present[side] = MP_OUT(out);
    a->batch = whole.dim[0];
    a->heads = whole.dim[1];
    a->past_rows = a->past_used = before->dim[2];
    a->fresh_rows = fresh->dim[2];
    a->present_rows = whole.dim[2];
    return MP_OK;
}

/* Keys and values grow apart, where they are not of one size. */
static mp_status grow(mp_planner *p, const mp_kv_append *keys, const mp_kv_append *values) {
    MP_TRY(mp_plan_kv_append(p, keys));
    return mp_plan_kv_append(p, values);
}

static mp_status rotate_apart(mp_planner *p, const mp_rotary *q, mp_rotary *k, mp_kv_append *keys,
                              const mp_kv_append *values) {
    const mp_shape rows = {.rank = 4, .dim = {k->batch, k->heads, k->rows, k->head_size}};
    mp_ref turned;
    MP_TRY(mp_plan_scratch_shape(p, &rows, k->type, &turned));
    k->out = mp_heads_first(turned, k->heads, k->rows, k->head_size);
    MP_TRY(mp_plan_rotary(p, q));
    MP_TRY(mp_plan_rotary(p, k));
    keys->fresh[0] = k->out;
    return grow(p, keys, values);
}

/* New values; `*shape`: batch, heads, rows, size. */
static mp_status read_values(const mp_planner *p, mp_heads *out, mp_shape *shape) {
    const mp_attr *part = mp_node_attr(p->node, "value_part");
    *shape = p->in[IN_VALUE].shape;
    if (part != NULL) {
        shape->rank = 4;
        return mp_read_heads_part(p, IN_VALUE, "value_part", part, out, shape->dim);
    }
    *out = shape->rank == 4
               ? mp_heads_first(MP_IN(IN_VALUE), shape->dim[1], shape->dim[2], shape->dim[3])
               : (mp_heads){.ref = MP_NOWHERE};
    return MP_OK;
}

/* Queries, keys and values in one launch. */
static mp_rotary_append all_of(const mp_rotary *q, const mp_rotary *k, const mp_kv_append *keys,
                               const mp_kv_append *values) {
    return (mp_rotary_append){
        .rotary = *q,
        .heads = {q->heads, k->heads, k->heads},
        .x = {q->x, k->x, values->fresh[1]},
        .out = {q->out,
                mp_heads_first(MP_OUT(OUT_KEYS), k->heads, keys->present_rows, k->head_size),
                mp_heads_first(MP_OUT(OUT_VALUES), k->heads, keys->present_rows, k->head_size)},
        .weight = {q->weight, k->weight},
        .epsilon = {q->epsilon, k->epsilon},
        .appends = {false, true, true},
        .lengths = MP_NOWHERE,
        .present_rows = keys->present_rows,
        .grows = true,
        .past = {keys->past[0], values->past[1]},
        .past_rows = keys->past_rows};
}

static mp_status plan_caches(mp_planner *p) {
    const mp_halves_input from[] = {
        {IN_QUERY, IN_COSINE, IN_SINE, IN_WEIGHT, "part", "turned", "epsilon"},
        {IN_KEY, IN_COSINE, IN_SINE, IN_WEIGHT + 1, "key_part", "key_turned", "key_epsilon"}};
    mp_rotary q, k;
    mp_shape out, fresh;
    MP_TRY(check_types(p));
    MP_TRY(mp_read_halves(p, &from[0], &q, &out));
    MP_TRY(mp_read_halves(p, &from[1], &k, &fresh));
    MP_TRY(mp_plan_output(p, OUT_QUERY, q.type, &out));
    q.out = mp_heads_first(MP_OUT(OUT_QUERY), q.heads, q.rows, q.head_size);
    mp_shape v;
    mp_heads new_values;
    MP_TRY(read_values(p, &new_values, &v));
    mp_kv_append keys = {.type = k.type}, values = {.type = k.type};
    MP_TRY(read_cache(p, IN_PAST_KEY, &fresh, OUT_KEYS, &keys));
    MP_TRY(read_cache(p, IN_PAST_VALUE, &v, OUT_VALUES, &values));
    values.fresh[1] = new_values;
    const mp_rotary_append all = all_of(&q, &k, &keys, &values);
    const bool one = mp_halves_alike(&q, &k) && mp_shape_equal(&fresh, &v) &&
                     keys.past_rows == values.past_rows && mp_can_rotary_append(p, &all);
    return one ? mp_plan_rotary_append(p, &all) : rotate_apart(p, &q, &k, &keys, &values);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {
    {"epsilon", MP_ATTR_FLOAT}, {"interleaved", MP_ATTR_INT}, {"key_epsilon", MP_ATTR_FLOAT},
    {"key_part", MP_ATTR_INTS}, {"key_turned", MP_ATTR_INT},  {"part", MP_ATTR_INTS},
    {"turned", MP_ATTR_INT},    {"value_part", MP_ATTR_INTS}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "RotaryCaches",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_caches},
};

const mp_op_family mp__family_rotary_caches = {"rotary_caches", ops, MP_COUNT_OF(ops)};
