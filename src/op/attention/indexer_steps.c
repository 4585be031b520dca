/* indexer_steps.c - tokens choose the keys that they attend to.
 * Kernels: attention/indexer_emit.cu, attention/indexer_keys.cu, attention/indexer_query.cu,
 * attention/indexer_scores.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/indexer_steps.h"

#include "op/rows/key_bits.h"
#include "op/rows/topk_steps.h"

#include <math.h>
#include <string.h>

/* ---- what is given ---- */

static mp_shape with_last(const mp_shape *lead, int64_t last) {
    mp_shape shape = *lead;
    shape.dim[shape.rank++] = last;
    return shape;
}

static const mp_shape absent = {.rank = 0};

mp_status mp_indexer_check(const mp_planner *p, int i, const char *name, mp_shape want) {
    const mp_tensor *given = mp_plan_in(p, i);
    const char *mode = mp_node_string(p->node, "policy_mode", "");
    char a[MP_SHAPE_TEXT], b[MP_SHAPE_TEXT];
    if (want.rank == 0) {
        return given == NULL
                   ? MP_OK
                   : MP_FAIL(INVALID_ARGUMENT, "%s must be left out where policy_mode is %.40s",
                             name, mode);
    }
    if (given == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "%s is needed where policy_mode is %.40s", name, mode);
    }
    return mp_shape_equal(&given->shape, &want)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s of shape %s; it must be %s", name,
                         mp_shape_text(&given->shape, a), mp_shape_text(&want, b));
}

/* An attribute that one of the modes needs, and the other must not have. */
static mp_status read_count(const mp_planner *p, const char *name, bool wanted, int64_t *out) {
    const mp_attr *attr = mp_node_attr(p->node, name);
    *out = attr != NULL ? attr->i : 0;
    return wanted == (attr != NULL) && (!wanted || (*out > 0 && *out <= INT32_MAX))
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "%s is %lld where policy_mode is %.40s; qsa needs token_budget, csa "
                         "index_topk, above 0, and neither may have the other's",
                         name, (long long)*out, mp_node_string(p->node, "policy_mode", ""));
}

static mp_status read_mode(const mp_planner *p, mp_indexer *x) {
    const char *mode = mp_node_string(p->node, "policy_mode", "");
    int64_t budget = 0, best = 0;
    x->gated = strcmp(mode, "csa") == 0;
    if (!x->gated && strcmp(mode, "qsa") != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "policy_mode is \"%.40s\"; it can be qsa or csa", mode);
    }
    MP_TRY(read_count(p, "token_budget", !x->gated, &budget));
    MP_TRY(read_count(p, "index_topk", x->gated, &best));
    const int64_t ratio = mp_node_int(p->node, "compress_ratio", 0);
    if (ratio < 1 || ratio > INT32_MAX / 2 || budget % ratio != 0 ||
        budget > INT32_MAX - ratio + 1) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "compress_ratio is %lld and token_budget %lld; the first must be between 1 "
                       "and 1073741823, and the second a multiple of it",
                       (long long)ratio, (long long)budget);
    }
    x->at.ratio = ratio;
    x->best = x->gated ? best : budget / ratio;
    x->places = x->gated ? best : budget + ratio - 1;
    return MP_OK;
}

/* Heads, and where new tokens are: beside the queries, or behind them. */
static mp_status read_query(const mp_planner *p, int rank, mp_indexer *x) {
    const mp_shape *q = &p->in[MP_INDEXER_QUERY].shape;
    const mp_shape *norm = &p->in[MP_INDEXER_QUERY_NORM].shape;
    const mp_tensor *key = mp_plan_in(p, MP_INDEXER_KEY);
    const int64_t size = norm->rank == 1 ? norm->dim[0] : 0;
    const int64_t width = q->rank == rank + 1 ? q->dim[rank] : 0;
    const bool packed = key == NULL && !x->gated;
    const int64_t heads = size > 0 ? width / size - packed : 0;
    if (heads < 1 || width % size != 0) {
        char a[MP_SHAPE_TEXT], b[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "query of shape %s and query_norm_weight of shape %s: a token needs one or "
                       "more heads of as many elements, and where key is left out one more",
                       mp_shape_text(q, a), mp_shape_text(norm, b));
    }
    if (size > K_INDEXER_HEAD_MAX) {
        return MP_FAIL(UNSUPPORTED, "heads of %lld elements; up to %d are supported",
                       (long long)size, K_INDEXER_HEAD_MAX);
    }
    x->lead = *q;
    x->lead.rank = rank;
    x->heads = heads;
    x->size = size;
    x->width = x->gated ? 2 * size : size;
    x->pitch = packed ? width : x->width;
    x->key = packed ? mp_ref_at(MP_IN(MP_INDEXER_QUERY),
                                (uint64_t)(heads * size) * mp_dtype_size(x->type))
                    : MP_IN(MP_INDEXER_KEY);
    x->at.tokens = mp_shape_count(&x->lead);
    return packed ? MP_OK
                  : mp_indexer_check(p, MP_INDEXER_KEY, "key", with_last(&x->lead, x->width));
}

