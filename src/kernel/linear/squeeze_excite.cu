/* squeeze_excite.cu - gates of an image's channels, made of the mean of each channel by two small
 * products with what follows each, and the image times its gates (squeeze and excitation). Images
 * have their channels last.
 *
 * A block has a piece of an image's pixels, and of these a slice of the channels:
 *
 *     it sums its pixels, and has what the first product makes of its sums: a part of each squeezed
 *     number, since nothing but sums comes before those
 *     blocks tell one another their parts, and each adds all, in the same order
 *     it makes the gates of its slice, and multiplies its pixels, which it has kept
 *
 * Blocks that are a cluster tell one another in shared memory, so that they wait for one another
 * once. What is too much for a cluster is done by two launches, with the parts in memory between
 * them. What does not depend on the kernel before is brought up while that is still at work.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/lanes_sum.h"
#include "kernel/core/late.h"
#include "kernel/core/meet.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/linear/conv_tail.h"
#include "kernel/linear/linear_args.h"
#include "kernel/rows/column_walk.h"

enum {
    ROWS = K_HOST ? 1 : K_EXCITE_ROWS,
    TURNS = K_EXCITE_TURNS,
    QUAD = K_EXCITE_QUAD,
    WARP = K_HOST ? 1 : 32,
};

K_LANES_SUM(e_sum, K_SUM)

/* What a block has, and where its lanes are in that. */
typedef struct e_share {
    const mp_excite_args *args;
    unsigned char *shared;
    int32_t me;             /* of the blocks of the image */
    int32_t channel, packs; /* the first one, and how many follow */
    int32_t pixel, pixels;  /* the same */
    int32_t gate, gates;    /* the same */
    int32_t across, below;  /* lanes side by side in the slice; rows at once */
    int32_t column, row;    /* of the lane */
    int32_t turn;           /* pixels that it asks for together */
} e_share;

K_FN int32_t e_at_most(int32_t left, int32_t most) {
    return left < 0 ? 0 : left < most ? left : most;
}

K_FN e_share e_share_of(const mp_excite_args *args, void *shared, uint32_t me) {
    const uint32_t slice = me % (uint32_t)args->slices, piece = me / (uint32_t)args->slices;
    const uint32_t wanted = (uint32_t)args->across;
    const uint32_t across = wanted < blockDim.x ? wanted : blockDim.x; /* as on a CPU */
    e_share s;
    s.args = args;
    s.shared = (unsigned char *)shared;
    s.me = (int32_t)me;
    s.channel = (int32_t)slice * args->slice;
    s.packs = e_at_most(args->channels - s.channel, args->slice) / K_PACK;
    s.pixel = (int32_t)piece * args->piece;
    s.pixels = e_at_most(args->pixels - s.pixel, args->piece);
    s.gate = ((args->work & K_EXCITE_SCALE) != 0 ? (int32_t)slice : s.me) * args->rows2;
    s.gates = e_at_most(args->gates - s.gate, args->rows2);
    s.across = (int32_t)across;
    s.column = (int32_t)(threadIdx.x & (across - 1));
    s.row = (int32_t)(threadIdx.x >> k_log2(across));
    s.below = (int32_t)(blockDim.x >> k_log2(across));
    s.turn = (int32_t)k_log2(blockDim.x * TURNS >> k_log2(across));
    s.turn = ((s.pixels - 1) >> s.turn) * s.below + s.below;
    return s;
}

K_FN float *e_floats(const e_share *s, int32_t at) {
    return (float *)(void *)(s->shared + at);
}

/* ---- to shared memory ---- */

/* Begins to copy 16 bytes. */
K_FN void e_copy(void *to, const void *from) {
#if K_WARP_MATRIX
    k_copy_begin(to, from, sizeof(k_pack));
#else
    ((k_pack *)to)->words = ((const k_pack *)from)->words;
#endif
}

/* What a lane has begun since the last call belongs together. */
K_FN void e_together(void) {
#if K_WARP_MATRIX
    k_copies_group();
#endif
}

