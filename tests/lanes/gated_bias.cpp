/* gated_bias.cpp - a bias times gates that lanes of a warp find together.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/gated_bias.cu"
#include "divider.h"
#include "lanes.h"

namespace {

enum { GROUP = 128 };

void fill(Buffer<T> &to, int64_t count, float scale) {
    for (int64_t i = 0; i < count; i++) {
        to[(size_t)i] = T_store(((float)(next_random() % 2001) / 1000 - 1) * scale);
    }
}

void check_bias(int64_t batch, int64_t heads, int64_t rows, int64_t size, int64_t columns,
                int32_t entries, int32_t tile, bool placed) {
    const int64_t width = heads * size, lines = batch * heads * rows;
    Buffer<T> query(batch * rows * width), query_bias(width), weight(size * columns),
        weight_bias(columns), limit(heads), bias(heads * rows * rows), out(lines * rows);
    std::vector<int32_t> places(batch * rows);
    fill(query, batch * rows * width, 1);
    fill(query_bias, width, 1);
    fill(weight, size * columns, 0.1F);
    fill(weight_bias, columns, 1);
    fill(limit, heads, 2);
    fill(bias, heads * rows * rows, 1);
    for (size_t i = 0; i < places.size(); i++) {
        places[i] = i % 3 == 1 ? -1 : (int32_t)(places.size() - 1 - i);
    }
    mp_gated_bias_args args = {};
    args.query = query.data();
    args.query_bias = query_bias.data();
    args.weight = weight.data();
    args.weight_bias = weight_bias.data();
    args.limit = limit.data();
    args.bias = bias.data();
    args.places = placed ? places.data() : nullptr;
    args.out = out.data();
    args.batch = batch;
    args.rows = rows;
    args.heads = heads;
    args.size = size;
    args.columns = columns;
    args.entries = entries;
    args.tile = tile;
    args.parts = (batch + entries - 1) / entries;
    args.tiles = (rows + tile - 1) / tile;
    args.whole_heads = size % PACK == 0;
    args.whole_rows = rows % PACK == 0;
    args.by_row = divider((uint32_t)(args.whole_rows ? rows / PACK : rows));
    args.stage = K_GATED_BIAS_ROWS;
    run_blocks(3, GROUP, [&] { gated_bias(args); });
    for (int64_t line = 0; line < lines; line++) {
        const int64_t row = line % rows, head = line / rows % heads, entry = line / rows / heads;
        const int64_t place = entry * rows + row;
        const int64_t token = placed ? places[place] : place;
        double sum[2] = {0, 0};
        for (int64_t c = 0; c < columns; c++) {
            double column = T_load(weight_bias[c]);
            for (int64_t e = 0; e < size; e++) {
                const double x = T_load(query_bias[head * size + e]) +
                                 (token < 0 ? 0 : T_load(query[token * width + head * size + e]));
                column += x * T_load(weight[e * columns + c]);
            }
            sum[c >= columns / 2] += column;
        }
        const double gate =
            1 / (1 + std::exp(-sum[0])) * (T_load(limit[head]) / (1 + std::exp(-sum[1])) - 1) + 2;
        for (int64_t i = 0; i < rows; i++) {
            const double want = gate * T_load(bias[(head * rows + row) * rows + i]);
            const double got = T_load(out[line * rows + i]);
            check(std::fabs(got - want) <= (sizeof(T) == 2 ? 2e-3 : 1e-5) * (1 + std::fabs(want)),
                  "an element", line * rows + i);
        }
    }
}

} // namespace

void run_tests() {
    for (int placed = 0; placed < 2; placed++) {
        check_bias(9, 2, 16, 64, 8, 8, 2, placed != 0);
        check_bias(3, 1, 21, 5, 2, 2, 8, placed != 0);
        check_bias(1, 2, 40, 320, 6, 1, 16, placed != 0);
    }
    check_bias(5, 1, 8, 24, 4, 4, 1, false);
}
