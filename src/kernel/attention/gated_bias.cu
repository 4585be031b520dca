/* gated_bias.cu - a bias of attention times a gate that follows from the query.
 *
 * A block has some rows of one head for some entries of the batch. It first finds their gates, each
 * by a few lanes: a gate is a sum over columns of a product, so the weight's columns are added up
 * once, and the product is never written down. Then it reads each piece of the bias once and
 * writes it for all its entries, times the gate of each. Bound by what is written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/core/index.h"
#include "kernel/core/lanes_sum.h"

enum {
    PACK = 16 / sizeof(T),
    LANES = K_HOST ? 1 : 8, /* of a gate */
    PART = 256,             /* elements of a head whose weights are there at a time */
};

typedef struct K_ALIGN(16) g_pack {
    T at[PACK];
} g_pack;

typedef struct g_shared {
    float weight[2][PART]; /* of each element: the columns of each half added up */
    float gate[K_GATED_BIAS_GATES];
} g_shared;

/* Rows `row` to `row` + `rows` of a head, for as many entries of the batch as `entries`. */
typedef struct g_item {
    int64_t head, row, entry;
    int32_t rows, entries;
} g_item;

K_LANES_SUM(g_sum, float)

K_FN float g_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

/* `step` elements, PACK or 1. */
K_FN g_pack g_load(const T *from, int step) {
    g_pack pack;
    if (step == PACK) {
        return *(const g_pack *)from;
    }
    pack.at[0] = from[0];
    return pack;
}

K_FN g_item g_item_of(const mp_gated_bias_args *args, int64_t number) {
    const int64_t line = number / args->parts, part = number - line * args->parts;
    const int64_t head = line / args->tiles, tile = line - head * args->tiles;
    g_item item;
    item.head = head;
    item.row = tile * args->tile;
    item.entry = part * args->entries;
    const int64_t rows = args->rows - item.row, entries = args->batch - item.entry;
    item.rows = (int32_t)(rows < args->tile ? rows : args->tile);
    item.entries = (int32_t)(entries < args->entries ? entries : args->entries);
    return item;
}

/* ---- gates ---- */

K_FN void g_add_columns(const mp_gated_bias_args *args, int64_t first, int64_t count,
                        g_shared *shared) {
    const int64_t half = args->columns / 2;
    K_BLOCK_LOOP(i, 2 * count) {
        const T *column = (const T *)args->weight + (2 * first + i) * half;
        float sum = 0;
        for (int64_t c = 0; c < half; c++) {
            sum += T_load(column[c]);
        }
        shared->weight[i & 1][i >> 1] = sum;
    }
}

/* Adds to a gate's two sums what this lane has of elements `first` to `first` + `count` of the
 * head. `token` below 0: one that was left out, which counts as 0. */
K_FN void g_add_elements(const mp_gated_bias_args *args, int64_t head, int64_t token, int64_t first,
                         int64_t count, const g_shared *shared, float *sum, int step) {
    const int64_t at = head * args->size + first;
    const T *bias = (const T *)args->query_bias + at;
    const T *query =
        token < 0 ? bias : (const T *)args->query + (token * args->heads * args->size + at);
    for (int64_t e = threadIdx.x % LANES * step; e < count; e += LANES * step) {
        const g_pack add = g_load(bias + e, step);
        const g_pack given = g_load(query + e, step);
        K_UNROLL
        for (int k = 0; k < step; k++) {
            const float x = T_load(add.at[k]) + (token < 0 ? 0.0f : T_load(given.at[k]));
            sum[0] += x * shared->weight[0][e + k];
            sum[1] += x * shared->weight[1][e + k];
        }
    }
}

/* What both halves of the weight's bias add up to, which is all of it. */
K_FN void g_add_bias(const mp_gated_bias_args *args, float *sum) {
    const int64_t half = args->columns / 2;
    for (int64_t c = threadIdx.x % LANES; c < half; c += LANES) {
        sum[0] += T_load(((const T *)args->weight_bias)[c]);
        sum[1] += T_load(((const T *)args->weight_bias)[half + c]);
    }
}

