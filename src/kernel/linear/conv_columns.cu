/* conv_columns.cu - for each output of a convolution and each tap what the tap reads of the image,
 * 0 beyond it: what the weights are multiplied by. Neighbouring lanes have neighbouring outputs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/prelude.h"
#include "kernel/linear/linear_args.h"

/* Where in a plane of the image the tap of an output lies; -1 for beyond it. */
K_FN int64_t c_place(const mp_columns_args *a, uint32_t tap, uint32_t output) {
    int64_t place = 0, size = 1;
    for (int32_t d = K_COLUMNS_RANK - 1; d >= 0; d--) {
        const uint32_t tap_out = k_divide(tap, a->by_kernel[d]);
        const uint32_t output_out = k_divide(output, a->by_out[d]);
        const int64_t k = tap - tap_out * (uint32_t)a->kernel[d];
        const int64_t y = output - output_out * (uint32_t)a->out[d];
        const int64_t x = y * a->stride[d] + k * a->dilation[d] - a->pad[d];
        if (x < 0 || x >= a->in[d]) {
            return -1;
        }
        place += x * size;
        size *= a->in[d];
        tap = tap_out;
        output = output_out;
    }
    return place;
}

K_KERNEL(mp_columns_args, args) {
    K_GRID_LOOP(i, args.count) {
        const uint32_t row = k_divide((uint32_t)i, args.by_outputs);
        const uint32_t output = (uint32_t)i - row * (uint32_t)args.outputs;
        const uint32_t plane = k_divide(row, args.by_taps);
        const uint32_t tap = row - plane * (uint32_t)args.taps;
        const int64_t at = c_place(&args, tap, output + (uint32_t)args.first);
        const T none = {0};
        ((T *)args.columns)[i] = at < 0 ? none : ((const T *)args.x)[plane * args.in_plane + at];
    }
}
