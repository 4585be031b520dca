/* nbits_chain.cu - a row through several products with packed integers of K_BITS bits, as the
 * decoder of a small language model has them between two attentions, by the blocks of one cluster.
 *
 * A product of so few weights takes a tenth of the time that passes from a kernel's end to the next
 * one's first product. Within a cluster results reach every other multiprocessor in half a
 * microsecond, and weights are constants: a warp's stages of all products form one ring, which
 * fills before the row is there. So few multiprocessors have the products, but those have all
 * their weights when the row comes.
 *
 * A tile has K_CHAIN_COLUMNS columns, a stage of it K_CHAIN_CHUNKS chunks along k. Tiles are dealt
 * out to blocks. A warp keeps to one place along k, of which it has the row in registers, and goes
 * through some of its block's tiles. Products are those of nbits_stream.cu, of four chunks, one of
 * each lane of a column, and then of the other four; the right operand has a column for each:
 *     column c = chunk c of the stage, where lanes have that, and 0 for the others
 * What warps have found is added in a fixed order, rounded as between two kernels, and sent to all
 * blocks, each of which makes the next row for itself.
 *
 * Rows of the left operand from 8 on may be columns of the other half of the result, which the
 * first half gates (`gated`).
 * SPDX-License-Identifier: Apache-2.0 */
#define K_LETS_AT_ONCE 1
#include "kernel/core/late.h"
#include "kernel/core/meet.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"
#include "kernel/pointwise/gate.h"
#include "kernel/quantize/nbits_chain_args.h"

/* Before 9.0 there are no clusters. */
#define C_HAS_CLUSTERS (K_WARP_MATRIX && (!K_PTX || __CUDA_ARCH__ >= 900))

#if C_HAS_CLUSTERS

#include "kernel/quantize/nbits_row.h"

enum {
    C_LANES = 32,
    C_SIDE = 8, /* half of the rows of the left operand */
    C_CHUNK = K_NBITS_CHUNK,
    C_CHUNKS = K_CHAIN_CHUNKS,
    C_SHARE = 4,           /* chunks that the lanes of a column have at once */
    C_HALF = C_LANES * 16, /* bytes of a piece of a share's chunks, of half the rows */
    C_SHARE_BYTES = C_HALF * 2 * N_ROW_PIECES,
    C_SCALES = C_SHARE_BYTES * C_CHUNKS / C_SHARE, /* where they begin in a stage */
    C_STAGE = K_CHAIN_STAGE(K_BITS),
    C_AHEAD = K_CHAIN_AHEAD(K_BITS),
};

typedef struct c_place {
    const mp_nbits_chain_args *args;
    uint8_t *shared;
    int32_t rank;  /* of the block in the cluster */
    uint32_t mask; /* of the bits of two weights in a word */
    int32_t warps, warp, lane, g, t;
} c_place;

K_FN c_place c_place_of(const mp_nbits_chain_args *args, uint8_t *shared) {
    c_place at;
    at.args = args;
    at.shared = shared;
    at.rank = (int32_t)blockIdx.x;
    at.mask = ((1u << K_BITS) - 1) * 0x00010001u;
    K_HOLD(at.mask); /* not computed anew at each use */
    at.warps = (int32_t)blockDim.x / C_LANES;
    at.warp = (int32_t)threadIdx.x / C_LANES;
    at.lane = (int32_t)threadIdx.x % C_LANES;
    at.g = at.lane / 4;
    at.t = at.lane % 4;
    return at;
}

K_FN k_pack *c_packs(const c_place *at, int32_t place) {
    return (k_pack *)(void *)(at->shared + place);
}

/* ---- stages ---- */

/* Tiles of this block. */
K_FN int32_t c_tiles(const c_place *at, const k_chain_link *link) {
    return (link->tiles + (1 << at->args->blocks_log) - 1 - at->rank) >> at->args->blocks_log;
}

