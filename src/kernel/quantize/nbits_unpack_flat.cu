/* nbits_unpack_flat.cu - as nbits_unpack.cu for weights of K_BITS bits, where rows follow one
 * another without gaps: of weights, of scales, which are of A's type, and of packed zero points.
 * The matrix is then one row of n * k weights, and no division has to tell where a piece of it
 * belongs. Bound by memory: a lane writes 16 bytes, and its neighbour those behind, since parts of
 * 32 bytes that come one by one cost as much as whole ones.
 *
 * Codes are looked up in shared memory, where each lane of a warp has a table in a bank of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/stream.h"
#include "kernel/core/word.h"
#include "kernel/quantize/quantize_args.h"

enum {
    U_EACH = 16 / sizeof(T), /* weights of a piece */
    U_BITS = U_EACH * K_BITS,
    U_WORDS = U_BITS < 32 ? 1 : U_BITS / 32,
    U_CODES = 1 << K_BITS,
    U_TABLES = K_NBITS_TABLES,
};

typedef struct K_ALIGN(16) u_numbers {
    uint32_t words[4];
} u_numbers;

/* What a piece is made of, as it comes from memory: to convert it would be to wait for it. */
typedef struct u_piece {
    uint32_t words[U_WORDS];
    T scale;
    uint32_t zero; /* and, above it, what else its byte has */
} u_piece;

typedef struct K_ALIGN(U_WORDS * 4) u_packed {
    uint32_t words[U_WORDS];
} u_packed;

K_FN u_piece u_read(const k_nbits *w, int64_t i) {
    const uint64_t block = (uint64_t)i * U_EACH >> w->block_shift, bit = block * K_BITS;
    u_piece piece;
    if (U_BITS < 32) {
        piece.words[0] = ((const uint16_t *)w->weight)[i];
    } else {
        const u_packed packed = ((const u_packed *)w->weight)[i];
        K_UNROLL
        for (int e = 0; e < U_WORDS; e++) {
            piece.words[e] = packed.words[e];
        }
    }
    piece.scale = ((const T *)w->scale)[block];
    piece.zero = (uint32_t)w->middle;
    if (!K_CODED && w->zero != 0) {
        piece.zero = (uint32_t)((const uint8_t *)w->zero)[bit / 8] >> bit % 8;
    }
    return piece;
}

/* A small integer as the low bits of a float, which has 2^23 more. The mask is in a register: an
 * instruction has room for one constant, and the other one would be made anew for each. */
K_FN float u_number(uint32_t bits, uint32_t mask) {
    return k_float_of_bits(0x4b000000u | (bits & mask));
}

/* `table`: the lane's own, of codes; code after code they lie U_TABLES apart. */
K_FN u_numbers u_unpacked(const k_nbits *w, const float *table, u_piece piece) {
    const uint32_t mask = (1u << w->bits) - 1;
    const float zero = u_number(piece.zero, mask), scale = T_load(piece.scale);
    u_numbers out;
    if (K_CODED && w->swapped) { /* the same for all lanes */
        K_UNROLL
        for (int i = 0; i < U_WORDS; i++) {
            const uint32_t low = 0x0f0f0f0fu;
            piece.words[i] = (piece.words[i] & low) << 4 | (piece.words[i] >> 4 & low);
        }
    }
    K_UNROLL
    for (int i = 0; i < U_EACH; i += K_WORD) {
        float values[K_WORD];
        K_UNROLL
        for (int e = 0; e < K_WORD; e++) {
            const uint32_t bits = piece.words[(i + e) * K_BITS / 32] >> (i + e) * K_BITS % 32;
            values[e] =
                (K_CODED ? table[(bits & (U_CODES - 1)) * U_TABLES] : u_number(bits, mask) - zero) *
                scale;
        }
        out.words[i / K_WORD] = T_repack(values);
    }
    return out;
}

K_FN void u_unpack_all(const k_nbits *w, u_numbers *to, const float *table) {
    const k_stream s = k_stream_of(w->k / U_EACH);
    K_STREAM_LOOP(i, s) {
        const int64_t last = k_stream_last(&s, i);
        const u_piece piece = u_read(w, i), ahead = u_read(w, last);
        to[i] = u_unpacked(w, table, piece);
        to[last] = u_unpacked(w, table, ahead);
    }
}

#if K_CODED
K_BLOCK_KERNEL(mp_nbits_args, args) {
    K_SHARED(float, tables);
    K_BLOCK_LOOP(i, U_CODES * U_TABLES) {
        tables[i] = ((const float *)args.w.values)[i / U_TABLES];
    }
    __syncthreads();
    u_unpack_all(&args.w, (u_numbers *)args.out, tables + threadIdx.x % U_TABLES);
}
#else
K_KERNEL(mp_nbits_args, args) {
    u_unpack_all(&args.w, (u_numbers *)args.out, 0);
}
#endif
