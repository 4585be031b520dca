/* nbits_tile.cu - some rows, two to some hundred, times packed integers of K_BITS bits by tensor
 * cores: weights come from memory once for K_ROWS rows, as packed as they are.
 *
 * Weights are the left operand, 16 columns of the result at a time, and rows of A the right one,
 * eight at a time. A block makes a tile of K_NBITS_TILE_COLUMNS columns and K_ROWS rows, and each
 * of its warps a quarter of the columns: what a warp unpacks is multiplied by all rows. Stages of
 * K_NBITS_TILE_CHUNKS chunks along k go through a ring in shared memory: weights, which a warp has
 * for itself and which are on their way before the kernel before has ended, where they are
 * constants, and rows of A, which are the block's. Scales and zero points come for X_SPAN chunks at
 * once, with what lies around them in pieces of 16 bytes, since columns may begin anywhere.
 *
 * The tiles of one column's rows lie side by side among the blocks, so that weights which several
 * of them read come from memory for one. Where there are few tiles, the blocks of a cluster share
 * the stages of one, and each finishes a part of it. Sums of a chunk are of exact integers times A,
 * in float, and then go by their scale to those of the tile; what blocks have found is added in a
 * fixed order.
 *
 * Floats come as three numbers of bfloat16 each, whose sum they are (nbits_split.cu), and each of
 * these is multiplied: a product of one with a weight is exact. Where TF32 would do, two are.
 *
 * Rows of the left operand from 8 on may be columns of the other half of the result, which the
 * first half gates (`gated`).
 * SPDX-License-Identifier: Apache-2.0 */
#define K_LETS_AT_ONCE 1
#include "kernel/core/late.h"
#include "kernel/core/meet.h"
#include "kernel/core/row_lanes.h"
#include "kernel/pointwise/gate.h"
#include "kernel/quantize/quantize_args.h"

#include "kernel/core/warp_matrix.h"

#if K_WARP_MATRIX

#include "kernel/quantize/nbits_pair.h"

#define X_PRODUCT_f16  k_mma_f16
#define X_PRODUCT_bf16 k_mma_bf16
#define X_PRODUCT_f32  k_mma_bf16
#define x_product      K_JOIN(X_PRODUCT_, K_T0)

enum {
    X_LANES = 32,
    X_WARPS = K_NBITS_TILE_LANES / X_LANES,
    X_SIDE = 8,   /* rows of a right operand; columns of an octet, which is half of a left one */
    X_OCTETS = 4, /* of a warp */
    X_WIDE = X_OCTETS / 2,
    X_HIGH = K_ROWS / X_SIDE,
    X_PAIR = X_HIGH > 1 ? 2 : 1, /* right operands that a warp has at once */
    X_CHUNK = K_NBITS_CHUNK,
    X_CHUNKS = K_NBITS_TILE_CHUNKS,
    X_PARTS = K_NBITS_TILE_PARTS(sizeof(T)),
    X_TEXTS = 64 / (K_ROWS * X_PARTS),
    X_TOGETHER = X_TEXTS < 4 ? X_TEXTS : 4, /* chunks whose text is one */
    X_BYTES = X_CHUNK * K_BITS / 8,         /* of a chunk */
    X_ROW = X_CHUNKS * X_BYTES,             /* of a column of a stage */
    X_PIECES = X_ROW / 16,
    X_IN_CHUNK = X_BYTES / 16,
    X_EACH = X_LANES / X_PIECES, /* columns that a warp copies at once */
    X_COPIES = X_OCTETS * X_SIDE / X_EACH,
    X_PART = 2, /* bytes of an element's part */
    X_A_CHUNK = X_CHUNK * X_PART,
    X_A_ROW = X_CHUNKS * X_A_CHUNK,
    X_A_PIECES = X_A_ROW / 16,
    X_A = K_NBITS_TILE_COLUMNS * X_ROW, /* where rows begin in a stage */
    X_STAGE = K_NBITS_TILE_STAGE(K_BITS, K_ROWS, sizeof(T)),
    X_AHEAD = K_NBITS_TILE_AHEAD(K_BITS, K_ROWS, sizeof(T)),
    X_SPAN = K_NBITS_TILE_SPAN,
    X_OF_SPAN = X_SPAN / X_CHUNKS,           /* stages */
    X_SCALE = K_NBITS_TILE_SCALE(sizeof(T)), /* bytes of a span and column, with those around */
    X_ZERO = K_NBITS_TILE_ZERO,
    X_FRAGMENTS = X_WARPS * X_WIDE * X_HIGH, /* of a tile: what a product gives */
};

