/* attention_products.c - attention as scores = q k^T, weights = softmax, out = weights v, by
 * library math. Scores are made for some heads at a time, or some rows of one, so that they stay
 * within a bound.
 * Kernel: attention/attention_softmax.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_products.h"

#include "op/linear/product_steps.h"
#include "op/rows/softmax_steps.h"

enum {
    SCORE_BYTES_MAX = 1 << 28, /* of the scores at a time */
    PITCH_BYTES = 16,
    CAUSAL_ROWS = 512 /* at a time, where later rows see keys that earlier ones do not */
};

/* Key heads of all entries are `units`, `step` elements apart, with rows `pitch` apart. */
typedef struct matrices {
    mp_ref ref;
    int64_t step, pitch;
} matrices;

/* Whether the heads, `group` of them as one matrix, are evenly spaced. */
static bool as_matrices(const mp_heads *side, const k_score_rule *rule, int64_t group, int64_t rows,
                        matrices *out) {
    const int64_t heads = rule->kv_heads * group;
    out->ref = side->ref;
    out->pitch = rows == 1 ? side->stride[1] : side->stride[2];
    out->step = rule->kv_heads == 1 ? side->stride[0] : side->stride[1] * group;
    if (rows == 1 && group == 1) {
        out->pitch = side->stride[2];
    }
    return (group == 1 || rows == 1 || side->stride[1] == rows * side->stride[2]) &&
           (rule->batch == 1 || rule->kv_heads == 1 || side->stride[0] == heads * side->stride[1]);
}

static mp_status scratch_for(mp_planner *p, mp_dtype type, const int64_t size[4], mp_heads *out) {
    const mp_shape shape = {.rank = 4, .dim = {size[0], size[1], size[2], size[3]}};
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&shape, type, &bytes));
    *out = mp_heads_first(MP_NOWHERE, size[1], size[2], size[3]);
    return mp_plan_scratch(p, bytes, &out->ref);
}

/* As matrices, in scratch memory where they are not. */
static mp_status gather(mp_planner *p, const mp_attention *a, const mp_heads *side, int64_t group,
                        int64_t rows, int64_t size, matrices *out) {
    if (as_matrices(side, &a->rule, group, rows, out)) {
        return MP_OK;
    }
    const int64_t sizes[4] = {a->rule.batch, a->rule.kv_heads * group, rows, size};
    mp_heads copy;
    MP_TRY(scratch_for(p, a->type, sizes, &copy));
    MP_TRY(mp_plan_heads_copy(p, a->type, sizes, side, &copy));
    (void)as_matrices(&copy, &a->rule, group, rows, out);
    return MP_OK;
}

/* What is done at a time. */
typedef struct part {
    int64_t unit, units, row, rows, columns;
} part;

typedef struct work {
    const mp_attention *a;
    matrices q, k, v, out;
    mp_ref scores, weights; /* of a part, or of everything where they are the debug output */
    bool scores_whole, weights_whole;
    float scale;       /* what the product scales the scores by */
    double scale_left; /* and the softmax */
} work;

static mp_ref moved(const work *w, mp_ref ref, int64_t elements) {
    return mp_ref_at(ref, (uint64_t)elements * mp_dtype_size(w->a->type));
}

/* The place of a part within scores that are whole or its own. */
static mp_ref placed(const work *w, mp_ref ref, bool whole, const part *x) {
    const k_score_rule *rule = &w->a->rule;
    const int64_t rows = rule->group * rule->rows;
    return whole ? moved(w, ref, (x->unit * rows + x->row) * rule->keys) : ref;
}

static int32_t align_of(const mp_planner *p, const mp_gemm *gemm, const mp_ref *operands) {
    const int64_t size = (int64_t)mp_dtype_size(gemm->type);
    const int64_t steps[] = {gemm->stride_a,
                             gemm->stride_b,
                             gemm->stride_c,
                             (int64_t)operands[MP_GEMM_A].offset / size,
                             (int64_t)operands[MP_GEMM_B].offset / size,
                             (int64_t)operands[MP_GEMM_C].offset / size};
    int32_t align = p->align;
    for (size_t i = 0; i < MP_COUNT_OF(steps); i++) {
        align = mp_align_after(align, steps[i], gemm->type);
    }
    return align;
}

static mp_status add_gemm(mp_planner *p, mp_gemm gemm, mp_ref a, mp_ref b, mp_ref c) {
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = a, [MP_GEMM_B] = b, [MP_GEMM_C] = c};
    gemm.align = align_of(p, &gemm, operands);
    return mp_plan_gemm(p, &gemm, operands);
}

/* Elements from one row of scores to the next: as few as tensor cores can step over, unless the
 * rows are an output. */
