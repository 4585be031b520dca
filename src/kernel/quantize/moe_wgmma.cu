/* moe_wgmma.cu - many routes an expert times its weights, by the products of GPUs of compute
 * capability 9.0, of which a group of four warps makes one together. Weights are of A's type or,
 * with K_BITS, integers of so many bits whose scales are of A's type.
 *
 * A block makes tiles of G_ROUTES routes x G_COLUMNS columns of their expert, one after the other:
 * two of its groups multiply, 64 routes each, and the third copies. Chunks along k go through a
 * ring of stages in shared memory, those of the next tile while the last one's results are written;
 * of each stage the copying group says when it is full, and the others when it may be filled again.
 * Packed weights go through a ring of their own, where each lane of the copying group unpacks what
 * it has copied itself.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/group_matrix.h"
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/quantize/moe.h"

#if K_GROUP_MATRIX

#include "kernel/core/word.h"
#include "kernel/linear/group_lines.h"

#if defined(K_BITS)
#include "kernel/quantize/nbits_numbers.h"
#define G_BITS K_BITS
#else
#define G_BITS 0
#endif

#define g_product K_JOIN(K_JOIN(k_group_, K_T0), _192)

enum {
    G_LANES = K_MOE_WGMMA_LANES,
    G_ROUTES = K_MOE_MANY,
    G_COLUMNS = K_MOE_WGMMA_COLUMNS,
    G_MAKERS = G_ROUTES / 64, /* groups that multiply */
    G_DEPTH = K_MOE_WGMMA_DEPTH,
    G_STAGES = K_MOE_WGMMA_STAGES,
    G_AHEAD = K_MOE_WGMMA_AHEAD, /* chunks on their way: a stage is full, and one is multiplied */
    G_A = G_ROUTES * L_CHUNK,
    G_STAGE = K_MOE_WGMMA_STAGE,
    G_A_EACH = G_ROUTES / L_LINES, /* lines that a lane copies a piece of */
    G_W_EACH = G_COLUMNS / L_LINES,
    G_PACK = L_PIECE / sizeof(T), /* elements of a piece */

    G_ROW = G_DEPTH * G_BITS / 8, /* bytes of a packed column of a chunk */
    G_PIECES = G_ROW / L_PIECE,
    G_PACKED = G_COLUMNS * G_ROW,
    G_EACH = G_PACKED / L_PIECE / L_GROUP,                     /* packed pieces of a lane */
    G_LONG = G_BITS > 0 ? 128 / (G_BITS > 0 ? G_BITS : 1) : 0, /* weights of such a piece */

    G_FULL = 3, /* places to meet, behind those of groups: of full stages, and of empty ones */
    G_EMPTY = G_FULL + G_STAGES,

    G_PART = K_MOE_WGMMA_PART, /* columns whose sums a group has in shared memory at a time */
    G_PITCH = K_MOE_WGMMA_PITCH,
    G_UNIT = 8, /* columns that a lane finishes at once */
    G_ACROSS = G_PART / G_UNIT,
    G_UNITS = 64 * G_ACROSS / L_GROUP, /* of a lane */
};
static_assert(G_DEPTH == L_DEPTH && sizeof(T) == 2, "a chunk is a line of each");
static_assert(64 * G_ACROSS % L_GROUP == 0 && G_COLUMNS % G_PART == 0, "units are shared evenly");

/* A tile as it is made; the copying group tells the others with the first stage of it. */
typedef struct g_item {
    const k_pair *routes;
    int64_t row;    /* of the weights: that of the first column */
    int32_t count;  /* routes */
    int32_t column; /* of the expert: the first */
} g_item;
static_assert(sizeof(g_item) <= K_MOE_WGMMA_ITEM, "tiles find room");

/* A block's share of work, and its memory. */
typedef struct g_place {
    const mp_moe_product_args *args;
    uint8_t *ring, *packed;
    float *sums;
    g_item *items; /* of each stage that begins one */
    int32_t lane;  /* of its group */
    int32_t chunks, tiles;
} g_place;

