/* dense_caches.c - caches of the attention operators of com.microsoft: pasts in buffers with room,
 * keys and values in one tensor, rows that beams take from each other, keys in packs of 16 bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/dense_steps.h"
#include "op/attention/kv_steps.h"
#include "op/core/host_input.h"
#include "op/move/strided_copy.h"

mp_status mp_dense_past(const mp_planner *p, int i, mp_dense *d) {
    int64_t past = 0;
    int count = 0;
    MP_TRY(mp_host_ints(p, i, "past_sequence_length", 1, &past, &count));
    if (count != 1 || past < 0 || past > d->room - d->fresh) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "past_sequence_length is %lld; with %lld new keys in caches of %lld rows it "
                       "must be one number between 0 and %lld",
                       (long long)past, (long long)d->fresh, (long long)d->room,
                       (long long)(d->room - d->fresh));
    }
    d->past = past;
    d->shared = true;
    return MP_OK;
}

mp_status mp_dense_beams(const mp_planner *p, int i, int width_input, mp_dense *d) {
    const mp_tensor *beams = mp_plan_in(p, i);
    int64_t wanted = 1;
    int count = 0;
    if (width_input >= 0) {
        MP_TRY(mp_host_ints(p, width_input, "beam_width", 1, &wanted, &count));
        if (count != 1 || wanted <= 1) {
            return MP_OK;
        }
    }
    if (beams == NULL) {
        return wanted <= 1 ? MP_OK
                           : MP_FAIL(INVALID_ARGUMENT, "%lld beams need cache_indirection",
                                     (long long)wanted);
    }
    const mp_shape *shape = &beams->shape;
    const int64_t width = shape->rank == 3 ? shape->dim[1] : 0;
    if (width < 1 || (width_input >= 0 && width != wanted) || d->batch % width != 0 ||
        shape->dim[0] != d->batch / width || shape->dim[2] < d->past) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "cache_indirection of shape %s; for %lld entries it must be of batch, beams "
                       "and at least %lld rows",
                       mp_shape_text(shape, text), (long long)d->batch, (long long)d->past);
    }
    d->beams_of = MP_IN(i);
    d->beams = (k_beams){.width = width, .pitch = shape->dim[2], .rows = d->past};
    return MP_OK;
}

mp_status mp_dense_stacked(mp_planner *p, int past, int present, int length, mp_dense *d) {
    const mp_tensor *cache = mp_plan_in(p, past);
    const mp_shape half = {.rank = 4, .dim = {d->batch, d->heads, 0, d->head}};
    mp_shape want = {.rank = 5, .dim = {2, d->batch, d->heads, 0, d->head}};
    size_t bytes = 0;
    if (cache != NULL) {
        d->room = d->past = want.dim[3] = cache->shape.rank == 5 ? cache->shape.dim[3] : 0;
        if (!mp_shape_equal(&cache->shape, &want) || d->head != d->value) {
            char text[2][MP_SHAPE_TEXT];
            return MP_FAIL(INVALID_ARGUMENT,
                           "past of shape %s; it must be of shape %s, with heads of Q, K and V of "
                           "one size",
                           mp_shape_text(&cache->shape, text[0]), mp_shape_text(&want, text[1]));
        }
        if (mp_node_int(p->node, "past_present_share_buffer", 0) != 0) {
            MP_TRY(mp_dense_past(p, length, d));
        }
        mp_shape one = half;
        one.dim[2] = d->room;
        MP_TRY(mp_shape_bytes(&one, d->type, &bytes));
        d->past_at[0] = MP_IN(past);
        d->past_at[1] = mp_ref_at(MP_IN(past), bytes);
    }
    want.dim[3] = mp_dense_present_rows(d);
    MP_TRY(mp_plan_output(p, present, d->type, &want));
    if (!mp_plan_wants(p, present)) {
        return MP_OK;
    }
    if (d->head != d->value) {
        return MP_FAIL(UNSUPPORTED,
                       "present needs heads of Q, K and V of one size, not %lld and "
                       "%lld elements",
                       (long long)d->head, (long long)d->value);
    }
    mp_shape one = half;
    one.dim[2] = mp_dense_present_rows(d);
    MP_TRY(mp_shape_bytes(&one, d->type, &bytes));
    d->present_at[0] = MP_OUT(present);
    d->present_at[1] = mp_ref_at(MP_OUT(present), bytes);
    return MP_OK;
}

/* ---- steps ---- */

static mp_status cache_scratch(mp_planner *p, const mp_dense *d, int64_t rows, mp_ref out[2]) {
    for (int side = 0; side < 2; side++) {
        const mp_shape shape = {.rank = 4,
                                .dim = {d->batch, d->heads, rows, side == 0 ? d->head : d->value}};
        if (out[side].place == MP_PLACE_NONE) {
            MP_TRY(mp_plan_scratch_shape(p, &shape, d->type, &out[side]));
        }
    }
    return MP_OK;
}

/* The caches as each beam has them: gathered, so that every way of attention reads them. */
static mp_status follow_beams(mp_planner *p, const mp_dense *d, mp_ref cache[2], int64_t *rows) {
    mp_ref own[2] = {MP_NOWHERE, MP_NOWHERE};
    const int64_t keys = mp_dense_keys(d);
    MP_TRY(cache_scratch(p, d, keys, own));
    const mp_kv_append gather = {.type = d->type,
                                 .batch = d->batch,
                                 .heads = d->heads,
                                 .size = {d->head, d->value},
                                 .past = {cache[0], cache[1]},
                                 .present = {own[0], own[1]},
                                 .lengths = MP_NOWHERE,
                                 .past_rows = *rows,
                                 .past_used = keys,
                                 .present_rows = keys,
                                 .beams = d->beams,
                                 .beams_of = d->beams_of};
    cache[0] = own[0];
    cache[1] = own[1];
    *rows = keys;
    return mp_plan_kv_append(p, &gather);
}

