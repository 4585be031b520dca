/* recurrent_group.cu - all steps of LSTM, GRU and RNN in one launch. A group of blocks has a
 * direction and a few entries; its blocks share the units and keep their rows of R where they are
 * near (recurrent_tasks.h). A step: products with the state that every block has in its shared
 * memory, the cell of a unit by one lane, its new state to all blocks of the group, and a meeting.
 *
 *     h, h_next  [rows][pitch]   before and after the step; blocks that are ahead write the latter
 *     reset      [rows][pitch]   r (.) h, of a GRU that resets first: two meetings a step
 *     c          [rows][units]   of an LSTM; z of a GRU
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/meet.h"
#include "kernel/recurrent/recurrent.h"
#include "kernel/recurrent/recurrent_tasks.h"

typedef struct g_block {
    t_block t;
    int64_t direction, entry_first, group;
    int32_t resets;
    uint32_t meetings; /* so far */
    int32_t parity;    /* which half of `state` the step writes */
    float *h, *h_next, *reset, *c;
} g_block;

/* A unit of an entry. W x is kept as it was loaded: nothing waits for it before it is needed. */
typedef struct g_item {
    c_unit at;
    int32_t row, unit; /* within the block */
    T x[GATES];
    float bias[GATES]; /* of W and R, but for a gate whose product is scaled that of R alone */
    float apart;       /* then that of W */
} g_item;

enum { ROUND_ALL, ROUND_GATES, ROUND_HIDDEN };

K_FN g_block g_place(const mp_recurrent_group_args *args, float *shared) {
    const k_cell *cell = &args->cell;
    const int64_t part = blockIdx.x % (uint32_t)args->blocks;
    const int64_t first = part * args->units;
    const int64_t left = cell->hidden - first;
    g_block b;
    b.group = blockIdx.x / (uint32_t)args->blocks;
    b.direction = b.group / args->entry_groups;
    b.entry_first = b.group % args->entry_groups * args->rows;
    b.resets = c_resets_first(cell);
    b.meetings = 0;
    b.parity = 1;
    b.t.r = (const T *)args->recurrence + b.direction * GATES * cell->hidden * cell->hidden;
    b.t.hidden = cell->hidden;
    b.t.first = first;
    b.t.units = (int32_t)(left < 0 ? 0 : left < args->units ? left : args->units);
    b.t.rows = (int32_t)(cell->batch - b.entry_first < args->rows ? cell->batch - b.entry_first
                                                                  : args->rows);
    b.t.pitch = args->pieces * TASK_SPAN;
    b.t.pieces = args->pieces;
    b.t.tasks = args->tasks;
    b.t.shared_tasks = args->shared_tasks;
    b.t.wide = args->wide;
    const int64_t size = (int64_t)args->rows * b.t.pitch;
    b.h = shared;
    b.h_next = b.h + size;
    b.reset = b.h_next + size;
    b.t.words = (uint32_t *)(void *)(b.reset + (b.resets ? size : 0));
    b.t.partial =
        (float *)(void *)(b.t.words + (int64_t)args->shared_tasks * GATES * WARP * K_TASK_WORDS);
    b.c = b.t.partial + (int64_t)args->rows * args->tasks * GATES;
    return b;
}

K_FN void g_load(const mp_recurrent_group_args *args, const g_block *b) {
    const k_cell *cell = &args->cell;
    K_BLOCK_LOOP(i, (int64_t)b->t.rows * b->t.pitch) {
        const int64_t row = i / b->t.pitch, unit = i % b->t.pitch;
        b->h[i] = unit < cell->hidden
                      ? c_first(cell, cell->h_first, b->direction, b->entry_first + row, unit)
                      : 0;
        b->h_next[i] = 0;
        if (b->resets) {
            b->reset[i] = 0;
        }
    }
    K_BLOCK_LOOP(i, (int64_t)b->t.rows * b->t.units) {
        b->c[i] = c_first(cell, cell->c_first, b->direction, b->entry_first + i / b->t.units,
                          b->t.first + i % b->t.units);
    }
}

/* Of a GRU that resets afterwards, the reset gate scales R h of the hidden gate. */
K_FN int32_t g_scaled(const g_block *b, int32_t gate) {
    return K_GATES == K_CELL_GRU && !b->resets && gate == 2;
}

