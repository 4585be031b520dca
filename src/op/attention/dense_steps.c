/* dense_steps.c - see dense_steps.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/dense_steps.h"

#include "op/attention/rotary_steps.h"
#include "op/linear/product_steps.h"
#include "op/move/strided_copy.h"

#include <math.h>
#include <string.h>

#define ROTARY_BASE 10000.0F

mp_status mp_dense_heads(const mp_planner *p, int64_t *out) {
    *out = mp_node_int(p->node, "num_heads", 0);
    return *out >= 1 && *out <= INT32_MAX
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "num_heads is %lld; it must be between 1 and 2147483647",
                         (long long)*out);
}

mp_status mp_dense_pack_bias(mp_planner *p, const mp_dense *d, mp_ref *bias) {
    const mp_shape shape = {.rank = 3, .dim = {d->heads, 3, d->head}};
    const mp_strided from = {.ref = *bias, .stride = {d->head, d->heads * d->head, 1}};
    mp_strided to = {.stride = {3 * d->head, d->head, 1}};
    MP_TRY(mp_plan_scratch_shape(p, &shape, d->type, bias));
    to.ref = *bias;
    return mp_shape_count(&shape) == 0
               ? MP_OK
               : mp_plan_strided_copy(p, &shape, mp_dtype_size(d->type), &from, &to);
}

mp_heads mp_dense_side(const mp_dense *d, mp_ref ref, int64_t rows, int64_t sides, int64_t side) {
    const int64_t pitch = sides * d->head;
    return (mp_heads){mp_ref_at(ref, (uint64_t)(side * d->head) * mp_dtype_size(d->type)),
                      {rows * d->heads * pitch, pitch, d->heads * pitch}};
}

/* ---- projections ---- */

mp_status mp_dense_operands(const mp_planner *p, const int in[3], int rank, mp_projection *x) {
    const mp_shape *input = &p->in[in[0]].shape;
    const mp_shape *weights = &p->in[in[1]].shape;
    const mp_tensor *bias = mp_plan_in(p, in[2]);
    if (input->rank != rank || weights->rank != 2 || weights->dim[0] != input->dim[rank - 1] ||
        (bias != NULL && (bias->shape.rank != 1 || bias->shape.dim[0] != weights->dim[1]))) {
        char text[3][MP_SHAPE_TEXT];
        return MP_FAIL(
            INVALID_ARGUMENT,
            "an input of shape %s, weights of shape %s and a bias of shape %s; they must "
            "be of %s and width, of width and columns, and of columns",
            mp_shape_text(input, text[0]), mp_shape_text(weights, text[1]),
            bias != NULL ? mp_shape_text(&bias->shape, text[2]) : "(none)",
            rank == 3 ? "batch, rows" : "tokens");
    }
    *x = (mp_projection){.tokens = rank == 3 ? input->dim[0] * input->dim[1] : input->dim[0],
                         .in = weights->dim[0],
                         .out = weights->dim[1],
                         .x = MP_IN(in[0]),
                         .weights = MP_IN(in[1]),
                         .bias = bias != NULL ? MP_IN(in[2]) : MP_NOWHERE};
    return MP_OK;
}

mp_status mp_dense_columns(const mp_planner *p, int64_t out, mp_dense *d) {
    const mp_attr *sizes = mp_node_attr(p->node, "qkv_hidden_sizes");
    int64_t width[3] = {out / 3, out / 3, out / 3};
    bool fits = true;
    if (sizes != NULL && sizes->count > 0) {
        fits = sizes->count == 3;
        for (size_t i = 0; fits && i < 3; i++) {
            width[i] = sizes->ints[i];
            fits = width[i] >= 0 && width[i] <= out;
        }
    }
    d->head = width[0] / d->heads;
    d->value = width[2] / d->heads;
    return fits && width[0] == width[1] && width[0] + width[1] + width[2] == out &&
                   width[0] % d->heads == 0 && width[2] % d->heads == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "weights of %lld columns are not those of Q, K and V of %lld heads each; "
                         "qkv_hidden_sizes must give three sizes, the first two the same",
                         (long long)out, (long long)d->heads);
}

mp_status mp_dense_read(const mp_planner *p, int i, int64_t out, mp_dense *d) {
    d->batch = p->in[i].shape.dim[0];
    d->rows = d->fresh = p->in[i].shape.dim[1];
    MP_TRY(mp_dense_heads(p, &d->heads));
    return mp_dense_columns(p, out, d);
}

