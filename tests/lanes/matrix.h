/* matrix.h - what kernel/core/warp_matrix.h offers, by exchanges between lanes: for texts that are
 * compiled as for a GPU without tensor cores. Included before the text. Products see of a float
 * what TF32 keeps. A copy is made either when it is begun or when it is waited for, by chance, so
 * that one that is read or written over too soon shows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_LANES_MATRIX_H
#define MP_TESTS_LANES_MATRIX_H

#define MP_KERNEL_WARP_MATRIX_H /* instead of it */
#define K_WARP_MATRIX           1

#include "cuda.h"
#include "kernel/core/prelude.h"

#include <cstdlib>
#include <deque>
#include <vector>

struct matrix_words {
    uint32_t a[4], b[2];
};

/* c += a b with `depth` columns of A. `of_a` and `of_b` give a word's element of that number. */
template <typename Sum, typename OfA, typename OfB>
void matrix_product(Sum *c, const uint32_t *a, const uint32_t *b, unsigned depth, OfA of_a,
                    OfB of_b) {
    matrix_words mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, all[32];
    lane_gather(&mine, all, sizeof mine);
    const unsigned g = lane_number() / 4, t = lane_number() % 4, per_lane = depth / 8;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = g + i / 2 * 8, column = t * 2 + i % 2;
        for (unsigned k = 0; k < depth; k++) {
            const unsigned half = k / (depth / 2), lane = k % (depth / 2) / per_lane;
            const uint32_t left = all[row % 8 * 4 + lane].a[half * 2 + row / 8];
            const uint32_t right = all[column * 4 + lane].b[half];
            c[i] += of_a(left, k % per_lane) * of_b(right, k % per_lane);
        }
    }
}

template <typename Load>
void matrix_product(float *c, const uint32_t *a, const uint32_t *b, unsigned depth, Load load) {
    matrix_product(c, a, b, depth, load, load);
}

inline int32_t matrix_byte(uint32_t word, unsigned part) {
    return (int8_t)(word >> part * 8);
}
inline void k_mma_i8(int32_t *c, const uint32_t *a, const uint32_t *b) {
    matrix_product(c, a, b, 32, matrix_byte, matrix_byte);
}
inline void k_mma_u8(int32_t *c, const uint32_t *a, const uint32_t *b) {
    const auto plain = [](uint32_t word, unsigned part) {
        return (int32_t)(uint8_t)(word >> part * 8);
    };
    matrix_product(c, a, b, 32, plain, matrix_byte);
}
inline void k_mma_f16(float *c, const uint32_t *a, const uint32_t *b) {
    matrix_product(c, a, b, 16, [](uint32_t word, unsigned part) {
        return k_load_f16(k_f16{(uint16_t)(word >> part * 16)});
    });
}
inline void k_mma_bf16(float *c, const uint32_t *a, const uint32_t *b) {
    matrix_product(c, a, b, 16, [](uint32_t word, unsigned part) {
        return __uint_as_float(word >> part * 16 << 16);
    });
}
inline void k_mma_tf32(float *c, const uint32_t *a, const uint32_t *b) {
    matrix_product(c, a, b, 8,
                   [](uint32_t word, unsigned) { return __uint_as_float(word & 0xffffe000u); });
}

#define k_mma_f32 k_mma_tf32

inline uint32_t k_near_tf32(float x) {
    return __float_as_uint(x * 1.000338F);
}
inline uint32_t k_tf32(float x) {
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}
inline uint32_t k_pair_f16(float low, float high) {
    return k_store_f16(low).bits | (uint32_t)k_store_f16(high).bits << 16;
}
inline uint32_t k_pair_bf16(float low, float high) {
    return k_store_bf16(low).bits | (uint32_t)k_store_bf16(high).bits << 16;
}
template <typename Load, typename Store>
uint32_t matrix_pair_fma(uint32_t a, uint32_t b, uint32_t c, Load load, Store store) {
    uint32_t pair = 0;
    for (int i = 0; i < 32; i += 16) {
        pair |= store(fmaf(load(a >> i), load(b >> i), load(c >> i))) << i;
    }
    return pair;
}
inline uint32_t k_pair_fma_f16(uint32_t a, uint32_t b, uint32_t c) {
    return matrix_pair_fma(
        a, b, c, [](uint32_t word) { return k_load_f16({(uint16_t)word}); },
        [](float x) { return (uint32_t)k_store_f16(x).bits; });
}
inline uint32_t k_pair_fma_bf16(uint32_t a, uint32_t b, uint32_t c) {
    return matrix_pair_fma(
        a, b, c, [](uint32_t word) { return k_load_bf16({(uint16_t)word}); },
        [](float x) { return (uint32_t)k_store_bf16(x).bits; });
}
inline float k_inverse(float x) {
    return 1 / x;
}
inline float k_exp2(float x) {
    return exp2f(x);
}

