/* paged_keys.h - which keys the rows of a block see, and where they lie, for attention_paged.cu:
 * all that the rule leaves, or those that a token has chosen.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PAGED_KEYS_H
#define MP_KERNEL_PAGED_KEYS_H

#include "kernel/attention/attention.h"
#include "kernel/attention/paged.h"

#define P_all    0
#define P_chosen 1
enum { ROWS = K_ROWS, CHOSEN = K_JOIN(P_, K_KEYS) };

/* What a block has: rows r are query heads `head` + r % heads of the tokens `token` + r / heads. */
typedef struct p_part {
    int64_t entry, token, kv_head, head, split;
    int32_t rows, heads;
    int32_t lane, lanes, group, groups;
    int64_t from[ROWS], to[ROWS]; /* keys of each row */
    int64_t low, high;            /* keys of this share */
    int64_t position, length;     /* of a token that chooses; of its entry */
    int64_t local, locals;        /* the first key that it sees besides, and how many */
} p_part;

K_FN int64_t p_row_token(const p_part *p, int32_t r) {
    return p->token + r / p->heads;
}

K_FN int64_t p_row_head(const p_part *p, int32_t r) {
    return p->head + r % p->heads;
}

/* Which keys the rows see. A token of no entry sees none. */
K_FN void p_look(const mp_paged_args *args, p_part *p) {
    const k_paged *at = &args->at;
    const k_score_rule *rule = &args->rule;
    p->low = p->high = 0;
    int64_t first = 0, past = 0, length = 0;
    if (p->entry >= 0) {
        const k_tokens tokens = k_tokens_of(at->starts, p->entry, 0, at->tokens);
        const int64_t room = at->blocks > 0 ? at->table_blocks * at->block_size : 0;
        first = tokens.first;
        past = p_past(at, p->entry);
        length = past + tokens.count < room ? past + tokens.count : room;
    }
    for (int32_t r = 0; r < ROWS; r++) {
        const int64_t next = past + p_row_token(p, r) - first + 1;
        p->to[r] = r >= p->rows ? 0 : rule->causal && next < length ? next : length;
        p->from[r] = rule->window > 0 && next > rule->window ? next - rule->window : 0;
        p->low = r == 0 || p->from[r] < p->low ? p->from[r] : p->low;
        p->high = p->to[r] > p->high ? p->to[r] : p->high;
    }
    if (p->high > p->low) {
        const int64_t share = (p->high - p->low + args->splits - 1) / args->splits;
        p->low += share * p->split;
        p->high = p->low + share < p->high ? p->low + share : p->high;
    }
}

/* The same for a token that chooses its keys: first those that it sees besides, then its list. */
K_FN void p_look_chosen(const mp_paged_args *args, p_part *p) {
    const k_paged_choice *choice = &args->choice;
    const k_score_rule *rule = &args->rule;
    int64_t all = 0;
    p->local = p->locals = 0;
    if (p->entry >= 0) {
        const k_tokens tokens = k_tokens_of(args->at.starts, p->entry, 0, args->at.tokens);
        const int64_t past = p_past(&args->at, p->entry), given = choice->counts[p->token];
        p->position = past + p->token - tokens.first;
        p->length = past + tokens.count;
        if (choice->local) {
            const int64_t next = p->position + 1, end = rule->causal ? next : p->length;
            p->local = rule->window > 0 && next > rule->window ? next - rule->window : 0;
            p->locals = end > p->local ? end - p->local : 0;
        }
        all = p->locals + (given < 0 ? 0 : given < choice->most ? given : choice->most);
    }
    for (int32_t r = 0; r < ROWS; r++) {
        p->from[r] = 0;
        p->to[r] = r < p->rows ? all : 0;
    }
    const int64_t share = (all + args->splits - 1) / args->splits;
    p->low = share * p->split;
    p->high = p->low + share < all ? p->low + share : all;
}

/* Where a key is: the slot of a cache, or the row of the keys beside it; -1 for one left out. */
typedef struct p_key {
    int64_t slot;
    int beside;
} p_key;

K_FN p_key p_find(const mp_paged_args *args, const p_part *p, int64_t key) {
    const k_paged_choice *choice = &args->choice;
    p_key found = {-1, 0};
    if (!CHOSEN || key < p->locals) {
        found.slot = p_slot(&args->at, p->entry, CHOSEN ? p->local + key : key);
        return found;
    }
    const int64_t index = choice->indices[p->token * choice->most + key - p->locals];
    if (index < 0) {
        return found;
    }
    if (choice->lengths) {
        found.beside = 1;
        if (index < choice->lengths[p->entry] && index < choice->capacity) {
            const int64_t row = p->entry * choice->capacity + index;
            found.slot = row * choice->heads + (choice->heads > 1 ? p->kv_head : 0);
        }
        return found;
    }
    const int seen = index >= p->local && index < p->local + p->locals;
    if (!seen && index < p->length && (!args->rule.causal || index <= p->position)) {
        found.slot = p_slot(&args->at, p->entry, index);
    }
    return found;
}

#endif