static int64_t pitch_of(const work *w, const part *x) {
    const int64_t unit = PITCH_BYTES / (int64_t)mp_dtype_size(w->a->type);
    return w->a->debug_mode == MP_DEBUG_NONE ? MP_ALIGN_UP(x->columns, unit) : x->columns;
}

mp_status mp_plan_attention_softmax(mp_planner *p, const mp_attention *a,
                                    const mp_attention_softmax_args *args, mp_ref scores,
                                    mp_ref weights, mp_ref debug) {
    uint32_t lanes = 32;
    while (lanes < 1024 && (int64_t)lanes * 4 < args->columns) {
        lanes *= 2;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "attention_softmax_%s", mp_dtype_word(a->type)));
    /* No more blocks than fit at a time: to bring up one for each short row takes longer than the
     * row does. */
    mp_grid grid = mp_plan_grid_rows(p, args->units * args->rows, lanes);
    const uint32_t fit = (uint32_t)p->device->info.multiprocessors * MP_MIN(2048 / lanes, 32);
    grid.blocks = MP_MIN(grid.blocks, fit);
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_attention_softmax_args, scores, scores),
                     MP_BIND(mp_attention_softmax_args, weights, weights),
                     MP_BIND(mp_attention_softmax_args, debug, debug),
                     MP_BIND(mp_attention_softmax_args, rule.mask, a->mask),
                     MP_BIND(mp_attention_softmax_args, rule.lengths, a->lengths),
                     MP_BIND(mp_attention_softmax_args, rule.sink, a->sink),
                     MP_BIND(mp_attention_softmax_args, rule.padding, a->padding));
}

/* Whether all rows of a part see all keys, and nothing becomes of scores before. */
static bool is_plain(const work *w, const part *x) {
    const k_score_rule *rule = &w->a->rule;
    return w->a->debug_mode == MP_DEBUG_NONE && w->scale_left == 1 && rule->softcap == 0 &&
           rule->mask_kind == K_MASK_NONE && rule->padding_kind == K_PADDING_NONE &&
           rule->sink_kind == K_SINK_NONE && !rule->causal && rule->window == 0 &&
           w->a->lengths.place == MP_PLACE_NONE && rule->mask_keys >= rule->keys &&
           pitch_of(w, x) == x->columns;
}

/* That of any rows, which has nothing to ask. */
static mp_status plan_plain_softmax(mp_planner *p, const work *w, const part *x) {
    const mp_softmax_step step = {
        .word = "plain",
        .type = w->a->type,
        .rows = {.rows = x->units * x->rows, .columns = x->columns, .inner = 1},
        .align = PITCH_BYTES, /* scratch memory, and rows of whole pitches */
        .x = w->scores,
        .out = w->weights};
    return mp_plan_softmax(p, &step);
}

static mp_status plan_softmax(mp_planner *p, const work *w, const part *x) {
    const mp_attention *a = w->a;
    if (is_plain(w, x)) {
        return plan_plain_softmax(p, w, x);
    }
    const bool debug = a->debug_mode >= 0 && !w->scores_whole;
    mp_attention_softmax_args args = {.units = x->units,
                                      .unit_first = x->unit,
                                      .rows = x->rows,
                                      .row_first = x->row,
                                      .columns = x->columns,
                                      .pitch = pitch_of(w, x),
                                      .debug_mode = a->debug_mode,
                                      .rule = a->rule};
    args.rule.scale = w->scale_left;
    return mp_plan_attention_softmax(p, a, &args, placed(w, w->scores, w->scores_whole, x),
                                     placed(w, w->weights, w->weights_whole, x),
                                     debug ? a->debug : MP_NOWHERE);
}

static mp_status plan_part(mp_planner *p, const work *w, const part *x) {
    const mp_attention *a = w->a;
    const int64_t whole = a->rule.group * a->rule.rows;
    mp_gemm gemm = {.type = a->type,
                    .tf32 = p->node->options.tf32,
                    .trans_b = true,
                    .m = x->rows,
                    .n = x->columns,
                    .k = a->head_size,
                    .lda = w->q.pitch,
                    .ldb = w->k.pitch,
                    .ldc = pitch_of(w, x),
                    .batch = x->units,
                    .stride_a = w->q.step,
                    .stride_b = w->k.step,
                    .stride_c = (w->scores_whole ? whole : x->rows) * pitch_of(w, x),
                    .alpha = w->scale};
    MP_TRY(add_gemm(p, gemm, moved(w, w->q.ref, x->unit * w->q.step + x->row * w->q.pitch),
                    moved(w, w->k.ref, x->unit * w->k.step),
                    placed(w, w->scores, w->scores_whole, x)));
    MP_TRY(plan_softmax(p, w, x));
    gemm.trans_b = false;
    gemm.n = a->v_head_size;
    gemm.k = x->columns;
    gemm.lda = pitch_of(w, x);
    gemm.ldb = w->v.pitch;
    gemm.ldc = w->out.pitch;
    gemm.stride_a = (w->weights_whole ? whole : x->rows) * pitch_of(w, x);
    gemm.stride_b = w->v.step;
    gemm.stride_c = w->out.step;
    gemm.alpha = 1;
    return add_gemm(p, gemm, placed(w, w->weights, w->weights_whole, x),
                    moved(w, w->v.ref, x->unit * w->v.step),
                    moved(w, w->out.ref, x->unit * w->out.step + x->row * w->out.pitch));
}

