/* attention_steps.c - what attention is told, and what is moved before it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_steps.h"

#include "op/attention/attention_ways.h"
#include "op/move/strided_copy.h"

#include <string.h>

mp_status mp_attention_no_fit(const mp_planner *p, const char *why) {
    char q[MP_SHAPE_TEXT];
    char k[MP_SHAPE_TEXT];
    char v[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT, "Q of shape %s, K of shape %s and V of shape %s: %s",
                   mp_shape_text(&p->in[0].shape, q), mp_shape_text(&p->in[1].shape, k),
                   mp_shape_text(&p->in[2].shape, v), why);
}

/* ---- descriptions ---- */

mp_heads mp_heads_first(mp_ref ref, int64_t heads, int64_t rows, int64_t size) {
    return (mp_heads){ref, {heads * rows * size, rows * size, size}};
}

mp_heads mp_heads_last(mp_ref ref, int64_t heads, int64_t rows, int64_t size) {
    return (mp_heads){ref, {rows * heads * size, size, heads * size}};
}

k_score_rule mp_score_rule(int64_t batch, int64_t heads, int64_t kv_heads, int64_t rows,
                           int64_t keys) {
    return (k_score_rule){.batch = batch,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .group = kv_heads > 0 ? heads / kv_heads : 0, /* of no heads: nothing */
                          .rows = rows,
                          .keys = keys,
                          .mask_keys = INT64_MAX,
                          .scale = 1};
}

static int32_t mask_kind(mp_dtype type) {
    switch (type) {
    case MP_BOOL:
        return K_MASK_BOOL;
    case MP_F32:
        return K_MASK_F32;
    case MP_F64:
        return K_MASK_F64;
    case MP_F16:
        return K_MASK_F16;
    case MP_BF16:
        return K_MASK_BF16;
    default:
        return K_MASK_NONE;
    }
}

mp_status mp_score_mask(k_score_rule *rule, const mp_tensor *mask) {
    const int64_t full[4] = {rule->batch, rule->heads, rule->rows, rule->keys};
    const mp_shape *shape = &mask->shape;
    int64_t stride[MP_RANK_MAX];
    bool fits = shape->rank >= 1 && shape->rank <= 4;
    rule->mask_kind = mask_kind(mask->type);
    mp_shape_strides(shape, stride);
    for (int d = 0; d < 4; d++) {
        const int at = d - (4 - shape->rank);
        const int64_t dim = fits && at >= 0 ? shape->dim[at] : 1;
        fits = fits && (dim == 1 || dim == full[d] || d == 3);
        rule->mask_stride[d] = dim == 1 ? 0 : stride[at];
        if (d == 3 && dim != 1 && dim < full[d]) {
            rule->mask_keys = dim;
        }
    }
    if (!fits || rule->mask_kind == K_MASK_NONE) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "a mask of type %s and shape %s; it must be bool or float and broadcast to "
                       "%lldx%lldx%lldx%lld",
                       mp_dtype_name(mask->type), mp_shape_text(shape, text), (long long)full[0],
                       (long long)full[1], (long long)full[2], (long long)full[3]);
    }
    return MP_OK;
}

mp_status mp_plan_heads_copy(mp_planner *p, mp_dtype type, const int64_t size[4],
                             const mp_heads *source, const mp_heads *target) {
    const mp_shape shape = {.rank = 4, .dim = {size[0], size[1], size[2], size[3]}};
    mp_strided from = {.ref = source->ref};
    mp_strided to = {.ref = target->ref};
    memcpy(from.stride, source->stride, sizeof source->stride);
    memcpy(to.stride, target->stride, sizeof target->stride);
    from.stride[3] = 1;
    to.stride[3] = 1;
    return mp_plan_strided_copy(p, &shape, mp_dtype_size(type), &from, &to);
}

/* ---- what kernels are told ---- */

bool mp_attention_is_wide(const mp_planner *p, const mp_attention *a) {
    const mp_heads *const sides[] = {&a->q, &a->k, &a->v};
    const int64_t size = (int64_t)mp_dtype_size(a->type);
    bool wide = p->align >= 16 && a->head_size % 8 == 0 && a->v_head_size % 8 == 0;
    for (size_t i = 0; i < MP_COUNT_OF(sides); i++) {
        wide = wide && sides[i]->ref.offset % 16 == 0;
        for (int d = 0; d < 3; d++) {
            wide = wide && sides[i]->stride[d] * size % 16 == 0;
        }
    }
    return wide;
}

mp_attention_args mp_attention_args_of(const mp_planner *p, const mp_attention *a) {
    mp_attention_args args = {.splits = 1,
                              .split_keys = a->rule.keys,
                              .k_piece = a->k_piece > 0 ? a->k_piece
                                                        : 16 / (int64_t)mp_dtype_size(a->type),
                              .head_size = (int32_t)a->head_size,
                              .v_head_size = (int32_t)a->v_head_size,
                              .wide = mp_attention_is_wide(p, a),
                              .rule = a->rule,
                              .beams = a->beams};
    if (a->cache != NULL) {
        args.cache = *a->cache;
    }
    memcpy(args.q_stride, a->q.stride, sizeof args.q_stride);
    memcpy(args.k_stride, a->k.stride, sizeof args.k_stride);
    memcpy(args.v_stride, a->v.stride, sizeof args.v_stride);
    memcpy(args.out_stride, a->out.stride, sizeof args.out_stride);
    return args;
}

mp_status mp_attention_launch(mp_planner *p, const mp_attention *a, const mp_kernel *kernel,
                              mp_grid grid, const mp_attention_args *args, mp_ref part) {
    return MP_LAUNCH(
        p, kernel, grid, *args, MP_BIND(mp_attention_args, q, a->q.ref),
        MP_BIND(mp_attention_args, k, a->k.ref), MP_BIND(mp_attention_args, v, a->v.ref),
        MP_BIND(mp_attention_args, out, a->out.ref), MP_BIND(mp_attention_args, part, part),
        MP_BIND(mp_attention_args, rule.mask, a->mask),
        MP_BIND(mp_attention_args, rule.lengths, a->lengths),
        MP_BIND(mp_attention_args, rule.sink, a->sink),
        MP_BIND(mp_attention_args, rule.padding, a->padding),
        MP_BIND(mp_attention_args, rule.blocks.starts, a->block_starts),
        MP_BIND(mp_attention_args, rule.blocks.columns, a->block_columns),
        MP_BIND(mp_attention_args, beams.of, a->beams_of),
        MP_BIND(mp_attention_args, cache.scale[0], a->cache_scale[0]),
        MP_BIND(mp_attention_args, cache.scale[1], a->cache_scale[1]));
}
