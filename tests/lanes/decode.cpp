/* decode.cpp - attention for a few rows by tensor cores, with caches that are split over the blocks
 * of a cluster, over blocks that meet nowhere, and not at all.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "cluster.h"
#include "divider.h"
#include "lanes.h"

#include "kernel/attention/attention_decode.cu"

namespace {

struct shape {
    int entries, kv_heads, group, rows, keys, splits, warps;
    bool meets, causal;
    int window;
    std::vector<int32_t> lengths; /* less one; none: all keys are there */
    int sink = K_SINK_NONE;
    int mask =
        K_MASK_NONE; /* of heads, rows and keys, but for the last key; entries have the same */

    int heads() const {
        return kv_heads * group;
    }
};

/* Of T. */
double precision() {
    return T_load(T_store(1 + 1.0F / 256)) == 1 ? 1.0 / 128 : 1.0 / 1024;
}

Buffer<T> random_values(size_t count) {
    Buffer<T> values(count);
    for (size_t i = 0; i < count; i++) {
        values[i] = T_store((float)(next_random() % 2001) / 500 - 2);
    }
    return values;
}

/* What a test has, and what is expected of it. */
struct decoding {
    const shape &s;
    Buffer<T> q, k, v, out, sink, mask;
    Buffer<k_bool> shown;
    std::vector<float> part;

    explicit decoding(const shape &given)
        : s(given), q(random_values((size_t)s.entries * s.heads() * s.rows * HEAD)),
          k(random_values((size_t)s.entries * s.kv_heads * s.keys * HEAD)),
          v(random_values((size_t)s.entries * s.kv_heads * s.keys * HEAD)),
          out((size_t)s.entries * s.heads() * s.rows * HEAD), sink(random_values(s.heads())),
          mask(random_values(mask_size())), shown(mask_size()),
          part((size_t)s.entries * s.heads() * s.rows * s.splits * (HEAD + K_ATTENTION_STATE)) {
        for (size_t i = 0; i < mask_size(); i++) {
            shown[i] = k_store_bool(i % 3 != 1);
            mask[i] = i % 4 == 3 ? T_store(-INFINITY) : mask[i];
        }
        for (int i = 0; i < s.entries * s.kv_heads * s.keys; i++) { /* what nobody may see */
            for (int d = 0; i % s.keys >= length(i / s.keys / s.kv_heads) && d < HEAD; d++) {
                k[(size_t)i * HEAD + d] = v[(size_t)i * HEAD + d] = T_store(NAN);
            }
        }
    }

    int length(int entry) const {
        return s.lengths.empty() ? s.keys : s.lengths[entry] + 1;
    }

    mp_attention_args args() {
        mp_attention_args args = {};
        const int64_t rows[3] = {(int64_t)s.heads() * s.rows * HEAD, (int64_t)s.rows * HEAD, HEAD};
        const int64_t keys[3] = {(int64_t)s.kv_heads * s.keys * HEAD, (int64_t)s.keys * HEAD, HEAD};
        memcpy(args.q_stride, rows, sizeof rows);
        memcpy(args.out_stride, rows, sizeof rows);
        memcpy(args.k_stride, keys, sizeof keys);
        memcpy(args.v_stride, keys, sizeof keys);
        args.q = q.data();
        args.k = k.data();
        args.v = v.data();
        args.out = out.data();
        args.part = s.splits > 1 && !s.meets ? part.data() : nullptr;
        args.head_size = args.v_head_size = HEAD;
        args.splits = s.splits;
        args.row_blocks = (s.group * s.rows + K_DECODE_ROWS - 1) / K_DECODE_ROWS;
        for (args.meet_log = 0; s.meets && 1 << args.meet_log < s.splits;) {
            args.meet_log++;
        }
        args.by_splits = divider(s.splits);
        args.by_row_blocks = divider(args.row_blocks);
        args.by_kv_heads = divider(s.kv_heads);
        args.by_rows = divider(s.rows);
        set_rule(&args.rule);
        return args;
    }

    void set_rule(k_score_rule *rule) {
        rule->batch = s.entries;
        rule->heads = s.heads();
        rule->kv_heads = s.kv_heads;
        rule->group = s.group;
        rule->rows = s.rows;
        rule->keys = s.keys;
        rule->past = s.keys - s.rows;
        rule->mask_keys = mask_keys();
        rule->mask_kind = s.mask;
        rule->mask = s.mask == K_MASK_BOOL ? (const void *)shown.data() : mask.data();
        rule->mask_stride[1] = (int64_t)s.rows * s.keys;
        rule->mask_stride[2] = s.keys;
        rule->mask_stride[3] = 1;
        rule->causal = s.causal;
        rule->window = s.window;
        rule->scale = 1 / sqrt((double)HEAD);
        rule->sink_kind = s.sink;
        rule->sink = sink.data();
        if (!s.lengths.empty()) {
            rule->lengths = s.lengths.data();
            rule->length_more = 1;
            rule->past_by_length = 1;
        }
    }

    size_t mask_size() const {
        return (size_t)s.heads() * s.rows * s.keys;
    }

    int64_t mask_keys() const {
        return s.mask != K_MASK_NONE ? s.keys - 1 : INT64_MAX;
    }

