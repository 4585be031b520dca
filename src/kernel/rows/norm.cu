/* norm.cu - each row minus its mean, over its deviation, times scale, plus bias; or without the
 * mean. Three passes over a row: the sum, the squares of what is off the mean, the result. A row
 * that fits the registers of its lanes is read in the first alone; of a longer one the others find
 * much in cache. Scale, bias and result may be of another type than x.
 *
 * Packed rows, of whatever tensor, are packs of x's 16 bytes, aligned and few enough to be kept;
 * those of a pack share a scale where there is one for several columns, or have one each. An
 * instance apart has them, so that nothing of what other rows need takes its registers.
 *
 * An example: a row of 13 floats that begins 8 bytes after a multiple of 16 (shift 2, end 15) and a
 * group of two lanes. The row touches four packs, which the lanes take alternately:
 *
 *     |. .  0  1| 2  3  4  5| 6  7  8  9|10 11 12  .|
 *        lane 0     lane 1     lane 0     lane 1
 *
 *     SUM     n_load reads packs 1 and 2 at once and the elements of 0 and 3 one by one, as zeros
 *             beside the row, and keeps them; the sum over both lanes gives mean = sum / 13
 *     SPREAD  the 13 kept elements give (x - mean)^2; its sum gives inverse = 1 / deviation
 *     STORE   out = (x - mean) * inverse * scale + bias, from the kept elements again
 *
 * A row that is longer than two lanes can keep is loaded again in each pass, span by span.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/rows/norm.h"
#define K_LONG_PACKS
#include "kernel/core/row_lanes.h"

#define N_edged  0
#define N_packed 1
enum { N_WHOLE = K_JOIN(N_, K_ROWS) && !K_HOST };

enum { OUT_BYTES = sizeof(U) * K_PACK, OUT_ALIGNED = OUT_BYTES < 16 ? OUT_BYTES : 16 };
typedef struct K_ALIGN(OUT_ALIGNED) n_out {
    U at[K_PACK];
} n_out;

/* A row; pointers are made where they are used, since they would take many registers. */
typedef struct n_row {
    int64_t start, skip, add;  /* its first element in x, in skip and in add */
    int64_t scale_at, columns; /* 0 columns where there is no row */
    int32_t shift;
} n_row;

/* How `other`, of T or of U, may be read where the row at x is read inside by packs. */
K_FN int n_how(const n_row *r, const T *other) {
    return N_WHOLE ? K_WHOLE : k_row_shift(other) == r->shift ? K_INSIDE : K_SINGLE;
}

K_FN int n_how_u(const n_row *r, const U *other) {
    if (N_WHOLE) {
        return K_WHOLE;
    }
    const uint64_t first = (uint64_t)other - (uint64_t)r->shift * sizeof(U); /* NULL is no harm */
    return first % OUT_ALIGNED == 0 ? K_INSIDE : K_SINGLE;
}

/* ---- in ---- */

K_FN void n_load(const mp_norm_args *args, const n_row *r, const k_span *s, K_SUM *keep) {
    const T *x = (const T *)args->x + r->start;
    k_pack pack[K_KEEP_PACKS];
    K_PACK_LOOP(k, s) {
        pack[k] = k_span_pack(s, x + s->at, k, N_WHOLE ? K_WHOLE : K_INSIDE, T_store(0));
    }
    K_PACK_LOOP(k, s) {
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            keep[k * K_PACK + i] = (K_SUM)T_load(pack[k].at[i]);
        }
    }
    K_ONE_COPY
    for (int more = 0; more < 2; more++) {
        const void *of = more == 0 ? args->skip : args->add;
        if (!of) {
            continue;
        }
        const T *from = (const T *)of + (more == 0 ? r->skip : r->add);
        const k_span again = k_span_anew(*s);
        K_PACK_LOOP(k, s) {
            const k_pack one = k_span_pack(&again, from + s->at, k, n_how(r, from), T_store(0));
            K_UNROLL
            for (int i = 0; i < K_PACK; i++) {
                keep[k * K_PACK + i] += (K_SUM)T_load(one.at[i]);
            }
        }
    }
}

/* ---- sums ---- */

K_FN K_SUM n_sum(const k_span *s, const K_SUM *keep) {
    K_SUM sum[4] = {0}; /* four, which need not wait for each other; two where a pack has no more */
    K_PACK_LOOP(k, s) {
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            sum[i % 4] += keep[k * K_PACK + i];
        }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

K_FN n_spread n_spread_of(n_spread all, const k_span *s, const K_SUM *keep, K_SUM mean) {
    K_SUM squares = 0; /* of every second element, for the same reason */
    K_PACK_LOOP(k, s) {
        const int32_t e = k * s->step;
        const int inside = N_WHOLE || k_as_pack(s, e, K_INSIDE);
        if (N_WHOLE && e >= s->end) {
            continue;
        }
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            const int counts = inside || k_in_row(s, e + i);
            const K_SUM off = counts ? keep[k * K_PACK + i] - mean : 0;
            all.off += N_REST ? off : 0;
            if (i % 2 == 0) {
                squares += off * off;
            } else {
                all.squares += off * off;
            }
        }
    }
    all.squares += squares;
    return all;
}

