/* argmax_rows.cu - where in each row of neighbours the best element is, each row by a group of
 * lanes; of long rows, pieces are searched first and what was found is merged in a second launch,
 * and each of many short ones is a lane's. As ONNX Runtime's CPU provider has it, a NaN never wins,
 * but one in the first place does.
 *
 * A lane sees its elements in the order of the row, so that among equals the first stays because
 * nothing equal replaces it, or the last is found because what is equal does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/row_lanes.h"
#include "kernel/rows/sort_args.h"

enum { AT_ONCE = K_HOST ? 1 : sizeof(T) == 1 ? 2 : 4 }; /* packs on their way to a lane */

#define NOWHERE (~(uint32_t)0)

/* What C compares elements as. Where the smallest is asked for, values are turned round, so that
 * the largest is the best. */
#if K_HOST
typedef __typeof__((TC)0 + 0) rank;
#else
typedef decltype((TC)0 + 0) rank;
#endif

K_BLOCK_REDUCE(block_max, rank, a > b ? a : b)
K_GROUP_REDUCE(group_max, rank, block_max, a > b ? a : b)
K_BLOCK_REDUCE(block_min_u32, uint32_t, a < b ? a : b)
K_GROUP_REDUCE(group_min_u32, uint32_t, block_min_u32, a < b ? a : b)
K_GROUP_REDUCE(group_min_u64, uint64_t, k_block_min_u64, a < b ? a : b)

/* The best so far; where nothing has won, `place` is NOWHERE. */
typedef struct found {
    rank best;
    uint32_t place;
} found;

/* What was found in a piece of a row. A `tie` is the smaller the better, and all ones for nothing.
 */
typedef struct piece_found {
    rank best;
    uint64_t tie;
} piece_found;

/* Below everything, or equal to the lowest there is. */
K_FN rank lowest(void) {
#if T_FLOAT
    return -(rank)K_INF;
#else
    return T_SIGNED || sizeof(rank) > sizeof(T) ? (rank)((uint64_t)1 << (sizeof(rank) * 8 - 1)) : 0;
#endif
}

K_FN rank turned(const mp_argmax_args *args, T element) {
#if T_FLOAT
    return T_load(element) * (args->smallest ? -(rank)1 : (rank)1);
#else
    return (rank)element ^ (args->smallest ? (rank)-1 : (rank)0);
#endif
}

K_FN rank higher(rank best, rank x, int wins) {
#if T_FLOAT && !K_HOST
    (void)wins;
    return K_M(fmax)(best, x); /* which does not wait for the comparison; of a NaN: `best` */
#else
    return wins ? x : best;
#endif
}

K_FN found nothing(void) {
    found f;
    f.best = lowest();
    f.place = NOWHERE;
    return f;
}

/* An element behind all those seen. `last`, here and below: whether args->last asks for the last of
 * equals, as a constant, without which each comparison would be two. */
K_FN void see(const mp_argmax_args *args, found *f, T element, uint32_t place, int last) {
    const rank x = turned(args, element);
    const int wins = last ? x >= f->best : x > f->best;
    f->place = wins ? place : f->place;
    f->best = higher(f->best, x, wins);
}

K_FN void see_pack(const mp_argmax_args *args, found *f, k_pack pack, uint32_t place, int last) {
    found mine;
    mine.best = f->best;
    mine.place = NOWHERE;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        see(args, &mine, pack.at[i], (uint32_t)i, last);
    }
    f->best = mine.best;
    f->place = mine.place == NOWHERE ? f->place : place + mine.place;
}

K_FN uint32_t tie_of(const mp_argmax_args *args, uint32_t place) {
    return place == NOWHERE ? NOWHERE : place ^ ((uint32_t)args->last & 0x7fffffff);
}

