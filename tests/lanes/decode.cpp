/* decode.cpp - attention for a few rows by tensor cores, with caches that are split over the blocks
 * of a cluster, over blocks that meet nowhere, and not at all. With K_FRESH the last key is a new
 * token's, which is not in the caches before.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "cluster.h"
#include "lanes.h"

#include "kernel/attention/attention_decode.cu"

#include "decode_cut.h"

namespace {

enum { PLACES = 9 * KEYS }; /* rows of angles */

struct shape {
    int entries, kv_heads, group, rows, keys, splits, warps;
    bool meets, causal;
    int window;
    std::vector<int32_t> lengths; /* less one; none: all keys are there */
    int sink = K_SINK_NONE;
    int mask =
        K_MASK_NONE; /* of heads, rows and keys, but for the last key; entries have the same */

    bool turned = true, normed = false; /* of new tokens */
    bool low = false;                   /* every other row of the mask is the lowest number */

    int heads() const {
        return kv_heads * group;
    }
};

float lowest() {
    return precision() > 0.005 ? -0x1.fep127F : -65504.0F;
}

Buffer<T> random_values(size_t count) {
    Buffer<T> values(count);
    for (size_t i = 0; i < count; i++) {
        values[i] = T_store((float)(next_random() % 2001) / 500 - 2);
    }
    return values;
}

Buffer<T> copy_of(Buffer<T> &of, size_t count) {
    Buffer<T> copy(count);
    memcpy(copy.data(), of.data(), count * sizeof(T));
    return copy;
}

/* What a test has, and what is expected of it: `used` is what scores and sums are made of. Caches
 * are written in another place than they are read, since a row may be both at once. */
struct decoding {
    const shape &s;
    Buffer<T> q, k, v, out, sink, mask, new_k, new_v, cosine, sine, by_q, by_k;
    Buffer<T> used_q, used_k, used_v, written_k, written_v;
    std::vector<int64_t> positions; /* of the new tokens; none: what lengths say */
    Buffer<k_bool> shown;
    std::vector<float> part;

    explicit decoding(const shape &given)
        : s(given), q(random_values((size_t)s.entries * s.heads() * s.rows * HEAD)),
          k(random_values((size_t)s.entries * s.kv_heads * s.keys * HEAD)),
          v(random_values((size_t)s.entries * s.kv_heads * s.keys * HEAD)),
          out((size_t)s.entries * s.heads() * s.rows * HEAD), sink(random_values(s.heads())),
          mask(random_values(mask_size())), new_k((size_t)s.entries * s.kv_heads * HEAD),
          new_v((size_t)s.entries * s.kv_heads * HEAD), cosine(random_values(PLACES * HALF)),
          sine(random_values(PLACES * HALF)), by_q(random_values(HEAD)), by_k(random_values(HEAD)),
          used_q(copy_of(q, q_size())), used_k(copy_of(k, k_size())), used_v(copy_of(v, k_size())),
          written_k(k_size()), written_v(k_size()), shown(mask_size()),
          part((size_t)s.entries * s.heads() * s.rows * s.splits * (HEAD + K_ATTENTION_STATE)) {
        for (size_t i = 0; i < mask_size(); i++) {
            shown[i] = k_store_bool(i % 3 != 1);
            mask[i] = s.low && i / s.keys % 2 == 0 ? T_store(lowest())
                      : i % 4 == 3                 ? T_store(-INFINITY)
                                                   : mask[i];
        }
        for (int i = 0; i < s.entries * s.kv_heads * s.keys; i++) { /* what nobody may see */
            for (int d = 0; i % s.keys >= length(i / s.keys / s.kv_heads) && d < HEAD; d++) {
                k[(size_t)i * HEAD + d] = v[(size_t)i * HEAD + d] = T_store(NAN);
                used_k[(size_t)i * HEAD + d] = used_v[(size_t)i * HEAD + d] = T_store(NAN);
            }
        }
        if (K_FRESH) {
            make_fresh();
        }
    }