/* ---- keys in packs ---- */

/* Rows of packed keys from `first`, as [batch * heads, rows, head / x, x]. */
static mp_strided packed_rows(const mp_dense *d, mp_ref cache, int64_t first, int64_t pack) {
    return (mp_strided){
        .ref = cache,
        .offset = first * pack,
        .stride = {d->heads * d->room * d->head, d->room * d->head, pack, d->room * pack, 1}};
}

static mp_strided plain_rows(const mp_heads *side, int64_t pack) {
    return (mp_strided){.ref = side->ref,
                        .stride = {side->stride[0], side->stride[1], side->stride[2], pack, 1}};
}

static mp_status copy_rows(mp_planner *p, const mp_dense *d, int64_t rows, int64_t pack,
                           const mp_strided *source, const mp_strided *target) {
    const mp_shape shape = {.rank = 5, .dim = {d->batch, d->heads, rows, d->head / pack, pack}};
    return mp_shape_count(&shape) == 0
               ? MP_OK
               : mp_plan_strided_copy(p, &shape, mp_dtype_size(d->type), source, target);
}

static int64_t pack_of(const mp_dense *d) {
    return 16 / (int64_t)mp_dtype_size(d->type);
}

/* The past keys as they are, the new ones in packs behind them. */
static mp_status append_packed_keys(mp_planner *p, const mp_dense *d, mp_ref cache) {
    const mp_shape whole = {.rank = 4, .dim = {d->batch, d->heads, d->room, d->head}};
    const mp_strided source = plain_rows(&d->k, pack_of(d));
    const mp_strided target = packed_rows(d, cache, d->past, pack_of(d));
    size_t bytes = 0;
    if (d->head % pack_of(d) != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "heads of %lld elements; keys lie in packs of %lld, so a head must be a "
                       "multiple of that",
                       (long long)d->head, (long long)pack_of(d));
    }
    MP_TRY(mp_shape_bytes(&whole, d->type, &bytes));
    MP_TRY(mp_plan_copy(p, cache, d->past_at[0], bytes));
    return copy_rows(p, d, d->fresh, pack_of(d), &source, &target);
}

/* The keys that count, row by row in scratch memory with the same room. */
static mp_status unpack_keys(mp_planner *p, const mp_dense *d, mp_ref *cache) {
    const mp_shape shape = {.rank = 4, .dim = {d->batch, d->heads, d->room, d->head}};
    const mp_strided source = packed_rows(d, *cache, 0, pack_of(d));
    MP_TRY(mp_plan_scratch_shape(p, &shape, d->type, cache));
    const mp_heads rows = mp_heads_first(*cache, d->heads, d->room, d->head);
    const mp_strided target = plain_rows(&rows, pack_of(d));
    return copy_rows(p, d, mp_dense_keys(d), pack_of(d), &source, &target);
}

/* Packed keys, of which a row is the first pack of a key. */
static mp_heads packed_heads(const mp_dense *d, mp_ref cache) {
    const int64_t size = d->room * d->head;
    return (mp_heads){cache, {d->heads * size, size, pack_of(d)}};
}

/* Whether attention reads them as they lie. Of halves the kernel that reads rows is no slower with
 * the copy in front of it. */
static bool reads_packs(const mp_planner *p, const mp_dense *d, const mp_ref cache[2],
                        const mp_attention *a) {
    mp_attention packed = *a;
    packed.k = packed_heads(d, cache[0]);
    packed.v = mp_heads_first(cache[1], d->heads, d->room, d->value);
    packed.k_piece = d->room * pack_of(d);
    return d->type == MP_F32 && mp_attention_reads_pieces(p, &packed);
}

/* ---- growth ---- */

mp_status mp_dense_grow(mp_planner *p, const mp_dense *d, mp_attention *a) {
    int64_t rows = mp_dense_present_rows(d);
    mp_ref cache[2] = {d->present_at[0], d->present_at[1]};
    MP_TRY(cache_scratch(p, d, rows, cache));
    mp_kv_append append = {.type = d->type,
                           .batch = d->batch,
                           .heads = d->heads,
                           .size = {d->head, d->value},
                           .past = {d->past_at[0], d->past_at[1]},
                           .fresh = {d->k, d->v},
                           .present = {cache[0], cache[1]},
                           .lengths = MP_NOWHERE,
                           .past_rows = d->room,
                           .past_used = d->past,
                           .fresh_rows = d->fresh,
                           .present_rows = rows};
    if (d->key_packs) {
        MP_TRY(append_packed_keys(p, d, cache[0]));
        append.size[0] = 0;
    }
    MP_TRY(mp_plan_kv_append(p, &append));
    if (d->key_packs && reads_packs(p, d, cache, a)) {
        a->k_piece = d->room * pack_of(d);
    } else if (d->key_packs) {
        MP_TRY(unpack_keys(p, d, &cache[0]));
    }
    if (d->beams_of.place != MP_PLACE_NONE && mp_attention_reads_cache(p, a)) {
        a->beams = d->beams;
        a->beams_of = d->beams_of;
    } else if (d->beams_of.place != MP_PLACE_NONE) {
        MP_TRY(follow_beams(p, d, cache, &rows));
    }
    a->k = a->k_piece > 0 ? packed_heads(d, cache[0])
                          : mp_heads_first(cache[0], d->heads, rows, d->head);
    a->v = mp_heads_first(cache[1], d->heads, rows, d->value);
    return MP_OK;
}