mp_status mp_indexer_read_turn(const mp_planner *p, int64_t entries, mp_indexer *out) {
    const mp_shape *cosine = &p->in[MP_INDEXER_COSINE].shape;
    const mp_shape *sine = &p->in[MP_INDEXER_SINE].shape;
    const int rank = cosine->rank;
    const int64_t width = rank > 1 ? cosine->dim[rank - 1] : 0;
    const bool fits = out->gated ? width <= out->size / 2 : width % 2 == 0 && width <= out->size;
    if (rank < 2 || rank > 3 || (rank == 3 && cosine->dim[0] != entries) ||
        cosine->dim[rank - 2] < 1 || width < 1 || !fits || !mp_shape_equal(cosine, sine)) {
        char a[MP_SHAPE_TEXT], b[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "cos_cache of shape %s and sin_cache of shape %s for %lld entries and heads "
                       "of %lld: they need one shape, a row for each position, and for qsa an even "
                       "number that a head has, for csa half of that",
                       mp_shape_text(cosine, a), mp_shape_text(sine, b), (long long)entries,
                       (long long)out->size);
    }
    out->turn = (k_turn){.rows = cosine->dim[rank - 2],
                         .width = (int32_t)width,
                         .trailing = out->gated,
                         .each = rank == 3};
    return MP_OK;
}

mp_status mp_indexer_read(const mp_planner *p, int rank, mp_indexer *out) {
    const mp_attr *scale = mp_node_attr(p->node, "scale");
    const mp_attr *weight = mp_node_attr(p->node, "head_weight_scale");
    *out = (mp_indexer){.type = p->in[MP_INDEXER_QUERY].type};
    MP_TRY(read_mode(p, out));
    MP_TRY(read_query(p, rank, out));
    const mp_shape norm = {.rank = 1, .dim = {out->size}};
    const mp_shape bias = {.rank = 2, .dim = {out->at.ratio, out->width}};
    MP_TRY(mp_indexer_check(p, MP_INDEXER_KEY_NORM, "key_norm_weight", norm));
    const bool gated = out->gated;
    MP_TRY(mp_indexer_check(p, MP_INDEXER_GATE, "gate",
                            gated ? with_last(&out->lead, out->width) : absent));
    MP_TRY(mp_indexer_check(p, MP_INDEXER_BIAS, "position_bias", gated ? bias : absent));
    MP_TRY(mp_indexer_check(p, MP_INDEXER_WEIGHTS, "head_weights",
                            gated ? with_last(&out->lead, out->heads) : absent));
    MP_TRY(mp_indexer_check(p, MP_INDEXER_POSITIONS, "position_ids", gated ? out->lead : absent));
    if (!gated && weight != NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "head_weight_scale must be left out where policy_mode is "
                                         "qsa");
    }
    out->positions = gated ? MP_IN(MP_INDEXER_POSITIONS) : MP_NOWHERE;
    out->epsilon = mp_node_float(p->node, "epsilon", 1e-6f);
    out->scale = scale != NULL ? scale->f : 1 / sqrtf((float)out->size);
    if (gated) {
        out->scale *= weight != NULL ? weight->f : 1 / sqrtf((float)out->heads);
    }
    return MP_OK;
}

/* ---- steps ---- */

/* Those pointers of an argument struct that say which tokens are whose. */
#define BIND_PLACES(type, x)                                                              \
    MP_BIND(type, at.starts, (x)->starts), MP_BIND(type, at.past, (x)->past),             \
        MP_BIND(type, at.positions, (x)->positions), MP_BIND(type, at.shown, (x)->shown), \
        MP_BIND(type, at.windows, (x)->windows)
