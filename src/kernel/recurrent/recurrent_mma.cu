/* recurrent_mma.cu - all steps of LSTM, GRU and RNN in one cooperative launch, with products by
 * tensor cores. A group of blocks has a direction and some entries; its blocks share the units and
 * keep their rows of R in registers, as left operands, from the first step to the last.
 *
 * Warps of a block deal out its rows, gate by gate, in tiles of 16, and their columns in pieces of
 * 64 bytes; so each reads just its columns of the state, eight entries at a time, and as right
 * operands. With t = lane % 4 a lane has 16 bytes of a piece from byte 16 t on, of R as of the
 * state: the order of columns within a piece is anyone's choice. What the warps of a row have found
 * is added in a fixed order by the lane that has a unit of an entry.
 *
 * States are exchanged as operands, rounded to the type (of floats, to TF32), through `state`:
 * two parts that steps write in turn, and r (.) h of a GRU that resets before its product, which
 * takes two meetings a step. A unit's own state stays a float.
 *
 *     h, c       [items]                      of the units of this block; c is z of a GRU
 *     bias       [gates][units], [units]      what is added to a product, and what is apart of it
 *     partial    [depth_warps][sides][rows][8 entries]
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/meet.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/core/word.h"
#include "kernel/recurrent/recurrent.h"

#if K_WARP_MATRIX

#define m_product K_JOIN(k_mma_, K_T0)

enum {
    WARP = 32,
    SIDE = 8, /* entries of a right operand */
    TILE = 16,
    TILES = K_RECURRENT_MMA_TILES(sizeof(T)), /* of a warp */
    PIECES = K_RECURRENT_MMA_PIECES(sizeof(T)),
    PACK = 16 / sizeof(T),
    PIECE = 4 * PACK,
    IN_TURN = 4, /* warps whose sums are asked for at once */
    GATES = K_RECURRENT_GATES
};

enum { ROUND_ALL, ROUND_GATES, ROUND_HIDDEN };
enum { PART_RESET = 2 }; /* of `state` */

typedef struct m_block {
    const T *r; /* of the direction */
    T *state;   /* of the group's part 0; parts lie `part` elements apart */
    uint32_t *arrived;
    int64_t part, direction, entry_first;
    int32_t first, units;  /* of this block: the last ones may have fewer or none */
    int32_t entries;       /* of the group */
    int32_t items;         /* units of all entries that a group may have */
    int32_t rows;          /* of `partial`, per side */
    int32_t gates, resets; /* resets: a GRU does so before its product */
    int32_t depth_warp, tile_warp;
    uint32_t meetings; /* so far */
    int32_t part_now;  /* what the step reads of `state` */
    float *h, *c, *bias, *apart, *partial;
} m_block;

typedef union K_ALIGN(16) m_pack {
    uint32_t word[4];
    T of[PACK];
} m_pack;

typedef struct m_weights {
    uint32_t of[TILES][PIECES][2][4]; /* rows g and g + 8 of a tile */
} m_weights;

/* A unit of an entry. W x is kept as it was loaded: nothing waits for it before it is needed. */
typedef struct m_item {
    int32_t entry, unit; /* of the group, of the block */
    int32_t there, ended;
    T x[GATES];
} m_item;

