/* group_stats.cu - mean and squares of each group in each slice of pixels. Squares of a channel are
 * of what is off the slice's first pixel, so that a large mean costs nothing. What is added to x
 * before is added here, and written.
 *
 * Lanes leave their sums in shared memory, and each sum of a channel over them is made by one lane.
 * A few lanes then put the channels of a group together.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/group_norm.h"

#include "kernel/core/late.h"

K_LANES_SUM(g_team_sum, TA)

typedef struct g_sums {
    TA off[PACK], squares[PACK];
} g_sums;

/* Where a lane's packs of x and of what is added to it are, from its first pixel on. */
typedef struct g_place {
    const T *x, *skip;
    T *sum;
    g_pack add;
} g_place;

K_FN g_place g_place_of(const mp_group_norm_args *args, const g_part *part, const g_seat *seat) {
    const int64_t pixel = part->first + seat->line;
    const int64_t at = g_at(args, part, pixel, seat->channel),
                  pixels = args->skip_step > 0 ? args->pixels : 1;
    g_place place;
    place.x = (const T *)args->x + at;
    place.sum = args->sum ? (T *)args->sum + at : (T *)0;
    place.skip = (const T *)args->skip +
                 (part->batch * pixels * args->channels + pixel * args->skip_step + seat->channel);
    /* Without, x's first pixel, unused: a lane beyond the slice has no pixel of its own to read. */
    place.add.words =
        ((const g_pack *)((const T *)(args->add ? args->add : args->x) + seat->channel))->words;
    return place;
}

/* x with what is added to it, as it will be stored. */
K_FN g_pack g_sum_of(const mp_group_norm_args *args, g_pack x, g_pack skip, g_pack add) {
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        const TC both = T_load(x.at[k]) + T_load(skip.at[k]);
        x.at[k] = T_store(args->add ? both + T_load(add.at[k]) : both);
    }
    return x;
}

K_FN g_pack g_load(const T *from) {
    g_pack pack;
    pack.words = ((const g_pack *)from)->words;
    return pack;
}

/* Of the slice's first pixel, `line` pixels before the lane's own. While it is on its way, so are
 * the lane's first ones. */
K_FN g_pack g_base(const mp_group_norm_args *args, const g_place *place, const g_seat *seat) {
    const g_pack x = g_load(place->x - (int64_t)seat->line * args->channels);
    const g_pack skip = g_load(args->skip ? place->skip - (int64_t)seat->line * args->skip_step
                                          : (const T *)args->x);
    K_UNROLL
    for (int j = 0; j < AHEAD; j++) {
        if (j * args->lines < seat->left) {
            k_bring_near(place->x + (int64_t)j * args->lines * args->channels);
        }
        if (args->skip && j * args->lines < seat->left) {
            k_bring_near(place->skip + (int64_t)j * args->lines * args->skip_step);
        }
    }
    return args->skip ? g_sum_of(args, x, skip, place->add) : x;
}

K_FN void g_count(const g_pack *pack, const g_pack *base, g_sums *sums) {
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        const TA off = (TA)T_load(pack->at[k]) - (TA)T_load(base->at[k]);
        sums->off[k] += off;
        sums->squares[k] += off * off;
    }
}

/* Adds what is added to x, and writes the sums; `left` pixels from the first on. */
K_FN void g_add_skip(const mp_group_norm_args *args, const g_place *place, int64_t step,
                     int32_t left, g_pack *pack, g_pack *skip) {
    K_UNROLL
    for (int j = 0; j < AHEAD; j++) {
        if (j * args->lines < left) {
            pack[j] = g_sum_of(args, pack[j], skip[j], place->add);
            ((g_pack *)(place->sum + j * step))->words = pack[j].words;
        }
    }
}

/* Of every `lines`-th pixel of the slice, AHEAD of them at a time. */
K_FN void g_add(const mp_group_norm_args *args, g_place place, const g_seat *seat,
                const g_pack *base, g_sums *sums) {
    const int64_t step = (int64_t)args->lines * args->channels;
    const int64_t skip_step = (int64_t)args->lines * args->skip_step;
    for (int32_t left = seat->left; left > 0; left -= AHEAD * args->lines) {
        g_pack pack[AHEAD];
        K_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            pack[j] = g_load(place.x + (j * args->lines < left ? j * step : 0));
        }
        if (args->skip) {
            g_pack skip[AHEAD];
            K_UNROLL
            for (int j = 0; j < AHEAD; j++) {
                skip[j] = g_load(place.skip + (j * args->lines < left ? j * skip_step : 0));
            }
            g_add_skip(args, &place, step, left, pack, skip);
        }
        K_UNROLL
        for (int j = 0; j < AHEAD; j++) {
            if (j * args->lines < left) {
                g_count(&pack[j], base, sums);
            }
        }
        place.x += AHEAD * step;
        place.sum += AHEAD * step;
        place.skip += AHEAD * skip_step;
    }
}

/* Row 2 k of the shared memory has what lanes' channels k are off, the next one its squares; a row
 * has all lanes. Behind these are the first pixel's channels, row k of `across`. */
