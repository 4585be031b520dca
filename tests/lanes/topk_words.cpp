/* topk_words.cpp - rows sorted by lanes that have some words each: of part of a warp, of a warp and
 * of several, and rows of pairs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rows/topk_words.cu"
#include "lanes.h"

#include <algorithm>

namespace {

struct Rows {
    int64_t rows, columns, k;
    bool of_pairs;
    uint64_t kinds; /* how many different elements there are, at most */
};

constexpr uint64_t ALL = (T) ~(T)0;
constexpr int64_t APART = 3; /* pairs are of each so manyth element */

void check_rows(const Rows &of) {
    const int64_t row = of.of_pairs ? of.columns * APART : of.columns;
    Buffer<T> x((size_t)(of.rows * row), 1), values((size_t)(of.rows * of.k), 1);
    std::vector<k_pair> pairs((size_t)(of.rows * of.columns));
    std::vector<int64_t> indices((size_t)(of.rows * of.k), -1);
    mp_topk_short_args args = {};
    for (size_t i = 0; i < (size_t)(of.rows * row); i++) {
        x[i] = (T)(next_random() % of.kinds * (ALL / of.kinds + 1));
    }
    args.order.all = args.order.flip = ALL; /* the largest first */
    args.padded = K_WORDS_EACH;
    while (args.padded < of.columns) {
        args.padded *= 2;
    }
    for (size_t i = 0; i < pairs.size(); i++) {
        const int64_t at = (int64_t)i % of.columns * APART;
        pairs[i].index = at;
        pairs[i].key =
            of.of_pairs ? k_order_key(x[i / (size_t)of.columns * (size_t)row + at], args.order) : 0;
    }
    args.x = x.data();
    args.pairs = of.of_pairs ? pairs.data() : nullptr;
    args.values = values.data();
    args.indices = indices.data();
    args.rows = of.rows;
    args.columns = of.columns;
    args.k = of.k;
    args.row = row;
    const int64_t lanes = args.padded / K_WORDS_EACH;
    run_blocks(2, (unsigned)(lanes < 32 ? 32 : lanes), [&] { topk_words(args); });
    for (int64_t r = 0; r < of.rows; r++) {
        std::vector<int64_t> want((size_t)of.columns);
        const T *its = x.data() + r * row;
        for (int64_t i = 0; i < of.columns; i++) {
            want[(size_t)i] = of.of_pairs ? i * APART : i;
        }
        std::stable_sort(want.begin(), want.end(),
                         [&](int64_t a, int64_t b) { return its[a] > its[b]; });
        for (int64_t i = 0; i < of.k; i++) {
            const auto at = (size_t)(r * of.k + i);
            check(indices[at] == want[(size_t)i], "an index", (int64_t)at);
            check(values[at] == its[want[(size_t)i]], "a value", (int64_t)at);
        }
    }
}

} // namespace

void run_tests() {
    check_rows({3, 1, 1, false, 2});
    check_rows({2, 7, 7, false, 3});
    check_rows({2, 45, 9, true, 40});
    check_rows({3, 256, 256, false, 100});
    check_rows({2, 257, 257, false, 1});
    check_rows({2, 1000, 700, true, 200});
    check_rows({3, 2048, 2048, false, 256});
    check_rows({1, 4095, 4095, true, 60});
    check_rows({1, 4096, 4096, false, ALL});
}
