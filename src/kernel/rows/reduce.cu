/* reduce.cu - sums, products and extremes. Of few outputs, pieces of what goes into each are
 * reduced first and then merged: always the same pieces in the same order.
 *
 * In rows each output is made by a group of lanes. Short rows begin anywhere in a pack, so a block
 * brings many of them to shared memory as packs, and each lane takes one from there. In columns
 * each lane takes the 16 bytes of outputs that are neighbours; lanes one below the other take every
 * so many-th row, and meet in shared memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/reduce.h"

enum { AT_ONCE = K_HOST ? 1 : sizeof(T) == 1 ? 2 : 4 }; /* packs on their way to a lane */

/* What came of a pack's places, each apart. */
typedef struct r_sums {
    K_SUM at[K_PACK];
} r_sums;

K_FN r_sums r_nothing(void) {
    r_sums sums;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        sums.at[i] = r_identity();
    }
    return sums;
}

K_FN void r_add_pack(r_sums *sums, k_pack pack) {
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        sums->at[i] = r_add(sums->at[i], r_load(pack.at[i]));
    }
}

/* ---- rows ---- */

#if R_OP == R_logsumexp
K_FN K_SUM r_log_sum_exp(const mp_reduce_args *args, const T *x, int64_t end, k_round t) {
    K_SUM largest = -(K_SUM)K_INF;
    for (int64_t i = t.lane; i < end; i += t.width) {
        const K_SUM value = r_load(x[r_dropped(args, i)]);
        largest = value > largest || value != value ? value : largest;
    }
    largest = k_group_max(largest, t.width);
    const K_SUM base = largest - largest == 0 ? largest : 0; /* not inf, not NaN */
    K_SUM sum = 0;
    for (int64_t i = t.lane; i < end; i += t.width) {
        sum += r_exp(r_load(x[r_dropped(args, i)]) - base);
    }
    sum = k_group_sum(sum, t.width);
    return (K_SUM)(log((double)sum) + (double)base);
}
#endif

/* Elements [from, end) from x on, which are less than a pack. */
K_FN K_SUM r_few(K_SUM sum, const T *x, int64_t from, int64_t end, k_round t) {
    for (int64_t i = from + t.lane; i < end; i += t.width) {
        sum = r_add(sum, r_load(x[i]));
    }
    return sum;
}

/* `count` neighbours from x on: the packs of 16 aligned bytes, and what is before and behind. */
K_FN K_SUM r_run(const T *x, int64_t count, k_round t) {
    const int32_t shift = k_row_shift(x);
    const int64_t end = count + shift, last = end / K_PACK;
    const k_pack *packs = (const k_pack *)(x - shift);
    const int64_t step = t.width;
    r_sums sums = r_nothing();
    k_pack pack[AT_ONCE];
    int64_t i = (shift > 0) + (int64_t)t.lane;
    for (; i + (AT_ONCE - 1) * step < last; i += AT_ONCE * step) {
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            pack[k] = packs[i + k * step];
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            r_add_pack(&sums, pack[k]);
        }
    }
    if (i < last) {
        K_UNROLL
        for (int k = 0; k < AT_ONCE - 1; k++) {
            pack[k] = packs[i + k * step < last ? i + k * step : i];
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE - 1; k++) {
            if (i + k * step < last) {
                r_add_pack(&sums, pack[k]);
            }
        }
    }
    K_SUM sum = sums.at[0];
    K_UNROLL
    for (int k = 1; k < K_PACK; k++) {
        sum = r_merge(sum, sums.at[k]);
    }
    const int64_t head = shift == 0 ? 0 : end < K_PACK ? end : K_PACK;
    const int64_t tail = last * K_PACK > head ? last * K_PACK : head;
    sum = r_few(sum, x - shift, shift, head, t);
    return r_few(sum, x - shift, tail, end, t);
}

/* Elements start, start + step, ... before end, `stride` from one element to the next. */
K_FN K_SUM r_strided(const T *x, int64_t stride, int64_t start, int64_t end, int64_t step) {
    K_SUM sum = r_identity();
    int64_t i = start;
    for (; i + 3 * step < end; i += 4 * step) {
        T element[4];
        K_UNROLL
        for (int k = 0; k < 4; k++) {
            element[k] = x[(i + k * step) * stride];
        }
        K_UNROLL
        for (int k = 0; k < 4; k++) {
            sum = r_add(sum, r_load(element[k]));
        }
    }
    K_ONE_COPY
    for (; i < end; i += step) {
        sum = r_add(sum, r_load(x[i * stride]));
    }
    return sum;
}

K_FN K_SUM r_apart(const mp_reduce_args *args, const T *x, int64_t start, int64_t end, k_round t) {
    if (args->dropped.rank == 1) {
        return r_strided(x, args->dropped.stride[0][0], start + t.lane, end, t.width);
    }
    K_SUM sum = r_identity();
    K_ONE_COPY
    for (int64_t i = start + t.lane; i < end; i += t.width) {
        sum = r_add(sum, r_load(x[r_dropped(args, i)]));
    }
    return sum;
}

