/* narrow_value.h - reads and writes elements of the types that k_narrow describes.
 *
 * A lane takes K_GROUP elements at a time, which are whole bytes at any width, so that no two lanes
 * write into one byte. Floats are converted by arithmetic on their bits, which is the same on every
 * architecture.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NARROW_VALUE_H
#define MP_KERNEL_NARROW_VALUE_H

#include "kernel/core/prelude.h"
#include "kernel/pointwise/narrow_args.h"

/* ---- groups of elements ---- */

/* The elements of a group in one piece, `width` bytes. */
#define N_WHOLE_GROUP(width, type)                                                           \
    K_FN void n_group_load_##width(const uint8_t *from, uint32_t *bits) {                    \
        const type all = *(const type *)from;                                                \
        for (int k = 0; k < K_GROUP; k++) {                                                  \
            bits[k] = (uint32_t)(all >> (k * width)) & (uint32_t)((1ull << width) - 1);      \
        }                                                                                    \
    }                                                                                        \
    K_FN void n_group_store_##width(uint8_t *target, const uint32_t *bits) {                 \
        type all = 0;                                                                        \
        for (int k = 0; k < K_GROUP; k++) {                                                  \
            all |= (type)((type)(bits[k] & (uint32_t)((1ull << width) - 1)) << (k * width)); \
        }                                                                                    \
        *(type *)target = all;                                                               \
    }
N_WHOLE_GROUP(2, uint16_t)
N_WHOLE_GROUP(4, uint32_t)
N_WHOLE_GROUP(8, uint64_t)
#undef N_WHOLE_GROUP

/* One element. */
K_FN uint32_t n_load(const uint8_t *base, int32_t width, int64_t i) {
    switch (width) {
    case 32:
        return ((const uint32_t *)base)[i];
    case 16:
        return ((const uint16_t *)base)[i];
    case 8:
        return base[i];
    case 4:
        return base[i >> 1] >> (i & 1) * 4 & 15u;
    default:
        return base[i >> 2] >> (i & 3) * 2 & 3u;
    }
}

/* Groups of `count` elements, the last of which may be a part of one. */
K_FN int64_t n_groups(int64_t count) {
    return (count + K_GROUP - 1) / K_GROUP;
}

/* Whether whole groups of both tensors can be read and written in one piece. */
K_FN int32_t n_aligned(const void *x, const void *out) {
    return ((uint64_t)x | (uint64_t)out) % 16 == 0;
}

/* Elements of the group that begins with `first`, of `count` in all. */
K_FN int32_t n_group_size(int64_t first, int64_t count) {
    return count - first < K_GROUP ? (int32_t)(count - first) : K_GROUP;
}

/* Elements [first, first + count) into bits[0..count), count <= K_GROUP; `first` is a multiple of
 * K_GROUP. With `aligned`, base is at a multiple of 16 bytes. */
K_FN void n_group_load(const void *base, int32_t width, int64_t first, int32_t count,
                       int32_t aligned, uint32_t *bits) {
    const uint8_t *bytes = (const uint8_t *)base;
    if (aligned && count == K_GROUP && width <= 8) {
        const uint8_t *from = bytes + first / K_GROUP * width;
        if (width == 8) {
            n_group_load_8(from, bits);
        } else if (width == 4) {
            n_group_load_4(from, bits);
        } else {
            n_group_load_2(from, bits);
        }
        return;
    }
    for (int k = 0; k < K_GROUP; k++) {
        bits[k] = k < count ? n_load(bytes, width, first + k) : 0;
    }
}

/* The bytes of the last group that hold no element become 0. */
K_FN void n_group_store(void *base, int32_t width, int64_t first, int32_t count, int32_t aligned,
                        const uint32_t *bits) {
    uint8_t *bytes = (uint8_t *)base;
    if (width == 16 || width == 32) {
        for (int k = 0; k < K_GROUP; k++) {
            if (k < count && width == 16) {
                ((uint16_t *)base)[first + k] = (uint16_t)bits[k];
            } else if (k < count) {
                ((uint32_t *)base)[first + k] = bits[k];
            }
        }
        return;
    }
    uint8_t *target = bytes + first / K_GROUP * width;
    if (aligned && count == K_GROUP) {
        if (width == 8) {
            n_group_store_8(target, bits);
        } else if (width == 4) {
            n_group_store_4(target, bits);
        } else {
            n_group_store_2(target, bits);
        }
        return;
    }
    const uint32_t mask = (1u << width) - 1;
    uint32_t byte = 0;
    for (int k = 0; k < K_GROUP; k++) {
        const int at = k * width;
        byte |= k < count ? (bits[k] & mask) << at % 8 : 0;
        if ((at + width) % 8 == 0 || k == count - 1) {
            if (k < count) {
                target[at / 8] = (uint8_t)byte;
            }
            byte = 0;
        }
    }
}

