/* paged_gather.cu - the keys and values of each entry of a batch, out of the blocks that caches
 * have them in, as elements of one token behind the other; and how many there are. A key of no
 * block is zeros, and so are tokens behind the last one up to a multiple of K_PAGED_ROUND: nobody
 * sees their values, which must be numbers all the same. Bound by memory: a lane moves a piece of a
 * key and of a value.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/paged.h"
#include "kernel/core/index.h"

#define P_own    0
#define P_narrow 1
enum { NARROW = K_JOIN(P_, K_CACHE) };

typedef struct K_ALIGN(16) pg_piece {
    T at[K_PAGED_PIECE];
} pg_piece;

/* Valid keys of an entry: no more than there is room for. */
K_FN int64_t pg_length(const mp_paged_gather_args *args, int64_t entry) {
    const int64_t all = p_past(&args->at, entry) + p_tokens_of(&args->at, entry).count;
    return all < args->keys ? all : args->keys;
}

/* What codes mean. Their kind is looked up once, and integers are taken by their width, which the
 * compiler knows then. */
K_FN void pg_values(const k_narrow *code, const uint32_t *bits, float *out) {
    const int is_int = code->kind == K_NARROW_SIGNED;
    K_UNROLL
    for (int32_t i = 0; i < K_PAGED_PIECE && is_int; i++) {
        out[i] = code->width == 8 ? (float)((int32_t)(bits[i] << 24) >> 24)
                                  : (float)((int32_t)(bits[i] << 28) >> 28);
    }
    K_UNROLL
    for (int32_t i = 0; i < K_PAGED_PIECE && !is_int; i++) {
        out[i] = n_from_bits(code, bits[i]);
    }
}

/* Elements of a head of a cache, from `first` on. */
K_FN pg_piece pg_take(const mp_paged_gather_args *args, int which, int64_t row, int64_t head,
                      int32_t first) {
    const k_paged_cache *cache = &args->cache[which];
    const uint8_t *from = (const uint8_t *)args->from[which] + row * cache->row;
    pg_piece piece;
    if (row < 0) {
        K_UNROLL
        for (int32_t i = 0; i < K_PAGED_PIECE; i++) {
            piece.at[i] = T_store(0);
        }
        return piece;
    }
    if (!NARROW) {
        return *(const pg_piece *)(const void *)((const T *)(const void *)from + first);
    }
    uint32_t bits[K_PAGED_PIECE];
    if (cache->code.width == 8) {
        n_group_load_8(from + first, bits);
    } else {
        n_group_load_4(from + first / 2, bits);
    }
    float value[K_PAGED_PIECE];
    pg_values(&cache->code, bits, value);
    const float one = p_scale(cache, head, args->size, first);
    K_UNROLL
    for (int32_t i = 0; i < K_PAGED_PIECE; i++) {
        const float scale = cache->scale_each ? p_scale(cache, head, args->size, first + i) : one;
        piece.at[i] = T_store(value[i] * scale);
    }
    return piece;
}

K_KERNEL(mp_paged_gather_args, args) {
    const int64_t pieces = args.size / K_PAGED_PIECE, heads = args.at.kv_heads;
    const int64_t across = heads * pieces, each = args.keys * across;
    K_GRID_LOOP(i, args.at.batch) {
        ((int32_t *)args.lengths)[i] = (int32_t)pg_length(&args, i);
    }
    K_GRID_LOOP(i, args.at.batch * each) {
        const k_quotient token = k_quotient_of(i, across, args.by_across, args.wide);
        const k_quotient entry = k_quotient_of(token.whole, args.keys, args.by_keys, args.wide);
        const int64_t length = pg_length(&args, entry.whole), j = entry.rest;
        const int64_t end = (length + K_PAGED_ROUND - 1) / K_PAGED_ROUND * K_PAGED_ROUND;
        if (j >= end) {
            continue;
        }
        const int64_t head = token.rest / pieces;
        const int32_t first = (int32_t)(token.rest - head * pieces) * K_PAGED_PIECE;
        const int64_t row = j < length ? p_row(&args.at, entry.whole, head, j) : -1;
        const pg_piece key = pg_take(&args, 0, row, head, first);
        const pg_piece value = pg_take(&args, 1, row, head, first);
        ((pg_piece *)args.to[0])[i] = key;
        ((pg_piece *)args.to[1])[i] = value;
    }
}
