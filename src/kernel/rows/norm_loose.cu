/* norm_loose.cu - norm.cu for rows that are no whole packs of 16 aligned bytes, of one type and
 * with a scale and a bias for each column or each row. Elements are read one by one, all of a lane
 * at once, and lanes side by side read neighbours, wherever a row begins; so nothing is to be known
 * of that, and no registers are needed for it.
 *
 * K_STEP is how far apart a lane's elements are: 32 in long rows, whose warps have a run each, and
 * a number that the compiler knows costs no instructions; 0 for the lanes of a row that part of a
 * warp shares.
 *
 * The emulated device, which has one lane a row, reads the elements again.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/rows/norm.h"

enum { N_KEPT = K_NORM_LOOSE_KEPT, N_PART = 8 };

/* A lane's share of a row: the columns from `first` on, every `step`, below `end`. */
typedef struct n_row {
    int64_t start, skip, add; /* the row's first element in x, in skip and in add */
    int32_t first, step, end;
    int32_t each;   /* elements that a lane has at most, the same for all of the group */
    uint32_t group; /* where a row has one scale: which */
} n_row;

#if K_STEP && !K_HOST
#define N_STEP(r) K_STEP
#else
#define N_STEP(r) (r)->step
#endif

/* Visits elements k, in columns c. On a GPU those too that there are none of, but for whole parts:
 * what is kept is in registers only if k is a constant. */
#if K_HOST
#define N_EACH(k, c, r) \
    for (int32_t k = 0, c = (r)->first; c < (r)->end; k++, c = (r)->first + k * N_STEP(r))
#define N_ABSENT(k, r) 0
#else
#define N_EACH(k, c, r) \
    K_UNROLL            \
    for (int32_t k = 0, c = (r)->first; k < N_KEPT; k++, c = (r)->first + k * N_STEP(r))
#define N_ABSENT(k, r) ((k) % N_PART == 0 && (k) >= (r)->each)
#endif

/* ---- in ---- */

#if K_HOST

K_FN K_SUM n_value(const mp_norm_args *args, const n_row *r, int32_t c, const K_SUM *keep,
                   int32_t k) {
    (void)keep;
    (void)k;
    const K_SUM x = (K_SUM)T_load(((const T *)args->x)[r->start + c]);
    const K_SUM skip = args->skip ? (K_SUM)T_load(((const T *)args->skip)[r->skip + c]) : 0;
    return x + skip + (args->add ? (K_SUM)T_load(((const T *)args->add)[r->add + c]) : 0);
}

K_FN void n_fetch(const mp_norm_args *args, const n_row *r, K_SUM *keep) {
    (void)args;
    (void)r;
    (void)keep;
}

#else

K_FN K_SUM n_value(const mp_norm_args *args, const n_row *r, int32_t c, const K_SUM *keep,
                   int32_t k) {
    (void)args;
    (void)r;
    (void)c;
    return keep[k];
}

/* Zeros where the row has none. */
K_FN void n_read(const n_row *r, const T *x, T *out) {
    N_EACH(k, c, r) {
        out[k] = T_store(0);
    }
    N_EACH(k, c, r) {
        if (N_ABSENT(k, r)) {
            break;
        }
        if (c < r->end) {
            out[k] = x[c];
        }
    }
}

K_FN void n_join(const n_row *r, const T *more, K_SUM *keep) {
    T one[N_KEPT];
    n_read(r, more, one);
    N_EACH(k, c, r) {
        keep[k] += T_load(one[k]);
    }
}

/* All that the lane has of x + skip + add. */
K_FN void n_fetch(const mp_norm_args *args, const n_row *r, K_SUM *keep) {
    T x[N_KEPT];
    n_read(r, (const T *)args->x + r->start, x);
    N_EACH(k, c, r) {
        keep[k] = T_load(x[k]);
    }
    if (args->skip) {
        n_join(r, (const T *)args->skip + r->skip, keep);
    }
    if (args->add) {
        n_join(r, (const T *)args->add + r->add, keep);
    }
}

#endif

/* ---- sums ---- */

