/* moe_wide.cu - many routes an expert times packed integers of K_BITS bits, by products of groups
 * of warps: a tile of W_ROUTES routes and W_COLUMNS columns of their expert, of which a group makes
 * half.
 *
 * Weights are the left operand, so that they go from shared memory as packed as they are into the
 * registers that products take them from, and are unpacked once for all routes of the tile. Rows of
 * A are the right operand, in lines of 128 bytes as group_matrix.h wants them:
 *
 *     sum[column][route] += weight[column][k] a[route][k]
 *
 * Of eight neighbours along k lane t of four has elements 2 t and 2 t + 1, as the left operand
 * wants it. Chunks of both go through a ring; while a chunk is multiplied the next one is unpacked.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/group_matrix.h"
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/quantize/moe.h"

#if K_WARP_MATRIX && K_GROUP_MATRIX

#include "kernel/quantize/nbits_pair.h"

#define w_product K_JOIN(K_JOIN(k_group_, K_T0), _128)
#define w_both    K_JOIN(k_pair_, K_T0)
#define w_scaled  K_JOIN(k_pair_fma_, K_T0)

enum {
    W_ROUTES = K_MOE_MANY,
    W_COLUMNS = K_MOE_WIDE_COLUMNS,
    W_GROUPS = K_MOE_LANES / 128,
    W_OWN = W_COLUMNS / W_GROUPS, /* columns of a group */
    W_DEPTH = K_MOE_WIDE_DEPTH,   /* of a chunk */
    W_AHEAD = K_MOE_WIDE_AHEAD,   /* chunks in the ring */
    W_LINES = W_ROUTES * W_DEPTH * 2,
    W_ROW = W_DEPTH * K_BITS / 8, /* bytes of a column of a chunk */
    W_STAGE = W_LINES + W_COLUMNS * W_ROW,
    W_PIECES = W_ROW / 16, /* of a column of a chunk */
    W_STEPS = W_DEPTH / 16,
    W_EIGHTS = W_DEPTH / 8,
    W_TALL = W_OWN / 64,                      /* left operands of a group, one above the other */
    W_SUMS = W_ROUTES / 2,                    /* of a lane, of each of those */
    W_HIGH = 2 * W_TALL,                      /* columns that a lane has weights of */
    W_BLOCKS = W_DEPTH / K_NBITS_CHUNK,       /* of weights with a scale, in a chunk, at most */
    W_A = W_ROUTES * 8 / K_MOE_LANES,         /* pieces of a chunk that a lane copies: of A, ... */
    W_W = W_COLUMNS * W_PIECES / K_MOE_LANES, /* ... and of weights */
    W_PITCH = W_OWN + 4,                      /* floats from route to route of sums */
    W_TWOS = W_OWN / 2,
};
static_assert(W_AHEAD * W_STAGE <= K_MOE_WIDE_HELD(K_BITS) &&
                  W_GROUPS * W_ROUTES * W_PITCH * 4 + W_ROUTES * 4 <= K_MOE_WIDE_HELD(K_BITS),
              "the ring and, behind it, the sums and their routes find room");

/* What a lane does. */
typedef struct w_place {
    const mp_moe_product_args *args;
    m_tile tile;
    uint8_t *ring;
    int64_t column; /* the block's first */
    int32_t first, chunks;
    int32_t group, g, t; /* g, t: which of eight and of four lanes of its warp */
    int32_t row;         /* of the group's columns: the first one of its warp, and g */
    const T *a[W_A];     /* its pieces of the first chunk; NULL for none */
    const uint8_t *w[W_W];
} w_place;

K_FN int64_t w_row_of(const w_place *at, int32_t column) {
    const int64_t n = at->args->w.n, own = at->column + column;
    return at->tile.expert * n + (own < n ? own : n - 1);
}

K_FN w_place w_place_of(const mp_moe_product_args *args, const m_tile *tile, uint8_t *ring,
                        int64_t column, int32_t part) {
    enum { LINES = K_MOE_LANES / 8, ROWS = K_MOE_LANES / W_PIECES };
    const int32_t lane = (int32_t)threadIdx.x, chunks = (int32_t)(args->w.k / W_DEPTH);
    w_place at;
    at.args = args;
    at.tile = *tile;
    at.ring = ring;
    at.column = column;
    at.first = (int32_t)(chunks * part / args->parts);
    at.chunks = (int32_t)(chunks * (part + 1) / args->parts) - at.first;
    at.group = k_group_number();
    at.g = lane % 32 / 4;
    at.t = lane % 4;
    at.row = lane % 128 / 32 * 16 + at.g;
    K_UNROLL
    for (int32_t j = 0; j < W_A; j++) {
        const int32_t r = lane / 8 + j * LINES;
        at.a[j] = r < tile->count ? m_row(args, tile, r) + at.first * W_DEPTH + lane % 8 * 8
                                  : (const T *)0;
    }
    K_UNROLL
    for (int32_t j = 0; j < W_W; j++) {
        at.w[j] = (const uint8_t *)args->w.weight +
                  w_row_of(&at, lane / W_PIECES + j * ROWS) * args->w.weight_row +
                  at.first * W_ROW + lane % W_PIECES * 16;
    }
    return at;
}

