/* sparse_indexer.c - SparseAttentionIndexer of com.microsoft: a batch of tokens chooses what it
 * will attend to. In mode qsa keys are means of the tokens that a mask shows, made anew from a
 * cache of tokens in each run; in mode csa they are kept, and tokens of the last windows wait
 * beside them.
 * Kernels: attention/indexer_shown.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/indexer_steps.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/move/strided_copy.h"

enum { IN_MASK = 6, IN_PAST = 7, IN_LENGTH = 12, IN_WAITING = 13 };
enum { OUT_PRESENT = 1, OUT_WAITING };

/* Rows of a cache: as given, those that count, as made. */
typedef struct cache {
    int64_t given, past, present;
} cache;

/* ---- what is given ---- */

static mp_status read_past(const mp_planner *p, const mp_indexer *x, cache *c) {
    const mp_shape *past = &p->in[IN_PAST].shape;
    int count = 0;
    c->given = past->rank == 3 ? past->dim[1] : 0;
    const mp_shape want = {.rank = 3, .dim = {x->at.batch, c->given, x->size}};
    MP_TRY(mp_indexer_check(p, IN_PAST, "past_key", want));
    MP_TRY(mp_host_ints(p, IN_LENGTH, "past_sequence_length", 1, &c->past, &count));
    if (count < 0) {
        c->past = c->given;
        return MP_OK;
    }
    return count == 1 && c->past >= 0 && c->past <= c->given
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "past_sequence_length is %lld for a past_key of %lld rows",
                         (long long)(count == 1 ? c->past : -1), (long long)c->given);
}

/* `fresh` rows come behind those that count: the cache has room for them, or grows. */
static mp_status read_present(const mp_planner *p, int64_t fresh, cache *c) {
    const bool grows = mp_plan_in(p, IN_LENGTH) == NULL;
    const int64_t room = grows ? INT32_MAX : c->given;
    c->present = grows ? c->past + fresh : c->given;
    return c->past <= room - fresh
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "%lld rows come behind the %lld of a past_key that has "
                         "room for %lld",
                         (long long)fresh, (long long)c->past, (long long)room);
}

/* What becomes of the tokens of each entry, `waiting` of which are those of the run before. */
static k_windows windows_of(const mp_indexer *x, int64_t past, int64_t waiting) {
    const int64_t ratio = x->at.ratio, before = waiting >= ratio ? ratio : 0;
    const int64_t pending = waiting - before + x->at.rows, made = pending / ratio;
    return (k_windows){.keys = (int32_t)past,
                       .waiting = (int32_t)waiting,
                       .before = (int32_t)before,
                       .made = (int32_t)made,
                       .first = (int32_t)(made > 0 ? before + (made - 1) * ratio : 0),
                       .left = (int32_t)(made > 0 ? ratio + pending % ratio : before + pending)};
}

/* ---- steps ---- */

/* Rows [0, rows) of each entry from `source` to `target`, whose entries are `steps` apart. */
static mp_status copy_rows(mp_planner *p, const mp_indexer *x, int64_t rows, int64_t width,
                           const mp_strided *source, const mp_strided *target) {
    const mp_shape shape = {.rank = 3, .dim = {x->at.batch, rows, width}};
    return mp_shape_count(&shape) == 0
               ? MP_OK
               : mp_plan_strided_copy(p, &shape, mp_dtype_size(x->type), source, target);
}

/* The cache as it was, in its new memory. */
static mp_status keep_past(mp_planner *p, const mp_indexer *x, const cache *c) {
    const mp_shape shape = {.rank = 3, .dim = {x->at.batch, c->present, x->size}};
    MP_TRY(mp_plan_output(p, OUT_PRESENT, x->type, &shape));
    if (c->present == c->given) {
        size_t bytes = 0;
        MP_TRY(mp_shape_bytes(&shape, x->type, &bytes));
        return mp_plan_copy(p, MP_OUT(OUT_PRESENT), MP_IN(IN_PAST), bytes);
    }
    const mp_strided from = {MP_IN(IN_PAST), 0, {c->given * x->size, x->size, 1}};
    const mp_strided to = {MP_OUT(OUT_PRESENT), 0, {c->present * x->size, x->size, 1}};
    return copy_rows(p, x, c->past, x->size, &from, &to);
}

