/* integer.h - products of four bytes at a time, and what becomes of their sums.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INTEGER_H
#define MP_KERNEL_INTEGER_H

#include "kernel/core/index.h"
#include "kernel/quantize/quantize.h"
#include "kernel/quantize/quantize_args.h"

typedef struct K_ALIGN(16) i_four {
    uint32_t of[4];
} i_four;

/* sum + the products of four signed bytes. */
K_FN uint32_t i_dot(uint32_t a, uint32_t b, uint32_t sum) {
#if K_HOST
    for (int i = 0; i < 4; i++) {
        sum += (uint32_t)((int8_t)(a >> i * 8) * (int8_t)(b >> i * 8));
    }
    return sum;
#else
    return (uint32_t)__dp4a((int)a, (int)b, (int)sum);
#endif
}

/* Up to four bytes, the first in the low bits; those beyond `left` are 0. */
K_FN uint32_t i_bytes(const uint8_t *at, int64_t left) {
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        word |= i < left ? (uint32_t)at[i] << i * 8 : 0u;
    }
    return word;
}

/* The word at `at` where `is` is not 0, else 0. Asked for where it stands and without a branch, so
 * that a lane has many on their way. */
K_FN uint32_t i_ask(const void *at, int is) {
    uint32_t word = 0;
#if !K_PTX
    if (is) {
        word = *(const uint32_t *)at;
    }
#else
    asm volatile("{ .reg .pred is;\n"
                 "setp.ne.s32 is, %2, 0;\n"
                 "@is ld.global.u32 %0, [%1]; }"
                 : "+r"(word)
                 : "l"(at), "r"(is)
                 : "memory");
#endif
    return word;
}

/* `flip` for the first `left` of four bytes. */
K_FN uint32_t i_flip(uint32_t flip, int64_t left) {
    return left >= 4 ? flip : left <= 0 ? 0u : flip & ((1u << (uint32_t)left * 8) - 1);
}

/* Byte c of row r becomes byte r of word c. */
K_FN void i_transpose(const uint32_t *row, uint32_t *word) {
#if K_HOST
    for (int c = 0; c < 4; c++) {
        for (int r = 0; r < 4; r++) {
            word[c] |= (row[r] >> c * 8 & 0xffu) << r * 8;
        }
    }
#else
    const uint32_t low = __byte_perm(row[0], row[1], 0x5140);
    const uint32_t high = __byte_perm(row[0], row[1], 0x7362);
    const uint32_t low2 = __byte_perm(row[2], row[3], 0x5140);
    const uint32_t high2 = __byte_perm(row[2], row[3], 0x7362);
    word[0] = __byte_perm(low, low2, 0x5410);
    word[1] = __byte_perm(low, low2, 0x7632);
    word[2] = __byte_perm(high, high2, 0x5410);
    word[3] = __byte_perm(high, high2, 0x7632);
#endif
}

/* ---- zero points, as the signed bytes that elements are turned into ---- */

K_FN int i_has_zero(const k_integer_side *side) {
    return side->zero != 0 || side->flip != 0;
}

K_FN int32_t i_zero(const k_integer_side *side, int64_t matrix, int64_t line) {
    const uint8_t byte =
        side->zero != 0
            ? ((const uint8_t *)side->zero)[matrix * side->zero_batch + line * side->zero_step]
            : 0;
    return (int8_t)(byte ^ side->flip);
}

/* ---- windows over an image ---- */

/* `n` as a position in a box of three dimensions; returns what is left in front. */
K_FN uint32_t i_position(uint32_t n, const int32_t *dim, const k_divider *by, int32_t *position) {
    for (int d = 2; d >= 0; d--) {
        const uint32_t outer = k_divide(n, by[d]);
        position[d] = (int32_t)(n - outer * (uint32_t)dim[d]);
        n = outer;
    }
    return n;
}

/* The first element that window number `column` covers. */
K_FN void i_corner(const k_integer_window *w, int64_t column, int32_t *corner) {
    i_position((uint32_t)column, w->out, w->by_out, corner);
    for (int d = 0; d < 3; d++) {
        corner[d] = corner[d] * w->stride[d] - w->pad[d];
    }
}

