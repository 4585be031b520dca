/* nbits_stream.cu - one row times packed integers of K_BITS bits that no cache holds, by tensor
 * cores, at the rate at which memory gives them.
 *
 * As many blocks as there are multiprocessors stay until all is done, so that the row is made or
 * fetched once for each. A block has every so many-th tile of S_COLUMNS columns of the result, and
 * the stages of its tiles, S_CHUNKS chunks along k each, are dealt out to its warps one after the
 * other. A warp has a ring of K_NBITS_STREAM_AHEAD stages for itself, with scales and zero points,
 * and waits for no other one but where sums of several tiles are put together. That of the next
 * kernel fills beside it, before this kernel has ended: nbits_stream_cut.c sees to the room.
 *
 * Weights are the left operand. A lane has 16 bytes or more that lie together, a whole chunk of a
 * column, so the four lanes of a column have chunks of different blocks, whose sums must stay apart
 * until their scales are there. They do, since the right operand has a column for each:
 *     column t = the chunk of the row that lanes t have, and 0 for the others
 * Weights come as integers without their zero points (p_units), and those times the sum of the
 * chunk's elements are taken off behind the products. Sums are of exact integers times A, in float.
 * What warps have found is added in a fixed order.
 *
 * Rows of the left operand from 8 on may be columns of the other half of the result, which the
 * first half gates (`gated`).
 * SPDX-License-Identifier: Apache-2.0 */
#define K_LETS_AT_ONCE 1
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"
#include "kernel/pointwise/gate.h"
#include "kernel/quantize/quantize_args.h"

#if K_WARP_MATRIX

#include "kernel/quantize/nbits_row.h"

#define B_PUT(row, packs, i, each, pack) n_row_put(row, packs, i, pack)
#include "kernel/rows/before.h"

enum {
    S_LANES = 32,
    S_SIDE = 8, /* half of the rows of the left operand */
    S_COLUMNS = K_NBITS_STREAM_COLUMNS,
    S_CHUNK = K_NBITS_CHUNK,
    S_CHUNKS = K_NBITS_STREAM_CHUNKS,
    S_SHARE = 4,                    /* chunks that the lanes of a column have at once */
    S_BYTES = S_CHUNK * K_BITS / 8, /* of a chunk */
    S_ROW = S_CHUNKS * S_BYTES,     /* of a column of a stage */
    S_PIECES = S_ROW / 16,
    S_SCALES = S_COLUMNS * S_ROW,                 /* where they begin in a stage */
    S_SCALE_ROW = S_CHUNKS * 2,                   /* of a column, at most */
    S_ZEROS = S_SCALES + S_COLUMNS * S_SCALE_ROW, /* where they begin */
    S_ZERO_ROW = K_BITS,                          /* of a column, at most */
    S_STAGE = K_NBITS_STREAM_STAGE(K_BITS),
    S_AHEAD = K_NBITS_STREAM_AHEAD,
    S_KEPT = K_NBITS_STREAM_KEPT,
};

typedef struct s_place {
    const mp_nbits_args *args;
    uint8_t *shared;
    int32_t stages; /* of a tile */
    int32_t each;   /* columns of the result that a tile makes */
    int32_t apart;  /* columns from a row of the left operand to that S_SIDE behind it */
    int32_t shift;  /* chunks of a block of weights */
    uint32_t mask;  /* p_mask() */
    float zero;     /* where there are no zero points */
    int32_t warps, warp, lane, g, t;
} s_place;

K_FN s_place s_place_of(const mp_nbits_args *args, uint8_t *shared) {
    const k_nbits *w = &args->w;
    s_place at;
    at.args = args;
    at.shared = shared;
    at.stages = (int32_t)w->k / (S_CHUNK * S_CHUNKS);
    at.each = args->gated ? S_COLUMNS / 2 : S_COLUMNS;
    at.apart = args->gated ? (int32_t)w->n / 2 : S_SIDE;
    at.shift = w->block_shift - 5;
    at.mask = p_mask(w);
    K_HOLD(at.mask); /* not computed anew at each use */
    at.zero = (float)(w->middle + P_BIAS);
    at.warps = (int32_t)blockDim.x / S_LANES;
    at.warp = (int32_t)threadIdx.x / S_LANES;
    at.lane = (int32_t)threadIdx.x % S_LANES;
    at.g = at.lane / 4;
    at.t = at.lane % 4;
    return at;
}

/* One of the warp's stages: its place in its tile, and counted from the first one of the matrix,
 * where the stages of a column follow one another and then come those of the next column. */