/* The column that row `row` of the left operand is, of one of the block's tiles. */
K_FN int32_t c_column(const c_place *at, const k_chain_link *link, int32_t tile, int32_t row) {
    const int32_t of = at->rank + (tile << at->args->blocks_log);
    return of * link->each + row % C_SIDE + row / C_SIDE * link->apart;
}

/* A warp's place in the columns of a link, and how many tiles it has there of its block's: it keeps
 * to that place, of which it has the row in registers. */
typedef struct c_share {
    int32_t stage, first, tiles;
} c_share;

K_FN c_share c_share_of(const c_place *at, const k_chain_link *link) {
    c_share mine;
    mine.first = at->warp * link->by_stages >> 16;
    mine.stage = at->warp - mine.first * link->stages;
    mine.tiles = (c_tiles(at, link) - mine.first) * (mine.first < link->next_tiles);
    return mine;
}

/* ---- into shared memory ---- */

/* What a lane copies next: its chunk of row g, and a word of that row's scales. */
typedef struct c_source {
    int32_t number; /* of the link */
    int32_t tiles;  /* that the block has left of it from the warp's next one on */
    int32_t left;   /* chunks from the stage's first one on */
    const uint8_t *weight, *scale;
} c_source;

/* From this link on, of which some have no stage for the warp. */
K_FN void c_source_begin(const c_place *at, c_source *from) {
    K_ONE_COPY
    for (; from->number < at->args->links; from->number++) {
        const k_chain_link *link = &at->args->link[from->number];
        const c_share mine = c_share_of(at, link);
        const int32_t column = c_column(at, link, mine.first, at->g);
        from->tiles = mine.tiles;
        from->left = link->chunks - mine.stage * C_CHUNKS;
        from->weight = (const uint8_t *)link->weight + (int64_t)column * link->weights.column +
                       mine.stage * link->weights.stage + at->t * N_ROW_PIECES * 16;
        from->scale = (const uint8_t *)link->scale + (int64_t)column * link->scales.column +
                      mine.stage * link->scales.stage + at->t * 4;
        if (from->tiles > 0) {
            return;
        }
    }
}

/* The stage there, if there is one, becomes a group of copies. */
K_FN void c_fill(const c_place *at, c_source *from, uint8_t *to) {
    if (from->number < at->args->links) {
        const k_chain_link *link = &at->args->link[from->number];
        uint8_t *mine = to + at->lane * 16;
        K_UNROLL
        for (int32_t part = 0; part < C_CHUNKS; part += C_SHARE) {
            const uint32_t there = part + at->t < from->left ? 16 : 0;
            const uint8_t *chunk = from->weight + (there != 0 ? part * N_ROW_PIECES * 16 : 0);
            K_UNROLL
            for (int32_t i = 0; i < N_ROW_PIECES; i++) {
                k_copy_begin(mine, chunk + i * 16, there);
                k_copy_begin(mine + C_HALF, chunk + link->weights.apart + i * 16, there);
                mine += C_HALF * 2;
            }
        }
        if (at->t * 2 << link->chunks_log < from->left) {
            uint8_t *word = to + C_SCALES + at->lane * 4;
            k_copy_few(word, from->scale, 4);
            k_copy_few(word + C_LANES * 4, from->scale + link->scales.apart, 4);
        }
        from->weight += link->weights.next;
        from->scale += link->scales.next;
        from->tiles -= link->next_tiles;
        if (from->tiles <= 0) {
            from->number++;
            c_source_begin(at, from);
        }
    }
    k_copies_group();
}

/* ---- halves of packs ---- */

/* Half of a turned pack: of a row with a norm a lane has one, since it computes less the more lanes
 * there are. */
typedef struct c_half {
    uint32_t words[2];
} c_half;

enum { C_HALF_PACK = K_PACK / 2 };

K_FN void c_numbers(c_half half, float *out) {
    T_unpack(half.words[0], out);
    T_unpack(half.words[1], out + K_WORD);
}

