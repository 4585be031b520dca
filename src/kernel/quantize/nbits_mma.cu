/* nbits_mma.cu - up to K_ROWS rows times packed integers of K_BITS bits, or with K_CODED times
 * codes of 4 bits, by tensor cores. Weights are their left operand, 16 columns of the result at a
 * time, and rows of A their right one.
 *
 * A block has K_NBITS_MMA_COLUMNS columns. Its warps deal out stages of K_NBITS_MMA_CHUNKS chunks
 * along k; each has a ring of K_NBITS_MMA_AHEAD stages in shared memory for itself, all of which
 * are on their way before the kernel before has ended, where they are constants. Rows of a stage
 * lie a chunk (of 2 bits two) further apart than they are long, so that eight columns lie in
 * different banks.
 *
 * The right operand has eight columns. Where there are fewer rows, several chunks share it, each
 * with columns of its own that are 0 for the others, so that sums of blocks stay apart until their
 * scales are there:
 *     column = chunk * K_ROWS + row      of N_SLOTS chunks
 * Sums are of exact integers times A, in float. What warps have found is added in a fixed order.
 *
 * Two codes of a byte are looked up at once, as a pair of T, in a table that each lane of a warp
 * has in a bank of its own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/late.h"
#include "kernel/core/word.h"
#include "kernel/quantize/quantize_args.h"
#include "kernel/rows/before.h"

#include "kernel/core/warp_matrix.h"

#if K_WARP_MATRIX

#include "kernel/quantize/nbits_pair.h"

#define n_product K_JOIN(k_mma_, K_T0)

/* Eight elements of A in the order of the weights' pairs. */
K_FN void n_turned(const uint32_t *from, uint32_t *to) {
#if K_CODED
    K_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        to[i] = from[i];
    }
#else
    p_turned(from, to);
#endif
}

enum {
    N_LANES = 32,
    N_WARPS = K_NBITS_MMA_WARPS,
    N_SIDE = 8, /* columns of the right operand, and half of those of the left one */
    N_COLUMNS = K_NBITS_MMA_COLUMNS(K_BITS, K_ROWS),
    N_TILES = N_COLUMNS / 16,
    N_CHUNK = K_NBITS_CHUNK,
    N_CHUNKS = K_NBITS_MMA_CHUNKS,
    N_BYTES = N_CHUNK * K_BITS / 8,
    N_PITCH = K_NBITS_MMA_PITCH(K_BITS),
    N_STAGE = K_NBITS_MMA_STAGE(K_BITS, K_ROWS),
    N_AHEAD = K_NBITS_MMA_AHEAD(K_BITS, K_ROWS),
    N_SLOTS = N_SIDE / K_ROWS,
    N_CHAINS = N_SLOTS > 1 ? 2 : 1,     /* sums that do not wait for one another */
    N_PIECES = N_CHUNKS * N_BYTES / 16, /* of 16 bytes, of a column of a stage */
};

/* Which columns and chunks there are, and this lane's place in a product. */
typedef struct n_place {
    const mp_nbits_args *args;
    uint8_t *shared, *ring; /* the warp's own part */
    int64_t column;         /* the block's first one */
    int32_t columns;
    int32_t chunks, stages;
    int32_t chunk_shift; /* chunks of a block of weights */
    uint32_t mask;       /* p_mask() */
    int32_t warps, warp, lane, g, t;
} n_place;

K_FN n_place n_place_of(const mp_nbits_args *args, uint8_t *shared) {
    const k_nbits *w = &args->w;
    n_place at;
    at.args = args;
    at.shared = shared;
    at.column = (int64_t)blockIdx.x * N_COLUMNS;
    at.columns = w->n - at.column < N_COLUMNS ? (int32_t)(w->n - at.column) : N_COLUMNS;
    at.chunks = ((int32_t)w->k + N_CHUNK - 1) / N_CHUNK;
    at.stages = (at.chunks + N_CHUNKS - 1) / N_CHUNKS;
    at.chunk_shift = w->block_shift - 5;
    at.mask = p_mask(w);
    at.warps = K_CODED ? N_WARPS : (int32_t)blockDim.x / N_LANES;
    at.warp = (int32_t)threadIdx.x / N_LANES;
    at.lane = (int32_t)threadIdx.x % N_LANES;
    at.ring = shared + at.warp * args->shared.stages * N_STAGE;
    at.g = at.lane / 4;
    at.t = at.lane % 4;
    return at;
}

/* ---- into shared memory ---- */

/* 16 bytes, or those that are left and zeros, which no memory has to lie behind. */
K_FN void n_fill_piece(uint8_t *to, const uint8_t *from, int32_t left) {
    if (left >= 16) {
        k_copy_begin(to, from, 16);
        return;
    }
    K_ONE_COPY
    for (int32_t i = 0; i < 16; i++) {
        to[i] = i < left ? from[i] : 0;
    }
}

