/* quantized_group.cu - the steps of an LSTM whose recurrent weights have 8 bits, as
 * quantized_lstm.cu makes them, by a cluster of blocks for each direction. They share the units and
 * keep their rows of R in shared memory from the first step to the last, as they keep the whole
 * state. A step: the state's range and bytes, which each block finds for itself; products, by a few
 * lanes a row; the cell of a unit by one lane, its new state to all blocks, and a meeting.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/lanes_sum.h"
#include "kernel/core/meet.h"
#include "kernel/recurrent/quantized_lstm.h"
#include "kernel/recurrent/recurrent.h"

enum { GATES = K_RECURRENT_GATES };

typedef struct l_block {
    int64_t direction, first; /* the block's first unit */
    int32_t units, rows;      /* its units, and rows of R: those of a unit beside each other */
    int32_t words;            /* of a row, and of an entry's bytes */
    float *h, *h_next;        /* [batch][hidden], before and after the step */
    float *c;                 /* [batch][units] */
    uint32_t *bytes;          /* [batch][words] */
    uint32_t *weights;        /* [rows][pitch] */
    int32_t *weight_sums;     /* [rows] */
    int32_t *products;        /* [batch][rows] */
    int32_t *byte_sums;       /* [batch] */
    float *ranges;            /* of the state's parts that warps have: the least, the most */
} l_block;

/* What a lane has of its unit of an entry; nothing where it has none. */
typedef struct l_item {
    c_unit at;
    int32_t is, unit;
    TA x[GATES];
} l_item;

K_LANES_SUM(l_meet, int32_t)

K_FN l_block l_place(const mp_quantized_group_args *args, float *shared) {
    const k_cell *cell = &args->cell;
    const int64_t part = blockIdx.x % (uint32_t)args->blocks;
    l_block b;
    b.direction = blockIdx.x / (uint32_t)args->blocks;
    b.first = part * args->units;
    const int64_t left = cell->hidden - b.first;
    b.units = (int32_t)(left < 0 ? 0 : left < args->units ? left : args->units);
    b.rows = b.units * GATES;
    b.words = (int32_t)K_QUANTIZED_GROUP_WORDS(cell->hidden);
    b.h = shared;
    b.h_next = b.h + cell->batch * cell->hidden;
    b.c = b.h_next + cell->batch * cell->hidden;
    b.bytes = (uint32_t *)(void *)(b.c + cell->batch * args->units);
    b.weights = b.bytes + cell->batch * b.words;
    b.weight_sums = (int32_t *)(void *)(b.weights + (int64_t)args->units * GATES * args->pitch);
    b.products = b.weight_sums + (int64_t)args->units * GATES;
    b.byte_sums = b.products + cell->batch * args->units * GATES;
    b.ranges = (float *)(void *)(b.byte_sums + cell->batch);
    return b;
}

K_FN void l_load(const mp_quantized_group_args *args, const l_block *b) {
    const k_cell *cell = &args->cell;
    const int64_t hidden = cell->hidden;
    const uint8_t *r = (const uint8_t *)args->r.weight + b->direction * GATES * hidden * hidden;
    K_BLOCK_LOOP(i, (int64_t)b->rows * b->words) {
        const int64_t row = i / b->words, word = i % b->words;
        const int64_t column = row % GATES * hidden + b->first + row / GATES;
        b->weights[row * args->pitch + word] =
            q_weights(&args->r, r + column * hidden, word * 4, args->wide);
    }
    K_BLOCK_LOOP(i, cell->batch * hidden) {
        b->h[i] = c_first(cell, cell->h_first, b->direction, i / hidden, i % hidden);
    }
    K_BLOCK_LOOP(i, cell->batch * b->units) {
        b->c[i] = c_first(cell, cell->c_first, b->direction, i / b->units, b->first + i % b->units);
    }
    K_BLOCK_LOOP(i, cell->batch * b->words) {
        b->bytes[i] = 0; /* also what is behind a row's end */
    }
    __syncthreads();
    K_BLOCK_LOOP(row, b->rows) {
        int32_t sum = 0;
        for (int32_t word = 0; word < b->words; word++) {
            sum = q_sum_signed(b->weights[row * args->pitch + word], sum);
        }
        b->weight_sums[row] = sum;
    }
}

/* W x of a step, asked for before it is needed. */
K_FN void l_ask(const k_cell *cell, l_item *item, int64_t step) {
    if (item->is) {
        item->at = c_place(cell, item->at.direction, item->at.entry, item->at.unit, step);
        K_UNROLL for (int32_t g = 0; g < GATES; g++) {
            item->x[g] = c_projected(cell, &item->at, g);
        }
    }
}

K_FN l_item l_item_of(const k_cell *cell, const l_block *b, int32_t i) {
    l_item item;
    item.is = i < cell->batch * b->units;
    item.unit = item.is ? i % b->units : 0;
    item.at.direction = b->direction;
    item.at.entry = item.is ? i / b->units : 0;
    item.at.unit = b->first + item.unit;
    item.at.ended = 1;
    item.at.time = 0;
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        item.x[g] = 0;
    }
    l_ask(cell, &item, 0);
    return item;
}

/* The state's range, then its bytes. */
K_FN q_parameter l_quantize(const k_cell *cell, const l_block *b) {
    const int64_t count = cell->batch * cell->hidden, pitch = (int64_t)b->words * 4;
    uint8_t *bytes = (uint8_t *)b->bytes;
    float least = 0, most = 0;
    K_BLOCK_LOOP(i, count) {
        least = b->h[i] < least ? b->h[i] : least;
        most = b->h[i] > most ? b->h[i] : most;
    }
#if K_HOST
    least = k_block_min_f32(least);
    most = k_block_max_f32(most);
#else
    const int32_t warps = (int32_t)blockDim.x / 32;
    for (int32_t half = 16; half > 0; half /= 2) {
        least = fminf(least, __shfl_xor_sync(0xffffffffU, least, half));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, half));
    }
    if (threadIdx.x % 32 == 0) {
        b->ranges[threadIdx.x / 32 * 2] = least;
        b->ranges[threadIdx.x / 32 * 2 + 1] = most;
    }
    __syncthreads();
    for (int32_t warp = 0; warp < warps; warp++) {
        least = fminf(least, b->ranges[warp * 2]);
        most = fmaxf(most, b->ranges[warp * 2 + 1]);
    }
