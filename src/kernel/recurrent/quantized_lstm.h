/* quantized_lstm.h - numbers of 8 bits for the LSTM whose weights are stored so: ranges, rounding,
 * sums of products of unsigned activations and signed weights. Weights that are stored unsigned are
 * taken less 128, and so is their zero point.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_QUANTIZED_LSTM_H
#define MP_KERNEL_QUANTIZED_LSTM_H

#include "kernel/core/block.h"
#include "kernel/recurrent/recurrent_args.h"

typedef struct q_parameter {
    float scale, zero;
} q_parameter;

/* The scale and zero point that ONNX Runtime gives a range which includes 0. */
K_FN q_parameter q_parameter_of(float least, float most) {
    q_parameter p;
    p.scale = most == least ? 1.0f : (most - least) / 255.0f;
    p.zero = rintf(0.0f - least / p.scale);
    p.zero = p.zero > 0 ? p.zero < 255 ? p.zero : 255 : 0;
    return p;
}

K_FN uint8_t q_byte(float x, q_parameter p) {
    const float value = rintf(x / p.scale) + p.zero;
    return (uint8_t)(value > 0 ? value < 255 ? value : 255 : 0);
}

/* sum + the products of four unsigned and four signed bytes. */
K_FN int32_t q_products(uint32_t a, uint32_t w, int32_t sum) {
#if !K_PTX
    for (int32_t i = 0; i < 4; i++) {
        sum += (int32_t)(a >> (8 * i) & 255u) * (int8_t)(w >> (8 * i) & 255u);
    }
    return sum;
#else
    int32_t out;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(w), "r"(sum));
    return out;
#endif
}

/* sum + four signed bytes, sum + four unsigned ones. */
K_FN int32_t q_sum_signed(uint32_t w, int32_t sum) {
    return q_products(0x01010101u, w, sum);
}
K_FN int32_t q_sum_unsigned(uint32_t a, int32_t sum) {
    return q_products(a, 0x01010101u, sum);
}

/* Four bytes of a row of `size` from `k`; 0 beyond its end. */
K_FN uint32_t q_word(const uint8_t *row, int64_t k, int64_t size, int32_t wide) {
    if (wide && k + 4 <= size) {
        return *(const uint32_t *)(const void *)(row + k);
    }
    uint32_t word = 0;
    for (int32_t i = 0; i < 4; i++) {
        word |= k + i < size ? (uint32_t)row[k + i] << (8 * i) : 0;
    }
    return word;
}

/* The same of weights, as signed bytes; what is beyond the end is a signed 0. */
K_FN uint32_t q_weights(const k_quantized *w, const uint8_t *row, int64_t k, int32_t wide) {
    const uint32_t word = q_word(row, k, w->depth, wide);
    if (w->is_signed) {
        return word;
    }
    const int64_t left = w->depth - k;
    const uint32_t there = left >= 4 ? ~0u : left <= 0 ? 0 : (1u << (8 * left)) - 1;
    return word ^ (0x80808080u & there);
}

K_FN float q_scale(const k_quantized *w, int64_t direction, int64_t column) {
    return ((const float *)w->scale)[w->per_column ? direction * w->columns + column : direction];
}

K_FN int32_t q_zero(const k_quantized *w, int64_t direction, int64_t column) {
    const uint8_t zero =
        ((const uint8_t *)w->zero)[w->per_column ? direction * w->columns + column : direction];
    return w->is_signed ? (int8_t)zero : (int32_t)zero - 128;
}

/* The sum of (a - za) (w - zw) over the depth, scaled. */
K_FN float q_value(const k_quantized *w, int64_t direction, int64_t column, q_parameter p,
                   int32_t products, int32_t a_sum, int32_t w_sum) {
    const int32_t za = (int32_t)p.zero, zw = q_zero(w, direction, column);
    const int32_t all = products - za * w_sum - zw * a_sum + (int32_t)w->depth * za * zw;
    return (float)all * (p.scale * q_scale(w, direction, column));
}

#endif
