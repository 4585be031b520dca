/* decode_pages.cpp - attention for a few rows by tensor cores over caches in blocks that a table
 * names, one of them missing, of elements or of codes with a scale or many; and over codes that are
 * neighbours. Rows of no key, of other blocks and behind the last key are what must not be seen.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "cluster.h"
#include "lanes.h"

#include "kernel/attention/attention_decode.cu"

#include "decode_cut.h"

namespace {

struct shape {
    int entries, kv_heads, group, rows, keys, splits, warps;
    bool meets;
    int block; /* keys of one, a multiple of KEYS; 0: all of an entry are neighbours */
    int window;
    bool channels;            /* each element of a head has a scale */
    std::vector<int> lengths; /* of all tokens */
};

enum { MISSING = 1 /* block of the last entry, which is not there */ };

struct pages {
    const shape &s;
    int columns, blocks;
    std::vector<int32_t> table, lengths;
    Buffer<T> q, out;
    Buffer<decode_kv> k, v;
    std::vector<float> scale[2], part;

    explicit pages(const shape &given)
        : s(given), columns(s.block > 0 ? (s.keys + s.block - 1) / s.block : 1),
          blocks(s.block > 0 ? s.entries * columns + 1 : s.entries), q(line_count() * HEAD),
          out(line_count() * HEAD), k(kept_count()), v(kept_count()),
          part(line_count() * s.splits * (HEAD + K_ATTENTION_STATE)) {
        for (size_t i = 0; i < line_count() * HEAD; i++) {
            q[i] = T_store((float)(next_random() % 2001) / 1000 - 1);
        }
        for (int i = 0; i < s.entries * columns; i++) { /* from the last one on */
            table.push_back(i == (s.entries - 1) * columns + MISSING ? -1 : blocks - 1 - i);
        }
        for (int length : s.lengths) {
            lengths.push_back(length - s.rows);
        }
        for (int side = 0; side < 2; side++) {
            for (int i = 0; i < s.kv_heads * HEAD; i++) {
                scale[side].push_back((float)(next_random() % 100 + 1) / 2500);
            }
            for (size_t i = 0; i < kept_count(); i++) {
                (side == 0 ? k : v)[i] = hidden();
            }
        }
        for (int unit = 0; unit < s.entries * s.kv_heads; unit++) {
            for (int key = 0; key < s.lengths[unit / s.kv_heads]; key++) {
                fill(unit / s.kv_heads, unit % s.kv_heads, key);
            }
        }
    }

    size_t line_count() const {
        return (size_t)s.entries * s.kv_heads * s.group * s.rows;
    }

    size_t kept_count() const {
        return (size_t)blocks * (s.block > 0 ? s.block : s.keys) * s.kv_heads * HEAD;
    }

    static decode_kv hidden() {
#if K_CODES
        return 127;
#else
        return T_store(NAN);
#endif
    }

    /* Where an element of a key lies, or -1. */
    int64_t place(int entry, int head, int key, int d) const {
        if (s.block == 0) {
            return (((int64_t)entry * s.kv_heads + head) * s.keys + key) * HEAD + d;
        }
        const int64_t block = table[(size_t)entry * columns + key / s.block];
        return block < 0 ? -1 : ((block * s.block + key % s.block) * s.kv_heads + head) * HEAD + d;
    }

    void fill(int entry, int head, int key) {
        for (int d = 0; d < HEAD; d++) {
            const int64_t at = place(entry, head, key, d);
            if (at >= 0) {
                k[at] = value();
                v[at] = value();
            }
        }
    }

    static decode_kv value() {
#if K_CODES
        return (uint8_t)(next_random() % 256);
#else
        return T_store((float)(next_random() % 2001) / 500 - 2);
#endif
    }

    double read(int side, int entry, int head, int key, int d) {
        const decode_kv kept = (side == 0 ? k : v)[place(entry, head, key, d)];
#if K_CODES
        return (double)(int8_t)kept * scale[side][s.channels ? head * HEAD + d : 0];
#else
        return (double)T_load(kept);
#endif
    }