K_FN K_SUM r_partials(const K_SUM *partial, int64_t count, k_round t) {
    K_SUM sum = r_identity();
    for (int64_t i = t.lane; i < count; i += t.width) {
        sum = r_merge(sum, partial[i]);
    }
    return sum;
}

/* What this group's lanes make of part `part`; nothing where there is no such part. */
K_FN K_SUM r_part(const mp_reduce_args *args, int64_t part, int64_t parts, k_round t) {
    if (part >= parts) {
        return r_identity();
    }
    if (args->stage == K_REDUCE_MERGE) {
        return r_partials((const K_SUM *)args->partial + part * args->pieces, args->pieces, t);
    }
    int64_t output = part, start = 0, end = args->reduced;
    if (args->stage == K_REDUCE_PIECES) {
        output = part / args->pieces;
        start = (part - output * args->pieces) * args->piece;
        end = start + args->piece < end ? start + args->piece : end;
    }
    const T *x = (const T *)args->x + r_kept(args, output);
    return args->form == K_REDUCE_RUNS ? r_run(x + r_dropped(args, start), end - start, t)
                                       : r_apart(args, x, start, end, t);
}

K_FN void r_rows(const mp_reduce_args *args) {
    const k_round t = k_rounds(args->width);
    const int pieces = args->stage == K_REDUCE_PIECES;
    const int64_t parts = pieces ? args->outputs * args->pieces : args->outputs;
    K_ROUND_LOOP(first, t, parts) {
        const int64_t part = first + t.group;
#if R_OP == R_logsumexp
        const int64_t at = part < parts ? r_kept(args, part) : 0;
        const int64_t end = part < parts ? args->reduced : 0;
        const K_SUM sum = r_log_sum_exp(args, (const T *)args->x + at, end, t);
#else
        const K_SUM sum = r_group(r_part(args, part, parts, t), t.width);
#endif
        if (part < parts && t.lane == 0 && pieces) {
            ((K_SUM *)args->partial)[part] = sum;
        } else if (part < parts && t.lane == 0) {
            ((T *)args->out)[part] = r_store(args, sum);
        }
    }
}

#if R_OP != R_logsumexp

/* ---- short rows ---- */

/* The packs at x come to shared memory. */
K_FN void r_bring(k_pack *shared, const k_pack *x, int32_t packs) {
    enum { MANY = K_HOST ? 1 : 4 }; /* on their way to a lane */
    const int32_t step = (int32_t)blockDim.x;
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < packs; i += MANY * step) {
        k_pack pack[MANY];
        K_UNROLL
        for (int k = 0; k < MANY; k++) {
            pack[k].words = x[i + k * step < packs ? i + k * step : i].words;
        }
        K_UNROLL
        for (int k = 0; k < MANY; k++) {
            if (i + k * step < packs) {
                shared[i + k * step].words = pack[k].words;
            }
        }
    }
}

K_FN void r_short(const mp_reduce_args *args) {
    K_SHARED(k_pack, packs);
    T *elements = (T *)packs;
    const int32_t length = (int32_t)args->reduced;
    for (int64_t first = (int64_t)blockIdx.x * K_REDUCE_SHORT_ROWS; first < args->outputs;
         first += (int64_t)gridDim.x * K_REDUCE_SHORT_ROWS) {
        const int64_t left = args->outputs - first;
        const int32_t rows = left < K_REDUCE_SHORT_ROWS ? (int32_t)left : K_REDUCE_SHORT_ROWS;
        const int32_t count = rows * length, whole = count / K_PACK;
        const T *x = (const T *)args->x + first * length;
        r_bring(packs, (const k_pack *)x, whole);
        K_BLOCK_LOOP(i, count - whole * K_PACK) {
            elements[whole * K_PACK + i] = x[whole * K_PACK + i];
        }
        __syncthreads();
        K_BLOCK_LOOP(row, rows) {
            K_SUM sum = r_identity();
            for (int32_t i = 0; i < length; i++) {
                sum = r_add(sum, r_load(elements[(int32_t)row * length + i]));
            }
            ((T *)args->out)[first + row] = r_store(args, sum);
        }
        __syncthreads(); /* all are read before the next ones come */
    }
}

/* ---- columns ---- */

/* The first `count` elements at x. */
K_FN k_pack r_pack(const T *x, int32_t count, int packed) {
    k_pack pack;
    if (packed) {
        return *(const k_pack *)x;
    }
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        pack.at[i] = x[i < count ? i : 0];
    }
    return pack;
}

/* Rows start, start + step, ... before end, of the columns at x; `stride` from one row to the next.
 */
K_FN r_sums r_walk(const T *x, int64_t stride, int32_t count, int64_t start, int64_t end,
                   int64_t step, int packed) {
    r_sums sums = r_nothing();
    int64_t i = start;
    for (; i + (AT_ONCE - 1) * step < end; i += AT_ONCE * step) {
        k_pack pack[AT_ONCE];
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            pack[k] = r_pack(x + (i + k * step) * stride, count, packed);
        }
        K_UNROLL
        for (int k = 0; k < AT_ONCE; k++) {
            r_add_pack(&sums, pack[k]);
        }
    }
    K_ONE_COPY
    for (; i < end; i += step) {
        r_add_pack(&sums, r_pack(x + i * stride, count, packed));
    }
    return sums;
}

