/* conv_apart.cu - the image of a transposed convolution whose windows lie side by side, out of the
 * product of x and the weights: [plane][tap_h][tap_w][in_h][in_w] becomes
 * [plane][in_h][tap_h][in_w][tap_w], with the bias. A lane moves PACK neighbours of each of the
 * K_WIDE taps of a row, which lie side by side then.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/linear/linear_args.h"

#if !T_DOUBLE /* which are moved one by one: the taps of a row are 16 bytes of them already */
#include "kernel/core/word.h"

enum { PACK = K_APART_BYTES / sizeof(T), WORDS = K_APART_BYTES / 4 };

typedef struct K_ALIGN(K_APART_BYTES) a_pack {
    uint32_t word[WORDS];
} a_pack;
#endif

/* Where a lane reads and writes. */
typedef struct a_place {
    int64_t from, to; /* of the first tap; the taps of a row lie in_plane apart */
    uint32_t channel;
} a_place;

/* `unit` counts elements, or packs, which no two rows share. */
K_FN a_place a_find(const mp_apart_args *a, uint32_t unit, int32_t each) {
    a_place p;
    const uint32_t row = k_divide(unit, a->by_units); /* of taps, of all planes */
    const uint32_t within = unit - row * (uint32_t)a->units;
    const uint32_t plane = k_divide(row, a->by_tap_rows);
    const uint32_t y = k_divide(within, a->by_across);
    const int64_t tap = row - plane * (uint32_t)a->tap_rows;
    const int64_t x = (int64_t)(within - y * (uint32_t)a->across) * each;
    const int64_t line = ((int64_t)plane * a->in_h + y) * a->tap_rows + tap;
    p.from = (int64_t)row * K_WIDE * a->in_plane + (int64_t)within * each;
    p.to = (line * a->in_w + x) * K_WIDE;
    p.channel = plane - k_divide(plane, a->by_channels) * (uint32_t)a->channels;
    return p;
}

#if !T_DOUBLE
K_FN void a_move_pack(const mp_apart_args *a, const a_place *p) {
    a_pack in[K_WIDE], out[K_WIDE];
    float value[K_WIDE * PACK];
    const T *bias = (const T *)a->bias;
    K_UNROLL
    for (int32_t b = 0; b < K_WIDE; b++) {
        in[b] = *(const a_pack *)((const T *)a->product + p->from + b * a->in_plane);
    }
    const float more = bias != 0 ? T_load(bias[p->channel]) : 0;
    K_UNROLL
    for (int32_t b = 0; b < K_WIDE; b++) {
        K_UNROLL
        for (int32_t w = 0; w < WORDS; w++) {
            float two[K_WORD];
            T_unpack(in[b].word[w], two);
            K_UNROLL
            for (int32_t e = 0; e < K_WORD; e++) {
                value[(w * K_WORD + e) * K_WIDE + b] = bias != 0 ? two[e] + more : two[e];
            }
        }
    }
    K_UNROLL
    for (int32_t w = 0; w < K_WIDE * WORDS; w++) {
        out[w / WORDS].word[w % WORDS] = T_repack(value + w * K_WORD);
    }
    K_UNROLL
    for (int32_t b = 0; b < K_WIDE; b++) {
        ((a_pack *)((T *)a->y + p->to))[b] = out[b];
    }
}
#endif

K_FN void a_move_one(const mp_apart_args *a, const a_place *p) {
    const T *from = (const T *)a->product + p->from;
    const T *bias = (const T *)a->bias;
    K_UNROLL
    for (int32_t b = 0; b < K_WIDE; b++) {
        const TC x = T_load(from[b * a->in_plane]);
        ((T *)a->y)[p->to + b] = T_store(bias != 0 ? x + T_load(bias[p->channel]) : x);
    }
}

K_KERNEL(mp_apart_args, args) {
#if !T_DOUBLE
    if (args.packed) {
        K_GRID_LOOP(i, args.count) {
            const a_place p = a_find(&args, (uint32_t)i, PACK);
            a_move_pack(&args, &p);
        }
        return;
    }
#endif
    K_GRID_LOOP(i, args.count) {
        const a_place p = a_find(&args, (uint32_t)i, 1);
        a_move_one(&args, &p);
    }
}