K_FN void g_item_step(const k_cell *cell, g_item *item, int64_t step) {
    item->at = c_place(cell, item->at.direction, item->at.entry, item->at.unit, step);
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        item->x[g] = c_stored(cell, &item->at, g);
    }
}

K_FN g_item g_item_of(const k_cell *cell, const g_block *b, int32_t i, int64_t step) {
    g_item item;
    item.row = i / b->t.units;
    item.unit = i - item.row * b->t.units;
    item.apart = 0;
    item.at.direction = b->direction;
    item.at.entry = b->entry_first + item.row;
    item.at.unit = b->t.first + item.unit;
    g_item_step(cell, &item, step);
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        const float w = c_bias(cell, &item.at, 0, g), r = c_bias(cell, &item.at, 1, g);
        item.bias[g] = g_scaled(b, g) ? r : w + r;
        item.apart = g_scaled(b, g) ? w : item.apart;
    }
    return item;
}

/* `value` to the same place of all blocks of the group. `which` is the part of `state`. */
K_FN void g_give(const mp_recurrent_group_args *args, const g_block *b, const g_item *item,
                 float *to, int32_t which, float value) {
    float *place = to + (int64_t)item->row * b->t.pitch + item->at.unit;
    if (args->meet == K_MEET_CLUSTER) {
        for (int32_t block = 0; block < args->blocks; block++) {
            k_cluster_store(place, block, value);
        }
    } else if (args->meet == K_MEET_GRID) {
        const int64_t groups = args->cell.directions * args->entry_groups;
        const int64_t row = (which * groups + b->group) * args->rows + item->row;
        ((float *)args->state)[row * args->cell.hidden + item->at.unit] = value;
    } else {
        *place = value;
    }
}

/* The sums of the gates of a unit, whose pieces are added in their order. */
K_FN void g_sums(const g_block *b, const g_item *item, float *sum) {
    const float *from =
        b->t.partial + ((int64_t)item->row * b->t.tasks + item->unit * b->t.pieces) * GATES;
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        sum[g] = 0;
    }
    K_ONE_COPY for (int32_t piece = 0; piece < b->t.pieces; piece++) {
        K_UNROLL for (int32_t g = 0; g < GATES; g++) {
            sum[g] += from[piece * GATES + g];
        }
    }
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        sum[g] += item->bias[g] + (g_scaled(b, g) ? 0 : (float)T_load(item->x[g]));
    }
}

/* One unit: its new state, which all blocks get. */
K_FN float g_cell(const mp_recurrent_group_args *args, const g_block *b, const g_item *item,
                  int32_t round) {
    const k_cell *cell = &args->cell;
    const c_unit *at = &item->at;
    const int64_t kept = (int64_t)item->row * b->t.units + item->unit;
    const float before = b->h[(int64_t)item->row * b->t.pitch + at->unit];
    float h = before, sum[K_RECURRENT_GATES];
    (void)kept, (void)round; /* not of all cells */
    g_sums(b, item, sum);
#if K_GATES == 4
    if (!at->ended) {
        float c = b->c[kept];
        h = c_lstm(cell, at, sum, &c);
        b->c[kept] = c;
    }
#elif K_GATES == 3
    if (!at->ended && round != ROUND_HIDDEN) {
        c_gates(cell, at, sum);
    }
    if (round == ROUND_GATES) {
        b->c[kept] = at->ended ? 0 : sum[0];
        g_give(args, b, item, b->reset, 2, at->ended ? 0 : before * sum[1]);
        return h;
    }
    if (!at->ended) {
        const float update = round == ROUND_HIDDEN ? b->c[kept] : sum[0];
        const float apart = (float)T_load(item->x[2]) + item->apart;
        h = c_gru(cell, at, update, round == ROUND_HIDDEN ? sum[2] : apart + sum[1] * sum[2],
                  before);
    }
#else
    if (!at->ended) {
        h = c_activate(cell, at, 0, sum[0]);
    }
#endif
    g_give(args, b, item, b->h_next, b->parity, h);
    return h;
}

/* The units of the block. `mine` is what this lane's first begins with; its new state is returned,
 * and y of it left to the caller. */