/* Begins to copy a chunk, if there is one; it becomes a group of copies. */
K_FN void w_fill(const w_place *at, int32_t chunk) {
    const int32_t lane = (int32_t)threadIdx.x, line = lane / 8;
    uint8_t *to = at->ring + chunk % W_AHEAD * W_STAGE;
    if (chunk < at->chunks) {
        K_UNROLL
        for (int32_t j = 0; j < W_A; j++) {
            const int is = at->a[j] != 0;
            k_copy_begin(to + j * (K_MOE_LANES / 8) * K_MOE_LINE + line * K_MOE_LINE +
                             (lane % 8 ^ line % 8) * 16,
                         is ? at->a[j] + chunk * W_DEPTH : (const T *)at->args->a, is ? 16 : 0);
        }
        K_UNROLL
        for (int32_t j = 0; j < W_W; j++) {
            k_copy_begin(to + W_LINES + (lane + j * K_MOE_LANES) * 16, at->w[j] + chunk * W_ROW,
                         16);
        }
    }
    k_copies_group();
}

/* ---- weights ---- */

/* What the weights of a column have in common: their scale, and what is taken off before. */
typedef struct w_side {
    uint32_t scale;
    p_base base;
} w_side;

K_FN w_side w_side_of(const w_place *at, int32_t column, int64_t block) {
    const k_nbits *w = &at->args->w;
    const int64_t row = w_row_of(at, column);
    const float scale = T_load(((const T *)w->scale)[row * w->blocks + block]);
    w_side side;
    uint32_t zero = (uint32_t)w->middle;
    if (w->zero != 0) {
        const int64_t own = w->zero_across ? at->tile.expert : row;
        const int64_t bit =
            (w->zero_across ? row - at->tile.expert * w->n : block) * (int64_t)K_BITS;
        zero = ((const uint8_t *)w->zero)[own * w->zero_row + bit / 8];
        zero = zero >> bit % 8 & ((1u << K_BITS) - 1);
    }
    side.base = p_base_of(zero, p_mask(w));
    side.scale = w_both(scale, scale);
    return side;
}

/* Elements 2 t and 2 t + 1 of eight along k as a pair, from the word that they are in. */
K_FN uint32_t w_pair(uint32_t word, int32_t t, const w_side *side) {
#if K_BITS == 4
    const uint32_t two = word >> t * 8, power = P_IS_F16 ? 0x64006400u : 0x43004300u;
    const uint32_t pair = ((two & 0x0000000fu) | power) | (two << 12 & 0x000f0000u);
    const uint32_t number = w_scaled(pair, P_IS_F16 ? 0x3c003c00u : 0x3f803f80u, side->base.one);
#elif P_IS_F16
    const uint32_t pair = __byte_perm(word, 0x64646464u, t % 2 ? 0x4342 : 0x4140);
    const uint32_t number = w_scaled(pair, 0x3c003c00u, side->base.one);
#else
    const uint32_t half = word >> t % 2 * 16;
    const float low = p_number(half, 0) - side->base.number;
    const uint32_t number = w_both(low, p_number(half, 1) - side->base.number);
#endif
    return w_scaled(number, side->scale, 0);
}

typedef struct K_ALIGN(16) w_four {
    uint32_t at[4];
} w_four;

/* The words of a column of a chunk that lane t has weights in, of each eight along k. */
K_FN void w_words(const uint8_t *from, int32_t t, uint32_t *words) {
#if K_BITS == 4
    (void)t;
    K_UNROLL
    for (int32_t i = 0; i < W_PIECES; i++) {
        *(w_four *)(void *)(words + i * 4) = ((const w_four *)(const void *)from)[i];
    }
#else
    K_UNROLL
    for (int32_t i = 0; i < W_EIGHTS; i++) {
        words[i] = ((const uint32_t *)(const void *)from)[i * 2 + t / 2];
    }
#endif
}

