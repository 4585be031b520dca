/* nbits_split.cu - floats as three numbers of bfloat16 each, for products by tensor cores that are
 * as exact as those of floats. A float has 24 bits: the first part is its first eight, the second
 * the next, the third what is left, so that their sum is the float itself. Without the third the
 * second is rounded, and what is lost is less than TF32 loses. What is no number is in the first
 * part alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/quantize/quantize_args.h"

enum { S_PACK = 8, S_PARTS = K_NBITS_TILE_PARTS(4) };

typedef struct K_ALIGN(16) s_floats {
    float at[S_PACK / 2];
} s_floats;

typedef struct K_ALIGN(16) s_words {
    uint32_t at[S_PACK / 2];
} s_words;

/* The bits of each part, in the high half of a word. */
K_FN void s_split(float x, int32_t count, uint32_t *parts) {
    const uint32_t bits = k_bits_of_float(x), magnitude = bits & 0x7fffffffu;
    const int is_number = magnitude < 0x7f800000u;
    float left = is_number ? x : 0.0f;
    K_UNROLL
    for (int i = 0; i < S_PARTS; i++) {
        const uint32_t half = i + 1 == count ? 0x8000u : 0u; /* which the third one lacks */
        parts[i] = (k_bits_of_float(left) + half) & 0xffff0000u;
        left -= k_float_of_bits(parts[i]);
    }
    if (!is_number) { /* a NaN keeps a bit of those that are kept */
        parts[0] = (bits & 0xffff0000u) | (magnitude > 0x7f800000u ? 0x400000u : 0u);
    }
}

K_KERNEL(mp_nbits_split_args, args) {
    K_GRID_LOOP(i, args.count) {
        const uint32_t row = k_divide((uint32_t)i, args.by_packs);
        const s_floats *from = (const s_floats *)args.x + i * 2;
        const s_floats half[2] = {from[0], from[1]};
        s_words *to = (s_words *)args.out + (i + (int64_t)row * args.packs * (S_PARTS - 1));
        s_words made[S_PARTS];
        K_UNROLL
        for (int e = 0; e < S_PACK / 2; e++) {
            uint32_t low[S_PARTS], high[S_PARTS];
            s_split(half[e / 2].at[e % 2 * 2], args.parts, low);
            s_split(half[e / 2].at[e % 2 * 2 + 1], args.parts, high);
            K_UNROLL
            for (int part = 0; part < S_PARTS; part++) {
                made[part].at[e] = low[part] >> 16 | high[part];
            }
        }
        K_UNROLL
        for (int part = 0; part < S_PARTS; part++) {
            if (part < args.parts) {
                to[part * (int64_t)args.packs] = made[part];
            }
        }
    }
}
