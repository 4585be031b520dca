/* nbits_unpack_flat.cu - as nbits_unpack.cu for integers of K_BITS bits, where rows follow one
 * another without gaps: of weights, of scales, which are of A's type, and of packed zero points.
 * The matrix is then one row of n * k weights, and no division has to tell where a piece of it
 * belongs. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/stream.h"
#include "kernel/core/word.h"
#include "kernel/quantize/quantize_args.h"

typedef struct K_ALIGN(K_BITS) u_packed { /* a piece as it is stored */
    uint32_t words[K_BITS / 4];
} u_packed;

typedef struct K_ALIGN(16) u_numbers {
    uint32_t words[K_NBITS_PIECE / K_WORD];
} u_numbers;

/* What a piece is made of, as it comes from memory: to convert it would be to wait for it. */
typedef struct u_piece {
    u_packed packed;
    T scale;
    uint32_t zero; /* and, above it, what else its byte has */
} u_piece;

K_FN u_piece u_read(const k_nbits *w, int64_t i) {
    const uint64_t block = (uint64_t)i * K_NBITS_PIECE >> w->block_shift, bit = block * K_BITS;
    u_piece piece;
    piece.packed = ((const u_packed *)w->weight)[i];
    piece.scale = ((const T *)w->scale)[block];
    piece.zero = (uint32_t)w->middle;
    if (w->zero != 0) {
        piece.zero = (uint32_t)((const uint8_t *)w->zero)[bit / 8] >> bit % 8;
    }
    return piece;
}

/* A small integer as the low bits of a float, which has 2^23 more. The mask is in a register: an
 * instruction has room for one constant, and the other one would be made anew for each. */
K_FN float u_number(uint32_t bits, uint32_t mask) {
    return k_float_of_bits(0x4b000000u | (bits & mask));
}

K_FN u_numbers u_unpacked(const u_piece *piece, uint32_t mask) {
    const float zero = u_number(piece->zero, mask), scale = T_load(piece->scale);
    u_numbers out;
    K_UNROLL
    for (int i = 0; i < K_NBITS_PIECE; i += K_WORD) {
        float values[K_WORD];
        K_UNROLL
        for (int e = 0; e < K_WORD; e++) {
            const uint32_t word = piece->packed.words[(i + e) * K_BITS / 32];
            values[e] = (u_number(word >> (i + e) * K_BITS % 32, mask) - zero) * scale;
        }
        out.words[i / K_WORD] = T_repack(values);
    }
    return out;
}

K_KERNEL(mp_nbits_args, args) {
    const k_nbits *w = &args.w;
    u_numbers *to = (u_numbers *)args.out;
    const uint32_t mask = (1u << w->bits) - 1;
    const k_stream s = k_stream_of(w->k / K_NBITS_PIECE);
    K_STREAM_LOOP(i, s) {
        const int64_t last = k_stream_last(&s, i);
        const u_piece piece = u_read(w, i), ahead = u_read(w, last);
        to[i] = u_unpacked(&piece, mask);
        to[last] = u_unpacked(&ahead, mask);
    }
}