typedef struct w_sides {
    w_side of[W_HIGH][W_BLOCKS];
    int64_t block; /* of weights: whose the first ones are */
} w_sides;

/* Column number `i` of a lane among the group's. */
K_FN int32_t w_column(const w_place *at, int32_t i) {
    return at->group * W_OWN + i / 2 * 64 + at->row + i % 2 * 8;
}

/* Has the sides of a chunk, which often are those of the chunk before. */
K_FN void w_sides_meet(const w_place *at, int32_t chunk, w_sides *sides) {
    const k_nbits *w = &at->args->w;
    const int64_t k = (int64_t)(at->first + chunk) * W_DEPTH, block = k >> w->block_shift;
    if (block == sides->block) { /* the same for all lanes */
        return;
    }
    K_UNROLL
    for (int32_t i = 0; i < W_HIGH * W_BLOCKS; i++) {
        const int64_t of = (k + i % W_BLOCKS * K_NBITS_CHUNK) >> w->block_shift;
        sides->of[i / W_BLOCKS][i % W_BLOCKS] = w_side_of(at, w_column(at, i / W_BLOCKS), of);
    }
    sides->block = block;
}

/* Unpacks a chunk as the left operands of all its products. */
K_FN void w_unpack(const w_place *at, int32_t chunk, w_sides *sides, uint32_t (*left)[W_STEPS][4]) {
    const uint8_t *from = at->ring + chunk % W_AHEAD * W_STAGE + W_LINES;
    w_sides_meet(at, chunk, sides);
    K_UNROLL
    for (int32_t i = 0; i < W_HIGH; i++) {
        uint32_t words[W_EIGHTS];
        w_words(from + w_column(at, i) * W_ROW, at->t, words);
        K_UNROLL
        for (int32_t e = 0; e < W_EIGHTS; e++) {
            left[i / 2][e / 2][e % 2 * 2 + i % 2] =
                w_pair(words[e], at->t, &sides->of[i][e * 8 / K_NBITS_CHUNK]);
        }
    }
}

/* ---- products ---- */

K_FN void w_multiply(const w_place *at, int32_t chunk, uint32_t (*left)[W_STEPS][4],
                     float (*sum)[W_SUMS]) {
    const uint8_t *lines = at->ring + chunk % W_AHEAD * W_STAGE;
    const uint64_t right = k_group_operand((uint32_t)__cvta_generic_to_shared(lines));
    k_group_begin();
    K_UNROLL
    for (int32_t i = 0; i < W_STEPS * W_TALL; i++) {
        const int32_t step = i / W_TALL, tall = i % W_TALL;
        w_product(sum[tall], left[tall][step], right + (uint64_t)(step * 32 >> 4));
    }
    k_group_batch();
}

K_FN void w_sum(const w_place *at, float (*sum)[W_SUMS]) {
    uint32_t left[W_TALL][W_STEPS][4], next[W_TALL][W_STEPS][4];
    w_sides sides;
    sides.block = -1;
    K_ONE_COPY
    for (int32_t chunk = 0; chunk < W_AHEAD - 1; chunk++) {
        w_fill(at, chunk);
    }
    K_COPIES_WAIT(W_AHEAD - 2);
    k_group_copies_seen();
    __syncthreads();
    w_unpack(at, 0, &sides, left);
    K_ONE_COPY
    for (int32_t chunk = 0; chunk < at->chunks; chunk++) {
        const int32_t more = chunk + 1 < at->chunks;
        w_multiply(at, chunk, left, sum);
        w_fill(at, chunk + W_AHEAD - 1); /* where the chunk before was, which all are done with */
        K_COPIES_WAIT(W_AHEAD - 2);
        k_group_copies_seen();
        __syncthreads();
        w_unpack(at, more ? chunk + 1 : chunk, &sides, next);
        uint32_t all = 0;
        K_UNROLL
        for (int32_t i = 0; i < W_TALL * W_STEPS * 4; i++) {
            all ^= next[i / (W_STEPS * 4)][i / 4 % W_STEPS][i % 4];
        }
        k_group_hold(all); /* now, and not behind the products */
        k_group_wait();
        K_UNROLL
        for (int32_t i = 0; i < W_TALL * W_STEPS * 4; i++) {
            uint32_t *kept = &left[i / (W_STEPS * 4)][i / 4 % W_STEPS][i % 4];
            K_HOLD(*kept); /* products read it until now */
            *kept = next[i / (W_STEPS * 4)][i / 4 % W_STEPS][i % 4];
        }
        __syncthreads(); /* nobody copies to where somebody still multiplies */
    }
}

