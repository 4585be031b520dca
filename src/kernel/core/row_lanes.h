/* row_lanes.h - rows of contiguous elements shared by groups of lanes, each of which may keep its
 * part of the row in registers.
 *
 * A group is `width` neighbouring lanes, a power of two: part of a warp, or the whole block. All
 * groups of a block take the same number of rounds, so that every lane comes to each barrier; a
 * group without a row has a row of no elements.
 *
 * A row is seen as the packs of 16 aligned bytes that it touches, wherever it begins:
 *
 *      |. . x x|x x x x|x x x x|x . . .|      packs of 4 elements; shift 2, end 13
 *
 * Packs inside are read at once, the elements of the first and the last one by one. A long row is
 * taken in spans of as many packs as the group can keep.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROW_LANES_H
#define MP_KERNEL_ROW_LANES_H

#include "kernel/core/block.h"
#include "kernel/core/index_args.h"

/* On the emulated device packs may be longer, and so may be what a lane keeps: what is done once
 * for each weighs less. A kernel that keeps to the spans below asks for that. */
#if K_HOST && defined(K_LONG_PACKS)
enum { K_PACK = 16, K_KEEP = 1024 };
#else
enum {
    K_PACK = 16 / sizeof(T),                               /* elements of 16 bytes */
    K_KEEP = sizeof(T) == 8 ? K_ROW_KEEP / 4 : K_ROW_KEEP, /* elements that a lane keeps */
};
#endif
enum { K_KEEP_PACKS = K_KEEP / K_PACK };

/* Its words are what is moved: elements of 16 bits would be taken apart and put together again. */
typedef union K_ALIGN(16) k_pack {
    T at[K_PACK];
    struct {
        uint32_t at[sizeof(T) * K_PACK / 4];
    } words;
} k_pack;

/* ---- spans ---- */

/* A lane's part of a span. Positions count from the first element of the lane's first pack; those
 * in [start, end) are the row's. */
typedef struct k_span {
    int64_t at; /* where that element is from the row's first one */
    int32_t start, end;
    int32_t step; /* from one pack to the next */
    int32_t all;  /* the end, counted from the first pack of the group's first lane */
} k_span;

/* By how many elements what is at `x` misses 16 bytes. */
K_FN int32_t k_row_shift(const void *x) {
    return (int32_t)((uint64_t)x % 16 / sizeof(T));
}

/* The same span, which the compiler knows nothing of: what follows from it is computed again for
 * each use of the row and takes no registers in between. */
K_FN k_span k_span_anew(k_span s) {
#if !K_HOST
    asm volatile("" : "+r"(s.start), "+r"(s.end), "+r"(s.step));
#endif
    return s;
}

/* The span that begins `from` elements after the first pack of a row; `from` is a multiple of what
 * a group keeps. */
K_FN k_span k_span_at(int32_t shift, int64_t columns, int64_t from, uint32_t lane, uint32_t width) {
    k_span s;
    const int32_t first = (int32_t)lane * K_PACK, most = (int32_t)width * K_KEEP;
    const int64_t left = columns > 0 ? columns + shift - from : 0;
    s.all = left < most ? (int32_t)left : most;
    s.at = from - shift + first;
    s.start = (from == 0 ? shift : 0) - first;
    s.end = s.all - first;
    s.step = (int32_t)width * K_PACK;
    return k_span_anew(s);
}

/* Visits the packs of a span that this lane keeps. The loop ends at the same pack for all lanes of
 * the group: those at the row's end may have none of it. */
#define K_SPAN_LOOP(k, s) \
    K_UNROLL              \
    for (int32_t k = 0; k < K_KEEP_PACKS && k * (s)->step < (s)->all; k++)

/* On a GPU visits those too that there are none of, so that all of what is kept has a value and the
 * registers do not depend on where the loop ended. */
#if K_HOST
#define K_PACK_LOOP(k, s) K_SPAN_LOOP(k, s)
#else
#define K_PACK_LOOP(k, s) \
    K_UNROLL              \
    for (int32_t k = 0; k < K_KEEP_PACKS; k++)
#endif

K_FN int k_in_row(const k_span *s, int32_t e) {
    return e >= s->start && e < s->end;
}

/* How a row may be read: by elements; by packs but for its ends; it is all packs, which only a plan
 * can know. A constant where it is K_WHOLE. */
enum { K_SINGLE, K_INSIDE, K_WHOLE };

K_FN int k_as_pack(const k_span *s, int32_t e, int how) {
    return how == K_WHOLE || (how == K_INSIDE && e >= s->start && e + K_PACK <= s->end);
}

/* Pack `k` of what `from` has at the span's place; `none` where the row has no element. */
K_FN k_pack k_span_pack(const k_span *s, const T *from, int32_t k, int how, T none) {
    const int32_t e = k * s->step;
    const T *x = from + (uint32_t)e;
    k_pack empty, pack;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        empty.at[i] = none;
    }
    pack.words = empty.words;
    if (e >= s->end) {
        return pack;
    }
    if (k_as_pack(s, e, how)) {
        pack.words = ((const k_pack *)x)->words;
        return pack;
    }
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        if (k_in_row(s, e + i)) {
            pack.at[i] = x[i];
        }
    }
    return pack;
}