typedef struct s_step {
    int32_t stage;
    uint32_t place; /* of the tile's first column */
} s_step;

/* To the next one; whether it is of another tile. None has fewer stages than there are warps. */
K_FN int32_t s_go_on(const s_place *at, s_step *step) {
    step->stage += at->warps;
    step->place += (uint32_t)at->warps;
    if (step->stage < at->stages) {
        return 0;
    }
    step->stage -= at->stages;
    step->place += (gridDim.x * (uint32_t)at->each - 1) * (uint32_t)at->stages;
    return 1;
}

/* Tiles of this block, and stages of this warp in them. */
K_FN int32_t s_tiles(const s_place *at) {
    const int32_t tiles = (int32_t)at->args->w.n / S_COLUMNS, first = (int32_t)blockIdx.x;
    return first < tiles ? (tiles - 1 - first) / (int32_t)gridDim.x + 1 : 0;
}

K_FN int32_t s_count(const s_place *at) {
    return (s_tiles(at) * at->stages - 1 - at->warp + at->warps) / at->warps;
}

/* ---- into shared memory ---- */

/* Where piece `i` of a column lies in its row, so that the pieces that eight lanes read at once lie
 * in different banks: those of four lanes of a column and of its neighbour. */
K_FN int32_t s_piece(int32_t column, int32_t i) {
    return i ^ (column % 2 * (K_BITS == 4 ? S_SHARE : 1));
}

/* What a lane copies: pieces of weights, and the scales of a column or, in the second half of a
 * warp, its zero points. */
typedef struct s_source {
    s_step step;
    int32_t left; /* stages */
    const uint8_t *weight, *side;
    uint32_t side_bytes; /* of a stage */
    int32_t side_copied; /* 4, 8, 16 or 0: with zero points that are fewer come some around them */
    int32_t weight_to, side_to;
} s_source;

K_FN s_source s_source_of(const s_place *at) {
    const k_nbits *w = &at->args->w;
    const int32_t row = at->lane / S_PIECES, piece = at->lane % S_PIECES;
    const int32_t of = at->lane % S_COLUMNS, scales = at->lane < S_COLUMNS;
    const int64_t column = of % S_SIDE + of / S_SIDE * at->apart;
    s_source from;
    from.step.stage = at->warp;
    from.step.place = blockIdx.x * (uint32_t)at->each * (uint32_t)at->stages + (uint32_t)at->warp;
    from.left = s_count(at);
    from.weight = (const uint8_t *)w->weight + row * at->stages * S_ROW + piece * 16;
    from.weight_to = row * S_ROW + s_piece(row, piece) * 16;
    from.side_bytes = (uint32_t)(scales ? S_SCALE_ROW : S_ZERO_ROW) >> at->shift;
    from.side_copied = from.side_bytes < 4 ? 4 : (int32_t)from.side_bytes;
    from.side = (const uint8_t *)w->scale;
    from.side_to = S_SCALES + of * S_SCALE_ROW;
    if (!scales) {
        from.side = (const uint8_t *)w->zero;
        from.side_to = S_ZEROS + of * S_ZERO_ROW;
        from.side_copied = w->zero != 0 ? from.side_copied : 0;
    }
    from.side += column * at->stages * from.side_bytes;
    return from;
}

/* The stage there, if there is one, which becomes a group of copies. */
K_FN void s_fill(const s_place *at, s_source *from, uint8_t *to) {
    enum { EACH = S_LANES / S_PIECES };
    if (from->left > 0) {
        const uint8_t *weight = from->weight + (uint64_t)from->step.place * S_ROW;
        const uint8_t *side = from->side + (uint64_t)from->step.place * from->side_bytes;
        uint8_t *weight_to = to + from->weight_to;
        K_UNROLL
        for (int32_t half = 0; half < 2; half++) {
            K_UNROLL
            for (int32_t r = 0; r < S_SIDE; r += EACH) {
                k_copy_begin_once(weight_to + (half * S_SIDE + r) * S_ROW,
                                  weight + r * S_ROW * at->stages, 16);
            }
            weight += at->apart * S_ROW * at->stages;
        }
        k_copy_few(to + from->side_to, side - ((uint64_t)side & 3), from->side_copied);
        from->left--;
    }
    k_copies_group();
    (void)s_go_on(at, &from->step);
}

/* ---- the row ---- */