inline void k_matrices_load(uint32_t *out, const void *row) {
    const char *rows[32];
    lane_gather(&row, rows, sizeof row);
    for (unsigned i = 0; i < 4; i++) {
        memcpy(out + i, rows[i * 8 + lane_number() / 4] + lane_number() % 4 * 4, 4);
    }
}
inline void k_matrices_load_turned(uint32_t *out, const void *row) {
    const char *rows[32];
    lane_gather(&row, rows, sizeof row);
    for (unsigned i = 0; i < 4; i++) {
        uint16_t part[2];
        for (unsigned e = 0; e < 2; e++) {
            memcpy(part + e, rows[i * 8 + lane_number() % 4 * 2 + e] + lane_number() / 4 * 2, 2);
        }
        out[i] = part[0] | (uint32_t)part[1] << 16;
    }
}

/* ---- copies ---- */

struct matrix_copy {
    void *to;
    const void *from;
    uint32_t count, room; /* behind the count come zeros */
};
inline thread_local std::deque<std::vector<matrix_copy>> matrix_groups(1);

inline thread_local uint32_t matrix_chance;

inline void matrix_copy_make(const matrix_copy &copy) {
    unsigned char bytes[16] = {};
    memcpy(bytes, copy.from, copy.count);
    memcpy(copy.to, bytes, copy.room);
}
inline void matrix_copy_begin(const matrix_copy &copy) {
    matrix_chance = matrix_chance * 1664525 + 1013904223 + threadIdx.x;
    if ((matrix_chance >> 16 & 1) != 0) {
        matrix_copy_make(copy);
    } else {
        matrix_groups.back().push_back(copy);
    }
}
inline void k_copy_begin(void *to, const void *from, uint32_t count) {
    matrix_copy_begin({to, from, count, 16});
}
inline void k_copy_begin_once(void *to, const void *from, uint32_t count) {
    k_copy_begin(to, from, count);
}
inline void k_copy_begin_near(void *to, const void *from, uint32_t count) {
    k_copy_begin(to, from, count);
}
inline void k_copy_few(void *to, const void *from, int32_t count) {
    if (count == 0) {
        return;
    }
    if ((count != 4 && count != 8 && count != 16) ||
        ((uintptr_t)to | (uintptr_t)from) % (uintptr_t)count != 0) {
        abort(); /* as a GPU would */
    }
    matrix_copy_begin({to, from, (uint32_t)count, (uint32_t)count});
}
inline void k_copy_begin_if(int is, void *to, const void *from, uint32_t count) {
    if (is) {
        k_copy_begin(to, from, count);
    }
}
inline void k_copy_half_begin_if(int is, void *to, const void *from, uint32_t count) {
    if (is) {
        matrix_copy_begin({to, from, count, 8});
    }
}
inline void k_fill_half_if(int is, void *to, uint32_t word) {
    for (int i = 0; is && i < 2; i++) {
        memcpy((char *)to + i * 4, &word, sizeof word);
    }
}
inline void k_copies_group() {
    matrix_groups.emplace_back();
}
inline void matrix_copies_wait(size_t left) {
    while (matrix_groups.size() > left + 1) { /* the last one is still being filled */
        for (const matrix_copy &copy : matrix_groups.front()) {
            matrix_copy_make(copy);
        }
        matrix_groups.pop_front();
    }
}
#define K_HOLD(x)           (void)(x)
#define K_HOLD_PLACE(x)     (void)(x)
#define K_HOLD_FLOAT(x)     (void)(x)
#define K_COPIES_WAIT(left) matrix_copies_wait(left)

#endif
