/* paged_keys.h - which keys the rows of a block see, and where they lie, for attention_paged.cu:
 * all that the rule leaves, those that a token has chosen, or those of the blocks that it sees.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PAGED_KEYS_H
#define MP_KERNEL_PAGED_KEYS_H

#include "kernel/attention/attention.h"
#include "kernel/attention/paged.h"

#define P_all    0
#define P_chosen 1
#define P_blocks 2
enum {
    ROWS = K_ROWS,
    CHOSEN = K_JOIN(P_, K_KEYS) == P_chosen,
    BLOCKS = K_JOIN(P_, K_KEYS) == P_blocks,
    LISTED = CHOSEN || BLOCKS /* keys are looked up, and a list may name none */
};

/* What a block has: rows r are query heads `head` + r % heads of the tokens `token` + r / heads. */
typedef struct p_part {
    int64_t entry, token, kv_head, head, split;
    int32_t rows, heads;
    int32_t lane, lanes, group, groups;
    int64_t from[ROWS], to[ROWS]; /* keys of each row */
    int64_t low, high;            /* keys of this share */
    int64_t position, length;     /* of a token with a list; of its entry, or the keys it sees */
    int64_t local, locals;        /* the first key that it sees besides, and how many */
    int64_t columns;              /* the first of the blocks that it sees */
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
        const k_tokens tokens = p_tokens_of(at, p->entry);
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

/* What each row sees of a list, and this share of it. */
K_FN void p_share(const mp_paged_args *args, p_part *p, int64_t all) {
    for (int32_t r = 0; r < ROWS; r++) {
        p->from[r] = 0;
        p->to[r] = r < p->rows ? all : 0;
    }
    const int64_t share = (all + args->splits - 1) / args->splits;
    p->low = share * p->split;
    p->high = p->low + share < all ? p->low + share : all;
}

/* The same for a token that chooses its keys: first those that it sees besides, then its list. */
K_FN void p_look_chosen(const mp_paged_args *args, p_part *p) {
    const k_paged_choice *choice = &args->choice;
    const k_score_rule *rule = &args->rule;
    int64_t all = 0;
    p->local = p->locals = 0;
    if (p->entry >= 0) {
        const k_tokens tokens = p_tokens_of(&args->at, p->entry);
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
    p_share(args, p, all);
}

/* The same for a token that sees blocks: their tokens are its list. */
K_FN void p_look_blocks(const mp_paged_args *args, p_part *p) {
    const k_score_rule *rule = &args->rule;
    const int64_t length = a_length(rule, p->entry), row = p->token - p->entry * rule->rows;
    p->position = a_position(rule, length, row);
    p->length = a_visible(rule, length, row).to;
    const a_span columns = a_columns(&rule->blocks, p->head, p->position);
    p->columns = columns.from;
    p_share(args, p, (columns.to - columns.from) * rule->blocks.size);
}

/* Where a key is: the row of a cache, or of the keys beside it; -1 for one left out. */
typedef struct p_key {
    int64_t row;
    int beside;
} p_key;

K_FN p_key p_find_chosen(const mp_paged_args *args, const p_part *p, int64_t key) {
    const k_paged_choice *choice = &args->choice;
    const int64_t index = choice->indices[p->token * choice->most + key - p->locals];
    p_key found = {-1, choice->beside};
    if (index < 0) {
        return found;
    }
    if (choice->beside) {
        const int64_t given = choice->lengths ? choice->lengths[p->entry] : choice->capacity;
        if (index < given && index < choice->capacity) {
            const int64_t head = choice->heads > 1 ? p->kv_head : 0;
            found.row = choice->heads_first
                            ? (p->entry * choice->heads + head) * choice->capacity + index
                            : (p->entry * choice->capacity + index) * choice->heads + head;
        }
        return found;
    }
    const int seen = index >= p->local && index < p->local + p->locals;
    if (!seen && index < p->length && (!args->rule.causal || index <= p->position)) {
        found.row = p_row(&args->at, p->entry, p->kv_head, index);
    }
    return found;
}

K_FN p_key p_find(const mp_paged_args *args, const p_part *p, int64_t key) {
    p_key found = {-1, 0};
    if (BLOCKS) {
        const k_block_rule *blocks = &args->rule.blocks;
        const uint32_t at = (uint32_t)key, size = (uint32_t)blocks->size;
        const int64_t block = blocks->columns[p->columns + at / size];
        const int64_t j = block * blocks->size + at % size;
        if (block >= 0 && j < p->length) {
            found.row = p_row(&args->at, p->entry, p->kv_head, j);
        }
        return found;
    }
    if (CHOSEN && key >= p->locals) {
        return p_find_chosen(args, p, key);
    }
    found.row = p_row(&args->at, p->entry, p->kv_head, CHOSEN ? p->local + key : key);
    return found;
}

#endif
