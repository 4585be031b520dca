/* quantize.cu - floats as elements of a quantised type. Bound by memory, if whole bytes with one
 * scale for all, as nearly always, go a way of their own: the scale is inverted once, and quotients
 * are made exact by what is left of x.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/stream.h"
#include "kernel/quantize/quantize.h"

/* ---- integers of 8 or 16 bits with one scale ---- */

enum { Z_PACK = 16 / sizeof(T) };

typedef union K_ALIGN(16) z_pack {
    T at[Z_PACK];
    struct {
        uint32_t at[4];
    } words;
} z_pack;

typedef struct z_scale {
    float scale, inverse;
    float low, high; /* what quotients are kept between */
    int32_t zero;
} z_scale;

/* Whether all goes by packs; the inverse neither overflows nor is subnormal. */
K_FN int z_takes(const mp_quantize_args *args, float scale, int32_t aligned) {
    const float size = fabsf(scale);
    return !K_HOST && args->scales.shared == K_SCALES_SINGLE &&
           args->type.kind <= K_NARROW_SIGNED && args->type.width >= 8 && aligned &&
           size > 0x1p-100f && size < 0x1p100f;
}

/* As q_quantize, to the bit: twice what x has more than the quotient makes that x / scale rounded,
 * as division does. Where it is large or no number it needs none. */
K_FN uint32_t z_quantize(const z_scale *s, float x) {
    const float near = x * s->inverse;
    const float once = fmaf(fmaf(-near, s->scale, x), s->inverse, near);
    const float twice = fmaf(fmaf(-once, s->scale, x), s->inverse, once);
    const float share = fabsf(near) < 0x1p20f ? twice : near;
    const float kept = fminf(fmaxf(share, s->low), s->high);
    return k_bits_of_float(kept + 0x1.8p23f) + (uint32_t)s->zero; /* its low bits */
}

/* A pack of x, as its elements of `width` bits. */
K_FN void z_put(const z_scale *s, const z_pack *in, int32_t width, void *out, int64_t i) {
    uint32_t made[Z_PACK];
    K_UNROLL
    for (int k = 0; k < Z_PACK; k++) {
        made[k] = z_quantize(s, T_load(in->at[k]));
    }
    if (width == 8) {
        K_UNROLL
        for (int k = 0; k < Z_PACK; k += 4) {
            ((uint32_t *)out)[(i * Z_PACK + k) / 4] = (made[k] & 255u) | (made[k + 1] & 255u) << 8 |
                                                      (made[k + 2] & 255u) << 16 |
                                                      made[k + 3] << 24;
        }
        return;
    }
    K_UNROLL
    for (int k = 0; k < Z_PACK; k += 2) {
        ((uint32_t *)out)[(i * Z_PACK + k) / 2] = (made[k] & 0xffffu) | made[k + 1] << 16;
    }
}

K_FN void z_packs(const mp_quantize_args *args, float scale, int32_t zero) {
    const z_pack *x = (const z_pack *)args->x;
    const z_scale s = {scale, 1.0f / scale, (float)(args->type.low - zero),
                       (float)(args->type.high - zero), zero};
    const k_stream walk = k_stream_of(args->count / Z_PACK);
    K_STREAM_LOOP(i, walk) {
        const int64_t last = k_stream_last(&walk, i);
        z_pack in, ahead;
        in.words = x[i].words;
        ahead.words = x[last].words;
        K_ONE_COPY
        for (int64_t at = i; at <= last; at += walk.next) {
            z_put(&s, &in, args->type.width, args->out, at);
            in.words = ahead.words;
        }
    }
    K_GRID_LOOP(i, args->count % Z_PACK) {
        const int64_t at = args->count / Z_PACK * Z_PACK + i;
        const uint32_t made =
            q_quantize(&args->type, T_load(((const T *)args->x)[at]), scale, zero);
        if (args->type.width == 8) {
            ((uint8_t *)args->out)[at] = (uint8_t)made;
        } else {
            ((uint16_t *)args->out)[at] = (uint16_t)made;
        }
    }
}

/* ---- any ---- */

K_KERNEL(mp_quantize_args, args) {
    const T *x = (const T *)args.x;
    const int32_t aligned = n_aligned(args.x, args.out);
    float scale = q_scale(args.scale, args.scale_type, 0);
    int32_t zero = q_zero(args.zero, &args.type, 0);
    if (z_takes(&args, scale, aligned)) {
        z_packs(&args, scale, zero);
        return;
    }
    K_GRID_LOOP(g, n_groups(args.count)) {
        const int64_t first = g * K_GROUP;
        const int32_t count = n_group_size(first, args.count);
        uint32_t bits[K_GROUP];
        n_pack in;
        n_floats_load(x, first, count, aligned, &in);
        if (args.scales.shared == K_SCALES_BY_GROUP) {
            const int64_t place = q_place(&args.scales, first);
            scale = q_scale(args.scale, args.scale_type, place);
            zero = q_zero(args.zero, &args.type, place);
        }
        for (int k = 0; k < K_GROUP; k++) {
            if (args.scales.shared == K_SCALES_BY_ELEMENT) {
                const int64_t place = q_place(&args.scales, first + (k < count ? k : 0));
                scale = q_scale(args.scale, args.scale_type, place);
                zero = q_zero(args.zero, &args.type, place);
            }
            bits[k] = q_quantize(&args.type, T_load(in.lane[k]), scale, zero);
        }
        n_group_store(args.out, args.type.width, first, count, aligned, bits);
    }
}