/* Waits for it, but for so many last ones, up to TURNS. */
K_FN void e_arrived(int32_t left) {
#if K_WARP_MATRIX
    switch (left) {
    case 4:
        K_COPIES_WAIT(4);
        break;
    case 3:
        K_COPIES_WAIT(3);
        break;
    case 2:
        K_COPIES_WAIT(2);
        break;
    case 1:
        K_COPIES_WAIT(1);
        break;
    default:
        K_COPIES_WAIT(0);
        break;
    }
#else
    (void)left;
#endif
}

K_FN void e_bring(T *to, const T *from, int32_t count) {
    const int32_t lane = (int32_t)threadIdx.x, lanes = (int32_t)blockDim.x;
    const int32_t whole = count / K_PACK * K_PACK; /* what is behind the end is not read */
    K_ONE_COPY
    for (int32_t i = lane * K_PACK; i < whole; i += lanes * K_PACK) {
        e_copy(to + i, from + i);
    }
    K_ONE_COPY
    for (int32_t i = whole + lane; i < count; i += lanes) {
        to[i] = from[i];
    }
}

/* The slice of rows [first, end) of what has lines of all channels, each by one lane. */
K_FN void e_bring_slice(const e_share *s, T *to, const T *from, int32_t first, int32_t end) {
    const int32_t line = s->args->channels, slice = s->args->slice;
    K_ONE_COPY
    for (int32_t c = s->column; c < s->packs; c += s->across) {
        const T *source = from + (int64_t)(first + s->row) * line + c * K_PACK;
        T *target = to + (first + s->row) * slice + c * K_PACK;
        K_ONE_COPY
        for (int32_t row = first + s->row; row < end; row += s->below) {
            e_copy(target, source);
            source += (int64_t)s->below * line;
            target += s->below * slice;
        }
    }
}

/* Numbers with a line's length between them: weights in shared memory, or where they are. */
typedef struct e_matrix {
    const T *at;
    int32_t line;
} e_matrix;

K_FN e_matrix e_first_weights(const e_share *s) {
    const mp_excite_args *a = s->args;
    const e_matrix held = {(const T *)(const void *)(s->shared + a->at_w1), a->slice};
    const e_matrix there = {(const T *)a->w1 + s->channel, a->channels};
    return a->held ? held : there;
}

K_FN e_matrix e_second_weights(const e_share *s) {
    const mp_excite_args *a = s->args;
    const e_matrix m = {a->held ? (const T *)(const void *)(s->shared + a->at_w2)
                                : (const T *)a->w2 + (int64_t)s->gate * a->inner,
                        a->inner};
    return m;
}

/* What is added to the first product, and to the second; NULL for nothing. */
K_FN const T *e_first_bias(const e_share *s) {
    const mp_excite_args *a = s->args;
    return a->held && a->b1 != 0 ? (const T *)(const void *)(s->shared + a->at_b1)
                                 : (const T *)a->b1;
}
K_FN const T *e_second_bias(const e_share *s) {
    const mp_excite_args *a = s->args;
    return a->b2 == 0 ? 0
           : a->held  ? (const T *)(const void *)(s->shared + a->at_b2)
                      : (const T *)a->b2 + s->gate;
}

K_FN void e_bring_weights(const e_share *s) {
    const mp_excite_args *a = s->args;
    if (!a->held) {
        return;
    }
    if ((a->work & K_EXCITE_SQUEEZE) != 0) {
        e_bring_slice(s, (T *)(void *)(s->shared + a->at_w1), (const T *)a->w1 + s->channel, 0,
                      a->inner);
    }
    if ((a->work & K_EXCITE_GATES) != 0) {
        e_bring((T *)(void *)(s->shared + a->at_w2), (const T *)a->w2 + (int64_t)s->gate * a->inner,
                s->gates * a->inner);
        e_bring((T *)(void *)(s->shared + a->at_b1), (const T *)a->b1, a->b1 != 0 ? a->inner : 0);
        e_bring((T *)(void *)(s->shared + a->at_b2), (const T *)a->b2 + s->gate,
                a->b2 != 0 ? s->gates : 0);
    }
    e_together();
}

