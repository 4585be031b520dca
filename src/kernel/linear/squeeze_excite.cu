/* squeeze_excite.cu - gates of an image's channels: the mean of each channel, two small products
 * with what follows each (squeeze and excitation). Images have their channels last.
 *
 * The blocks of a cluster have an image, and tell one another what they find in shared memory:
 *
 *     each sums its pixels, and tells each channel's sum to the block that has the channel
 *     each adds what it was told of its slice of the channels, and tells all the means
 *     each makes some of the squeezed numbers, and tells them to all
 *     each makes some of the gates
 *
 * On the emulated device, and on GPUs without clusters, an image has one block.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/lanes_sum.h"
#include "kernel/core/meet.h"
#include "kernel/linear/conv_tail.h"
#include "kernel/linear/linear_args.h"
#include "kernel/rows/column_walk.h"

enum {
    GATES = K_HOST ? 1 : 4, /* that a group of lanes makes at once */
    WARP = K_HOST ? 1 : 32,
};

K_LANES_SUM(e_sum, K_SUM)

/* The block's shared memory. */
typedef struct e_held {
    float *told;  /* [blocks][slice], by the others: sums over their pixels */
    float *mean;  /* [channels] */
    float *inner; /* [inner] */
    K_SUM *sums;  /* [lanes][K_PACK] */
    K_SUM *parts; /* [lanes] */
} e_held;

K_FN e_held e_hold(const mp_excite_args *args, K_SUM *shared) {
    e_held h;
    h.sums = shared;
    h.parts = h.sums + blockDim.x * K_PACK;
    h.told = (float *)(h.parts + blockDim.x);
    h.mean = h.told + args->blocks * args->slice;
    h.inner = h.mean + args->channels;
    return h;
}

K_FN void e_meet(void) {
    k_cluster_arrive();
    k_cluster_wait();
}

/* ---- squeeze ---- */

/* Lanes side by side. */
K_FN uint32_t e_beside(const mp_excite_args *args) {
    return (uint32_t)args->beside < blockDim.x ? (uint32_t)args->beside : blockDim.x;
}

/* Tells the block that has channel `c` what this one, `me`, has of it. */
K_FN void e_tell(const mp_excite_args *args, const e_held *h, int32_t me, int32_t c, K_SUM sum) {
    const int32_t owner = c / args->slice;
    if (c < args->channels) {
        k_cluster_store(h->told + me * args->slice + c - owner * args->slice, owner, (float)sum);
    }
}

/* The lanes below each other meet: `first` is the first channel that they have. */
K_FN void e_join(const mp_excite_args *args, const e_held *h, int32_t me, int32_t first,
                 c_sums sums) {
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
            e_tell(args, h, me, first + (int32_t)c, sum);
        } else {
            h->parts[i] = sum;
        }
    }
    __syncthreads();
    if (parts > 1 && threadIdx.x < columns) {
        e_tell(args, h, me, first + (int32_t)threadIdx.x,
               c_join(h->parts + threadIdx.x, columns, parts));
    }
}

K_FN void e_squeeze(const mp_excite_args *args, const e_held *h, int64_t image, int32_t me) {
    const T *x = (const T *)args->x + image * args->pixels * args->channels;
    const uint32_t beside = e_beside(args), shift = k_log2(beside);
    const int32_t lane = (int32_t)(threadIdx.x & (beside - 1));
    const int32_t row = (int32_t)(threadIdx.x >> shift), below = (int32_t)(blockDim.x >> shift);
    const int32_t begin = me * args->piece, left = args->pixels - begin;
    const int32_t end = begin + (left < args->piece ? left : args->piece);
    K_ONE_COPY
    for (int32_t first = 0; first < args->channels; first += (int32_t)beside * K_PACK) {
        const int32_t c = first + lane * K_PACK;
        const int32_t last = c < args->channels ? end : 0;
        const c_sums sums = c_walk(x + c, args->channels, begin + row, last, below);
        if (first == 0) {
            k_cluster_wait(); /* now all blocks are there */
        }
        e_join(args, h, me, first, sums);
    }
}

K_FN void e_average(const mp_excite_args *args, const e_held *h, int32_t me) {
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < args->slice; i += (int32_t)blockDim.x) {
        const int32_t c = me * args->slice + i;
        float sum = 0;
        for (int32_t b = 0; c < args->channels && b < args->blocks; b++) {
            sum += h->told[b * args->slice + i];
        }
        for (int32_t b = 0; c < args->channels && b < args->blocks; b++) {
            k_cluster_store(h->mean + c, b, sum / (float)args->pixels);
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
K_FN void e_first(const mp_excite_args *args, const e_held *h, int32_t me) {
    const int32_t lane = (int32_t)threadIdx.x % WARP, group = (int32_t)threadIdx.x / WARP;
    const int32_t groups = (int32_t)blockDim.x / WARP;
    K_ONE_COPY
    for (int32_t first = me * groups; first < args->inner; first += args->blocks * groups) {
        const int32_t n = first + group;
        const T *w = (const T *)args->w1 + (int64_t)n * args->channels;
        K_SUM sum = 0;
        for (int32_t c = lane * K_PACK; n < args->inner && c < args->channels; c += WARP * K_PACK) {
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
        if (n < args->inner) {
            const float made = e_activate(&args->squeezed, (float)sum + e_bias(args->b1, n));
            K_ONE_COPY
            for (int32_t b = lane; b < args->blocks; b += WARP) {
                k_cluster_store(h->inner + n, b, made);
            }
        }
    }
}

K_FN void e_second(const mp_excite_args *args, const e_held *h, int64_t image, int32_t me) {
    const uint32_t width = K_HOST ? 1 : (uint32_t)args->width, shift = k_log2(width);
    const int32_t lane = (int32_t)(threadIdx.x & (width - 1)), step = (int32_t)width;
    const int32_t groups = (int32_t)(blockDim.x >> shift), group = (int32_t)(threadIdx.x >> shift);
    const int32_t round = groups * GATES;
    K_ONE_COPY
    for (int32_t first = me * round; first < args->gates; first += args->blocks * round) {
        K_SUM sum[GATES];
        K_UNROLL
        for (int k = 0; k < GATES; k++) {
            const int32_t n = first + k * groups + group;
            const T *w = (const T *)args->w2 + (int64_t)n * args->inner;
            sum[k] = 0;
            K_ONE_COPY
            for (int32_t i = lane; n < args->gates && i < args->inner; i += step) {
                sum[k] += (K_SUM)T_load(w[i]) * (K_SUM)h->inner[i];
            }
        }
        K_UNROLL
        for (int k = 0; k < GATES; k++) {
            const int32_t n = first + k * groups + group;
            const float all = (float)e_sum(sum[k], step);
            if (n < args->gates && lane == 0) {
                const float gate = e_activate(&args->gating, all + e_bias(args->b2, n));
                ((T *)args->out)[image * args->gates + n] = T_store(gate);
            }
        }
    }
}

K_BLOCK_KERNEL_IN_64(K_EXCITE_LANES, mp_excite_args, args) {
    K_SHARED(K_SUM, shared);
    const e_held h = e_hold(&args, shared);
    const int64_t image = blockIdx.x / (uint32_t)args.blocks;
    const int32_t me = (int32_t)(blockIdx.x - (uint32_t)image * (uint32_t)args.blocks);
    k_cluster_arrive();
    e_squeeze(&args, &h, image, me);
    e_meet();
    e_average(&args, &h, me);
    e_meet();
    e_first(&args, &h, me);
    e_meet();
    e_second(&args, &h, image, me);
}
