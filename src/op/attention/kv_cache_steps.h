/* kv_cache_steps.h - caches of keys and values in another type than theirs, for any operator's
 * plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_KV_CACHE_STEPS_H
#define MP_OP_KV_CACHE_STEPS_H

#include "op/attention/attention_steps.h"

/* The type of a cache. int8 and float8e4m3fn are elements times a scale; uint8 are two of 4 bits,
 * the first one low, 8 above their values. */
typedef struct mp_kv_cache {
    mp_dtype wide, type; /* of keys and values, of the cache: the same where it is not quantised */
    int64_t heads, size; /* elements of a head */
    int64_t row;         /* elements of the cache's type that a head takes */
    mp_ref scale[2];     /* float: of keys, of values */
    k_cache_values values;
} mp_kv_cache;

/* Attributes k_quant_type, v_quant_type and kv_cache_bit_width, and types; needs no shapes. `key`
 * and `value`, the caches as they come, are both given or both NULL. Fails: UNSUPPORTED. */
mp_status mp_kv_cache_accept(const mp_planner *p, mp_dtype wide, const mp_tensor *key,
                             const mp_tensor *value);

/* What is accepted, with the scales, which are inputs. Fails: INVALID_ARGUMENT for their shapes. */
mp_status mp_kv_cache_read(const mp_planner *p, const mp_tensor *key, int key_scale,
                           int value_scale, int64_t heads, int64_t size, mp_kv_cache *out);

/* Rows of keys and values as the cache has them, in scratch memory; nothing where it is not
 * quantised. `sides` then says where they are. */
mp_status mp_kv_cache_narrow(mp_planner *p, const mp_kv_cache *c, int64_t batch, int64_t rows,
                             mp_heads sides[2]);

/* Keys and values of `a`, which lie in caches of `present` rows: attention reads them as they are,
 * or they are brought into scratch memory as `wide`. Borrows: `c`, until `a` is planned. */
mp_status mp_kv_cache_widen(mp_planner *p, const mp_kv_cache *c, int64_t present, mp_attention *a);

#endif
