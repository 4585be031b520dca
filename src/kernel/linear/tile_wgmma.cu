/* tile_wgmma.cu - many rows times a matrix that is stored turned, by the products of GPUs of
 * compute capability 9.0, of which a group of four warps makes one together.
 *
 * A block makes a tile of K_ROWS rows x K_COLUMNS: two of its groups multiply, 64 rows each, and
 * the third copies. Chunks along k go through a ring of stages in shared memory; of each stage the
 * copying group says when it is full, and the others when it may be filled again.
 *
 * B is asked for before the kernel before has ended, where it is constant.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/group_matrix.h"
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/linear/linear_args.h"

#if K_GROUP_MATRIX

#include "kernel/core/word.h"
#include "kernel/linear/conv_tail.h"
#include "kernel/linear/group_lines.h"
#include "kernel/linear/rows_tile.h"

#define w_product K_JOIN(K_JOIN(k_group_, K_T0), K_JOIN(_, K_COLUMNS))

enum {
    W_LANES = K_TILE_WGMMA_LANES,
    W_MAKERS = K_ROWS / 64, /* groups that multiply */
    W_STAGES = K_TILE_WGMMA_STAGES,
    W_AHEAD = W_STAGES - 2, /* chunks on their way: a stage is full, and one is multiplied */
    W_A = K_ROWS * L_CHUNK,
    W_STAGE = K_TILE_WGMMA_STAGE(K_COLUMNS),
    W_FULL = 1, /* places to meet: from here on of full stages, and of empty ones */
    W_EMPTY = W_FULL + W_STAGES,
    W_DOWN = W_LANES / R_ACROSS,             /* rows that the block finishes at once */
    W_MOST = (K_ROWS + W_DOWN - 1) / W_DOWN, /* units of a lane */
    W_MANY = 2,                              /* units of a lane at a time */
    W_SUMS = K_ROWS * R_PITCH,               /* floats */
    W_EARLY = 2,                             /* chunks of B that are asked for first */
};
static_assert(W_DOWN * R_ACROSS == W_LANES, "a lane has the same columns of all its rows");
static_assert(W_SUMS * 4 <= W_STAGES * W_STAGE, "sums find room in the ring");

/* The block's tile, its ring, and how many chunks there are. */
typedef struct w_place {
    r_tile tile;
    uint8_t *ring;
    int32_t lane; /* of its group */
    int32_t chunks;
} w_place;

K_FN w_place w_place_of(const mp_rows_mma_args *args, uint8_t *ring) {
    w_place at;
    at.tile = r_tile_of(args);
    at.ring = ring;
    at.lane = (int32_t)threadIdx.x % L_GROUP;
    at.chunks = (args->k_bytes + L_CHUNK - 1) / L_CHUNK;
    return at;
}

/* The stage behind `stage`. */
K_FN int32_t w_next(int32_t stage) {
    return stage + 1 < W_STAGES ? stage + 1 : 0;
}

/* ---- the group that copies ---- */

typedef struct w_sides {
    l_side a, b;
    int32_t along, spot; /* a lane's piece of a line, in bytes, and where its first one lies */
} w_sides;

/* A side's lines of a chunk. */
K_FN void w_fill(const w_place *at, const w_sides *sides, const l_side *side, int32_t chunk,
                 int32_t count, uint8_t *to) {
    l_fill(side, chunk, count, side->left, chunk * L_CHUNK + sides->along < at->tile.args->k_bytes,
           to + sides->spot);
}

K_FN void w_copy(const w_place *at) {
    const mp_rows_mma_args *args = at->tile.args;
    w_sides sides;
    int32_t stage = 0, full = 0;
    sides.a = l_side_of(args->a, args->lda * R_SIZE, at->tile.row, at->tile.rows, at->lane);
    sides.b = l_side_of(args->b, args->ldb * R_SIZE, at->tile.column, at->tile.columns, at->lane);
    sides.along = at->lane % L_PIECES * L_PIECE;
    sides.spot = l_spot(at->lane / L_PIECES, at->lane % L_PIECES);
    K_ONE_COPY
    for (int32_t i = 0; i < W_EARLY && i < at->chunks; i++) {
        w_fill(at, &sides, &sides.b, i, K_COLUMNS, at->ring + i * W_STAGE + W_A);
    }
    k_wait();
    K_ONE_COPY
    for (int32_t i = 0; i < at->chunks + W_AHEAD; i++) {
        uint8_t *to = at->ring + stage * W_STAGE;
        if (i >= W_STAGES && i < at->chunks) {
            k_place_wait(W_EMPTY + stage, W_LANES);
        }
        if (i >= W_EARLY && i < at->chunks) {
            w_fill(at, &sides, &sides.b, i, K_COLUMNS, to + W_A);
        }
        if (i < at->chunks) {
            w_fill(at, &sides, &sides.a, i, K_ROWS, to);
        }
        k_copies_group();
        stage = w_next(stage);
        if (i >= W_AHEAD) {
            K_COPIES_WAIT(W_AHEAD);
            k_place_pass(W_FULL + full, W_LANES);
            full = w_next(full);
        }
    }
}

