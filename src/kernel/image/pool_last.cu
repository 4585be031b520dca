/* pool_last.cu - the mean or the largest element of a window, with channels last. A lane makes a
 * pack of neighbouring channels of one output: it reads 16 bytes of each tap, and asks for up to
 * three by three taps at once. Where channels are no packs, or windows no squares of neighbours, it
 * makes one channel, tap by tap. A NaN in the window is its maximum.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/image/pool_window.h"

#define P_max  1
#define P_mean 2
#define P_OP   K_JOIN(P_, K_OP)

enum { SIDE = 3 }; /* of the taps that are on their way at once */

/* ---- of single elements and of packs: what nothing gives, one tap more, the result ---- */

#if P_OP == P_mean

typedef struct p_sums {
    TC at[K_PACK];
} p_sums;
typedef TC p_sum;

K_FN p_sum p_none(void) {
    return 0;
}

K_FN p_sum p_more(p_sum sum, T value) {
    return sum + T_load(value);
}

K_FN T p_result(p_sum sum, int64_t counted) {
    return T_store(counted > 0 ? sum / (TC)counted : (TC)0);
}

K_FN p_sums p_no_packs(void) {
    p_sums sums;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        sums.at[i] = 0;
    }
    return sums;
}

K_FN k_pack p_no_tap(void) {
    k_pack pack;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        pack.at[i] = T_store((TC)0);
    }
    return pack;
}

K_FN void p_add(p_sums *sums, const k_pack *pack) {
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        sums->at[i] += T_load(pack->at[i]);
    }
}

K_FN k_pack p_pack(const p_sums *sums, int64_t counted) {
    k_pack pack;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        pack.at[i] = p_result(sums->at[i], counted);
    }
    return pack;
}

#else

/* Types that have an instruction which takes the larger of each element of a word, or a NaN. */
#define P_WORD_f16  "max.NaN.f16x2"
#define P_WORD_bf16 "max.NaN.bf16x2"
#define P_WORD_f32  "max.NaN.f32"
#define P_HAS_f64   0
#define P_HAS_f32   1
#define P_HAS_f16   1
#define P_HAS_bf16  1
#define P_HAS_i8    0
#define P_HAS_u8    0
#if K_HOST
#define P_BY_WORDS 0
#else
#define P_BY_WORDS (K_JOIN(P_HAS_, K_T0) && __CUDA_ARCH__ >= 800)
#endif

typedef k_pack p_sums;
typedef T p_sum;

K_FN p_sum p_none(void) {
#if T_FLOAT
    return T_store(-(TC)K_INF);
#else
    return T_store((TC)(T_SIGNED ? (uint64_t)-1 << (sizeof(T) * 8 - 1) : 0));
#endif
}

K_FN p_sum p_more(p_sum most, T value) {
    const TC a = T_load(most), b = T_load(value);
#if T_FLOAT
    return T_store(a != a || b != b ? (TC)K_NAN : a > b ? a : b);
#else
    return T_store(a > b ? a : b);
#endif
}

K_FN T p_result(p_sum most, int64_t counted) {
    (void)counted;
    return most;
}

K_FN p_sums p_no_packs(void) {
    k_pack pack;
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        pack.at[i] = p_none();
    }
    return pack;
}

K_FN k_pack p_no_tap(void) {
    return p_no_packs();
}

K_FN void p_add(p_sums *most, const k_pack *pack) {
#if P_BY_WORDS
    K_UNROLL
    for (int i = 0; i < 4; i++) {
        asm(K_JOIN(P_WORD_, K_T0) " %0, %0, %1;"
            : "+r"(most->words.at[i])
            : "r"(pack->words.at[i]));
    }
#else
    K_UNROLL
    for (int i = 0; i < K_PACK; i++) {
        most->at[i] = p_more(most->at[i], pack->at[i]);
    }
#endif
}

K_FN k_pack p_pack(const p_sums *most, int64_t counted) {
    (void)counted;
    return *most;
}

#endif

/* ---- the window ---- */

/* ---- packs: a window of neighbours in a plane; packs, and elements of some lines, are less than
 * 2^31 ---- */

/* Along one dimension: the first tap, how many there are, and how many count. */
typedef struct p_side {
    int32_t first, taps, counted;
} p_side;

