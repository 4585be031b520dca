/* attention.cpp - attention by tensor cores, with several warps for the rows and for the keys: with
 * DIRECT the kernel for scores that are products, with K_MASKED the one that adds masks to them;
 * with BY_GROUPS those of groups of warps, with BY_TURNS the one where these take turns.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#if BY_TURNS
#include "group.h"

#include "kernel/attention/attention_turns.cu"
#define attention_kernel attention_turns
enum {
    WARP_ROWS = K_MMA_ROWS,
    STEPS = 1,
    GROUP_ROWS = K_TURNS_ROWS,
    ALL_LANES = K_TURNS_LANES(K_HEAD)
};
#elif BY_GROUPS
#include "group.h"

#include "kernel/attention/attention_group.cu"
#define attention_kernel attention_group
enum { WARP_ROWS = K_MMA_ROWS, STEPS = 1, GROUP_ROWS = K_ROWS, ALL_LANES = K_GROUP_LANES(K_ROWS) };
#elif DIRECT
#include "kernel/attention/attention_direct.cu"
#define attention_kernel attention_direct
enum { WARP_ROWS = K_ROWS, STEPS = 64 / KEYS, GROUP_ROWS = 0, ALL_LANES = 0 };
#else
#include "kernel/attention/attention_mma.cu"
#define attention_kernel attention_mma
enum { WARP_ROWS = K_MMA_ROWS, GROUP_ROWS = 0, ALL_LANES = 0 };
#endif
#include "divider.h"
#include "lanes.h"

namespace {

enum filling {
    MIXED,   /* every third key is left out, and all of row 2 */
    NOTHING, /* all keys are */
    ALL_LOW, /* in every other row all keys get the lowest number, in the others every third one */
    ONE_NAN  /* the second element is one */
};

/* A mask of [batch, heads, rows, keys], of which those repeat that are not asked for. */
struct mask_of {
    int kind = K_MASK_NONE;
    bool batch = false, heads = false, rows = true;
    filling filled = MIXED;
    int skew = 0; /* elements behind a multiple of 16 bytes */
};

int32_t tiles_each = 0; /* of BY_TURNS: that a block has at a time */

struct shape {
    int heads, rows, keys, size, row_warps, sets;
    bool causal = false;
    mask_of mask = {};
    int group = 1, steps = 1; /* heads that share a key head; of a warp's share of a tile */
    int window = 0, length = 0;
    int batch = 1, padding = K_PADDING_NONE;
    float filter = -10000;
    int sink = K_SINK_NONE;
    double cap = 0;
    int shorter = 0; /* so many keys fewer has each further entry, where a length is given */
    int valid(int entry) const {
        return length - entry * shorter;
    }
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

/* Elements of a mask. */
struct mask_values {
    const shape &s;
    const int dim[4];
    Buffer<unsigned char> bytes;