typedef struct K_ALIGN(16) x_four {
    float at[4];
} x_four;

static_assert(X_FRAGMENTS * X_LANES * sizeof(x_four) <= X_AHEAD * X_STAGE,
              "sums find room where the ring was");
static_assert(X_AHEAD - 1 <= X_OF_SPAN, "two spans are enough");

typedef struct x_place {
    const mp_nbits_args *args;
    uint8_t *shared;
    int32_t column, columns; /* of the result (of its left half): the warp's first, and the end */
    int32_t step;            /* columns from a left operand to the next */
    int32_t apart;           /* to column 8 of a left operand; less what is the other half's: */
    int32_t beside;
    int32_t row, rows;     /* of A: the block's first, and how many there are */
    int32_t chunks;        /* of a column */
    int32_t chunk, stages; /* the block's first one, and its stages */
    int32_t shift;         /* chunks of a block of weights */
    int32_t rank;          /* among the blocks of its tile */
    p_base base;           /* where there are no zero points */
    int32_t warp, lane, g, t;
} x_place;

K_FN x_place x_place_of(const mp_nbits_args *args, uint8_t *shared) {
    const int32_t log = args->splits_log, each = args->gated ? X_SIDE : X_SIDE * 2;
    const uint32_t groups = (uint32_t)(args->m + K_ROWS - 1) / K_ROWS;
    const uint32_t number = blockIdx.x >> log, tile = number / groups;
    uint32_t mask = p_mask(&args->w);
    x_place at;
    K_HOLD(mask); /* by the lane: an instruction with a constant takes nothing that warps share */
    at.args = args;
    at.shared = shared;
    at.base = p_base_of((uint32_t)args->w.middle, mask);
    at.rank = (int32_t)blockIdx.x & ((1 << log) - 1);
    at.warp = (int32_t)threadIdx.x / X_LANES;
    at.lane = (int32_t)threadIdx.x % X_LANES;
    at.g = at.lane / 4;
    at.t = at.lane % 4;
    at.step = each;
    at.column = ((int32_t)tile * X_WARPS + at.warp) * X_WIDE * each;
    at.columns = (int32_t)args->w.n / (args->gated ? 2 : 1);
    at.apart = args->gated ? at.columns : X_SIDE;
    at.beside = args->gated ? 0 : X_SIDE;
    at.row = (int32_t)(number - tile * groups) * K_ROWS;
    at.rows = (int32_t)args->m - at.row;
    at.rows = at.rows < K_ROWS ? at.rows : K_ROWS;
    at.chunks = ((int32_t)args->w.k + X_CHUNK - 1) / X_CHUNK;
    at.shift = args->w.block_shift - 5;
    const int32_t stages = (at.chunks + X_CHUNKS - 1) / X_CHUNKS, first = stages * at.rank >> log;
    at.stages = (stages * (at.rank + 1) >> log) - first;
    at.chunk = first * X_CHUNKS;
    return at;
}

/* Column `i` of an octet of the warp: its number, and whether it is there. */
K_FN int32_t x_column(const x_place *at, int32_t octet, int32_t i) {
    return at->column + octet / 2 * at->step + octet % 2 * at->apart + i;
}

K_FN int x_is(const x_place *at, int32_t octet, int32_t i) {
    return at->column + octet / 2 * at->step + octet % 2 * at->beside + i < at->columns;
}

K_FN int x_is_part(const x_place *at, int32_t part) {
    return part < 2 || part < at->args->parts;
}

/* ---- into shared memory ---- */

/* Where in its row chunk `c` of a column lies, so that what a warp reads at once lies in different
 * banks; `i` is the column's place in its octet. */
K_FN int32_t x_spot(int32_t i, int32_t c) {
    return (c ^ (K_BITS == 4 ? i / 2 % 4 : i % 4)) * X_BYTES;
}

/* What a lane copies of each stage. What is beyond the last column or row is a copy of that one,
 * since nobody reads what comes of it: so that these places are found once. */
typedef struct x_source {
    uint32_t weight[X_COPIES]; /* the first stage's, in pieces of 16 bytes */
    int32_t piece, to;
} x_source;

