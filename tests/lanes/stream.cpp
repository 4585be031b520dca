/* stream.cpp - element-wise kernels as a GPU walks: each pack once, whatever blocks there are.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise1.cu"
#include "lanes.h"

namespace {

void check_stream(int64_t count, unsigned blocks, size_t skew) {
    Buffer<T> x((size_t)count + 1, skew);
    for (int64_t i = 0; i <= count; i++) {
        x[(size_t)i] = (T)(i % 100);
    }
    mp_pointwise1_args args = {};
    args.x = x.data();
    args.out = x.data(); /* a pack that is visited twice would be seen */
    args.count = count;
    run_blocks(blocks, 32, [&] { pointwise(args); });
    for (int64_t i = 0; i <= count; i++) {
        check(x[(size_t)i] == (T)(i % 100 + (i < count)), "an element", i);
    }
}

} // namespace

void run_tests() {
    for (unsigned blocks = 1; blocks < 6; blocks++) {
        for (int64_t count = 1; count < 7000; count = count * 3 + blocks) {
            check_stream(count, blocks, 0);
        }
        check_stream(900, blocks, 1);
        check_stream((int64_t)(32 * 2 * 16 / sizeof(T)) * blocks, blocks, 0);
    }
}
