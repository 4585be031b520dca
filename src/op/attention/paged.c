/* paged.c - PagedAttention and SparsePagedAttention of com.microsoft: a packed batch, caches in
 * blocks that grow in place, tokens that see all keys or choose some.
 *
 * The caches that come out are those that came in, where the memory is the same; otherwise they are
 * copied first. A model that leaves them out wants its inputs changed, which no plan does.
 * Kernels: attention/paged_store.cu, attention/attention_paged.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/paged_read.h"
#include "op/core/families.h"

static mp_status accept_paged(const mp_planner *p) {
    const bool values = mp_plan_in(p, MP_PAGED_V_CACHE) != NULL;
    return mp_plan_wants(p, 1) && (!values || mp_plan_wants(p, 2))
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "caches that grow as inputs alone; the outputs key_cache_out "
                                      "and value_cache_out are needed");
}

static mp_status plan_paged(mp_planner *p) {
    mp_paged r;
    MP_TRY(accept_paged(p));
    MP_TRY(mp_paged_read_node(p, &r));
    const mp_shape out = {.rank = 2, .dim = {r.attention.at.tokens, r.attention.out_pitch}};
    MP_TRY(mp_plan_output(p, 0, r.type, &out));
    MP_TRY(mp_plan_paged_cache(p, MP_PAGED_K_CACHE, 1, &r.cache[0]));
    r.cache[1] = r.cache[0];
    if (!r.latent) {
        MP_TRY(mp_plan_paged_cache(p, MP_PAGED_V_CACHE, 2, &r.cache[1]));
    }
    if (mp_shape_count(&out) == 0 || r.attention.head_size == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_paged_store(p, &r));
    return mp_plan_paged_attention(p, &r);
}

/* ---- the row ---- */

/* What both have. */
#define ATTRS_OF_BOTH                                                                    \
    {"num_heads", MP_ATTR_INT}, {"kv_num_heads", MP_ATTR_INT}, {"scale", MP_ATTR_FLOAT}, \
        {"softcap", MP_ATTR_FLOAT}, {"local_window_size", MP_ATTR_INT},                  \
        {"is_causal", MP_ATTR_INT}, {"do_rotary", MP_ATTR_INT},                          \
        {"rotary_interleaved", MP_ATTR_INT}, {"rotary_offset", MP_ATTR_INT},             \
        {"qk_norm_epsilon", MP_ATTR_FLOAT}, {"k_quant_type", MP_ATTR_STRING}, {          \
        "v_quant_type", MP_ATTR_STRING                                                   \
    }

static const mp_attr_def attrs[] = {ATTRS_OF_BOTH,
                                    {"k_cache_dtype", MP_ATTR_STRING},
                                    {"v_cache_dtype", MP_ATTR_STRING},
                                    {"kv_cache_layout", MP_ATTR_STRING},
                                    {"v_head_size", MP_ATTR_INT},
                                    {NULL, 0}};
static const mp_attr_def attrs_sparse[] = {ATTRS_OF_BOTH,
                                           {"attention_mode", MP_ATTR_STRING},
                                           {"selected_kv_source", MP_ATTR_STRING},
                                           {"auxiliary_kv_shared", MP_ATTR_INT},
                                           {NULL, 0}};

enum {
    TYPES = 1u << MP_F16 | 1u << MP_BF16,
    CACHES = TYPES | 1u << MP_I8 | 1u << MP_U8 | 1u << MP_F8E4M3FN
};

static const mp_paged_order order_all = {
    .at = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
static const mp_paged_order order_chosen = {
    .at = {0, 1, 2, 3, 4, 5, 6, 7, 14, 15, 8, 16, 17, 18, 19, 20, 21}, .chooses = true};

enum { BOUNDS_CHOSEN = 21 };

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "SparsePagedAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES},
               {"T_CACHE", TYPES | 1u << MP_I8},
               {"T_KV_SCALE", MP_BIT(MP_F32)},
               {"S", MP_BIT(MP_I32)}},
     .host_in = 1u << BOUNDS_CHOSEN,
     .in_place = {{MP_PAGED_K_CACHE, 1}, {MP_PAGED_V_CACHE, 2}},
     .in_place_count = 2,
     .attrs = attrs_sparse,
     .plan = plan_paged,
     .accept = accept_paged,
     .detail = &order_chosen},
    {.domain = "com.microsoft",
     .name = "PagedAttention",
     .since = 1,
     .until = 1,
     .types =
         {{"T", TYPES}, {"T_CACHE", CACHES}, {"T_KV_SCALE", MP_BIT(MP_F32)}, {"S", MP_BIT(MP_I32)}},
     .host_in = 1u << MP_PAGED_BOUNDS,
     .in_place = {{MP_PAGED_K_CACHE, 1}, {MP_PAGED_V_CACHE, 2}},
     .in_place_count = 2,
     .attrs = attrs,
     .plan = plan_paged,
     .accept = accept_paged,
     .detail = &order_all},
};

const mp_op_family mp__family_paged = {"paged", ops, MP_COUNT_OF(ops)};