/* ---- pixels ---- */

/* Of the block's pixels a turn's end. */
K_FN int32_t e_turn(const e_share *s, int32_t turn) {
    return e_at_most(turn * s->turn, s->pixels);
}

/* Asks for all there are, in turns. */
K_FN void e_ask(const e_share *s, const T *x) {
    K_ONE_COPY
    for (int32_t turn = 0; turn < TURNS; turn++) {
        e_bring_slice(s, (T *)(void *)(s->shared + s->args->at_x), x, e_turn(s, turn),
                      e_turn(s, turn + 1));
        e_together();
    }
}

/* The block's pixels, in shared memory or where they are. */
K_FN e_matrix e_pixels(const e_share *s, const T *x) {
    const e_matrix kept = {(const T *)(const void *)(s->shared + s->args->at_x), s->args->slice};
    const e_matrix there = {x, s->args->channels};
    return s->args->keeps ? kept : there;
}

/* ---- squeeze ---- */

/* Sums over lanes of a warp with the same column: each gets those of some of its pack's elements,
 * half as many with each step. How many, and from which one on. */
K_FN int32_t e_fold(const e_share *s, c_sums *sums, int32_t *first) {
    int32_t left = K_PACK;
    *first = 0;
#if !K_HOST
    int32_t bit = 16;
    K_UNROLL
    for (int step = 0, half = K_PACK / 2; step < 5; step++, half /= 2, bit /= 2) {
        if (s->across > bit) {
            break;
        }
        const int upper = (threadIdx.x & (uint32_t)bit) != 0;
        if (half == 0) {
            sums->at[0] += __shfl_xor_sync(0xffffffffu, sums->at[0], bit);
            left = upper ? 0 : left; /* the other one has it, too */
            continue;
        }
        K_UNROLL
        for (int i = 0; i < half; i++) {
            const K_SUM kept = upper ? sums->at[half + i] : sums->at[i];
            const K_SUM given = upper ? sums->at[i] : sums->at[half + i];
            sums->at[i] = kept + __shfl_xor_sync(0xffffffffu, given, bit);
        }
        *first += upper ? half : 0;
        left = half;
    }
#else
    (void)s;
    (void)sums;
#endif
    return left;
}

/* The lanes below each other meet: `at` is the first channel of the slice that they have. */
K_FN void e_join(const e_share *s, int32_t at, c_sums sums) {
    const int32_t across = s->across, columns = across * K_PACK;
    const int32_t row = across < WARP ? (int32_t)threadIdx.x / WARP : s->row;
    const int32_t rows = across < WARP ? (int32_t)blockDim.x / WARP : s->below;
    float *mean = e_floats(s, s->args->at_mean) + at;
    K_SUM *all = (K_SUM *)(void *)(s->shared + s->args->at_sums);
    int32_t first;
    const int32_t count = e_fold(s, &sums, &first);
    K_SUM *mine = all + row * columns + s->column * K_PACK + first;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        if (i < count) {
            mine[i] = sums.at[i];
        }
    }
    __syncthreads();
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < columns && at + i < s->args->slice;
         i += (int32_t)blockDim.x) {
        K_SUM sum = 0;
        K_ONE_COPY
        for (int32_t r = 0; r < rows; r += FEW) {
            K_UNROLL
            for (int k = 0; k < FEW; k++) {
                sum += r + k < rows ? all[(r + k) * columns + i] : 0;
            }
        }
        mean[i] = (float)sum * s->args->share;
    }
    __syncthreads();
}

