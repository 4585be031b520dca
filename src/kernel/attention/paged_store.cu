/* paged_store.cu - new tokens on their way into caches that grow in place: their queries and keys
 * are normalised and rotated by their positions, keys and values are kept as elements or as codes.
 * A few lanes take a head; it stays in shared memory while its pairs are turned.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/paged.h"
#include "kernel/core/row_lanes.h"

enum { QUERY, KEY, VALUE };

typedef struct ps_row {
    int64_t token, head, entry, position; /* entry of -1: there is no such row */
    int64_t angle;                        /* the position that it is turned by */
    int32_t kind;
} ps_row;

K_FN ps_row ps_row_of(const mp_paged_store_args *args, int64_t row, int64_t heads) {
    ps_row r;
    r.token = row / heads;
    r.head = row - r.token * heads;
    r.kind = QUERY;
    while (r.kind < VALUE && r.head >= args->heads[r.kind]) {
        r.head -= args->heads[r.kind];
        r.kind++;
    }
    r.entry = -1;
    r.position = r.angle = 0;
    if (r.token < args->at.tokens) {
        const k_paged *at = &args->at;
        r.entry = k_entry_of(at->starts, at->batch, at->rows, at->tokens, r.token);
    }
    if (r.entry >= 0) {
        r.position = p_past(&args->at, r.entry) + r.token - p_tokens_of(&args->at, r.entry).first;
        r.angle = args->positions ? args->positions[r.token] : r.position;
    }
    return r;
}

/* Element `i` of a head in shared memory, turned. */
K_FN float ps_turned(const mp_paged_store_args *args, const ps_row *r, const float *x, int32_t i) {
    const int32_t at = i - args->offset, half = args->half;
    if (r->kind == VALUE || !args->cosine || at < 0 || at >= 2 * half) {
        return x[i];
    }
    const int32_t pair = args->interleaved ? at / 2 : at % half;
    const int32_t second = args->interleaved ? at % 2 : at >= half;
    const int32_t step = args->interleaved ? 1 : half;
    const int64_t last = args->cache_rows - 1, turn = r->angle < 0 ? 0 : r->angle;
    const int64_t angle = (turn < last ? turn : last) * half + pair;
    const float c = T_load(((const T *)args->cosine)[angle]);
    const float s = T_load(((const T *)args->sine)[angle]);
    return second ? x[i] * c + x[i - step] * s : x[i] * c - x[i + step] * s;
}

K_FN uint32_t ps_code(const k_narrow *code, float x) {
    if (code->kind == K_NARROW_FLOAT) {
        return n_to_float_code(code, x);
    }
    const float most = (float)((1 << (code->width - 1)) - 1), whole = rintf(x);
    const float held = whole > most ? most : whole >= -most - 1.0f ? whole : -most - 1.0f;
    return (uint32_t)(int32_t)(x != x ? 0.0f : held);
}

K_FN void ps_keep(const mp_paged_store_args *args, const ps_row *r, const float *x, k_round t) {
    const k_paged_cache *cache = &args->cache[r->kind - KEY];
    const k_paged *at = &args->at;
    int64_t row = -1;
    if (args->slots) {
        const int64_t slot = args->slots[r->token];
        row = slot < at->blocks * at->block_size ? slot * at->kv_heads + r->head : -1;
    } else {
        row = p_row(at, r->entry, r->head, r->position);
    }
    if (row < 0) {
        return;
    }
    uint8_t *to = (uint8_t *)args->to[r->kind] + row * (int64_t)cache->row;
    if (!cache->scale) {
        for (int32_t i = (int32_t)t.lane; i < args->size; i += (int32_t)t.width) {
            ((T *)(void *)to)[i] = T_store(ps_turned(args, r, x, i));
        }
        return;
    }
    const int32_t each = 8 / cache->code.width; /* codes of a byte */
    for (int32_t b = (int32_t)t.lane; b < cache->row; b += (int32_t)t.width) {
        uint32_t byte = 0;
        for (int32_t n = 0; n < each && b * each + n < args->size; n++) {
            const int32_t i = b * each + n;
            const float value = ps_turned(args, r, x, i) / p_scale(cache, r->head, args->size, i);
            const uint32_t code = ps_code(&cache->code, value) & ((1u << cache->code.width) - 1);
            byte |= code << (n * cache->code.width);
        }
        to[b] = (uint8_t)byte;
    }
}

/* A head into shared memory, normalised where it has weights. */
K_FN void ps_bring(const mp_paged_store_args *args, const ps_row *r, float *x, k_round t) {
    const T *from =
        (const T *)args->x[r->kind] + r->token * args->pitch[r->kind] + r->head * args->size;
    const T *weight = (const T *)(r->kind < VALUE ? args->weight[r->kind] : 0);
    const int32_t size = r->entry >= 0 ? args->size : 0;
    K_SUM squares = 0;
    for (int32_t i = (int32_t)t.lane; i < size; i += (int32_t)t.width) {
        x[i] = T_load(from[i]);
        squares += (K_SUM)x[i] * (K_SUM)x[i];
    }
    squares = k_group_sum(squares, t.width);
    if (weight) {
        const double mean = (double)squares / (double)args->size;
        const float inverse = (float)(1.0 / sqrt(mean + (double)args->epsilon));
        for (int32_t i = (int32_t)t.lane; i < size; i += (int32_t)t.width) {
            x[i] *= inverse * T_load(weight[i]);
        }
    }
}

K_BLOCK_KERNEL(mp_paged_store_args, args) {
    K_SHARED(float, shared);
    const k_round t = k_rounds(K_PAGED_STORE_WIDTH);
    const int64_t heads = args.heads[QUERY] + args.heads[KEY] + args.heads[VALUE];
    K_ROUND_LOOP(first, t, args.at.tokens * heads) {
        const ps_row r = ps_row_of(&args, first + t.group, heads);
        float *x = shared + t.group * args.size;
        ps_bring(&args, &r, x, t);
        __syncthreads();
        if (r.entry >= 0 && r.kind != QUERY) {
            ps_keep(&args, &r, x, t);
        } else if (r.kind == QUERY && r.token < args.at.tokens) { /* a row of none is 0 */
            T *to = (T *)args.to[QUERY] + (r.token * args.heads[QUERY] + r.head) * args.size;
            for (int32_t i = (int32_t)t.lane; i < args.size; i += (int32_t)t.width) {
                to[i] = T_store(r.entry >= 0 ? ps_turned(&args, &r, x, i) : 0.0f);
            }
        }
        __syncthreads();
    }
}
