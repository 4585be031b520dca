/* ordered.cu - elements of matrices in another order, as bytes or as floats. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/ordered.h"

K_KERNEL(mp_ordered_args, args) {
    const int64_t size = args.rows * args.columns;
    const float x_scale = o_scale(args.x_scale), add_scale = o_scale(args.add_scale);
    const float out_scale = o_scale(args.out_scale);
    K_GRID_LOOP(i, args.count) {
        const int64_t matrix = i / size, row = (i - matrix * size) / args.columns;
        const int64_t column = i - matrix * size - row * args.columns;
        const int64_t from =
            matrix * size + o_place(args.x_order, args.rows, args.columns, row, column);
        const int64_t to =
            matrix * size + o_place(args.out_order, args.rows, args.columns, row, column);
        float x = args.x_bytes ? (float)((const int8_t *)args.x)[from]
                               : T_load(((const T *)args.x)[from]);
        x *= x_scale;
        if (args.add) {
            const int64_t at = matrix * args.add_step +
                               o_place(args.add_order, args.rows, args.columns, row, column);
            x += (float)((const int8_t *)args.add)[at] * add_scale;
        }
        x = args.gelu ? 0.5f * x * (1.0f + erff(x * 0.7071067811865476f)) : x;
        if (args.out_bytes) {
            ((int8_t *)args.out)[to] = o_byte(x / out_scale);
        } else {
            ((T *)args.out)[to] = T_store(x / out_scale);
        }
    }
}
