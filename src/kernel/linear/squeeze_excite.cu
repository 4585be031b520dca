/* squeeze_excite.cu - gates of an image's channels: the mean of each channel, two small products
 * with what follows each (squeeze and excitation). Images have their channels last.
 *
 * The blocks of a cluster have an image. Each brings up its rows of the weights while the kernel
 * before is still at work; then they tell one another what they find, in shared memory:
 *
 *     each sums its pixels, and tells each channel's sum to the block that has the channel
 *     each adds what it was told of its slice of the channels, and tells all the means
 *     each makes some of the squeezed numbers, and tells them to all
 *     each makes some of the gates
 *
 * On the emulated device, and on GPUs without clusters, an image has one block.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/lanes_sum.h"
#include "kernel/core/late.h"
#include "kernel/core/meet.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/linear/conv_tail.h"
#include "kernel/linear/linear_args.h"
#include "kernel/rows/column_walk.h"

enum {
    GATES = K_HOST ? 1 : K_EXCITE_GATES, /* that a group of lanes makes at once */
    WARP = K_HOST ? 1 : 32,
};

K_LANES_SUM(e_sum, K_SUM)

/* The block's shared memory, and its rows of the weights, there or where they are. */
typedef struct e_held {
    K_SUM *sums;  /* [lanes][K_PACK] */
    K_SUM *parts; /* [lanes] */
    float *told;  /* [blocks][slice], by the others: sums over their pixels */
    float *mean;  /* [channels], by all */
    float *inner; /* [inner], by all */
    uint64_t *told_box, *mean_box, *inner_box;
    const T *w1, *w2;
    int32_t me; /* of the blocks of the image */
} e_held;

K_FN int32_t e_at_most(int32_t left, int32_t most) {
    return left < 0 ? 0 : left < most ? left : most;
}

/* ---- the weights ---- */

/* Begins to bring `count` elements to shared memory, where they are seen once this lane has waited
 * and the block has met. */
K_FN void e_bring(T *to, const T *from, int32_t count) {
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x * K_PACK; i < count; i += (int32_t)blockDim.x * K_PACK) {
        const int32_t some = e_at_most(count - i, K_PACK);
#if K_PTX && __CUDA_ARCH__ >= 800
        if (some == K_PACK) {
            k_copy_begin(to + i, from + i, sizeof(k_pack));
            continue;
        }
#endif
        for (int32_t k = 0; k < some; k++) {
            to[i + k] = from[i + k];
        }
    }
}

K_FN void e_brought(void) {
#if K_PTX && __CUDA_ARCH__ >= 800
    k_copies_group();
    K_COPIES_WAIT(0);
#endif
}

K_FN e_held e_hold(const mp_excite_args *args, K_SUM *shared, int32_t me) {
    const int32_t first1 = me * args->rows1, first2 = me * args->rows2;
    e_held h;
    h.me = me;
    h.told_box = (uint64_t *)(void *)shared;
    h.mean_box = h.told_box + 1;
    h.inner_box = h.told_box + 2;
    h.sums = (K_SUM *)(void *)(h.told_box + 4); /* aligned as packs are */
    h.parts = h.sums + blockDim.x * K_PACK;
    T *w1 = (T *)(void *)(h.parts + blockDim.x);
    T *w2 = w1 + (args->held ? args->rows1 * args->channels : 0);
    h.told = (float *)(void *)(w2 + (args->held ? args->rows2 * args->inner : 0));
    h.mean = h.told + args->blocks * args->slice;
    h.inner = h.mean + args->channels;
    h.w1 = (const T *)args->w1 + (int64_t)first1 * args->channels;
    h.w2 = (const T *)args->w2 + (int64_t)first2 * args->inner;
    if (args->held) {
        e_bring(w1, h.w1, e_at_most(args->inner - first1, args->rows1) * args->channels);
        e_bring(w2, h.w2, e_at_most(args->gates - first2, args->rows2) * args->inner);
        h.w1 = w1;
        h.w2 = w2;
    }
    return h;
}

/* ---- telling ---- */

K_FN void e_send(const mp_excite_args *args, uint64_t *box, float *place, int32_t block,
                 float value) {
    if (args->blocks > 1) {
        k_box_send(box, place, block, value);
    } else {
        *place = value;
    }
}

K_FN void e_wait(const mp_excite_args *args, uint64_t *box) {
    if (args->blocks > 1) {
        k_box_wait(box);
    } else {
        __syncthreads();
    }
}