K_FN r_sums r_walk_apart(const mp_reduce_args *args, const T *x, int32_t count, int64_t start,
                         int64_t end, int64_t step) {
    r_sums sums = r_nothing();
    K_ONE_COPY
    for (int64_t i = start; i < end; i += step) {
        r_add_pack(&sums, r_pack(x + r_dropped(args, i), count, args->packed));
    }
    return sums;
}

/* Merges what the lanes below each other have, by halves; all of it ends in the first `beside` of
 * `shared`. */
K_FN void r_meet(r_sums sums, r_sums *shared, k_round t, uint32_t slots) {
    const uint32_t slot = (uint32_t)t.group;
    for (uint32_t half = slots / 2; half > 0; half /= 2) {
        if (slot >= half && slot < 2 * half) {
            shared[(slot - half) * t.width + t.lane] = sums;
        }
        __syncthreads();
        if (slot < half) {
            const r_sums other = shared[slot * t.width + t.lane];
            K_UNROLL
            for (int k = 0; k < K_PACK; k++) {
                sums.at[k] = r_merge(sums.at[k], other.at[k]);
            }
        }
        __syncthreads();
    }
    if (slot == 0) {
        shared[t.lane] = sums;
    }
    __syncthreads();
}

/* The columns of x as packs of neighbours, of which the last of a line may be short. */
typedef struct r_lines {
    int64_t line, line_packs, packs;
} r_lines;

typedef struct r_place {
    int64_t output;
    int32_t count; /* 0 where there is no such pack */
} r_place;

K_FN r_place r_place_of(r_lines l, int64_t pack) {
    r_place p;
    const int64_t row = pack / l.line_packs, column = (pack - row * l.line_packs) * K_PACK;
    const int64_t left = pack < l.packs ? l.line - column : 0;
    p.output = row * l.line + column;
    p.count = left < K_PACK ? (int32_t)left : K_PACK;
    return p;
}

K_FN void r_columns_out(const mp_reduce_args *args, r_lines l, int64_t first, int64_t piece,
                        uint32_t beside, const r_sums *shared) {
    for (uint32_t i = threadIdx.x; i < beside * K_PACK; i += blockDim.x) {
        const r_place p = r_place_of(l, first + i / K_PACK);
        const int64_t output = p.output + i % K_PACK;
        const K_SUM sum = shared[i / K_PACK].at[i % K_PACK];
        if ((int32_t)(i % K_PACK) >= p.count) {
            continue;
        }
        if (args->stage == K_REDUCE_PIECES) {
            ((K_SUM *)args->partial)[output * args->pieces + piece] = sum;
        } else {
            ((T *)args->out)[output] = r_store(args, sum);
        }
    }
    __syncthreads();
}

/* A round is a piece of the columns that the lanes of a block have side by side. */
K_FN void r_columns(const mp_reduce_args *args) {
    K_SHARED(r_sums, shared);
    const k_round t = k_rounds(args->width); /* `group` is the row of lanes */
    const uint32_t slots = blockDim.x >> k_log2(t.width);
    const int64_t line_packs = (args->line + K_PACK - 1) / K_PACK;
    const r_lines l = {args->line, line_packs, args->outputs / args->line * line_packs};
    const int64_t tiles = (l.packs + t.width - 1) >> k_log2(t.width);
    const int pieces = args->stage == K_REDUCE_PIECES;
    const int64_t rounds = pieces ? tiles * args->pieces : tiles;
    for (int64_t round = blockIdx.x; round < rounds; round += gridDim.x) {
        const int64_t piece = round / tiles, first = (round - piece * tiles) * t.width;
        const int64_t start = pieces ? piece * args->piece : 0;
        const int64_t end =
            pieces && start + args->piece < args->reduced ? start + args->piece : args->reduced;
        const r_place p = r_place_of(l, first + t.lane);
        const int64_t stride = args->dropped.stride[0][0], mine = start + t.group;
        r_sums sums = r_nothing();
        if (p.count > 0) {
            const T *x = (const T *)args->x + r_kept(args, p.output);
            sums = args->dropped.rank > 1 ? r_walk_apart(args, x, p.count, mine, end, slots)
                   : args->packed         ? r_walk(x, stride, p.count, mine, end, slots, 1)
                                          : r_walk(x, stride, p.count, mine, end, slots, 0);
        }
        r_meet(sums, shared, t, slots);
        r_columns_out(args, l, first, piece, t.width, shared);
    }
}

#endif

K_BLOCK_KERNEL_IN_64(K_REDUCE_LANES_MAX, mp_reduce_args, args) {
#if R_OP != R_logsumexp
    if (args.form == K_REDUCE_SHORT) {
        r_short(&args);
        return;
    }
    if (args.form == K_REDUCE_COLUMNS && args.stage != K_REDUCE_MERGE) {
        r_columns(&args);
        return;
    }
#endif
    r_rows(&args);
}