K_FN x_source x_source_of(const x_place *at) {
    const k_nbits *w = &at->args->w;
    const int32_t first = at->lane / X_PIECES;
    x_source from;
    from.piece = at->lane % X_PIECES;
    from.to = (at->warp * X_LANES + first) * X_ROW + x_spot(first, from.piece / X_IN_CHUNK) +
              from.piece % X_IN_CHUNK * 16;
    K_UNROLL
    for (int32_t c = 0; c < X_COPIES; c++) {
        const int32_t octet = c * X_EACH / X_SIDE, beside = c * X_EACH % X_SIDE + first;
        const int32_t column = x_column(at, octet, beside);
        from.weight[c] = (uint32_t)(x_is(at, octet, beside) ? column : at->columns - 1) *
                             (uint32_t)(w->weight_row / 16) +
                         (uint32_t)from.piece;
    }
    return from;
}

/* The warp's weights of a stage that begins with that chunk; 0 behind the last one. */
K_FN void x_fill_weights(const x_place *at, const x_source *from, int32_t chunk, uint8_t *stage) {
    const int there = from->piece / X_IN_CHUNK < at->chunks - chunk;
    const uint8_t *first = (const uint8_t *)at->args->w.weight + (int64_t)chunk * X_BYTES;
    uint8_t *to = stage + from->to;
    K_UNROLL
    for (int32_t c = 0; c < X_COPIES; c++) {
        const uint64_t piece = there ? from->weight[c] : 0;
        k_copy_begin_near(to + c * X_EACH * X_ROW, first + piece * 16, there ? 16 : 0);
    }
}

static_assert(K_NBITS_TILE_LANES == X_SIDE * X_A_PIECES, "a lane copies a piece of eight rows");

/* The block's rows, likewise: of eight rows each part. */
K_FN void x_fill_rows(const x_place *at, int32_t chunk, uint8_t *stage) {
    enum { IN_CHUNK = X_A_CHUNK / 16, PACK = 16 / X_PART };
    const int32_t i = (int32_t)threadIdx.x / X_A_PIECES, piece = (int32_t)threadIdx.x % X_A_PIECES;
    const int32_t place = chunk * X_CHUNK, k = (int32_t)at->args->w.k;
    const int there = piece * PACK < k - place;
    const uint32_t pitch = (uint32_t)k * X_PART;
    const uint8_t *first = (const uint8_t *)at->args->a + (int64_t)at->row * X_PARTS * pitch;
    const uint8_t *from = first + (place + (there ? piece * PACK : 0)) * X_PART;
    uint8_t *to =
        stage + X_A + i * X_A_ROW + (piece / IN_CHUNK ^ i % 2) * X_A_CHUNK + piece % IN_CHUNK * 16;
    K_UNROLL
    for (int32_t o = 0; o < X_HIGH * X_PARTS; o++) { /* eight rows, and a part of them */
        const int32_t r = o / X_PARTS * X_SIDE, part = o % X_PARTS;
        const int32_t row = r + i < at->rows ? r + i : at->rows - 1;
        if ((r == 0 || r < at->rows) && x_is_part(at, part)) {
            k_copy_begin(to + o * (X_SIDE * X_A_ROW),
                         from + (uint64_t)(uint32_t)(row * X_PARTS + part) * pitch, there ? 16 : 0);
        }
    }
}

/* `bytes` from `start` on of an array of `all`, in whole pieces, `most` of them. */
K_FN void x_fill_side(const void *array, int64_t start, int32_t bytes, int64_t all, int32_t most,
                      uint8_t *to) {
    const int32_t past = (int32_t)(start & 15);
    const uint8_t *from = (const uint8_t *)array + (start - past);
    const int64_t left = all - (start - past);
    K_UNROLL
    for (int32_t i = 0; i < most * 16; i += 16) {
        if (i < past + bytes && left - i >= 16) {
            k_copy_begin(to + i, from + i, 16);
        } else if (i < past + bytes) { /* the array ends within the piece */
            for (int32_t b = 0; b < (int32_t)left - i; b++) {
                to[i + b] = from[i + b];
            }
        }
    }
}

/* Where those of a span begin. */
K_FN int32_t x_scales(const x_place *at, int32_t span) {
    return at->args->shared.scale + span % 2 * (K_NBITS_TILE_COLUMNS * X_SCALE);
}

K_FN int32_t x_zeros(const x_place *at, int32_t span) {
    return at->args->shared.zero + span % 2 * (K_NBITS_TILE_COLUMNS * X_ZERO);
}

