/* rotary_given.c - GemmaRotaryEmbedding of com.microsoft: rotary positions of queries and keys from
 * the angles of each token.
 * Kernel: attention/rotary_given.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "op/core/families.h"

enum { ANGLE, Q, Q_TURNED, K, K_TURNED };

static mp_status check_heads(const mp_planner *p, int i) {
    const mp_shape *angle = &p->in[ANGLE].shape, *x = &p->in[i].shape;
    char text[MP_SHAPE_TEXT], other[MP_SHAPE_TEXT];
    if (angle->rank == 3 && x->rank == 4 && mp_shape_equal(x, &p->in[i + 1].shape) &&
        x->dim[0] == angle->dim[0] && x->dim[2] == angle->dim[1] && x->dim[3] == angle->dim[2]) {
        return MP_OK;
    }
    return MP_FAIL(INVALID_ARGUMENT,
                   "heads of shape %s do not go with angles of shape %s: they need four dimensions "
                   "with the angles' around the heads, and a turned half of the same shape",
                   mp_shape_text(x, text), mp_shape_text(angle, other));
}

static mp_status plan_given(mp_planner *p) {
    MP_TRY(check_heads(p, Q));
    MP_TRY(check_heads(p, K));
    const mp_shape *angle = &p->in[ANGLE].shape;
    const mp_dtype type = p->in[Q].type;
    mp_rotary_given_args args = {.batch = angle->dim[0],
                                 .rows = angle->dim[1],
                                 .size = angle->dim[2],
                                 .heads = {p->in[Q].shape.dim[1], p->in[K].shape.dim[1]}};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_output(p, 0, type, &p->in[Q].shape));
    MP_TRY(mp_plan_output(p, 1, type, &p->in[K].shape));
    const int64_t heads = args.heads[0] + args.heads[1];
    const int64_t angles = mp_shape_count(angle);
    if (heads == 0 || angles == 0) {
        return MP_OK;
    }
    /* A lane takes more than one head only where that leaves enough lanes. */
    enum { LANES_ENOUGH = 2048, HEADS_MOST = 4 };
    const int64_t spread =
        angles * heads / (p->device->info.multiprocessors * (int64_t)LANES_ENOUGH);
    args.group = MP_MIN(MP_MAX(spread, 1), HEADS_MOST);
    args.groups = MP_CEIL_DIV(heads, args.group);
    MP_TRY(mp_plan_kernel(p, &kernel, "rotary_given_%s", mp_dtype_word(type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, angles * args.groups, 1), args,
                     MP_BIND(mp_rotary_given_args, angle, MP_IN(ANGLE)),
                     MP_BIND(mp_rotary_given_args, x[0], MP_IN(Q)),
                     MP_BIND(mp_rotary_given_args, x[1], MP_IN(K)),
                     MP_BIND(mp_rotary_given_args, turned[0], MP_IN(Q_TURNED)),
                     MP_BIND(mp_rotary_given_args, turned[1], MP_IN(K_TURNED)),
                     MP_BIND(mp_rotary_given_args, out[0], MP_OUT(0)),
                     MP_BIND(mp_rotary_given_args, out[1], MP_OUT(1)));
}

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "GemmaRotaryEmbedding",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F16)}, {"U", MP_BIT(MP_F32)}},
     .plan = plan_given},
};

const mp_op_family mp__family_rotary_given = {"rotary_given", ops, MP_COUNT_OF(ops)};
