/* delta.cpp - linear attention whose tokens come ahead: columns of one lane and of several, less
 * than a chunk of tokens and more, an odd number and none, each rule, gates of any kind, heads that
 * share keys and queries, states by rows and by columns, of another request behind. With TOKEN the
 * kernel for about one token of each entry, of which some have none or more.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#if TOKEN
#include "kernel/recurrent/delta_token.cu"
#else
#include "kernel/recurrent/delta_ahead.cu"
#endif
#include "lanes.h"

namespace {
struct Subject {
    int64_t size, value, heads, k_heads, q_heads;
    std::vector<int32_t> starts; /* the last one: all tokens */
    bool decays, retrieves, has_past, by_columns;
    bool is_wide, is_normed, is_active; /* gates are floats; go through activations */
    bool one_beta;
};

float number(float least, float most) {
    return least + (float)(next_random() >> 8) * 0x1p-24F * (most - least);
}

template <typename V, typename Store>
void fill(Buffer<V> *to, int64_t count, float least, float most, Store store) {
    for (int64_t i = 0; i < count; i++) {
        (*to)[(size_t)i] = store(number(least, most));
    }
}

double softplus(double x) {
    return log1p(exp(x));
}
} // namespace

static void check_delta(const Subject *s) {
    const auto batch = (int64_t)s->starts.size() - 1;
    const int64_t tokens = s->starts.back(), size = s->size, value = s->value, heads = s->heads;
    const int64_t states = batch * heads * size * value;
    Buffer<T> q((size_t)(tokens * s->q_heads * size)), k((size_t)(tokens * s->k_heads * size));
    Buffer<T> v((size_t)(tokens * heads * value));
    Buffer<T> decay((size_t)(tokens * heads)), beta((size_t)(tokens * heads));
    Buffer<float> wide_decay((size_t)(tokens * heads)), wide_beta((size_t)(tokens * heads));
    Buffer<float> rate((size_t)heads), bias((size_t)heads);
    Buffer<U> past((size_t)states), present((size_t)states);
    std::vector<T> out((size_t)(tokens * heads * value) + 1);
    const auto narrow = [](float x) { return T_store(x); };
    const auto same = [](float x) { return x; };
    fill(&q, tokens * s->q_heads * size, -1, 1, narrow);
    fill(&k, tokens * s->k_heads * size, -0.2F, 0.2F, narrow);
    fill(&v, tokens * heads * value, -1, 1, narrow);
    fill(&decay, tokens * heads, -0.5F, 0, narrow);
    fill(&beta, tokens * heads, 0, 1, narrow);
    fill(&wide_decay, tokens * heads, -0.5F, 0, same);
    fill(&wide_beta, tokens * heads, 0, 1, same);
    fill(&rate, heads, -1, 1, same);
    fill(&bias, heads, -1, 1, same);
    fill(&past, states, -1, 1, [](float x) { return U_store(x); });

    mp_delta_args args = {};
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.past = s->has_past ? past.data() : nullptr;
    args.decay = !s->decays ? nullptr : s->is_wide ? (const void *)wide_decay.data() : decay.data();
    args.beta = !s->retrieves ? nullptr : s->is_wide ? (const void *)wide_beta.data() : beta.data();
    args.log_rate = rate.data();
    args.bias = bias.data();
    args.starts = s->starts.data();
    args.out = out.data();
    args.present = present.data();
    args.batch = batch;
    args.tokens = tokens;
    args.q_pitch = s->q_heads * size;
    args.k_pitch = s->k_heads * size;
    args.v_pitch = args.out_pitch = heads * value;
    args.heads = heads;
    args.k_heads = s->k_heads;
    args.q_heads = s->q_heads;
    args.row_step = s->by_columns ? 1 : value;
    args.column_step = s->by_columns ? size : 1;
    args.size = (int32_t)size;
    args.value = (int32_t)value;
    args.width = (int32_t)size / K_DELTA_KEEP;
    args.queries = 1;
    args.decays = s->decays;
    args.retrieves = s->retrieves;
    args.beta_heads = s->one_beta;
    args.gates_wide = s->is_wide;
    args.gate_rates = args.beta_sigmoids = s->is_active;
    args.normed = s->is_normed;
    args.scale = 0.25F;
    run_blocks(3, K_DELTA_LANES, [&] { K_NAME(args); });

    const double least = std::is_same<T, k_f16>::value ? 0x1p-24 : 0; /* between two numbers */
    const double step = sizeof(T) == 4 ? 2e-6 : std::is_same<T, k_f16>::value ? 0x1p-10 : 0x1p-7;
    const double step_state = sizeof(U) == 4                  ? 2e-6
                              : std::is_same<U, k_f16>::value ? 0x1p-10
                                                              : 0x1p-7;
    for (int64_t line = 0; line < batch * heads; line++) {
        const int64_t b = line / heads, h = line % heads;
        const int64_t k_head = h / (heads / s->k_heads), q_head = h * s->q_heads / heads;
        std::vector<double> state((size_t)(size * value));
        const auto place = [&](int64_t r, int64_t c) {
            return (size_t)(line * size * value + r * args.row_step + c * args.column_step);
        };
        for (int64_t i = 0; i < size * value; i++) {
            state[(size_t)i] = s->has_past ? (double)U_load(past[place(i / value, i % value)]) : 0;
        }
        for (int64_t t = s->starts[(size_t)b]; t < s->starts[(size_t)b + 1]; t++) {
            const auto gate = (size_t)(t * heads + h);
            const size_t beta_at = s->one_beta ? (size_t)t : gate;
            double factor = 0, share = 1, k_size = 0, q_size = 0;
            if (s->decays) {
                factor = s->is_wide ? wide_decay[gate] : T_load(decay[gate]);
                factor = s->is_active ? -exp(rate[(size_t)h]) * softplus(factor + bias[(size_t)h])
                                      : factor;
            }
            if (s->retrieves) {
                share = s->is_wide ? wide_beta[beta_at] : T_load(beta[beta_at]);
                share = s->is_active ? 1 / (1 + exp(-share)) : share;
            }
            const T *key = k.data() + t * args.k_pitch + k_head * size;
            const T *query = q.data() + t * args.q_pitch + q_head * size;
            for (int64_t r = 0; r < size; r++) {
                k_size += (double)T_load(key[r]) * T_load(key[r]);
                q_size += (double)T_load(query[r]) * T_load(query[r]);
            }
            const double by = s->is_normed ? 1 / sqrt(k_size + 1e-12) : 1;
            const double by_q = s->is_normed ? 1 / sqrt(q_size + 1e-12) : 1;
            for (int64_t c = 0; c < value; c++) {
                double held = 0, answer = 0, terms = 0;
                for (int64_t r = 0; r < size; r++) {
                    state[(size_t)(r * value + c)] *= exp(factor);
                    held += state[(size_t)(r * value + c)] * T_load(key[r]) * by;
                }
                const double given = T_load(v[(size_t)(t * args.v_pitch + h * value + c)]);
                const double change = s->retrieves ? share * (given - held) : given;
                for (int64_t r = 0; r < size; r++) {
                    state[(size_t)(r * value + c)] += T_load(key[r]) * by * change;
                    const double term = state[(size_t)(r * value + c)] * T_load(query[r]) * by_q;
                    answer += term * 0.25;
                    terms += fabs(term);
                }
                const double found = T_load(out[(size_t)(t * args.out_pitch + h * value + c)]);
                check(fabs(found - answer) <= terms * 4e-6 + fabs(answer) * step + least,
                      "an answer", t);
            }
        }
        for (int64_t i = 0; i < size * value; i++) {
            const double want = state[(size_t)i];
            const double found = U_load(present[place(i / value, i % value)]);
            check(fabs(found - want) <= 1e-5 + fabs(want) * step_state, "a state", i);
        }
    }
    check(T_load(out.back()) == 0, "nothing behind the answers", 0);
}