/* ---- qsa ---- */

static mp_status show(mp_planner *p, mp_indexer *x) {
    const mp_kernel *kernel = NULL;
    const mp_shape shape = {.rank = 2, .dim = {x->at.batch, x->at.total}};
    const mp_indexer_shown_args args = {.batch = x->at.batch, .total = x->at.total};
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_I32, &x->shown));
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_I32, &x->listed));
    MP_TRY(mp_plan_kernel(p, &kernel, "indexer_shown"));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, x->at.batch, 256), args,
                     MP_BIND(mp_indexer_shown_args, mask, MP_IN(IN_MASK)),
                     MP_BIND(mp_indexer_shown_args, shown, x->shown),
                     MP_BIND(mp_indexer_shown_args, listed, x->listed));
}

static mp_status plan_tokens(mp_planner *p, mp_indexer *x, cache *c) {
    MP_TRY(mp_indexer_check(p, IN_WAITING, "past_proj_buffer", (mp_shape){.rank = 0}));
    MP_TRY(read_present(p, x->at.rows, c));
    x->at.past_rows = c->past;
    x->at.total = c->past + x->at.rows;
    x->at.same.made = (int32_t)(x->at.total / x->at.ratio);
    const bool masked = mp_plan_in(p, IN_MASK) != NULL;
    const mp_shape mask = {.rank = masked ? 2 : 0, .dim = {x->at.batch, x->at.total}};
    MP_TRY(mp_indexer_check(p, IN_MASK, "mask", mask));
    MP_TRY(keep_past(p, x, c));
    const mp_strided from = {x->key, 0, {x->at.rows * x->pitch, x->pitch, 1}};
    const mp_strided to = {
        MP_OUT(OUT_PRESENT), c->past * x->size, {c->present * x->size, x->size, 1}};
    MP_TRY(copy_rows(p, x, x->at.rows, x->size, &from, &to));
    if (masked) {
        MP_TRY(show(p, x));
    }
    const int64_t made = x->at.same.made;
    mp_indexer_keys keys = {.source = "all",
                            .fresh = MP_OUT(OUT_PRESENT),
                            .kept_rows = c->present,
                            .windows_most = made,
                            .capacity = made};
    const mp_shape shape = {.rank = 3, .dim = {x->at.batch, made, x->size}};
    if (x->at.tokens > 0) {
        MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, &keys.out));
        MP_TRY(mp_plan_indexer_keys(p, x, &keys));
    }
    return mp_plan_indexer_choice(p, x, keys.out, MP_F32, made, made, -1);
}

/* ---- csa ---- */

/* Tokens of a plane that wait from now on: the last of those that did, then the last new ones. */
static mp_status keep_waiting(mp_planner *p, const mp_indexer *x, int64_t plane, mp_ref fresh) {
    const k_windows *w = &x->at.same;
    const int64_t width = x->width, old = MP_MAX(MP_MIN(w->waiting - w->first, w->left), 0);
    const int64_t skipped = MP_MAX(w->first - w->waiting, 0);
    const int64_t planes = plane * x->at.batch;
    const mp_strided kept = {MP_IN(IN_WAITING),
                             (planes * w->waiting + w->first) * width,
                             {w->waiting * width, width, 1}};
    const mp_strided came = {fresh, skipped * width, {x->at.rows * width, width, 1}};
    mp_strided to = {MP_OUT(OUT_WAITING), planes * w->left * width, {w->left * width, width, 1}};
    MP_TRY(copy_rows(p, x, old, width, &kept, &to));
    to.offset += old * width;
    return copy_rows(p, x, w->left - old, width, &came, &to);
}