    size_t q_size() const {
        return (size_t)s.entries * s.heads() * s.rows * HEAD;
    }

    size_t k_size() const {
        return (size_t)s.entries * s.kv_heads * s.keys * HEAD;
    }

    bool has_written() {
        bool has = true;
        for (size_t i = 0; i < k_size(); i++) {
            const size_t unit = i / HEAD / s.keys;
            const int entry = (int)unit / s.kv_heads;
            const bool is_new = i / HEAD % s.keys == (size_t)length(entry) - 1;
            const float key = is_new ? T_load(used_k[i]) : 0,
                        value = is_new ? T_load(used_v[i]) : 0;
            const double off = s.normed ? 2 * precision() * std::max(1.0, fabs((double)key)) : 0;
            has = has && fabs((double)T_load(written_k[i]) - key) <= off &&
                  T_load(written_v[i]) == value;
        }
        return has;
    }

    void norm(T *x, Buffer<T> &by) {
        double squares = 0;
        for (int i = 0; i < HEAD; i++) {
            squares += (double)T_load(x[i]) * T_load(x[i]);
        }
        const double inverse = 1 / sqrt(squares / HEAD + 1e-3);
        for (int i = 0; s.normed && i < HEAD; i++) {
            x[i] = T_store((float)(T_load(x[i]) * inverse) * T_load(by[i]));
        }
    }

    void rotate(T *x, int entry) {
        const int64_t position = positions.empty() ? length(entry) - 1 : positions[entry];
        const int64_t place = std::min(std::max(position, (int64_t)0), (int64_t)PLACES - 1) * HALF;
        for (int i = 0; s.turned && i < HALF; i++) {
            const float a = T_load(x[i]), b = T_load(x[i + HALF]);
            const float c = T_load(cosine[place + i]), d = T_load(sine[place + i]);
            x[i] = T_store(a * c - b * d);
            x[i + HALF] = T_store(a * d + b * c);
        }
    }

    /* Takes the last key of each entry, and its value, out of the caches. */
    void make_fresh() {
        for (int entry = 0; s.entries == 2 && entry < 2; entry++) {
            positions.push_back(entry == 0 ? PLACES + 3 : 5);
        }
        for (int unit = 0; unit < s.entries * s.kv_heads; unit++) {
            const size_t at = ((size_t)unit * s.keys + length(unit / s.kv_heads) - 1) * HEAD;
            for (int d = 0; d < HEAD; d++) {
                new_k[(size_t)unit * HEAD + d] = k[at + d];
                new_v[(size_t)unit * HEAD + d] = v[at + d];
                k[at + d] = v[at + d] = T_store(NAN);
            }
            norm(used_k.data() + at, by_k);
            rotate(used_k.data() + at, unit / s.kv_heads);
        }
        for (int line = 0; line < s.entries * s.heads(); line++) {
            norm(used_q.data() + (size_t)line * HEAD, by_q);
            rotate(used_q.data() + (size_t)line * HEAD, line / s.heads());
        }
    }