/* An element anywhere. */
K_FN void see_apart(const mp_argmax_args *args, found *f, T element, uint32_t place, int last) {
    found mine = nothing();
    see(args, &mine, element, place, last);
    const int same = mine.best == f->best;
    const int wins =
        mine.best > f->best || (same && tie_of(args, mine.place) < tie_of(args, f->place));
    f->best = wins ? mine.best : f->best;
    f->place = wins ? mine.place : f->place;
}

/* This lane's part of `count` neighbours from x on: packs of 16 aligned bytes, then what is before
 * and behind them. Places count from the first of x. */
K_FN found search(const mp_argmax_args *args, const T *x, int32_t count, k_round t, int last) {
    const int32_t shift = k_row_shift(x), step = (int32_t)t.width;
    const int32_t end = count + shift, packed = end / K_PACK;
    const k_pack *packs = (const k_pack *)(x - shift);
    found f = nothing();
    k_pack pack[AT_ONCE];
    int32_t i = (shift > 0) + (int32_t)t.lane;
    for (; i + (AT_ONCE - 1) * step < packed; i += AT_ONCE * step) {
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            pack[k] = packs[i + k * step];
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            see_pack(args, &f, pack[k], (uint32_t)((i + k * step) * K_PACK - shift), last);
        }
    }
    if (i < packed) {
        K_UNROLL
        for (int k = 0; k < AT_ONCE - 1; k++) {
            pack[k] = packs[i + k * step < packed ? i + k * step : i];
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE - 1; k++) {
            if (i + k * step < packed) {
                see_pack(args, &f, pack[k], (uint32_t)((i + k * step) * K_PACK - shift), last);
            }
        }
    }
    const int32_t before = shift == 0 ? 0 : (end < K_PACK ? end : K_PACK) - shift;
    const int32_t inside = packed * K_PACK - shift, behind = inside > before ? inside : before;
    K_ONE_COPY
    for (int32_t j = (int32_t)t.lane; j < before + count - behind; j += step) {
        const int32_t place = j < before ? j : behind + j - before;
        see_apart(args, &f, x[place], (uint32_t)place, last);
    }
    return f;
}

K_FN void put(const mp_argmax_args *args, int64_t row, uint64_t tie) {
    int64_t index = tie == ~(uint64_t)0 ? 0 : (int64_t)(tie ^ args->last);
#if T_FLOAT
    const rank first = T_load(((const T *)args->x)[row * args->columns]);
    index = first != first ? 0 : index;
#endif
    args->out[row] = index;
}

/* The part as a whole row or a piece of one; all lanes of the block come here. */
K_FN void search_part(const mp_argmax_args *args, int64_t part, int64_t parts, k_round t) {
    int64_t row = part, start = 0, count = part < parts ? args->columns : 0;
    if (args->stage == K_ARGMAX_PIECES && part < parts) {
        row = part / args->pieces;
        start = (part - row * args->pieces) * args->piece;
        count = count - start < args->piece ? count - start : args->piece;
    }
    found f = nothing();
    if (part < parts) {
        const T *x = (const T *)args->x + row * args->columns + start;
        f = args->last != 0 ? search(args, x, (int32_t)count, t, 1)
                            : search(args, x, (int32_t)count, t, 0);
    }
    const rank best = group_max(f.best, t.width);
    const uint32_t mine = f.best == best ? tie_of(args, f.place) : NOWHERE;
    const uint32_t tie = group_min_u32(mine, t.width);
    if (part >= parts || t.lane != 0) {
        return;
    }
    const uint64_t place = tie_of(args, tie);
    const uint64_t whole =
        tie == NOWHERE ? ~(uint64_t)0 : (uint64_t)(start + (int64_t)place) ^ args->last;
    if (args->stage == K_ARGMAX_PIECES) {
        piece_found *to = (piece_found *)args->partial + part;
        to->best = best;
        to->tie = whole;
    } else {
        put(args, row, whole);
    }
}