K_FN m_block m_place(const mp_recurrent_mma_args *args, float *shared) {
    const k_cell *cell = &args->cell;
    const uint32_t part = blockIdx.x % (uint32_t)args->blocks;
    const uint32_t group = blockIdx.x / (uint32_t)args->blocks;
    const uint32_t groups = (uint32_t)(cell->directions * args->entry_groups);
    const int64_t left = cell->hidden - (int64_t)part * args->units;
    const int64_t entries = args->sides * SIDE;
    const int32_t warp = (int32_t)threadIdx.x / WARP;
    m_block b;
    b.direction = group / (uint32_t)args->entry_groups;
    b.entry_first = (int64_t)(group % (uint32_t)args->entry_groups) * args->entries;
    b.entries = (int32_t)(cell->batch - b.entry_first < args->entries ? cell->batch - b.entry_first
                                                                      : args->entries);
    b.first = (int32_t)part * args->units;
    b.units = (int32_t)(left < 0 ? 0 : left < args->units ? left : args->units);
    b.items = args->units * args->sides * SIDE;
    b.gates = cell->kind;
    b.rows = args->tile_warps * TILES * TILE;
    b.resets = c_resets_first(cell);
    b.depth_warp = warp % args->depth_warps;
    b.tile_warp = warp / args->depth_warps;
    b.r = (const T *)args->recurrence + b.direction * b.gates * cell->hidden * cell->hidden;
    b.arrived = (uint32_t *)args->meeting + group * K_RECURRENT_MMA_APART;
    b.part = groups * entries * args->pitch;
    b.state = (T *)(void *)((uint32_t *)args->meeting + groups * K_RECURRENT_MMA_APART) +
              group * entries * args->pitch;
    b.meetings = 0;
    b.part_now = 0;
    b.h = shared;
    b.c = b.h + b.items;
    b.bias = b.c + b.items;
    b.apart = b.bias + b.gates * args->units;
    b.partial = shared + K_RECURRENT_MMA_HELD(args->units, args->sides, b.gates);
    return b;
}

/* ---- products ---- */

K_FN void m_read(const mp_recurrent_mma_args *args, const T *row, int32_t k, uint32_t *out) {
    m_pack pack;
    const int32_t hidden = (int32_t)args->cell.hidden;
    if (args->wide && k < hidden) {
        *(k_b128 *)(void *)pack.word = *(const k_b128 *)(const void *)(row + k);
    } else {
        K_UNROLL for (int32_t e = 0; e < PACK; e++) {
            pack.of[e] = k + e < hidden ? row[k + e] : T_store((TC)0);
        }
    }
    K_UNROLL for (int32_t n = 0; n < 4; n++) {
        out[n] = sizeof(T) == 4 ? k_tf32(__uint_as_float(pack.word[n])) : pack.word[n];
    }
}

/* The rows of this warp; zeros where there is none. */
K_FN void m_keep(const mp_recurrent_mma_args *args, const m_block *b, m_weights *w) {
    const int32_t lane = (int32_t)threadIdx.x % WARP, hidden = (int32_t)args->cell.hidden;
    K_UNROLL for (int32_t i = 0; i < TILES; i++) {
        K_UNROLL for (int32_t half = 0; half < 2; half++) {
            const int32_t row = (b->tile_warp * TILES + i) * TILE + half * 8 + lane / 4;
            const int32_t gate = row / args->units, unit = row - gate * args->units;
            const int32_t there = gate < b->gates && unit < b->units;
            const T *from =
                b->r +
                ((int64_t)(there ? gate : 0) * hidden + (there ? b->first + unit : 0)) * hidden;
            K_UNROLL for (int32_t p = 0; p < PIECES; p++) {
                const int32_t k = (b->depth_warp * PIECES + p) * PIECE + lane % 4 * PACK;
                m_read(args, from, there ? k : hidden, w->of[i][p][half]);
            }
        }
    }
}