/* ---- squeeze ---- */

/* Lanes side by side. */
K_FN uint32_t e_beside(const mp_excite_args *args) {
    return (uint32_t)args->beside < blockDim.x ? (uint32_t)args->beside : blockDim.x;
}

/* Tells the block that has channel `c` what this one has of it. */
K_FN void e_tell(const mp_excite_args *args, const e_held *h, int32_t c, K_SUM sum) {
    const int32_t owner = c / args->slice;
    if (c < args->channels) {
        e_send(args, h->told_box, h->told + (h->me - owner) * args->slice + c, owner, (float)sum);
    }
}

/* The lanes below each other meet: `first` is the first channel that they have. */
K_FN void e_join(const mp_excite_args *args, const e_held *h, int32_t first, c_sums sums) {
    const uint32_t lanes = blockDim.x, beside = e_beside(args), columns = beside * K_PACK;
    const uint32_t below = lanes >> k_log2(beside);
    const uint32_t parts = columns < lanes ? lanes >> k_log2(columns) : 1;
    *(c_sums *)(h->sums + threadIdx.x * K_PACK) = sums;
    __syncthreads();
    K_ONE_COPY
    for (uint32_t i = threadIdx.x; i < columns * parts; i += lanes) {
        const uint32_t c = i & (columns - 1);
        const K_SUM sum = c_part(h->sums + c, columns, i >> k_log2(columns), parts, below);
        if (parts == 1) {
            e_tell(args, h, first + (int32_t)c, sum);
        } else {
            h->parts[i] = sum;
        }
    }
    __syncthreads();
    if (parts > 1 && threadIdx.x < columns) {
        e_tell(args, h, first + (int32_t)threadIdx.x,
               c_join(h->parts + threadIdx.x, columns, parts));
    }
}

K_FN void e_squeeze(const mp_excite_args *args, const e_held *h, int64_t image) {
    const T *x = (const T *)args->x + image * args->pixels * args->channels;
    const uint32_t beside = e_beside(args), shift = k_log2(beside);
    const int32_t lane = (int32_t)(threadIdx.x & (beside - 1));
    const int32_t row = (int32_t)(threadIdx.x >> shift), below = (int32_t)(blockDim.x >> shift);
    const int32_t begin = h->me * args->piece;
    const int32_t end = begin + e_at_most(args->pixels - begin, args->piece);
    K_ONE_COPY
    for (int32_t first = 0; first < args->channels; first += (int32_t)beside * K_PACK) {
        const int32_t c = first + lane * K_PACK;
        const int32_t last = c < args->channels ? end : 0;
        const c_sums sums = c_walk(x + c, args->channels, begin + row, last, below);
        if (first == 0) {
            e_brought();
            k_cluster_wait(); /* now all blocks are there */
        }
        e_join(args, h, first, sums);
    }
}

K_FN void e_average(const mp_excite_args *args, const e_held *h) {
    const int32_t first = h->me * args->slice;
    const int32_t count = e_at_most(args->channels - first, args->slice);
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < count; i += (int32_t)blockDim.x) {
        float sum = 0;
        K_ONE_COPY
        for (int32_t b = 0; b < args->blocks; b++) {
            sum += h->told[b * args->slice + i];
        }
        const float mean = sum / (float)args->pixels;
        K_ONE_COPY
        for (int32_t b = 0; b < args->blocks; b++) {
            e_send(args, h->mean_box, h->mean + first + i, b, mean);
        }
    }
}

/* ---- excite ---- */

K_FN float e_bias(const void *bias, int32_t i) {
    return bias != 0 ? T_load(((const T *)bias)[i]) : 0;
}

/* Of those that gates have, a plan says so: text that is not there need not be fetched. */
#define E_ACTIVATE(kind_) \
    case kind_:           \
        return c_activate(kind_, a->alpha, a->beta, x)
K_FN float e_activate(const mp_activate *a, float x) {
    switch (a->kind) {
        E_ACTIVATE(K_ACTIVATE_RELU);
        E_ACTIVATE(K_ACTIVATE_SIGMOID);
        E_ACTIVATE(K_ACTIVATE_HARD_SIGMOID);
        E_ACTIVATE(K_ACTIVATE_HARD_SWISH);
        E_ACTIVATE(K_ACTIVATE_SILU);
    default:
        return x;
    }
}

