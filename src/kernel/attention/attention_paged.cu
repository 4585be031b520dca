/* attention_paged.cu - attention of the tokens of a batch over caches that grow in place.
 *
 * A block of lanes has some query heads of a key head, of one token or of neighbours, and a share
 * of the keys. Some lanes hold a key, several such groups take keys in turns, and what they have
 * found meets in shared memory, as in attention_few.cu. Where the cache has codes, the scales of
 * the keys go into the queries and those of the values into the result, unless there are keys
 * beside it: tokens that choose their keys count through a list of them, key by key, and those that
 * see blocks of keys through their tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention.h"
#include "kernel/attention/paged_keys.h"
#include "kernel/core/lanes_sum.h"

#if K_HOST /* one lane holds a whole head */
enum { SLICE = K_PAGED_HEAD_MAX };
#else
enum { SLICE = K_PAGED_PIECE * K_PIECES };
#endif
#define P_own    0
#define P_narrow 1
enum {
    AHEAD = K_ROWS == 1 ? 4 : 2, /* keys that are loaded at a time */
    NARROW = K_JOIN(P_, K_CACHE),
    FOLDED = !CHOSEN /* scales are where they cost least */
};

K_LANES_SUM(p_meet, float)

#define P_LOOP(e, size) K_UNROLL for (int32_t e = 0; e < SLICE && (!K_HOST || e < (size)); e++)

typedef struct p_state {
    float q[ROWS][SLICE], sum[ROWS][SLICE], top[ROWS], total[ROWS];
} p_state;

/* Where element `e` of a lane is within its head: pieces go round the lanes. */
K_FN int32_t p_element(const p_part *p, int32_t e) {
    const int32_t piece = e / K_PAGED_PIECE;
    return (piece * p->lanes + p->lane) * K_PAGED_PIECE + e % K_PAGED_PIECE;
}

/* A lane's elements of a head: of the caches, or of keys and values beside them. */
K_FN void p_load(const mp_paged_args *args, const p_part *p, const uint8_t *row, int which,
                 int beside, float *out) {
    const k_narrow *code = &args->cache[which].code;
    const int32_t size = which == 0 ? args->head_size : args->v_head_size;
    K_UNROLL for (int32_t e = 0; e < SLICE; e += K_PAGED_PIECE) {
        const int32_t first = p_element(p, e);
        if (K_HOST && first >= size) {
            break;
        }
        if (!NARROW || beside) {
            a_load((const T *)(const void *)row, first, size, args->wide, out + e);
            continue;
        }
        uint32_t bits[K_PAGED_PIECE];
        if (args->wide && first < size) {
            if (code->width == 8) {
                n_group_load_8(row + first, bits);
            } else {
                n_group_load_4(row + first / 2, bits);
            }
        } else {
            K_UNROLL for (int32_t i = 0; i < K_PAGED_PIECE; i++) {
                bits[i] = first + i < size ? n_load(row, code->width, first + i) : 0u;
            }
        }
        K_UNROLL for (int32_t i = 0; i < K_PAGED_PIECE; i++) {
            out[e + i] = n_from_bits(code, bits[i]);
            if (!FOLDED && first + i < size) {
                out[e + i] *= p_scale(&args->cache[which], p->kv_head, size, first + i);
            }
        }
    }
}

/* ---- keys ---- */

K_FN void p_load_key(const mp_paged_args *args, const p_part *p, p_key key, float *k, float *v) {
    if (LISTED && key.row < 0) { /* there may be no cache and no key at all */
        P_LOOP(e, SLICE) {
            k[e] = v[e] = 0;
        }
        return;
    }
    if (CHOSEN && key.beside) {
        const int64_t row = key.row * args->head_size;
        p_load(args, p, (const uint8_t *)((const T *)args->choice.key + row), 0, 1, k);
        p_load(args, p, (const uint8_t *)((const T *)args->choice.value + row), 1, 1, v);
        return;
    }
    const int64_t row = key.row < 0 ? 0 : key.row;
    p_load(args, p, (const uint8_t *)args->k + row * args->cache[0].row, 0, 0, k);
    p_load(args, p, (const uint8_t *)args->v + row * args->cache[1].row, 1, 0, v);
}

