/* pad_channels.cu - images with few channels, whose channels come first, as pixels of 16 bytes: the
 * channels, and zeros behind them. A lane makes a pixel; neighbours read neighbours.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

enum { WIDTH = K_PIXEL_BYTES / sizeof(T) };
typedef struct K_ALIGN(K_PIXEL_BYTES) pixel {
    T channel[WIDTH];
} pixel;

K_FN void write_pixel(T *out, pixel made) {
    if ((uint64_t)out % sizeof(pixel) == 0) {
        *(pixel *)out = made;
        return;
    }
    for (int32_t c = 0; c < WIDTH; c++) {
        out[c] = made.channel[c];
    }
}

K_KERNEL(mp_pad_channels_args, args) {
    const T *__restrict__ x = (const T *)args.x;
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        int64_t at = 0;
        pixel made;
        k_offsets(&args.layout, i, 1, &at);
        for (int32_t c = 0; c < WIDTH; c++) {
            made.channel[c] = c < args.channels ? x[at + c * args.stride] : (T)0;
        }
        write_pixel(out + i * WIDTH, made);
    }
}
