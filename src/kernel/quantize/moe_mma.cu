/* moe_mma.cu - some routes an expert, or many, by tensor cores, with weights of A's type: stages of
 * both go through a ring in shared memory, where they are copied while others are multiplied.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/moe_mma.h"

#if K_WARP_MATRIX

enum { M_STAGE = M_A + M_W, M_AHEAD = K_MOE_AHEAD(K_ROWS) };

K_FN void m_fill(const m_place *at, int32_t chunk, uint8_t *stage) {
    const m_words *w = (const m_words *)at->args->w.weight;
    const uint32_t piece = (uint32_t)((at->first + chunk) * M_PIECES + at->piece);
    const int is = m_begin(at, chunk) < at->args->w.k;
    uint8_t *to = stage + M_A + m_spot(at->line, at->piece);
    m_fill_a(at, chunk, stage);
    K_UNROLL
    for (int32_t j = 0; j < M_COLUMNS; j++) {
        k_copy_begin(to + j * M_APART, w + (is ? at->w[j] + piece : 0), is ? M_PIECE : 0);
    }
    k_copies_group();
}

K_FN void m_sum(const m_place *at, float (*sum)[M_WIDE][4]) {
    uint32_t a[M_STEPS][4];
    K_ONE_COPY
    for (int32_t chunk = 0; chunk < M_AHEAD - 1; chunk++) {
        m_fill(at, chunk, at->ring + chunk * M_STAGE);
    }
    K_ONE_COPY
    for (int32_t chunk = 0; chunk < at->chunks; chunk++) {
        const int32_t next = chunk + M_AHEAD - 1;
        const uint8_t *stage = at->ring + chunk % M_AHEAD * M_STAGE;
        K_COPIES_WAIT(M_AHEAD - 2);
        m_meet();
        m_begin_product(at, stage, stage + M_A, a, sum);
        m_fill(at, next, at->ring + next % M_AHEAD * M_STAGE); /* which was multiplied last */
        m_end_product();
    }
}

#endif
