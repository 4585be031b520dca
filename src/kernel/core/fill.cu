/* fill.cu - one value for each element, of a width that the device's own fill lacks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/core/upload_args.h"

K_KERNEL(mp_fill_args, args) {
    T *out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        out[i] = args.value;
    }
}
