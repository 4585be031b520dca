/* sparse_attention.c - SparseAttention of com.microsoft: queries see blocks of keys, which a mask
 * in CSR form names for each block of queries, the same for all heads or several that heads take in
 * turns. New tokens are rotated and kept in one step; then few queries walk the lists of their
 * blocks, and tiles of many pass over blocks that none of their queries sees.
 *
 * A block that a list names twice may count twice. Rows behind the length of an entry see what is
 * before it.
 * Kernels: attention/rotary_append.cu, attention/paged_store.cu, attention/attention_paged.cu,
 * attention/attention_group.cu, attention/attention_tile.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/attention_steps.h"
#include "op/attention/paged_read.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

enum { IN_PAST_KEY = 3, IN_PAST_VALUE, IN_STARTS, IN_COLUMNS, IN_TOTAL, IN_LENGTHS, IN_COSINE };

/* ---- what is given ---- */

/* Keys in use, at most. */
static mp_status read_total(const mp_planner *p, const mp_paged *r, int64_t *total) {
    int count = 0;
    MP_TRY(mp_host_ints(p, IN_TOTAL, "total_sequence_length", 1, total, &count));
    const int64_t rows = r->store.at.rows, room = r->store.at.capacity;
    return count == 1 && *total >= rows && *total <= room
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "total_sequence_length is %lld for %lld new tokens and caches of %lld",
                         (long long)(count == 1 ? *total : 0), (long long)rows, (long long)room);
}

static mp_status read_blocks(const mp_planner *p, mp_paged *r, int64_t total) {
    const mp_shape *starts = &p->in[IN_STARTS].shape, *columns = &p->in[IN_COLUMNS].shape;
    const int64_t size = mp_node_int(p->node, "sparse_block_size", 0);
    k_score_rule *rule = &r->attention.rule;
    if (size < 1 || size > INT32_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "sparse_block_size is %lld; it must be 1 or more",
                       (long long)size);
    }
    if (starts->rank != 2 || starts->dim[0] < 1 || rule->heads % starts->dim[0] != 0 ||
        starts->dim[1] - 1 < MP_CEIL_DIV(total, size) || starts->dim[1] > INT32_MAX / size ||
        columns->rank != 2 || columns->dim[0] != starts->dim[0]) {
        char a[MP_SHAPE_TEXT], b[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "block_row_indices of shape %s and block_col_indices of shape %s for %lld "
                       "heads, %lld keys and blocks of %lld; they need a row for each layout, of "
                       "which num_heads is a multiple, and the first a column more than there are "
                       "blocks, of fewer than 2147483647 tokens",
                       mp_shape_text(starts, a), mp_shape_text(columns, b), (long long)rule->heads,
                       (long long)total, (long long)size);
    }
    rule->blocks = (k_block_rule){.layouts = starts->dim[0],
                                  .rows = starts->dim[1] - 1,
                                  .most = columns->dim[1],
                                  .size = (int32_t)size};
    r->block_starts = MP_IN(IN_STARTS);
    r->block_columns = MP_IN(IN_COLUMNS);
    /* Later rows have more blocks than earlier ones. */
    const int64_t mean = MP_CEIL_DIV(rule->blocks.most, MP_MAX(rule->blocks.rows, 1));
    r->keys_most = MP_MIN(total / size, 2 * mean) * size;
    return MP_OK;
}

/* Which keys queries see but for their blocks. Queries of a prompt begin at 0, others are the last
 * of their entry. */
static mp_status read_lengths(const mp_planner *p, mp_paged *r, int64_t total) {
    const mp_shape *lengths = &p->in[IN_LENGTHS].shape;
    k_paged *at = &r->store.at;
    k_score_rule *rule = &r->attention.rule;
    if (lengths->rank != 1 || lengths->dim[0] != at->batch) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "key_total_sequence_lengths of shape %s for %lld entries; it needs a number "
                       "for each",
                       mp_shape_text(lengths, text), (long long)at->batch);
    }
    const bool prompt = total == at->rows;
    r->key_lengths = MP_IN(IN_LENGTHS);
    r->past = prompt ? MP_NOWHERE : MP_IN(IN_LENGTHS);
    at->past_more = -at->rows;
    rule->batch = at->batch;
    rule->rows = at->rows;
    rule->keys = total;
    rule->mask_keys = INT64_MAX;
    rule->causal = true;
    rule->past_by_length = !prompt;
    return MP_OK;
}

