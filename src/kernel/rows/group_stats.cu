/* group_stats.cu - mean and squares of each channel in each slice of pixels. Squares are of what is
 * off the slice's first pixel, so that a large mean costs nothing. What is added to x before is
 * added here, and written.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/group_norm.h"

typedef struct g_sums {
    TA off[PACK], squares[PACK];
} g_sums;

/* x with what is added to it, as it will be stored. */
K_FN g_pack g_value(const mp_group_norm_args *args, const g_part *part, int64_t pixel) {
    g_pack x = *(const g_pack *)((const T *)args->x + g_at(args, part, pixel));
    if (!args->skip) {
        return x;
    }
    const int64_t pixels = args->skip_step > 0 ? args->pixels : 1;
    const int64_t at = part->batch * pixels * args->channels + pixel * args->skip_step;
    const g_pack skip = *(const g_pack *)((const T *)args->skip + at + part->channel);
    g_pack add = skip;
    if (args->add) {
        add = *(const g_pack *)((const T *)args->add + part->channel);
    }
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        const TC both = T_load(x.at[k]) + T_load(skip.at[k]);
        x.at[k] = T_store(args->add ? both + T_load(add.at[k]) : both);
    }
    return x;
}

/* Of every `lines`-th pixel of the slice; AHEAD of them are on their way at a time. */
K_FN void g_add(const mp_group_norm_args *args, const g_part *part, const g_pack *base,
                g_sums *sums) {
    T *sum = (T *)args->sum;
    for (int64_t p = part->first + part->line; p < part->end; p += AHEAD * part->lines) {
        g_pack pack[AHEAD];
        K_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            const int64_t pixel = p + j * part->lines;
            pack[j] = pixel < part->end ? g_value(args, part, pixel) : *base;
        }
        K_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            const int64_t pixel = p + j * part->lines;
            if (sum && pixel < part->end) {
                *(g_pack *)(sum + g_at(args, part, pixel)) = pack[j];
            }
            K_UNROLL
            for (int k = 0; k < PACK; k++) {
                const TA off = (TA)T_load(pack[j].at[k]) - (TA)T_load(base->at[k]);
                sums->off[k] += pixel < part->end ? off : 0;
                sums->squares[k] += pixel < part->end ? off * off : 0;
            }
        }
    }
}

/* Writes what is known of the slice. */
K_FN void g_put(const mp_group_norm_args *args, const g_part *part, const g_pack *base,
                const g_sums *sums) {
    const TA count = (TA)(part->end - part->first);
    const int64_t row = part->batch * args->slices + part->slice;
    float *to = args->partial + (row * args->channels + part->channel) * 2;
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        const TA mean = sums->off[k] / count;
        const TA squares = sums->squares[k] - mean * sums->off[k];
        to[2 * k] = (float)((TA)T_load(base->at[k]) + mean);
        to[2 * k + 1] = (float)(squares < 0 ? 0 : squares); /* NaN stays */
    }
}

K_BLOCK_KERNEL_UP_TO(256, mp_group_norm_args, args) {
    K_SHARED(g_sums, shared);
    const int64_t items = g_items(&args);
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const g_part part = g_part_of(&args, item);
        g_sums sums = {{0}, {0}};
        g_pack base;
        if (part.active) {
            base = g_value(&args, &part, part.first);
            g_add(&args, &part, &base, &sums);
        }
        shared[threadIdx.x] = sums;
        __syncthreads();
        if (part.active && part.line == 0) {
            for (int64_t other = 1; other < part.lines; other++) {
                const g_sums *more = &shared[other * part.across + threadIdx.x];
                K_UNROLL
                for (int k = 0; k < PACK; k++) {
                    sums.off[k] += more->off[k];
                    sums.squares[k] += more->squares[k];
                }
            }
            g_put(&args, &part, &base, &sums);
        }
        __syncthreads(); /* all are read before the next item's are written */
    }
}
