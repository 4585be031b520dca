/* grow_caches.c - GrowCaches, what the compiler makes of the two Concat nodes by which the keys and
 * the values of one attention grow: in are past and new keys, then past and new values, all
 * [batch, heads, rows, size] and joined along their rows; out are all keys and all values. With
 * `key_part` or `value_part` new heads lie within rows (heads_part.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/heads_part.h"
#include "op/attention/kv_steps.h"
#include "op/core/families.h"

enum { SIDES = 2 };

static mp_status no_fit(const mp_shape *past, const mp_shape *fresh) {
    char a[MP_SHAPE_TEXT];
    char b[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT, "inputs of shape %s and %s differ beside axis 2",
                   mp_shape_text(past, a), mp_shape_text(fresh, b));
}

/* New keys or values; `*shape`: batch, heads, rows, size. */
static mp_status read_fresh(const mp_planner *p, int side, mp_heads *out, mp_shape *shape) {
    static const char *const names[SIDES] = {"key_part", "value_part"};
    const int i = 2 * side + 1;
    const mp_attr *part = mp_node_attr(p->node, names[side]);
    *shape = p->in[i].shape;
    if (part != NULL) {
        shape->rank = 4;
        return mp_read_heads_part(p, i, names[side], part, out, shape->dim);
    }
    *out = shape->rank == 4 ? mp_heads_first(MP_IN(i), shape->dim[1], shape->dim[2], shape->dim[3])
                            : (mp_heads){.ref = MP_NOWHERE};
    return MP_OK;
}

/* One side; alone it is an append whose other side has no elements. */
static mp_status read_side(mp_planner *p, int side, mp_kv_append *a) {
    const mp_tensor *past = &p->in[2 * side];
    mp_shape whole = past->shape, fresh;
    mp_heads heads;
    MP_TRY(read_fresh(p, side, &heads, &fresh));
    mp_shape like = fresh;
    if (whole.rank != 4 || like.rank != 4) {
        return no_fit(&past->shape, &like);
    }
    like.dim[2] = whole.dim[2];
    if (!mp_shape_equal(&like, &whole) ||
        __builtin_add_overflow(whole.dim[2], fresh.dim[2], &whole.dim[2])) {
        return no_fit(&past->shape, &fresh);
    }
    MP_TRY(mp_plan_output(p, side, past->type, &whole));
    *a = (mp_kv_append){.type = past->type,
                        .batch = whole.dim[0],
                        .heads = whole.dim[1],
                        .past_rows = past->shape.dim[2],
                        .past_used = past->shape.dim[2],
                        .fresh_rows = fresh.dim[2],
                        .present_rows = whole.dim[2],
                        .lengths = MP_NOWHERE,
                        .beams_of = MP_NOWHERE};
    for (int i = 0; i < SIDES; i++) {
        a->past[i] = a->present[i] = a->fresh[i].ref = MP_NOWHERE;
    }
    a->size[side] = whole.dim[3];
    a->past[side] = MP_IN(2 * side);
    a->fresh[side] = heads;
    a->present[side] = MP_OUT(side);
    return MP_OK;
}

/* Nothing grows yet: what is new is all. */
static mp_status plan_first(mp_planner *p) {
    for (int side = 0; side < SIDES; side++) {
        const mp_dtype type = p->in[2 * side + 1].type;
        mp_heads from;
        mp_shape all;
        MP_TRY(read_fresh(p, side, &from, &all));
        const mp_heads to = mp_heads_first(MP_OUT(side), all.dim[1], all.dim[2], all.dim[3]);
        if (mp_shape_count(&all) > 0) {
            MP_TRY(mp_plan_heads_copy(p, type, all.dim, &from, &to));
        }
    }
    return MP_OK;
}

static mp_status plan_grow(mp_planner *p) {
    mp_kv_append all, values;
    MP_TRY(read_side(p, 0, &all));
    MP_TRY(read_side(p, 1, &values));
    if (all.past_rows == 0 && values.past_rows == 0) {
        return plan_first(p);
    }
    if (all.batch != values.batch || all.heads != values.heads ||
        all.past_rows != values.past_rows || all.fresh_rows != values.fresh_rows) {
        MP_TRY(mp_plan_kv_append(p, &all));
        return mp_plan_kv_append(p, &values);
    }
    all.size[1] = values.size[1];
    all.past[1] = values.past[1];
    all.fresh[1] = values.fresh[1];
    all.present[1] = values.present[1];
    return mp_plan_kv_append(p, &all);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {
    {"key_part", MP_ATTR_INTS}, {"value_part", MP_ATTR_INTS}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "GrowCaches",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_grow},
};

const mp_op_family mp__family_grow_caches = {"grow_caches", ops, MP_COUNT_OF(ops)};
