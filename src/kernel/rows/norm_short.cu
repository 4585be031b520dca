/* norm_short.cu - norm.cu for rows of whole aligned packs of 16 bytes that a few lanes hold, with a
 * scale and a bias for each column, all of one type. There is one wait for memory and little text:
 * a lane asks for all it needs of x, of what is added, of scale and bias at once, then the lanes of
 * the row meet, then it writes. Up to a warp of lanes meet by shuffles alone. Where a lane has
 * further rows, the next one is on its way meanwhile.
 *
 * The emulated device, which has one lane a row, takes pack after pack and reads them again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/late.h"
#include "kernel/core/row_lanes.h"
#include "kernel/core/word.h"
#include "kernel/rows/found.h"
#include "kernel/rows/norm.h"

#if K_HOST
enum { N_KEPT = 1 }; /* packs that a lane keeps */
#define N_PACK_LOOP(k, r) for (int32_t k = 0; n_has(r, k); n_fetch(args, r, ++k, keep))
#else
enum { N_KEPT = K_NORM_SHORT_PACKS };
#define N_PACK_LOOP(k, r) \
    K_UNROLL              \
    for (int32_t k = 0; k < N_KEPT; k++)
#endif

/* Of a pack, as it is computed with. */
typedef struct n_part {
    float at[K_PACK];
} n_part;

/* A lane's share of a row: the packs from element `first` on, every `step` elements. */
typedef struct n_row {
    int64_t start, skip, add; /* the row's first element in x, in skip and in add */
    int32_t first, step;
    int32_t end; /* 0 where there is no row */
} n_row;

K_FN int n_has(const n_row *r, int32_t k) {
    return r->first + k * r->step < r->end;
}

/* The packs from pack `from` of the lane on, of what begins at x; zeros where the row has none, and
 * where there is no x. */
K_FN void n_read(const n_row *r, const T *x, int32_t from, k_pack *out) {
    K_UNROLL
    for (int32_t k = 0; k < N_KEPT; k++) {
        K_UNROLL
        for (int i = 0; i < 4; i++) {
            out[k].words.at[i] = 0;
        }
        if (x && n_has(r, from + k)) {
            out[k].words = ((const k_pack *)(x + r->first + (from + k) * r->step))->words;
        }
    }
}

/* What is asked for of a row before the row before is done. */
typedef struct n_asked {
    k_pack x[N_KEPT], skip[N_KEPT], add[N_KEPT];
} n_asked;

K_FN void n_ask(const mp_norm_args *args, const n_row *r, int32_t from, n_asked *out) {
    const T *skip = (const T *)(args->skip ? args->skip : args->x);
    const T *add = (const T *)(args->add ? args->add : args->x);
    K_UNROLL
    for (int32_t k = 0; k < N_KEPT; k++) {
        const int32_t at = r->first + (from + k) * r->step;
        const int has = n_has(r, from + k);
        k_fetch((const T *)args->x + (r->start + at), has, out->x[k].words.at);
        k_fetch(skip + (r->skip + at), has && args->skip, out->skip[k].words.at);
        k_fetch(add + (r->add + at), has && args->add, out->add[k].words.at);
    }
}

K_FN n_part n_part_of(const k_pack *pack) {
    n_part part;
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        T_unpack(pack->words.at[i], part.at + i * K_WORD);
    }
    return part;
}

K_FN k_pack n_pack_of(const n_part *part) {
    k_pack pack;
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        pack.words.at[i] = T_repack(part->at + i * K_WORD);
    }
    return pack;
}

K_FN void n_join(n_part *keep, const k_pack *more) {
    K_UNROLL
    for (int32_t k = 0; k < N_KEPT; k++) {
        const n_part part = n_part_of(&more[k]);
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            keep[k].at[i] += part.at[i];
        }
    }
}

/* The same, times `by`. */
K_FN void n_join_scaled(n_part *keep, const k_pack *more, const k_pack *by) {
    K_UNROLL
    for (int32_t k = 0; k < N_KEPT; k++) {
        const n_part part = n_part_of(&more[k]), times = n_part_of(&by[k]);
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            keep[k].at[i] += part.at[i] * times.at[i];
        }
    }
}

/* Keeps x + skip + add, which have been asked for; where something is to be found in it, between
 * `most` of both signs. */
K_FN void n_keep(const mp_norm_args *args, const n_asked *asked, float most, n_part *keep) {
    K_UNROLL
    for (int32_t k = 0; k < N_KEPT; k++) {
        keep[k] = n_part_of(&asked->x[k]);
    }
    if (args->scales) {
        n_join_scaled(keep, asked->skip, asked->add);
    } else if (args->skip) {
        n_join(keep, asked->skip);
    }
    if (args->add && !args->scales) {
        n_join(keep, asked->add);
    }
    if (args->found) {
        K_UNROLL
        for (int32_t k = 0; k < N_KEPT; k++) {
            K_UNROLL
            for (int i = 0; i < K_PACK; i++) {
                keep[k].at[i] = k_within(keep[k].at[i], most);
            }
        }
    }
}

#if K_HOST
/* Both at once. */
K_FN void n_fetch(const mp_norm_args *args, const n_row *r, int32_t from, n_part *keep) {
    n_asked asked;
    n_ask(args, r, from, &asked);
    n_keep(args, &asked, args->found ? k_most(args->found, args->most) : 0, keep);
}
#endif

K_FN K_SUM n_sum(const mp_norm_args *args, const n_row *r, n_part *keep) {
    (void)args;
    K_SUM even = 0, odd = 0; /* which need not wait for each other */
    N_PACK_LOOP(k, r) {
        K_UNROLL
        for (int i = 0; i < K_PACK; i += 2) {
            even += (K_SUM)keep[k % N_KEPT].at[i];
            odd += (K_SUM)keep[k % N_KEPT].at[i + 1];
        }
    }
    return even + odd;
}