K_FN p_side p_side_of(const mp_pool_args *args, int32_t d, uint32_t output) {
    const int32_t start = (int32_t)output * args->stride[d] - args->pad_begin[d];
    const int32_t behind = args->in[d] - start, padded = behind + args->pad_end[d];
    const int32_t size = args->kernel[d], last = size < behind ? size : behind;
    p_side side;
    side.first = start < 0 ? 0 : start;
    side.taps = last - (side.first - start);
    side.counted = !args->include_pad ? side.taps : size < padded ? size : padded;
    return side;
}

/* Up to SIDE x SIDE taps from the one at x on; those that there are not change nothing. */
K_FN void p_some(const mp_pool_args *args, const T *x, int32_t rows, int32_t columns,
                 p_sums *sums) {
    const int32_t pixel = (int32_t)args->x_pitch, line = args->in[2] * pixel;
    k_pack pack[SIDE][SIDE];
    K_UNROLL
    for (int32_t b = 0; b < SIDE; b++) {
        K_UNROLL
        for (int32_t c = 0; c < SIDE; c++) {
            pack[b][c].words = p_no_tap().words;
            if (b < rows && c < columns) {
                pack[b][c].words = ((const k_pack *)(x + (b * line + c * pixel)))->words;
            }
        }
    }
    K_UNROLL
    for (int32_t b = 0; b < SIDE; b++) {
        K_UNROLL
        for (int32_t c = 0; c < SIDE; c++) {
            p_add(sums, &pack[b][c]);
        }
    }
}

K_FN void p_make_pack(const mp_pool_args *args, uint32_t i) {
    const uint32_t point = k_divide(i, args->by_channels);
    const uint32_t row = k_divide(point, args->divider[2]), image = k_divide(row, args->divider[1]);
    const uint32_t packs = (uint32_t)args->channels / K_PACK;
    const p_side rows = p_side_of(args, 1, row - image * (uint32_t)args->out_dim[1]);
    const p_side columns = p_side_of(args, 2, point - row * (uint32_t)args->out_dim[2]);
    const int64_t line = image * (int64_t)args->in[1] + rows.first;
    const int64_t pixel = line * args->in[2] + columns.first;
    const uint32_t channel = (i - point * packs) * K_PACK;
    const T *x = (const T *)args->x + pixel * args->x_pitch + channel;
    p_sums sums = p_no_packs();
    K_ONE_COPY
    for (int32_t b = 0; b < rows.taps; b += SIDE) {
        K_ONE_COPY
        for (int32_t c = 0; c < columns.taps; c += SIDE) {
            const T *from = x + ((int64_t)b * args->in[2] + c) * args->x_pitch;
            p_some(args, from, rows.taps - b, columns.taps - c, &sums);
        }
    }
    T *out = (T *)args->out + point * args->out_pitch + channel;
    *(k_pack *)out = p_pack(&sums, (int64_t)rows.counted * columns.counted);
}

/* ---- one channel, any window ---- */

K_FN void p_make_one(const mp_pool_args *args, int64_t i) {
    int32_t place[K_POOL_DIMS];
    p_span span[K_POOL_DIMS];
    int64_t counted = 1;
    const int64_t point =
        args->wide ? i / args->channels : (int64_t)k_divide((uint32_t)i, args->by_channels);
    const int64_t image = p_place(args, point, place) * args->plane;
    const int64_t channel = i - point * args->channels;
    const T *x = (const T *)args->x + image * args->x_pitch + channel;
    for (int32_t d = 0; d < K_POOL_DIMS; d++) {
        span[d] = p_window(args, d, place[d]);
        counted *= args->include_pad ? span[d].padded : span[d].taps;
    }
    p_sum sum = p_none();
    K_ONE_COPY
    for (int32_t a = 0; a < span[0].taps; a++) {
        K_ONE_COPY
        for (int32_t b = 0; b < span[1].taps; b++) {
            const int64_t first = p_line(args, span, a, b);
            K_ONE_COPY
            for (int32_t c = 0; c < span[2].taps; c++) {
                sum = p_more(sum, x[(first + c * args->dilation[2]) * args->x_pitch]);
            }
        }
    }
    ((T *)args->out)[point * args->out_pitch + channel] = p_result(sum, counted);
}

K_KERNEL_IN_80(256, mp_pool_args, args) {
    if (args.packed) {
        K_GRID_LOOP(i, args.count / K_PACK) {
            p_make_pack(&args, (uint32_t)i);
        }
    } else {
        K_GRID_LOOP(i, args.count) {
            p_make_one(&args, i);
        }
    }
}