/* The gates of all rows of the first entry, then of the next one. All lanes come to each barrier.
 */
K_FN void g_find_gates(const mp_gated_bias_args *args, const g_item *item, g_shared *shared) {
    const int32_t gates = item->rows * item->entries, groups = (int32_t)blockDim.x / LANES;
    const float limit = T_load(((const T *)args->limit)[item->head]);
    for (int32_t begin = 0; begin < gates; begin += groups) {
        const int32_t gate = begin + (int32_t)threadIdx.x / LANES;
        const int32_t entry = gate / item->rows, row = gate - entry * item->rows;
        const int64_t place = (item->entry + entry) * args->rows + item->row + row;
        float sum[2] = {0, 0};
        int64_t token = -1;
        if (gate < gates) {
            token = args->places ? (int64_t)args->places[place] : place;
            g_add_bias(args, sum);
        }
        for (int64_t first = 0; first < args->size; first += PART) {
            const int64_t left = args->size - first, count = left < PART ? left : PART;
            __syncthreads(); /* what is there was read */
            g_add_columns(args, first, count, shared);
            __syncthreads();
            if (gate < gates && args->whole_heads) {
                g_add_elements(args, item->head, token, first, count, shared, sum, PACK);
            } else if (gate < gates) {
                g_add_elements(args, item->head, token, first, count, shared, sum, 1);
            }
        }
        const float first_gate = g_sigmoid(g_sum(sum[0], LANES));
        const float second = g_sigmoid(g_sum(sum[1], LANES));
        if (gate < gates && threadIdx.x % LANES == 0) {
            shared->gate[gate] = first_gate * (second * limit - 1.0f) + 2.0f;
        }
    }
    __syncthreads();
}

/* ---- rows ---- */

/* `step` elements at a time, PACK or 1. */
K_FN void g_write(const mp_gated_bias_args *args, const g_item *item, const g_shared *shared,
                  int step) {
    const int64_t plane = args->rows * args->rows;
    const int64_t at = item->head * plane + item->row * args->rows;
    const T *bias = (const T *)args->bias + at;
    T *out = (T *)args->out + item->entry * args->heads * plane + at;
    K_BLOCK_LOOP(i, item->rows * args->rows / step) {
        const float *gate = shared->gate + k_divide((uint32_t)i, args->by_row);
        const g_pack pack = g_load(bias + i * step, step);
        T *to = out + i * step;
        for (int32_t entry = 0; entry < item->entries; entry++) {
            g_pack made;
            K_UNROLL
            for (int k = 0; k < step; k++) {
                made.at[k] = T_store(*gate * T_load(pack.at[k]));
            }
            if (step == PACK) {
                *(g_pack *)to = made;
            } else {
                *to = made.at[0];
            }
            to += args->heads * plane;
            gate += item->rows;
        }
    }
}

K_BLOCK_KERNEL_UP_TO(K_GATED_BIAS_LANES, mp_gated_bias_args, args) {
    __shared__ g_shared shared;
    const int64_t places = args.batch * args.rows;
    if (args.stage == K_GATED_BIAS_PLACES) { /* an offset that is out of range is of no token */
        K_GRID_LOOP(i, args.tokens) {
            const int64_t at = args.offsets[i];
            if (at >= 0 && at < places) {
                args.places[at] = (int32_t)i;
            }
        }
        return;
    }
    for (int64_t number = blockIdx.x; number < args.heads * args.tiles * args.parts;
         number += gridDim.x) {
        const g_item item = g_item_of(&args, number);
        g_find_gates(&args, &item, &shared);
        if (args.whole_rows) {
            g_write(&args, &item, &shared, PACK);
        } else {
            g_write(&args, &item, &shared, 1);
        }
    }
}
