/* column_sum.cu - sums or means over rows, x[outer][rows][line] to out[outer][line], where rows are
 * whole aligned packs of 16 bytes, or some rows together are: what is left of each channel of an
 * image with channels last. Of many rows to few columns in two launches: pieces of the rows first,
 * then the sum of those.
 *
 * A block has a few packs side by side and many lanes below each, which take every so many-th row,
 * some of them at once. Lanes below each other meet in shared memory: first each column's parts by
 * as many lanes as there are, then what these have:
 *
 *     lanes    (row 0, packs 0 1) (row 1, packs 0 1) (row 2, ...      sums of K_PACK columns each
 *     parts    column 0 .. 2 * K_PACK of rows 0, 4, 8 ..; of rows 1, 5, 9 ..; ...
 *     columns
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/rows/column_walk.h"
#include "kernel/rows/row_args.h"

K_FN c_sums c_walk_partial(const K_SUM *x, int64_t line, int32_t first, int32_t end, int32_t step) {
    c_sums sums = {{0}};
    K_ONE_COPY
    for (int32_t row = first; row < end; row += step) {
        const c_sums partial = *(const c_sums *)(x + row * line);
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            sums.at[i] += partial.at[i];
        }
    }
    return sums;
}

/* A tile of columns, of which this lane has `pack`, and a piece of the rows. */
typedef struct c_round {
    uint32_t first, pack; /* of all packs */
    int64_t outer;        /* of `pack` */
    int32_t begin, end;   /* rows; none where there is no such pack */
    int32_t piece;
} c_round;

K_FN c_round c_round_of(const mp_column_sum_args *args, k_round t, int64_t i) {
    c_round r;
    const int pieces = args->stage == K_REDUCE_PIECES;
    const uint32_t tile = pieces ? k_divide((uint32_t)i, args->by_pieces) : (uint32_t)i;
    const int32_t rows = args->stage == K_REDUCE_MERGE ? args->pieces : args->rows;
    r.piece = pieces ? (int32_t)((uint32_t)i - tile * (uint32_t)args->pieces) : 0;
    r.first = tile * t.width;
    r.pack = r.first + t.lane;
    r.outer = k_divide(r.pack, args->by_packs);
    r.begin = r.piece * args->piece;
    r.end = pieces && rows - r.begin > args->piece ? r.begin + args->piece : rows;
    r.end = r.pack < (uint32_t)args->packs ? r.end : 0;
    return r;
}

K_FN c_sums c_read(const mp_column_sum_args *args, const c_round *r, int32_t mine, int32_t step) {
    const int64_t flat = (int64_t)r->pack * K_PACK; /* where the pack is in out */
    if (args->stage == K_REDUCE_MERGE) {
        const int64_t at = flat + r->outer * (args->pieces - 1) * args->line;
        return c_walk_partial((const K_SUM *)args->partial + at, args->line, mine, r->end, step);
    }
    const int64_t at = flat + r->outer * (args->rows - 1) * args->line;
    return c_walk((const T *)args->x + at, args->line, r->begin + mine, r->end, step);
}

K_FN void c_store(const mp_column_sum_args *args, int64_t flat, K_SUM sum) {
    const K_SUM rows = (K_SUM)args->rows * (K_SUM)args->folds;
    ((T *)args->out)[flat] = T_store((TC)(args->mean ? sum / rows : sum));
}

/* Column `c` of those that the block has. */
K_FN void c_put(const mp_column_sum_args *args, const c_round *r, uint32_t c, K_SUM sum) {
    const uint32_t pack = r->first + c / K_PACK;
    const int64_t flat = (int64_t)r->first * K_PACK + c;
    if (pack >= (uint32_t)args->packs) {
        return;
    }
    if (args->stage == K_REDUCE_PIECES) {
        const int64_t outer = k_divide(pack, args->by_packs);
        const int64_t row = outer * (args->pieces - 1) + r->piece;
        ((K_SUM *)args->partial)[flat + row * args->line] = sum;
    } else {
        c_store(args, flat, sum);
    }
}

/* What the lanes have of each column. */
K_FN void c_meet(const mp_column_sum_args *args, const c_round *r, k_round t, c_sums sums,
                 K_SUM *shared) {
    const uint32_t lanes = blockDim.x, columns = t.width * K_PACK, below = (uint32_t)t.groups;
    const uint32_t parts = columns < lanes ? lanes >> k_log2(columns) : 1;
    K_SUM *met = shared + lanes * K_PACK;
    *(c_sums *)(shared + threadIdx.x * K_PACK) = sums;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < columns * parts; i += lanes) {
        const uint32_t c = i & (columns - 1);
        const K_SUM sum = c_part(shared + c, columns, i >> k_log2(columns), parts, below);
        if (parts == 1) {
            c_put(args, r, c, sum);
        } else {
            met[i] = sum;
        }
    }
    __syncthreads();
    if (parts > 1 && threadIdx.x < columns) {
        c_put(args, r, threadIdx.x, c_join(met + threadIdx.x, columns, parts));
    }
}

/* Of pieces whose lines are several rows: a block adds all parts of a column. */
K_FN void c_fold(const mp_column_sum_args *args) {
    const int64_t columns = args->line / args->folds, parts = (int64_t)args->pieces * args->folds;
    const K_SUM *partial = (const K_SUM *)args->partial;
    for (int64_t c = blockIdx.x; c < columns; c += gridDim.x) {
        K_SUM sum = 0;
        K_BLOCK_LOOP(i, parts) {
            sum += partial[i * columns + c];
        }
        sum = k_block_sum(sum);
        if (threadIdx.x == 0) {
            c_store(args, c, sum);
        }
    }
}

K_BLOCK_KERNEL_IN_64(K_COLUMN_SUM_LANES, mp_column_sum_args, args) {
    K_SHARED(K_SUM, shared);
    if (args.folds > 1 && args.stage == K_REDUCE_MERGE) {
        c_fold(&args);
        return;
    }
    const k_round t = k_rounds(args.width); /* `group` is the row of lanes */
    const int64_t tiles = (args.packs + (int64_t)t.width - 1) >> k_log2(t.width);
    const int64_t rounds = args.stage == K_REDUCE_PIECES ? tiles * args.pieces : tiles;
    for (int64_t i = blockIdx.x; i < rounds; i += gridDim.x) {
        const c_round r = c_round_of(&args, t, i);
        c_meet(&args, &r, t, c_read(&args, &r, (int32_t)t.group, (int32_t)t.groups), shared);
    }
}
