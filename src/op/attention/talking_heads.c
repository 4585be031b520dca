/* talking_heads.c - what the compiler makes of attention whose heads talk: scores [batch, heads,
 * rows, keys] mixed by a matrix, a softmax over the keys, and its result mixed by another one. Each
 * matrix [heads, heads that it makes], or with `turned` the other way round, as a convolution has
 * it, also with dimensions of 1 behind, has a bias behind it, or none.
 * Kernel: attention/talking_heads.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/talking_args.h"
#include "op/core/families.h"
#include "op/core/op.h"
#include "op/core/talking.h"

enum { X, BEFORE, BEFORE_BIAS, AFTER, AFTER_BIAS, RANK = 4 };

_Static_assert((int)MP_TALKING_PACK == (int)K_TALKING_PACK, "the kernel's");

static mp_status read_mix(const mp_planner *p, int i, int64_t from, k_talking_mix *mix) {
    const mp_shape *w = &p->in[i].shape;
    const mp_tensor *bias = mp_plan_in(p, i + 1);
    const bool turned = mp_node_flag(p->node, "turned", false);
    const int64_t lines = w->rank >= 2 ? w->dim[0] : 0, line = w->rank >= 2 ? w->dim[1] : 0;
    const int64_t to = turned ? lines : line;
    if ((turned ? line : lines) != from || lines * line != mp_shape_count(w) ||
        (bias != NULL && mp_shape_count(&bias->shape) != to)) {
        char text[MP_SHAPE_TEXT], row[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "%lld heads are mixed by %s and a bias of shape %s",
                       (long long)from, mp_shape_text(w, text),
                       bias != NULL ? mp_shape_text(&bias->shape, row) : "(none)");
    }
    *mix = (k_talking_mix){.from = (int32_t)from,
                           .to = (int32_t)to,
                           .by_from = turned ? 1 : (int32_t)line,
                           .by_to = turned ? (int32_t)line : 1};
    return MP_OK;
}

static mp_status plan_talking_heads(mp_planner *p) {
    enum { NARROW = 128 };
    const mp_shape *x = &p->in[X].shape;
    const mp_dtype type = p->in[X].type;
    mp_talking_args args = {.units = 0};
    if (x->rank != RANK || x->dim[1] > INT32_MAX) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "scores of shape %s: [batch, heads, rows, keys] is wanted",
                       mp_shape_text(x, text));
    }
    MP_TRY(read_mix(p, BEFORE, x->dim[1], &args.before));
    MP_TRY(read_mix(p, AFTER, args.before.to, &args.after));
    const mp_shape y = {.rank = RANK, .dim = {x->dim[0], args.after.to, x->dim[2], x->dim[3]}};
    MP_TRY(mp_plan_output(p, 0, type, &y));
    if (mp_shape_count(&y) == 0 || mp_shape_count(x) == 0) {
        return MP_OK;
    }
    if (!mp_talking_fits(args.before.from, args.before.to, args.after.to, x->dim[3]) ||
        mp_shape_count(x) / x->dim[1] / x->dim[3] > INT32_MAX) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(UNSUPPORTED,
                       "scores of shape %s, whose heads become %d and these %d, are too many",
                       mp_shape_text(x, text), args.before.to, args.after.to);
    }
    args.rows = x->dim[2];
    args.units = (int32_t)(x->dim[0] * x->dim[2]);
    args.columns = (int32_t)x->dim[3];
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "talking_heads_%s", mp_dtype_word(type)));
    mp_grid grid = mp_plan_grid_rows(
        p, args.units, args.columns <= NARROW ? (uint32_t)NARROW : (uint32_t)K_TALKING_LANES);
    grid.shared_bytes = (uint32_t)(mp_talking_floats(args.before.from, args.before.to,
                                                     args.after.to, args.columns) *
                                   (int64_t)sizeof(float));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_talking_args, x, MP_IN(X)),
                     MP_BIND(mp_talking_args, out, MP_OUT(0)),
                     MP_BIND(mp_talking_args, before.weight, MP_IN(BEFORE)),
                     MP_BIND(mp_talking_args, before.bias,
                             mp_plan_in(p, BEFORE_BIAS) != NULL ? MP_IN(BEFORE_BIAS) : MP_NOWHERE),
                     MP_BIND(mp_talking_args, after.weight, MP_IN(AFTER)),
                     MP_BIND(mp_talking_args, after.bias,
                             mp_plan_in(p, AFTER_BIAS) != NULL ? MP_IN(AFTER_BIAS) : MP_NOWHERE));
}

static const mp_attr_def attrs[] = {{"turned", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "TalkingHeads",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_talking_heads},
};

const mp_op_family mp__family_talking_heads = {"talking_heads", ops, MP_COUNT_OF(ops)};