/* The block's scales or zero points, `bytes` a column, which lie without gaps where they come from.
 * Columns whose pitch is that, too, are one piece. */
K_FN void n_fill_side(const n_place *at, const void *from, int64_t bytes, int32_t pitch,
                      uint8_t *to) {
    const uint8_t *source = (const uint8_t *)from + at->column * bytes;
    const int32_t apart = pitch != (int32_t)bytes, rows = apart ? at->columns : 1;
    const int32_t length = (int32_t)bytes * (apart ? 1 : at->columns);
    K_ONE_COPY
    for (int32_t r = at->warp; r < rows; r += at->warps) {
        K_ONE_COPY
        for (int32_t i = at->lane * 16; i < length; i += N_LANES * 16) {
            n_fill_piece(to + r * pitch + i, source + r * bytes + i, length - i);
        }
    }
}

/* A stage of weights; 0 where there are none. */
K_FN void n_fill(const n_place *at, int32_t stage, uint8_t *to) {
    const k_nbits *w = &at->args->w;
    enum { EACH = N_LANES / N_PIECES };
    const int32_t piece = at->lane % N_PIECES, row = at->lane / N_PIECES;
    const int32_t from = (stage * N_PIECES + piece) * 16, there = from < at->chunks * N_BYTES;
    const uint8_t *first = (const uint8_t *)w->weight + at->column * w->weight_row;
    const uint8_t *source = first + row * w->weight_row + from;
    K_UNROLL
    for (int32_t r = 0; r < N_COLUMNS; r += EACH) {
        const int32_t is = there && r + row < at->columns;
        k_copy_begin(to + (r + row) * N_PITCH + piece * 16, is ? source : first, is ? 16 : 0);
        source += EACH * w->weight_row;
    }
}

#if K_CODED
#define n_both K_JOIN(k_pair_, K_T0)

/* The tables: entry after entry, one after the other for all lanes of a warp. */
K_FN void n_make_tables(const n_place *at) {
    enum { FOURS = K_NBITS_TABLES / 4, EACH = K_NBITS_MMA_LANES / FOURS };
    const k_nbits *w = &at->args->w;
    const float *values = (const float *)w->values;
    const int32_t lane = (int32_t)threadIdx.x, entry = lane / FOURS, low = entry % 16;
    k_pack *to = (k_pack *)(void *)(at->shared + at->args->shared.sums) + lane;
    const float other = values[low];
    K_UNROLL
    for (int32_t i = 0; i < 256 / EACH; i++) {
        const float value = values[entry / 16 + i * (EACH / 16)];
        const uint32_t pair = w->swapped ? n_both(value, other) : n_both(other, value);
        k_pack pack;
        K_UNROLL
        for (int32_t j = 0; j < 4; j++) {
            pack.words.at[j] = pair;
        }
        to[i * K_NBITS_MMA_LANES] = pack;
    }
}
#endif

/* ---- rows of A ---- */

/* A lane's part of the right operands of a stage: eight elements of a row for each N_SLOTS chunks;
 * 0 where there are none. */
K_FN void n_rows(const n_place *at, int32_t stage, uint32_t (*x)[4]) {
    const mp_nbits_args *args = at->args;
    const int32_t row = at->g % K_ROWS, slot = at->g / K_ROWS, k = (int32_t)args->w.k;
    K_UNROLL
    for (int32_t h = 0; h < K_ROWS; h++) {
        const int32_t first = (stage * N_CHUNKS + h * N_SLOTS + slot) * N_CHUNK + at->t * 8;
        const int32_t is = row < (int32_t)args->m && first < k;
#if K_BEFORE == K_BEFORE_NOTHING
        k_fetch((const T *)args->a + (is ? row * k + first : 0), is, x[h]);
#else
        const k_pack *pack = (const k_pack *)(at->shared + args->shared.row) + (is ? first / 8 : 0);
        K_UNROLL
        for (int32_t i = 0; i < 4; i++) {
            x[h][i] = is ? pack->words.at[i] : 0;
        }
#endif
    }
}

/* ---- products ---- */

/* `zeros`, a constant where this is called: whether there are zero points. Beyond the last chunk
 * any will do. */
K_FN p_base n_base(const n_place *at, int32_t column, int32_t chunk, int zeros) {
    const mp_nbits_args *args = at->args;
    if (!zeros) {
        return p_base_of((uint32_t)args->w.middle, at->mask);
    }
    const uint32_t bit = (uint32_t)(chunk >> at->chunk_shift) * K_BITS;
    const uint8_t *from = at->shared + args->shared.zero + column * args->shared.zero_pitch;
    return p_base_of((uint32_t)from[bit / 8] >> bit % 8, at->mask);
}

