/* nms_write.cu - what each list has selected, one list behind the other.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/image/window_args.h"

K_KERNEL(mp_nms_args, args) {
    K_GRID_LOOP(i, args.lists * args.most) {
        const int64_t list = i / args.most, nth = i % args.most;
        const int64_t start = args.starts[list];
        const int64_t end = list + 1 < args.lists ? args.starts[list + 1] : args.found;
        const int64_t at = start + nth;
        if (at < end && at < args.found) {
            args.out[at * 3] = list / args.classes;
            args.out[at * 3 + 1] = list % args.classes;
            args.out[at * 3 + 2] = args.picked[i];
        }
    }
}
