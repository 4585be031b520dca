/* norm.cu - each row minus its mean, over its deviation, times scale, plus bias; or without the
 * mean. A row that is read by packs and fits the registers of its lanes is read once; of others the
 * second and third pass find much in cache. Scale, bias and result may be of another type than x.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/norm_args.h"
#include "kernel/row_lanes.h"

typedef struct K_ALIGN(sizeof(U) * K_PACK < 16 ? sizeof(U) * K_PACK : 16) n_out {
    U at[K_PACK];
} n_out;

/* The `pack` values from column c of a row on; 1 or K_PACK. */
K_FN void n_load(const mp_norm_args *args, int64_t row, int64_t c, int pack, K_SUM *value) {
    const T *x = (const T *)args->x + row * args->columns + c;
    const T *skip =
        args->skip ? (const T *)args->skip + row % args->skip_rows * args->columns + c : 0;
    const T *add = args->add ? (const T *)args->add + c : 0;
    if (pack == 1) {
        value[0] = (K_SUM)T_load(x[0]);
        value[0] += skip ? (K_SUM)T_load(skip[0]) : (K_SUM)0;
        value[0] += add ? (K_SUM)T_load(add[0]) : (K_SUM)0;
        return;
    }
    const k_pack packed = *(const k_pack *)x;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        value[i] = (K_SUM)T_load(packed.at[i]);
    }
    if (skip) {
        const k_pack more = *(const k_pack *)skip;
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            value[i] += (K_SUM)T_load(more.at[i]);
        }
    }
    if (add) {
        const k_pack more = *(const k_pack *)add;
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            value[i] += (K_SUM)T_load(more.at[i]);
        }
    }
}

K_FN void n_store_sum(const mp_norm_args *args, int64_t row, int64_t c, int pack,
                      const K_SUM *value) {
    T *sum = (T *)args->sum + row * args->columns + c;
    if (pack == 1) {
        sum[0] = T_store((TC)value[0]);
        return;
    }
    k_pack packed;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        packed.at[i] = T_store((TC)value[i]);
    }
    *(k_pack *)sum = packed;
}

typedef struct n_moments {
    K_SUM mean, rest, inverse; /* the mean is `mean` + `rest` */
} n_moments;

K_FN K_SUM n_scaled(const mp_norm_args *args, int64_t at, K_SUM normal) {
    const K_SUM scale = args->scale ? (K_SUM)U_load(((const U *)args->scale)[at]) : (K_SUM)1;
    const K_SUM bias = args->bias ? (K_SUM)U_load(((const U *)args->bias)[at]) : (K_SUM)0;
    return normal * scale + bias;
}

K_FN int64_t n_scale_at(const mp_norm_args *args, int64_t row, int64_t c) {
    return args->per_row == 0   ? c
           : args->per_row == 1 ? row % args->groups
                                : row % args->groups * args->per_row + c / args->inner;
}

/* K_PACK scales from column c on, of one for each column. */
K_FN void n_vector(const mp_norm_args *args, const U *vector, int64_t c, K_SUM none, K_SUM *out) {
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        out[i] = none;
    }
    if (vector && args->per_row == 0) {
        const n_out packed = *(const n_out *)(vector + c);
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            out[i] = (K_SUM)U_load(packed.at[i]);
        }
    }
}

K_FN void n_store(const mp_norm_args *args, int64_t row, int64_t c, int pack, n_moments m,
                  const K_SUM *value) {
    U *out = (U *)args->out + row * args->columns + c;
    if (pack == 1) {
        const K_SUM normal = (value[0] - m.mean - m.rest) * m.inverse;
        out[0] = U_store((UC)n_scaled(args, n_scale_at(args, row, c), normal));
        return;
    }
    K_SUM scale[K_PACK], bias[K_PACK];
    n_vector(args, (const U *)args->scale, c, (K_SUM)1, scale);
    n_vector(args, (const U *)args->bias, c, (K_SUM)0, bias);
    n_out packed;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        const K_SUM normal = (value[i] - m.mean - m.rest) * m.inverse;
        const K_SUM result = args->per_row == 0
                                 ? normal * scale[i] + bias[i]
                                 : n_scaled(args, n_scale_at(args, row, c + i), normal);
        packed.at[i] = U_store((UC)result);
    }
    *(n_out *)out = packed;
}

/* What a lane has seen of a row. The rounding of a mean that is large beside the deviations shows
 * in what is left over: `off` sums that too, and it is taken off. */
typedef struct n_spread {
    K_SUM off, squares;
} n_spread;