    explicit mask_values(const shape &given)
        : s(given), dim{s.mask.batch ? s.batch : 1, s.mask.heads ? s.heads : 1,
                        s.mask.rows ? s.rows : 1, s.keys},
          bytes((size_t)(dim[0] * dim[1] * dim[2] * dim[3]) * width(), s.mask.skew * width()) {
        for (int i = 0; i < dim[0] * dim[1] * dim[2] * dim[3]; i++) {
            put(i, value(i));
        }
    }
    size_t width() const {
        const int kind = s.mask.kind;
        return kind == K_MASK_F64 ? 8 : kind == K_MASK_F32 ? 4 : kind == K_MASK_BOOL ? 1 : 2;
    }
    float lowest() const {
        return s.mask.kind == K_MASK_F16    ? -65504.0F
               : s.mask.kind == K_MASK_BF16 ? -0x1.fep127F
                                            : -0x1.fffffep127F;
    }
    float value(int i) const {
        const int row = i / s.keys % dim[2];
        const float some = (float)(next_random() % 9) / 8;
        switch (s.mask.filled) {
        case NOTHING:
            return -INFINITY;
        case ALL_LOW:
            return row % 2 == 0 || i % 3 == 1 ? lowest() : some;
        case ONE_NAN:
            return i == 1 ? NAN : some;
        default:
            return i % 3 == 1 || row == 2 ? -INFINITY : some;
        }
    }
    void put(int i, float x) {
        unsigned char *to = bytes.data() + i * width();
        const double wide = x;
        const k_f16 half = k_store_f16(x);
        const k_bf16 brain = k_store_bf16(x);
        const unsigned char there = x > -1000;
        switch (s.mask.kind) {
        case K_MASK_F64:
            memcpy(to, &wide, 8);
            break;
        case K_MASK_F32:
            memcpy(to, &x, 4);
            break;
        case K_MASK_F16:
            memcpy(to, &half, 2);
            break;
        case K_MASK_BF16:
            memcpy(to, &brain, 2);
            break;
        default:
            *to = there;
        }
    }
    int64_t stride(int d) const {
        int64_t step = 1;
        for (int i = d + 1; i < 4; i++) {
            step *= dim[i];
        }
        return dim[d] == 1 ? 0 : step;
    }
    /* What becomes of a score. */
    float masked(float score, int entry, int head, int row, int key) {
        const int64_t at = entry * stride(0) + head * stride(1) + row * stride(2) + key * stride(3);
        const unsigned char *from = bytes.data() + at * width();
        double wide;
        float x;
        k_f16 half;
        k_bf16 brain;
        switch (s.mask.kind) {
        case K_MASK_F64:
            memcpy(&wide, from, 8);
            return score + (float)wide;
        case K_MASK_F32:
            memcpy(&x, from, 4);
            return score + x;
        case K_MASK_F16:
            memcpy(&half, from, 2);
            return score + k_load_f16(half);
        case K_MASK_BF16:
            memcpy(&brain, from, 2);
            return score + k_load_bf16(brain);
        case K_MASK_BOOL:
            return *from != 0 ? score : -INFINITY;
        default:
            return score;
        }
    }
};

/* Keys that are padding, in the form of each kind. */
struct padding_values {
    const shape &s;
    std::vector<int32_t> words;
    std::vector<unsigned char> marks;

    explicit padding_values(const shape &given)
        : s(given), words((size_t)s.batch * std::max(s.keys, 2)), marks((size_t)s.batch * s.keys) {
        for (int b = 0; b < s.batch; b++) {
            for (int key = 0; key < s.keys; key++) {
                marks[b * s.keys + key] = is(b, key);
                if (s.padding == K_PADDING_FLAGS) {
                    words[b * s.keys + key] = !is(b, key);
                }
            }
            if (s.padding != K_PADDING_FLAGS) {
                words[b] = end(b);
                words[s.batch + b] = begin(b);
            }
        }
    }
    int end(int b) const {
        return s.keys - 3 - 2 * b;
    }
    int begin(int b) const {
        return s.padding == K_PADDING_SPANS ? 1 + b : 0;
    }
    bool is(int b, int key) const {
        return s.padding != K_PADDING_NONE && (key < begin(b) || key >= end(b));
    }
    const void *data() const {
        return s.padding == K_PADDING_MARKS ? (const void *)marks.data() : words.data();
    }
};

struct tensors {
    Buffer<T> q, k, v, sink;
    mask_values mask;
    padding_values padding;

    explicit tensors(const shape &s)
        : q(random_values((size_t)s.batch * s.heads * s.rows * s.size)),
          k(random_values((size_t)s.batch * s.heads / s.group * s.keys * s.size)),
          v(random_values((size_t)s.batch * s.heads / s.group * s.keys * s.size)),
          sink(random_values(s.heads)), mask(s), padding(s) {
    }
};

/* A row of the result by plain loops. */
struct query {
    const shape *s;
    tensors *t;
    int entry, head, row;