K_FN void merge(const mp_argmax_args *args, int64_t row, k_round t) {
    piece_found f;
    f.best = lowest();
    f.tie = ~(uint64_t)0;
    K_ONE_COPY
    for (int64_t i = t.lane; row < args->rows && i < args->pieces; i += t.width) {
        const piece_found p = ((const piece_found *)args->partial)[row * args->pieces + i];
        const int wins = p.best > f.best || (p.best == f.best && p.tie < f.tie);
        f.best = wins ? p.best : f.best;
        f.tie = wins ? p.tie : f.tie;
    }
    const rank best = group_max(f.best, t.width);
    const uint64_t tie = group_min_u64(f.best == best ? f.tie : ~(uint64_t)0, t.width);
    if (row < args->rows && t.lane == 0) {
        put(args, row, tie);
    }
}

/* ---- short rows ---- */

/* The next `count` elements, so many as their bytes are aligned. */
K_FN k_pack unit_at(const T *x, int count) {
    k_pack pack;
    if (count == K_PACK) {
        pack.words = ((const k_pack *)x)->words;
    } else if (count * sizeof(T) == 8) {
        const uint64_t both = *(const uint64_t *)(const void *)x;
        pack.words.at[0] = (uint32_t)both;
        pack.words.at[1] = (uint32_t)(both >> 32);
    } else if (count * sizeof(T) == 4) {
        pack.words.at[0] = *(const uint32_t *)(const void *)x;
    } else {
        pack.at[0] = *x;
    }
    return pack;
}

/* A row of whole units of `count` elements, which is a constant. Some are asked for before one is
 * looked at. */
K_FN found search_units(const mp_argmax_args *args, const T *x, int count) {
    enum { UNITS = K_HOST ? 1 : 4 };
    const int32_t columns = (int32_t)args->columns;
    found f = nothing();
    K_ONE_COPY
    for (int32_t i = 0; i < columns; i += UNITS * count) {
        k_pack unit[UNITS];
        K_UNROLL
        for (int k = 0; k < UNITS; k++) {
            unit[k] = unit_at(x + (i + k * count < columns ? i + k * count : i), count);
        }
        K_UNROLL
        for (int k = 0; k < UNITS; k++) {
            K_UNROLL
            for (int e = 0; e < count; e++) {
                const int32_t place = i + k * count + e;
                const rank y = turned(args, unit[k].at[e]);
                const int wins = place < columns && (y > f.best || (args->last && y == f.best));
                f.best = wins ? y : f.best;
                f.place = wins ? (uint32_t)place : f.place;
            }
        }
    }
    return f;
}

K_FN found search_short(const mp_argmax_args *args, const T *x) {
    enum { PAIR = sizeof(T) < 8 ? 8 / sizeof(T) : 1, WORD = sizeof(T) < 4 ? 4 / sizeof(T) : 1 };
    const int32_t columns = (int32_t)args->columns;
    return columns % K_PACK == 0 ? search_units(args, x, K_PACK)
           : columns % PAIR == 0 ? search_units(args, x, PAIR)
           : columns % WORD == 0 ? search_units(args, x, WORD)
                                 : search_units(args, x, 1);
}

K_BLOCK_KERNEL_IN_64(K_ARGMAX_LANES_MAX, mp_argmax_args, args) {
    if (args.stage == K_ARGMAX_SHORT) {
        K_GRID_LOOP(row, args.rows) {
            const found f = search_short(&args, (const T *)args.x + row * args.columns);
            put(&args, row, f.place == NOWHERE ? ~(uint64_t)0 : f.place ^ args.last);
        }
        return;
    }
    const k_round t = k_rounds(args.width);
    const int64_t parts = args.stage == K_ARGMAX_PIECES ? args.rows * args.pieces : args.rows;
    K_ROUND_LOOP(first, t, parts) {
        if (args.stage == K_ARGMAX_MERGE) {
            merge(&args, first + t.group, t);
        } else {
            search_part(&args, first + t.group, parts, t);
        }
    }
}
