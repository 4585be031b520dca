/* decode_cut.h - how blocks of attention_decode.cu share heads and keys, and what they have found
 * where they meet nowhere. Included behind the text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_LANES_DECODE_CUT_H
#define MP_TESTS_LANES_DECODE_CUT_H

#include "divider.h"

inline void set_decode_cut(mp_attention_args &args, int kv_heads, int group, int rows, int splits,
                           bool meets) {
    args.head_size = args.v_head_size = HEAD;
    args.splits = splits;
    args.row_blocks = (group * rows + K_DECODE_ROWS - 1) / K_DECODE_ROWS;
    for (args.meet_log = 0; meets && 1 << args.meet_log < splits;) {
        args.meet_log++;
    }
    args.by_splits = divider(splits);
    args.by_row_blocks = divider(args.row_blocks);
    args.by_kv_heads = divider(kv_heads);
    args.by_rows = divider(rows);
}

/* Element `d` of a line, as attention_combine.cu adds it up. */
inline double decode_combined(const float *part, size_t line, int splits, int d) {
    const size_t pitch = HEAD + K_ATTENTION_STATE;
    double top = -INFINITY, all = 0, sum = 0;
    for (int i = 0; i < splits; i++) {
        top = std::max(top, (double)part[(line * (size_t)splits + (size_t)i) * pitch]);
    }
    for (int i = 0; i < splits; i++) {
        const float *one = part + (line * (size_t)splits + (size_t)i) * pitch;
        const double share = one[1] == 0 ? 0 : exp(one[0] - top);
        all += share * one[1];
        sum += share * one[K_ATTENTION_STATE + d];
    }
    return all == 0 ? 0 : sum / all;
}

/* Of T. */
inline double precision() {
    return T_load(T_store(1 + 1.0F / 256)) == 1 ? 1.0 / 128 : 1.0 / 1024;
}

#endif