/* Sums of the lane's own pixels, which come in turns to shared memory. */
K_FN c_sums e_sum_kept(const e_share *s, int32_t column) {
    const T *kept = (const T *)(const void *)(s->shared + s->args->at_x) + column * K_PACK;
    c_sums sums = {{0}};
    int32_t row = s->row;
    K_ONE_COPY
    for (int32_t turn = 1; turn <= TURNS; turn++) {
        e_arrived(TURNS - turn);
        const int32_t end = column < s->packs ? e_turn(s, turn) : 0;
        K_ONE_COPY
        for (; row < end; row += s->below) {
            c_add(&sums, (const k_pack *)(const void *)(kept + row * s->args->slice));
        }
    }
    return sums;
}

K_FN void e_squeeze(const e_share *s, const T *x) {
    K_ONE_COPY
    for (int32_t c = 0; c * K_PACK < s->args->slice; c += s->across) {
        const int32_t column = c + s->column, line = s->args->channels;
        const int32_t end = column < s->packs ? s->pixels : 0;
        const c_sums sums = s->args->keeps
                                ? e_sum_kept(s, column)
                                : c_walk(x + column * K_PACK, line, s->row, end, s->below);
        e_arrived(0); /* weights, which all see once they have met */
        e_join(s, c * K_PACK, sums);
    }
}

/* ---- products ---- */