/* ---- out ---- */

/* Where the scales of a lane's part of a span are, if `inner` neighbours share each. A span is far
 * shorter than 2^30 elements, so that more than those before and behind it need not be known. */
typedef struct n_place {
    const U *scale, *bias; /* of the first element */
    int32_t before, left;  /* columns that share it with the first and lie before; those behind */
} n_place;

K_FN int32_t n_near(int64_t count) {
    return count < 1 << 30 ? (int32_t)count : 1 << 30;
}

K_FN n_place n_place_of(const mp_norm_args *args, const n_row *r, int64_t c) {
    const int64_t channel = c / args->inner, next = (channel + 1) * args->inner;
    n_place p;
    p.scale = (const U *)args->scale + r->scale_at + channel;
    p.bias = (const U *)args->bias + r->scale_at + channel;
    p.before = n_near(args->inner) - n_near(next - c);
    p.left = n_near(r->columns - c);
    return p;
}

/* Of element `e` of the span; of the row's nearest one, where a pack has more than the row. */
K_FN uint32_t n_scale_at(const mp_norm_args *args, n_place p, int32_t e) {
    e = e < 0 ? 0 : e < p.left ? e : p.left - 1;
    return k_divide((uint32_t)(p.before + e), args->by_inner);
}

/* Of pack `k`, from one for each column. */
K_FN void n_vector(const k_span *s, const U *vector, int32_t k, int how, K_SUM *out) {
    const int32_t e = k * s->step;
    const U *from = vector + s->at + (uint32_t)e;
    if (k_as_pack(s, e, how)) {
        const n_out packed = *(const n_out *)from;
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            out[i] = (K_SUM)U_load(packed.at[i]);
        }
        return;
    }
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        out[i] = k_in_row(s, e + i) ? (K_SUM)U_load(from[i]) : 0;
    }
}

/* The same where neighbours mostly share one. */
K_FN void n_shared(const mp_norm_args *args, n_place p, const U *vector, int32_t e, K_SUM *out) {
    const uint32_t first = n_scale_at(args, p, e);
    const K_SUM one = (K_SUM)U_load(vector[first]);
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        out[i] = one;
    }
    if (N_WHOLE || first == n_scale_at(args, p, e + K_PACK - 1)) {
        return;
    }
    K_UNROLL
    for (int i = 1; i < K_PACK; i++) {
        out[i] = (K_SUM)U_load(vector[n_scale_at(args, p, e + i)]);
    }
}

/* Whether neighbouring columns share a scale. */
K_FN int n_is_shared(const mp_norm_args *args) {
    return args->per_row > 0 && args->inner > 1;
}

K_FN void n_scales(const mp_norm_args *args, const k_span *s, n_place place, const U *vector,
                   const U *shared, int32_t k, int how, K_SUM *out) {
    if (n_is_shared(args)) {
        const int32_t lead = !N_WHOLE && s->at < 0 ? (int32_t)s->at : 0;
        n_shared(args, place, shared, lead + k * s->step, out);
    } else {
        n_vector(s, vector, k, how, out);
    }
}

K_FN void n_put(const k_span *s, U *to, int32_t k, int how, n_out made) {
    const int32_t e = k * s->step;
    U *out = to + (uint32_t)e;
    if (e >= s->end) {
        return;
    }
    if (k_as_pack(s, e, how)) {
        k_put_bytes(out, &made, OUT_BYTES);
        return;
    }
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        if (k_in_row(s, e + i)) {
            out[i] = made.at[i];
        }
    }
}

K_FN void n_store(const mp_norm_args *args, const n_row *r, const k_span *of, n_moments m,
                  const K_SUM *keep) {
    const k_span s = k_span_anew(*of);
    const U *scales = (const U *)args->scale, *biases = (const U *)args->bias;
    U *out = (U *)args->out + r->start;
    const int shared = n_is_shared(args), how = n_how_u(r, out);
    const int64_t row_at = shared ? 0 : r->scale_at; /* of scales of rows' own */
    const int how_scale = n_how_u(r, scales + row_at), how_bias = n_how_u(r, biases + row_at);
    const int32_t lead = !N_WHOLE && s.at < 0 ? (int32_t)s.at : 0;
    n_place place = {scales, biases, 0, 0};
    if (shared) {
        place = n_place_of(args, r, s.at - lead);
    }
    K_PACK_LOOP(k, &s) {
        K_SUM value[K_PACK], by[K_PACK];
        n_out made;
        if (k * s.step >= s.end) {
            continue;
        }
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            value[i] = (keep[k * K_PACK + i] - m.mean - m.rest) * m.inverse;
        }
        if (scales) {
            n_scales(args, &s, place, scales + row_at, place.scale, k, how_scale, by);
            K_UNROLL
            for (int i = 0; i < K_PACK; i++) {
                value[i] *= by[i];
            }
        }
        if (biases) {
            n_scales(args, &s, place, biases + row_at, place.bias, k, how_bias, by);
            K_UNROLL
            for (int i = 0; i < K_PACK; i++) {
                value[i] += by[i];
            }
        }
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            made.at[i] = U_store((UC)value[i]);
        }
        n_put(&s, out + s.at, k, how, made);
    }
}

