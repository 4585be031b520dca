/* excite.cpp - gates of channels by one block and by those of a cluster, some of which have no
 * channel, no row of the weights, or no pixel.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "cluster.h"
#include "lanes.h"

#include "kernel/linear/squeeze_excite.cu"

namespace {

struct Subject {
    int32_t images, pixels, channels, inner, gates, blocks, beside, width;
    bool held;
};

enum { LANES_OF_BLOCK = 64 };

Buffer<T> numbers(int32_t count) {
    Buffer<T> made((size_t)count);
    for (int32_t i = 0; i < count; i++) {
        made[(size_t)i] = T_store((float)((int)(next_random() % 65) - 32) / 64);
    }
    return made;
}

int32_t parts(int32_t all, int32_t blocks) {
    return (all + blocks - 1) / blocks;
}

void check_gates(const Subject &s) {
    Buffer<T> x = numbers(s.images * s.pixels * s.channels), w1 = numbers(s.inner * s.channels),
              b1 = numbers(s.inner), w2 = numbers(s.gates * s.inner), b2 = numbers(s.gates),
              out((size_t)(s.images * s.gates));
    mp_excite_args args = {};
    args.x = x.data();
    args.w1 = w1.data();
    args.b1 = b1.data();
    args.w2 = w2.data();
    args.b2 = b2.data();
    args.out = out.data();
    args.pixels = s.pixels;
    args.channels = s.channels;
    args.inner = s.inner;
    args.gates = s.gates;
    args.blocks = s.blocks;
    args.piece = parts(s.pixels, s.blocks);
    args.slice = parts(s.channels, s.blocks);
    args.rows1 = parts(s.inner, s.blocks);
    args.rows2 = parts(parts(s.gates, s.blocks), K_PACK) * K_PACK;
    args.beside = s.beside;
    args.width = s.width;
    args.held = s.held;
    args.constant = s.held;
    args.squeezed.kind = K_ACTIVATE_RELU;
    args.gating.kind = K_ACTIVATE_SIGMOID;
    run_blocks((unsigned)(s.images * s.blocks), LANES_OF_BLOCK, [&] { squeeze_excite(args); },
               (unsigned)s.blocks);
    for (int32_t image = 0; image < s.images; image++) {
        std::vector<double> inner((size_t)s.inner);
        for (int32_t k = 0; k < s.inner; k++) {
            double sum = T_load(b1[(size_t)k]);
            for (int32_t c = 0; c < s.channels; c++) {
                double all = 0;
                for (int32_t p = 0; p < s.pixels; p++) {
                    all += T_load(x[(size_t)((image * s.pixels + p) * s.channels + c)]);
                }
                sum += all / s.pixels * T_load(w1[(size_t)(k * s.channels + c)]);
            }
            inner[(size_t)k] = sum < 0 ? 0 : sum;
        }
        for (int32_t n = 0; n < s.gates; n++) {
            double sum = T_load(b2[(size_t)n]);
            for (int32_t k = 0; k < s.inner; k++) {
                sum += inner[(size_t)k] * T_load(w2[(size_t)(n * s.inner + k)]);
            }
            const double off = T_load(out[(size_t)(image * s.gates + n)]) - 1 / (1 + exp(-sum));
            check(fabs(off) < (sizeof(T) == 4 ? 1e-6 : 1e-2), "a gate", image * s.gates + n);
        }
    }
}

} // namespace

void run_tests() {
    check_gates({2, 7, 24, 6, 24, 1, 8, 4, true});
    check_gates({1, 40, 24, 6, 24, 8, 8, 4, true});
    check_gates({2, 19, 72, 11, 30, 4, 32, 8, true});
    check_gates({1, 3, 40, 5, 9, 4, 16, 4, false});
    check_gates({1, 130, 8, 3, 70, 2, 2, 4, true});
    check_gates({1, 9, 528, 33, 8, 2, 64, 32, true});
}