K_FN g_place g_place_of(const mp_moe_product_args *args, uint8_t *ring) {
    const int64_t all = ((const int64_t *)args->tiles)[args->experts] * args->tiles_across;
    const int64_t left = all - blockIdx.x;
    g_place at;
    at.args = args;
    at.ring = ring;
    at.packed = ring + G_STAGES * G_STAGE;
    at.sums = (float *)(void *)(at.packed + K_MOE_WGMMA_PACKED(G_BITS));
    at.items = (g_item *)(void *)((uint8_t *)at.sums + K_MOE_WGMMA_SUMS);
    at.lane = (int32_t)threadIdx.x % L_GROUP;
    at.chunks = (int32_t)(args->w.k / G_DEPTH);
    at.tiles = left > 0 ? (int32_t)((left - 1) / gridDim.x) + 1 : 0;
    return at;
}

/* Number `i` of the block's tiles. */
K_FN g_item g_item_at(const mp_moe_product_args *args, int32_t i) {
    const int64_t n = args->w.n, number = blockIdx.x + (int64_t)i * gridDim.x;
    const m_tile tile = m_tile_at(args, number / args->tiles_across, G_ROUTES);
    const int64_t column = number % args->tiles_across * G_COLUMNS;
    g_item item;
    item.routes = tile.routes;
    item.row = tile.expert * n + column;
    item.count = (int32_t)tile.count;
    item.column = (int32_t)column;
    return item;
}

/* The place behind `place` in a ring of `count`. */
K_FN int32_t g_next(int32_t place, int32_t count) {
    return place + 1 < count ? place + 1 : 0;
}

/* ---- the group that copies ---- */

/* A lane's pieces of a tile's first chunk: of A, NULL for none, and of weights. Columns that are
 * not there are zeros, or, packed, the last one again. */
typedef struct g_sources {
    const T *a[G_A_EACH];
    const T *w;
    const uint8_t *packed[G_EACH > 0 ? G_EACH : 1];
    int32_t left; /* columns from the lane's first one on */
} g_sources;

/* The row of weights that packed piece `j` of a lane is of. */
K_FN int64_t g_row_of(const g_place *at, const g_item *item, int32_t j) {
    const int32_t column = (at->lane + j * L_GROUP) / (G_PIECES > 0 ? G_PIECES : 1);
    const int32_t last = (int32_t)at->args->w.n - item->column - 1;
    return item->row + (column < last ? column : last);
}

K_FN void g_aim(const g_place *at, const g_item *item, g_sources *from) {
    const mp_moe_product_args *args = at->args;
    const int32_t line = at->lane / L_PIECES, along = at->lane % L_PIECES * G_PACK;
    K_UNROLL
    for (int32_t j = 0; j < G_A_EACH; j++) {
        const int32_t r = line + j * L_LINES;
        from->a[j] = (const T *)0;
        if (r < item->count) {
            from->a[j] =
                (const T *)args->a + item->routes[r].index / args->share * args->w.k + along;
        }
    }
    from->w = (const T *)args->w.weight + (item->row + line) * args->w.k + along;
    from->left = (int32_t)args->w.n - item->column - line;
    K_UNROLL
    for (int32_t j = 0; j < G_EACH; j++) {
        from->packed[j] = (const uint8_t *)args->w.weight +
                          g_row_of(at, item, j) * args->w.weight_row +
                          (at->lane + j * L_GROUP) % (G_PIECES > 0 ? G_PIECES : 1) * L_PIECE;
    }
}

/* Begins to copy a chunk of A and of weights, those that are packed to their own ring. */
K_FN void g_fill(const g_place *at, const g_sources *from, int32_t chunk, uint8_t *stage,
                 uint8_t *packed) {
    const mp_moe_product_args *args = at->args;
    uint8_t *to = stage + l_spot(at->lane / L_PIECES, at->lane % L_PIECES);
    K_UNROLL
    for (int32_t j = 0; j < G_A_EACH; j++) {
        const int is = from->a[j] != 0;
        k_copy_begin(to + j * L_LINES * L_CHUNK,
                     is ? from->a[j] + chunk * G_DEPTH : (const T *)args->a, is ? L_PIECE : 0);
    }
    K_UNROLL
    for (int32_t j = 0; G_BITS == 0 && j < G_W_EACH; j++) {
        const int is = j * L_LINES < from->left;
        const T *own = from->w + j * L_LINES * args->w.k + chunk * G_DEPTH;
        k_copy_begin(to + G_A + j * L_LINES * L_CHUNK, is ? own : (const T *)args->w.weight,
                     is ? L_PIECE : 0);
    }
    K_UNROLL
    for (int32_t j = 0; j < G_EACH; j++) {
        k_copy_begin(packed + (at->lane + j * L_GROUP) * L_PIECE, from->packed[j] + chunk * G_ROW,
                     L_PIECE);
    }
}