/* ---- attention ---- */

static mp_heads cache_of(const mp_paged *r, int side) {
    return mp_heads_first(r->cache[side], r->store.at.kv_heads, r->store.at.capacity,
                          r->store.size);
}

static mp_status attend(mp_planner *p, mp_paged *r) {
    const int64_t rows = r->store.at.rows, size = r->store.size, pitch = r->attention.q_pitch;
    const mp_attention a = {.type = r->type,
                            .q = {r->q, {rows * pitch, size, pitch}},
                            .k = cache_of(r, 0),
                            .v = cache_of(r, 1),
                            .out = mp_heads_last(MP_OUT(0), r->attention.rule.heads, rows, size),
                            .head_size = size,
                            .v_head_size = size,
                            .rule = r->attention.rule,
                            .lengths = r->key_lengths,
                            .debug_mode = MP_DEBUG_NONE,
                            .block_starts = r->block_starts,
                            .block_columns = r->block_columns};
    return mp_attention_takes_blocks(&a) ? mp_plan_attention(p, &a) : mp_plan_paged_attention(p, r);
}

static mp_status plan_sparse(mp_planner *p) {
    mp_paged r = {.type = p->in[MP_PAGED_QUERY].type};
    int64_t total = 0;
    MP_TRY(mp_paged_read_heads(p, &r));
    MP_TRY(mp_paged_read_dense(p, &r));
    MP_TRY(read_total(p, &r, &total));
    MP_TRY(read_lengths(p, &r, total));
    MP_TRY(read_blocks(p, &r, total));
    r.attention.at = r.store.at;
    if (r.store.cache_rows > 0 && r.store.cache_rows < total) {
        return MP_FAIL(INVALID_ARGUMENT, "cos_cache has %lld rows for %lld positions",
                       (long long)r.store.cache_rows, (long long)total);
    }
    const mp_shape *q = &p->in[MP_PAGED_QUERY].shape;
    const mp_shape out = {.rank = 3, .dim = {q->dim[0], q->dim[1], r.attention.out_pitch}};
    MP_TRY(mp_plan_output(p, 0, r.type, &out));
    MP_TRY(mp_plan_paged_cache(p, IN_PAST_KEY, 1, &r.cache[0]));
    MP_TRY(mp_plan_paged_cache(p, IN_PAST_VALUE, 2, &r.cache[1]));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_paged_store(p, &r));
    return attend(p, &r);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"num_heads", MP_ATTR_INT},
                                    {"kv_num_heads", MP_ATTR_INT},
                                    {"scale", MP_ATTR_FLOAT},
                                    {"sparse_block_size", MP_ATTR_INT},
                                    {"do_rotary", MP_ATTR_INT},
                                    {"rotary_interleaved", MP_ATTR_INT},
                                    {NULL, 0}};

enum { NONE = MP_PAGED_ABSENT };
static const mp_paged_order order = {.at = {0, 1, 2, IN_PAST_KEY, IN_PAST_VALUE, NONE, NONE, NONE,
                                            IN_COSINE, IN_COSINE + 1, NONE, NONE, NONE, NONE, NONE,
                                            NONE, NONE},
                                     .dense = true};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "SparseAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", 1u << MP_F32 | 1u << MP_F16 | 1u << MP_BF16}, {"M", MP_BIT(MP_I32)}},
     .host_in = 1u << IN_TOTAL,
     .in_place = {{IN_PAST_KEY, 1}, {IN_PAST_VALUE, 2}},
     .in_place_count = 2,
     .attrs = attrs,
     .plan = plan_sparse,
     .detail = &order},
};

const mp_op_family mp__family_sparse_attention = {"sparse_attention", ops, MP_COUNT_OF(ops)};