    k_fresh fresh() {
        k_fresh fresh = {};
        fresh.k = new_k.data();
        fresh.v = new_v.data();
        fresh.keys = written_k.data();
        fresh.values = written_v.data();
        fresh.cosine = s.turned ? cosine.data() : nullptr;
        fresh.sine = sine.data();
        fresh.positions = positions.empty() ? nullptr : positions.data();
        fresh.k_stride[0] = fresh.v_stride[0] = (int64_t)s.kv_heads * HEAD;
        fresh.k_stride[1] = fresh.v_stride[1] = HEAD;
        fresh.present_rows = s.keys;
        fresh.cache_rows = PLACES;
        fresh.prompt = s.keys == 1;
        fresh.scale[0] = s.normed ? by_q.data() : nullptr;
        fresh.scale[1] = s.normed ? by_k.data() : nullptr;
        fresh.epsilon = 1e-3F;
        return fresh;
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
        set_decode_cut(args, s.kv_heads, s.group, s.rows, s.splits, s.meets);
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
        const double extra = s.sink == K_SINK_HEADS ? (double)T_load(sink[head]) : -INFINITY;
        std::vector<float> score((size_t)s.keys, -INFINITY);
        for (int key = 0; key < s.keys; key++) {
            double dot = 0;
            for (int e = 0; sees(entry, row, key) && e < HEAD; e++) {
                dot += (double)T_load(used_q[(size_t)line * HEAD + e]) *
                       (double)T_load(used_k[(unit + key) * HEAD + e]);
            }
            if (sees(entry, row, key)) {
                score[(size_t)key] =
                    (float)(dot / sqrt((double)HEAD) + masked(line % (s.heads() * s.rows), key));
            }
        }
        const double top = *std::max_element(score.begin(), score.end());
        double all = 0, want = 0;
        for (int key = 0; key < s.keys; key++) {
            const double weight =
                score[(size_t)key] == -INFINITY ? 0 : exp((double)score[(size_t)key] - top);
            all += weight;
            want += weight == 0 ? 0 : weight * (double)T_load(used_v[(unit + key) * HEAD + d]);
        }
        return all == 0 ? 0 : want / (all + exp(extra - top));
    }
};

void check_decoding(const shape &s) {
    decoding test(s);
    const mp_attention_args args = test.args();
    const unsigned blocks = (unsigned)(s.entries * s.kv_heads * args.row_blocks * s.splits);
#if K_FRESH
    const mp_fresh_args all = {args, test.fresh()};
#else
    const mp_attention_args all = args;
#endif
    run_blocks(
        blocks, s.warps * 32, [&] { attention_decode(all); }, s.meets ? s.splits : 1);
    check(!K_FRESH || test.has_written(), "the new row of the caches", 0);
    for (int line = 0; line < s.entries * s.heads() * s.rows; line++) {
        for (int d = 0; d < HEAD; d += 5) {
            const double got = args.part != nullptr
                                   ? decode_combined(test.part.data(), (size_t)line, s.splits, d)
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
    if (kind != K_MASK_BOOL) { /* the mean of values */
        check_decoding({1,
                        2,
                        3,
                        2,
                        5 * KEYS + 3,
                        2,
                        2,
                        true,
                        false,
                        0,
                        {},
                        K_SINK_NONE,
                        kind,
                        true,
                        false,
                        true});
        check_decoding(
            {1, 1, 4, 1, 3 * KEYS, 1, 2, false, true, 0, {}, K_SINK_NONE, kind, true, false, true});
    }
}

} // namespace

void run_tests() {
    if (K_FRESH) {
        check_decoding({1, 1, 1, 1, 1, 1, 1, false, true, 0, {0}});
        check_decoding({1, 2, 3, 1, 5 * KEYS + 3, 1, 2, false, true, 0, {5 * KEYS + 2}});
        check_decoding({2, 2, 3, 1, 7 * KEYS + 3, 4, 2, true, true, 0, {6 * KEYS, 5}});
        check_decoding({1, 1, 12, 1, 9 * KEYS, 8, 1, true, true, 0, {7 * KEYS - 1}, K_SINK_HEADS});
        check_decoding({2, 1, 8, 1, 9 * KEYS, 2, 2, false, true, KEYS + 5, {8 * KEYS + 2, 0}});
        check_decoding(
            {1, 2, 2, 1, 2 * KEYS, 1, 2, false, true, 0, {KEYS}, K_SINK_NONE, K_MASK_NONE, false});
        check_decoding({2,
                        2,
                        3,
                        1,
                        3 * KEYS,
                        2,
                        2,
                        true,
                        true,
                        0,
                        {KEYS, 9},
                        K_SINK_NONE,
                        K_MASK_NONE,
                        true,
                        true});
        return;
    }
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
