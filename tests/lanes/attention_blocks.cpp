/* attention_blocks.cpp - attention by groups of warps over blocks of keys that lists name for each
 * block of queries and each layout of heads: queries that begin inside a block, lists with what is
 * out of range or named twice, blocks of queries that see nothing. What no query sees is NaN.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "group.h"

#include "kernel/attention/attention_group.cu"

#include "divider.h"
#include "lanes.h"

#include <cstdlib>
#include <set>

namespace {

struct shape {
    int heads, group, layouts, rows, keys, block, size;
    std::vector<int> lengths; /* of all tokens; empty: queries begin at 0 and see `keys` at most */
};

struct lists {
    const shape &s;
    int blocks, most;
    std::vector<int32_t> starts, columns;

    explicit lists(const shape &given)
        : s(given), blocks((s.keys + s.block - 1) / s.block), most(blocks * (blocks + 2)),
          columns((size_t)s.layouts * most, -1) {
        for (int layout = 0; layout < s.layouts; layout++) {
            int count = 0;
            for (int row = 0; row < blocks; row++) {
                starts.push_back(count);
                fill_row(layout, row, count);
            }
            starts.push_back(count);
        }
    }
    void fill_row(int layout, int row, int &count) {
        int32_t *to = columns.data() + (size_t)layout * most;
        if ((row + layout) % 4 == 3) {
            return; /* sees nothing */
        }
        for (int column = 0; column <= row; column++) {
            if (column == row - 1 || (column + row + layout) % 3 == 0) {
                to[count++] = column;
            }
        }
        if (row > 1) { /* a row has no more of them than there are blocks */
            to[count++] = layout % 2 == 0 ? INT32_MAX : INT32_MIN;
        }
    }
    bool sees(int head, int position, int key) const {
        const int layout = head % s.layouts, row = position / s.block;
        const int32_t *start = starts.data() + layout * (blocks + 1) + row;
        for (int c = start[0]; c < start[1]; c++) {
            if (columns[(size_t)layout * most + c] == key / s.block) {
                return true;
            }
        }
        return false;
    }
};

struct tensors {
    const shape &s;
    const lists &named;
    int batch, kv_heads;
    Buffer<T> q, k, v, out;

    tensors(const shape &given, const lists &given_lists)
        : s(given), named(given_lists), batch((int)std::max<size_t>(s.lengths.size(), 1)),
          kv_heads(s.heads / s.group), q((size_t)batch * s.heads * s.rows * s.size),
          k((size_t)batch * kv_heads * s.keys * s.size),
          v((size_t)batch * kv_heads * s.keys * s.size),
          out((size_t)batch * s.heads * s.rows * s.size) {
        fill_with(q, (int64_t)batch * s.heads * s.rows * s.size,
                  [] { return T_store(2 * small_number()); });
        for (int64_t row = 0; row < (int64_t)batch * kv_heads * s.keys; row++) {
            const bool is = seen((int)(row / s.keys), (int)(row % s.keys));
            for (int d = 0; d < s.size; d++) {
                k[row * s.size + d] = T_store(is ? 2 * small_number() : NAN);
                v[row * s.size + d] = T_store(is ? 2 * small_number() : NAN);
            }
        }
    }
    int length(int entry) const {
        return s.lengths.empty() ? s.keys : s.lengths[entry];
    }
    int position(int entry, int row) const {
        return s.lengths.empty() ? row : length(entry) - s.rows + row;
    }
    /* Whether a block of lanes multiplies by the key: its step, where any of its rows sees that. */
    bool seen(int unit, int key) const {
        for (int head = unit % kv_heads * s.group; head < (unit % kv_heads + 1) * s.group; head++) {
            for (int row = 0; row < s.rows; row++) {
                const int at = position(unit / kv_heads, row);
                if (at >= 0 && named.sees(head, at, key)) {
                    return true;
                }
            }
        }
        return false;
    }
    double score(int entry, int head, int row, int key) {
        const size_t from = ((size_t)(entry * s.heads + head) * s.rows + row) * s.size;
        const size_t to = ((size_t)(entry * kv_heads + head / s.group) * s.keys + key) * s.size;
        double dot = 0;
        for (int d = 0; d < s.size; d++) {
            dot += (double)T_load(q[from + d]) * (double)T_load(k[to + d]);
        }
        return dot / sqrt((double)s.size);
    }
    void check_row(int entry, int head, int row) {
        const int at = position(entry, row);
        std::vector<double> want(s.size);
        double sum = 0;
        for (int key = 0; key <= at && key < length(entry); key++) {
            if (named.sees(head, at, key)) {
                const double weight = exp(score(entry, head, row, key));
                const size_t from =
                    ((size_t)(entry * kv_heads + head / s.group) * s.keys + key) * s.size;
                sum += weight;
                for (int d = 0; d < s.size; d++) {
                    want[d] += weight * (double)T_load(v[from + d]);
                }
            }
        }
        const size_t place = ((size_t)(entry * s.heads + head) * s.rows + row) * s.size;
        for (int d = 0; d < s.size; d++) {
            const double got = (double)T_load(out[place + d]);
            check(fabs(got - (sum == 0 ? 0 : want[d] / sum)) < 0.03, "an element", d);
        }
    }
};