#if G_BITS > 0
/* What the weights of each of a lane's packed pieces have in common: the bits of their scale, and
 * above them their zero point. */
typedef struct g_sides {
    uint32_t of[G_EACH];
} g_sides;

K_FN uint32_t g_side_at(const k_nbits *w, int64_t row, int64_t block) {
    const T scale = ((const T *)w->scale)[row * w->blocks + block];
    uint32_t zero = (uint32_t)w->middle;
    if (w->zero != 0) {
        const int64_t expert = w->zero_across ? row / w->n : 0;
        const int64_t of = w->zero_across ? expert : row;
        const int64_t bit = (w->zero_across ? row - expert * w->n : block) * G_BITS;
        zero = ((const uint8_t *)w->zero)[of * w->zero_row + bit / 8];
        zero = zero >> bit % 8 & ((1u << G_BITS) - 1);
    }
    return *(const uint16_t *)(const void *)&scale | zero << 16;
}

K_FN void g_ask(const g_place *at, const g_item *item, int32_t chunk, g_sides *sides) {
    const k_nbits *w = &at->args->w;
    K_UNROLL
    for (int32_t j = 0; j < G_EACH; j++) {
        const int64_t k = (int64_t)chunk * G_DEPTH + (at->lane + j * L_GROUP) % G_PIECES * G_LONG;
        sides->of[j] = g_side_at(w, g_row_of(at, item, j), k >> w->block_shift);
    }
}

/* Whether chunk `chunk` has blocks of weights that the one before has not; the same for all. */
K_FN int g_is_other(const k_nbits *w, int32_t chunk) {
    const int64_t k = (int64_t)chunk * G_DEPTH;
    return k >> w->block_shift != (k - 1) >> w->block_shift ||
           k >> w->block_shift != (k + G_DEPTH - 1) >> w->block_shift;
}

typedef struct K_ALIGN(16) g_four {
    uint32_t at[4];
} g_four;

/* The lane's packed pieces of a chunk become lines. */
K_FN void g_unpack(const g_place *at, const g_sides *sides, const uint8_t *packed, uint8_t *lines) {
    enum { EIGHTS = G_LONG / 8, WORDS = G_BITS / 4 };
    const uint32_t mask = p_mask(&at->args->w);
    K_UNROLL
    for (int32_t j = 0; j < G_EACH; j++) {
        const int32_t piece = at->lane + j * L_GROUP, column = piece / G_PIECES;
        const g_four four = *(const g_four *)(const void *)(packed + piece * L_PIECE);
        const p_base base = p_base_of(sides->of[j] >> 16, mask);
        const uint32_t scale = __byte_perm(sides->of[j], 0, 0x1010);
        K_UNROLL
        for (int32_t e = 0; e < EIGHTS; e++) {
            p_words words;
            g_four made;
            K_UNROLL
            for (int32_t i = 0; i < WORDS; i++) {
                words.at[i] = four.at[e * WORDS + i];
            }
            p_numbers(words, base, scale, made.at);
            *(g_four *)(void *)(lines + l_spot(column, piece % G_PIECES * EIGHTS + e)) = made;
        }
    }
}
#endif

/* Where the copying group is: a tile and a chunk of it, and the stage and packed chunk to fill. */
typedef struct g_turn {
    int32_t tile, chunk, stage, packed;
} g_turn;

K_FN void g_turn_on(g_turn *turn, int32_t chunks) {
    turn->stage = g_next(turn->stage, G_STAGES);
    turn->packed = g_next(turn->packed, G_AHEAD + 1);
    turn->chunk = g_next(turn->chunk, chunks);
    turn->tile += turn->chunk == 0;
}

