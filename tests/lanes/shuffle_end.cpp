/* shuffle_end.cpp - the end of a unit of ShuffleNet, whose lanes share sums of a product.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/linear/shuffle_end.cu"
#include "lanes.h"

namespace {

uint32_t divisor_shift(uint32_t divisor) {
    uint32_t shift = 0;
    while ((1u << shift) < divisor) {
        shift++;
    }
    return shift;
}

k_divider by(int32_t divisor) {
    const uint32_t shift = divisor_shift((uint32_t)divisor);
    const uint64_t excess = ((uint64_t)1 << shift) - (uint64_t)divisor;
    return {(uint32_t)(((uint64_t)1 << 32) * excess / (uint64_t)divisor + 1), shift};
}

/* An image of height x width by windows with a border of one pixel, in steps of `stride`. */
void check_end(int32_t height, int32_t width, int32_t channels, int32_t columns, int32_t stride,
               int32_t columns_log, int32_t first_pairs) {
    const int32_t rows = (height - 1) / stride + 1, across = (width - 1) / stride + 1;
    const int32_t pixels = rows * across;
    Buffer<float> x((size_t)(height * width * channels)), even((size_t)(pixels * columns));
    Buffer<float> taps((size_t)(ROWS * channels)), matrix((size_t)(channels * columns));
    Buffer<float> bias((size_t)columns), out((size_t)(2 * pixels * columns));
    fill_with(x, height * width * channels, small_number);
    fill_with(even, pixels * columns, small_number);
    fill_with(taps, ROWS * channels, small_number);
    fill_with(matrix, channels * columns, small_number);
    fill_with(bias, columns, small_number);
    mp_shuffle_end_args args = {};
    args.x = x.data();
    args.even = even.data();
    args.taps = taps.data();
    args.matrix = matrix.data();
    args.bias = bias.data();
    args.first = out.data();
    args.second = out.data() + 2 * pixels * first_pairs;
    args.height = height;
    args.width = width;
    args.channels = channels;
    args.columns = columns;
    args.out_height = rows;
    args.out_width = across;
    args.pixels = pixels;
    args.stride[0] = args.stride[1] = stride;
    args.pad[0] = args.pad[1] = 1;
    args.first_pairs = first_pairs;
    args.columns_log = columns_log;
    args.column_tiles = ((columns - 1) >> columns_log) + 1;
    args.constant = 1;
    args.in_pairs = 1;
    args.by_packs = by(channels / K_EACH);
    args.by_width = by(across);
    args.by_height = by(rows);
    args.by_tiles = by(args.column_tiles);
    const int32_t tiles = (pixels - 1) / PIXELS + 1;
    run_blocks((unsigned)(tiles * args.column_tiles), LANES, [&] { shuffle_end(args); });
    for (int32_t p = 0; p < pixels; p++) {
        for (int32_t n = 0; n < columns; n++) {
            double sum = bias[(size_t)n];
            for (int32_t k = 0; k < channels; k++) {
                double made = taps[(size_t)(TAPS * channels + k)];
                for (int32_t t = 0; t < TAPS; t++) {
                    const int32_t r = p / across * stride - 1 + t / SIDE;
                    const int32_t c = p % across * stride - 1 + t % SIDE;
                    if (r >= 0 && r < height && c >= 0 && c < width) {
                        made += (double)x[(size_t)((r * width + c) * channels + k)] *
                                taps[(size_t)(t * channels + k)];
                    }
                }
                sum += made * matrix[(size_t)(k * columns + n)];
            }
            const int32_t behind = n - first_pairs;
            const float *pair =
                behind < 0 ? out.data() + 2 * (p * first_pairs + n)
                           : out.data() +
                                 2 * (pixels * first_pairs + p * (columns - first_pairs) + behind);
            check(pair[0] == even[(size_t)(p * columns + n)], "an element of the other half",
                  p * columns + n);
            check(std::fabs(pair[1] - (sum > 0 ? sum : 0)) <= 1e-4, "a sum", p * columns + n);
        }
    }
}

} // namespace

void run_tests() {
    check_end(5, 4, 2 * K_EACH, 6, 1, 4, 3);
    check_end(3, 7, 60, 58, 1, 6, 29);
    check_end(6, 5, 116, 116, 2, 5, 58);
    check_end(2, 3, 232, 40, 1, 4, 40);
}