K_FN c_half c_half_of(const float *numbers) {
    const c_half half = {{T_repack(numbers), T_repack(numbers + K_WORD)}};
    return half;
}

/* That of a pack which the lane has. */
K_FN c_half c_either(const uint32_t *words) {
    const int32_t is_second = (int32_t)threadIdx.x % 2;
    const c_half half = {{is_second ? words[2] : words[0], is_second ? words[3] : words[1]}};
    return half;
}

/* The lane's half of what has so many elements and is not turned; zeros where it has none. */
K_FN c_half c_read(const void *from, int32_t count) {
    const int32_t i = (int32_t)threadIdx.x;
    c_half half = {{0, 0}};
    if (from != 0 && i < count / C_HALF_PACK) {
        const k_pack pack = ((const k_pack *)from)[i / 2];
        k_pack turned;
        p_units_turned(pack.words.at, turned.words.at);
        half = c_either(turned.words.at);
    }
    return half;
}

/* The sum of all lanes' values, of which those from K_CHAIN_NORM_LANES on have 0. */
K_FN float c_total(const c_place *at, float value) {
    enum { MOST = K_CHAIN_NORM_LANES / C_LANES };
    float *slots = (float *)(void *)(at->shared + K_CHAIN_BOXES);
    const int32_t mine = at->lane % MOST;
    K_UNROLL
    for (int32_t by = C_LANES / 2; by > 0; by /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, by);
    }
    if (at->lane == 0) {
        slots[at->warp] = value;
    }
    __syncthreads();
    value = mine < at->warps ? slots[mine] : 0;
    K_UNROLL
    for (int32_t by = MOST / 2; by > 0; by /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, by);
    }
    return value;
}

K_FN float c_inverse_root(float x) {
#if K_PTX
    float root;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
    return root;
#else
    return 1 / sqrtf(x);
#endif
}

/* ---- what a lane needs of a link ---- */

/* Asked for and computed while the row is on its way. */
typedef struct c_work {
    int32_t tiles, next; /* of the warp, as in c_share, and from one to the next */
    int32_t columns;     /* of all of the block's tiles, counting those that gate */
    int32_t column;      /* of the lane's first result */
    int32_t has;         /* whether the lane has a half of the row that is made first, ... */
    const c_half *given; /* ... where that lies, ... */
    c_half *row;         /* ... and where the row then is; 0: where it was given */
    int32_t is_normed;
    c_half scale;
    float mean, epsilon;
    void *sum;
    const k_pack *multiplied; /* the row, of packs as p_units_turned() makes them */
    const k_pack *x;          /* the lane's chunk of it, or 0 */
    float less;               /* the zero point below 0 */
    int32_t scales;           /* where in a stage the word is that has scales of two chunks, ... */
    uint32_t pick;            /* ... and which of its halves those are */
} c_work;

K_FN void c_hold(c_work *to) {
    K_HOLD(to->tiles);
    K_HOLD(to->next);
    K_HOLD(to->columns);
    K_HOLD(to->column);
    K_HOLD(to->has);
    K_HOLD(to->is_normed);
    K_HOLD_FLOAT(to->mean);
    K_HOLD_FLOAT(to->epsilon);
    K_HOLD_FLOAT(to->less);
    K_HOLD_PLACE(to->sum);
    K_HOLD(to->scales);
    K_HOLD(to->pick);
}

/* The lane's half of the norm's scale. */
K_FN c_half c_scale(const c_place *at, const k_chain_link *link) {
    c_half half = c_read(link->norm != 0 ? c_packs(at, link->norm_at) : 0, link->k);
    K_HOLD(half.words[0]);
    K_HOLD(half.words[1]);
    return half;
}

