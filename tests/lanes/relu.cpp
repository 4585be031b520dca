/* relu.cpp - attention without a softmax, whose matrix lanes of a block share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/relu_attention.cu"
#include "lanes.h"

namespace {

double relu(double x) {
    return x < 0 ? 0 : x;
}

void check_images(int64_t batch, int32_t first, int32_t more, int32_t pixels, uint32_t lanes) {
    const int64_t each = batch * pixels * 3 * SIZE, heads = first + more;
    Buffer<T> x[] = {Buffer<T>(first * each), Buffer<T>(more * each + 1)};
    Buffer<T> out(batch * pixels * heads * SIZE);
    for (int64_t i = 0; i < (first + more) * each; i++) {
        x[i >= first * each][(size_t)(i % (first * each))] =
            T_store((float)(next_random() % 2001) / 1000 - 1);
    }
    mp_relu_attention_args args = {};
    args.x[0] = x[0].data();
    args.x[1] = more > 0 ? x[1].data() : nullptr;
    args.out = out.data();
    args.pixels = pixels;
    args.heads = (int32_t)heads;
    args.first = first;
    args.units = (int32_t)(batch * heads);
    args.groups = (int32_t)lanes / (QUADS * QUADS);
    args.epsilon = 0.5f;
    run_blocks(3, lanes, [&] { relu_attention(args); });
    for (int64_t unit = 0; unit < args.units; unit++) {
        const int64_t entry = unit / heads, head = unit % heads;
        const int32_t own = head < first ? first : more;
        const int64_t at = head < first ? head : head - first;
        auto part = [&](int64_t pixel, int64_t i) {
            const int64_t row = (entry * pixels + pixel) * own + at;
            return (double)T_load(x[head >= first][(size_t)(row * 3 * SIZE + i)]);
        };
        std::vector<double> matrix(SIZE * SIZE), keys(SIZE);
        for (int32_t p = 0; p < pixels; p++) {
            for (int i = 0; i < SIZE; i++) {
                keys[i] += relu(part(p, SIZE + i));
                for (int j = 0; j < SIZE; j++) {
                    matrix[i * SIZE + j] += relu(part(p, SIZE + i)) * part(p, 2 * SIZE + j);
                }
            }
        }
        for (int64_t e = 0; e < (int64_t)pixels * SIZE; e++) {
            const int64_t p = e / SIZE, j = e % SIZE;
            double sum = 0, weights = 0.5;
            for (int i = 0; i < SIZE; i++) {
                sum += relu(part(p, i)) * matrix[i * SIZE + j];
                weights += relu(part(p, i)) * keys[i];
            }
            const int64_t to = ((entry * pixels + p) * heads + head) * SIZE + j;
            check(std::fabs(T_load(out[to]) - sum / weights) <= (sizeof(T) == 2 ? 2e-3 : 1e-4),
                  "an element", to);
        }
    }
}

} // namespace

void run_tests() {
    check_images(2, 1, 2, 49, QUADS * QUADS * 4);
    check_images(1, 2, 0, 200, 256);
    check_images(1, 1, 1, 3, 128);
}