void run_tests() {
    static const Subject subjects[] = {
#if TOKEN
        {128, 64, 4, 2, 2, {0, 1, 2}, true, true, true, true, true, true, true, false},
        {128, 128, 2, 1, 2, {0, 1, 1, 3}, true, true, true, true, false, false, false, true},
        {128, 192, 1, 1, 1, {0, 0, 1}, false, true, false, true, false, true, false, false},
        {128, 64, 3, 1, 3, {0, 2, 2, 3}, true, false, true, true, true, false, true, false},
        {128, 64, 2, 2, 1, {0, 1}, false, false, true, true, false, true, false, false},
#else
        {128, 32, 2, 2, 2, {0, 37}, true, true, true, false, false, false, false, false},
        {128, 24, 2, 1, 1, {0, 5, 5, 6}, true, true, true, true, true, true, true, false},
        {16, 8, 3, 1, 3, {0, 16, 17}, true, false, false, false, false, false, false, false},
        {64, 48, 1, 1, 1, {0, 33}, false, true, true, true, true, true, false, true},
        {256, 16, 2, 2, 1, {0, 2, 4}, false, false, true, false, false, true, true, false},
        {32, 40, 2, 2, 2, {0, 20, 39}, true, true, false, true, false, false, false, true},
#endif
    };
    for (const Subject &each : subjects) {
        check_delta(&each);
    }
}