/* A lane has chunk g of its warp's stage or none. */
K_FN void c_work_of(const c_place *at, int32_t number, c_work *to) {
    const mp_nbits_chain_args *args = at->args;
    const k_chain_link *link = &args->link[number];
    const k_pack *given = c_packs(at, args->given[(number + 1) % 2]);
    const c_share mine = c_share_of(at, link);
    const int32_t i = (int32_t)threadIdx.x, log = link->chunks_log;
    const int32_t left = link->chunks - mine.stage * C_CHUNKS;
    to->tiles = mine.tiles;
    to->next = link->next_tiles;
    to->columns = c_tiles(at, link) * K_CHAIN_COLUMNS;
    to->column = c_column(at, link, i / K_CHAIN_COLUMNS, i % K_CHAIN_COLUMNS);
    to->is_normed = link->norm != 0;
    to->has = i < link->k / C_HALF_PACK;
    to->given = (const c_half *)(const void *)given + i;
    to->multiplied = number > 0 && !to->is_normed ? given : c_packs(at, args->row);
    to->row = to->multiplied == given ? 0 : (c_half *)(void *)c_packs(at, args->row) + i;
    to->mean = link->mean;
    to->epsilon = link->epsilon;
    to->sum = at->rank == 0 ? link->sum : 0;
    to->x = to->multiplied + mine.stage * K_CHAIN_PACKS + at->g * N_ROW_PARTS;
    to->x = at->g % C_SHARE == at->t && at->g < left ? to->x : 0;
    to->less = (float)-(link->middle + P_BIAS) * P_UNIT;
    to->scales = C_SCALES + at->g * 16 + (at->t >> log) * 4;
    to->pick = log == 0 ? 0x3210 : (at->t >> (log - 1)) % 2 == 0 ? 0x1010 : 0x3232;
    to->pick = at->t * 2 < left ? to->pick : 0x7654; /* zeros */
    c_hold(to);
}

/* ---- the row ---- */

/* The norm of the lane's half with what is left beside it, which becomes their sum. */
K_FN c_half c_normed(const c_place *at, const c_work *work, c_half x, c_half *residual) {
    float sum[C_HALF_PACK], by[C_HALF_PACK], squares = 0;
    c_numbers(x, sum);
    c_numbers(*residual, by);
    K_UNROLL
    for (int e = 0; e < C_HALF_PACK; e++) {
        sum[e] += by[e];
        squares += sum[e] * sum[e];
    }
    squares = c_total(at, squares);
    const float inverse = c_inverse_root(squares * work->mean + work->epsilon);
    *residual = c_half_of(sum);
    c_numbers(work->scale, by);
    K_UNROLL
    for (int e = 0; e < C_HALF_PACK; e++) {
        by[e] *= sum[e] * inverse;
    }
    return c_half_of(by);
}

/* To memory in the order of elements. A pack's other half is that of the lane's neighbour. */
K_FN void c_tell(c_half half, void *to) {
    const int32_t i = (int32_t)threadIdx.x;
    uint32_t other[2];
    K_UNROLL
    for (int32_t w = 0; w < 2; w++) {
        other[w] = __shfl_xor_sync(0xffffffffu, half.words[w], 1);
    }
    if (to != 0) {
        const uint32_t turned[4] = {
            i % 2 ? other[0] : half.words[0], i % 2 ? other[1] : half.words[1],
            i % 2 ? half.words[0] : other[0], i % 2 ? half.words[1] : other[1]};
        uint32_t plain[4];
        p_units_turned(turned, plain);
        ((c_half *)to)[i] = c_either(plain);
    }
}

/* The row of a link, of the lane's half of what is given to the first one. What a link made for the
 * next one that has no norm is its row as it is. */
K_FN void c_row(const c_place *at, const c_work *work, int32_t is_first, c_half x,
                c_half *residual) {
    if (work->row == 0) {
        return;
    }
    if (!is_first) {
        x.words[0] = x.words[1] = 0;
        x = work->has ? *work->given : x;
    }
    if (work->is_normed) {
        x = c_normed(at, work, x, residual);
    }
    if (work->has) {
        *work->row = x;
    }
    __syncthreads();
    if (work->sum != 0) {
        c_tell(*residual, work->has ? work->sum : 0);
    }
}