/* How many heads, or rows of one, are done at a time. */
static void choose_part(const mp_attention *a, part *x) {
    const k_score_rule *rule = &a->rule;
    const int64_t rows = rule->group * rule->rows;
    const int64_t fit = SCORE_BYTES_MAX / (int64_t)mp_dtype_size(a->type);
    x->rows = MP_MIN(fit / rule->keys, rows);
    x->rows = x->rows > 0 ? x->rows : 1;
    if (rule->causal && rule->group == 1 && rows >= 2 * CAUSAL_ROWS && x->rows > CAUSAL_ROWS) {
        x->rows = CAUSAL_ROWS;
    }
    if (a->debug_mode != MP_DEBUG_NONE) {
        x->rows = rows; /* the output holds them all in any case */
    }
    const int64_t units = fit / (x->rows * rule->keys);
    x->units = units > 0 ? units : 1;
}

/* The keys that the rows of a part may see. */
static int64_t columns_of(const mp_attention *a, const part *x) {
    const k_score_rule *rule = &a->rule;
    const int64_t end = x->row + x->rows + rule->past;
    const bool cut = rule->causal && rule->group == 1 && !rule->past_by_length &&
                     a->debug_mode == MP_DEBUG_NONE && end < rule->keys;
    return !cut ? rule->keys : end > 0 ? end : 1; /* queries before all keys see none */
}

static mp_status plan_parts(mp_planner *p, work *w) {
    const mp_attention *a = w->a;
    const k_score_rule *rule = &a->rule;
    const int64_t rows = rule->group * rule->rows;
    const int64_t units = rule->batch * rule->kv_heads;
    part most = {0};
    choose_part(a, &most);
    const part widest = {.columns = rule->keys};
    const mp_shape shape = {.rank = 3,
                            .dim = {MP_MIN(most.units, units), most.rows, pitch_of(w, &widest)}};
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&shape, a->type, &bytes));
    /* A float is not exact enough for double. */
    w->scale = a->type == MP_F64 ? 1.0F : (float)rule->scale;
    w->scale_left = a->type == MP_F64 ? rule->scale : 1;
    w->scores_whole = (a->debug_mode == 0 && a->type != MP_F64) || a->debug_mode == 3;
    w->weights_whole = a->debug_mode == 3;
    w->scores = w->weights = a->debug;
    if (!w->weights_whole) {
        MP_TRY(mp_plan_scratch(p, bytes, &w->weights));
    }
    if (!w->scores_whole) {
        w->scores = w->weights;
    }
    for (int64_t row = 0; row < rows; row += most.rows) {
        for (int64_t unit = 0; unit < units; unit += most.units) {
            part x = {.unit = unit,
                      .units = MP_MIN(units - unit, most.units),
                      .row = row,
                      .rows = rows - row < most.rows ? rows - row : most.rows};
            x.columns = columns_of(a, &x);
            MP_TRY(plan_part(p, w, &x));
        }
    }
    return MP_OK;
}

mp_status mp_plan_attention_products(mp_planner *p, const mp_attention *a) {
    const k_score_rule *rule = &a->rule;
    const int64_t out_size[4] = {rule->batch, rule->heads, rule->rows, a->v_head_size};
    work w = {.a = a};
    mp_heads out = a->out;
    MP_TRY(gather(p, a, &a->q, rule->group, rule->rows, a->head_size, &w.q));
    MP_TRY(gather(p, a, &a->k, 1, rule->keys, a->head_size, &w.k));
    MP_TRY(gather(p, a, &a->v, 1, rule->keys, a->v_head_size, &w.v));
    const bool direct = as_matrices(&out, rule, rule->group, rule->rows, &w.out);
    if (!direct) {
        MP_TRY(scratch_for(p, a->type, out_size, &out));
        (void)as_matrices(&out, rule, rule->group, rule->rows, &w.out);
    }
    MP_TRY(plan_parts(p, &w));
    return direct ? MP_OK : mp_plan_heads_copy(p, a->type, out_size, &out, &a->out);
}
