/* shuffle_parts.cu - channels of tensors side by side, taken from groups in turns, and cut again
 * into tensors, in one launch: each element is read where it lies and written where it belongs.
 *
 *     parts: a0 a1 a2 | b0 b1 b2    of two groups: a0 b0 a1 | b1 a2 b2
 *
 * Neighbouring lanes write neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

/* Where an element is read. */
typedef struct source {
    int64_t row, channel, at;
} source;

K_FN source find_narrow(const mp_shuffle_parts_args *a, const k_shuffle_out *out, uint32_t n) {
    const uint32_t row = k_divide(n, out->divider), rest = n - row * (uint32_t)out->width;
    const uint32_t channel = k_divide(rest, a->by_inner), of = (uint32_t)out->first + channel;
    const uint32_t turn = k_divide(of, a->by_groups);
    source s;
    s.row = row;
    s.channel = (of - turn * (uint32_t)a->groups) * (uint32_t)a->size + turn;
    s.at = rest - channel * (uint32_t)a->inner;
    return s;
}

K_FN source find_wide(const mp_shuffle_parts_args *a, const k_shuffle_out *out, int64_t n) {
    source s;
    s.row = n / out->width;
    const int64_t rest = n - s.row * out->width, channel = rest / a->inner;
    const int64_t of = out->first + channel, turn = of / a->groups;
    s.channel = (of - turn * a->groups) * a->size + turn;
    s.at = rest - channel * a->inner;
    return s;
}

K_KERNEL(mp_shuffle_parts_args, args) {
    K_GRID_LOOP(i, args.count) {
        int32_t k = 0, p = 0;
        K_ONE_COPY
        for (int32_t n = 1; n < args.outs; n++) {
            k += args.out[n].start <= i;
        }
        const k_shuffle_out *out = &args.out[k];
        const int64_t n = i - out->start;
        const source s =
            args.wide ? find_wide(&args, out, n) : find_narrow(&args, out, (uint32_t)n);
        K_ONE_COPY
        for (int32_t m = 1; m < args.parts; m++) {
            p += args.part[m].first <= s.channel;
        }
        const k_shuffle_part *part = &args.part[p];
        const int64_t row = s.row * part->channels + (s.channel - part->first);
        ((T *)out->data)[n] = ((const T *)part->data)[row * args.inner + s.at];
    }
}