/* Copies chunks, unpacks those that are there, and says that their stages are full. A chunk is
 * unpacked G_AHEAD turns after its copy began: of a tile that is no shorter than that, so the item
 * is still the same when its first chunk is. */
K_FN void g_copy(const g_place *at) {
    const int32_t total = at->tiles * at->chunks;
    g_turn fill = {0, 0, 0, 0}, full = {0, 0, 0, 0};
    g_sources from;
    g_item item = {};
#if G_BITS > 0
    g_item own = {};
    g_sides sides = {}, next = {};
#endif
    K_ONE_COPY
    for (int32_t i = 0; i < total + G_AHEAD; i++) {
#if G_BITS > 0
        const int other =
            i >= G_AHEAD && full.chunk + 1 < at->chunks && g_is_other(&at->args->w, full.chunk + 1);
        if (i >= G_AHEAD && full.chunk == 0) {
            own = item;
            g_ask(at, &own, 0, &sides);
        }
        if (other) {
            g_ask(at, &own, full.chunk + 1, &next);
        }
#endif
        if (i >= G_STAGES && i < total) {
            k_place_wait(G_EMPTY + fill.stage, G_LANES);
        }
        if (i < total) {
            if (fill.chunk == 0) {
                item = g_item_at(at->args, fill.tile);
                g_aim(at, &item, &from);
                if (at->lane == 0) {
                    at->items[fill.stage] = item;
                }
            }
            g_fill(at, &from, fill.chunk, at->ring + fill.stage * G_STAGE,
                   at->packed + fill.packed * G_PACKED);
            g_turn_on(&fill, at->chunks);
        }
        k_copies_group();
        if (i >= G_AHEAD) {
            K_COPIES_WAIT(G_AHEAD);
#if G_BITS > 0
            g_unpack(at, &sides, at->packed + full.packed * G_PACKED,
                     at->ring + full.stage * G_STAGE + G_A);
            if (other) {
                sides = next;
            }
#endif
            k_place_pass(G_FULL + full.stage, G_LANES);
            g_turn_on(&full, at->chunks);
        }
    }
}

/* ---- the groups that multiply ---- */

/* Where a group is in the ring, and how many chunks there are from there on. */
typedef struct g_ahead {
    int32_t stage, left;
} g_ahead;

/* Waits for a stage. What is in it is made visible to products here and not where it is copied: a
 * lane that copies would wait for all its copies then. */
K_FN void g_await(int32_t stage) {
    k_place_wait(G_FULL + stage, G_LANES);
    k_group_copies_seen();
}

/* A stage may be filled again, if it will be. */
K_FN void g_release(g_ahead *on) {
    if (on->left > G_STAGES) {
        k_place_pass(G_EMPTY + on->stage, G_LANES);
    }
    on->stage = g_next(on->stage, G_STAGES);
    on->left--;
}

K_FN void g_load(const g_place *at, int32_t stage, int32_t group, uint32_t (*left)[4]) {
    l_load(at->ring + stage * G_STAGE + group * 64 * L_CHUNK, l_left_of(at->lane), left);
}

/* All chunks of a tile, whose first stage is full. The registers of left operands must not change
 * while there are products, so those of the next chunk are loaded to others meanwhile. */
K_FN void g_sum(const g_place *at, int32_t group, g_ahead *on, float *sum) {
    const uint32_t ring = (uint32_t)__cvta_generic_to_shared(at->ring);
    uint32_t left[L_STEPS][4], next[L_STEPS][4] = {};
    g_load(at, on->stage, group, left);
    K_ONE_COPY
    for (int32_t i = 0; i < at->chunks; i++) {
        const uint64_t b = k_group_operand(ring + (uint32_t)(on->stage * G_STAGE + G_A));
        const int32_t behind = g_next(on->stage, G_STAGES);
        k_group_begin();
        K_UNROLL
        for (int32_t step = 0; step < L_STEPS; step++) {
            g_product(sum, left[step], b + (uint64_t)(step * L_STEP >> 4));
        }
        k_group_batch();
        if (i + 1 < at->chunks) {
            g_await(behind);
            g_load(at, behind, group, next);
        }
        k_group_wait();
        K_UNROLL
        for (int32_t j = 0; j < L_STEPS * 4; j++) {
            K_HOLD(left[j / 4][j % 4]); /* products read it until now */
            left[j / 4][j % 4] = next[j / 4][j % 4];
        }
        g_release(on);
    }
}

