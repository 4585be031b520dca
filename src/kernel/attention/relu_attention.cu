/* relu_attention.cu - attention without a softmax, as EfficientViT has it: with relu(k) and relu(q)
 * for the exponentials, keys times values are one small matrix for all queries of a head,
 *
 *     out = relu(q) (relu(k)^T v) / (relu(q) sum(relu(k)) + epsilon)
 *
 * A block has a head. First its lanes share matrix and pixels: each sums 4 x 4 elements over every
 * so manieth pixel, and groups of lanes that had different pixels are added in shared memory. Then
 * each lane makes 16 bytes of a pixel's result.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/relu_args.h"
#include "kernel/core/late.h"
#include "kernel/core/word.h"

enum {
    SIZE = K_SIZE, /* of a query, a key and a value */
    QUAD = K_RELU_QUAD,
    QUADS = SIZE / QUAD,
    MATRIX = SIZE * SIZE,
    SHARE = MATRIX + SIZE, /* of a group: the matrix, and the sum of keys behind it */
    PACK = 16 / (int)sizeof(T),
    PACKS = SIZE / PACK,
    BATCH = 8, /* pixels that a lane asks for at once */
};

typedef struct K_ALIGN(QUAD * sizeof(T)) r_quad {
    uint32_t words[sizeof(T)];
} r_quad;

typedef struct K_ALIGN(16) r_pack {
    uint32_t words[4];
} r_pack;

/* The head of a unit: where its first query lies, and elements from one pixel to the next. */
typedef struct r_head {
    const T *query;
    int32_t step;
} r_head;

K_FN r_head r_head_of(const mp_relu_attention_args *args, int32_t entry, int32_t head) {
    const int is_first = head < args->first;
    const int32_t heads = is_first ? args->first : args->heads - args->first;
    r_head r;
    r.step = heads * (3 * SIZE);
    r.query = (const T *)args->x[!is_first] + (int64_t)entry * args->pixels * r.step +
              (is_first ? head : head - args->first) * (3 * SIZE);
    return r;
}

K_FN r_quad r_ask(const T *from, int is) {
    r_quad quad;
    K_UNROLL
    for (int i = 0; i < (int)sizeof(T); i++) {
        quad.words[i] = 0;
    }
    if (is) {
        quad = *(const r_quad *)from;
    }
    return quad;
}

K_FN void r_values(const r_quad *quad, float *out) {
    K_UNROLL
    for (int i = 0; i < (int)sizeof(T); i++) {
        T_unpack(quad->words[i], out + i * K_WORD);
    }
}

K_FN float r_relu(float x) {
    return x < 0 ? 0 : x; /* this order keeps NaN */
}

/* Rows and columns from `row` and `column` on of the matrix, over the pixels of a group. */
K_FN void r_sum(const mp_relu_attention_args *args, const r_head *r, int32_t group, int32_t row,
                int32_t column, float *share) {
    float sum[QUAD][QUAD] = {{0}}, keys[QUAD] = {0};
    const int64_t step =
        (int64_t)args->groups * r->step; /* from one pixel of the group to the next */
    const int32_t count = (int32_t)((args->pixels - group + args->groups - 1) / args->groups);
    K_ONE_COPY
    for (int32_t first = 0; first < count; first += BATCH) {
        const T *at = r->query + (int64_t)group * r->step + first * step;
        r_quad k[BATCH], v[BATCH];
        K_UNROLL
        for (int b = 0; b < BATCH; b++) {
            k[b] = r_ask(at + SIZE + row, first + b < count);
            v[b] = r_ask(at + 2 * SIZE + column, first + b < count);
            at += step;
        }
        K_UNROLL
        for (int b = 0; b < BATCH; b++) {
            float one[QUAD], other[QUAD];
            r_values(&k[b], one);
            r_values(&v[b], other);
            K_UNROLL
            for (int i = 0; i < QUAD; i++) {
                const float weight = r_relu(one[i]);
                keys[i] += weight;
                K_UNROLL
                for (int j = 0; j < QUAD; j++) {
                    sum[i][j] += weight * other[j];
                }
            }
        }
    }
    K_UNROLL
    for (int i = 0; i < QUAD; i++) {
        K_UNROLL
        for (int j = 0; j < QUAD; j++) {
            share[(row + i) * SIZE + column + j] = sum[i][j];
        }
        if (column == 0) {
            share[MATRIX + row + i] = keys[i];
        }
    }
}

/* Pack `pack` of the result of one pixel. */
K_FN r_pack r_result(const mp_relu_attention_args *args, const T *query, const float *matrix,
                     int32_t pack) {
    r_pack q[PACKS], out;
    float sum[PACK] = {0}, weights = 0;
    K_UNROLL
    for (int p = 0; p < PACKS; p++) {
        q[p] = ((const r_pack *)query)[p];
    }
    K_UNROLL
    for (int p = 0; p < PACKS; p++) {
        float value[PACK];
        K_UNROLL
        for (int i = 0; i < 4; i++) {
            T_unpack(q[p].words[i], value + i * K_WORD);
        }
        K_UNROLL
        for (int i = 0; i < PACK; i++) {
            const float weight = r_relu(value[i]);
            const float *row = matrix + (p * PACK + i) * SIZE + pack * PACK;
            weights += weight * matrix[MATRIX + p * PACK + i];
            K_UNROLL
            for (int j = 0; j < PACK; j++) {
                sum[j] += weight * row[j];
            }
        }
    }
    const float inverse = 1 / (weights + args->epsilon);
    K_UNROLL
    for (int j = 0; j < PACK; j++) {
        sum[j] *= inverse;
    }
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        out.words[i] = T_repack(sum + i * K_WORD);
    }
    return out;
}

K_BLOCK_KERNEL_LATE(K_RELU_LANES, mp_relu_attention_args, args) {
    K_SHARED(float, shared);
    const int32_t tasks = args.groups * QUADS * QUADS;
    k_wait();
    for (uint32_t unit = blockIdx.x; unit < (uint32_t)args.units; unit += gridDim.x) {
        const int32_t entry = (int32_t)(unit / (uint32_t)args.heads);
        const int32_t head = (int32_t)unit - entry * args.heads;
        const r_head r = r_head_of(&args, entry, head);
        K_ONE_COPY
        K_BLOCK_LOOP(task, tasks) {
            const int32_t group = (int32_t)task / (QUADS * QUADS);
            const int32_t quad = (int32_t)task % (QUADS * QUADS);
            r_sum(&args, &r, group, quad / QUADS * QUAD, quad % QUADS * QUAD,
                  shared + group * SHARE);
        }
        __syncthreads();
        K_ONE_COPY
        K_BLOCK_LOOP(e, SHARE) {
            float sum = shared[e];
            for (int32_t group = 1; group < args.groups; group++) {
                sum += shared[group * SHARE + e];
            }
            shared[e] = sum;
        }
        __syncthreads();
        T *out = (T *)args.out + ((int64_t)entry * args.pixels * args.heads + head) * SIZE;
        K_ONE_COPY
        K_BLOCK_LOOP(i, args.pixels * PACKS) {
            const int64_t pixel = (int64_t)((uint64_t)i / PACKS);
            const int32_t pack = (int32_t)((uint64_t)i % PACKS);
            T *to = out + pixel * (args.heads * SIZE) + pack * PACK;
            *(r_pack *)to = r_result(&args, r.query + pixel * (int64_t)r.step, shared, pack);
        }
        __syncthreads();
    }
}