static mp_status plan_keys(mp_planner *p, mp_indexer *x, cache *c) {
    const mp_tensor *waiting = mp_plan_in(p, IN_WAITING);
    const int64_t ratio = x->at.ratio;
    const int64_t length = waiting != NULL && waiting->shape.rank == 4 ? waiting->shape.dim[2] : 0;
    const mp_shape want = {.rank = 4, .dim = {2, x->at.batch, length, x->width}};
    MP_TRY(mp_indexer_check(p, IN_MASK, "mask", (mp_shape){.rank = 0}));
    MP_TRY(mp_indexer_check(p, IN_WAITING, "past_proj_buffer", want));
    if (length >= 2 * ratio || x->at.rows > INT32_MAX - 2 * ratio) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "past_proj_buffer has %lld tokens beside %lld new ones; with a "
                       "compress_ratio of %lld fewer than %lld can wait",
                       (long long)length, (long long)x->at.rows, (long long)ratio,
                       (long long)(2 * ratio));
    }
    x->at.same = windows_of(x, c->past, length);
    const int64_t made = x->at.same.made;
    MP_TRY(read_present(p, made, c));
    mp_shape left = want;
    left.dim[2] = x->at.same.left;
    MP_TRY(mp_plan_output(p, OUT_WAITING, x->type, &left));
    MP_TRY(keep_past(p, x, c));
    MP_TRY(keep_waiting(p, x, 0, MP_IN(MP_INDEXER_KEY)));
    MP_TRY(keep_waiting(p, x, 1, MP_IN(MP_INDEXER_GATE)));
    const uint64_t plane = (uint64_t)(x->at.batch * length * x->width) * mp_dtype_size(x->type);
    const mp_indexer_keys keys = {.source = "gated",
                                  .fresh = MP_IN(MP_INDEXER_KEY),
                                  .kept = MP_IN(IN_WAITING),
                                  .kept_gate = mp_ref_at(MP_IN(IN_WAITING), plane),
                                  .out = MP_OUT(OUT_PRESENT),
                                  .kept_rows = length,
                                  .windows_most = made,
                                  .capacity = c->present};
    MP_TRY(mp_plan_indexer_keys(p, x, &keys));
    return mp_plan_indexer_choice(p, x, keys.out, x->type, c->present, c->past + made, -1);
}

static mp_status plan_indexer(mp_planner *p) {
    mp_indexer x;
    cache c = {0};
    MP_TRY(mp_indexer_read(p, 2, &x));
    x.at.batch = x.lead.dim[0];
    x.at.rows = x.lead.dim[1];
    MP_TRY(mp_indexer_read_turn(p, x.at.batch, &x));
    MP_TRY(read_past(p, &x, &c));
    return x.gated ? plan_keys(p, &x, &c) : plan_tokens(p, &x, &c);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {
    {"policy_mode", MP_ATTR_STRING},      {"compress_ratio", MP_ATTR_INT},
    {"token_budget", MP_ATTR_INT},        {"index_topk", MP_ATTR_INT},
    {"epsilon", MP_ATTR_FLOAT},           {"scale", MP_ATTR_FLOAT},
    {"head_weight_scale", MP_ATTR_FLOAT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "SparseAttentionIndexer",
     .since = 1,
     .until = 1,
     .types = {{"T", 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16},
               {"TB", MP_BIT(MP_I64)},
               {"I", MP_BIT(MP_I64)},
               {"M", MP_BIT(MP_I32)}},
     .host_in = 1u << IN_LENGTH,
     .in_place = {{IN_PAST, OUT_PRESENT}},
     .in_place_count = 1,
     .attrs = attrs,
     .plan = plan_indexer},
};

const mp_op_family mp__family_sparse_indexer = {"sparse_indexer", ops, MP_COUNT_OF(ops)};