K_FN n_spread n_spread_of(const mp_norm_args *args, const n_row *r, n_part *keep, K_SUM mean) {
    (void)args;
    n_spread even = {0, 0}, odd = {0, 0};
    N_PACK_LOOP(k, r) {
        const int has = n_has(r, k);
        K_UNROLL
        for (int i = 0; i < K_PACK; i += 2) {
            const K_SUM one = has ? (K_SUM)keep[k % N_KEPT].at[i] - mean : 0;
            const K_SUM two = has ? (K_SUM)keep[k % N_KEPT].at[i + 1] - mean : 0;
            even.off += N_REST ? one : 0;
            odd.off += N_REST ? two : 0;
            even.squares += one * one;
            odd.squares += two * two;
        }
    }
    even.off += odd.off;
    even.squares += odd.squares;
    return even;
}

/* Of pack `k` of what is given for each column. */
K_FN n_part n_column(const n_row *r, const k_pack *of, int32_t k) {
#if K_HOST
    return n_part_of(of + r->first / K_PACK + (int64_t)k * r->step / K_PACK);
#else
    k_pack pack = of[k]; /* taken apart here, and not where it was loaded, which would be to wait */
    (void)r;
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        asm volatile("" : "+r"(pack.words.at[i]));
    }
    return n_part_of(&pack);
#endif
}

K_FN void n_put(const n_row *r, void *out, int32_t k, const n_part *part) {
    const k_pack pack = n_pack_of(part);
    if (n_has(r, k)) {
        k_put_bytes((T *)out + r->start + (r->first + k * r->step), &pack, sizeof(k_pack));
    }
}

K_FN void n_store(const mp_norm_args *args, const n_row *r, n_part *keep, n_moments m,
                  const k_pack *scale, const k_pack *bias) {
    N_PACK_LOOP(k, r) {
        n_part part = keep[k % N_KEPT];
        if (args->sum) {
            n_put(r, args->sum, k, &part);
        }
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            part.at[i] = (float)(((K_SUM)part.at[i] - m.mean - m.rest) * m.inverse);
        }
        if (args->scale) {
            const n_part by = n_column(r, scale, k);
            K_UNROLL
            for (int i = 0; i < K_PACK; i++) {
                part.at[i] *= by.at[i];
            }
        }
        if (args->bias) {
            const n_part plus = n_column(r, bias, k);
            K_UNROLL
            for (int i = 0; i < K_PACK; i++) {
                part.at[i] += plus.at[i];
            }
        }
        n_put(r, args->out, k, &part);
    }
}

K_FN n_row n_row_of(const mp_norm_args *args, int64_t row, k_round t) {
    n_row r;
    r.start = row * args->columns;
    r.skip = !args->skip || row < args->skip_rows || row >= args->rows
                 ? r.start
                 : row % args->skip_rows * args->columns;
    r.add = row * args->add_step;
    r.first = (int32_t)t.lane * K_PACK;
    r.step = (int32_t)t.width * K_PACK;
    r.end = row < args->rows ? (int32_t)args->columns : 0;
    return r;
}

/* The moments of a row whose first packs are kept. */
K_FN n_moments n_moments_over(const mp_norm_args *args, const n_row *r, k_round t, n_part *keep) {
    K_SUM mean = 0;
    if (args->centred) {
        mean = k_group_sum(n_sum(args, r, keep), t.width) / (K_SUM)(int32_t)args->columns;
    }
#if K_HOST
    n_fetch(args, r, 0, keep);
#endif
    n_spread all = n_spread_of(args, r, keep, mean);
    all.off = N_REST ? k_group_sum(all.off, t.width) : 0;
    all.squares = k_group_sum(all.squares, t.width);
#if K_HOST
    n_fetch(args, r, 0, keep);
#endif
    return n_moments_of(args, all, mean);
}

K_BLOCK_KERNEL_UP_TO(K_NORM_SHORT_LANES, mp_norm_args, args) {
    const k_round t = k_rounds(args.width);
#if K_HOST
    const k_pack *scale = (const k_pack *)args.scale, *bias = (const k_pack *)args.bias;
#else
    const n_row columns = {
        0, 0, 0, (int32_t)t.lane * K_PACK, (int32_t)t.width * K_PACK, (int32_t)args.columns};
    k_pack scale[N_KEPT], bias[N_KEPT]; /* of all rows, loaded once */
    n_read(&columns, (const T *)args.scale, 0, scale);
    n_read(&columns, (const T *)args.bias, 0, bias);
#endif
#if !K_HOST
    n_row next = n_row_of(&args, t.first + t.group, t);
    n_asked asked;
    n_ask(&args, &next, 0, &asked);
    const float most = args.found ? k_most(args.found, args.most) : 0;
#endif
    K_ROUND_LOOP(first, t, args.rows) {
        const int64_t row = first + t.group;
        n_part keep[N_KEPT];
#if K_HOST
        const n_row r = n_row_of(&args, row, t);
        n_fetch(&args, &r, 0, keep);
#else
        const n_row r = next;
        n_keep(&args, &asked, most, keep);
        next = n_row_of(&args, row + t.step, t);
        n_ask(&args, &next, 0, &asked);
#endif
        const n_moments m = n_moments_over(&args, &r, t, keep);
        n_store(&args, &r, keep, m, scale, bias);
        if (r.end > 0 && t.lane == 0) {
            n_put_stat(args.mean, args.wide_stats, row, m.mean + m.rest);
            n_put_stat(args.inverse, args.wide_stats, row, m.inverse);
        }
    }
}