/* R v of the block's rows and all entries, to `partial`; v is part `part` of `state`. */
K_FN void m_products(const mp_recurrent_mma_args *args, const m_block *b, const m_weights *w,
                     int32_t part) {
    const int32_t lane = (int32_t)threadIdx.x % WARP;
    const T *from = b->state + part * b->part + (lane / 4) * args->pitch +
                    b->depth_warp * PIECES * PIECE + lane % 4 * PACK;
    float *to = b->partial + (int64_t)b->depth_warp * args->sides * b->rows * SIDE +
                (b->tile_warp * TILES * TILE + lane / 4) * SIDE + lane % 4 * 2;
    K_ONE_COPY for (int32_t side = 0; side < args->sides; side++) {
        uint32_t x[PIECES][4];
        float sum[TILES][4];
        K_UNROLL for (int32_t p = 0; p < PIECES; p++) {
            k_grid_load_four(from + p * PIECE, x[p]);
        }
        K_UNROLL for (int32_t i = 0; i < TILES; i++) {
            K_UNROLL for (int32_t n = 0; n < 4; n++) {
                sum[i][n] = 0;
            }
        }
        K_UNROLL for (int32_t p = 0; p < PIECES; p++) {
            K_UNROLL for (int32_t half = 0; half < 4; half += 2) {
                K_UNROLL for (int32_t i = 0; i < TILES; i++) {
                    const uint32_t(*of)[4] = w->of[i][p];
                    const uint32_t a[4] = {of[0][half], of[1][half], of[0][half + 1],
                                           of[1][half + 1]};
                    m_product(sum[i], a, x[p] + half);
                }
            }
        }
        K_UNROLL for (int32_t i = 0; i < TILES; i++) {
            K_UNROLL for (int32_t n = 0; n < 4; n++) {
                to[(i * TILE + n / 2 * 8) * SIDE + n % 2] = sum[i][n];
            }
        }
        from += (int64_t)SIDE * args->pitch;
        to += b->rows * SIDE;
    }
}

/* Adds what the warps of a row have found, to where the first one's lies. All lanes do so: those
 * that have a unit are few, and would wait for one sum after the other. */
K_FN void m_add(const mp_recurrent_mma_args *args, const m_block *b) {
    const int32_t count = args->sides * b->rows * SIDE, lanes = (int32_t)blockDim.x;
    K_ONE_COPY for (int32_t i = (int32_t)threadIdx.x; i < count; i += lanes) {
        const float *from = b->partial + i;
        float sum = 0;
        K_ONE_COPY for (int32_t warp = 0; warp < args->depth_warps; warp += IN_TURN) {
            float more[IN_TURN];
            K_UNROLL for (int32_t n = 0; n < IN_TURN; n++) {
                more[n] = warp + n < args->depth_warps ? from[n * count] : 0;
            }
            K_UNROLL for (int32_t n = 0; n < IN_TURN; n++) {
                sum += more[n];
            }
            from += IN_TURN * count;
        }
        b->partial[i] = sum;
    }
}

/* ---- units ---- */

/* Of a GRU that resets afterwards, the reset gate scales R h of the hidden gate. */
K_FN int32_t m_scaled(const m_block *b, int32_t gate) {
    return b->gates == K_CELL_GRU && !b->resets && gate == 2;
}

/* All but when. */
K_FN c_unit m_at(const m_block *b, const m_item *item) {
    c_unit at;
    at.direction = b->direction;
    at.entry = b->entry_first + item->entry;
    at.unit = b->first + item->unit;
    at.ended = item->ended;
    return at;
}

K_FN c_unit m_at_step(const k_cell *cell, const m_block *b, const m_item *item, int64_t step) {
    const c_unit at = m_at(b, item);
    return c_place(cell, at.direction, at.entry, at.unit, step);
}

K_FN void m_step(const k_cell *cell, const m_block *b, m_item *item, int64_t step) {
    const c_unit at = m_at_step(cell, b, item, step);
    item->ended = at.ended;
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        if (g < b->gates) {
            item->x[g] = c_stored(cell, &at, g);
        }
    }
}

/* When is found again, rather than kept: registers are few. */
K_FN void m_write(const k_cell *cell, const m_block *b, const m_item *item, int64_t step, float h) {
    const c_unit at = m_at_step(cell, b, item, step);
    c_write_y(cell, &at, h);
}

/* Neighbouring lanes have neighbouring entries of a unit, as the sums lie. */
K_FN m_item m_item_of(const m_block *b, int32_t i) {
    const int32_t line = i / SIDE, units = b->units > 0 ? b->units : 1;
    const int32_t side = line / units;
    m_item item;
    item.entry = side * SIDE + i % SIDE;
    item.unit = line - side * units;
    item.there = b->units > 0 && item.entry < b->entries;
    item.ended = 0;
    return item;
}

