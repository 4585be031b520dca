/* excite.cpp - gates of channels, and images times these, by one block, by those of a cluster and
 * by two launches; some blocks have no channel, no row of the weights, or no pixel.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "cluster.h"
#include "lanes.h"

#include "kernel/linear/squeeze_excite.cu"

extern "C" {
#include "op/linear/squeeze_excite_cut.h"
}

namespace {

enum { LANES_OF_BLOCK = 64, APART = 0 };

struct Subject {
    int32_t images, pixels, channels, inner, gates;
    int32_t work;   /* K_EXCITE_SCALE, K_EXCITE_ADD */
    int32_t blocks; /* of a cluster; APART */
    int64_t shared_max;
};

struct Data {
    Buffer<T> x, w1, b1, w2, b2, out;
    Buffer<float> parts;
};

Buffer<T> numbers(int32_t count) {
    Buffer<T> made((size_t)count);
    for (int32_t i = 0; i < count; i++) {
        made[(size_t)i] = T_store((float)((int)(next_random() % 65) - 32) / 64);
    }
    return made;
}

void run(const mp_excite_room &room, mp_excite_args args, Data &data) {
    args.x = data.x.data();
    args.w1 = data.w1.data();
    args.b1 = data.b1.data();
    args.w2 = data.w2.data();
    args.b2 = data.b2.data();
    args.out = data.out.data();
    args.parts = data.parts.data();
    run_blocks((unsigned)(room.images * args.blocks), LANES_OF_BLOCK, [&] { squeeze_excite(args); },
               args.meets ? (unsigned)args.blocks : 1);
}

void run_all(const Subject &s, mp_excite_args first, Data &data) {
    const mp_excite_room room = {s.images, (int32_t)sizeof(T), LANES_OF_BLOCK, 7 * s.images,
                                 16,       s.shared_max,       false};
    if (s.blocks == APART) {
        mp_excite_args second;
        mp_excite_apart(&room, &first, &second);
        data.parts = Buffer<float>((size_t)(s.images * first.told * first.pitch));
        run(room, first, data);
        run(room, second, data);
    } else {
        mp_excite_together(&room, s.blocks, &first);
        run(room, first, data);
    }
}

/* The gates of an image. */
std::vector<double> gates_of(const Subject &s, Data &data, int32_t image) {
    std::vector<double> inner((size_t)s.inner), gates((size_t)s.gates);
    for (int32_t k = 0; k < s.inner; k++) {
        double sum = T_load(data.b1[(size_t)k]);
        for (int32_t c = 0; c < s.channels; c++) {
            double all = 0;
            for (int32_t p = 0; p < s.pixels; p++) {
                all += T_load(data.x[(size_t)((image * s.pixels + p) * s.channels + c)]);
            }
            sum += all / s.pixels * T_load(data.w1[(size_t)(k * s.channels + c)]);
        }
        inner[(size_t)k] = sum < 0 ? 0 : sum;
    }
    for (int32_t n = 0; n < s.gates; n++) {
        double sum = T_load(data.b2[(size_t)n]);
        for (int32_t k = 0; k < s.inner; k++) {
            sum += inner[(size_t)k] * T_load(data.w2[(size_t)(n * s.inner + k)]);
        }
        gates[(size_t)n] = 1 / (1 + exp(-sum));
    }
    return gates;
}

void check_near(double made, double wanted, const char *what, int64_t at) {
    check(fabs(made - wanted) < (sizeof(T) == 4 ? 1e-6 : 1e-2), what, at);
}

void check_subject(const Subject &s) {
    const bool scales = s.work != 0;
    const int32_t all = s.images * s.pixels * s.channels;
    Data data = {numbers(all),     numbers(s.inner * s.channels),
                 numbers(s.inner), numbers(s.gates * s.inner),
                 numbers(s.gates), Buffer<T>((size_t)(scales ? all : s.images * s.gates)),
                 Buffer<float>(0)};
    mp_excite_args args = {};
    args.pixels = s.pixels;
    args.channels = s.channels;
    args.inner = s.inner;
    args.gates = s.gates;
    args.work = s.work;
    args.constant = 1;
    args.squeezed.kind = K_ACTIVATE_RELU;
    args.gating.kind = K_ACTIVATE_SIGMOID;
    run_all(s, args, data);
    for (int32_t image = 0; image < s.images; image++) {
        const std::vector<double> gates = gates_of(s, data, image);
        for (int32_t n = 0; !scales && n < s.gates; n++) {
            const int32_t at = image * s.gates + n;
            check_near(T_load(data.out[(size_t)at]), gates[(size_t)n], "a gate", at);
        }
        for (int32_t i = 0; scales && i < s.pixels * s.channels; i++) {
            const size_t at = (size_t)(image * s.pixels * s.channels + i);
            const double x = T_load(data.x[at]), gate = gates[(size_t)(i % s.channels)];
            const double added = (s.work & K_EXCITE_ADD) != 0 ? x : 0;
            check_near(T_load(data.out[at]), x * gate + added, "a pixel", (int64_t)at);
        }
    }
}

} // namespace

void run_tests() {
    enum { SCALE = K_EXCITE_SCALE, ADD = K_EXCITE_SCALE | K_EXCITE_ADD, MUCH = 1 << 18 };
    check_subject({2, 7, 24, 6, 24, 0, 1, MUCH});
    check_subject({1, 40, 24, 6, 24, 0, 8, MUCH});
    check_subject({2, 19, 72, 11, 30, 0, 4, MUCH});
    check_subject({1, 3, 40, 5, 9, 0, 4, 1 << 10});
    check_subject({1, 130, 8, 3, 70, 0, 2, MUCH});
    check_subject({1, 9, 528, 33, 8, 0, 2, MUCH});
    check_subject({2, 7, 24, 6, 24, SCALE, 1, MUCH});
    check_subject({1, 61, 96, 4, 96, ADD, 8, MUCH});
    check_subject({1, 49, 240, 10, 240, SCALE, 4, MUCH});
    check_subject({1, 33, 136, 7, 136, SCALE, 8, 1 << 12});
    check_subject({1, 1, 528, 33, 528, ADD, 2, MUCH});
    check_subject({1, 1000, 16, 3, 16, SCALE, 2, MUCH});
    check_subject({1, 5, 1048, 2, 1048, SCALE, 1, MUCH});
    check_subject({2, 700, 48, 5, 48, SCALE, APART, MUCH});
    check_subject({1, 530, 104, 6, 104, ADD, APART, 1 << 10});
    check_subject({1, 350, 64, 12, 30, 0, APART, MUCH});
}
