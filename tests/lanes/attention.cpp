/* attention.cpp - attention by tensor cores, with several warps for the rows and for the keys: with
 * DIRECT the kernel for scores that are products.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#if DIRECT
#include "kernel/attention/attention_direct.cu"
#define attention_kernel attention_direct
enum { WARP_ROWS = K_ROWS, STEPS = 64 / KEYS };
#else
#include "kernel/attention/attention_mma.cu"
#define attention_kernel attention_mma
enum { WARP_ROWS = K_MMA_ROWS };
#endif
#include "divider.h"
#include "lanes.h"

namespace {

struct shape {
    int heads, rows, keys, size, row_warps, sets;
    bool causal;
    int mask_kind;
    int group = 1, steps = 1; /* heads that share a key head; of a warp's share of a tile */
    int window = 0, length = 0;
};

/* Of T, or of TF32, which has the digits of float16. */
double precision() {
    return T_load(T_store(1 + 1.0F / 256)) == 1 ? 1.0 / 128 : 1.0 / 1024;
}

T random_value() {
    return T_store((float)(next_random() % 2001) / 500 - 2);
}

Buffer<T> random_values(size_t count) {
    Buffer<T> values(count);
    for (size_t i = 0; i < count; i++) {
        values[i] = random_value();
    }
    return values;
}

/* A row of the result by plain loops. */
struct query {
    const shape *s;
    int head, row;
    Buffer<T> *q, *k, *v;
    std::vector<float> *mask;

    double score(int key) const {
        double dot = 0;
        for (int d = 0; d < s->size; d++) {
            dot += (double)T_load((*q)[(head * s->rows + row) * s->size + d]) *
                   (double)T_load((*k)[(head / s->group * s->keys + key) * s->size + d]);
        }
        dot /= sqrt((double)s->size);
        const bool out = (s->causal && key > row) || (s->length > 0 && key >= s->length) ||
                         (s->window > 0 && key + s->window <= row);
        return out ? -INFINITY : s->mask_kind == 0 ? dot : dot + (*mask)[row * s->keys + key];
    }
    void check_against(const T *out) const {
        std::vector<double> weight(s->keys);
        double top = -INFINITY, sum = 0;
        for (int key = 0; key < s->keys; key++) {
            weight[key] = score(key);
            top = std::max(top, weight[key]);
        }
        for (double &w : weight) {
            w = w == -INFINITY ? 0 : exp(w - top);
            sum += w;
        }
        for (int d = 0; d < s->size; d++) {
            double want = 0;
            for (int key = 0; key < s->keys; key++) {
                const int place = (head / s->group * s->keys + key) * s->size + d;
                want += weight[key] * (double)T_load((*v)[place]);
            }
            want = sum == 0 ? 0 : want / sum;
            const double got = (double)T_load(out[d]);
            check(fabs(got - want) <= 4 * precision(), "an element", d);
        }
    }
};

mp_attention_args args_of(const shape &s) {
    mp_attention_args args = {};
    args.head_size = args.v_head_size = s.size;
    args.wide = 1;
    args.tile_rows = s.row_warps * WARP_ROWS;
    args.tile_keys = s.sets * s.steps * KEYS;
    const int64_t q[3] = {0, (int64_t)s.rows * s.size, s.size};
    const int64_t k[3] = {0, (int64_t)s.keys * s.size, s.size};
    memcpy(args.q_stride, q, sizeof q);
    memcpy(args.out_stride, q, sizeof q);
    memcpy(args.k_stride, k, sizeof k);
    memcpy(args.v_stride, k, sizeof k);
    args.round = 2;
    args.row_blocks = (s.group * s.rows + args.tile_rows - 1) / args.tile_rows;
    args.by_row_blocks = divider(args.row_blocks);
    args.by_kv_heads = args.by_units = divider(s.heads / s.group);
    args.by_rows = divider(s.rows);
    args.by_round = divider(args.round);
    k_score_rule &rule = args.rule;
    rule.batch = 1;
    rule.group = s.group;
    rule.heads = s.heads;
    rule.kv_heads = s.heads / s.group;
    rule.rows = s.rows;
    rule.keys = s.keys;
    rule.mask_keys = INT64_MAX;
    rule.mask_kind = s.mask_kind;
    rule.mask_stride[2] = s.keys;
    rule.mask_stride[3] = 1;
    rule.causal = s.causal;
    rule.window = s.window;
    rule.scale = 1 / sqrt((double)s.size);
    return args;
}

void check_attention(const shape &s) {
    Buffer<T> q = random_values((size_t)s.heads * s.rows * s.size);
    Buffer<T> k = random_values((size_t)s.heads / s.group * s.keys * s.size);
    Buffer<T> v = random_values((size_t)s.heads / s.group * s.keys * s.size);
    const int32_t length = s.length - 1;
    Buffer<T> out((size_t)s.heads * s.rows * s.size);
    std::vector<float> mask((size_t)s.rows * s.keys);
    for (size_t i = 0; i < mask.size(); i++) {
        mask[i] = i % 3 == 1 || i / s.keys == 2 ? -INFINITY : (float)(next_random() % 9) / 8;
    }
    mp_attention_args args = args_of(s);
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.out = out.data();
    args.rule.mask = mask.data();
    if (s.length > 0) {
        args.rule.lengths = &length;
        args.rule.length_more = 1;
    }
    run_blocks(3, s.row_warps * s.sets * LANES, [&] { attention_kernel(args); });
    for (int i = 0; i < s.heads * s.rows; i++) {
        const query one = {&s, i / s.rows, i % s.rows, &q, &k, &v, &mask};
        one.check_against(out.data() + (size_t)i * s.size);
    }
}

} // namespace

void run_tests() {
    check_attention({2, 21, 2 * KEYS + 5, HEAD, 1, 1, false, K_MASK_NONE});
    check_attention({1, 45, 45, HEAD - 8, 2, 1, true, K_MASK_NONE});
    check_attention({1, 150, 150, HEAD, 3, 1, true, K_MASK_NONE});
    check_attention({1, 80, 2 * KEYS + 1, HEAD, 5, 2, false, K_MASK_NONE});
#if DIRECT
    check_attention({6, 25, 4 * KEYS + 3, HEAD, 2, 2, false, K_MASK_NONE, 3, STEPS});
    check_attention({2, 130, 130, HEAD, 1, 2, true, K_MASK_NONE, 2, 1});
    check_attention({1, 150, 150, HEAD, 2, 1, true, K_MASK_NONE, 1, STEPS, 20});
    check_attention({1, 40, 3 * KEYS, HEAD, 1, 2, false, K_MASK_NONE, 1, STEPS, 0, KEYS + 5});
#else
    check_attention({1, 19, 4 * KEYS + 3, HEAD, 1, 2, false, K_MASK_F32});
    check_attention({1, 35, KEYS + 10, HEAD, 2, 2, true, K_MASK_F32});
#endif
}