    mp_pages_args args() {
        mp_pages_args all = {};
        mp_attention_args &args = all.attention;
        const int64_t heads = (int64_t)s.kv_heads * s.group;
        const int64_t rows[3] = {heads * s.rows * HEAD, HEAD, heads * HEAD};
        const int64_t paged[3] = {0, HEAD, (int64_t)s.kv_heads * HEAD};
        const int64_t dense[3] = {(int64_t)s.kv_heads * s.keys * HEAD, (int64_t)s.keys * HEAD,
                                  HEAD};
        memcpy(args.q_stride, rows, sizeof rows);
        memcpy(args.out_stride, rows, sizeof rows);
        memcpy(args.k_stride, s.block > 0 ? paged : dense, sizeof paged);
        memcpy(args.v_stride, args.k_stride, sizeof paged);
        args.q = q.data();
        args.k = k.data();
        args.v = v.data();
        args.out = out.data();
        args.part = s.splits > 1 && !s.meets ? part.data() : nullptr;
        set_decode_cut(args, s.kv_heads, s.group, s.rows, s.splits, s.meets);
        for (int side = 0; side < 2; side++) {
            args.cache.scale[side] = scale[side].data();
            args.cache.channels[side] = s.channels;
        }
        k_score_rule &rule = args.rule;
        rule.batch = s.entries;
        rule.heads = heads;
        rule.kv_heads = s.kv_heads;
        rule.group = s.group;
        rule.rows = s.rows;
        rule.keys = s.keys;
        rule.mask_keys = INT64_MAX;
        rule.causal = 1;
        rule.window = s.window;
        rule.scale = 1 / sqrt((double)HEAD);
        rule.lengths = lengths.data();
        rule.length_more = s.rows;
        rule.past_by_length = 1;
        all.pages.table = s.block > 0 ? table.data() : nullptr;
        all.pages.columns = columns;
        all.pages.blocks = blocks;
        all.pages.size = s.block;
        all.pages.by_size = divider(s.block > 0 ? s.block : 1);
        return all;
    }

    /* Element `d` of head `head` and token `row` of an entry. */
    double element(int entry, int row, int head, int d) {
        const int own = s.lengths[entry] - s.rows + row, kv = head / s.group;
        const int first = s.window > 0 ? std::max(0, own + 1 - s.window) : 0;
        const size_t line = ((size_t)entry * s.rows + row) * s.kv_heads * s.group + head;
        double all = 0, sum = 0;
        for (int key = first; key <= own; key++) {
            double dot = 0;
            for (int e = 0; place(entry, kv, key, 0) >= 0 && e < HEAD; e++) {
                dot += (double)T_load(q[line * HEAD + e]) * read(0, entry, kv, key, e);
            }
            if (place(entry, kv, key, 0) >= 0) {
                const double weight = exp(dot / sqrt((double)HEAD));
                all += weight;
                sum += weight * read(1, entry, kv, key, d);
            }
        }
        return all == 0 ? 0 : sum / all;
    }
};

void check_pages(const shape &s) {
    pages test(s);
    const mp_pages_args args = test.args();
    const int heads = s.kv_heads * s.group;
    run_blocks((unsigned)(s.entries * s.kv_heads * args.attention.row_blocks * s.splits),
               s.warps * 32, [&] { attention_decode(args); }, s.meets ? s.splits : 1);
    for (int i = 0; i < s.entries * s.rows * heads; i++) {
        const int entry = i / heads / s.rows, row = i / heads % s.rows, head = i % heads;
        for (int d = 0; d < HEAD; d += 5) {
            const size_t line = ((size_t)entry * heads + head) * s.rows + row;
            const double got = args.attention.part != nullptr
                                   ? decode_combined(test.part.data(), line, s.splits, d)
                                   : (double)T_load(test.out[(size_t)i * HEAD + d]);
            check(fabs(got - test.element(entry, row, head, d)) <= 4 * precision(), "an element",
                  (int64_t)i * HEAD + d);
        }
    }
}

} // namespace

void run_tests() {
    const int block = 2 * KEYS;
    for (int way = 0; way < 2; way++) {
        const bool channels = way == 1;
        check_pages({1, 1, 1, 1, block, 1, 1, false, block, 0, channels, {1}});
        check_pages(
            {2, 2, 3, 1, 5 * block, 1, 2, false, block, 0, channels, {4 * block + 3, 3 * block}});
        check_pages({3,
                     1,
                     4,
                     2,
                     6 * KEYS,
                     4,
                     1,
                     true,
                     KEYS,
                     0,
                     channels,
                     {6 * KEYS, 2 * KEYS + 1, 6 * KEYS - 1}});
        check_pages({2,
                     2,
                     5,
                     2,
                     4 * block,
                     2,
                     2,
                     false,
                     block,
                     block + 3,
                     channels,
                     {4 * block, 3 * block + 1}});
        if (K_CODES) {
            check_pages(
                {2, 2, 3, 1, 5 * KEYS + 3, 1, 2, false, 0, 0, channels, {5 * KEYS + 3, KEYS}});
            check_pages({1, 1, 12, 1, 9 * KEYS, 8, 1, true, 0, 0, channels, {8 * KEYS - 1}});
        }
    }
}