/* The scales of norms, which arrive with the first stage. */
K_FN void c_take_constants(const c_place *at) {
    const int32_t i = (int32_t)threadIdx.x;
    K_ONE_COPY
    for (int32_t number = 0; number < at->args->links; number++) {
        const k_chain_link *link = &at->args->link[number];
        if (link->norm != 0 && i < link->k / K_PACK) {
            k_copy_begin(c_packs(at, link->norm_at) + i, (const k_pack *)link->norm + i, 16);
        }
    }
}

/* ---- products ---- */

/* The lane's weights of four chunks. */
K_FN void c_ask(const c_place *at, const uint8_t *stage, n_weights *weights) {
    K_UNROLL
    for (int32_t i = 0; i < N_ROW_PIECES * 2; i++) {
        const void *from = stage + i * C_HALF + at->lane * 16;
        weights[i % 2].pieces[i / 2] = ((const n_weights *)from)->pieces[0];
    }
}

/* What a lane has of the row, for its place in all tiles of a link. */
typedef struct c_reader {
    k_pack x[2][N_ROW_PARTS]; /* of each four chunks */
    float less[4]; /* the sums of the two chunks whose products it has, times the zero point, and
                    * below 0: what its products begin with, of either half of the rows */
} c_reader;

/* Sums of chunks are products with ones. */
K_FN void c_reader_of(const c_place *at, const c_work *work, c_reader *to) {
    const float one[2] = {1, 1};
    const uint32_t ones = T_repack(one), a[4] = {ones, ones, ones, ones};
    float sum[2][4] = {};
    K_UNROLL
    for (int32_t part = 0; part < N_ROW_PARTS; part++) {
        k_pack pack;
        K_UNROLL
        for (int32_t w = 0; w < 4; w++) {
            pack.words.at[w] = 0;
        }
        if (work->x != 0) {
            pack.words = work->x[part].words;
        }
        K_UNROLL
        for (int32_t w = 0; w < 4; w++) {
            to->x[0][part].words.at[w] = at->g < C_SHARE ? pack.words.at[w] : 0;
            to->x[1][part].words.at[w] = at->g < C_SHARE ? 0 : pack.words.at[w];
        }
        n_product(sum[0], a, pack.words.at);
        n_product(sum[1], a, pack.words.at + 2);
    }
    K_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        to->less[i] = work->less * (sum[0][i % 2] + sum[1][i % 2]);
    }
}

/* The sums of the rows of a stage. */
K_FN void c_stage(const c_place *at, const c_work *work, const c_reader *from, const uint8_t *stage,
                  float *sums) {
    n_weights weights[2][2];
    float sum[2][2][4] = {}, total[2] = {};
    K_UNROLL
    for (int32_t i = 0; i < 4; i++) {
        sum[0][0][i] = from->less[i];
    }
    c_ask(at, stage, weights[0]);
    c_ask(at, stage + C_SHARE_BYTES, weights[1]);
    K_UNROLL
    for (int32_t i = 0; i < 2 * N_ROW_PARTS; i++) {
        const int32_t share = i / N_ROW_PARTS, part = i % N_ROW_PARTS;
        n_products(weights[share], part, &from->x[share][part], at->mask, sum[share]);
    }
    K_UNROLL
    for (int32_t half = 0; half < 2; half++) {
        const void *word = stage + work->scales + half * (K_CHAIN_SCALES / 2);
        float scale[2];
        T_unpack(__byte_perm(*(const uint32_t *)word, 0, work->pick), scale);
        K_UNROLL
        for (int32_t e = 0; e < 2; e++) {
            const int32_t i = half * 2 + e;
            const float low = sum[0][0][i] + sum[1][0][i], high = sum[0][1][i] + sum[1][1][i];
            total[half] += (low + high * (1.0f / P_HIGH)) * scale[e];
        }
    }
    /* Lanes with an odd t go on with the second half. */
    const int32_t is_odd = at->t % 2;
    const float other = __shfl_xor_sync(0xffffffffu, is_odd ? total[0] : total[1], 1);
    float all = (is_odd ? total[1] : total[0]) + other;
    all += __shfl_xor_sync(0xffffffffu, all, 2);
    if (at->t < 2) {
        sums[at->t * C_SIDE + at->g] = all;
    }
}

