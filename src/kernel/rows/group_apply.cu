/* group_apply.cu - each channel minus the mean of its group, over its deviation, times scale, plus
 * bias, and perhaps times its sigmoid or no less than 0. Each block puts together what is known of
 * its groups in each slice. A lane keeps what its channels need and goes along the pixels. Bound by
 * latencies, and for many pixels by arithmetic; `out` may be x.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/group_norm.h"

#include "kernel/core/late.h"
#include "kernel/pointwise/functions.h"

#if K_HOST /* in double, as sums of other kernels on the emulated device */
typedef double g_real;
#define g_sqrt sqrt
#else
typedef float g_real;
#define g_sqrt sqrtf
#endif

K_LANES_SUM(g_team_sum, g_real)

typedef struct g_moments {
    float mean, scale; /* 1 / deviation */
} g_moments;

typedef struct g_affine {
    TC mean[PACK], scale[PACK], bias[PACK];
} g_affine;

/* ---- the groups ---- */

/* What is known of a group's part in a slice. */
typedef struct K_ALIGN(8) g_known {
    float mean, squares;
} g_known;

/* What it adds: its mean, less `zero`; or its squares, and those of its mean less `zero`, over
 * `count` elements. */
K_FN g_real g_term(g_known known, g_real zero, g_real count, int squared) {
    const g_real off = (g_real)known.mean - zero;
    return squared ? (g_real)known.squares + off * off * count : off * count;
}

/* Of the slices of a part, of which all but the last one have as many elements, `count`; the lanes
 * of a team share them. Several are asked for before one is used. */
K_FN g_real g_add_slices(const g_known *of, int32_t slices, g_real zero, g_real count, g_real last,
                         int squared) {
    enum { AT_ONCE = 4 };
    const int32_t lane = (int32_t)threadIdx.x % TEAM;
    g_real sum = 0;
    int32_t i = lane;
    K_ONE_COPY
    for (; i + (AT_ONCE - 1) * TEAM < slices - 1; i += AT_ONCE * TEAM) {
        g_known known[AT_ONCE];
        K_UNROLL
        for (int32_t j = 0; j < AT_ONCE; j++) {
            known[j] = of[i + j * TEAM];
        }
        K_UNROLL
        for (int32_t j = 0; j < AT_ONCE; j++) {
            sum += g_term(known[j], zero, count, squared);
        }
    }
    K_ONE_COPY
    for (; i < slices - 1; i += TEAM) {
        sum += g_term(of[i], zero, count, squared);
    }
    return i == slices - 1 ? sum + g_term(of[i], zero, last, squared) : sum;
}

/* Over all parts of a group. */
K_FN g_real g_add(const mp_group_norm_args *args, const g_part *part, int32_t group, g_real zero,
                  int squared) {
    const int32_t first = g_chunk(args, group * args->each);
    const int32_t last = g_chunk(args, group * args->each + args->each - 1);
    const g_real whole = (g_real)args->slice;
    const g_real rest = (g_real)(args->pixels - (args->slices - 1) * args->slice);
    g_real sum = 0;
    for (int32_t chunk = first; chunk <= last; chunk++) {
        const g_share share = g_share_of(args, group, chunk);
        const float *partial = g_partial(args, part->batch, group, share.span);
        const g_real channels = (g_real)(share.high - share.low);
        sum += g_add_slices((const g_known *)(const void *)partial, args->slices, zero,
                            channels * whole, channels * rest, squared);
    }
    return g_team_sum(sum, TEAM);
}

K_FN g_moments g_moments_of(const mp_group_norm_args *args, g_real mean, g_real squares,
                            g_real total) {
    g_moments moments;
    moments.mean = (float)mean;
    moments.scale = (float)((g_real)1 / g_sqrt(squares / total + (g_real)args->epsilon));
    return moments;
}

/* Of group `group`; all lanes of a team get it. Means are added as what they are off the first. */
K_FN g_moments g_merge(const mp_group_norm_args *args, const g_part *part, int32_t group) {
    const g_real total = (g_real)args->pixels * (g_real)args->each;
    const g_real zero = (g_real)g_partial(args, part->batch, group, 0)[0];
    const g_real mean = zero + g_add(args, part, group, zero, 0) / total;
    const g_real squares = g_add(args, part, group, mean, 1);
    return g_moments_of(args, mean, squares, total);
}

/* The same of a group that is whole in its chunk, and of few slices, which the team keeps: it waits
 * for memory once. */