mp_status mp_dense_project(mp_planner *p, mp_dtype type, const mp_projection *x, mp_ref *out) {
    const mp_shape shape = {.rank = 2, .dim = {x->tokens, x->out}};
    const mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = x->x, [MP_GEMM_B] = x->weights, [MP_GEMM_C] = *out, [MP_GEMM_BIAS] = x->bias};
    mp_ref all[MP_GEMM_OPERANDS];
    mp_gemm gemm = {.type = type,
                    .tf32 = p->node->options.tf32,
                    .bias = x->bias.place != MP_PLACE_NONE,
                    .m = x->tokens,
                    .n = x->out,
                    .k = x->in,
                    .lda = x->in,
                    .ldb = x->out,
                    .ldc = x->out,
                    .batch = 1,
                    .alpha = 1,
                    .align = p->align};
    MP_TRY(mp_plan_scratch_shape(p, &shape, type, out));
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    memcpy(all, operands, sizeof all);
    all[MP_GEMM_C] = *out;
    const uint64_t size = mp_dtype_size(type);
    for (int i = 0; i < MP_GEMM_OPERANDS; i++) {
        gemm.align = mp_align_after(gemm.align, (int64_t)(all[i].offset / size), type);
    }
    return mp_plan_gemm(p, &gemm, all);
}

void mp_dense_place(mp_dense *d, mp_ref projected) {
    const int64_t pitch = d->heads * (2 * d->head + d->value);
    const uint64_t width = (uint64_t)(d->heads * d->head) * mp_dtype_size(d->type);
    d->q = (mp_heads){projected, {d->rows * pitch, d->head, pitch}};
    d->k = (mp_heads){mp_ref_at(projected, width), {d->fresh * pitch, d->head, pitch}};
    d->v = (mp_heads){mp_ref_at(projected, 2 * width), {d->fresh * pitch, d->value, pitch}};
}

/* ---- positions ---- */

mp_status mp_dense_rotate(mp_planner *p, mp_dense *d) {
    const int64_t asked = mp_node_int(p->node, "rotary_embedding_dim", 0);
    const int64_t turned = asked > 0 ? asked : d->head;
    mp_heads *const sides[2] = {&d->q, &d->k};
    if (!mp_node_flag(p->node, "do_rotary", false)) {
        return MP_OK;
    }
    if (turned > d->head || turned % 2 != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%lld elements of heads of %lld cannot be rotated; they must be pairs",
                       (long long)turned, (long long)d->head);
    }
    for (int side = 0; side < 2; side++) {
        const mp_shape shape = {.rank = 4, .dim = {d->batch, d->rows, d->heads, d->head}};
        mp_rotary r = {.type = d->type,
                       .x = *sides[side],
                       .batch = d->batch,
                       .heads = d->heads,
                       .rows = d->rows,
                       .head_size = d->head,
                       .rotated = turned,
                       .cache_rows = INT64_MAX,
                       .position_kind = K_POSITION_PAST,
                       .past = d->past,
                       .base = ROTARY_BASE};
        MP_TRY(mp_plan_scratch_shape(p, &shape, d->type, &r.out.ref));
        r.out = mp_heads_last(r.out.ref, d->heads, d->rows, d->head);
        MP_TRY(mp_plan_rotary(p, &r));
        *sides[side] = r.out;
    }
    return MP_OK;
}

/* ---- the rule ---- */

void mp_dense_rule(const mp_planner *p, const mp_dense *d, mp_attention *a) {
    const double scale = (double)mp_node_float(p->node, "scale", 0);
    const double root = d->head > 0 ? 1 / sqrt((double)d->head) : 1;
    a->rule = mp_score_rule(d->batch, d->heads, d->heads, d->rows, mp_dense_keys(d));
    a->rule.past = mp_dense_keys(d) - d->rows; /* the last query sees all keys */
    a->rule.scale = scale != 0 ? scale : root;
    a->rule.causal = mp_node_flag(p->node, "unidirectional", false);
    a->rule.filter = mp_node_float(p->node, "mask_filter_value", -10000.0F);
}

/* Lengths of entries: alone, before what fused kernels of ONNX Runtime want to know, or before the
 * first keys. */