/* ---- results ---- */

K_FN float c_again(const k_chain_link *link, const k_pack *row, int32_t column) {
    const uint8_t *weight = (const uint8_t *)link->weight + (int64_t)column * link->weights.column;
    const uint8_t *scale = (const uint8_t *)link->scale + (int64_t)column * link->scales.column;
    const n_column of = {weight, 0, (const T *)(const void *)scale, link->k, 5 + link->chunks_log};
    return n_again(&of, link->middle, row);
}

/* A column of the result, of the sums of its stages. */
K_FN float c_sum(const k_chain_link *link, const k_pack *row, const float *sums, int32_t column) {
    enum { ONCE = 3 };
    float total = 0;
    K_ONE_COPY
    for (int32_t first = 0; first < link->stages; first += ONCE) { /* asked for at once */
        K_UNROLL
        for (int32_t stage = first; stage < first + ONCE; stage++) {
            total += stage < link->stages ? sums[stage * K_CHAIN_COLUMNS] : 0;
        }
    }
    total = total - total == 0 ? total / P_UNIT : c_again(link, row, column);
    total += link->bias != 0 ? T_load(((const T *)link->bias)[column]) : 0;
    return T_load(T_store(total));
}

/* The block's results, eight neighbours at a time, to where the next link reads them in all blocks,
 * or to where the last one leaves them. */
K_FN void c_put(const c_place *at, const c_work *work, int32_t number) {
    const mp_nbits_chain_args *args = at->args;
    const k_chain_link *link = &args->link[number];
    const int32_t is_last = number + 1 == args->links, is_plain = is_last || K_BITS == 8;
    const int32_t row = at->lane % K_CHAIN_COLUMNS, blocks = 1 << args->blocks_log;
    const int32_t tiles = (int32_t)blockDim.x / K_CHAIN_COLUMNS; /* at a time */
    const int32_t pitch = link->stages * K_CHAIN_COLUMNS;
    const float *sums = (const float *)(const void *)(at->shared + args->sums) + row +
                        (int32_t)threadIdx.x / K_CHAIN_COLUMNS * pitch;
    k_pack *to = c_packs(at, args->given[number % 2]);
    uint64_t *box = (uint64_t *)(void *)at->shared + number;
    int32_t column = work->column;
    __syncthreads();
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i - at->lane < work->columns; i += (int32_t)blockDim.x) {
        int32_t is = i < work->columns;
        float value[2] = {}, four[4];
        k_pack pack;
        if (is) {
            value[0] = c_sum(link, work->multiplied, sums, column);
        }
        if (link->gated) { /* by the first eight rows those behind, which end here */
            const float other = __shfl_xor_sync(0xffffffffu, value[0], C_SIDE);
            value[0] = T_load(g_gated(link->gate, link->alpha, T_store(value[0]), T_store(other)));
            is = is && row < C_SIDE;
        }
        /* A word has elements side by side, or those that p_units_turned() puts there. */
        value[1] = __shfl_xor_sync(0xffffffffu, value[0], is_plain ? 1 : C_SIDE / 2);
        const uint32_t word = T_repack(value);
        K_UNROLL
        for (int32_t w = 0; w < 4; w++) {
            const int32_t from = is_plain ? w * 2 : w % 2 * 2 + w / 2;
            pack.words.at[w] = __shfl_sync(0xffffffffu, word, (at->lane & ~(C_SIDE - 1)) + from);
            four[w] = k_float_of_bits(pack.words.at[w]);
        }
        if (is && is_last && row % C_SIDE == 0) {
            ((k_pack *)args->out)[column / C_SIDE].words = pack.words;
        }
        K_ONE_COPY
        for (int32_t block = row % C_SIDE; is && !is_last && block < blocks; block += C_SIDE) {
            k_box_send_four(box, (float *)(void *)(to + column / C_SIDE), block, four);
        }
        sums += tiles * pitch;
        column += (tiles << args->blocks_log) * link->each;
    }
}