/* Eight weights of a column, which lie there. */
K_FN void n_pairs(const n_place *at, const uint8_t *from, int32_t column, int32_t chunk, int zeros,
                  uint32_t *out) {
#if K_CODED
    const uint32_t word = *(const uint32_t *)(const void *)from, own = (uint32_t)at->lane * 4;
    const uint8_t *tables = at->shared + at->args->shared.sums;
    (void)column;
    (void)chunk;
    (void)zeros;
    K_UNROLL
    for (int32_t i = 0; i < 4; i++) { /* an entry of all tables is 128 bytes */
        const uint32_t place = i == 0 ? word << 7 : word >> (i * 8 - 7);
        out[i] = *(const uint32_t *)(const void *)(tables + ((place & 0x7f80u) | own));
    }
#else
    p_pairs(*(const p_words *)(const void *)from, n_base(at, column, chunk, zeros), out);
#endif
}

/* A chunk, whose weights begin there, times b. */
K_FN void n_chunk(const n_place *at, const uint8_t *weights, int32_t chunk, int zeros,
                  const uint32_t *b, float (*sum)[N_TILES][4]) {
    uint32_t pairs[N_TILES][2][4];
    K_UNROLL
    for (int32_t i = 0; i < N_TILES * 2; i++) {
        const int32_t column = i * N_SIDE + at->g;
        n_pairs(at, weights + column * N_PITCH + at->t * K_BITS, column, chunk, zeros,
                pairs[i / 2][i % 2]);
    }
    K_UNROLL
    for (int32_t i = 0; i < N_TILES * 2; i++) {
        const int32_t tile = i % N_TILES, step = i / N_TILES;
        uint32_t(*p)[4] = pairs[tile];
        const uint32_t a[4] = {p[0][step * 2], p[1][step * 2], p[0][step * 2 + 1],
                               p[1][step * 2 + 1]};
        n_product(sum[step % N_CHAINS][tile], a, b + step * 2);
    }
}

/* What a lane's sums of N_SLOTS chunks from `first` on are multiplied by: columns g and g + 8. */
K_FN void n_scales(const n_place *at, int32_t tile, int32_t first, float (*scale)[2]) {
    const k_nbits_shared *where = &at->args->shared;
    K_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        const int32_t half = i / 2, e = i % 2;
        if (e == 1 && K_ROWS > 1) { /* of the same chunk */
            scale[half][1] = scale[half][0];
            continue;
        }
        const int32_t column = tile * 16 + half * N_SIDE + at->g;
        const int32_t chunk = first + (at->t * 2 + e) / K_ROWS;
        const uint8_t *from = at->shared + where->scale + column * where->scale_pitch;
        const int32_t is = chunk < at->chunks;
        const float there =
            T_load(((const T *)(const void *)from)[is ? chunk >> at->chunk_shift : 0]);
        scale[half][e] = is ? there : 0;
    }
}

K_FN void n_stage(const n_place *at, const uint8_t *weights, int32_t stage, int zeros,
                  uint32_t (*x)[4], float (*total)[4]) {
    K_UNROLL
    for (int32_t h = 0; h < K_ROWS; h++) {
        uint32_t turned[4];
        float sum[N_CHAINS][N_TILES][4] = {};
        n_turned(x[h], turned);
        K_UNROLL
        for (int32_t slot = 0; slot < N_SLOTS; slot++) {
            const int32_t mine = at->g / K_ROWS == slot;
            uint32_t b[4];
            K_UNROLL
            for (int32_t i = 0; i < 4; i++) {
                b[i] = mine ? turned[i] : 0;
            }
            const int32_t c = h * N_SLOTS + slot;
            n_chunk(at, weights + c * N_BYTES, stage * N_CHUNKS + c, zeros, b, sum);
        }
        K_UNROLL
        for (int32_t tile = 0; tile < N_TILES; tile++) {
            float scale[2][2];
            n_scales(at, tile, stage * N_CHUNKS + h * N_SLOTS, scale);
            K_UNROLL
            for (int32_t i = 0; i < 4; i++) {
                const float both =
                    N_CHAINS == 1 ? sum[0][tile][i] : sum[0][tile][i] + sum[N_CHAINS - 1][tile][i];
                total[tile][i] += both * scale[i / 2][i % 2];
            }
        }
    }
}

/* ---- what a block does ---- */

