/* group.h - what kernel/core/group_matrix.h offers, by exchanges between lanes. Included before the
 * text, behind matrix.h. A product reads its right operand either when it is asked for or when the
 * group waits, by chance, so that one that is written over too soon shows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_LANES_GROUP_H
#define MP_TESTS_LANES_GROUP_H

#define MP_KERNEL_GROUP_MATRIX_H /* instead of it, and of kernel/core/stage_gate.h */
#define MP_KERNEL_STAGE_GATE_H
#define K_GROUP_MATRIX 1

#include "lanes.h"
#include "matrix.h"

#include <chrono>
#include <thread>
#include <type_traits>

/* Addresses in shared memory count from its beginning. */
inline uint32_t __cvta_generic_to_shared(const void *place) {
    return (uint32_t)((const unsigned char *)place - (const unsigned char *)k_shared_bytes());
}

/* Registers that groups give each other: lanes here have what they need. */
#define K_GROUP_LEAVE(count)
#define K_GROUP_TAKE(count)

inline int32_t k_group_number() {
    return (int32_t)threadIdx.x / 128;
}
inline void k_group_meet(int32_t) {
    lane_group_meet();
}
inline void k_place_wait(int32_t place, int32_t lanes) {
    lane_place(place, (unsigned)lanes, true);
}
inline void k_place_pass(int32_t place, int32_t lanes) {
    lane_place(place, (unsigned)lanes, false);
}

/* A gate has its openings, what it is passed for one, and what is left of that. */
inline void k_gate_prepare(uint64_t *gate, uint32_t count) {
    __atomic_store_n(gate, (uint64_t)count << 16 | count, __ATOMIC_RELEASE);
}
inline void k_gate_pass(uint64_t *gate) {
    uint64_t old = __atomic_load_n(gate, __ATOMIC_RELAXED), fresh;
    do {
        fresh = old - 1;
        if ((fresh & 0xffff) == 0) {
            fresh += (UINT64_C(1) << 32) + (fresh >> 16 & 0xffff);
        }
    } while (
        !__atomic_compare_exchange_n(gate, &old, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}
inline void k_gate_pass_with_copies(uint64_t *gate) {
    k_copies_group();
    K_COPIES_WAIT(0);
    k_gate_pass(gate);
}
inline void k_gate_wait(uint64_t *gate, uint32_t turn) {
    while ((__atomic_load_n(gate, __ATOMIC_ACQUIRE) >> 32 & 1) == (turn & 1)) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

inline void k_group_copies_seen() {
}
inline void k_group_begin() {
}
inline uint64_t k_group_operand(uint32_t place) {
    return place >> 4;
}

struct group_product {
    float *c;
    uint32_t a[4];
    uint64_t b;
    void (*multiply)(const group_product &p);
    int batch;
};
inline thread_local std::vector<group_product> group_products;
inline thread_local uint32_t group_chance; /* the same for all lanes of a group */
inline thread_local int group_batch;       /* that products join now */

inline float group_left(uint32_t word, unsigned part, const k_f16 *) {
    return k_load_f16(k_f16{(uint16_t)(word >> part * 16)});
}
inline float group_left(uint32_t word, unsigned part, const k_bf16 *) {
    return __uint_as_float(word >> part * 16 << 16);
}
inline float group_left(uint32_t word, unsigned, const float *) {
    return __uint_as_float(word & 0xffffe000u);
}

/* Element `along` bytes behind the operand's beginning, as the pieces of lines are ordered. */
template <typename E> float group_right(uint64_t operand, unsigned along) {
    const unsigned place = (unsigned)(operand << 4) + along;
    E element;
    memcpy(&element, (const char *)k_shared_bytes() + (place ^ (place >> 7 & 7) << 4),
           sizeof element);
    if constexpr (std::is_same<E, float>::value) {
        return __uint_as_float(__float_as_uint(element) & 0xffffe000u);
    } else if constexpr (std::is_same<E, k_f16>::value) {
        return k_load_f16(element);
    } else {
        return k_load_bf16(element);
    }
}

template <typename E, bool ROWS, unsigned COLUMNS> void group_multiply(const group_product &p) {
    const unsigned pack = 4 / sizeof(E), depth = 8 * pack;
    const unsigned g = lane_number() / 4, t = lane_number() % 4;
    uint32_t all[32][4];
    lane_gather(p.a, all, sizeof p.a);
    for (unsigned i = 0; i < COLUMNS / 2; i++) {
        const unsigned row = g + i / 2 % 2 * 8, column = i / 4 * 8 + t * 2 + i % 2;
        for (unsigned k = 0; k < depth; k++) {
            const unsigned half = k / (depth / 2), lane = k % (depth / 2) / pack;
            const uint32_t word = all[row % 8 * 4 + lane][half * 2 + row / 8];
            const unsigned along =
                ROWS ? k * 128 + column * sizeof(E) : column * 128 + k * sizeof(E);
            p.c[i] += group_left(word, k % pack, (const E *)nullptr) * group_right<E>(p.b, along);
        }
    }
}

template <typename E, bool ROWS, unsigned COLUMNS>
void group_ask(float *c, const uint32_t *a, uint64_t b) {
    group_chance = group_chance * 1664525 + 1013904223;
    const group_product p = {
        c, {a[0], a[1], a[2], a[3]}, b, group_multiply<E, ROWS, COLUMNS>, group_batch};
    if (group_products.empty() && (group_chance >> 16 & 1) != 0) {
        p.multiply(p);
    } else {
        group_products.push_back(p); /* in their order */
    }
}
#define GROUP_ASK(name, E, ROWS, COLUMNS)                                             \
    inline void k_group_##name##_##COLUMNS(float *c, const uint32_t *a, uint64_t b) { \
        group_ask<E, ROWS, COLUMNS>(c, a, b);                                         \
    }
GROUP_ASK(f16, k_f16, false, 32)
GROUP_ASK(f16, k_f16, false, 64)
GROUP_ASK(f16, k_f16, false, 96)
GROUP_ASK(f16, k_f16, false, 128)
GROUP_ASK(f16, k_f16, false, 192)
GROUP_ASK(bf16, k_bf16, false, 32)
GROUP_ASK(bf16, k_bf16, false, 64)
GROUP_ASK(bf16, k_bf16, false, 96)
GROUP_ASK(bf16, k_bf16, false, 128)
GROUP_ASK(bf16, k_bf16, false, 192)
GROUP_ASK(f32, float, false, 32)
GROUP_ASK(f32, float, false, 64)
GROUP_ASK(f32, float, false, 96)
GROUP_ASK(f32, float, false, 128)
GROUP_ASK(f32, float, false, 192)
GROUP_ASK(rows_f16, k_f16, true, 48)
GROUP_ASK(rows_bf16, k_bf16, true, 48)
GROUP_ASK(rows_f16, k_f16, true, 64)
GROUP_ASK(rows_bf16, k_bf16, true, 64)

/* Those of the batches before `batch`. */
inline void group_finish(int batch) {
    size_t done = 0;
    while (done < group_products.size() && group_products[done].batch < batch) {
        const group_product &p = group_products[done++];
        p.multiply(p);
    }
    group_products.erase(group_products.begin(), group_products.begin() + (long)done);
}
inline void k_group_batch() {
    group_batch++;
}
inline void k_group_wait() {
    group_finish(group_batch);
}
inline void k_group_wait_but_one() {
    group_finish(group_batch - 1);
}
inline void k_group_hold(uint32_t) {
}
inline void k_group_end() {
    k_group_batch();
    k_group_wait();
}

#endif