mp_attention_args args_of(const shape &s, const lists &named, tensors &t) {
    mp_attention_args args = {};
    args.head_size = args.v_head_size = s.size;
    args.wide = 1;
    args.tile_rows = K_ROWS;
    args.tile_keys = KEYS;
    args.key_heads_by = s.group;
    const int64_t row = (int64_t)s.rows * s.size, key = (int64_t)s.keys * s.size;
    const int64_t q[3] = {s.heads * row, row, s.size}, k[3] = {t.kv_heads * key, key, s.size};
    memcpy(args.q_stride, q, sizeof q);
    memcpy(args.out_stride, q, sizeof q);
    memcpy(args.k_stride, k, sizeof k);
    memcpy(args.v_stride, k, sizeof k);
    args.q = t.q.data();
    args.k = t.k.data();
    args.v = t.v.data();
    args.out = t.out.data();
    args.round = INT32_MAX;
    args.row_blocks = (s.rows + K_ROWS - 1) / K_ROWS;
    args.by_row_blocks = divider(args.row_blocks);
    args.by_kv_heads = divider(s.heads);
    args.by_units = divider(t.batch * s.heads);
    args.by_rows = divider(s.rows);
    args.by_round = divider(INT32_MAX);
    k_score_rule &rule = args.rule;
    rule.batch = t.batch;
    rule.group = 1;
    rule.heads = rule.kv_heads = s.heads;
    rule.rows = s.rows;
    rule.keys = s.keys;
    rule.mask_keys = INT64_MAX;
    rule.causal = 1;
    rule.past_by_length = !s.lengths.empty();
    rule.scale = 1 / sqrt((double)s.size);
    rule.blocks = {
        named.starts.data(), named.columns.data(), s.layouts, named.blocks, named.most, s.block, 0};
    return args;
}

void check_blocks(const shape &s) {
    const lists named(s);
    tensors t(s, named);
    mp_attention_args args = args_of(s, named, t);
    const std::vector<int32_t> lengths(s.lengths.begin(), s.lengths.end());
    args.rule.lengths = s.lengths.empty() ? nullptr : lengths.data();
    run_blocks(3, K_GROUP_LANES(K_ROWS), [&] { attention_group(args); });
    for (int i = 0; i < t.batch * s.heads * s.rows; i++) {
        t.check_row(i / s.rows / s.heads, i / s.rows % s.heads, i % s.rows);
    }
}

} // namespace

void run_tests() {
    check_blocks({2, 1, 2, 300, 300, 64, HEAD, {}});
    check_blocks({4, 2, 4, 150, 150, 128, HEAD - 8, {}});
    check_blocks({2, 2, 1, 140, 760, 64, HEAD, {751, 203}});
    check_blocks({2, 1, 2, 70, 900, 192, HEAD, {900, 40, 300}});
}