enum { G_KEPT = 4 };
K_FN g_moments g_merge_kept(const mp_group_norm_args *args, const g_part *part, int32_t group) {
    const g_known *of = (const g_known *)(const void *)g_partial(args, part->batch, group, 0);
    const g_real each = (g_real)args->each, total = (g_real)args->pixels * each;
    const g_real whole = (g_real)args->slice;
    const g_real rest = (g_real)(args->pixels - (args->slices - 1) * args->slice);
    const int32_t lane = (int32_t)threadIdx.x % TEAM;
    g_known known[G_KEPT];
    g_real count[G_KEPT], off = 0, squares = 0;
    K_UNROLL
    for (int32_t j = 0; j < G_KEPT; j++) {
        const g_known none = {0, 0};
        const int32_t i = lane + j * TEAM;
        known[j] = i < args->slices ? of[i] : none;
        count[j] = i < args->slices - 1 ? each * whole : i < args->slices ? each * rest : 0;
    }
    const g_real zero = g_team_sum(lane == 0 ? (g_real)known[0].mean : 0, TEAM);
    K_UNROLL
    for (int32_t j = 0; j < G_KEPT; j++) {
        off += count[j] > 0 ? g_term(known[j], zero, count[j], 0) : 0;
    }
    const g_real mean = zero + g_team_sum(off, TEAM) / total;
    K_UNROLL
    for (int32_t j = 0; j < G_KEPT; j++) {
        squares += count[j] > 0 ? g_term(known[j], mean, count[j], 1) : 0;
    }
    return g_moments_of(args, mean, g_team_sum(squares, TEAM), total);
}

/* Of all groups of the chunk. Teams that have none go along, since the lanes of a warp add
 * together. */
K_FN void g_merge_all(const mp_group_norm_args *args, const g_part *part, g_moments *out) {
    const int32_t first = g_group(args, part->low);
    const int32_t groups = g_group(args, part->high - 1) - first + 1;
    const int32_t teams = (int32_t)blockDim.x / TEAM;
    for (int32_t begin = 0; begin < groups; begin += teams) {
        const int32_t mine = begin + (int32_t)threadIdx.x / TEAM;
        const int32_t group = first + (mine < groups ? mine : 0);
        const g_moments made = args->spans == 1 && args->slices <= G_KEPT * TEAM
                                   ? g_merge_kept(args, part, group)
                                   : g_merge(args, part, group);
        if (mine < groups && threadIdx.x % TEAM == 0) {
            out[mine] = made;
        }
    }
}

/* ---- the pixels ---- */

K_FN g_affine g_affine_of(const mp_group_norm_args *args, const g_part *part, const g_seat *seat,
                          const g_moments *moments) {
    const int32_t first = g_group(args, part->low);
    g_affine a;
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        const int32_t channel = seat->channel + k;
        const g_moments of = moments[g_group(args, channel) - first];
        a.mean[k] = of.mean;
        a.scale[k] = of.scale * (TC)U_load(((const U *)args->scale)[channel]);
        a.bias[k] = (TC)U_load(((const U *)args->bias)[channel]);
    }
    return a;
}

/* x times its sigmoid; never exponentiates a positive number, so nothing overflows. What the
 * hardware's power is off, elements of 16 bits do not show. */
K_FN TC g_swish(TC x) {
    const TC e =
        sizeof(T) == 2 ? (TC)p_power_of_two(-(float)p_abs(x) * 1.44269504f) : K_M(exp)(-p_abs(x));
    return x * ((x < (TC)0 ? e : (TC)1) * p_inverse((TC)1 + e));
}

K_FN TC g_active(int32_t activation, TC x) {
    return activation == K_GROUP_NORM_SWISH               ? g_swish(x)
           : activation == K_GROUP_NORM_RELU && x < (TC)0 ? (TC)0
                                                          : x; /* so NaN stays */
}

K_FN g_pack g_made(const mp_group_norm_args *args, const g_affine *a, g_pack x) {
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        const TC value = (T_load(x.at[k]) - a->mean[k]) * a->scale[k] + a->bias[k];
        x.at[k] = T_store(g_active(args->activation, value));
    }
    return x;
}

/* The lane's pixels from `x` to `out`, of which `left` are in the slice. Behind the slice's end the
 * first one of a turn is read again. */
K_FN void g_go_along(const mp_group_norm_args *args, const g_affine *affine, const T *x, T *out,
                     int32_t left) {
    const int64_t step = (int64_t)args->lines * args->channels;
    for (; left > 0; left -= AHEAD * args->lines) {
        g_pack pack[AHEAD];
        K_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            pack[j].words = ((const g_pack *)(x + (j * args->lines < left ? j * step : 0)))->words;
        }
        K_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            if (j * args->lines < left) {
                ((g_pack *)(out + j * step))->words = g_made(args, affine, pack[j]).words;
            }
        }
        x += AHEAD * step;
        out += AHEAD * step;
    }
}

K_BLOCK_KERNEL_LATE_OF(K_GROUP_NORM_LANES, G_BLOCKS, mp_group_norm_args, args) {
    K_SHARED(g_moments, moments);
    const int64_t items = g_items(&args);
    const T *x = (const T *)(args.sum ? args.sum : args.x);
    T *out = (T *)args.out;
    k_wait();
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const g_part part = g_part_of(&args, item);
        g_merge_all(&args, &part, moments);
        __syncthreads();
        G_LANE_LOOP(lane) {
            const g_seat seat = g_seat_of(&args, &part, (int32_t)lane);
            if (seat.left > 0) {
                const g_affine affine = g_affine_of(&args, &part, &seat, moments);
                const int64_t at = g_at(&args, &part, part.first + seat.line, seat.channel);
                g_go_along(&args, &affine, x + at, out + at, seat.left);
            }
        }
        __syncthreads(); /* all are read before the next item's are written */
    }
}
