/* dequantize.cu - (x - zero) * scale of a quantised type. Bound by memory.
 *
 * Integers of 8 and 4 bits of which neighbours share a scale are read by packs, each of which
 * becomes 16 bytes, and a lane has several on their way.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/quantize.h"

/* ---- packs ---- */

enum { EACH = 16 / sizeof(T), AT_ONCE = K_HOST ? 1 : K_DEQUANTIZE_AT_ONCE };

typedef struct K_ALIGN(16) d_pack {
    T lane[EACH];
} d_pack;

/* What a pack is made of, as it lies there: loads need not wait for each other. */
typedef struct d_source {
    uint64_t codes;
    uint32_t scale, zero;
    uint32_t zero_at; /* its first bit in what was read */
} d_source;

K_FN uint64_t d_codes(const void *x, int32_t width, int64_t pack) {
    if (width == 8) {
        return EACH == 8 ? ((const uint64_t *)x)[pack] : ((const uint32_t *)x)[pack];
    }
    return EACH == 8 ? ((const uint32_t *)x)[pack] : ((const uint16_t *)x)[pack];
}

K_FN d_source d_load(const mp_quantize_args *args, int64_t pack) {
    const int64_t place = q_place_near(&args->scales, (uint32_t)pack * EACH);
    const int32_t half = args->type.width == 4;
    d_source from;
    from.codes = d_codes(args->x, args->type.width, pack);
    from.scale = q_scale_bits(args->scale, args->scale_type, place);
    from.zero = args->zero ? ((const uint8_t *)args->zero)[place >> half] : 0;
    from.zero_at = half ? (place & 1) * 4 : 0;
    return from;
}

/* A code becomes the last bits of a float of 2^23, and so does the zero point: their difference is
 * exact. The sign's bit of signed codes is turned over, which moves both alike. */
K_FN d_pack d_made(const mp_quantize_args *args, d_source from) {
    const uint32_t width = (uint32_t)args->type.width, mask = (1u << width) - 1;
    const uint32_t turned =
        0x4b000000u ^ (args->type.kind == K_NARROW_SIGNED ? 1u << (width - 1) : 0);
    const float scale = q_scale_value(from.scale, args->scale_type);
    const float zero = k_float_of_bits((from.zero >> from.zero_at & mask) ^ turned);
    d_pack made;
    K_UNROLL
    for (uint32_t k = 0; k < EACH; k++) {
        const uint32_t code = (uint32_t)(from.codes >> k * width) & mask;
        made.lane[k] = T_store((k_float_of_bits(code ^ turned) - zero) * scale);
    }
    return made;
}

/* How many there are. */
K_FN int64_t d_packs(const mp_quantize_args *args) {
    const int by_pack = args->type.kind <= K_NARROW_SIGNED && args->type.width <= 8 &&
                        args->type.width >= 4 && args->scales.shared != K_SCALES_BY_ELEMENT &&
                        !args->scales.wide && n_aligned(args->x, args->out);
    return by_pack ? args->count / K_GROUP * (K_GROUP / EACH) : 0;
}

/* Each lane's packs are those of as many parts of the tensor. */
K_FN void by_packs(const mp_quantize_args *args, int64_t packs) {
    const int64_t part = (packs + AT_ONCE - 1) / AT_ONCE;
    K_GRID_LOOP(i, part) {
        d_source from[AT_ONCE];
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t pack = i + k * part;
            from[k] = d_load(args, pack < packs ? pack : i);
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            if (i + k * part < packs) {
                ((d_pack *)args->out)[i + k * part] = d_made(args, from[k]);
            }
        }
    }
}

/* ---- any type, and what is left ---- */

K_FN void by_groups(const mp_quantize_args *args, int64_t done) {
    T *out = (T *)args->out;
    const int32_t aligned = n_aligned(args->x, args->out);
    const int32_t whole = args->type.kind <= K_NARROW_SIGNED;
    float scale = q_scale(args->scale, args->scale_type, 0);
    int32_t zero = q_zero(args->zero, &args->type, 0);
    K_GRID_LOOP(g, n_groups(args->count - done)) {
        const int64_t first = done + g * K_GROUP;
        const int32_t count = n_group_size(first, args->count);
        uint32_t bits[K_GROUP];
        n_pack result;
        n_group_load(args->x, args->type.width, first, count, aligned, bits);
        if (args->scales.shared == K_SCALES_BY_GROUP) {
            const int64_t place = q_place(&args->scales, first);
            scale = q_scale(args->scale, args->scale_type, place);
            zero = q_zero(args->zero, &args->type, place);
        }
        for (int k = 0; k < K_GROUP; k++) {
            if (args->scales.shared == K_SCALES_BY_ELEMENT) {
                const int64_t place = q_place(&args->scales, first + (k < count ? k : 0));
                scale = q_scale(args->scale, args->scale_type, place);
                zero = q_zero(args->zero, &args->type, place);
            }
            const int32_t moved =
                (int32_t)((uint32_t)n_whole(&args->type, bits[k]) - (uint32_t)zero);
            const float value = whole ? (float)moved : n_from_bits(&args->type, bits[k]);
            result.lane[k] = T_store(value * scale);
        }
        n_floats_store(out, first, count, aligned, &result);
    }
}

K_KERNEL(mp_quantize_args, args) {
    const int64_t packs = d_packs(&args);
    by_packs(&args, packs);
    if (packs * EACH < args.count) {
        by_groups(&args, packs * EACH);
    }
}
