/* dropout.cu - drops elements at random and scales the others; a bias may be added before and a
 * tensor behind. `out` may be x or the residual.
 *
 * A lane has eight elements, which are one byte of a mask of bits: as words of 32 are stored, their
 * bytes follow each other as the elements do.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/philox.h"
#include "kernel/pointwise/pointwise_args.h"

enum { EACH = 8, WORD = 32 };
enum { ALIGNED = sizeof(T) * EACH < 16 ? sizeof(T) * EACH : 16 };

typedef struct K_ALIGN(ALIGNED) d_pack {
    T at[EACH];
} d_pack;
typedef union d_bytes {
    uint8_t at[EACH];
    uint64_t all;
} d_bytes;

/* Elements from `first` on of `from`, which has `count`. */
K_FN d_pack d_read(const T *from, int64_t first, int64_t count) {
    d_pack pack;
    if (first + EACH <= count && (uint64_t)(from + first) % ALIGNED == 0) {
        return *(const d_pack *)(from + first);
    }
    for (int k = 0; k < EACH; k++) {
        pack.at[k] = first + k < count ? from[first + k] : T_store((TC)0);
    }
    return pack;
}

/* The same of a row that is repeated. */
K_FN d_pack d_read_again(const T *row, int64_t first, int64_t columns) {
    int64_t at = first % columns;
    d_pack pack;
    if (at + EACH <= columns) {
        return d_read(row, at, columns);
    }
    for (int k = 0; k < EACH; k++) {
        pack.at[k] = row[at];
        at = at + 1 == columns ? 0 : at + 1;
    }
    return pack;
}

K_FN void d_write(T *to, int64_t first, int64_t count, d_pack pack) {
    if (first + EACH <= count && (uint64_t)(to + first) % ALIGNED == 0) {
        *(d_pack *)(to + first) = pack;
        return;
    }
    for (int k = 0; k < EACH && first + k < count; k++) {
        to[first + k] = pack.at[k];
    }
}

/* Bit k: whether element k of the eight at place `i` stays. */
K_FN uint32_t d_draw(const mp_dropout_args *args, int64_t i) {
    uint32_t stays = 0;
    if (args->ratio == 0) {
        return 0xffu;
    }
    for (int half = 0; half < 2; half++) {
        const k_words words = k_philox(args->seed, args->run, (uint64_t)(2 * i + half));
        for (int k = 0; k < 4; k++) {
            stays |= (uint32_t)(k_uniform_f32(words.at[k]) >= args->ratio) << (4 * half + k);
        }
    }
    return stays;
}

/* Of `here` elements; those beyond have bits of 0. */
K_FN void d_mask(const mp_dropout_args *args, int64_t i, int64_t here, uint32_t stays) {
    const int64_t first = i * EACH;
    uint8_t *bytes = (uint8_t *)args->mask;
    d_bytes flags;
    if (args->mask_kind == K_MASK_BITS) {
        const uint32_t inside = here >= EACH ? 0xffu : here > 0 ? (1u << here) - 1 : 0u;
        bytes[i] = (uint8_t)(stays & inside);
        return;
    }
    if (args->mask_kind == K_MASK_TYPED) {
        for (int k = 0; k < EACH && k < here; k++) {
            ((T *)args->mask)[first + k] = T_store((TC)(stays >> k & 1));
        }
        return;
    }
    for (int k = 0; k < EACH; k++) {
        flags.at[k] = (uint8_t)(stays >> k & 1);
    }
    if (here >= EACH && (uint64_t)(bytes + first) % EACH == 0) {
        *(uint64_t *)(bytes + first) = flags.all;
        return;
    }
    for (int k = 0; k < EACH && k < here; k++) {
        bytes[first + k] = flags.at[k];
    }
}

K_FN void d_elements(const mp_dropout_args *args, int64_t first, uint32_t stays) {
    const TC scale = (TC)1 / ((TC)1 - (TC)args->ratio);
    const d_pack x = d_read((const T *)args->x, first, args->count);
    d_pack bias = x, residual = x, made;
    if (args->bias) {
        bias = d_read_again((const T *)args->bias, first, args->bias_count);
    }
    if (args->residual) {
        residual = d_read((const T *)args->residual, first, args->count);
    }
    for (int k = 0; k < EACH; k++) {
        TC value = T_load(x.at[k]);
        value += args->bias ? T_load(bias.at[k]) : (TC)0;
        value = (stays >> k & 1) != 0 ? value * scale : (TC)0;
        value += args->residual ? T_load(residual.at[k]) : (TC)0;
        made.at[k] = T_store(value);
    }
    d_write((T *)args->out, first, args->count, made);
}

K_KERNEL(mp_dropout_args, args) {
    const int64_t whole = (args.count + WORD - 1) / WORD * (WORD / EACH);
    const int64_t packs = (args.count + EACH - 1) / EACH;
    K_GRID_LOOP(i, args.mask_kind == K_MASK_BITS ? whole : packs) {
        const int64_t here = args.count - i * EACH;
        const uint32_t stays = d_draw(&args, i);
        if (here > 0) {
            d_elements(&args, i * EACH, stays);
        }
        if (args.mask) {
            d_mask(&args, i, here, stays);
        }
    }
}