K_FN float e_bias(const T *bias, int32_t i) {
    return bias != 0 ? T_load(bias[i]) : 0;
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

/* Rows that groups of `width` lanes take, ROWS at once, each `groups` behind the last. */
typedef struct e_groups {
    int32_t lane, width, group, groups;
} e_groups;

K_FN e_groups e_groups_of(int32_t wanted) {
    const uint32_t width = K_HOST ? 1 : (uint32_t)wanted, shift = k_log2(width);
    const e_groups g = {(int32_t)(threadIdx.x & (width - 1)), (int32_t)width,
                        (int32_t)(threadIdx.x >> shift), (int32_t)(blockDim.x >> shift)};
    return g;
}

/* The row of weights that stands where there is none. */
K_FN const T *e_row(const e_matrix *w, const e_groups *g, int32_t round, int k, int32_t count) {
    const int32_t n = round + k * g->groups + g->group;
    return w->at + (int64_t)(n < count ? n : 0) * w->line;
}

/* Lane k of a group gets row k's. */
K_FN float e_dealt(const e_groups *g, const K_SUM *sum) {
    float mine = 0;
    K_UNROLL
    for (int k = 0; k < ROWS; k++) {
        const float all = (float)e_sum(sum[k], g->width);
        mine = g->lane == k ? all : mine;
    }
    return mine;
}

typedef struct K_ALIGN(16) e_means {
    float at[K_PACK];
} e_means;

/* What the block's means are for each of the squeezed numbers. */
K_FN void e_first(const e_share *s) {
    const mp_excite_args *a = s->args;
    const e_groups g = e_groups_of(a->width1);
    const e_matrix w = e_first_weights(s);
    const float *mean = e_floats(s, a->at_mean);
    float *mine = e_floats(s, a->at_mine);
    K_ONE_COPY
    for (int32_t round = 0; round < a->pitch; round += g.groups * ROWS) {
        K_SUM sum[ROWS] = {0};
        K_ONE_COPY
        for (int32_t c = g.lane * K_PACK; c < s->packs * K_PACK; c += g.width * K_PACK) {
            const e_means means = *(const e_means *)(const void *)(mean + c);
            k_pack pack[ROWS];
            K_UNROLL
            for (int k = 0; k < ROWS; k++) {
                pack[k].words = ((const k_pack *)(e_row(&w, &g, round, k, a->inner) + c))->words;
            }
            K_UNROLL
            for (int k = 0; k < ROWS; k++) {
                float value[K_PACK];
                K_UNROLL
                for (int i = 0; i < 4; i++) {
                    T_unpack(pack[k].words.at[i], value + i * K_WORD);
                }
                K_UNROLL
                for (int i = 0; i < K_PACK; i++) {
                    sum[k] += (K_SUM)value[i] * (K_SUM)means.at[i];
                }
            }
        }
        const float made = e_dealt(&g, sum);
        const int32_t n = round + g.lane * g.groups + g.group;
        if (g.lane < ROWS && n < a->pitch) {
            mine[n] = n < a->inner ? made : 0;
        }
    }
    __syncthreads();
}

/* Adds what all blocks have of the squeezed numbers. */
K_FN void e_total(const e_share *s) {
    const mp_excite_args *a = s->args;
    const e_groups g = e_groups_of(a->wide);
    const float *told = e_floats(s, a->at_told);
    const T *bias = e_first_bias(s);
    float *inner = e_floats(s, a->at_inner);
    K_ONE_COPY
    for (int32_t round = 0; round < a->inner; round += g.groups) {
        const int32_t n = round + g.group;
        K_SUM sum = 0;
        K_ONE_COPY
        for (int32_t b = g.lane; n < a->inner && b < a->told; b += g.width) {
            sum += (K_SUM)told[b * a->pitch + n];
        }
        sum = e_sum(sum, g.width);
        if (g.lane == 0 && n < a->inner) {
            inner[n] = e_activate(&a->squeezed, (float)sum + e_bias(bias, n));
        }
    }
    __syncthreads();
}

/* The gates of the slice, as they are in memory; or those of the block, to memory. */
K_FN void e_second(const e_share *s, int64_t image) {
    const mp_excite_args *a = s->args;
    const e_groups g = e_groups_of(a->width2);
    const e_matrix w = e_second_weights(s);
    const float *inner = e_floats(s, a->at_inner);
    const T *bias = e_second_bias(s);
    float *gate = e_floats(s, a->at_gate);
    T *out = (T *)a->out + image * a->gates + s->gate;
    K_ONE_COPY
    for (int32_t round = 0; round < s->gates; round += g.groups * ROWS) {
        K_SUM sum[ROWS] = {0};
        K_ONE_COPY
        for (int32_t i = g.lane; i < a->inner; i += g.width) {
            K_UNROLL
            for (int k = 0; k < ROWS; k++) {
                sum[k] += (K_SUM)T_load(e_row(&w, &g, round, k, s->gates)[i]) * (K_SUM)inner[i];
            }
        }
        const float made = e_dealt(&g, sum);
        const int32_t n = round + g.lane * g.groups + g.group;
        if (g.lane < ROWS && n < s->gates) {
            const T stored = T_store(e_activate(&a->gating, made + e_bias(bias, n)));
            if ((a->work & K_EXCITE_SCALE) != 0) {
                gate[n] = T_load(stored);
            } else {
                out[n] = stored;
            }
        }
    }
}

/* ---- the image times its gates ---- */

K_FN void e_scale_pack(T *to, const k_pack *pack, const float *gate, int adds) {
    k_pack made;
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        float value[K_WORD];
        T_unpack(pack->words.at[i], value);
        K_UNROLL
        for (int j = 0; j < K_WORD; j++) {
            const float product = value[j] * gate[i * K_WORD + j];
            value[j] = adds ? product + value[j] : product;
        }
        made.words.at[i] = T_repack(value);
    }
    ((k_pack *)(void *)to)->words = made.words;
}

K_FN void e_scale(const e_share *s, const T *x, T *out) {
    const mp_excite_args *a = s->args;
    const e_matrix pixels = e_pixels(s, x);
    const int adds = (a->work & K_EXCITE_ADD) != 0;
    K_ONE_COPY
    for (int32_t c = s->column; c < s->packs; c += s->across) {
        float gate[K_PACK];
        K_UNROLL
        for (int i = 0; i < K_PACK; i++) {
            gate[i] = e_floats(s, a->at_gate)[c * K_PACK + i];
        }
        K_ONE_COPY
        for (int32_t row = s->row; row < s->pixels; row += FEW * s->below) {
            k_pack pack[FEW];
            K_UNROLL
            for (int k = 0; k < FEW; k++) {
                const int32_t at = e_at_most(row + k * s->below, s->pixels - 1);
                pack[k].words =
                    ((const k_pack *)(pixels.at + (int64_t)at * pixels.line + c * K_PACK))->words;
            }
            K_UNROLL
            for (int k = 0; k < FEW; k++) {
                const int32_t at = row + k * s->below;
                if (at < s->pixels) {
                    e_scale_pack(out + (int64_t)at * a->channels + c * K_PACK, &pack[k], gate,
                                 adds);
                }
            }
        }
    }
}