K_FN void n_store_sum(const mp_norm_args *args, const n_row *r, const k_span *of,
                      const K_SUM *keep) {
    const k_span s = k_span_anew(*of);
    T *sum = (T *)args->sum + r->start;
    K_PACK_LOOP(k, &s) {
        k_pack pack;
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            pack.at[i] = T_store((TC)keep[k * K_PACK + i]);
        }
        k_span_put(&s, sum + s.at, k, n_how(r, sum), pack);
    }
}

/* ---- rows ---- */

enum { SUM, SPREAD, STORE, PASSES };

K_FN n_moments n_norm(const mp_norm_args *args, const n_row *r, k_round t) {
    const int64_t most = (int64_t)t.width * K_KEEP;
    const int64_t end = r->columns > 0 ? r->columns + r->shift : 0;
    const int pass_first = args->centred ? SUM : SPREAD;
    n_moments m = {0, 0, 0};
    K_SUM keep[K_KEEP];
    K_ONE_COPY
    for (int pass = pass_first; pass < PASSES; pass++) {
        n_spread all = {0, 0};
        K_ONE_COPY
        for (int64_t from = 0; from < end; from += most) {
            const k_span s = k_span_at(r->shift, r->columns, from, t.lane, t.width);
            if (pass == pass_first || end > most) {
                n_load(args, r, &s, keep);
            }
            if (pass == SUM) {
                all.off += n_sum(&s, keep);
            } else if (pass == SPREAD) {
                all = n_spread_of(all, &s, keep, m.mean);
            } else {
                if (args->sum) {
                    n_store_sum(args, r, &s, keep);
                }
                n_store(args, r, &s, m, keep);
            }
        }
        if (pass < STORE) {
            all.off = k_group_sum(all.off, t.width);
        }
        if (pass == SUM) {
            m.mean = all.off / (K_SUM)args->columns;
        } else if (pass == SPREAD) {
            all.squares = k_group_sum(all.squares, t.width);
            m = n_moments_of(args, all, m.mean);
        }
    }
    return m;
}

/* The same for a packed row. */
K_FN n_moments n_norm_packed(const mp_norm_args *args, const n_row *r, k_round t) {
    const k_span s = k_span_at(0, r->columns, 0, t.lane, t.width);
    const n_spread none = {0, 0};
    K_SUM keep[K_KEEP], mean = 0;
    n_load(args, r, &s, keep);
    if (args->sum) {
        n_store_sum(args, r, &s, keep);
    }
    if (args->centred) {
        mean = k_group_sum(n_sum(&s, keep), t.width) / (K_SUM)args->columns;
    }
    n_spread all = n_spread_of(none, &s, keep, mean);
    all.off = N_REST ? k_group_sum(all.off, t.width) : 0;
    all.squares = k_group_sum(all.squares, t.width);
    const n_moments m = n_moments_of(args, all, mean);
    n_store(args, r, &s, m, keep);
    return m;
}

K_FN n_row n_row_of(const mp_norm_args *args, int64_t row) {
    n_row r;
    r.start = row * args->columns;
    r.skip = args->skip ? row % args->skip_rows * args->columns : 0;
    r.add = row * args->add_step;
    r.scale_at = args->per_row > 0 ? row % args->groups * args->per_row : 0;
    r.columns = row < args->rows ? args->columns : 0;
    r.shift = k_row_shift((const T *)args->x + r.start);
    return r;
}

K_BLOCK_KERNEL_IN_64(K_ROW_LANES_MAX, mp_norm_args, args) {
    const k_round t = k_rounds(args.width);
    K_ROUND_LOOP(first, t, args.rows) {
        const int64_t row = first + t.group;
        const n_row r = n_row_of(&args, row);
        const n_moments m = N_WHOLE ? n_norm_packed(&args, &r, t) : n_norm(&args, &r, t);
        if (r.columns > 0 && t.lane == 0) {
            n_put_stat(args.mean, args.wide_stats, row, m.mean + m.rest);
            n_put_stat(args.inverse, args.wide_stats, row, m.inverse);
        }
    }
}