/* A column of the warp for each of its lanes. */
K_FN void x_fill_span(const x_place *at, int32_t span) {
    const k_nbits *w = &at->args->w;
    const int32_t octet = at->lane / X_SIDE, i = at->lane % X_SIDE;
    const int32_t row = at->warp * X_LANES + at->lane, column = x_column(at, octet, i);
    const int32_t block = (at->chunk + span * X_SPAN) >> at->shift;
    const int32_t left = (int32_t)w->blocks - block, most = (X_SPAN >> at->shift) + 1;
    const int32_t count = left < most ? left : most;
    if (!x_is(at, octet, i)) {
        return;
    }
    x_fill_side(w->scale, (column * w->blocks + block) * (int64_t)sizeof(T),
                count * (int32_t)sizeof(T), w->n * w->blocks * (int64_t)sizeof(T), X_SCALE / 16,
                at->shared + x_scales(at, span) + row * X_SCALE);
    if (w->zero != 0) {
        const int32_t first = block * K_BITS / 8;
        x_fill_side(w->zero, column * w->zero_row + first,
                    ((block + count) * K_BITS + 7) / 8 - first, w->n * w->zero_row, X_ZERO / 16,
                    at->shared + x_zeros(at, span) + row * X_ZERO);
    }
}

/* Stage `i` of the block, but for the rows of A. */
K_FN void x_fill(const x_place *at, const x_source *from, int32_t i, uint8_t *stage) {
    if (i % X_OF_SPAN == 0) {
        x_fill_span(at, i / X_OF_SPAN);
    }
    x_fill_weights(at, from, at->chunk + i * X_CHUNKS, stage);
}

/* ---- products ---- */

/* Where what belongs to a lane's columns lies in shared memory, less what the span's first block
 * has there. */
typedef struct x_side {
    int32_t scale[X_OCTETS], zero[X_OCTETS];
} x_side;

K_FN void x_side_of(const x_place *at, int32_t span, x_side *side) {
    const k_nbits *w = &at->args->w;
    const int32_t block = (at->chunk + span * X_SPAN) >> at->shift;
    const int32_t scale = block * (int32_t)sizeof(T), zero = block * K_BITS / 8;
    K_UNROLL
    for (int32_t o = 0; o < X_OCTETS; o++) {
        const uint32_t column = (uint32_t)x_column(at, o, at->g);
        const int32_t row = at->warp * X_LANES + o * X_SIDE + at->g;
        const uint32_t of = column * (uint32_t)w->blocks * (uint32_t)sizeof(T) + (uint32_t)scale;
        side->scale[o] = x_scales(at, span) + row * X_SCALE + (int32_t)(of & 15) - scale;
        if (w->zero != 0) {
            const uint32_t from = column * (uint32_t)w->zero_row + (uint32_t)zero;
            side->zero[o] = x_zeros(at, span) + row * X_ZERO + (int32_t)(from & 15) - zero;
        }
    }
}

/* Where what a lane has of a stage begins in shared memory. */
typedef struct x_here {
    int32_t weights, rows;
} x_here;

/* Right operand `r` of a chunk, of which eight rows have X_PARTS: eight elements of a row. */
K_FN void x_load(const x_place *at, x_here here, int32_t c, int32_t r, uint32_t *words) {
    const uint8_t *from = at->shared + here.rows + (c ^ at->g % 2) * X_A_CHUNK;
    const k_pack *pack = (const k_pack *)(const void *)(from + r * (X_SIDE * X_A_ROW));
    k_pack there;
    there.words = pack->words;
    p_turned(there.words.at, words);
}

/* X_PAIR right operands from `r` on. */
K_FN void x_multiply(const x_place *at, x_here here, int32_t c, int32_t r, uint32_t (*pairs)[4],
                     const float *scale, float (*total)[X_HIGH][4]) {
    float sum[X_PAIR][X_WIDE][4] = {};
    K_UNROLL
    for (int32_t part = 0; part < X_PARTS; part++) {
        uint32_t b[X_PAIR][4];
        if (!x_is_part(at, part)) {
            continue;
        }
        K_UNROLL
        for (int32_t e = 0; e < X_PAIR; e++) {
            x_load(at, here, c, (r + e) * X_PARTS + part, b[e]);
        }
        K_UNROLL
        for (int32_t i = 0; i < 2 * X_PAIR * X_WIDE; i++) {
            const int32_t step = i / (X_PAIR * X_WIDE), e = i / X_WIDE % X_PAIR, wide = i % X_WIDE;
            uint32_t(*p)[4] = pairs + wide * 2;
            const uint32_t a[4] = {p[0][step * 2], p[1][step * 2], p[0][step * 2 + 1],
                                   p[1][step * 2 + 1]};
            x_product(sum[e][wide], a, b[e] + step * 2);
        }
    }
    K_UNROLL
    for (int32_t i = 0; i < X_PAIR * X_WIDE * 4; i++) {
        const int32_t e = i / 4 / X_WIDE, wide = i / 4 % X_WIDE;
        total[wide][r + e][i % 4] += sum[e][wide][i % 4] * scale[wide * 2 + i % 4 / 2];
    }
}