K_FN K_SUM n_sum(const mp_norm_args *args, const n_row *r, const K_SUM *keep) {
    K_SUM sum[4] = {0}; /* which need not wait for each other */
    N_EACH(k, c, r) {
        if (N_ABSENT(k, r)) {
            break;
        }
        sum[k % 4] += n_value(args, r, c, keep, k);
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

K_FN n_spread n_spread_of(const mp_norm_args *args, const n_row *r, const K_SUM *keep, K_SUM mean) {
    n_spread all = {0, 0};
    K_SUM squares = 0, rest = 0; /* of every second element, for the same reason */
    N_EACH(k, c, r) {
        if (N_ABSENT(k, r)) {
            break;
        }
        const K_SUM off = c < r->end ? n_value(args, r, c, keep, k) - mean : 0;
        if (k % 2 == 0) {
            all.squares += off * off;
            all.off += N_REST ? off : 0;
        } else {
            squares += off * off;
            rest += N_REST ? off : 0;
        }
    }
    all.squares += squares;
    all.off += rest;
    return all;
}

/* ---- out ---- */

/* What is given for each column, or for the row, of a part of the elements; `none` where nothing
 * is.
 */
K_FN void n_vector(const mp_norm_args *args, const n_row *r, const void *given, int32_t from,
                   T none, T *out) {
    const T *vector = (const T *)given;
    if (vector && args->per_row > 0) {
        none = vector[r->group];
    }
    K_UNROLL
    for (int32_t i = 0; i < N_PART; i++) {
        out[i] = none;
    }
    if (!vector || args->per_row > 0) {
        return;
    }
    K_UNROLL
    for (int32_t i = 0; i < N_PART; i++) {
        const int32_t c = r->first + (from + i) * N_STEP(r);
        if (c < r->end) {
            out[i] = vector[c];
        }
    }
}

/* What stands for no bias is -0, which leaves what it is added to as it is. */
K_FN void n_store_part(const mp_norm_args *args, const n_row *r, const K_SUM *keep, n_moments m,
                       int32_t from) {
    T scale[N_PART], bias[N_PART], *out = (T *)args->out + r->start;
    n_vector(args, r, args->scale, from, T_store(1), scale);
    n_vector(args, r, args->bias, from, T_store(-(TC)0), bias);
    K_UNROLL
    for (int32_t i = 0; i < N_PART; i++) {
        const int32_t c = r->first + (from + i) * N_STEP(r);
        if (c < r->end) {
            const K_SUM normal =
                (n_value(args, r, c, keep, from + i) - m.mean - m.rest) * m.inverse;
            out[c] = T_store((TC)(normal * (K_SUM)T_load(scale[i]) + (K_SUM)T_load(bias[i])));
        }
    }
}

K_FN void n_store_sum(const mp_norm_args *args, const n_row *r, const K_SUM *keep) {
    T *sum = (T *)args->sum + r->start;
    N_EACH(k, c, r) {
        if (N_ABSENT(k, r)) {
            break;
        }
        if (c < r->end) {
            sum[c] = T_store((TC)n_value(args, r, c, keep, k));
        }
    }
}

K_FN void n_store(const mp_norm_args *args, const n_row *r, const K_SUM *keep, n_moments m) {
#if K_HOST
    for (int32_t from = 0; from < r->each; from += N_PART) {
        n_store_part(args, r, keep, m, from);
    }
#else
    K_UNROLL
    for (int32_t from = 0; from < N_KEPT; from += N_PART) {
        if (from < r->each) {
            n_store_part(args, r, keep, m, from);
        }
    }
#endif
}

/* ---- rows ---- */

K_FN n_row n_row_of(const mp_norm_args *args, int64_t row, k_round t) {
    const int32_t columns = row < args->rows ? (int32_t)args->columns : 0;
    n_row r;
    r.start = row * args->columns;
    r.skip = args->skip && row >= args->skip_rows
                 ? (int64_t)((uint32_t)row % (uint32_t)args->skip_rows) * args->columns
                 : r.start;
    r.add = row * args->add_step;
    r.group = args->per_row > 0 ? (uint32_t)row % (uint32_t)args->groups : 0;
    r.each = (int32_t)((uint32_t)(columns + (int32_t)t.width - 1) >> k_log2(t.width));
#if K_STEP
    const int32_t run = t.width < K_STEP ? (int32_t)t.width : K_STEP; /* one lane in emulation */
    const int32_t from = (int32_t)t.lane / run * run * r.each;
    const int32_t left = columns - from, most = run * r.each;
    r.step = run;
    r.first = from + (int32_t)t.lane % run;
    r.end = from + (left < most ? left : most);
#else
    r.step = (int32_t)t.width;
    r.first = (int32_t)t.lane;
    r.end = columns;
#endif
    return r;
}

/* As k_span_anew does. */
K_FN void n_anew(n_row *r) {
#if !K_HOST
    asm volatile("" : "+r"(r->first), "+r"(r->step), "+r"(r->end));
#else
    (void)r;
#endif
}

K_FN n_moments n_norm(const mp_norm_args *args, n_row r, k_round t) {
    K_SUM keep[K_HOST ? 1 : N_KEPT], mean = 0;
    n_fetch(args, &r, keep);
    if (args->centred) {
        mean = k_group_sum(n_sum(args, &r, keep), t.width) / (K_SUM)(int32_t)args->columns;
    }
    n_anew(&r);
    n_spread all = n_spread_of(args, &r, keep, mean);
    all.off = N_REST ? k_group_sum(all.off, t.width) : 0;
    all.squares = k_group_sum(all.squares, t.width);
    const n_moments m = n_moments_of(args, all, mean);
    if (args->sum) { /* before the result, which may lie where x does */
        n_anew(&r);
        n_store_sum(args, &r, keep);
    }
    n_anew(&r);
    n_store(args, &r, keep, m);
    return m;
}

K_BLOCK_KERNEL_UP_TO(K_NORM_LOOSE_LANES, mp_norm_args, args) {
    const k_round t = k_rounds(args.width);
    K_ROUND_LOOP(first, t, args.rows) {
        const int64_t row = first + t.group;
        const n_row r = n_row_of(&args, row, t);
        const n_moments m = n_norm(&args, r, t);
        if (row < args.rows && t.lane == 0) {
            n_put_stat(args.mean, args.wide_stats, row, m.mean + m.rest);
            n_put_stat(args.inverse, args.wide_stats, row, m.inverse);
        }
    }
}
