/* decode_kept.h - what attention_decode.cu reads of caches: elements, or with K_CODES signed bytes
 * that a scale goes with, an entry's keys as neighbours, or with K_PAGES in blocks that a table
 * names, so that a tile of keys lies in one of them.
 *
 * A scale for each element of a head goes with queries before they meet keys, over the largest one,
 * so that a query keeps its type; those of values, and that largest one, go with sums.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DECODE_KEPT_H
#define MP_KERNEL_DECODE_KEPT_H

#include "kernel/attention/attention.h"
#include "kernel/core/index.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"

#if K_CODES
typedef uint8_t decode_kv;
#else
typedef T decode_kv;
#endif

/* Where a tile of keys lies, of which the first is row `rest` of block `block`. */
typedef struct decode_tile {
    int32_t block, rest;
} decode_tile;

K_FN decode_tile decode_tile_at(const k_pages *pages, int64_t entry, int32_t key) {
    decode_tile tile = {0, key};
    if (K_PAGES && pages->table != 0) {
        const int32_t column = (int32_t)k_divide((uint32_t)key, pages->by_size);
        tile.rest = key - column * pages->size;
        tile.block = column < pages->columns ? pages->table[entry * pages->columns + column] : -1;
    }
    return tile;
}

K_FN int32_t decode_is_there(const k_pages *pages, decode_tile tile) {
    return !K_PAGES || pages->table == 0 || (tile.block >= 0 && tile.block < pages->blocks);
}

/* The row of a tile's first key. */
K_FN int64_t decode_first_row(const k_pages *pages, decode_tile tile) {
    return (int64_t)tile.block * (K_PAGES ? pages->size : 0) + tile.rest;
}

/* By what an element's code is multiplied; side 0: of a key, 1: of a value. */
K_FN float decode_scale(const mp_attention_args *args, int32_t side, int64_t kv_head, int32_t d) {
    const float *scale = (const float *)args->cache.scale[side];
    return K_CODES ? scale[args->cache.channels[side] ? kv_head * K_HEAD + d : 0] : 1;
}

#if K_WARP_MATRIX

typedef union decode_pack {
    k_b128 raw;
    uint32_t word[4];
} decode_pack;

/* A piece of a head, as caches have it. */
#if K_CODES
typedef struct decode_kept {
    uint32_t word[2];
} decode_kept;
#else
typedef decode_pack decode_kept;
#endif

/* Asked for where this stands, and not where it is used. */
K_FN decode_pack decode_take(const T *from, int32_t is_there) {
    decode_pack pack;
#if K_PTX
    asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %5, 0;\n"
                 "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
                 "@there ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=&r"(pack.word[0]), "=&r"(pack.word[1]), "=&r"(pack.word[2]),
                   "=&r"(pack.word[3])
                 : "l"(from), "r"(is_there));
#else
    const k_b128 none = {0, 0};
    pack.raw = is_there ? *(const k_b128 *)(const void *)from : none;
#endif
    return pack;
}

#if K_CODES

K_FN decode_kept decode_take_kept(const decode_kv *from, int32_t is_there) {
    decode_kept kept;
#if K_PTX
    asm volatile("{\n.reg .pred there;\nsetp.ne.b32 there, %3, 0;\n"
                 "mov.b32 %0, 0;\nmov.b32 %1, 0;\n"
                 "@there ld.global.v2.b32 {%0, %1}, [%2];\n}"
                 : "=&r"(kept.word[0]), "=&r"(kept.word[1])
                 : "l"(from), "r"(is_there));
#else
    const uint32_t *words = (const uint32_t *)(const void *)from;
    kept.word[0] = is_there ? words[0] : 0;
    kept.word[1] = is_there ? words[1] : 0;
#endif
    return kept;
}

/* Both halves of a word are numbers of a code's low bits above a power of two, less those of its
 * highest bit: 1024 + 0...255 of a code with that bit turned less 1024 + 128 in float16, and
 * 128 + 0...127 less 128 or 256 in bfloat16, where the bit is the last one of the exponent. All
 * these are exact. */
K_FN uint32_t decode_codes_f16(uint32_t codes, uint32_t places) {
    const uint32_t above = __byte_perm(codes ^ 0x80808080U, 0x64646464U, places);
    return k_pair_fma_f16(above, 0x3c003c00U, 0xe480e480U);
}

K_FN uint32_t decode_codes_bf16(uint32_t codes, uint32_t places) {
    const uint32_t above = __byte_perm(codes, 0x43434343U, places);
    return k_pair_fma_bf16(above & 0xff80ff80U, 0xbf80bf80U, above & 0xff7fff7fU);
}

/* Elements 2 j and 2 j + 1 of a piece. */
K_FN uint32_t decode_word(const decode_kept *kept, int32_t j) {
    return K_JOIN(decode_codes_, K_T0)(kept->word[j / 2], j % 2 != 0 ? 0x4342U : 0x4140U);
}

#else

#define decode_take_kept decode_take

K_FN uint32_t decode_word(const decode_kept *kept, int32_t j) {
    return kept->word[j];
}

#endif

/* A query's pieces, of which a lane has every fourth from `first` on, take the scales of elements
 * of keys. Returns what scores are multiplied by for it. All lanes of the warp call. */
K_FN float decode_scale_query(const mp_attention_args *args, int64_t kv_head, int32_t first,
                              int32_t pieces, decode_pack *q) {
    enum { LOADS = A_PIECE / 4, ALL = 0xffffffff };
    const float *scale = (const float *)args->cache.scale[0] + kv_head * K_HEAD + first * A_PIECE;
    decode_pack by[(K_HEAD / A_PIECE + 3) / 4 * LOADS];
    float most = 0;
    if (!K_CODES || !args->cache.channels[0]) {
        return decode_scale(args, 0, kv_head, 0);
    }
    K_UNROLL for (int32_t i = 0; i < pieces * LOADS; i++) {
        const float *from = scale + i / LOADS * 4 * A_PIECE + i % LOADS * 4;
        by[i].raw = *(const k_b128 *)(const void *)from;
    }
    K_UNROLL for (int32_t i = 0; i < pieces * A_PIECE; i++) {
        most = fmaxf(most, fabsf(__uint_as_float(by[i / 4].word[i % 4])));
    }
    most = fmaxf(most, __shfl_xor_sync(ALL, most, 1));
    most = fmaxf(most, __shfl_xor_sync(ALL, most, 2));
    const float inverse = most > 1e-37F ? 1 / most : 0;
    K_UNROLL for (int32_t i = 0; i < pieces * A_PIECE; i += 2) {
        uint32_t *word = &q[i / A_PIECE].word[i % A_PIECE / 2];
        float x[2];
        T_unpack(*word, x);
        x[0] *= __uint_as_float(by[i / 4].word[i % 4]) * inverse;
        x[1] *= __uint_as_float(by[i / 4].word[i % 4 + 1]) * inverse;
        *word = T_repack(x);
    }
    return most;
}

#else

/* An element, without its scale. */
K_FN float decode_element(decode_kv kept) {
#if K_CODES
    return (float)(int8_t)kept;
#else
    return T_load(kept);
#endif
}

#endif

#endif
