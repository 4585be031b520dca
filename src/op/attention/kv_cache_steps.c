/* kv_cache_steps.c - see kv_cache_steps.h.
 * Kernel: attention/kv_quantize.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/kv_cache_steps.h"

#include "op/pointwise/narrow.h"

#include <string.h>

enum { ZERO_OF_4_BITS = 8 };

typedef enum scaling { NONE, OF_ALL, OF_CHANNELS, UNKNOWN } scaling;

static scaling read_scaling(const mp_node *node, const char *name) {
    const char *text = mp_node_string(node, name, "NONE");
    return strcmp(text, "NONE") == 0          ? NONE
           : strcmp(text, "PER_TENSOR") == 0  ? OF_ALL
           : strcmp(text, "PER_CHANNEL") == 0 ? OF_CHANNELS
                                              : UNKNOWN;
}

/* ---- what there is ---- */

mp_status mp_kv_cache_accept(const mp_planner *p, mp_dtype wide, const mp_tensor *key,
                             const mp_tensor *value) {
    const scaling how[2] = {read_scaling(p->node, "k_quant_type"),
                            read_scaling(p->node, "v_quant_type")};
    const int64_t bits = mp_node_int(p->node, "kv_cache_bit_width", 0);
    const mp_dtype type = key != NULL ? key->type : wide;
    const bool plain = type == wide && how[0] == NONE && how[1] == NONE;
    const bool scaled = how[0] != NONE && how[0] != UNKNOWN && how[1] != NONE && how[1] != UNKNOWN;
    const bool bytes = (type == MP_I8 || type == MP_F8E4M3FN) && (bits == 8 || bits == 0);
    const bool halves = type == MP_U8 && bits == 4;
    return (value == NULL || value->type == type) && (plain || (scaled && (bytes || halves)))
               ? MP_OK
               : MP_FAIL(UNSUPPORTED,
                         "past_key of type %s with k_quant_type %s, v_quant_type %s and "
                         "kv_cache_bit_width %lld; caches are of query's type, or of int8, "
                         "float8e4m3fn or uint8 (of 4 bits) with both quant types",
                         mp_dtype_name(type), mp_node_string(p->node, "k_quant_type", "NONE"),
                         mp_node_string(p->node, "v_quant_type", "NONE"), (long long)bits);
}

static mp_status read_scale(const mp_planner *p, const mp_kv_cache *c, int input, bool channels) {
    const mp_tensor *scale = mp_plan_in(p, input);
    const int64_t want = channels ? c->heads * c->size : 1;
    if (scale == NULL || mp_shape_count(&scale->shape) != want) {
        return MP_FAIL(INVALID_ARGUMENT, "input %d must be the %lld scales of a quantised cache",
                       input, (long long)want);
    }
    return MP_OK;
}

mp_status mp_kv_cache_read(const mp_planner *p, const mp_tensor *key, int key_scale,
                           int value_scale, int64_t heads, int64_t size, mp_kv_cache *out) {
    const mp_dtype wide = p->in[0].type;
    *out = (mp_kv_cache){.wide = wide,
                         .type = key != NULL ? key->type : wide,
                         .heads = heads,
                         .size = size,
                         .row = size};
    if (out->type == wide) {
        return MP_OK;
    }
    const bool halves = out->type == MP_U8;
    out->row = halves ? size / 2 + size % 2 : size;
    out->values = (k_cache_values){
        .channels = {read_scaling(p->node, "k_quant_type") == OF_CHANNELS,
                     read_scaling(p->node, "v_quant_type") == OF_CHANNELS},
        .zero = halves ? ZERO_OF_4_BITS : 0,
        .type = mp_narrow(halves ? MP_U4 : out->type, (mp_narrowing){.saturate = true})};
    out->scale[0] = MP_IN(key_scale);
    out->scale[1] = MP_IN(value_scale);
    MP_TRY(read_scale(p, out, key_scale, out->values.channels[0] != 0));
    return read_scale(p, out, value_scale, out->values.channels[1] != 0);
}

/* ---- steps ---- */

/* `wide` and `narrow` are the two sides of each; the latter have no gaps. */
static mp_status convert(mp_planner *p, const mp_kv_cache *c, const mp_kv_quantize_args *sizes,
                         const mp_heads wide[2], const mp_heads narrow[2]) {
    mp_kv_quantize_args args = *sizes;
    const mp_kernel *kernel = NULL;
    args.heads = c->heads;
    args.size = c->size;
    args.narrow_bytes = c->row;
    args.cache = c->values;
    for (int side = 0; side < 2; side++) {
        memcpy(args.wide_stride[side], wide[side].stride, sizeof args.wide_stride[side]);
    }
    const int64_t groups = MP_CEIL_DIV(c->size, K_GROUP);
    const int64_t count = 2 * args.batch * args.heads * args.rows * groups;
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "kv_quantize_%s", mp_dtype_word(c->wide)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, count, 1), args,
                     MP_BIND(mp_kv_quantize_args, wide[0], wide[0].ref),
                     MP_BIND(mp_kv_quantize_args, wide[1], wide[1].ref),
                     MP_BIND(mp_kv_quantize_args, narrow[0], narrow[0].ref),
                     MP_BIND(mp_kv_quantize_args, narrow[1], narrow[1].ref),
                     MP_BIND(mp_kv_quantize_args, cache.scale[0], c->scale[0]),
                     MP_BIND(mp_kv_quantize_args, cache.scale[1], c->scale[1]));
}

static mp_status scratch_pair(mp_planner *p, const mp_kv_cache *c, int64_t batch, int64_t rows,
                              int64_t size, mp_dtype type, mp_heads out[2]) {
    const mp_shape shape = {.rank = 4, .dim = {batch, c->heads, rows, size}};
    for (int side = 0; side < 2; side++) {
        out[side] = mp_heads_first(MP_NOWHERE, c->heads, rows, size);
        MP_TRY(mp_plan_scratch_shape(p, &shape, type, &out[side].ref));
    }
    return MP_OK;
}

mp_status mp_kv_cache_narrow(mp_planner *p, const mp_kv_cache *c, int64_t batch, int64_t rows,
                             mp_heads sides[2]) {
    const mp_kv_quantize_args sizes = {.batch = batch, .rows = rows, .narrow_rows = rows};
    mp_heads narrow[2];
    if (c->type == c->wide) {
        return MP_OK;
    }
    MP_TRY(scratch_pair(p, c, batch, rows, c->row, c->type, narrow));
    MP_TRY(convert(p, c, &sizes, sides, narrow));
    memcpy(sides, narrow, sizeof narrow);
    return MP_OK;
}

mp_status mp_kv_cache_widen(mp_planner *p, const mp_kv_cache *c, int64_t present, mp_attention *a) {
    const mp_kv_quantize_args sizes = {
        .batch = a->rule.batch, .rows = a->rule.keys, .narrow_rows = present, .back = 1};
    mp_heads wide[2];
    if (c->type == c->wide) {
        return MP_OK;
    }
    a->cache = &c->values;
    if (mp_attention_reads_cache(p, a)) {
        a->cache_scale[0] = c->scale[0];
        a->cache_scale[1] = c->scale[1];
        return MP_OK;
    }
    a->cache = NULL;
    const mp_heads narrow[2] = {a->k, a->v};
    MP_TRY(scratch_pair(p, c, sizes.batch, sizes.rows, c->size, c->wide, wide));
    MP_TRY(convert(p, c, &sizes, wide, narrow));
    a->k = wide[0];
    a->v = wide[1];
    return MP_OK;
}