/* Chunk `c` of a stage, the one before which there are `chunk` of the column. `zeros`, a constant
 * where this is called: whether there are zero points. */
K_FN void x_chunk(const x_place *at, x_here here, int32_t c, int32_t chunk, int zeros,
                  const x_side *side, float (*total)[X_HIGH][4]) {
    const int32_t block = chunk >> at->shift;
    const uint8_t *from = at->shared + here.weights + x_spot(at->g, c);
    uint32_t pairs[X_OCTETS][4];
    float scale[X_OCTETS];
    K_UNROLL
    for (int32_t o = 0; o < X_OCTETS; o++) {
        const uint8_t *place = at->shared + side->scale[o] + block * (int32_t)sizeof(T);
        const T there = *(const T *)(const void *)place;
        const uint8_t *words = from + o * (X_SIDE * X_ROW);
        p_base base = at->base;
        if (zeros) {
            const uint32_t byte = at->shared[side->zero[o] + block * K_BITS / 8];
            base = p_base_of(byte >> block * K_BITS % 8, at->base.mask);
        }
        scale[o] = chunk < at->chunks ? T_load(there) : 0;
        p_pairs(*(const p_words *)(const void *)words, base, pairs[o]);
    }
    K_UNROLL
    for (int32_t r = 0; r < X_HIGH; r += X_PAIR) {
        if (r == 0 || r * X_SIDE < at->rows) {
            x_multiply(at, here, c, r, pairs, scale, total);
        }
    }
}

K_FN void x_stage(const x_place *at, x_here here, int32_t chunk, int zeros, const x_side *side,
                  float (*total)[X_HIGH][4]) {
    K_ONE_COPY
    for (int32_t first = 0; first < X_CHUNKS; first += X_TOGETHER) {
        K_UNROLL
        for (int32_t c = first; c < first + X_TOGETHER; c++) {
            x_chunk(at, here, c, chunk + c, zeros, side, total);
        }
    }
}

K_FN void x_sum(const x_place *at, const x_source *from, float (*total)[X_HIGH][4]) {
    int32_t place = 0, free = X_AHEAD - 1;
    x_side side;
    K_ONE_COPY
    for (int32_t i = 0; i < at->stages; i++) {
        x_here here = {place * X_STAGE + (at->warp * X_LANES + at->g) * X_ROW + at->t * K_BITS,
                       place * X_STAGE + X_A + at->g * X_A_ROW + at->t * 16};
        K_HOLD(here.weights);
        K_HOLD(here.rows);
        K_COPIES_WAIT(X_AHEAD - 2);
        __syncthreads(); /* the stage is there, and the one before has been read */
        if (i + X_AHEAD - 1 < at->stages) {
            uint8_t *to = at->shared + free * X_STAGE;
            x_fill(at, from, i + X_AHEAD - 1, to);
            x_fill_rows(at, at->chunk + (i + X_AHEAD - 1) * X_CHUNKS, to);
        }
        k_copies_group();
        if (i % X_OF_SPAN == 0) {
            x_side_of(at, i / X_OF_SPAN, &side);
        }
        if (at->args->w.zero != 0) {
            x_stage(at, here, at->chunk + i * X_CHUNKS, 1, &side, total);
        } else {
            x_stage(at, here, at->chunk + i * X_CHUNKS, 0, &side, total);
        }
        free = place;
        place = place + 1 < X_AHEAD ? place + 1 : 0;
    }
}

/* ---- sums ---- */

/* All that has been stored is seen by all of the tile's blocks. */
K_FN void x_meet(const x_place *at) {
    if (at->args->splits_log > 0) {
        k_cluster_arrive();
        k_cluster_wait();
    } else {
        __syncthreads();
    }
}

