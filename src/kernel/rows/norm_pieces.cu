/* norm_pieces.cu - `norm.cu` for rows so long that several blocks share one: what is known of each
 * piece, then the result. Nothing is added to x before.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/row_lanes.h"
#include "kernel/rows/norm.h"

enum { AHEAD = K_HOST ? 64 : 4 }; /* packs of a lane that are on their way at a time */

typedef struct piece {
    int64_t row, number, first; /* its first element in the row */
    int32_t size;
} piece;

/* A count of elements, their mean, and the sum of the squares of what they are off it. */
typedef struct moments {
    K_SUM count, mean, squares;
} moments;

K_FN piece piece_at(const mp_norm_pieces_args *args, int64_t item) {
    piece p;
    p.row = item / args->pieces;
    p.number = item - p.row * args->pieces;
    p.first = p.number * args->piece;
    const int64_t left = args->row.columns - p.first;
    p.size = (int32_t)(left < args->piece ? left : args->piece);
    return p;
}

/* Visits the first elements of a lane's packs, AHEAD of them at a time. */
#define SOME_LOOP(e, p)                                           \
    for (int32_t e = (int32_t)threadIdx.x * K_PACK; e < (p).size; \
         e += AHEAD * K_PACK * (int32_t)blockDim.x)
#define AHEAD_LOOP(j) K_UNROLL for (int32_t j = 0; j < AHEAD; j++)
#define PACK_LOOP(i)  K_UNROLL for (int i = 0; i < K_PACK; i++)

K_FN int32_t element_of(int32_t e, int32_t j) {
    return e + j * K_PACK * (int32_t)blockDim.x;
}

/* A pack of `from`; zeros behind the end. */
K_FN k_pack load(const T *from, int32_t e, int32_t size, int whole) {
    k_pack p;
    PACK_LOOP(i) {
        p.at[i] = T_store((TC)0);
    }
    if (whole && e < size) {
        p.words = ((const k_pack *)(from + e))->words;
    } else if (!whole) {
        PACK_LOOP(i) {
            if (e + i < size) {
                p.at[i] = from[e + i];
            }
        }
    }
    return p;
}

/* ---- what is known of a piece ---- */

K_FN moments both(moments a, moments b) {
    moments m;
    m.count = a.count + b.count;
    const K_SUM share = m.count > 0 ? b.count / m.count : 0, off = b.mean - a.mean;
    m.mean = a.mean + off * share;
    m.squares = a.squares + b.squares + off * off * share * a.count;
    return m;
}

/* Of some packs. */
K_FN moments moments_of(const k_pack *some, int32_t e, int32_t size, int centred) {
    moments m = {0, 0, 0};
    K_SUM sum = 0;
    AHEAD_LOOP(j) {
        const int32_t left = size - element_of(e, j);
        m.count += (K_SUM)(left > K_PACK ? K_PACK : left > 0 ? left : 0);
        PACK_LOOP(i) {
            sum += (K_SUM)T_load(some[j].at[i]);
        }
    }
    m.mean = centred ? sum / m.count : 0;
    AHEAD_LOOP(j) {
        const int32_t left = size - element_of(e, j);
        PACK_LOOP(i) {
            const K_SUM off = i < left ? (K_SUM)T_load(some[j].at[i]) - m.mean : 0;
            m.squares += off * off;
        }
    }
    return m;
}

K_FN K_SUM *partial_of(const mp_norm_pieces_args *args, int64_t row, int64_t number) {
    return (K_SUM *)args->partial + (row * args->pieces + number) * 2;
}

K_FN void find_moments(const mp_norm_pieces_args *args, piece p) {
    const T *x = (const T *)args->row.x + p.row * args->row.columns + p.first;
    moments mine = {0, 0, 0};
    SOME_LOOP(e, p) {
        k_pack some[AHEAD];
        AHEAD_LOOP(j) {
            some[j] = load(x, element_of(e, j), p.size, args->whole);
        }
        mine = both(mine, moments_of(some, e, p.size, args->row.centred));
    }
    const K_SUM size = (K_SUM)p.size;
    const K_SUM mean = k_block_sum(mine.count * mine.mean) / size, off = mine.mean - mean;
    const K_SUM rest = k_block_sum(mine.count * off);
    const K_SUM squares = k_block_sum(mine.squares + mine.count * off * off);
    if (threadIdx.x == 0) {
        K_SUM *to = partial_of(args, p.row, p.number);
        to[0] = mean + rest / size;
        to[1] = squares - rest / size * rest;
    }
}

/* ---- the result ---- */

