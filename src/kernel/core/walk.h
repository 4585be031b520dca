/* walk.h - an output made in order, in packs of neighbouring elements, from inputs that are
 * repeated as broadcasting asks.
 *
 * A lane makes a pack of 16 bytes of T. It divides once to find where the pack begins in
 * each input. Where a row (the innermost dimension) ends within a pack, the next row goes on from
 * there; rows shorter than a pack are made by single elements, unless all rows are alike, as is
 * what is left behind the last pack. An input is read at once where it is contiguous and aligned,
 * by one element a row where it is repeated, and else by elements.
 *
 *     K_WALK_PACK(t_pack, T)
 *     K_WALK_READ(t_read, t_pack, T)
 *
 *     const int64_t packs = k_walk_packs(&args.walk, K_WALK_SKEW(out, T));
 *     const int plain = k_walk_is_plain(&args.walk, 2, K_WALK_SKEW(x, T) | K_WALK_SKEW(y, T));
 *     K_GRID_LOOP(i, packs) {
 *         t_pack left, right;
 *         if (plain) {
 *             left = t_read_plain(x, i);
 *             right = t_read_plain(y, i);
 *         } else {
 *             const k_spot spot = k_spot_of(&args.walk, i, 2);
 *             left = t_read(x, &args.walk, &spot, 0);
 *             right = t_read(y, &args.walk, &spot, 1);
 *         }
 *         ...
 *     }
 *     K_GRID_LOOP(i, args.walk.count - packs * K_WALK) {
 *         uint32_t at[2];
 *         k_walk_to(&args.walk, packs * K_WALK + i, 2, at);
 *         ... x[at[0]], y[at[1]] ...
 *     }
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_WALK_H
#define MP_KERNEL_WALK_H

#include "kernel/core/index.h"
#include "kernel/core/index_args.h"
#include "kernel/core/prelude.h"

/* Elements of a pack. A CPU's compiler makes vectors of the loop over a long one. */
#if K_HOST
enum { K_WALK = 32 };
#else
enum { K_WALK = 16 / sizeof(T) };
#endif
#define K_WALK_BYTES(type)    (sizeof(type) * K_WALK)
#define K_WALK_ALIGN(type)    (K_WALK_BYTES(type) < 16 ? K_WALK_BYTES(type) : 16)
#define K_WALK_SKEW(at, type) ((uint64_t)(at) % K_WALK_ALIGN(type))

/* Where a pack lies. */
typedef struct k_spot {
    uint32_t first;              /* its first element */
    uint32_t column;             /* where in its row that is */
    uint32_t cut;                /* elements before the next row begins; all if none does */
    uint32_t at[K_WALK_VIEWS];   /* the first element in each view */
    uint32_t next[K_WALK_VIEWS]; /* the next row in each view, where it begins in the pack */
} k_spot;

/* Whether each view is whole or one element, which a CPU's compiler makes vectors of without packs.
 */
K_FN int k_walk_is_flat(const k_walk *walk) {
    return K_HOST && walk->length == walk->count;
}

/* Packs of the output, none where its address or its rows do not suit. */
K_FN int64_t k_walk_packs(const k_walk *walk, uint64_t skew) {
    const int suits = walk->length >= K_WALK || walk->one_row;
    return skew == 0 && suits ? walk->count / K_WALK : 0;
}

/* Whether each view is whole, and its packs are aligned where its address has no skew: nothing is
 * to be found out of a pack then, and the packs of all views are asked for at once. */
K_FN int k_walk_is_plain(const k_walk *walk, int32_t views, uint64_t skew) {
    const uint32_t all = (1u << views) - 1;
    return skew == 0 && (walk->whole & all) == all;
}

/* Where row `row` begins in each view. */
K_FN void k_walk_row(const k_walk *walk, uint32_t row, int32_t views, uint32_t *at) {
    const int32_t last = walk->levels - 1;
    for (int32_t v = 0; v < views; v++) {
        at[v] = 0;
    }
    K_ONE_COPY
    for (int32_t d = 0; d < last; d++) {
        const k_walk_level *level = &walk->level[d];
        const uint32_t outer = k_divide(row, level->divider);
        for (int32_t v = 0; v < views; v++) {
            at[v] += (row - outer * level->dim) * level->stride[v];
        }
        row = outer;
    }
    for (int32_t v = 0; v < views; v++) {
        at[v] += row * walk->level[last].stride[v];
    }
}