K_FN float g_cells(const mp_recurrent_group_args *args, const g_block *b, const g_item *mine,
                   int64_t step, int32_t round) {
    const int32_t lanes = (int32_t)blockDim.x, items = b->t.rows * b->t.units;
    float h = 0;
    K_ONE_COPY for (int32_t i = (int32_t)threadIdx.x; i < items; i += lanes) {
        const g_item item = i < lanes ? *mine : g_item_of(&args->cell, b, i, step);
        const float made = g_cell(args, b, &item, round);
        if (i < lanes) {
            h = made;
        } else if (round != ROUND_GATES) {
            c_write_y(&args->cell, &item.at, made);
        }
    }
    return h;
}

K_FN void g_arrive(const mp_recurrent_group_args *args, g_block *b) {
    b->meetings++;
    if (args->meet == K_MEET_CLUSTER) {
        k_cluster_arrive();
    } else if (args->meet == K_MEET_GRID) {
        k_grid_arrive((uint32_t *)args->arrived + b->group);
    }
}

/* Afterwards what the group's blocks have given is in `to`. */
K_FN void g_wait(const mp_recurrent_group_args *args, const g_block *b, float *to, int32_t which) {
    if (args->meet == K_MEET_CLUSTER) {
        k_cluster_wait();
    } else if (args->meet == K_MEET_GRID) {
        const int32_t hidden = (int32_t)args->cell.hidden; /* 64-bit divisions would take longer */
        const int64_t groups = args->cell.directions * args->entry_groups;
        const float *from =
            (const float *)args->state + (which * groups + b->group) * args->rows * hidden;
        k_grid_wait((const uint32_t *)args->arrived + b->group,
                    b->meetings * (uint32_t)args->blocks);
        for (int32_t i = (int32_t)threadIdx.x; i < b->t.rows * hidden; i += (int32_t)blockDim.x) {
            const int32_t row = i / hidden;
            to[row * b->t.pitch + (i - row * hidden)] = k_grid_load(from + i);
        }
        __syncthreads();
    } else {
        __syncthreads();
    }
}

K_FN void g_save(const mp_recurrent_group_args *args, const g_block *b) {
    K_BLOCK_LOOP(i, (int64_t)b->t.rows * b->t.units) {
        const int64_t row = i / b->t.units, unit = b->t.first + i % b->t.units;
        const c_unit at = c_place(&args->cell, b->direction, b->entry_first + row, unit, 0);
        c_write_states(&args->cell, &at, b->h[row * b->t.pitch + unit], b->c[i]);
    }
}

K_BLOCK_KERNEL_UP_TO(K_RECURRENT_LANES, mp_recurrent_group_args, args) {
    K_SHARED(float, shared);
    g_block b = g_place(&args, shared);
    const int32_t mine = (int32_t)threadIdx.x < b.t.rows * b.t.units;
    t_weights weights;
    g_item item;
    t_begin(&b.t, &weights);
    g_load(&args, &b);
    if (mine) {
        item = g_item_of(&args.cell, &b, (int32_t)threadIdx.x, 0);
    }
    __syncthreads();
    if (args.meet == K_MEET_CLUSTER) { /* nobody writes to a block that has not begun */
        k_cluster_arrive();
        k_cluster_wait();
    }
    K_ONE_COPY for (int64_t step = 0; step < args.cell.steps; step++) {
        int32_t round = ROUND_ALL;
        t_products(&b.t, &weights, b.h);
        __syncthreads();
        if (K_GATES == K_CELL_GRU && b.resets) {
            (void)g_cells(&args, &b, &item, step, ROUND_GATES);
            g_arrive(&args, &b);
            g_wait(&args, &b, b.reset, 2);
            t_products(&b.t, &weights, b.reset);
            __syncthreads();
            round = ROUND_HIDDEN;
        }
        const float h = g_cells(&args, &b, &item, step, round);
        g_arrive(&args, &b);
        if (mine) {
            c_write_y(&args.cell, &item.at, h);
            if (step + 1 < args.cell.steps) {
                g_item_step(&args.cell, &item, step + 1);
            }
        }
        g_wait(&args, &b, b.h_next, b.parity);
        float *before = b.h;
        b.h = b.h_next;
        b.h_next = before;
        b.parity = 1 - b.parity;
    }
    g_save(&args, &b);
}