/* ---- the groups that multiply ---- */

/* The left operands of a chunk in stage `stage`, once it is full. */
K_FN void w_load(const w_place *at, int32_t stage, int32_t group, uint32_t (*left)[4]) {
    k_place_wait(W_FULL + stage, W_LANES);
    k_group_copies_seen();
    l_load(at->ring + stage * W_STAGE + group * 64 * L_CHUNK, l_left_of(at->lane), left);
}

/* The registers of left operands must not change while there are products, so those of the next
 * chunk are loaded to others meanwhile. */
K_FN void w_make(const w_place *at, int32_t group, float *sum) {
    const uint32_t ring = (uint32_t)__cvta_generic_to_shared(at->ring);
    uint32_t left[L_STEPS][4], next[L_STEPS][4] = {};
    int32_t stage = 0;
    w_load(at, 0, group, left);
    K_ONE_COPY
    for (int32_t i = 0; i < at->chunks; i++) {
        const uint64_t b = k_group_operand(ring + (uint32_t)(stage * W_STAGE + W_A));
        const int32_t empty = stage;
        k_group_begin();
        K_UNROLL
        for (int32_t step = 0; step < L_STEPS; step++) {
            w_product(sum, left[step], b + (uint64_t)(step * L_STEP >> 4));
        }
        k_group_batch();
        stage = w_next(stage);
        if (i + 1 < at->chunks) {
            w_load(at, stage, group, next);
        }
        k_group_wait();
        K_UNROLL
        for (int32_t j = 0; j < L_STEPS * 4; j++) {
            K_HOLD(left[j / 4][j % 4]); /* products read it until now */
            left[j / 4][j % 4] = next[j / 4][j % 4];
        }
        if (i + W_STAGES < at->chunks) {
            k_place_pass(W_EMPTY + empty, W_LANES);
        }
    }
}

typedef struct K_ALIGN(8) w_two {
    float at[2];
} w_two;

/* Puts a group's sums among those of the tile. */
K_FN void w_put(const w_place *at, int32_t group, const float *sum, float *sums) {
    const int32_t lane = at->lane % 32, row = group * 64 + at->lane / 32 * 16 + lane / 4;
    float *to = sums + row * R_PITCH + lane % 4 * 2;
    K_UNROLL
    for (int32_t i = 0; i < K_COLUMNS / 2; i += 2) {
        const w_two two = {{sum[i], sum[i + 1]}};
        *(w_two *)(void *)(to + i / 2 % 2 * 8 * R_PITCH + i / 4 * 8) = two;
    }
}

/* ---- the end ---- */

/* A lane's units of results: the same columns of every W_DOWN-th row. */
typedef struct w_units {
    float *sums;
    int64_t place; /* of the next one, among out and d */
    int64_t down;  /* elements from a unit to the next */
    int32_t count;
} w_units;

K_FN w_units w_units_of(const r_tile *at, float *sums) {
    const int32_t row = (int32_t)threadIdx.x / R_ACROSS;
    const int32_t column = (int32_t)threadIdx.x % R_ACROSS * R_UNIT;
    const int32_t end = at->rows < K_ROWS ? at->rows : K_ROWS;
    w_units u;
    u.sums = sums + row * R_PITCH + column;
    u.place = (at->row + row) * at->args->ldc + at->column + column;
    u.down = W_DOWN * at->args->ldc;
    u.count = column < at->columns && row < end ? (end - row + W_DOWN - 1) / W_DOWN : 0;
    return u;
}