/* Where element `i` lies in each view. */
K_FN void k_walk_to(const k_walk *walk, uint32_t i, int32_t views, uint32_t *at) {
    const uint32_t row = k_divide(i, walk->by_length);
    k_walk_row(walk, row, views, at);
    for (int32_t v = 0; v < views; v++) {
        at[v] += walk->repeated >> v & 1 ? 0 : i - row * walk->length;
    }
}

/* Of pack `i`. */
K_FN k_spot k_spot_of(const k_walk *walk, int64_t i, int32_t views) {
    k_spot spot;
    spot.first = (uint32_t)i * K_WALK;
    const uint32_t row = k_divide(spot.first, walk->by_length);
    const uint32_t column = spot.first - row * walk->length;
    const uint32_t left = walk->length - column;
    k_walk_row(walk, row, views, spot.at);
    for (int32_t v = 0; v < views; v++) {
        spot.at[v] += walk->repeated >> v & 1 ? 0 : column;
        spot.next[v] = 0;
    }
    spot.column = column;
    spot.cut = left < K_WALK ? left : K_WALK;
    if (left < K_WALK) {
        k_walk_row(walk, row + 1, views, spot.next);
    }
    return spot;
}

/* What a pack is loaded by: words, or less where it is less: two bytes beside two elements of 8. */
#if K_HOST
#define K_WALK_WORD(type) uint32_t
#else
template <int bytes> struct k_walk_word { typedef uint32_t of; };
template <> struct k_walk_word<2> { typedef uint16_t of; };
#define K_WALK_WORD(type) typename k_walk_word<K_WALK_BYTES(type)>::of
#endif

/* A pack of that type. Its words are what is loaded at once: elements of less than a word would be
 * taken apart right behind the load, and what follows would wait for it. */
#define K_WALK_PACK(name, type)                                 \
    typedef union K_ALIGN(K_WALK_ALIGN(type)) name {            \
        type lane[K_WALK];                                      \
        struct {                                                \
            K_WALK_WORD(type)                                   \
            at[K_WALK_BYTES(type) / sizeof(K_WALK_WORD(type))]; \
        } words;                                                \
    } name;

/* Defines read(x, walk, spot, v), which reads the pack of view v, and read_plain(x, i), which reads
 * pack `i` of a view where all are plain. */
#define K_WALK_READ(read, pack_type, type)                                                  \
    K_FN pack_type read##_plain(const type *x, int64_t i) {                                 \
        pack_type pack;                                                                     \
        pack.words = ((const pack_type *)x)[i].words;                                       \
        return pack;                                                                        \
    }                                                                                       \
    K_FN pack_type read(const type *x, const k_walk *walk, const k_spot *spot, int32_t v) { \
        const int whole = (walk->whole >> v & 1) != 0;                                      \
        const int repeated = (walk->repeated >> v & 1) != 0;                                \
        const uint32_t cut = whole ? K_WALK : spot->cut;                                    \
        const uint32_t at = whole ? spot->first : spot->at[v];                              \
        const uint32_t next = spot->next[v] - cut; /* wraps, and back when k is added */    \
        const int at_once = cut == K_WALK && !repeated;                                     \
        pack_type pack;                                                                     \
        if (at_once && K_WALK_SKEW(x + at, type) == 0) {                                    \
            pack.words = ((const pack_type *)(x + at))->words;                              \
        } else if (repeated) {                                                              \
            const type one = x[at];                                                         \
            for (uint32_t k = 0; k < K_WALK; k++) {                                         \
                pack.lane[k] = one;                                                         \
            }                                                                               \
            if (cut < K_WALK) {                                                             \
                const type other = x[spot->next[v]];                                        \
                for (uint32_t k = 0; k < K_WALK; k++) {                                     \
                    pack.lane[k] = k < cut ? one : other;                                   \
                }                                                                           \
            }                                                                               \
        } else if (!whole && walk->length < K_WALK) { /* the one row, again and again */    \
            uint32_t column = spot->column;                                                 \
            for (uint32_t k = 0; k < K_WALK; k++) {                                         \
                pack.lane[k] = x[column];                                                   \
                column = column + 1 < walk->length ? column + 1 : 0;                        \
            }                                                                               \
        } else {                                                                            \
            for (uint32_t k = 0; k < K_WALK; k++) {                                         \
                pack.lane[k] = x[(k < cut ? at : next) + k];                                \
            }                                                                               \
        }                                                                                   \
        return pack;                                                                        \
    }

#endif
