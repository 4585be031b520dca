/* concat_split.cu - tensors side by side in a larger one, or out of it again, in one launch: the
 * walk goes through the parts one after the other. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

K_KERNEL(mp_concat_split_args, args) {
    T *whole = (T *)args.whole;
    K_GRID_LOOP(i, args.count) {
        int32_t k = 0;
        for (int32_t step = args.stride; step > 0; step /= 2) {
            k += k + step < args.parts && args.part[k + step].start <= i ? step : 0;
        }
        const k_part *part = &args.part[k];
        const int64_t at = i - part->start;
        const int64_t row = args.wide ? at / part->width : k_divide((uint32_t)at, part->divider);
        const int64_t column = at - row * part->width;
        T *to = whole + row * args.width + part->column + column;
        T *own = (T *)part->data + row * part->pitch + column;
        if (!args.is_split) {
            *to = *own;
        } else if (part->data != 0) {
            *own = *to;
        }
    }
}