/* Where it lies among the units of the block. */
K_FN int32_t m_index(const m_block *b, const m_item *item) {
    return (item->entry / SIDE * b->units + item->unit) * SIDE + item->entry % SIDE;
}

/* `value` as an operand to part `part` of `state`. */
K_FN void m_give(const mp_recurrent_mma_args *args, const m_block *b, const m_item *item,
                 int32_t part, float value) {
    T *place =
        b->state + part * b->part + (int64_t)item->entry * args->pitch + b->first + item->unit;
    *place = T_store(sizeof(T) == 4 ? __uint_as_float(k_tf32(value)) : value);
}

/* What is added to the product of each gate of a unit, and that. */
K_FN void m_sums(const mp_recurrent_mma_args *args, const m_block *b, const m_item *item,
                 float *sum) {
    const float *from =
        b->partial + (item->entry / SIDE * b->rows + item->unit) * SIDE + item->entry % SIDE;
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        sum[g] = g < b->gates ? from[g * args->units * SIDE] : 0;
    }
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        if (g < b->gates) {
            sum[g] += b->bias[g * args->units + item->unit] +
                      (m_scaled(b, g) ? 0 : (float)T_load(item->x[g]));
        }
    }
}

/* The new state of a GRU or RNN, or r (.) h. */
K_FN float m_plain(const mp_recurrent_mma_args *args, const m_block *b, const m_item *item,
                   const c_unit *at, int32_t round, float *sum, float before) {
    const k_cell *cell = &args->cell;
    float hidden = sum[2];
    if (round == ROUND_HIDDEN) {
        return c_gru(cell, at, b->c[m_index(b, item)], hidden, before);
    }
    c_gates(cell, at, sum);
    if (round == ROUND_GATES) {
        b->c[m_index(b, item)] = sum[0];
        return before * sum[1];
    }
    if (b->gates == K_CELL_RNN) {
        return sum[0];
    }
    hidden = (float)T_load(item->x[2]) + b->apart[item->unit] + sum[1] * hidden;
    return c_gru(cell, at, sum[0], hidden, before);
}

/* One unit: its new state, or r (.) h, which all blocks get. */
K_FN float m_cell(const mp_recurrent_mma_args *args, const m_block *b, const m_item *item,
                  int32_t round) {
    const c_unit at = m_at(b, item);
    const float before = b->h[m_index(b, item)];
    float h = round == ROUND_GATES ? 0 : before, sum[GATES];
    m_sums(args, b, item, sum);
    if (!at.ended && b->gates == K_CELL_LSTM) {
        float c = b->c[m_index(b, item)];
        h = c_lstm(&args->cell, &at, sum, &c);
        b->c[m_index(b, item)] = c;
    } else if (!at.ended) {
        h = m_plain(args, b, item, &at, round, sum, before);
    }
    if (round != ROUND_GATES) {
        b->h[m_index(b, item)] = h;
    }
    m_give(args, b, item, round == ROUND_GATES ? PART_RESET : 1 - b->part_now, h);
    return h;
}

/* The units of the block. `mine` is what this lane's first begins with; its new state is returned,
 * and y of it left to the caller. */
K_FN float m_cells(const mp_recurrent_mma_args *args, const m_block *b, const m_item *mine,
                   int64_t step, int32_t round) {
    const int32_t lanes = (int32_t)blockDim.x, items = b->units * args->sides * SIDE;
    float h = 0;
    K_ONE_COPY for (int32_t i = (int32_t)threadIdx.x; i < items; i += lanes) {
        m_item item = *mine;
        if (i >= lanes) {
            item = m_item_of(b, i);
            if (item.there) {
                m_step(&args->cell, b, &item, step);
            }
        }
        if (item.there) {
            const float made = m_cell(args, b, &item, round);
            if (i < lanes) {
                h = made;
            } else if (round != ROUND_GATES) {
                m_write(&args->cell, b, &item, step, made);
            }
        }
    }
    return h;
}