/* A warp makes one number at a time. */
K_FN void e_first(const mp_excite_args *args, const e_held *h) {
    const int32_t lane = (int32_t)threadIdx.x % WARP, group = (int32_t)threadIdx.x / WARP;
    const int32_t first = h->me * args->rows1;
    const int32_t count = e_at_most(args->inner - first, args->rows1);
    K_ONE_COPY
    for (int32_t n = group; n < count; n += (int32_t)blockDim.x / WARP) {
        const T *w = h->w1 + (int64_t)n * args->channels;
        K_SUM sum = 0;
        K_ONE_COPY
        for (int32_t c = lane * K_PACK; c < args->channels; c += WARP * K_PACK) {
            float value[K_PACK];
            k_pack pack;
            pack.words = ((const k_pack *)(w + c))->words;
            K_UNROLL
            for (int i = 0; i < 4; i++) {
                T_unpack(pack.words.at[i], value + i * K_WORD);
            }
            K_UNROLL
            for (int i = 0; i < K_PACK; i++) {
                sum += (K_SUM)value[i] * (K_SUM)h->mean[c + i];
            }
        }
        sum = e_sum(sum, WARP);
        const float made = e_activate(&args->squeezed, (float)sum + e_bias(args->b1, first + n));
        K_ONE_COPY
        for (int32_t b = lane; b < args->blocks; b += WARP) {
            e_send(args, h->inner_box, h->inner + first + n, b, made);
        }
    }
}

K_FN void e_second(const mp_excite_args *args, const e_held *h, int64_t image) {
    const uint32_t width = K_HOST ? 1 : (uint32_t)args->width, shift = k_log2(width);
    const int32_t lane = (int32_t)(threadIdx.x & (width - 1)), step = (int32_t)width;
    const int32_t groups = (int32_t)(blockDim.x >> shift), group = (int32_t)(threadIdx.x >> shift);
    const int32_t first = h->me * args->rows2;
    const int32_t count = e_at_most(args->gates - first, args->rows2);
    T *out = (T *)args->out + image * args->gates + first;
    K_ONE_COPY
    for (int32_t round = 0; round < count; round += groups * GATES) { /* the same for a warp */
        K_SUM sum[GATES];
        K_UNROLL
        for (int k = 0; k < GATES; k++) {
            const int32_t n = round + k * groups + group;
            const T *w = h->w2 + (int64_t)n * args->inner;
            sum[k] = 0;
            K_ONE_COPY
            for (int32_t i = lane; n < count && i < args->inner; i += step) {
                sum[k] += (K_SUM)T_load(w[i]) * (K_SUM)h->inner[i];
            }
        }
        float mine = 0; /* lane k has gate k */
        K_UNROLL
        for (int k = 0; k < GATES; k++) {
            const float all = (float)e_sum(sum[k], step);
            mine = lane == k ? all : mine;
        }
        const int32_t n = round + lane * groups + group;
        if (n < count && lane < GATES) {
            out[n] = T_store(e_activate(&args->gating, mine + e_bias(args->b2, first + n)));
        }
    }
}

/* ---- all ---- */

K_FN void e_open(const mp_excite_args *args, const e_held *h) {
    const int32_t slice = e_at_most(args->channels - h->me * args->slice, args->slice);
    if (args->blocks > 1) {
        k_box_open(h->told_box, (uint32_t)(args->blocks * slice) * sizeof(float));
        k_box_open(h->mean_box, (uint32_t)args->channels * sizeof(float));
        k_box_open(h->inner_box, (uint32_t)args->inner * sizeof(float));
    }
    k_cluster_begin();
}

K_BLOCK_KERNEL_LATE_OF(K_EXCITE_LANES, 2, mp_excite_args, args) {
    K_SHARED(K_SUM, shared);
    const int64_t image = blockIdx.x / (uint32_t)args.blocks;
    const int32_t me = (int32_t)(blockIdx.x - (uint32_t)image * (uint32_t)args.blocks);
    if (!args.constant) {
        k_wait();
    }
    const e_held h = e_hold(&args, shared, me);
    e_open(&args, &h);
    k_wait();
    e_squeeze(&args, &h, image);
    e_wait(&args, h.told_box);
    e_average(&args, &h);
    e_wait(&args, h.mean_box);
    e_first(&args, &h);
    e_wait(&args, h.inner_box);
    e_second(&args, &h, image);
}