    /* What is added to a score; `row`: of all heads. */
    double masked(int row, int key) const {
        const size_t at = (size_t)row * s.keys + key;
        return s.mask == K_MASK_NONE   ? 0
               : s.mask == K_MASK_BOOL ? (k_load_bool(shown[at]) ? 0 : -INFINITY)
                                       : (double)T_load(mask[at]);
    }

    bool sees(int entry, int row, int key) const {
        const int own = row + length(entry) - s.rows;
        return key < length(entry) && key < mask_keys() && (!s.causal || key <= own) &&
               (s.window == 0 || key > own - s.window);
    }

    double element(int line, int d) { /* line: of entry, head, row */
        const int row = line % s.rows, head = line / s.rows % s.heads();
        const int entry = line / s.rows / s.heads();
        const size_t unit = (size_t)(entry * s.kv_heads + head / s.group) * s.keys;
        const double extra = s.sink == K_SINK_HEADS ? exp((double)T_load(sink[head])) : 0;
        double all = 0, want = 0;
        for (int key = 0; key < s.keys; key++) {
            double dot = 0;
            for (int e = 0; sees(entry, row, key) && e < HEAD; e++) {
                dot += (double)T_load(q[(size_t)line * HEAD + e]) *
                       (double)T_load(k[(unit + key) * HEAD + e]);
            }
            if (sees(entry, row, key)) {
                const double more = masked(line % (s.heads() * s.rows), key);
                const double weight = exp(dot / sqrt((double)HEAD) + more);
                all += weight;
                want += weight * (double)T_load(v[(unit + key) * HEAD + d]);
            }
        }
        return all == 0 ? 0 : want / (all + extra);
    }

    /* As attention_combine.cu does it. */
    double combined(int line, int d) {
        const size_t pitch = HEAD + K_ATTENTION_STATE;
        double top = -INFINITY, all = 0, sum = 0;
        for (int i = 0; i < s.splits; i++) {
            top = std::max(top, (double)part[((size_t)line * s.splits + i) * pitch]);
        }
        for (int i = 0; i < s.splits; i++) {
            const float *one = &part[((size_t)line * s.splits + i) * pitch];
            const double share = one[1] == 0 ? 0 : exp(one[0] - top);
            all += share * one[1];
            sum += share * one[K_ATTENTION_STATE + d];
        }
        return all == 0 ? 0 : sum / all;
    }
};

void check_decoding(const shape &s) {
    decoding test(s);
    const mp_attention_args args = test.args();
    const unsigned blocks = (unsigned)(s.entries * s.kv_heads * args.row_blocks * s.splits);
    run_blocks(
        blocks, s.warps * 32, [&] { attention_decode(args); }, s.meets ? s.splits : 1);
    for (int line = 0; line < s.entries * s.heads() * s.rows; line++) {
        for (int d = 0; d < HEAD; d += 5) {
            const double got = args.part != nullptr
                                   ? test.combined(line, d)
                                   : (double)T_load(test.out[(size_t)line * HEAD + d]);
            check(fabs(got - test.element(line, d)) <= 4 * precision(), "an element",
                  (int64_t)line * HEAD + d);
        }
    }
}

void check_masks(int kind) {
    check_decoding({1, 1, 1, 1, 2, 1, 1, false, true, 0, {}, K_SINK_NONE, kind});
    check_decoding({1, 2, 3, 1, 5 * KEYS + 3, 1, 2, false, true, 0, {}, K_SINK_NONE, kind});
    check_decoding({2, 2, 3, 1, 7 * KEYS, 4, 2, true, true, 0, {6 * KEYS, 9}, K_SINK_HEADS, kind});
    check_decoding({2, 1, 2, 3, 8 * KEYS + 1, 4, 1, false, true, 0, {}, K_SINK_NONE, kind});
    check_decoding({1, 1, 8, 1, 9 * KEYS, 2, 2, true, true, KEYS + 5, {}, K_SINK_NONE, kind});
}

} // namespace

void run_tests() {
    if (K_MASKED) {
        check_masks(K_MASK_BOOL);
        check_masks(precision() > 0.005 ? K_MASK_BF16 : K_MASK_F16);
        return;
    }
    check_decoding({1, 1, 1, 1, 1, 1, 1, false, true, 0, {}});
    check_decoding({1, 2, 3, 1, 5 * KEYS + 3, 1, 2, false, true, 0, {}});
    check_decoding({2, 2, 3, 1, 7 * KEYS + 3, 4, 2, true, true, 0, {6 * KEYS, 5}});
    check_decoding({1, 1, 4, 1, 9 * KEYS - 1, 8, 1, true, true, 0, {}, K_SINK_HEADS});
    check_decoding({1, 1, 5, 2, 4 * KEYS + 1, 2, 3, true, true, 0, {}});
    check_decoding({2, 1, 2, 3, 8 * KEYS, 4, 1, false, true, 0, {8 * KEYS - 1, 1}});
    check_decoding({1, 1, 8, 1, 9 * KEYS, 2, 2, true, true, KEYS + 5, {8 * KEYS + 2}});
    check_decoding({1, 1, 1, 2, 3 * KEYS, 16, 2, true, true, 3, {}});
}