/* ---- groups of T, the wide side of a conversion ---- */

#ifdef K_T0
typedef struct K_ALIGN(sizeof(T) * K_GROUP < 16 ? sizeof(T) * K_GROUP : 16) n_pack {
    T lane[K_GROUP];
} n_pack;

/* Elements beyond `count` repeat the first. */
K_FN void n_floats_load(const T *x, int64_t first, int32_t count, int32_t aligned, n_pack *out) {
    if (aligned && count == K_GROUP) {
        *out = *(const n_pack *)(x + first);
        return;
    }
    for (int k = 0; k < K_GROUP; k++) {
        out->lane[k] = x[first + (k < count ? k : 0)];
    }
}

K_FN void n_floats_store(T *x, int64_t first, int32_t count, int32_t aligned, const n_pack *value) {
    if (aligned && count == K_GROUP) {
        *(n_pack *)(x + first) = *value;
        return;
    }
    for (int k = 0; k < K_GROUP; k++) {
        if (k < count) {
            x[first + k] = value->lane[k];
        }
    }
}
#endif

/* ---- values ---- */

K_FN int32_t n_whole(const k_narrow *type, uint32_t bits) {
    const uint32_t unused = 32u - (uint32_t)type->width;
    return type->kind == K_NARROW_SIGNED ? (int32_t)(bits << unused) >> unused : (int32_t)bits;
}

K_FN float n_from_bits(const k_narrow *type, uint32_t bits) {
    if (type->kind == K_NARROW_FLOAT) {
        const uint32_t code = bits & (type->sign - 1);
        const uint32_t sign = (bits & type->sign) != 0 ? 0x80000000u : 0u;
        if (code > type->largest || (type->no_minus && bits == type->sign)) {
            return code == type->infinity ? k_float_of_bits(sign | 0x7f800000u) : K_NAN;
        }
        const float value = k_float_of_bits(code << (23 - type->mantissa)) * type->unit;
        return k_float_of_bits(sign | k_bits_of_float(value));
    }
    if (type->kind == K_NARROW_SCALE) {
        return bits == 255u ? K_NAN : k_float_of_bits(bits != 0 ? bits << 23 : 0x400000u);
    }
    return (float)n_whole(type, bits);
}

K_FN uint32_t n_to_float_code(const k_narrow *type, float value) {
    const uint32_t bits = k_bits_of_float(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits != magnitude ? type->sign : 0u;
    const uint32_t shift = 23 - type->mantissa;
    uint32_t code;
    if (magnitude > 0x7f800000u) {
        return type->no_minus ? type->nan : sign | type->nan;
    }
    if (magnitude >= type->rebase + (1u << 23)) { /* normal in the type */
        const uint32_t rebased = magnitude - type->rebase;
        code = (rebased + ((1u << (shift - 1)) - 1) + ((rebased >> shift) & 1u)) >> shift;
    } else {
        code = k_bits_of_float(k_float_of_bits(magnitude) + type->magic) -
               k_bits_of_float(type->magic);
    }
    if (code > type->largest) {
        code = type->beyond;
    }
    return type->no_minus && (code & (type->sign - 1)) == 0 ? code : sign | code;
}

K_FN uint32_t n_to_scale(const k_narrow *type, float value) {
    const uint32_t bits = k_bits_of_float(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 255u;
    }
    if (bits != magnitude || magnitude < 0x400000u) { /* negative, or below 2^-127 */
        return type->saturate ? 0u : 255u;
    }
    if (magnitude > 0x7f000000u) { /* above 2^127 */
        return type->saturate ? 254u : 255u;
    }
    const uint32_t exponent = magnitude >> 23;
    const uint32_t rest = exponent != 0 ? magnitude & 0x7fffffu : (magnitude - 0x400000u) * 2;
    const uint32_t least = type->round == K_ROUND_UP ? 1u : 0x400000u;
    return exponent + (type->round != K_ROUND_DOWN && rest >= least ? 1u : 0u);
}

/* Integers round halves away from zero and keep their low bits, as ONNX Runtime's CPU provider
 * casts. */
K_FN uint32_t n_to_bits(const k_narrow *type, float value) {
    if (type->kind == K_NARROW_FLOAT) {
        return n_to_float_code(type, value);
    }
    if (type->kind == K_NARROW_SCALE) {
        return n_to_scale(type, value);
    }
    const float whole = roundf(value);
    return whole >= -2147483648.0f && whole < 2147483648.0f ? (uint32_t)(int32_t)whole : 0u;
}

#endif
