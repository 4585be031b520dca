/* rotary.cu - rotary position embedding: pairs of elements of a head are rotated by an angle of
 * their token's position; elements behind them are copied. A lane takes a piece: a pair, or 16
 * bytes of pairs where all sizes allow it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/rotary.h"

/* The row of the caches for a token. */
K_FN int64_t r_position(const mp_rotary_args *args, int64_t entry, int64_t row, int64_t axis) {
    int64_t at = entry * args->rows + row;
    if (args->position_kind == K_POSITION_AXES) {
        at = ((const int64_t *)args->positions)[axis * args->batch * args->rows + at];
    } else if (args->position_kind == K_POSITION_GIVEN) {
        at = ((const int64_t *)args->positions)[at];
    } else if (args->position_kind == K_POSITION_FIRST) {
        const int64_t first = *(const int64_t *)args->positions;
        at = first > args->cache_rows ? args->cache_rows : first + row;
    } else if (args->position_kind == K_POSITION_LENGTHS) {
        const int64_t length = (int64_t)((const int32_t *)args->positions)[entry] + 1;
        at = args->prompt ? row : length - args->rows + row;
    } else if (args->position_kind == K_POSITION_PAST) {
        at = args->past + row;
    }
    return at < 0 ? 0 : at < args->cache_rows ? at : args->cache_rows - 1;
}

/* Where the angles of a token begin; they are those of `first` unless pairs go by axes. `at` is its
 * position. */
typedef struct r_angles {
    int64_t at, first, second, third;
} r_angles;

K_FN r_angles r_angles_of(const mp_rotary_args *args, int64_t entry, int64_t head, int64_t row) {
    r_angles a;
    if (args->position_kind == K_POSITION_STRIDED) {
        a.at = row;
        a.first = a.second = a.third = entry * args->cache_stride[0] +
                                       head * args->cache_stride[1] + row * args->cache_stride[2];
        return a;
    }
    a.at = r_position(args, entry, row, 0);
    a.first = a.second = a.third = a.at * args->half;
    if (args->position_kind == K_POSITION_AXES) {
        a.second = r_position(args, entry, row, 1) * args->half;
        a.third = r_position(args, entry, row, 2) * args->half;
    }
    return a;
}

K_FN int64_t r_angle(const mp_rotary_args *args, r_angles a, int64_t pair) {
    if (args->position_kind != K_POSITION_AXES) {
        return a.first + pair;
    }
    if (args->axes_mixed) {
        const int64_t axis = pair % 3;
        const int64_t at = axis == 1 && pair < args->axis_end[0]   ? a.second
                           : axis == 2 && pair < args->axis_end[1] ? a.third
                                                                   : a.first;
        return at + pair;
    }
    return pair + (pair < args->axis_end[0]   ? a.first
                   : pair < args->axis_end[1] ? a.second
                                              : a.third);
}

K_FN r_pack r_read_angles(const mp_rotary_args *args, const T *from, r_angles a, int64_t pair) {
    r_pack pack;
    if (args->position_kind != K_POSITION_AXES) {
        return r_read(from + a.first + pair);
    }
    for (int32_t i = 0; i < PACK; i++) {
        pack.item[i] = from[r_angle(args, a, pair + i)];
    }
    return pack;
}

/* 1 by the root mean square of a head that is normalised. Each lane of the head reads all of it,
 * which the others read, too, rather than wait for them. */
K_FN float r_inverse(const mp_rotary_args *args, const T *x) {
    float squares = 0;
    for (int32_t i = 0; i < args->head_size; i++) {
        const float a = T_load(x[i]);
        squares += a * a;
    }
    return 1.0f / sqrtf(squares / (float)args->head_size + args->epsilon);
}

K_FN void r_pairs(const mp_rotary_args *args, const T *x, T *out, r_angles angles, int64_t piece) {
    const int64_t half = args->half;
    int64_t first = piece, second = piece + half; /* behind the pairs: neighbours, copied */
    if (piece >= half) {
        first = 2 * piece;
        second = first + 1;
    } else if (args->interleaved) {
        first = 2 * piece;
        second = first + 1;
    }
    T a = x[first], b = a;
    if (second < args->head_size) {
        b = x[second];
    }
    if (args->weight) {
        const T *weight = (const T *)args->weight;
        const float inverse = r_inverse(args, x);
        a = r_normed(a, weight[first], inverse);
        b = r_normed(b, weight[second < args->head_size ? second : first], inverse);
    }
    if (piece < half) {
        if (args->cosine == 0) {
            const float share = (float)piece / (float)args->half;
            const float angle = (float)angles.at / powf(args->base, share);
            r_turn(&a, &b, cosf(angle), sinf(angle), args->scale);
        } else {
            const int64_t angle = r_angle(args, angles, piece);
            r_rotate(&a, &b, ((const T *)args->cosine)[angle], ((const T *)args->sine)[angle],
                     args->scale);
        }
    }
    out[first] = a;
    if (second < args->head_size) {
        out[second] = b;
    }
}

K_FN void r_packs(const mp_rotary_args *args, const T *x, T *out, r_angles angles, int64_t piece) {
    const int64_t half = args->half, at = piece * PACK;
    int64_t first = at, second = at + half;
    if (args->interleaved || at >= half) {
        first = 2 * at;
        second = first + PACK;
    }
    r_pack a = r_read(x + first), b = r_read(x + second);
    if (args->weight) {
        const T *weight = (const T *)args->weight;
        const float inverse = r_inverse(args, x);
        for (int32_t i = 0; i < PACK; i++) {
            a.item[i] = r_normed(a.item[i], weight[first + i], inverse);
            b.item[i] = r_normed(b.item[i], weight[second + i], inverse);
        }
    }
    if (at < half) {
        const r_pack cosine = r_read_angles(args, (const T *)args->cosine, angles, at);
        const r_pack sine = r_read_angles(args, (const T *)args->sine, angles, at);
        if (args->interleaved) {
            r_turn_packs(&a, &b, &cosine, &sine, 1, args->scale);
        } else {
            r_turn_packs(&a, &b, &cosine, &sine, 0, args->scale);
        }
    }
    r_write(out + first, a);
    r_write(out + second, b);
}

K_KERNEL(mp_rotary_args, args) {
    K_GRID_LOOP(i, args.batch * args.rows * args.heads * args.pieces) {
        const int64_t line = i / args.pieces, piece = i - line * args.pieces;
        const int64_t token = line / args.heads, head = line - token * args.heads;
        const int64_t entry = token / args.rows, row = token - entry * args.rows;
        const T *x = (const T *)args.x + entry * args.x_stride[0] + head * args.x_stride[1] +
                     row * args.x_stride[2];
        T *out = (T *)args.out + entry * args.out_stride[0] + head * args.out_stride[1] +
                 row * args.out_stride[2];
        const r_angles angles = r_angles_of(&args, entry, head, row);
        if (args.packed) {
            r_packs(&args, x, out, angles, piece);
        } else {
            r_pairs(&args, x, out, angles, piece);
        }
    }
}