/* ---- steps ---- */

K_FN void m_begin(const mp_recurrent_mma_args *args, const m_block *b) {
    const k_cell *cell = &args->cell;
    const int32_t items = b->units * args->sides * SIDE, lanes = (int32_t)blockDim.x;
    K_ONE_COPY for (int32_t i = (int32_t)threadIdx.x; i < items; i += lanes) {
        const m_item item = m_item_of(b, i);
        const c_unit at = m_at(b, &item);
        if (item.there) {
            const float h = c_first(cell, cell->h_first, at.direction, at.entry, at.unit);
            b->h[i] = h;
            b->c[i] = c_first(cell, cell->c_first, at.direction, at.entry, at.unit);
            m_give(args, b, &item, 0, h);
        }
    }
    K_ONE_COPY for (int32_t unit = (int32_t)threadIdx.x; unit < b->units; unit += lanes) {
        c_unit at;
        at.direction = b->direction;
        at.unit = b->first + unit;
        b->apart[unit] = b->gates == K_CELL_GRU ? c_bias(cell, &at, 0, 2) : 0;
        K_ONE_COPY for (int32_t g = 0; g < b->gates; g++) {
            b->bias[g * args->units + unit] =
                (m_scaled(b, g) ? 0 : c_bias(cell, &at, 0, g)) + c_bias(cell, &at, 1, g);
        }
    }
}

K_FN void m_arrive(m_block *b) {
    b->meetings++;
    k_grid_arrive(b->arrived);
}

K_FN void m_wait(const mp_recurrent_mma_args *args, const m_block *b) {
    k_grid_wait(b->arrived, b->meetings * (uint32_t)args->blocks);
}

K_FN void m_save(const mp_recurrent_mma_args *args, const m_block *b) {
    const int32_t items = b->units * args->sides * SIDE, lanes = (int32_t)blockDim.x;
    K_ONE_COPY for (int32_t i = (int32_t)threadIdx.x; i < items; i += lanes) {
        const m_item item = m_item_of(b, i);
        if (item.there) {
            const c_unit at = m_at(b, &item);
            c_write_states(&args->cell, &at, b->h[i], b->c[i]);
        }
    }
}

K_FN void m_run(const mp_recurrent_mma_args *args, float *shared) {
    m_block b = m_place(args, shared);
    m_item mine = m_item_of(&b, (int32_t)threadIdx.x);
    m_weights weights;
    m_begin(args, &b);
    m_arrive(&b);
    m_keep(args, &b, &weights);
    if (mine.there) {
        m_step(&args->cell, &b, &mine, 0);
    }
    m_wait(args, &b);
    K_ONE_COPY for (int64_t step = 0; step < args->cell.steps; step++) {
        int32_t round = b.resets ? ROUND_GATES : ROUND_ALL, from = b.part_now;
        K_ONE_COPY for (;;) {
            m_products(args, &b, &weights, from);
            __syncthreads();
            m_add(args, &b);
            __syncthreads();
            const float h = m_cells(args, &b, &mine, step, round);
            m_arrive(&b);
            if (round != ROUND_GATES && mine.there) {
                m_write(&args->cell, &b, &mine, step, h);
                if (step + 1 < args->cell.steps) {
                    m_step(&args->cell, &b, &mine, step + 1);
                }
            }
            m_wait(args, &b);
            if (round != ROUND_GATES) {
                break;
            }
            round = ROUND_HIDDEN;
            from = PART_RESET;
        }
        b.part_now = 1 - b.part_now;
    }
    m_save(args, &b);
}

#endif

K_BLOCK_KERNEL_UP_TO(K_RECURRENT_LANES, mp_recurrent_mma_args, args) {
#if K_WARP_MATRIX
    K_SHARED(float, shared);
    m_run(&args, shared);
#else
    (void)args;
#endif
}