static bool read_lengths(const mp_shape *shape, mp_dense_forms forms, k_score_rule *rule) {
    const int64_t count = shape->dim[0];
    const bool spans = forms == MP_DENSE_CLASSIC && count == 2 * rule->batch;
    rule->padding_kind = spans ? K_PADDING_SPANS : K_PADDING_ENDS;
    return count == rule->batch || spans || count == 3 * rule->batch + 2;
}

/* Flags of keys, [batch, keys], [batch, rows, keys] or [batch, 1, most, most]; or one flag, which
 * says nothing, since all scores of a row move by the same. */
static bool read_flags(const mp_shape *shape, mp_dense_forms forms, const mp_dense *d,
                       k_score_rule *rule, uint64_t *offset) {
    const int64_t *dim = shape->dim;
    const bool classic = forms == MP_DENSE_CLASSIC;
    const bool whole = dim[0] == rule->batch;
    rule->padding_kind = K_PADDING_FLAGS;
    if (shape->rank == 2 && whole && dim[1] == rule->keys) {
        rule->padding_stride[0] = rule->keys;
        return true;
    }
    if (shape->rank == 2) {
        rule->padding_kind = K_PADDING_NONE;
        return classic && dim[1] == 1 && (whole || dim[0] == 1);
    }
    if (shape->rank == 3) {
        rule->padding_stride[0] = rule->rows * rule->keys;
        rule->padding_stride[1] = rule->keys;
        return whole && dim[1] == rule->rows && dim[2] == rule->keys;
    }
    rule->padding_stride[0] = dim[2] * dim[3];
    rule->padding_stride[1] = dim[3];
    *offset = (uint64_t)(d->past * dim[3]) * sizeof(int32_t);
    return classic && whole && dim[1] == 1 && dim[2] == dim[3] && dim[3] >= rule->keys &&
           d->past + d->rows <= dim[2];
}

mp_status mp_dense_mask(const mp_planner *p, int i, mp_dense_forms forms, const mp_dense *d,
                        mp_attention *a) {
    const mp_tensor *mask = mp_plan_in(p, i);
    uint64_t offset = 0;
    if (mask == NULL) {
        return MP_OK;
    }
    const mp_shape *shape = &mask->shape;
    const bool fits = shape->rank == 1 ? read_lengths(shape, forms, &a->rule)
                                       : shape->rank >= 2 && shape->rank <= 4 &&
                                             read_flags(shape, forms, d, &a->rule, &offset);
    if (!fits) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "a mask of shape %s for %lld entries, %lld queries and %lld keys",
                       mp_shape_text(shape, text), (long long)d->batch, (long long)d->rows,
                       (long long)mp_dense_keys(d));
    }
    if (a->rule.padding_kind != K_PADDING_NONE) {
        a->padding = mp_ref_at(MP_IN(i), offset);
    }
    return MP_OK;
}

mp_status mp_dense_score_bias(const mp_planner *p, int i, mp_attention *a) {
    const mp_tensor *bias = mp_plan_in(p, i);
    if (bias == NULL) {
        return MP_OK;
    }
    const mp_shape *shape = &bias->shape;
    if (shape->rank != 4 || shape->dim[2] != a->rule.rows || shape->dim[3] != a->rule.keys) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "attention_bias of shape %s; its last dimensions must be %lld queries and "
                       "%lld keys",
                       mp_shape_text(shape, text), (long long)a->rule.rows,
                       (long long)a->rule.keys);
    }
    a->mask = MP_IN(i);
    return mp_score_mask(&a->rule, bias);
}

/* ---- all of it ---- */

mp_status mp_dense_attend(mp_planner *p, const mp_dense *d, mp_attention *a) {
    const bool wanted =
        d->present_at[0].place != MP_PLACE_NONE || d->present_at[1].place != MP_PLACE_NONE;
    a->type = d->type;
    a->head_size = d->head;
    a->v_head_size = d->value;
    a->q = d->q;
    a->k = d->k;
    a->v = d->v;
    if (d->room > 0 || d->shared || wanted) {
        MP_TRY(mp_dense_grow(p, d, a));
    }
    return mp_plan_attention(p, a);
}

mp_status mp_dense_attend_projected(mp_planner *p, mp_dense *d, mp_ref projected, mp_attention *a) {
    mp_dense_place(d, projected);
    MP_TRY(mp_dense_rotate(p, d));
    a->out = mp_heads_last(MP_OUT(0), d->heads, d->rows, d->value);
    return mp_dense_attend(p, d, a);
}