    size_t key_place(int key) const {
        const int kv_heads = s->heads / s->group;
        return ((size_t)(entry * kv_heads + head / s->group) * s->keys + key) * s->size;
    }
    double score(int key) const {
        double dot = 0;
        for (int d = 0; d < s->size; d++) {
            dot += (double)T_load(t->q[((entry * s->heads + head) * s->rows + row) * s->size + d]) *
                   (double)T_load(t->k[key_place(key) + d]);
        }
        dot /= sqrt((double)s->size);
        dot = s->cap > 0 ? s->cap * tanh(dot / s->cap) : dot;
        const bool out = (s->causal && key > row) || (s->length > 0 && key >= s->valid(entry)) ||
                         (s->window > 0 && key + s->window <= row);
        const float masked = t->mask.masked((float)dot, entry, head, row, key);
        return out ? -INFINITY : masked + (t->padding.is(entry, key) ? s->filter : 0);
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
        const bool none = sum == 0;
        if (s->sink != K_SINK_NONE && !none) {
            sum += exp((s->sink == K_SINK_HEADS ? (double)T_load(t->sink[head]) : 0) - top);
        }
        for (int d = 0; d < s->size; d++) {
            double want = 0;
            for (int key = 0; key < s->keys; key++) {
                want += weight[key] * (double)T_load(t->v[key_place(key) + d]);
            }
            want = none ? 0 : want / sum;
            const double got = (double)T_load(out[d]);
            check(std::isnan(want) ? std::isnan(got) : fabs(got - want) <= 4 * precision(),
                  "an element", d);
        }
    }
};

/* Whether rows of a block have masks of their own. */
bool has_row_masks(const shape &s) {
    return s.mask.kind != K_MASK_NONE && (s.mask.rows || (s.mask.heads && s.group > 1));
}

/* By groups all that can be copied is. */
int row_masks_of(const shape &s) {
    const bool is_half = s.mask.kind == K_MASK_F16 || s.mask.kind == K_MASK_BF16;
    const bool begins = s.keys % 8 == 0 && s.mask.skew == 0;
    return !has_row_masks(s)                ? K_ROW_MASKS_NONE
           : BY_GROUPS && is_half && begins ? K_ROW_MASKS_COPIED
                                            : K_ROW_MASKS_ASKED;
}

mp_attention_args args_of(const shape &s, tensors &t) {
    mp_attention_args args = {};
    args.head_size = args.v_head_size = s.size;
    args.wide = 1;
    args.tile_rows = s.row_warps * WARP_ROWS;
    args.tile_keys = s.sets * s.steps * KEYS;
    args.row_masks = row_masks_of(s);
    if (s.padding != K_PADDING_NONE || (s.mask.kind != K_MASK_NONE && !has_row_masks(s))) {
        args.added_keys = (s.keys + args.tile_keys - 1) / args.tile_keys * args.tile_keys;
    }
    const int kv_heads = s.heads / s.group;
    const int64_t row = (int64_t)s.rows * s.size, key = (int64_t)s.keys * s.size;
    const int64_t q[3] = {s.heads * row, row, s.size}, k[3] = {kv_heads * key, key, s.size};
    memcpy(args.q_stride, q, sizeof q);
    memcpy(args.out_stride, q, sizeof q);
    memcpy(args.k_stride, k, sizeof k);
    memcpy(args.v_stride, k, sizeof k);
    args.q = t.q.data();
    args.k = t.k.data();
    args.v = t.v.data();
    args.round = BY_TURNS ? (s.rows + args.tile_rows - 1) / args.tile_rows : 2;
    args.groups = tiles_each;
    args.row_blocks = (s.group * s.rows + args.tile_rows - 1) / args.tile_rows;
    args.by_row_blocks = divider(args.row_blocks);
    args.by_kv_heads = divider(kv_heads);
    args.by_units = divider(s.batch * kv_heads);
    args.by_rows = divider(s.rows);
    args.by_round = divider(args.round);
    k_score_rule &rule = args.rule;
    rule.batch = s.batch;
    rule.group = s.group;
    rule.heads = s.heads;
    rule.kv_heads = kv_heads;
    rule.rows = s.rows;
    rule.keys = s.keys;
    rule.mask = t.mask.bytes.data();
    rule.mask_keys = INT64_MAX;
    rule.mask_kind = s.mask.kind;
    for (int d = 0; d < 4; d++) {
        rule.mask_stride[d] = t.mask.stride(d);
    }
    rule.padding = t.padding.data();
    rule.padding_kind = s.padding;
    rule.padding_stride[0] = s.keys;
    rule.filter = s.filter;
    rule.sink = t.sink.data();
    rule.sink_kind = s.sink;
    rule.causal = s.causal;
    rule.window = s.window;
    rule.scale = 1 / sqrt((double)s.size);
    rule.softcap = s.cap;
    return args;
}

void check_attention(shape s) {
    if (BY_GROUPS) { /* whose blocks have one form */
        s.row_warps = (int)(GROUP_ROWS / WARP_ROWS);
        s.sets = 1;
    }
    tensors t(s);
    std::vector<int32_t> length;
    for (int b = 0; b < s.batch; b++) {
        length.push_back(s.valid(b) - 1);
    }
    Buffer<T> out((size_t)s.batch * s.heads * s.rows * s.size);
    mp_attention_args args = args_of(s, t);
    args.out = out.data();
    if (s.length > 0) {
        args.rule.lengths = length.data();
        args.rule.length_more = 1;
    }
    run_blocks(3, BY_GROUPS ? ALL_LANES : s.row_warps * s.sets * LANES,
               [&] { attention_kernel(args); });
    for (int i = 0; i < s.batch * s.heads * s.rows; i++) {
        const query one = {&s, &t, i / s.rows / s.heads, i / s.rows % s.heads, i % s.rows};
        one.check_against(out.data() + (size_t)i * s.size);
    }
}

/* Masks of the kinds that the kernels load ahead. */
void check_masks_of_rows() {
    const int own = K_FLOAT ? K_MASK_F32 : K_MASK_F16;
    check_attention({1, 19, 4 * KEYS + 3, HEAD, 1, 2, false, {own}});
    check_attention({1, 35, KEYS + 10, HEAD, 2, 2, true, {K_MASK_BOOL}});
    check_attention({2, 17, KEYS + 2, HEAD, 2, 1, false, {own, false, true, true, ALL_LOW, 1}});
    check_attention({2, 18, 70, HEAD - 8, 1, 1, true, {own, false, false, true, ONE_NAN}});
    check_attention({1, 21, 65, HEAD, 1, 1, false, {K_FLOAT ? K_MASK_F32 : K_MASK_BF16}});
}

#if (DIRECT || BY_GROUPS) && K_MASKED
/* Of all kinds, where they are the same for all rows; padding with and without them. */
void check_masks_of_keys() {
    for (int kind : {K_MASK_BOOL, K_MASK_F32, K_MASK_F16, K_MASK_BF16, K_MASK_F64}) {
        check_attention(
            {2, 20, KEYS + 7, HEAD, 1, 2, false, {kind, true, true, false}, 1, 1, 0, 0, 2});
    }
    check_attention({2, 9, 1, HEAD, 1, 1, false, {K_MASK_F32, false, false, false, ALL_LOW}});
    check_attention({2, 18, 1, HEAD, 2, 1, false, {K_MASK_BOOL, false, false, false}});
    check_attention({1, 30, 90, HEAD, 2, 1, true, {K_MASK_F32, false, false, false, NOTHING}});
    check_attention({1,
                     30,
                     2 * KEYS,
                     HEAD,
                     2,
                     1,
                     false,
                     {K_MASK_BF16, false, false, false, ALL_LOW},
                     1,
                     1,
                     0,
                     KEYS + 9});
    check_attention({1, 40, 90, HEAD, 1, 1, false, {K_MASK_F32, false, false, false, ONE_NAN}});
    check_attention({4, 11, 70, HEAD, 2, 1, true, {K_MASK_F64, false, false, false}, 2, 1, 20});
    for (int kind : {K_PADDING_FLAGS, K_PADDING_MARKS, K_PADDING_ENDS, K_PADDING_SPANS}) {
        check_attention({2, 18, KEYS + 5, HEAD, 1, 2, false, {}, 1, 1, 0, 0, 2, kind});
    }
    check_attention({2,
                     18,
                     50,
                     HEAD,
                     1,
                     1,
                     true,
                     {K_MASK_BOOL},
                     2,
                     1,
                     0,
                     0,
                     1,
                     K_PADDING_ENDS,
                     -0x1.fffffep127F,
                     K_SINK_HEADS});
    check_attention({1,
                     8,
                     20,
                     HEAD,
                     1,
                     1,
                     false,
                     {K_MASK_BOOL, false, false, false},
                     1,
                     1,
                     0,
                     0,
                     1,
                     K_PADDING_FLAGS});
}

/* Scores with a cap, alone and before masks of rows and of keys. */
void check_caps() {
    const int own = K_FLOAT ? K_MASK_F32 : K_MASK_F16;
    for (const mask_of &mask : {mask_of{}, mask_of{own}, mask_of{K_MASK_BOOL, true, true, false}}) {
        shape s = {2, 70, 3 * KEYS + 5, HEAD, 2, 1, false, mask};
        s.cap = 1.5;
        check_attention(s);
    }
    shape s = {2, 90, 90, HEAD, 1, 2, true, {}, 2, 1, 30};
    s.cap = 50;
    check_attention(s);
}
#endif

#if BY_TURNS
void check_turns() {
    check_attention({5, 130, 3 * KEYS + 5, HEAD}); /* some tiles of a block are of the next head */
    check_attention({2, 130, 65, HEAD});
    check_attention({11, 1, 1, HEAD}); /* as many streams as groups */
    check_attention({4, 50, 3 * KEYS, HEAD - 8, 0, 0, false, {}, 2, 1, 0, 0, 2});
    for (int longest : {2 * KEYS + 70, 2 * KEYS}) { /* then the last entry has none */
        shape s = {1, 90, 4 * KEYS, HEAD, 0, 0, false, {}, 1, 1, 0, longest, 3};
        s.shorter = KEYS;
        check_attention(s);
    }
    check_attention(
        {2, 30, 40, HEAD, 0, 0, false, {}, 2, 1, 0, 0, 2, K_PADDING_NONE, 0, K_SINK_HEADS});
    check_attention(
        {1, 200, 90, HEAD - 16, 0, 0, false, {}, 1, 1, 0, 0, 1, K_PADDING_NONE, 0, K_SINK_ZERO});
}
#endif

} // namespace

