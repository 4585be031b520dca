/* rotary.h - pairs of elements that are rotated, 16 bytes of them at a time.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROTARY_H
#define MP_KERNEL_ROTARY_H

#include "kernel/attention/attention_args.h"
#include "kernel/core/prelude.h"

enum { PACK = 16 / sizeof(T) };

typedef union r_pack {
    k_b128 raw;
    T item[PACK];
} r_pack;

K_FN r_pack r_read(const T *from) {
    r_pack pack;
    pack.raw = *(const k_b128 *)(const void *)from;
    return pack;
}

K_FN void r_write(T *to, r_pack pack) {
    *(k_b128 *)(void *)to = pack.raw;
}

K_FN void r_turn_numbers(float *x, float *y, float c, float s, float scale) {
    const float a = *x, b = *y;
    *x = (a * c - b * s) * scale;
    *y = (a * s + b * c) * scale;
}

K_FN void r_turn(T *x, T *y, float c, float s, float scale) {
    float a = T_load(*x), b = T_load(*y);
    r_turn_numbers(&a, &b, c, s, scale);
    *x = T_store(a);
    *y = T_store(b);
}

/* Of an element that is normalised before it is rotated. Rounded, as the operator is that this
 * stands for. */
K_FN T r_normed(T x, T weight, float inverse) {
    return T_store(T_load(x) * inverse * T_load(weight));
}

K_FN void r_rotate(T *x, T *y, T cosine, T sine, float scale) {
    r_turn(x, y, T_load(cosine), T_load(sine), scale);
}

/* Pair i is element i of both packs, or interleaved two neighbours in the two of them. */
K_FN void r_turn_packs(r_pack *a, r_pack *b, const r_pack *cosine, const r_pack *sine,
                       int32_t interleaved, float scale) {
    K_UNROLL for (int32_t i = 0; i < PACK; i++) {
        T *x = &a->item[i], *y = &b->item[i];
        if (interleaved) {
            r_pack *both = i < PACK / 2 ? a : b;
            x = &both->item[2 * i % PACK];
            y = &both->item[2 * i % PACK + 1];
        }
        r_rotate(x, y, cosine->item[i], sine->item[i], scale);
    }
}

#endif