#define BIND_TURN(type)                                   \
    MP_BIND(type, turn.cosine, MP_IN(MP_INDEXER_COSINE)), \
        MP_BIND(type, turn.sine, MP_IN(MP_INDEXER_SINE))

/* A few lanes for each head, which stays in shared memory. */
static mp_grid head_grid(const mp_planner *p, const mp_indexer *x, int64_t rows) {
    const int64_t groups = K_INDEXER_LANES / K_INDEXER_WIDTH;
    mp_grid grid = mp_plan_grid_rows(p, MP_CEIL_DIV(rows, groups), K_INDEXER_LANES);
    grid.shared_bytes = (uint32_t)(groups * x->size * (int64_t)sizeof(float));
    return grid;
}

mp_status mp_plan_indexer_keys(mp_planner *p, const mp_indexer *x, const mp_indexer_keys *keys) {
    const mp_kernel *kernel = NULL;
    const int64_t rows = x->at.batch * keys->windows_most;
    const mp_indexer_keys_args args = {.pitch = x->pitch,
                                       .kept_rows = keys->kept_rows,
                                       .windows_most = keys->windows_most,
                                       .capacity = keys->capacity,
                                       .updates = keys->updates,
                                       .size = (int32_t)x->size,
                                       .epsilon = x->epsilon,
                                       .turn = x->turn,
                                       .at = x->at};
    if (rows == 0) {
        return MP_OK;
    }
    const mp_ref gate = x->gated ? MP_IN(MP_INDEXER_GATE) : MP_NOWHERE;
    const mp_ref bias = x->gated ? MP_IN(MP_INDEXER_BIAS) : MP_NOWHERE;
    MP_TRY(mp_plan_kernel(p, &kernel, "indexer_keys_%s_%s", keys->source, mp_dtype_word(x->type)));
    return MP_LAUNCH(
        p, kernel, head_grid(p, x, rows), args, MP_BIND(mp_indexer_keys_args, fresh, keys->fresh),
        MP_BIND(mp_indexer_keys_args, kept, keys->kept), MP_BIND(mp_indexer_keys_args, gate, gate),
        MP_BIND(mp_indexer_keys_args, kept_gate, keys->kept_gate),
        MP_BIND(mp_indexer_keys_args, bias, bias),
        MP_BIND(mp_indexer_keys_args, weight, MP_IN(MP_INDEXER_KEY_NORM)),
        MP_BIND(mp_indexer_keys_args, listed, x->listed),
        MP_BIND(mp_indexer_keys_args, out, keys->out),
        MP_BIND(mp_indexer_keys_args, update, keys->update), BIND_TURN(mp_indexer_keys_args),
        BIND_PLACES(mp_indexer_keys_args, x));
}

static mp_status turn_queries(mp_planner *p, const mp_indexer *x, mp_ref *q) {
    const mp_kernel *kernel = NULL;
    const mp_shape shape = {.rank = 3, .dim = {x->at.tokens, x->heads, x->size}};
    const mp_indexer_query_args args = {.heads = x->heads,
                                        .pitch = p->in[MP_INDEXER_QUERY].shape.dim[x->lead.rank],
                                        .size = (int32_t)x->size,
                                        .epsilon = x->epsilon,
                                        .turn = x->turn,
                                        .at = x->at};
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, q));
    MP_TRY(mp_plan_kernel(p, &kernel, "indexer_query_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, head_grid(p, x, x->at.tokens * x->heads), args,
                     MP_BIND(mp_indexer_query_args, x, MP_IN(MP_INDEXER_QUERY)),
                     MP_BIND(mp_indexer_query_args, weight, MP_IN(MP_INDEXER_QUERY_NORM)),
                     MP_BIND(mp_indexer_query_args, out, *q), BIND_TURN(mp_indexer_query_args),
                     BIND_PLACES(mp_indexer_query_args, x));
}

