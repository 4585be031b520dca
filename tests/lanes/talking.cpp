/* talking.cpp - heads that talk, whose scores lanes of a block share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/talking_heads.cu"
#include "lanes.h"

namespace {

void fill(Buffer<T> &to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        to[(size_t)i] = T_store((float)(next_random() % 2001) / 1000 - 1);
    }
}

void check_heads(int64_t batch, int32_t from, int32_t between, int32_t to, int64_t rows,
                 int32_t columns, uint32_t lanes, bool turned) {
    const int64_t each = rows * columns;
    Buffer<T> x(batch * from * each), out(batch * to * each), w1(from * between), b1(between),
        w2(between * to);
    fill(x, batch * from * each);
    fill(w1, from * between);
    fill(b1, between);
    fill(w2, between * to);
    mp_talking_args args = {};
    args.x = x.data();
    args.out = out.data();
    args.before = {w1.data(), b1.data(), from, between, turned ? 1 : between, turned ? from : 1};
    args.after = {w2.data(), nullptr, between, to, turned ? 1 : to, turned ? between : 1};
    args.units = (int32_t)(batch * rows);
    args.rows = rows;
    args.columns = columns;
    run_blocks(3, lanes, [&] { talking_heads(args); });
    std::vector<double> scores(between * columns);
    for (int64_t unit = 0; unit < args.units; unit++) {
        const int64_t entry = unit / rows, row = unit % rows;
        for (int32_t k = 0; k < between; k++) {
            double sum = 0;
            for (int32_t c = 0; c < columns; c++) {
                double score = T_load(b1[k]);
                for (int32_t i = 0; i < from; i++) {
                    score += T_load(x[(entry * from + i) * each + row * columns + c]) *
                             T_load(w1[i * args.before.by_from + k * args.before.by_to]);
                }
                scores[k * columns + c] = std::exp(score);
                sum += scores[k * columns + c];
            }
            for (int32_t c = 0; c < columns; c++) {
                scores[k * columns + c] /= sum;
            }
        }
        for (int32_t k = 0; k < to; k++) {
            for (int32_t c = 0; c < columns; c++) {
                double want = 0;
                for (int32_t i = 0; i < between; i++) {
                    want += scores[i * columns + c] *
                            T_load(w2[i * args.after.by_from + k * args.after.by_to]);
                }
                const int64_t at = (entry * to + k) * each + row * columns + c;
                check(std::fabs(T_load(out[at]) - want) <= (sizeof(T) == 2 ? 2e-3 : 1e-5),
                      "an element", at);
            }
        }
    }
}

} // namespace

void run_tests() {
    check_heads(2, 8, 8, 8, 3, 196, 256, false);
    check_heads(1, 3, 17, 9, 4, 40, 128, true);
    check_heads(1, 16, 2, 16, 2, 300, 256, true);
}