K_FN TA *g_row(TA *shared, int row) {
    return shared + row * (int)G_LANES;
}

K_FN void g_leave(const mp_group_norm_args *args, const g_seat *seat, const g_pack *base,
                  const g_sums *sums, TA *shared) {
    TA *bases = g_row(shared, 2 * PACK);
    K_UNROLL
    for (int k = 0; k < PACK; k++) {
        g_row(shared, 2 * k)[seat->lane] = sums->off[k];
        g_row(shared, 2 * k + 1)[seat->lane] = sums->squares[k];
        if (seat->line == 0) {
            bases[k * args->across + seat->lane] = (TA)T_load(base->at[k]);
        }
    }
}

/* The sums of each channel over all lines come to the first one: its mean is what it is off the
 * first pixel, over `count` pixels, and squares are of what is off its mean. */
K_FN void g_add_lines(const mp_group_norm_args *args, const g_part *part, TA count, TA *shared) {
    const int32_t packs = (part->high - part->low) / PACK, all = PACK * args->across;
    for (int32_t i = (int32_t)threadIdx.x; i < all; i += (int32_t)blockDim.x) {
        const int32_t k = i / args->across, at = i - k * args->across;
        TA *off = g_row(shared, 2 * k) + at, *squares = g_row(shared, 2 * k + 1) + at;
        TA both[2] = {0, 0};
        for (int32_t line = 0; at < packs && line < args->lines; line++) {
            both[0] += off[line * args->across];
            both[1] += squares[line * args->across];
        }
        const TA rest = both[1] - both[0] / count * both[0];
        off[0] = both[0] / count;
        squares[0] = rest < 0 ? 0 : rest; /* NaN stays */
    }
}

/* Channel `c` of the chunk: what its mean is off `zero`, and its squares. */
typedef struct g_channel {
    TA mean, squares;
} g_channel;

K_FN g_channel g_channel_of(const mp_group_norm_args *args, TA *shared, int32_t c, TA zero) {
    const int32_t at = c / PACK, k = c - at * PACK;
    g_channel channel;
    channel.mean = g_row(shared, 2 * PACK)[k * args->across + at] - zero + g_row(shared, 2 * k)[at];
    channel.squares = g_row(shared, 2 * k + 1)[at];
    return channel;
}

/* Writes what is known of the slice. Teams of lanes that have no group go along, since the lanes of
 * a warp add together. */
K_FN void g_put(const mp_group_norm_args *args, const g_part *part, TA count, TA *shared) {
    const int32_t first = g_group(args, part->low);
    const int32_t groups = g_group(args, part->high - 1) - first + 1;
    const int32_t teams = (int32_t)blockDim.x / TEAM, lane = (int32_t)threadIdx.x % TEAM;
    for (int32_t begin = 0; begin < groups; begin += teams) {
        const int32_t mine = begin + (int32_t)threadIdx.x / TEAM;
        const int32_t group = first + (mine < groups ? mine : 0);
        const g_share share = g_share_of(args, group, part->chunk);
        const int32_t low = share.low - part->low, high = share.high - part->low;
        const TA zero = g_row(shared, 2 * PACK)[low % PACK * args->across + low / PACK];
        TA mean = 0, squares = 0;
        for (int32_t c = low + lane; c < high; c += TEAM) {
            mean += g_channel_of(args, shared, c, zero).mean;
        }
        mean = g_team_sum(mean, TEAM) / (TA)(high - low);
        for (int32_t c = low + lane; c < high; c += TEAM) {
            const g_channel of = g_channel_of(args, shared, c, zero);
            squares += of.squares + count * (of.mean - mean) * (of.mean - mean);
        }
        squares = g_team_sum(squares, TEAM);
        if (mine < groups && lane == 0) {
            float *to = g_partial(args, part->batch, group, share.span) + part->slice * 2;
            to[0] = (float)(zero + mean);
            to[1] = (float)squares;
        }
    }
}

K_BLOCK_KERNEL_LATE_OF(K_GROUP_NORM_LANES, G_BLOCKS, mp_group_norm_args, args) {
    K_SHARED(TA, shared);
    const int64_t items = g_items(&args);
    k_wait();
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const g_part part = g_part_of(&args, item);
        const TA count = (TA)(part.end - part.first);
        G_LANE_LOOP(lane) {
            const g_seat seat = g_seat_of(&args, &part, (int32_t)lane);
            g_sums sums = {{0}, {0}};
            if (seat.line < args.lines && seat.channel < part.high) {
                const g_place place = g_place_of(&args, &part, &seat);
                const g_pack base = g_base(&args, &place, &seat);
                g_add(&args, place, &seat, &base, &sums);
                g_leave(&args, &seat, &base, &sums, shared);
            }
        }
        __syncthreads();
        g_add_lines(&args, &part, count, shared);
        __syncthreads();
        g_put(&args, &part, count, shared);
        __syncthreads(); /* all are read before the next item's are written */
    }
}