K_FN void p_add(p_state *state, int32_t r, float score, const float *v, int32_t size) {
    if (score > state->top[r]) {
        const float shrink = state->total[r] == 0 ? 0 : expf(state->top[r] - score);
        state->top[r] = score;
        state->total[r] *= shrink;
        P_LOOP(e, size) {
            state->sum[r][e] *= shrink;
        }
    }
    const float weight = a_weight(score, state->top[r]);
    state->total[r] += weight;
    P_LOOP(e, size) {
        state->sum[r][e] += weight * v[e];
    }
}

/* All groups make as many rounds, since their lanes meet. */
K_FN void p_keys(const mp_paged_args *args, const p_part *p, p_state *state) {
    const p_key none = {-1, 0};
    for (int64_t base = p->low; base < p->high; base += (int64_t)p->groups * AHEAD) {
        float keys[AHEAD][SLICE], values[AHEAD][SLICE];
        p_key found[AHEAD];
        K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
            const int64_t key = base + p->group + (int64_t)n * p->groups;
            found[n] = key < p->high ? p_find(args, p, key) : none;
            p_load_key(args, p, found[n], keys[n], values[n]);
        }
        K_UNROLL for (int32_t n = 0; n < AHEAD; n++) {
            const int64_t key = base + p->group + (int64_t)n * p->groups;
            K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
                if (r < p->rows) {
                    float dot = 0;
                    P_LOOP(e, args->head_size) {
                        dot += state->q[r][e] * keys[n][e];
                    }
                    dot = p_meet(dot, p->lanes);
                    if (found[n].row >= 0 && key >= p->from[r] && key < p->to[r]) {
                        p_add(state, r, a_capped(&args->rule, dot), values[n], args->v_head_size);
                    }
                }
            }
        }
    }
}

K_FN void p_start(const mp_paged_args *args, const p_part *p, p_state *state) {
    K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
        state->top[r] = A_NONE;
        state->total[r] = 0;
        P_LOOP(e, SLICE) {
            const int32_t i = p_element(p, e);
            state->q[r][e] = state->sum[r][e] = 0;
            if (r < p->rows && i < args->head_size) {
                const T *q = (const T *)args->q + p_row_token(p, r) * args->q_pitch +
                             p_row_head(p, r) * args->head_size;
                const float by =
                    FOLDED ? p_scale(&args->cache[0], p->kv_head, args->head_size, i) : 1.0f;
                state->q[r][e] = T_load(q[i]) * by;
            }
        }
    }
}

/* ---- what the groups have found ---- */

K_FN void p_leave(const mp_paged_args *args, const p_part *p, const p_state *state, float *shared) {
    const int32_t pitch = args->v_head_size + K_ATTENTION_STATE;
    K_UNROLL for (int32_t r = 0; r < ROWS; r++) {
        float *mine = shared + (p->group * ROWS + r) * pitch;
        if (p->lane == 0) {
            mine[0] = state->top[r];
            mine[1] = state->total[r];
        }
        P_LOOP(e, SLICE) {
            const int32_t i = p_element(p, e);
            if (i < args->v_head_size) {
                mine[K_ATTENTION_STATE + i] = state->sum[r][e];
            }
        }
    }
}

