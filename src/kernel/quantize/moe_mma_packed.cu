/* moe_mma_packed.cu - some routes an expert, or many, by tensor cores, with packed weights: rows of
 * A and weights, as packed as they are, go through a ring in shared memory, and while a chunk is
 * multiplied the next one's weights are made elements of A's type. With K_BITS they are integers
 * of so many bits, and their scales of A's type.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/word.h"
#include "kernel/quantize/moe_mma.h"

#if K_WARP_MATRIX

#if defined(K_BITS)
#include "kernel/quantize/nbits_numbers.h"
#endif

enum {
    M_AHEAD = K_MOE_PACKED_AHEAD(K_ROWS),
    M_PACKED = M_AHEAD * M_A,                       /* where packed weights lie, ... */
    M_UNPACKED = M_PACKED + M_AHEAD * K_MOE_PACKED, /* ... and two chunks of others */
};
static_assert(M_PACK == K_NBITS_PIECE, "a piece of elements is one of packed weights");

/* What a lane unpacks of a chunk: a piece of each of its columns, and what its block of weights has
 * in common. */
typedef struct m_share {
    uint64_t piece[M_COLUMNS];
    w_block common[M_COLUMNS];
    int64_t block; /* whose `common` is */
} m_share;

/* Pieces of packed weights lie one behind the other. A lane copies those that it unpacks. */
K_FN uint8_t *m_packed_at(const m_place *at, int32_t chunk, int32_t j) {
    return at->ring + M_PACKED + chunk % M_AHEAD * K_MOE_PACKED +
           ((at->line + j * M_EACH) * M_PIECES + at->piece) * at->args->w.bits;
}

K_FN void m_fill_packed(const m_place *at, int32_t chunk) {
    const k_nbits *w = &at->args->w;
    const int64_t k = m_begin(at, chunk);
    K_UNROLL
    for (int32_t j = 0; j < M_COLUMNS && k < w->k; j++) {
        const uint8_t *from =
            (const uint8_t *)w->weight + at->w[j] * w->weight_row + k / K_NBITS_PIECE * w->bits;
        uint8_t *to = m_packed_at(at, chunk, j);
        if (w->bits == 2) { /* less than what can be copied */
            *(uint16_t *)(void *)to = *(const uint16_t *)(const void *)from;
        } else {
            k_copy_few(to, from, w->bits);
        }
    }
}

/* A chunk of packed weights, and of A the one before it. */
K_FN void m_fill(const m_place *at, int32_t chunk) {
    m_fill_packed(at, chunk);
    if (chunk > 0) {
        m_fill_a(at, chunk - 1, at->ring + (chunk - 1) % M_AHEAD * M_A);
    }
    k_copies_group();
}

K_FN void m_take(const m_place *at, int32_t chunk, m_share *x) {
    const k_nbits *w = &at->args->w;
    const int64_t k = m_begin(at, chunk), block = w_block_of(w, k);
    if (k >= w->k) {
        return;
    }
    K_UNROLL
    for (int32_t j = 0; j < M_COLUMNS; j++) {
        const void *from = m_packed_at(at, chunk, j);
        x->piece[j] = w->bits == 4   ? *(const uint32_t *)from
                      : w->bits == 8 ? *(const uint64_t *)from
                                     : *(const uint16_t *)from;
    }
    K_UNROLL
    for (int32_t j = 0; block != x->block && j < M_COLUMNS; j++) {
        x->common[j] = w_common(w, at->tile.expert, at->w[j], block);
    }
    x->block = block;
}

#if defined(K_BITS)
#define m_both K_JOIN(k_pair_, K_T0)

/* A piece of weights. */
K_FN m_words m_numbers(const k_nbits *w, uint64_t packed, const w_block *common) {
    p_words words;
    m_words out;
    K_UNROLL
    for (int32_t i = 0; i < K_BITS / 4; i++) {
        words.at[i] = (uint32_t)(packed >> i * 32);
    }
    p_numbers(words, p_base_of((uint32_t)common->zero, p_mask(w)),
              m_both(common->scale, common->scale), out.at);
    return out;
}
#else
/* A piece of weights. */
K_FN m_words m_numbers(const k_nbits *w, uint64_t packed, const w_block *common) {
    float number[M_PACK];
    m_words out;
    K_UNROLL
    for (int i = 0; i < M_PACK; i++) {
        const uint32_t q = w_bits(packed, i, w->bits);
        number[i] =
            (CODED ? ((const float *)w->values)[q] : (float)q - common->zero) * common->scale;
    }
    K_UNROLL
    for (int i = 0; i < M_PACK; i += K_WORD) {
        out.at[i / K_WORD] = T_repack(number + i);
    }
    return out;
}
#endif

/* Makes elements of what was taken, zeros behind the end. No path of this depends on anything,
 * since products may be on their way. */
K_FN void m_unpack(const m_place *at, int32_t chunk, const m_share *x, uint8_t *to) {
    const k_nbits *w = &at->args->w;
    const int is = m_begin(at, chunk) < w->k;
    to += m_spot(at->line, at->piece);
    K_UNROLL
    for (int32_t j = 0; j < M_COLUMNS; j++) {
        m_words words = m_numbers(w, x->piece[j], &x->common[j]);
        K_UNROLL
        for (int32_t i = 0; i < M_PIECE / 4; i++) {
            words.at[i] = is ? words.at[i] : 0;
        }
        *(m_words *)(void *)(to + j * M_APART) = words;
    }
}

K_FN void m_sum(const m_place *at, float (*sum)[M_WIDE][4]) {
    uint8_t *weights = at->ring + M_UNPACKED;
    uint32_t a[M_STEPS][4];
    m_share x = {{0}, {{0, 0}}, -1};
    K_ONE_COPY
    for (int32_t chunk = 0; chunk < M_AHEAD; chunk++) {
        m_fill(at, chunk);
    }
    K_COPIES_WAIT(M_AHEAD - 1);
    m_take(at, 0, &x);
    m_unpack(at, 0, &x, weights);
    K_ONE_COPY
    for (int32_t chunk = 0; chunk < at->chunks; chunk++) {
        const int32_t next = chunk + 1;
        K_COPIES_WAIT(M_AHEAD - 2);
        m_meet();
        m_take(at, next, &x);
        m_fill(at, chunk + M_AHEAD); /* where what was taken, and multiplied last, has been */
        m_begin_product(at, at->ring + chunk % M_AHEAD * M_A, weights + chunk % 2 * M_W, a, sum);
        m_unpack(at, next, &x, weights + next % 2 * M_W);
        m_end_product();
    }
}

#endif