/* Gives each block of the tile what this one has of its fragments, which are dealt out in turn. */
K_FN void x_give(const x_place *at, float (*total)[X_HIGH][4]) {
    const int32_t log = at->args->splits_log;
    x_four *slots = (x_four *)(void *)at->shared + (at->rank * (X_FRAGMENTS >> log)) * X_LANES;
    K_UNROLL
    for (int32_t i = 0; i < X_WIDE * X_HIGH; i++) {
        const int32_t fragment = at->warp * (X_WIDE * X_HIGH) + i;
        const int32_t owner = fragment & ((1 << log) - 1);
        const float *from = total[i / X_HIGH][i % X_HIGH];
        x_four *slot = slots + (fragment >> log) * X_LANES + at->lane;
        if (owner == at->rank) {
            const x_four own = {{from[0], from[1], from[2], from[3]}};
            *slot = own;
        } else {
            k_cluster_store_four(slot->at, owner, from);
        }
    }
}

/* Columns g and g + 8, or g of both halves, of rows 2t and 2t + 1 of a fragment. */
K_FN void x_put(const x_place *at, int32_t column, const T *bias, int32_t row, x_four sum) {
    const mp_nbits_args *args = at->args;
    T made[4];
    K_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        made[i] = T_store(sum.at[i] + T_load(bias[i / 2 * X_SIDE]));
    }
    K_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        const int32_t to = column + i / 2 * at->beside;
        const int is = row + i % 2 < at->rows && to < at->columns;
        T *out = (T *)args->out + (int64_t)(at->row + row + i % 2) * at->columns + to;
        if (!args->gated && is) {
            *out = made[i];
        } else if (i < 2 && is) {
            *out = g_gated(args->gate, args->alpha, made[i], made[i + 2]);
        }
    }
}

/* The block's fragments. */
K_FN void x_finish(const x_place *at, const T *bias) {
    const int32_t log = at->args->splits_log, count = X_FRAGMENTS >> log;
    const x_four *slots = (const x_four *)(const void *)at->shared + at->lane;
    K_ONE_COPY
    for (int32_t i = at->warp; i < count; i += X_WARPS) {
        const int32_t fragment = (i << log) + at->rank, wide = fragment / X_HIGH;
        const int32_t column = at->column + (wide - at->warp * X_WIDE) * at->step + at->g;
        x_four sum = slots[i * X_LANES];
        K_ONE_COPY
        for (int32_t rank = 1; rank < 1 << log; rank++) {
            const x_four more = slots[(rank * count + i) * X_LANES];
            K_UNROLL
            for (int32_t e = 0; e < 4; e++) {
                sum.at[e] += more.at[e];
            }
        }
        x_put(at, column, bias + wide * (X_SIDE * 2) + at->g,
              fragment % X_HIGH * X_SIDE + at->t * 2, sum);
    }
}

/* That of one of the warp's columns, asked for before it is wanted. */
K_FN T x_bias(const x_place *at) {
    const T *bias = (const T *)at->args->bias;
    const int32_t octet = at->lane / X_SIDE, i = at->lane % X_SIDE;
    return bias != 0 && x_is(at, octet, i) ? bias[x_column(at, octet, i)] : T_store(0);
}

/* ---- what a block does ---- */

K_FN void x_run(const mp_nbits_args *args, uint8_t *shared) {
    const x_place at = x_place_of(args, shared);
    T *biases = (T *)(void *)(shared + args->shared.sums);
    const x_source from = x_source_of(&at);
    float total[X_WIDE][X_HIGH][4] = {};
    K_ONE_COPY
    for (int32_t i = 0; i < X_AHEAD - 1 && i < at.stages; i++) {
        x_fill(&at, &from, i, shared + i * X_STAGE);
    }
    k_wait();
    const T bias = x_bias(&at);
    K_ONE_COPY
    for (int32_t i = 0; i < X_AHEAD - 1; i++) {
        if (i < at.stages) {
            x_fill_rows(&at, at.chunk + i * X_CHUNKS, shared + i * X_STAGE);
        }
        k_copies_group();
    }
    x_sum(&at, &from, total);
    biases[threadIdx.x] = bias;
    x_meet(&at); /* all of the tile's blocks have read what they had in their rings */
    x_give(&at, total);
    x_meet(&at);
    x_finish(&at, biases);
}

#endif

/* Blocks on a multiprocessor: so many that those of the next kernel find room beside. */
#define X_BLOCKS (K_ROWS == 8 ? 4 : K_ROWS == 64 && K_BITS == 8 ? 2 : 3)

K_BLOCK_KERNEL_LATE_OF(K_NBITS_TILE_LANES, X_BLOCKS, mp_nbits_args, args) {
#if K_WARP_MATRIX
    K_SHARED(uint8_t, shared);
    if (!args.constant) {
        k_wait();
    }
    x_run(&args, shared);
#else
    (void)args;
#endif
}