void run_tests() {
#if BY_GROUPS && K_MASKED
    check_masks_of_rows();
    check_masks_of_keys();
    check_caps();
    check_attention(
        {2, 130, 3 * KEYS + 5, HEAD, 0, 0, false, {K_MASK_F16, true, true}, 1, 1, 0, 0, 2});
    check_attention({4, 90, 5 * KEYS, HEAD, 0, 0, true, {K_MASK_BOOL, false, true, false}, 2});
    check_attention({1, 200, 200, HEAD - 8, 0, 0, true, {K_MASK_BF16}, 1, 1, 70});
    check_attention(
        {2, 70, 5 * KEYS + 8, HEAD, 0, 0, false, {K_MASK_F16, true, true}, 1, 1, 0, 0, 2});
    return;
#elif BY_TURNS
    for (tiles_each = K_TURNS_GROUPS(K_HEAD); tiles_each > 0; tiles_each -= 2) {
        check_turns();
    }
    return;
#elif BY_GROUPS
    check_attention({2, 130, 3 * KEYS + 5, HEAD});
    check_attention({1, 45, 45, HEAD - 8, 0, 0, true});
    check_attention({1, 400, 400, HEAD, 0, 0, true});
    const int rows = K_ROWS > 64 ? K_ROWS : 90; /* that blocks have of one head */
    check_attention({4, rows, 6 * KEYS, HEAD, 0, 0, true, {}, 2});
    check_attention({1, 300, 300, HEAD, 0, 0, true, {}, 1, 1, 70});
    check_attention({2, 20, 5 * KEYS, HEAD, 0, 0, false, {}, 1, 1, 0, 2 * KEYS + 9});
    check_attention(
        {2, 30, 40, HEAD, 0, 0, true, {}, 1, 1, 0, 0, 2, K_PADDING_NONE, 0, K_SINK_HEADS});
    return;
#endif
#if !DIRECT || K_MASKED
    check_masks_of_rows();
#endif
#if DIRECT && K_MASKED
    check_masks_of_keys();
    check_caps();
    check_attention({4, 20, 70, HEAD, 2, 1, false, {K_MASK_BOOL, false, true, false}, 2});
#else
    check_attention({2, 21, 2 * KEYS + 5, HEAD, 1, 1});
    check_attention({1, 45, 45, HEAD - 8, 2, 1, true});
    check_attention({1, 150, 150, HEAD, 3, 1, true});
    check_attention({1, 80, 2 * KEYS + 1, HEAD, 5, 2});
    check_attention(
        {2, 30, 40, HEAD, 2, 1, true, {}, 1, 1, 0, 0, 2, K_PADDING_NONE, 0, K_SINK_HEADS});
    check_attention(
        {1, 20, 40, HEAD, 1, 1, false, {}, 1, 1, 0, 0, 1, K_PADDING_NONE, 0, K_SINK_ZERO});
#endif
#if DIRECT
    const mask_of mask = {K_MASKED ? K_MASK_BOOL : K_MASK_NONE, false, false, false};
    check_attention({6, 25, 4 * KEYS + 3, HEAD, 2, 2, false, mask, 3, STEPS});
    check_attention({2, 130, 130, HEAD, 1, 2, true, mask, 2, 1});
    check_attention({1, 150, 150, HEAD, 2, 1, true, mask, 1, STEPS, 20});
    check_attention({1, 40, 3 * KEYS, HEAD, 1, 2, false, mask, 1, STEPS, 0, KEYS + 5});
#endif
}