/* ---- the end ---- */

typedef struct K_ALIGN(8) w_two {
    float at[2];
} w_two;

K_FN void w_put(const w_place *at, int64_t route, int64_t column, int32_t part, w_two two) {
    const mp_moe_product_args *args = at->args;
    if (args->parts > 1) {
        const int64_t row = part * args->routes + route;
        *(w_two *)(void *)((float *)args->out + row * args->w.n + column) = two;
    } else {
        m_put_at(args, at->tile.expert, route, column, two.at[0], two.at[1]);
    }
}

/* Two columns of every second route of the tile, some routes at a time: what is made of one is one
 * copy of text, and the next ones' sums are on their way meanwhile. */
K_FN void w_put_columns(const w_place *at, int32_t part, const float *all, const int32_t *routes) {
    enum { AT_ONCE = 4, BESIDE = 128 / W_TWOS };
    const int32_t lane = (int32_t)threadIdx.x % 128, own = lane % W_TWOS * 2;
    const int64_t column = at->column + at->group * W_OWN + own;
    const int32_t count = column < at->args->w.n ? (int32_t)at->tile.count : 0;
    K_ONE_COPY
    for (int32_t first = lane / W_TWOS; first < count; first += AT_ONCE * BESIDE) {
        w_two two[AT_ONCE];
        int32_t route[AT_ONCE];
        K_UNROLL
        for (int32_t j = 0; j < AT_ONCE; j++) {
            const int32_t r = first + j * BESIDE;
            two[j] = *(const w_two *)(const void *)(all + (r < W_ROUTES ? r : 0) * W_PITCH + own);
            route[j] = routes[r < W_ROUTES ? r : 0];
        }
        K_ONE_COPY
        for (int32_t r = first; r < first + AT_ONCE * BESIDE && r < count; r += BESIDE) {
            w_put(at, route[0], column, part, two[0]);
            K_UNROLL
            for (int32_t j = 0; j + 1 < AT_ONCE; j++) { /* the next one's turn */
                two[j] = two[j + 1];
                route[j] = route[j + 1];
            }
        }
    }
}

/* The group's sums go through shared memory, where the ring was: a lane has routes side by side,
 * and columns are written so. */
K_FN void w_put_all(const w_place *at, int32_t part, float (*sum)[W_SUMS]) {
    float *all = (float *)(void *)at->ring + at->group * W_ROUTES * W_PITCH;
    int32_t *routes = (int32_t *)(void *)(at->ring + W_GROUPS * W_ROUTES * W_PITCH * 4);
    if ((int32_t)threadIdx.x < (int32_t)at->tile.count) {
        routes[threadIdx.x] = (int32_t)at->tile.routes[threadIdx.x].index;
    }
    K_UNROLL
    for (int32_t i = 0; i < W_TALL * W_SUMS; i++) {
        const int32_t tall = i / W_SUMS, e = i % W_SUMS;
        const int32_t route = e / 4 * 8 + at->t * 2 + e % 2;
        const int32_t column = tall * 64 + at->row + e / 2 % 2 * 8;
        all[route * W_PITCH + column] = sum[tall][e];
    }
    __syncthreads();
    w_put_columns(at, part, all, routes);
}

/* The block's tiles, one after the other. */
K_FN void w_make_all(const mp_moe_product_args *args, uint8_t *shared) {
    const int64_t across = args->tiles_across, parts = args->parts;
    uint8_t *ring = shared + (-(uint32_t)__cvta_generic_to_shared(shared) & (K_MOE_ALIGN - 1));
    for (int64_t i = blockIdx.x; i < args->tiles_max * across * parts; i += gridDim.x) {
        const m_tile tile = m_tile_at(args, i / parts / across, W_ROUTES);
        if (tile.count > 0) { /* the same for all lanes */
            const int32_t part = (int32_t)(i % parts);
            const w_place at = w_place_of(args, &tile, ring, i / parts % across * W_COLUMNS, part);
            float sum[W_TALL][W_SUMS] = {{0}};
            w_sum(&at, sum);
            w_put_all(&at, part, sum);
        }
        __syncthreads();
    }
}

#endif

K_BLOCK_KERNEL_LATE_OF(K_MOE_LANES, 1, mp_moe_product_args, args) {
#if K_WARP_MATRIX && K_GROUP_MATRIX
    K_SHARED(uint8_t, shared);
    k_wait();
    w_make_all(&args, shared);
#else
    (void)args;
#endif
}