/* As many keys and heads as fit shared memory. */
static size_t choose_tile(const mp_planner *p, const mp_indexer *x, mp_indexer_scores_args *args) {
    static const int32_t sides[][2] = {{32, 64}, {32, 32}, {32, 16}, {32, 4}, {16, 4}, {8, 4}};
    const int64_t depth = (x->size + 3) / 4 * 4;
    const int64_t heads = (x->heads + K_INDEXER_HEADS - 1) / K_INDEXER_HEADS * K_INDEXER_HEADS;
    size_t bytes = 0;
    for (size_t i = 0; i < MP_COUNT_OF(sides); i++) {
        args->tile = sides[i][0];
        args->heads_at_once = (int32_t)MP_MIN(heads, sides[i][1]);
        const int64_t floats =
            args->heads_at_once * depth + args->tile * (depth + 1) + K_INDEXER_LANES;
        bytes = (size_t)floats * sizeof(float);
        if (bytes <= p->device->info.shared_bytes_max) {
            return bytes;
        }
    }
    args->tile = 4;
    return (size_t)(K_INDEXER_HEADS * depth + 4 * (depth + 1) + K_INDEXER_LANES) * sizeof(float);
}

static mp_status score(mp_planner *p, const mp_indexer *x, mp_ref keys, mp_dtype type,
                       int64_t capacity, int64_t columns, mp_ref *scores) {
    mp_ref q;
    const mp_kernel *kernel = NULL;
    const mp_shape shape = {.rank = 2, .dim = {x->at.tokens, columns}};
    mp_indexer_scores_args args = {.heads = x->heads,
                                   .columns = columns,
                                   .capacity = capacity,
                                   .size = (int32_t)x->size,
                                   .scale = x->scale,
                                   .at = x->at};
    MP_TRY(turn_queries(p, x, &q));
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, scores));
    MP_TRY(mp_plan_kernel(p, &kernel, "indexer_scores_%s", mp_dtype_word(type)));
    const size_t bytes = choose_tile(p, x, &args);
    const int64_t units = x->at.tokens * MP_CEIL_DIV(columns, args.tile);
    mp_grid grid = mp_plan_grid_rows(p, units, K_INDEXER_LANES);
    grid.shared_bytes = (uint32_t)bytes;
    const mp_ref weights = x->gated ? MP_IN(MP_INDEXER_WEIGHTS) : MP_NOWHERE;
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_indexer_scores_args, q, q),
                     MP_BIND(mp_indexer_scores_args, keys, keys),
                     MP_BIND(mp_indexer_scores_args, weights, weights),
                     MP_BIND(mp_indexer_scores_args, scores, *scores),
                     BIND_PLACES(mp_indexer_scores_args, x));
}

/* The best keys of each token. */
static mp_status choose(mp_planner *p, const mp_indexer *x, mp_ref scores, int64_t columns,
                        int64_t best, mp_ref *indices) {
    mp_topk t = {.dtype = MP_F32,
                 .rows = {.rows = x->at.tokens, .columns = columns, .inner = 1},
                 .k = best,
                 .sorted = true,
                 .order = mp_order_of(MP_F32, true),
                 .x = scores};
    const mp_shape shape = {.rank = 2, .dim = {x->at.tokens, best}};
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, &t.values));
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_I64, &t.indices));
    *indices = t.indices;
    return mp_plan_topk(p, &t);
}

mp_status mp_plan_indexer_choice(mp_planner *p, const mp_indexer *x, mp_ref keys, mp_dtype type,
                                 int64_t capacity, int64_t columns, int counts) {
    const mp_shape out = with_last(&x->lead, x->places);
    MP_TRY(mp_plan_output(p, 0, MP_I32, &out));
    if (counts >= 0) {
        MP_TRY(mp_plan_output(p, counts, MP_I32, &x->lead));
    }
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    mp_ref scores = MP_NOWHERE, indices = MP_NOWHERE;
    const int64_t best = MP_MIN(x->best, columns);
    if (best > 0) {
        MP_TRY(score(p, x, keys, type, capacity, columns, &scores));
        MP_TRY(choose(p, x, scores, columns, best, &indices));
    }
    const mp_kernel *kernel = NULL;
    const mp_indexer_emit_args args = {
        .best_most = best, .capacity = x->places, .whole = !x->gated, .at = x->at};
    MP_TRY(mp_plan_kernel(p, &kernel, "indexer_emit"));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, mp_shape_count(&out), 1), args,
        MP_BIND(mp_indexer_emit_args, best, indices),
        MP_BIND(mp_indexer_emit_args, listed, x->listed),
        MP_BIND(mp_indexer_emit_args, out, MP_OUT(0)),
        MP_BIND(mp_indexer_emit_args, counts, counts < 0 ? MP_NOWHERE : MP_OUT(counts)),
        BIND_PLACES(mp_indexer_emit_args, x));
}