K_FN void p_write(const mp_paged_args *args, const p_part *p, const float *shared) {
    const int32_t pitch = args->v_head_size + K_ATTENTION_STATE;
    K_BLOCK_LOOP(i, p->rows * args->v_head_size) {
        const int32_t r = (int32_t)(i / args->v_head_size), d = (int32_t)(i % args->v_head_size);
        const int64_t head = p_row_head(p, r), token = p_row_token(p, r);
        float top = A_NONE, total = 0, sum = 0;
        for (int32_t g = 0; g < p->groups; g++) {
            const float other = shared[(g * ROWS + r) * pitch];
            top = other > top ? other : top;
        }
        for (int32_t g = 0; g < p->groups; g++) {
            const float *state = shared + (g * ROWS + r) * pitch;
            const float share = state[1] == 0 ? 0 : expf(state[0] - top);
            total += share * state[1];
            sum += share == 0 ? 0 : share * state[K_ATTENTION_STATE + d];
        }
        if (FOLDED) {
            sum *= p_scale(&args->cache[1], p->kv_head, args->v_head_size, d);
        }
        if (args->splits > 1) {
            const int64_t line = head * args->at.tokens + token;
            float *part = (float *)args->part + (line * args->splits + p->split) * pitch;
            if (d == 0) {
                part[0] = top;
                part[1] = total;
            }
            part[K_ATTENTION_STATE + d] = sum;
            continue;
        }
        const float sink = a_sink(&args->rule, head);
        const float all = sink > top ? sink : top;
        const float share = total == 0 ? 0 : expf(top - all);
        const float norm = a_norm(all, total * share, sink);
        ((T *)args->out)[token * args->out_pitch + head * args->v_head_size + d] =
            T_store(sum * share * norm);
    }
}

/* Neighbouring tokens of one entry, or one of none. */
K_FN void p_tokens(const mp_paged_args *args, p_part *p, float *shared) {
    if (BLOCKS) {
        p_look_blocks(args, p);
    } else if (CHOSEN) {
        p_look_chosen(args, p);
    } else {
        p_look(args, p);
    }
    if (p->group < p->groups) {
        p_state state;
        p_start(args, p, &state);
        p_keys(args, p, &state);
        p_leave(args, p, &state, shared);
    }
    __syncthreads();
    p_write(args, p, shared);
    __syncthreads();
}

K_BLOCK_KERNEL_UP_TO(K_PAGED_LANES, mp_paged_args, args) {
    K_SHARED(float, shared);
    const k_score_rule *rule = &args.rule;
    const k_paged *at = &args.at;
    const int32_t at_once = args.heads_at_once;
    const int64_t chunks = (rule->group + at_once - 1) / at_once;
    const int64_t pieces = (at->tokens + args.tokens_at_once - 1) / args.tokens_at_once;
    p_part p;
    p.lanes = K_HOST ? 1 : args.group_lanes;
    p.lane = (int32_t)threadIdx.x % p.lanes;
    p.group = (int32_t)threadIdx.x / p.lanes;
    p.groups =
        (int32_t)blockDim.x / p.lanes < args.groups ? (int32_t)blockDim.x / p.lanes : args.groups;
    for (int64_t unit = blockIdx.x; unit < pieces * at->kv_heads * chunks * args.splits;
         unit += gridDim.x) {
        int64_t rest = unit / args.splits;
        p.split = unit - rest * args.splits;
        const int64_t chunk = rest % chunks;
        rest /= chunks;
        p.kv_head = rest % at->kv_heads;
        const int64_t first = rest / at->kv_heads * args.tokens_at_once;
        const int64_t left = rule->group - chunk * at_once;
        const int64_t end =
            first + args.tokens_at_once < at->tokens ? first + args.tokens_at_once : at->tokens;
        p.head = p.kv_head * rule->group + chunk * at_once;
        p.heads = (int32_t)(left < at_once ? left : at_once);
        for (p.token = first; p.token < end;) {
            int64_t next = p.token + 1;
            p.entry = k_entry_of(at->starts, at->batch, at->rows, at->tokens, p.token);
            if (p.entry >= 0) {
                const k_tokens own = p_tokens_of(at, p.entry);
                next = own.first + own.count < end ? own.first + own.count : end;
            }
            p.rows = (int32_t)(next - p.token) * p.heads;
            p_tokens(&args, &p, shared);
            p.token = next;
        }
    }
}