/* Of a whole row, the same in each of its blocks. */
K_FN n_moments row_moments(const mp_norm_pieces_args *args, int64_t row) {
    const K_SUM near = partial_of(args, row, 0)[0];
    const K_SUM whole = (K_SUM)args->piece, columns = (K_SUM)args->row.columns;
    const K_SUM last = (K_SUM)(args->row.columns - (args->pieces - 1) * args->piece);
    K_SUM sum = 0;
    n_spread all = {0, 0};
    K_BLOCK_LOOP(i, args->pieces) {
        sum += (i + 1 < args->pieces ? whole : last) * (partial_of(args, row, i)[0] - near);
    }
    const K_SUM mean = near + k_block_sum(sum) / columns;
    K_BLOCK_LOOP(i, args->pieces) {
        const K_SUM *of = partial_of(args, row, i), count = i + 1 < args->pieces ? whole : last;
        all.off += count * (of[0] - mean);
        all.squares += of[1] + count * (of[0] - mean) * (of[0] - mean);
    }
    all.off = k_block_sum(all.off);
    all.squares = k_block_sum(all.squares);
    return n_moments_of(&args->row, all, mean);
}

/* Where the scales of a piece are: of each column, or `per_row` of a row, each of `inner`
 * neighbours. A row has fewer than 2^30 columns. */
typedef struct place {
    const T *scale, *bias;
    uint32_t before; /* columns before the piece that share its first scale */
    int shared;
} place;

K_FN place place_of(const mp_norm_pieces_args *args, piece p) {
    const mp_norm_args *row = &args->row;
    const int64_t channel = row->per_row > 0 ? p.first / row->inner : p.first;
    const int64_t at = row->per_row > 0 ? p.row % row->groups * row->per_row + channel : channel;
    place of;
    of.scale = row->scale ? (const T *)row->scale + at : (const T *)0;
    of.bias = row->bias ? (const T *)row->bias + at : (const T *)0;
    of.shared = row->per_row > 0;
    of.before = of.shared ? (uint32_t)(p.first - channel * row->inner) : 0;
    return of;
}

/* The scales, or biases, of a pack. */
K_FN k_pack vector(const mp_norm_pieces_args *args, const T *from, place of, int32_t e,
                   int32_t size) {
    if (!of.shared) {
        return load(from, e, size, args->whole);
    }
    k_pack p;
    PACK_LOOP(i) {
        const uint32_t within = (uint32_t)(e + i < size ? e + i : size - 1);
        p.at[i] = from[k_divide(of.before + within, args->row.by_inner)];
    }
    return p;
}

K_FN void put(T *out, int32_t e, int32_t size, int whole, k_pack made) {
    if (whole && e < size) {
        ((k_pack *)(out + e))->words = made.words;
    } else if (!whole) {
        PACK_LOOP(i) {
            if (e + i < size) {
                out[e + i] = made.at[i];
            }
        }
    }
}

K_FN void apply(const mp_norm_pieces_args *args, piece p) {
    const n_moments m = row_moments(args, p.row);
    const int64_t start = p.row * args->row.columns + p.first;
    const T *x = (const T *)args->row.x + start;
    T *out = (T *)args->row.out + start;
    const place of = place_of(args, p);
    SOME_LOOP(e, p) {
        k_pack some[AHEAD];
        AHEAD_LOOP(j) {
            some[j] = load(x, element_of(e, j), p.size, args->whole);
        }
        AHEAD_LOOP(j) {
            const int32_t at = element_of(e, j);
            k_pack scale = some[j], bias = some[j];
            if (of.scale) {
                scale = vector(args, of.scale, of, at, p.size);
            }
            if (of.bias) {
                bias = vector(args, of.bias, of, at, p.size);
            }
            PACK_LOOP(i) {
                K_SUM value = ((K_SUM)T_load(some[j].at[i]) - m.mean - m.rest) * m.inverse;
                value *= of.scale ? (K_SUM)T_load(scale.at[i]) : (K_SUM)1;
                value += of.bias ? (K_SUM)T_load(bias.at[i]) : (K_SUM)0;
                some[j].at[i] = T_store((TC)value);
            }
            put(out, at, p.size, args->whole, some[j]);
        }
    }
    if (p.number == 0 && threadIdx.x == 0) {
        n_put_stat(args->row.mean, args->row.wide_stats, p.row, m.mean + m.rest);
        n_put_stat(args->row.inverse, args->row.wide_stats, p.row, m.inverse);
    }
}

K_BLOCK_KERNEL_IN_64(K_NORM_PIECES_LANES, mp_norm_pieces_args, args) {
    for (int64_t item = blockIdx.x; item < args.row.rows * args.pieces; item += gridDim.x) {
        const piece p = piece_at(&args, item);
        if (args.stage == K_NORM_MOMENTS) {
            find_moments(&args, p);
        } else {
            apply(&args, p);
        }
    }
}