/* The bias of a lane's columns, with which each of its units begins. */
K_FN r_four w_bias(const r_tile *at) {
    const int32_t column = (int32_t)threadIdx.x % R_ACROSS * R_UNIT;
    r_words words = {};
    r_four bias;
    if (at->args->bias != 0 && column < at->columns) {
        words = *(const r_words *)(const void *)((const T *)at->args->bias + at->column + column);
    }
    K_UNROLL
    for (int32_t w = 0; w < R_WORDS; w++) {
        T_unpack(words.at[w], bias.at + w * K_WORD);
    }
    return bias;
}

/* What is added to a lane's units, as it comes from memory. */
typedef struct w_added {
    r_words of[W_MOST];
} w_added;

K_FN void w_ask(const mp_rows_mma_args *args, const w_units *u, w_added *added) {
    K_UNROLL
    for (int32_t j = 0; j < W_MOST; j++) {
        if (j < u->count) {
            added->of[j] =
                *(const r_words *)(const void *)((const T *)args->d + u->place + j * u->down);
        }
    }
}

/* Has what is added, and the factors, among the sums. */
K_FN void w_join(const mp_rows_mma_args *args, const w_units *u, const w_added *added) {
    K_UNROLL
    for (int32_t j = 0; j < W_MOST; j++) {
        r_four *own = (r_four *)(void *)(u->sums + j * (W_DOWN * R_PITCH));
        float d[R_UNIT];
        K_UNROLL
        for (int32_t w = 0; w < R_WORDS; w++) {
            T_unpack(added->of[j].at[w], d + w * K_WORD);
        }
        K_UNROLL
        for (int32_t e = 0; j < u->count && e < R_UNIT; e++) {
            own->at[e] = args->alpha * own->at[e] + args->beta * d[e];
        }
    }
}

/* Finishes W_MANY units, or what is left of them: the activation is looked up once. */
K_FN void w_store(const mp_rows_mma_args *args, const w_units *u, float alpha, const r_four *bias) {
    float y[W_MANY * R_UNIT];
    K_UNROLL
    for (int32_t j = 0; j < W_MANY; j++) {
        const int32_t own = j < u->count ? j : 0;
        const r_four sum = *(const r_four *)(const void *)(u->sums + own * (W_DOWN * R_PITCH));
        K_UNROLL
        for (int32_t e = 0; e < R_UNIT; e++) {
            y[j * R_UNIT + e] = alpha * sum.at[e] + bias->at[e];
        }
    }
    c_activate_some(args->activation, args->activation_alpha, args->activation_beta, y,
                    W_MANY * R_UNIT);
    K_UNROLL
    for (int32_t j = 0; j < W_MANY; j++) {
        r_words words;
        K_UNROLL
        for (int32_t w = 0; w < R_WORDS; w++) {
            words.at[w] = T_repack(y + j * R_UNIT + w * K_WORD);
        }
        if (j < u->count) {
            *(r_words *)(void *)((T *)args->out + u->place + j * u->down) = words;
        }
    }
}

K_FN void w_finish(const r_tile *at, float *sums) {
    const mp_rows_mma_args *args = at->args;
    const r_four bias = w_bias(at);
    w_units u = w_units_of(at, sums);
    float alpha = args->alpha;
    w_added added;
    if (args->d != 0) {
        w_ask(args, &u, &added);
    }
    __syncthreads();
    if (args->d != 0) {
        w_join(args, &u, &added);
        alpha = 1;
    }
    K_ONE_COPY
    for (; u.count > 0; u.count -= W_MANY) {
        w_store(args, &u, alpha, &bias);
        u.sums += W_MANY * W_DOWN * R_PITCH;
        u.place += W_MANY * u.down;
    }
}

K_FN void w_run(const mp_rows_mma_args *args, uint8_t *ring) {
    const w_place at = w_place_of(args, ring);
    const int32_t group = k_group_number();
    float *sums = (float *)(void *)ring;
    float sum[K_COLUMNS / 2] = {};
    if (group == W_MAKERS) {
        w_copy(&at);
    } else {
        k_wait();
        w_make(&at, group, sum);
    }
    __syncthreads(); /* the ring is done with */
    if (group < W_MAKERS) {
        w_put(&at, group, sum, sums);
    }
    w_finish(&at.tile, sums);
}

#endif

K_BLOCK_KERNEL_LATE_OF(K_TILE_WGMMA_LANES, 1, mp_rows_mma_args, args) {
#if K_GROUP_MATRIX
    K_SHARED(uint8_t, shared);
    if (!args.constant) {
        k_wait();
    }
    w_run(&args, l_ring(shared));
#else
    (void)args;
#endif
}