/* The channel of row k, and where in the window it lies. */
K_FN int64_t i_place(const k_integer_window *w, int64_t k, int32_t *place) {
    const uint32_t channel = i_position((uint32_t)k, w->kernel, w->by_kernel, place);
    for (int d = 0; d < 3; d++) {
        place[d] *= w->dilation[d];
    }
    return channel;
}

/* Of an element within a channel; negative for one beyond the image. */
K_FN int32_t i_offset(const k_integer_window *w, const int32_t *corner, const int32_t *place) {
    uint32_t offset = 0;
    int32_t inside = 1;
    for (int d = 0; d < 3; d++) {
        const int32_t at = corner[d] + place[d];
        inside &= (uint32_t)at < (uint32_t)w->in[d];
        offset = offset * (uint32_t)w->in[d] + (uint32_t)at;
    }
    return inside ? (int32_t)offset : -1;
}

/* ---- results ---- */

K_FN float i_scale(const mp_integer_args *args, int side, int64_t matrix, int64_t line) {
    const k_integer_side *s = &args->side[side];
    return q_scale(s->scale, args->scale_type, matrix * s->scale_batch + line * s->scale_step);
}

K_FN uint8_t i_requantized(const mp_integer_args *args, const int64_t *at, int64_t row, float scale,
                           int32_t sum) {
    if (args->bias != 0) {
        const int32_t bias = ((const int32_t *)args->bias)[at[0] * args->bias_batch + row];
        sum = (int32_t)((uint32_t)sum + (uint32_t)bias);
    }
    const int32_t zero = args->out_zero != 0 ? *(const uint8_t *)args->out_zero : 0;
    const int32_t moved = (int8_t)(zero ^ (int32_t)args->out_flip);
    const float share = (float)sum * (scale / q_scale(args->out_scale, args->scale_type, 0));
    const float low = (float)(-128 - moved), high = (float)(127 - moved);
    const float whole = rintf(share);
    const float from_below = whole > low ? whole : low;
    const int32_t kept = (int32_t)(from_below < high ? from_below : high) + moved;
    return (uint8_t)(kept ^ (int32_t)args->out_flip);
}

/* The scaled sum of one element, with its bias. */
K_FN float i_scaled(const mp_integer_args *args, const int64_t *at, int64_t row, int64_t column,
                    int32_t sum) {
    const float scale = i_scale(args, 0, at[0], row) * i_scale(args, 1, at[1], column);
    const float value = (float)sum * scale;
    return args->bias != 0 ? value + q_scale(args->bias, args->scale_type, column) : value;
}

/* The sum of one element of the result, whose place is `place`. */
K_FN void i_put(const mp_integer_args *args, const int64_t *at, int64_t row, int64_t column,
                int32_t sum, int64_t place) {
    if (args->kind == K_INTEGER_I32) {
        ((int32_t *)args->out)[place] = sum;
    } else if (args->kind == K_INTEGER_BYTE) {
        const float scale = i_scale(args, 0, at[0], row) * i_scale(args, 1, at[1], column);
        ((uint8_t *)args->out)[place] = i_requantized(args, at, row, scale, sum);
    } else if (args->kind == K_INTEGER_F16) {
        ((k_f16 *)args->out)[place] = k_store_f16(i_scaled(args, at, row, column, sum));
    } else {
        ((float *)args->out)[place] = i_scaled(args, at, row, column, sum);
    }
}

typedef union K_ALIGN(8) i_pair {
    int32_t whole[2];
    float real[2];
} i_pair;

/* The same of two neighbours in a row, written at once: where args->pairs says so. */
K_FN void i_put_pair(const mp_integer_args *args, const int64_t *at, int64_t row, int64_t column,
                     const int32_t *sum, int64_t place) {
    i_pair pair;
    for (int e = 0; e < 2; e++) {
        if (args->kind == K_INTEGER_I32) {
            pair.whole[e] = sum[e];
        } else {
            pair.real[e] = i_scaled(args, at, row, column + e, sum[e]);
        }
    }
    ((i_pair *)args->out)[place / 2] = pair;
}

#endif
