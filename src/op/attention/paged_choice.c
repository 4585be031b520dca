/* paged_choice.c - which keys the tokens of a SparsePagedAttention choose: tokens of the caches, or
 * of keys and values beside them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/paged_read.h"

enum { INDICES = 9, COUNTS, BESIDE_KEY, BESIDE_VALUE, LENGTHS };

/* `name` is one of two words. */
static mp_status read_word(const mp_planner *p, const char *name, const char *const word[2],
                           bool *second) {
    const char *given = mp_node_string(p->node, name, word[0]);
    *second = strcmp(given, word[1]) == 0;
    return *second || strcmp(given, word[0]) == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s is \"%.40s\"; it can be %s or %s", name, given,
                         word[0], word[1]);
}

/* Keys and values beside the caches. */
static mp_status read_beside(const mp_planner *p, mp_paged *r) {
    k_paged_choice *choice = &r->attention.choice;
    const mp_tensor *key = mp_plan_in(p, BESIDE_KEY), *value = mp_plan_in(p, BESIDE_VALUE);
    const mp_tensor *lengths = mp_plan_in(p, LENGTHS);
    const bool shared = mp_node_int(p->node, "auxiliary_kv_shared", 0) != 0;
    const mp_shape *k = key != NULL ? &key->shape : NULL;
    const k_paged *at = &r->store.at;
    if (k == NULL || lengths == NULL || (value == NULL) != shared || k->rank != 4 ||
        k->dim[0] != at->batch || (k->dim[2] != 1 && k->dim[2] != at->kv_heads) ||
        k->dim[3] != r->store.size || (value != NULL && !mp_shape_equal(k, &value->shape)) ||
        lengths->shape.rank != 1 || lengths->shape.dim[0] != at->batch) {
        return mp_paged_no_fit(
            p, "auxiliary_key needs requests, tokens, one or kv_num_heads heads and their "
               "elements, auxiliary_value the same unless auxiliary_kv_shared, and "
               "auxiliary_lengths a number for each request");
    }
    choice->beside = true;
    choice->capacity = k->dim[1];
    choice->heads = (int32_t)k->dim[2];
    r->beside[0] = MP_IN(BESIDE_KEY);
    r->beside[1] = shared ? MP_IN(BESIDE_KEY) : MP_IN(BESIDE_VALUE);
    r->lengths = MP_IN(LENGTHS);
    return MP_OK;
}

mp_status mp_paged_read_choice(const mp_planner *p, mp_paged *r) {
    static const char *const modes[] = {"selected_only", "local_plus_selected"};
    static const char *const sources[] = {"main", "auxiliary"};
    k_paged_choice *choice = &r->attention.choice;
    const mp_shape *indices = &p->in[INDICES].shape, *counts = &p->in[COUNTS].shape;
    const int64_t tokens = r->store.at.tokens;
    bool local = false, beside = false;
    MP_TRY(read_word(p, "attention_mode", modes, &local));
    MP_TRY(read_word(p, "selected_kv_source", sources, &beside));
    if (indices->rank != 2 || indices->dim[0] != tokens || counts->rank != 1 ||
        counts->dim[0] != tokens) {
        return mp_paged_no_fit(
            p, "selected_indices and selected_counts need a row and a number for each "
               "token");
    }
    if (!beside && (mp_plan_in(p, BESIDE_KEY) != NULL || mp_plan_in(p, BESIDE_VALUE) != NULL ||
                    mp_plan_in(p, LENGTHS) != NULL)) {
        return mp_paged_no_fit(
            p, "auxiliary inputs must be left out where selected_kv_source is main");
    }
    choice->most = indices->dim[1];
    choice->local = local;
    r->indices = MP_IN(INDICES);
    r->counts = MP_IN(COUNTS);
    const int64_t window = r->attention.rule.window;
    const int64_t seen = window > 0 ? MP_MIN(window, r->keys_most) : r->keys_most;
    r->keys_most = choice->most + (local ? seen : 0);
    return beside ? read_beside(p, r) : MP_OK;
}