/* All stages of this warp; x: what goes with the first one. */
K_FN void n_sum(const n_place *at, uint32_t (*x)[4], float (*total)[4]) {
    uint32_t next[K_ROWS][4];
    int32_t place = 0;
    K_ONE_COPY
    for (int32_t stage = at->warp; stage < at->stages; stage += at->warps) {
        uint8_t *weights = at->ring + place * N_STAGE;
        n_rows(at, stage + at->warps, next);
        K_COPIES_WAIT(N_AHEAD - 1);
        __syncwarp();
        if (!K_CODED && at->args->w.zero != 0) {
            n_stage(at, weights, stage, 1, x, total);
        } else {
            n_stage(at, weights, stage, 0, x, total);
        }
        __syncwarp(); /* all lanes have read it */
        if (stage + N_AHEAD * at->warps < at->stages) {
            n_fill(at, stage + N_AHEAD * at->warps, weights);
        }
        k_copies_group();
        place = place + 1 < N_AHEAD ? place + 1 : 0;
        K_UNROLL
        for (int32_t i = 0; i < K_ROWS * 4; i++) {
            x[i / 4][i % 4] = next[i / 4][i % 4];
        }
    }
}

/* What this lane has at the end: a column of the result, of which it has a column of the right
 * operand. */
K_FN int64_t n_column(const n_place *at) {
    return at->column + (int32_t)threadIdx.x / N_SIDE;
}

/* Asked for before it is wanted; to convert it would be to wait for it. */
K_FN T n_bias(const n_place *at) {
    const T *bias = (const T *)at->args->bias;
    const int64_t column = n_column(at);
    return bias != 0 && column < at->args->w.n ? bias[column] : T_store(0);
}

/* Adds up what warps and then lanes have of it. */
K_FN void n_put(const n_place *at, T bias) {
    const mp_nbits_args *args = at->args;
    const int32_t i = (int32_t)threadIdx.x, row = i % N_SIDE;
    const int64_t column = n_column(at);
    float total = 0;
    if (i >= N_COLUMNS * N_SIDE) { /* whole warps */
        return;
    }
    K_UNROLL
    for (int32_t warp = 0; warp < N_WARPS; warp++) {
        const uint8_t *ring = at->shared + warp * args->shared.stages * N_STAGE;
        total += warp < at->warps ? ((const float *)(const void *)ring)[i] : 0;
    }
    K_UNROLL
    for (int32_t half = N_SIDE / 2; half >= K_ROWS; half /= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, half);
    }
    if (row < K_ROWS && row < args->m && column < args->w.n) {
        ((T *)args->out)[row * args->w.n + column] = T_store(total + T_load(bias));
    }
}

K_FN void n_run(const mp_nbits_args *args, uint8_t *shared) {
    const n_place at = n_place_of(args, shared);
    uint32_t x[K_ROWS][4];
    float total[N_TILES][4] = {};
    n_fill_side(&at, args->w.scale, args->w.blocks * (int64_t)sizeof(T), args->shared.scale_pitch,
                shared + args->shared.scale);
    if (!K_CODED && args->w.zero != 0) {
        n_fill_side(&at, args->w.zero, args->w.zero_row, args->shared.zero_pitch,
                    shared + args->shared.zero);
    }
    k_copies_group();
    K_ONE_COPY
    for (int32_t i = 0; i < N_AHEAD; i++) {
        const int32_t stage = at.warp + i * at.warps;
        if (stage < at.stages) {
            n_fill(&at, stage, at.ring + i * N_STAGE);
        }
        k_copies_group();
    }
#if K_BEFORE == K_BEFORE_NOTHING
    k_wait();
#else
    b_make(&args->before, (k_pack *)(void *)(shared + args->shared.row), 0);
#endif
    n_rows(&at, at.warp, x);
    const T bias = n_bias(&at);
#if K_CODED
    n_make_tables(&at);
#endif
    K_COPIES_WAIT(N_AHEAD);
    __syncthreads(); /* scales, zero points and tables are there for all */
    n_sum(&at, x, total);
    K_UNROLL
    for (int32_t i = 0; i < N_TILES * 4; i++) {
        const int32_t column = i / 4 * 16 + i % 4 / 2 * N_SIDE + at.g;
        ((float *)(void *)at.ring)[column * N_SIDE + at.t * 2 + i % 2] = total[i / 4][i % 4];
    }
    __syncthreads();
    n_put(&at, bias);
}

#endif

/* Blocks on a multiprocessor: so many that those of the next kernel find room beside. */
#define N_BLOCKS (K_ROWS == 1 && !K_CODED ? 4 : K_ROWS < 8 ? 3 : 2)

K_BLOCK_KERNEL_LATE_OF(K_NBITS_MMA_LANES, N_BLOCKS, mp_nbits_args, args) {
#if K_WARP_MATRIX
    K_SHARED(uint8_t, shared);
    if (!args.constant) {
        k_wait();
    }
    n_run(&args, shared);
#else
    (void)args;
#endif
}