K_FN n_spread n_spread_of(n_spread s, const K_SUM *value, int pack, K_SUM mean) {
    K_UNROLL
    for (int i = 0; i < pack; i++) {
        const K_SUM off = value[i] - mean;
        s.off += off;
        s.squares += off * off;
    }
    return s;
}

K_FN n_moments n_moments_of(const mp_norm_args *args, n_spread s, K_SUM mean, uint32_t width) {
    n_moments m;
    m.mean = mean;
    m.rest = args->centred ? k_group_sum(s.off, width) / (K_SUM)args->columns : (K_SUM)0;
    const K_SUM squares = k_group_sum(s.squares, width) / (K_SUM)args->columns - m.rest * m.rest;
    const K_SUM variance = squares < 0 ? 0 : squares; /* NaN stays */
    const double deviation = sqrt((double)(variance + (K_SUM)args->epsilon));
    m.inverse = (K_SUM)1 / ((K_SUM)deviation + (K_SUM)args->floor);
    return m;
}

K_FN n_moments n_kept(const mp_norm_args *args, int64_t row, int64_t columns, k_turn t) {
    K_SUM keep[K_KEEP];
    K_SUM sum = 0, mean = 0;
    n_spread spread = {0, 0};
    K_KEPT_LOOP(k, c, K_PACK, t.lane, t.width) {
        if (c < columns) {
            n_load(args, row, c, K_PACK, keep + k);
            K_UNROLL
            for (int i = 0; i < K_PACK; i++) {
                sum += keep[k + i];
            }
        }
    }
    if (args->centred) {
        mean = k_group_sum(sum, t.width) / (K_SUM)args->columns;
    }
    K_KEPT_LOOP(k, c, K_PACK, t.lane, t.width) {
        if (c < columns) {
            spread = n_spread_of(spread, keep + k, K_PACK, mean);
        }
    }
    const n_moments m = n_moments_of(args, spread, mean, t.width);
    K_KEPT_LOOP(k, c, K_PACK, t.lane, t.width) {
        if (c < columns) {
            if (args->sum) {
                n_store_sum(args, row, c, K_PACK, keep + k);
            }
            n_store(args, row, c, K_PACK, m, keep + k);
        }
    }
    return m;
}

K_FN n_moments n_read_again(const mp_norm_args *args, int64_t row, int64_t columns, k_turn t,
                            int pack) {
    const int64_t first = (int64_t)t.lane * pack, step = (int64_t)t.width * pack;
    K_SUM value[K_PACK];
    K_SUM sum = 0, mean = 0;
    n_spread spread = {0, 0};
    for (int64_t c = first; c < columns && args->centred; c += step) {
        n_load(args, row, c, pack, value);
        for (int i = 0; i < pack; i++) {
            sum += value[i];
        }
    }
    if (args->centred) {
        mean = k_group_sum(sum, t.width) / (K_SUM)args->columns;
    }
    for (int64_t c = first; c < columns; c += step) {
        n_load(args, row, c, pack, value);
        spread = n_spread_of(spread, value, pack, mean);
    }
    const n_moments m = n_moments_of(args, spread, mean, t.width);
    for (int64_t c = first; c < columns; c += step) {
        n_load(args, row, c, pack, value);
        if (args->sum) {
            n_store_sum(args, row, c, pack, value);
        }
        n_store(args, row, c, pack, m, value);
    }
    return m;
}

K_FN void n_put_stat(void *out, int wide, int64_t row, K_SUM value) {
    if (out && wide) {
        ((double *)out)[row] = (double)value;
    } else if (out) {
        ((float *)out)[row] = (float)value;
    }
}

K_BLOCK_KERNEL_UP_TO(K_ROW_LANES_MAX, mp_norm_args, args) {
    const k_turn t = k_turns(args.width);
    const int kept = args.packed && args.columns <= (int64_t)t.width * K_KEEP;
    for (int64_t first = t.first; first < args.rows; first += t.step) {
        const int64_t row = first + t.group;
        const int64_t columns = row < args.rows ? args.columns : 0;
        const n_moments m = kept          ? n_kept(&args, row, columns, t)
                            : args.packed ? n_read_again(&args, row, columns, t, K_PACK)
                                          : n_read_again(&args, row, columns, t, 1);
        if (columns > 0 && t.lane == 0) {
            n_put_stat(args.mean, args.wide_stats, row, m.mean + m.rest);
            n_put_stat(args.inverse, args.wide_stats, row, m.inverse);
        }
    }
}