/* 8, 16 or 32 aligned bytes on a GPU. Said in C, the compiler joins it with the stores of elements
 * beside it and makes single ones of both. */
K_FN void k_put_bytes(void *to, const void *bytes, int size) {
#if !K_PTX
    __builtin_memcpy(to, bytes, (unsigned long)size);
#else
    const uint32_t *word = (const uint32_t *)bytes;
    if (size == 8) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};"
                     :
                     : "l"(to), "r"(word[0]), "r"(word[1])
                     : "memory");
    }
    K_UNROLL
    for (int i = 0; i < size / 16; i++) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"((uint32_t *)to + i * 4), "r"(word[i * 4]), "r"(word[i * 4 + 1]),
                       "r"(word[i * 4 + 2]), "r"(word[i * 4 + 3])
                     : "memory");
    }
#endif
}

K_FN void k_span_put(const k_span *s, T *to, int32_t k, int how, k_pack pack) {
    const int32_t e = k * s->step;
    T *out = to + (uint32_t)e;
    if (e >= s->end) {
        return;
    }
    if (k_as_pack(s, e, how)) {
        k_put_bytes(out, &pack, sizeof(k_pack));
        return;
    }
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        if (k_in_row(s, e + i)) {
            out[i] = pack.at[i];
        }
    }
}

/* ---- groups ---- */

/* Combines over the lanes of a group; every lane of the block calls. Groups of more than 32 lanes
 * are the block. */
#if K_HOST
#define K_GROUP_REDUCE(name, type, block, combine)                \
    K_FN type name(type value, uint32_t width) {                  \
        if (width == 1) {                                         \
            return value;                                         \
        }                                                         \
        type *slot = (type *)k_host_slots();                      \
        if (width == blockDim.x) {                                \
            return block(value);                                  \
        }                                                         \
        const uint32_t lane = threadIdx.x;                        \
        slot[lane] = value;                                       \
        __syncthreads();                                          \
        for (uint32_t half = width / 2; half > 0; half /= 2) {    \
            if (lane % width < half) {                            \
                const type a = slot[lane], b = slot[lane + half]; \
                slot[lane] = combine;                             \
            }                                                     \
            __syncthreads();                                      \
        }                                                         \
        value = slot[lane - lane % width];                        \
        __syncthreads();                                          \
        return value;                                             \
    }
#else
#define K_GROUP_REDUCE(name, type, block, combine)                               \
    K_FN type name(type value, uint32_t width) {                                 \
        if (width > 32) {                                                        \
            return block(value);                                                 \
        }                                                                        \
        for (uint32_t half = width / 2; half > 0; half /= 2) {                   \
            const type a = value, b = __shfl_xor_sync(0xffffffffu, value, half); \
            value = combine;                                                     \
        }                                                                        \
        return value;                                                            \
    }
#endif
K_GROUP_REDUCE(k_group_sum, K_SUM, k_block_sum, a + b)
K_GROUP_REDUCE(k_group_max, K_SUM, k_block_max, a != a ? a : b != b ? b : a > b ? a : b)

typedef struct k_round {
    uint32_t lane, width; /* within the group */
    int64_t group, step;  /* the first row of this group, and how many rows a round of all takes */
    int64_t first;        /* row of the block's first group: while it is below `rows`, all go on */
    int64_t groups;       /* of the block */
} k_round;

/* Which power of two. */
K_FN uint32_t k_log2(uint32_t power) {
#if K_HOST
    return (uint32_t)__builtin_ctz(power);
#else
    return 31 - __clz(power);
#endif
}

K_FN k_round k_rounds(int32_t width) {
    k_round t;
    t.width = (uint32_t)width < blockDim.x ? (uint32_t)width : blockDim.x;
    const uint32_t shift = k_log2(t.width);
    t.groups = blockDim.x >> shift;
    t.lane = threadIdx.x & (t.width - 1);
    t.first = (int64_t)blockIdx.x * t.groups;
    t.group = threadIdx.x >> shift;
    t.step = (int64_t)gridDim.x * t.groups;
    return t;
}

/* Visits the rows of the first group of this block, whatever rows there are for the others: row
 * `first` + t.group is this lane's. On the emulated device a block takes neighbours. */
#if K_HOST
#define K_ROUND_LOOP(first, t, rows)                                \
    for (int64_t first = k_round_edge((t).groups, (rows), 0),       \
                 first##_end = k_round_edge((t).groups, (rows), 1); \
         first < first##_end; first += (t).groups)

K_FN int64_t k_round_edge(int64_t groups, int64_t rows, int64_t after) {
    return k_share((rows + groups - 1) / groups, blockIdx.x + after, gridDim.x) * groups;
}
#else
#define K_ROUND_LOOP(first, t, rows) \
    for (int64_t first = (t).first; first < (rows); first += (t).step)
#endif

#endif