/* ---- parts ---- */

/* All blocks get the block's own. */
K_FN void e_tell(const e_share *s) {
    const mp_excite_args *a = s->args;
    uint64_t *box = (uint64_t *)(void *)s->shared;
    const float *mine = e_floats(s, a->at_mine);
    float *told = e_floats(s, a->at_told) + s->me * a->pitch;
    if (!a->meets) {
        return; /* alone, it has them where they are told */
    }
    k_cluster_wait(); /* now all blocks are there */
    K_ONE_COPY
    for (int32_t b = (int32_t)threadIdx.x / WARP; b < a->blocks; b += (int32_t)blockDim.x / WARP) {
        K_ONE_COPY
        for (int32_t i = (int32_t)threadIdx.x % WARP * QUAD; i < a->pitch; i += WARP * QUAD) {
            k_box_send_four(box, told + i, b, mine + i);
        }
    }
    k_box_wait(box);
}

/* The launch before has left them in memory. */
K_FN void e_fetch(const e_share *s, const float *parts) {
    const mp_excite_args *a = s->args;
    float *told = e_floats(s, a->at_told);
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x * QUAD; i < a->told * a->pitch;
         i += (int32_t)blockDim.x * QUAD) {
        e_copy(told + i, parts + i);
    }
    e_together();
}

K_FN void e_leave(const e_share *s, float *parts) {
    const float *mine = e_floats(s, s->args->at_mine);
    K_ONE_COPY
    for (int32_t i = (int32_t)threadIdx.x; i < s->args->pitch; i += (int32_t)blockDim.x) {
        parts[s->me * s->args->pitch + i] = mine[i];
    }
}

/* ---- all ---- */

K_BLOCK_KERNEL_LATE_OF(K_EXCITE_LANES, 2, mp_excite_args, args) {
    K_SHARED(uint64_t, shared);
    const uint32_t image = blockIdx.x / (uint32_t)args.blocks;
    const e_share s = e_share_of(&args, shared, blockIdx.x - image * (uint32_t)args.blocks);
    const int64_t at = ((int64_t)image * args.pixels + s.pixel) * args.channels + s.channel;
    const T *x = (const T *)args.x + at;
    float *parts = args.parts + (int64_t)image * args.told * args.pitch;
    if (!args.constant) {
        k_wait();
    }
    e_bring_weights(&s);
    if (args.meets) {
        k_box_open(shared, (uint32_t)(args.told * args.pitch) * sizeof(float));
        k_cluster_begin();
    }
    k_wait();
    if ((args.work & K_EXCITE_SQUEEZE) == 0) {
        e_fetch(&s, parts);
    }
    if (args.keeps) {
        e_ask(&s, x);
    }
    if ((args.work & K_EXCITE_SQUEEZE) != 0) {
        e_squeeze(&s, x);
        e_first(&s);
    } else {
        e_arrived(args.keeps ? TURNS : 0);
        __syncthreads();
    }
    if ((args.work & K_EXCITE_GATES) == 0) {
        e_leave(&s, parts);
        return;
    }
    if ((args.work & K_EXCITE_SQUEEZE) != 0) {
        e_tell(&s);
    }
    e_total(&s);
    e_second(&s, image);
    if ((args.work & K_EXCITE_SCALE) != 0) {
        e_arrived(0);
        __syncthreads();
        e_scale(&s, x, (T *)args.out + at);
    }
}
