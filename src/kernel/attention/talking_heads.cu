/* talking_heads.cu - scores of attention whose heads talk: those of all heads are mixed by a
 * matrix, become probabilities along the keys, and are mixed again. A block has one query of all
 * heads: its lanes mix a key each, 8 heads at a time, a warp has the sum of a head, and in between
 * heads lie in shared memory as floats.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/talking_args.h"
#include "kernel/core/lanes_sum.h"
#include "kernel/core/late.h"

enum { PACK = K_TALKING_PACK, WARP = K_HOST ? 1 : 32 };

K_LANES_SUM(t_sum, float)

/* The largest of a warp. */
K_FN float t_most(float value) {
#if !K_HOST
    for (int32_t half = WARP / 2; half > 0; half /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, half));
    }
#endif
    return value;
}

K_FN int32_t t_whole(int32_t heads) {
    return (heads + PACK - 1) / PACK * PACK;
}

/* Where a matrix lies as floats, a line for each head that it makes, and then what is added; zeros
 * stand for heads that there are not. */
typedef struct t_mix {
    const float *weight, *bias;
    int32_t from, to, line;
} t_mix;

K_FN int32_t t_floats(const k_talking_mix *mix) {
    return t_whole(mix->to) * (t_whole(mix->from) + 1);
}

K_FN t_mix t_bring(const k_talking_mix *mix, float *shared) {
    const int32_t line = t_whole(mix->from), lines = t_whole(mix->to);
    const T *weight = (const T *)mix->weight, *bias = (const T *)mix->bias;
    K_ONE_COPY
    K_BLOCK_LOOP(i, line * lines) {
        const int32_t to = (int32_t)i / line, from = (int32_t)i - to * line;
        const int is = from < mix->from && to < mix->to;
        shared[i] = is ? T_load(weight[from * mix->by_from + to * mix->by_to]) : 0;
    }
    K_ONE_COPY
    K_BLOCK_LOOP(i, lines) {
        shared[line * lines + i] = bias != 0 && i < mix->to ? T_load(bias[i]) : 0;
    }
    const t_mix made = {shared, shared + line * lines, mix->from, mix->to, line};
    return made;
}

/* Adds what some heads give to others. */
K_FN void t_add(const t_mix *mix, int32_t from, int32_t to, const float *value, float *sum) {
    K_UNROLL
    for (int32_t i = 0; i < PACK; i++) {
        const float *weight = mix->weight + (to + i) * mix->line + from;
        K_UNROLL
        for (int32_t k = 0; k < PACK; k++) {
            sum[i] += weight[k] * value[k];
        }
    }
}

/* One key of a mix: of the first one from memory to shared memory, of the other one back. Heads are
 * `head` elements apart in memory. */
K_FN void t_mix_key(const t_mix *mix, int is_first, const T *x, float *scores, int32_t columns,
                    T *out, int64_t head) {
    K_ONE_COPY
    for (int32_t to = 0; to < mix->to; to += PACK) {
        float sum[PACK];
        K_UNROLL
        for (int32_t i = 0; i < PACK; i++) {
            sum[i] = mix->bias[to + i];
        }
        K_ONE_COPY
        for (int32_t from = 0; from < mix->from; from += PACK) {
            float value[PACK];
            K_UNROLL
            for (int32_t k = 0; k < PACK; k++) {
                const int32_t h = from + k;
                value[k] = h >= mix->from ? 0
                           : is_first     ? T_load(x[h * head])
                                          : scores[h * columns];
            }
            t_add(mix, from, to, value, sum);
        }
        K_UNROLL
        for (int32_t i = 0; i < PACK; i++) {
            const int32_t h = to + i;
            if (h < mix->to && is_first) {
                scores[h * columns] = sum[i];
            } else if (h < mix->to) {
                out[h * head] = T_store(sum[i]);
            }
        }
    }
}

/* The scores of one head become its shares of one. */
K_FN void t_softmax(float *x, int32_t columns) {
    const int32_t lane = (int32_t)threadIdx.x % WARP;
    float most = -K_INF, sum = 0;
    K_ONE_COPY
    for (int32_t c = lane; c < columns; c += WARP) {
        most = fmaxf(most, x[c]);
    }
    most = t_most(most);
    K_ONE_COPY
    for (int32_t c = lane; c < columns; c += WARP) {
        x[c] = expf(x[c] - most);
        sum += x[c];
    }
    const float scale = 1 / t_sum(sum, WARP);
    K_ONE_COPY
    for (int32_t c = lane; c < columns; c += WARP) {
        x[c] *= scale;
    }
}

K_BLOCK_KERNEL_LATE(K_TALKING_LANES, mp_talking_args, args) {
    K_SHARED(float, shared);
    k_wait();
    const int32_t columns = args.columns;
    const int64_t head = args.rows * columns;
    float *rest = shared + t_floats(&args.before), *scores = rest + t_floats(&args.after);
    const t_mix before = t_bring(&args.before, shared);
    const t_mix after = t_bring(&args.after, rest);
    __syncthreads();
    for (uint32_t unit = blockIdx.x; unit < (uint32_t)args.units; unit += gridDim.x) {
        const int64_t entry = unit / (uint32_t)args.rows, row = unit - entry * args.rows;
        const T *x = (const T *)args.x + entry * before.from * head + row * columns;
        T *out = (T *)args.out + entry * after.to * head + row * columns;
        K_ONE_COPY
        K_BLOCK_LOOP(c, columns) {
            t_mix_key(&before, 1, x + c, scores + c, columns, 0, head);
        }
        __syncthreads();
        const int32_t warps = (int32_t)blockDim.x / WARP;
        for (int32_t h = (int32_t)threadIdx.x / WARP; h < before.to; h += warps) {
            t_softmax(scores + (int64_t)h * columns, columns);
        }
        __syncthreads();
        K_ONE_COPY
        K_BLOCK_LOOP(c, columns) {
            t_mix_key(&after, 0, 0, scores + c, columns, out + c, head);
        }
        __syncthreads();
    }
}