/* ---- what a block does ---- */

/* What is done before link 0, whose scale is there now: the lane's halves of what is given. */
K_FN void c_start(const c_place *at, c_work *work, c_half *x, c_half *residual) {
    const mp_nbits_chain_args *args = at->args;
    uint64_t *boxes = (uint64_t *)(void *)at->shared;
    K_ONE_COPY
    for (int32_t i = 0; i + 1 < args->links; i++) {
        k_box_open(boxes + i, (uint32_t)args->link[i].made * sizeof(T));
    }
    k_cluster_begin();
    K_COPIES_WAIT(C_AHEAD - 1); /* scales of norms, which others have copied */
    __syncthreads();
    work->scale = c_scale(at, &args->link[0]);
    k_wait();
    *x = c_read(args->a, args->link[0].k);
    *residual = c_read(args->skip, args->width);
}

/* Link -1 only fills the ring, and prepares link 0. */
K_FN void c_run(const mp_nbits_chain_args *args, uint8_t *shared) {
    c_place at = c_place_of(args, shared);
    uint8_t *ring = shared + K_CHAIN_HEAD + at.warp * C_AHEAD * C_STAGE;
    float *sums = (float *)(void *)(shared + args->sums) + at.warp * K_CHAIN_COLUMNS;
    c_half x = {}, residual = {};
    c_source from = {};
    c_work work;
    int32_t place = 0;
    c_take_constants(&at);
    c_source_begin(&at, &from);
    K_ONE_COPY
    for (int32_t number = -1; number < args->links; number++) {
        c_reader reader;
        float *to = sums;
        int32_t tiles = C_AHEAD, step = 1, pitch = 0;
        if (number != 0) {
            c_work_of(&at, number < 0 ? 0 : number, &work);
        }
        if (number > 0) {
            work.scale = c_scale(&at, &args->link[number]);
            k_box_wait((uint64_t *)(void *)shared + number - 1);
        }
        if (number >= 0) {
            c_row(&at, &work, number == 0, x, &residual);
            c_reader_of(&at, &work, &reader);
            tiles = work.tiles;
            step = work.next;
            pitch = work.next * args->link[number].stages * K_CHAIN_COLUMNS;
        }
        K_ONE_COPY
        for (; tiles > 0; tiles -= step) {
            uint8_t *stage = ring + place * C_STAGE;
            place = place + 1 < C_AHEAD ? place + 1 : 0;
            if (number >= 0) {
                K_COPIES_WAIT(C_AHEAD - 1);
                __syncwarp();
                c_stage(&at, &work, &reader, stage, to);
                to += pitch;
                __syncwarp(); /* all lanes have read it */
            }
            c_fill(&at, &from, stage);
        }
        if (number < 0) {
            c_start(&at, &work, &x, &residual);
            continue;
        }
        if (number == 0) {
            k_cluster_wait(); /* now all blocks are there */
        }
        c_put(&at, &work, number);
    }
}

#endif

K_BLOCK_KERNEL_LATE(K_CHAIN_LANES, mp_nbits_chain_args, args) {
#if C_HAS_CLUSTERS
    K_SHARED(uint8_t, shared);
    c_run(&args, shared);
#else
    (void)args;
#endif
}