#endif
    const q_parameter p = q_parameter_of(least, most);
    K_BLOCK_LOOP(i, count) {
        bytes[i / cell->hidden * pitch + i % cell->hidden] = q_byte(b->h[i], p);
    }
    return p;
}

K_FN void l_products(const mp_quantized_group_args *args, const l_block *b) {
    const int32_t lanes = K_HOST ? 1 : args->lanes;
    const int32_t lane = (int32_t)threadIdx.x % lanes, group = (int32_t)threadIdx.x / lanes;
    const int32_t groups = (int32_t)blockDim.x / lanes;
    K_ONE_COPY for (int32_t entry = 0; entry < args->cell.batch; entry++) {
        const uint32_t *bytes = b->bytes + entry * b->words;
        K_ONE_COPY for (int32_t base = 0; base < b->rows; base += groups) {
            const int32_t row = base + group < b->rows ? base + group : b->rows - 1;
            const uint32_t *weights = b->weights + row * args->pitch;
            int32_t products = 0, sum = 0;
            for (int32_t word = lane; word < b->words; word += lanes) {
                products = q_products(bytes[word], weights[word], products);
                sum = q_sum_unsigned(bytes[word], sum);
            }
            products = l_meet(products, lanes);
            sum = l_meet(sum, lanes);
            if (lane == 0 && base + group < b->rows) {
                b->products[entry * b->rows + row] = products;
            }
            if (lane == 0 && base + group == 0) {
                b->byte_sums[entry] = sum;
            }
        }
    }
}

/* One unit; returns its new state, which all blocks get. */
K_FN float l_cell(const mp_quantized_group_args *args, const l_block *b, const l_item *item,
                  q_parameter p) {
    const k_cell *cell = &args->cell;
    const int64_t place = item->at.entry * cell->hidden + item->at.unit;
    float h = b->h[place];
    if (!item->at.ended) {
        const int64_t kept = item->at.entry * b->units + item->unit;
        const int32_t *products = b->products + kept * GATES;
        TA gates[GATES];
        K_UNROLL for (int32_t g = 0; g < GATES; g++) {
            gates[g] =
                item->x[g] + c_bias(cell, &item->at, 0, g) + c_bias(cell, &item->at, 1, g) +
                q_value(&args->r, b->direction, g * cell->hidden + item->at.unit, p, products[g],
                        b->byte_sums[item->at.entry], b->weight_sums[item->unit * GATES + g]);
        }
        TA c = b->c[kept];
        h = c_lstm(cell, &item->at, gates, &c);
        b->c[kept] = c;
    }
    if (args->blocks == 1) {
        b->h_next[place] = h;
    } else {
        for (int32_t block = 0; block < args->blocks; block++) {
            k_cluster_store(b->h_next + place, block, h);
        }
    }
    return h;
}

K_FN void l_arrive(const mp_quantized_group_args *args) {
    if (args->blocks > 1) {
        k_cluster_arrive();
    }
}

K_FN void l_wait(const mp_quantized_group_args *args) {
    if (args->blocks > 1) {
        k_cluster_wait();
    } else {
        __syncthreads();
    }
}

/* On the emulated device a lane has several units, one after the other. */
K_FN void l_step(const mp_quantized_group_args *args, const l_block *b, l_item *item, q_parameter p,
                 int64_t step) {
    const k_cell *cell = &args->cell;
#if K_HOST
    K_BLOCK_LOOP(i, cell->batch * b->units) {
        *item = l_item_of(cell, b, (int32_t)i);
        l_ask(cell, item, step);
        c_write_y(cell, &item->at, l_cell(args, b, item, p));
    }
    l_arrive(args);
#else
    const float h = item->is ? l_cell(args, b, item, p) : 0;
    l_arrive(args);
    if (item->is) {
        c_write_y(cell, &item->at, h);
    }
    if (step + 1 < cell->steps) {
        l_ask(cell, item, step + 1);
    }
#endif
    l_wait(args);
}

K_FN void l_save(const k_cell *cell, const l_block *b) {
    K_BLOCK_LOOP(i, cell->batch * b->units) {
        const int64_t entry = i / b->units, unit = b->first + i % b->units;
        const c_unit at = c_place(cell, b->direction, entry, unit, 0);
        c_write_states(cell, &at, b->h[entry * cell->hidden + unit], b->c[i]);
    }
}

K_BLOCK_KERNEL_UP_TO(K_RECURRENT_LANES, mp_quantized_group_args, args) {
    K_SHARED(float, shared);
    const k_cell *cell = &args.cell;
    l_block b = l_place(&args, shared);
    l_item item = l_item_of(cell, &b, (int32_t)threadIdx.x);
    l_load(&args, &b);
    l_arrive(&args); /* nobody writes to a block that has not begun */
    l_wait(&args);
    K_ONE_COPY for (int64_t step = 0; step < cell->steps; step++) {
        const q_parameter p = l_quantize(cell, &b);
        __syncthreads();
        l_products(&args, &b);
        __syncthreads();
        l_step(&args, &b, &item, p, step);
        float *before = b.h;
        b.h = b.h_next;
        b.h_next = before;
    }
    l_save(cell, &b);
}