/* All of it to shared memory. */
K_FN void s_row(const s_place *at) {
    const mp_nbits_args *args = at->args;
    k_pack *row = (k_pack *)(void *)(at->shared + args->shared.row);
    const int32_t packs = (int32_t)args->w.k / K_PACK;
    if (threadIdx.x < N_ROW_PARTS) { /* what lanes have that have nothing of the row */
        K_UNROLL
        for (int32_t i = 0; i < 4; i++) {
            row[(int32_t)threadIdx.x - N_ROW_PARTS].words.at[i] = 0;
        }
    }
#if K_BEFORE == K_BEFORE_NOTHING
    enum { ONCE = 4 };
    const int32_t lanes = (int32_t)blockDim.x;
    k_wait();
    K_ONE_COPY
    for (int32_t first = (int32_t)threadIdx.x; first - at->lane < packs; first += ONCE * lanes) {
        k_pack x[ONCE];
        K_UNROLL
        for (int32_t i = 0; i < ONCE; i++) {
            const int32_t place = first + i * lanes, is = place < packs;
            k_fetch((const k_pack *)args->a + (is ? place : 0), is, x[i].words.at);
        }
        K_UNROLL
        for (int32_t i = 0; i < ONCE; i++) {
            n_row_put(row, packs, first + i * lanes, x[i]);
        }
    }
    __syncthreads();
#else
    b_make(&args->before, row, 0);
#endif
}

/* ---- products ---- */

/* The zero point of a chunk of the column that is `half` of this lane's. */
K_FN float s_zero(const s_place *at, const uint8_t *stage, s_step step, int32_t half,
                  int32_t chunk) {
    const uint32_t column = (uint32_t)(at->g + half * at->apart);
    const uint32_t place = step.place + column * (uint32_t)at->stages;
    const uint32_t past = place * ((uint32_t)S_ZERO_ROW >> at->shift) & 3; /* the copy's begin */
    const int32_t bit = (chunk >> at->shift) * K_BITS;
    const uint8_t *from = stage + S_ZEROS + (half * S_SIDE + at->g) * S_ZERO_ROW + past;
    return (float)(int32_t)(((uint32_t)from[bit / 8] >> bit % 8 & at->mask & 0xff) + P_BIAS);
}

/* Four chunks of each column, from `first` on. `zeros`, a constant where this is called: whether
 * there are zero points. */
K_FN void s_chunks(const s_place *at, const uint8_t *stage, s_step step, int32_t first, int zeros,
                   float *total) {
    enum { PIECES = N_ROW_PIECES };
    const k_pack *row = (const k_pack *)(const void *)(at->shared + at->args->shared.row);
    const float *row_sums = (const float *)(const void *)(row + (int32_t)at->args->w.k / K_PACK);
    const int32_t chunk = first + at->t, before = step.stage * S_CHUNKS;
    const k_pack *x = at->g == at->t ? row + (before + chunk) * N_ROW_PARTS : row - N_ROW_PARTS;
    n_weights weights[2];
    float sum[2][4] = {};
    K_UNROLL
    for (int32_t half = 0; half < 2; half++) {
        const uint8_t *column = stage + (half * S_SIDE + at->g) * S_ROW;
        K_UNROLL
        for (int32_t i = 0; i < PIECES; i++) {
            const void *from = column + s_piece(at->g, chunk * PIECES + i) * 16;
            weights[half].pieces[i] = ((const n_weights *)from)->pieces[0];
        }
    }
    K_UNROLL
    for (int32_t i = 0; i < N_ROW_PARTS; i++) {
        const k_pack part = x[i];
        n_products(weights, i, &part, at->mask, sum);
    }
    /* Those of lanes from t = 2 on are of nothing. */
    const T *scale = (const T *)(const void *)(stage + S_SCALES + at->g * S_SCALE_ROW);
    const int32_t mine = at->t % 2 * 2;
    K_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        const int32_t half = i / 2, e = i % 2;
        const int32_t of = ((mine + e) >> at->shift) + (first >> at->shift);
        const float zero = zeros ? s_zero(at, stage, step, half, first + mine + e) : at->zero;
        const float both = sum[0][i] + sum[1][i] * (1.0f / P_HIGH);
        total[half] += (both - zero * row_sums[before + first + mine + e]) *
                       T_load(scale[half * S_SIDE * S_SCALE_ROW / 2 + of]);
    }
}

K_FN void s_stage(const s_place *at, const uint8_t *stage, s_step step, int zeros, float *total) {
    K_UNROLL
    for (int32_t first = 0; first < S_CHUNKS; first += S_SHARE) {
        s_chunks(at, stage, step, first, zeros, total);
    }
}