/* A tile that has no routes for the group. */
K_FN void g_pass_by(const g_place *at, g_ahead *on) {
    K_ONE_COPY
    for (int32_t i = 0; i < at->chunks; i++) {
        if (i > 0) {
            g_await(on->stage);
        }
        g_release(on);
    }
}

/* ---- the end ---- */

/* A lane's units of a tile's results: where their rows begin in `out`, -1 for none. */
typedef struct g_units {
    int64_t place[G_UNITS];
} g_units;

K_FN int32_t g_unit(const g_place *at, int32_t j) {
    return at->lane + j * L_GROUP;
}

/* The columns of unit `j`, among those that are in shared memory. */
K_FN int32_t g_across(const g_place *at, int32_t j) {
    return g_unit(at, j) % G_ACROSS * G_UNIT;
}

K_FN g_units g_units_of(const g_place *at, const g_item *item, int32_t group) {
    g_units u;
    K_UNROLL
    for (int32_t j = 0; j < G_UNITS; j++) {
        const int32_t row = group * 64 + g_unit(at, j) / G_ACROSS;
        u.place[j] = row < item->count ? item->routes[row].index * at->args->w.n : -1;
    }
    return u;
}

typedef struct K_ALIGN(16) g_words {
    uint32_t at[G_UNIT / 2];
} g_words;
typedef struct K_ALIGN(8) g_half {
    uint32_t at[G_UNIT / 4];
} g_half;
typedef struct K_ALIGN(16) g_floats {
    float at[G_UNIT];
} g_floats;

/* A lane's units at a time, so that one does not wait for what another one waits for. */
enum { G_VALUES = G_UNITS * G_UNIT };

K_FN void g_activate(int32_t kind, float *y) {
    switch (kind) {
    case K_MOE_RELU:
        K_UNROLL
        for (int32_t i = 0; i < G_VALUES; i++) {
            y[i] = m_active(K_MOE_RELU, y[i]);
        }
        break;
    case K_MOE_GELU:
        K_UNROLL
        for (int32_t i = 0; i < G_VALUES; i++) {
            y[i] = m_active(K_MOE_GELU, y[i]);
        }
        break;
    case K_MOE_SILU:
        K_UNROLL
        for (int32_t i = 0; i < G_VALUES; i++) {
            y[i] = m_active(K_MOE_SILU, y[i]);
        }
        break;
    default:
        break;
    }
}

/* Sums of columns from `first` of the expert on, which are in shared memory, with their bias. */
K_FN void g_take(const g_place *at, const g_item *item, int32_t first, const float *sums,
                 float *y) {
    const mp_moe_product_args *args = at->args;
    g_words bias[G_UNITS] = {};
    K_UNROLL
    for (int32_t j = 0; j < G_UNITS; j++) {
        const int32_t column = first + g_across(at, j);
        if (args->bias != 0 && column < args->w.n) {
            const T *own = (const T *)args->bias + (item->row - item->column + column);
            bias[j] = *(const g_words *)(const void *)own;
        }
    }
    K_UNROLL
    for (int32_t j = 0; j < G_UNITS; j++) {
        const int32_t row = g_unit(at, j) / G_ACROSS;
        const g_floats own =
            *(const g_floats *)(const void *)(sums + row * G_PITCH + g_across(at, j));
        K_UNROLL
        for (int32_t i = 0; i < G_UNIT / 2; i++) {
            float two[2];
            T_unpack(bias[j].at[i], two);
            y[j * G_UNIT + 2 * i] = own.at[2 * i] + two[0];
            y[j * G_UNIT + 2 * i + 1] = own.at[2 * i + 1] + two[1];
        }
    }
}

