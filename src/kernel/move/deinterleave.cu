/* deinterleave.cu - takes apart what lies in turns in x: of K_BY elements side by side each goes to
 * a plane of its own, where those of one plane are neighbours.
 *
 *     x: a0 b0 a1 b1 a2 b2 ..    out: a0 a1 a2 ..   and   b0 b1 b2 ..
 *
 * A lane reads K_BY packs of 16 bytes side by side and writes one to each plane, so that both sides
 * are read and written once and in whole packs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

enum { PACK = K_DEINTERLEAVE_PACK(sizeof(T)) };

typedef struct K_ALIGN(16) pack {
    T at[PACK];
} pack;

/* Every K_BY-th element, from number `plane` on. */
K_FN pack pick(const pack *in, int plane) {
    pack made;
    K_UNROLL
    for (int i = 0; i < PACK; i++) {
        const int from = i * K_BY + plane;
        made.at[i] = in[from / PACK].at[from % PACK];
    }
    return made;
}

K_KERNEL(mp_deinterleave_args, args) {
    K_GRID_LOOP(i, args.count) {
        int64_t at[2];
        k_offsets_narrow(&args.packs, (uint32_t)i, 2, at);
        const pack *from = (const pack *)((const T *)args.x + at[0]);
        T *to = (T *)args.out + at[1];
        pack in[K_BY];
        K_UNROLL
        for (int k = 0; k < K_BY; k++) {
            in[k] = from[k];
        }
        K_UNROLL
        for (int k = 0; k < K_BY; k++) {
            *(pack *)(to + k * args.plane) = pick(in, k);
        }
    }
}