/* ---- sums ---- */

/* Those of a tile that this warp has found. */
K_FN void s_keep(const s_place *at, int32_t kept, const float *total) {
    float *sums = (float *)(void *)(at->shared + at->args->shared.sums) +
                  (kept * at->warps + at->warp) * S_COLUMNS;
    K_UNROLL
    for (int32_t half = 0; half < 2; half++) {
        const float all = total[half] + __shfl_xor_sync(0xffffffffu, total[half], 1);
        if (at->t == 0) {
            sums[half * S_SIDE + at->g] = all;
        }
    }
}

K_FN float s_again(const s_place *at, int64_t column) {
    const k_nbits *w = &at->args->w;
    const n_column of = {(const uint8_t *)w->weight + column * w->weight_row,
                         w->zero != 0 ? (const uint8_t *)w->zero + column * w->zero_row : 0,
                         (const T *)w->scale + column * w->blocks, (int32_t)w->k, w->block_shift};
    return n_again(&of, w->middle,
                   (const k_pack *)(const void *)(at->shared + at->args->shared.row));
}

K_FN T s_sum(const s_place *at, int32_t kept, int32_t row, int64_t column) {
    const mp_nbits_args *args = at->args;
    const float *sums = (const float *)(const void *)(at->shared + args->shared.sums) +
                        kept * at->warps * S_COLUMNS + row;
    float total = 0;
    K_UNROLL
    for (int32_t warp = 0; warp < K_NBITS_STREAM_WARPS; warp++) { /* all are asked for at once */
        total += warp < at->warps ? sums[warp * S_COLUMNS] : 0;
    }
    total = total - total == 0 ? total / P_UNIT : s_again(at, column);
    return T_store(total + (args->bias != 0 ? T_load(((const T *)args->bias)[column]) : 0));
}

/* The results of `kept` of the block's tiles from `first` on. All lanes call. */
K_FN void s_put(const s_place *at, int32_t first, int32_t kept) {
    const mp_nbits_args *args = at->args;
    const int32_t i = (int32_t)threadIdx.x, tile = args->gated ? i / 8 : i / 16;
    const int32_t row = i - tile * at->each;
    const int64_t of = blockIdx.x + (int64_t)(first + tile) * gridDim.x;
    const int64_t column = of * at->each + row;
    __syncthreads();
    if (tile < kept) {
        T made = s_sum(at, tile, row, column);
        if (args->gated) {
            const T other = s_sum(at, tile, row + S_SIDE, column + at->apart);
            made = g_gated(args->gate, args->alpha, made, other);
        }
        ((T *)args->out)[column] = made;
    }
    __syncthreads();
}

/* ---- what a block does ---- */

K_FN void s_run(const mp_nbits_args *args, uint8_t *shared) {
    const s_place at = s_place_of(args, shared);
    uint8_t *ring = shared + at.warp * S_AHEAD * S_STAGE;
    s_source from = s_source_of(&at);
    s_step now = from.step;
    int32_t place = 0, kept = 0, first = 0;
    const int32_t tiles = s_tiles(&at);
    float total[2] = {};
    K_ONE_COPY
    for (int32_t i = 0; i < S_AHEAD; i++) {
        s_fill(&at, &from, ring + i * S_STAGE);
    }
    s_row(&at);
    K_ONE_COPY
    while (first + kept < tiles) {
        uint8_t *stage = ring + place * S_STAGE;
        K_COPIES_WAIT(S_AHEAD - 1);
        __syncwarp();
        if (args->w.zero != 0) {
            s_stage(&at, stage, now, 1, total);
        } else {
            s_stage(&at, stage, now, 0, total);
        }
        __syncwarp(); /* all lanes have read it */
        s_fill(&at, &from, stage);
        place = place + 1 < S_AHEAD ? place + 1 : 0;
        if (s_go_on(&at, &now)) {
            s_keep(&at, kept++, total);
            total[0] = total[1] = 0;
            if (kept == S_KEPT || first + kept == tiles) {
                s_put(&at, first, kept);
                first += kept;
                kept = 0;
            }
        }
    }
}

#endif

/* So few registers that blocks of the next kernel find room beside. */
K_BLOCK_KERNEL_LATE_OF(K_NBITS_STREAM_LANES, K_NBITS_STREAM_BLOCKS, mp_nbits_args, args) {
#if K_WARP_MATRIX
    K_SHARED(uint8_t, shared);
    if (!args.constant) {
        k_wait();
    }
    s_run(&args, shared);
#else
    (void)args;
#endif
}
