/* quantize.cpp - integers of one scale as a GPU makes them, beside what a division gives.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/quantize/quantize.cu"
#include "lanes.h"

namespace {

enum { LANES = 32 };

/* Halves, which rounding decides, and their neighbours; numbers that are too large, and none. */
float number_of(int64_t i, float scale) {
    const float half = ((float)(int)(next_random() % 600) - 300.5f) * scale;
    const float few[] = {0, -0.0f, K_INF, -K_INF, K_NAN, 1e30f, -1e30f, 1e-42f};
    if (i % 16 == 0) {
        return few[i / 16 % 8];
    }
    return k_float_of_bits(k_bits_of_float(half) + next_random() % 3 - 1);
}

void check_type(int32_t kind, int32_t width, int32_t low, int32_t high, float scale, int32_t zero) {
    const int64_t count = 1027;
    Buffer<T> x(count);
    Buffer<uint8_t> out(2 * count), point(4);
    for (int64_t i = 0; i < count; i++) {
        x[(size_t)i] = T_store(number_of(i, scale));
    }
    memcpy(point.data(), &zero, sizeof zero); /* the first byte, or two */
    mp_quantize_args args = {};
    args.x = x.data();
    args.scale = &scale;
    args.zero = point.data();
    args.out = out.data();
    args.count = count;
    args.scale_type = K_SCALE_F32;
    args.type.kind = kind;
    args.type.width = width;
    args.type.low = low;
    args.type.high = high;
    args.scales.shared = K_SCALES_SINGLE;
    run_blocks(3, LANES, [&] { quantize(args); });
    for (int64_t i = 0; i < count; i++) {
        const uint32_t wanted = q_quantize(&args.type, T_load(x[(size_t)i]), scale, zero);
        const uint32_t mask = width == 8 ? 255u : 0xffffu;
        check(n_load(out.data(), width, i) == (wanted & mask), "an element", i);
    }
}

} // namespace

void run_tests() {
    for (float scale : {0.1f, 1.0f, -0.037f, 0x1.fffffep-5f, 1e-35f, 1e30f}) {
        check_type(K_NARROW_SIGNED, 8, -128, 127, scale, 0);
        check_type(K_NARROW_SIGNED, 8, -128, 127, scale, -7);
        check_type(K_NARROW_UNSIGNED, 8, 0, 255, scale, 130);
        check_type(K_NARROW_SIGNED, 16, -32768, 32767, scale, 1000);
        check_type(K_NARROW_UNSIGNED, 16, 0, 65535, scale, 65535);
    }
}