K_FN void g_store_gated(const g_place *at, const g_units *u, int32_t first, const float *y) {
    const mp_moe_product_args *args = at->args;
    K_UNROLL
    for (int32_t j = 0; j < G_UNITS; j++) {
        const int32_t column = first + g_across(at, j);
        g_half half;
        K_UNROLL
        for (int32_t i = 0; i < G_UNIT / 4; i++) {
            const float *four = y + j * G_UNIT + 4 * i;
            float two[2];
            two[0] = m_swiglu(&args->between, four[0], four[1]);
            two[1] = m_swiglu(&args->between, four[2], four[3]);
            half.at[i] = T_repack(two);
        }
        if (u->place[j] >= 0 && column < args->w.n) {
            *(g_half *)(void *)((T *)args->out + (u->place[j] + column) / 2) = half;
        }
    }
}

K_FN void g_store(const g_place *at, const g_units *u, int32_t first, const float *y) {
    K_UNROLL
    for (int32_t j = 0; j < G_UNITS; j++) {
        const int32_t column = first + g_across(at, j);
        g_words words;
        K_UNROLL
        for (int32_t i = 0; i < G_UNIT / 2; i++) {
            words.at[i] = T_repack(y + j * G_UNIT + 2 * i);
        }
        if (u->place[j] >= 0 && column < at->args->w.n) {
            *(g_words *)(void *)((T *)at->args->out + u->place[j] + column) = words;
        }
    }
}

typedef struct K_ALIGN(8) g_two {
    float at[2];
} g_two;

/* Sums of G_PART columns to where the group's lanes find them. */
K_FN void g_put(const g_place *at, const float *sum, float *sums) {
    const int32_t lane = at->lane % 32, row = at->lane / 32 * 16 + lane / 4;
    float *to = sums + row * G_PITCH + lane % 4 * 2;
    K_UNROLL
    for (int32_t i = 0; i < G_PART / 2; i += 2) {
        const g_two two = {{sum[i], sum[i + 1]}};
        *(g_two *)(void *)(to + i / 2 % 2 * 8 * G_PITCH + i / 4 * 8) = two;
    }
}

/* The group's results of a tile, some columns after the other. */
K_FN void g_end(const g_place *at, const g_item *item, int32_t group, const float *sum) {
    const int32_t kind = at->args->between.kind;
    const g_units u = g_units_of(at, item, group);
    float *sums = at->sums + group * 64 * G_PITCH;
    K_ONE_COPY
    for (int32_t part = 0; part < G_COLUMNS / G_PART; part++) {
        const int32_t first = item->column + part * G_PART;
        float y[G_VALUES];
        K_UNROLL
        for (int32_t i = 0; i < G_COLUMNS / G_PART;
             i++) { /* registers have no numbers at run time */
            if (i == part) {
                g_put(at, sum + i * (G_PART / 2), sums);
            }
        }
        k_group_meet(group);
        g_take(at, item, first, sums, y);
        if (kind == K_MOE_SWIGLU) {
            g_store_gated(at, &u, first, y);
        } else {
            g_activate(kind, y);
            g_store(at, &u, first, y);
        }
        k_group_meet(group);
    }
}

K_FN void g_make(const g_place *at, int32_t group) {
    g_ahead on = {0, at->tiles * at->chunks};
    K_ONE_COPY
    for (int32_t i = 0; i < at->tiles; i++) {
        g_await(on.stage);
        const g_item item = at->items[on.stage];
        if (group * 64 < item.count) { /* the same for all lanes of the group */
            float sum[G_COLUMNS / 2] = {};
            g_sum(at, group, &on, sum);
            g_end(at, &item, group, sum);
        } else {
            g_pass_by(at, &on);
        }
    }
}

#endif

K_BLOCK_KERNEL_LATE_OF(K_MOE_WGMMA_LANES, 1, mp_moe_product_args, args) {
#if K_GROUP_MATRIX
    K_SHARED(uint8_t, shared);
    k_wait();
    const g_place at = g_place_of(&args, l_ring(shared));
    const int32_t group = k_group_number();
    if (group == G_MAKERS) {
        g_copy(&at);
    } else {
        g_make(&at, group);
    }
#else
    (void)args;
#endif
}
