/* moe_few.h - packed integers of K_BITS bits of experts, as lanes read them for a few rows: chunks
 * of K_NBITS_CHUNK along k, which share a scale, several on their way at once.
 *
 * An integer q becomes the float 2^23 + q by being put into its last bits; what it is counted from,
 * with 2^23, is taken off.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MOE_FEW_H
#define MP_KERNEL_MOE_FEW_H

#include "kernel/core/late.h"
#include "kernel/core/row_lanes.h"
#include "kernel/core/word.h"
#include "kernel/quantize/moe_pick.h"

enum {
    F_CHUNK = K_NBITS_CHUNK,
    F_WORDS = F_CHUNK * K_BITS / 32,
    F_EACH = 32 / K_BITS, /* weights of a word */
    F_MASK = (1 << K_BITS) - 1,
    F_PACKS = F_CHUNK / K_PACK, /* of a row, that go with a chunk */
    F_GROUP = 32,
};

/* As it is loaded. */
typedef struct f_chunk {
    uint32_t words[F_WORDS];
    T scale;
    uint32_t zero; /* the byte that it is in */
} f_chunk;

/* Chunk `chunk` of a column of an expert; zeros where it is none. */
K_FN void f_load(const k_moe_few *m, int32_t expert, int32_t column, int32_t chunk, int is,
                 f_chunk *out) {
    const int64_t at = (int64_t)expert * m->n + column;
    const int32_t block = chunk * F_CHUNK >> m->block_shift;
    const uint8_t *from = (const uint8_t *)m->weight + (at * m->chunks + chunk) * (F_WORDS * 4);
    K_UNROLL
    for (int i = 0; i < F_WORDS; i += 4) {
        k_fetch(from + i * 4, is, out->words + i);
    }
    out->scale = ((const T *)m->scale)[is ? at * m->blocks + block : 0];
    out->zero = 0;
    if (m->zero != 0) {
        const int64_t row = m->zero_across ? expert : at;
        const int32_t place = m->zero_across ? column : block;
        out->zero = ((const uint8_t *)m->zero)[is ? row * m->zero_row + place * K_BITS / 8 : 0];
    }
}

/* What a chunk's weights are counted from, and 2^23. */
K_FN float f_base(const k_moe_few *m, int32_t column, int32_t chunk, uint32_t byte) {
    const int32_t block = chunk * F_CHUNK >> m->block_shift;
    const int32_t place = m->zero_across ? column : block;
    const uint32_t zero = byte >> (uint32_t)place * K_BITS % 8 & F_MASK;
    return 8388608.0f + (float)(m->zero != 0 ? (int32_t)zero : m->middle);
}

/* The elements of a row that go with a chunk; `row` is aligned. */
K_FN void f_row(const T *row, int32_t chunk, int is, k_pack *x) {
    const k_pack *from = (const k_pack *)(const void *)row + (is ? chunk * F_PACKS : 0);
    K_UNROLL
    for (int p = 0; p < F_PACKS; p++) {
        x[p].words = from[p].words;
    }
}

/* The sums of products of some chunks with the same elements, by their scales. */
K_FN void f_add(int count, const float *base, const f_chunk *c, const k_pack *x, K_SUM *sum) {
    float part[8];
    K_UNROLL
    for (int i = 0; i < count; i++) {
        part[i] = 0;
    }
    K_UNROLL
    for (int at = 0; at < F_CHUNK; at += K_WORD) {
        float two[K_WORD];
        T_unpack(x[at / K_PACK].words.at[at % K_PACK / K_WORD], two);
        K_UNROLL
        for (int i = 0; i < count * K_WORD; i++) {
            const int of = i % count, e = i / count, k = at + e;
            const uint32_t q = c[of].words[k / F_EACH] >> k % F_EACH * K_BITS & F_MASK;
            part[of] += two[e] * (k_float_of_bits(0x4b000000u | q) - base[of]);
        }
    }
    K_UNROLL
    for (int i = 0; i < count; i++) {
        sum[i] += (K_SUM)part[i] * (K_SUM)T_load(c[i].scale);
    }
}

#endif
