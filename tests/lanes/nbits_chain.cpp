/* nbits_chain.cpp - a row through several products with packed integers, by the blocks of a
 * cluster: rows that end within a stage, tiles that some blocks have none of, more stages than a
 * warp has on their way, norms with and without a sum before, gates, blocks of every
 * length, a row that is not finite.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "cluster.h"
#include "kernel/quantize/nbits_chain.cu"
#include "lanes.h"

extern "C" {
#include "op/quantize/nbits_chain_cut.h"
}

#include <memory>

namespace {
enum { MIDDLE = 1 << (K_BITS - 1), MASK = (1 << K_BITS) - 1 };

struct Part {
    int32_t n, k, block;
    bool is_normed, is_gated, has_bias;
};

struct Subject {
    int blocks_log, warps;
    bool has_skip, is_infinite;
    std::vector<Part> parts;
};

struct Weights {
    Buffer<uint8_t> weight;
    Buffer<T> scale, bias, norm, sum;
    Weights(const Part &p, int64_t blocks)
        : weight((size_t)(p.n * p.k * K_BITS / 8)), scale((size_t)(p.n * blocks)),
          bias((size_t)p.n), norm((size_t)p.k), sum((size_t)p.k) {
    }
};

int packed_at(const uint8_t *row, int64_t i) {
    return row[i * K_BITS / 8] >> i * K_BITS % 8 & MASK;
}

double rounded(double x) {
    return T_load(T_store((float)x));
}

std::unique_ptr<Weights> weights_of(const Part &p, k_chain_link *link) {
    const int64_t blocks = p.k / p.block;
    auto made = std::make_unique<Weights>(p, blocks);
    const auto byte = [] { return (uint8_t)next_random(); };
    fill_with(made->weight, p.n * p.k * K_BITS / 8, byte);
    fill_with(made->scale, p.n * blocks, [] { return T_store(small_number() / (1 << K_BITS)); });
    fill_with(made->bias, p.n, [] { return T_store(small_number()); });
    fill_with(made->norm, p.k, [] { return T_store(small_number() + 1); });
    link->weight = made->weight.data();
    link->scale = made->scale.data();
    link->bias = p.has_bias ? made->bias.data() : nullptr;
    link->norm = p.is_normed ? made->norm.data() : nullptr;
    link->sum = p.is_normed ? made->sum.data() : nullptr;
    link->n = p.n;
    link->k = p.k;
    link->middle = MIDDLE;
    link->gated = p.is_gated;
    link->gate = K_GATE_SWISH;
    link->alpha = 1;
    link->epsilon = 1e-5F;
    while (K_NBITS_CHUNK << link->chunks_log < p.block) {
        link->chunks_log++;
    }
    return made;
}

/* What a link makes of the row, and by how much each may be off because the row is by `step`. */
struct Made {
    std::vector<double> value, off;
};

double step() {
    return std::is_same<T, k_f16>::value ? 0x1p-11 : 0x1p-8;
}

Made product(const Part &p, Weights &w, const std::vector<double> &row, bool is_exact) {
    const int64_t blocks = p.k / p.block;
    Made made;
    for (int64_t n = 0; n < p.n; n++) {
        double total = p.has_bias ? T_load(w.bias[(size_t)n]) : 0, size = fabs(total);
        for (int64_t k = 0; k < p.k; k++) {
            const int64_t block = k / p.block;
            const int q = packed_at(w.weight.data() + n * p.k * K_BITS / 8, k);
            const double term =
                row[(size_t)k] * (q - MIDDLE) * T_load(w.scale[(size_t)(n * blocks + block)]);
            total += term;
            size += fabs(term);
        }
        made.value.push_back(rounded(total));
        made.off.push_back(size * (is_exact ? 1e-6 : 2 * step()) + fabs(total) * step());
    }
    if (!p.is_gated) {
        return made;
    }
    Made gated;
    for (int64_t n = 0; n < p.n / 2; n++) {
        const double gate = made.value[(size_t)n], x = made.value[(size_t)(n + p.n / 2)];
        const double active = gate / (1 + exp(-gate));
        gated.value.push_back(rounded(active * x));
        gated.off.push_back(
            1.1 * made.off[(size_t)n] * (fabs(x) + made.off[(size_t)(n + p.n / 2)]) +
            fabs(active) * made.off[(size_t)(n + p.n / 2)] + fabs(active * x) * step());
    }
    return gated;
}

std::vector<double> normed(const Part &p, Weights &w, const std::vector<double> &row,
                           std::vector<double> *residual) {
    std::vector<double> made;
    double squares = 0;
    for (int64_t k = 0; k < p.k; k++) {
        const double sum = row[(size_t)k] + (*residual)[(size_t)k];
        made.push_back(sum);
        squares += sum * sum;
        (*residual)[(size_t)k] = rounded(sum);
    }
    const double inverse = 1 / sqrt(squares / p.k + 1e-5);
    for (int64_t k = 0; k < p.k; k++) {
        made[(size_t)k] = rounded(made[(size_t)k] * inverse * T_load(w.norm[(size_t)k]));
    }
    return made;
}

void check_value(double found, double want, double off, const char *what, int64_t i) {
    check(std::isnan(want)   ? std::isnan(found)
          : std::isinf(want) ? found == want
                             : fabs(found - want) <= off,
          what, i);
}

/* Links are checked by the row that the one before them should make, which it does but for
 * roundings; so what the last one makes may be off by what those come to. */
void check_chain(const Subject &s) {
    mp_nbits_chain_args args = {};
    std::vector<std::unique_ptr<Weights>> weights;
    uint32_t is_normed = 0;
    int32_t width = 0;
    args.links = (int32_t)s.parts.size();
    for (size_t i = 0; i < s.parts.size(); i++) {
        weights.push_back(weights_of(s.parts[i], &args.link[i]));
        is_normed |= s.parts[i].is_normed ? 1u << i : 0;
        width = s.parts[i].is_normed ? s.parts[i].k : width;
    }
    const Part &last = s.parts.back();
    Buffer<T> a((size_t)s.parts[0].k), skip((size_t)width + 1), out((size_t)last.n);
    fill_with(a, s.parts[0].k, [] { return T_store(small_number()); });
    fill_with(skip, width, [] { return T_store(small_number()); });
    if (s.is_infinite) {
        a[(size_t)s.parts[0].k / 2 + 5] = T_store(INFINITY);
    }
    args.a = a.data();
    args.skip = s.has_skip ? skip.data() : nullptr;
    args.out = out.data();
    const int64_t bytes = mp_nbits_chain_lay_out(K_BITS, is_normed, s.blocks_log, s.warps, &args);
    check(bytes < 227 << 10, "bytes", bytes);
    run_blocks(
        1u << s.blocks_log, (unsigned)s.warps * 32, [&] { K_NAME(args); }, 1u << s.blocks_log);

    std::vector<double> row, residual((size_t)width);
    for (int32_t k = 0; k < s.parts[0].k; k++) {
        row.push_back(T_load(a[(size_t)k]));
    }
    for (int32_t k = 0; k < width && s.has_skip; k++) {
        residual[(size_t)k] = T_load(skip[(size_t)k]);
    }
    Made made;
    for (size_t i = 0; i < s.parts.size(); i++) {
        const Part &p = s.parts[i];
        if (p.is_normed) {
            const std::vector<double> before = row;
            row = normed(p, *weights[i], row, &residual);
            for (int32_t k = 0; k < p.k; k++) {
                const double off =
                    (i > 0 ? made.off[(size_t)k] : 0) + fabs(residual[(size_t)k]) * step();
                check_value(T_load(weights[i]->sum[(size_t)k]), residual[(size_t)k], off,
                            "a residual", k);
            }
        }
        made = product(p, *weights[i], row, i == 0 && !p.is_normed);
        row = made.value;
    }
    for (size_t i = 0; i < row.size(); i++) {
        check_value(T_load(out[i]), row[i], made.off[i], "a result", (int64_t)i);
    }
}
} // namespace

void run_tests() {
    const Subject subjects[] = {
        {1, 2, false, false, {{48, 64, 32, false, false, true}}},
        {2, 3, true, false, {{80, 192, 32, true, false, false}}},
        {1, 5, false, false, {{64, 576, 32, true, true, true}}},
        {1, 3, true, false, {{64, 320, 32}, {16, 64, 32}}},
        {2,
         2,
         true,
         false,
         {{256, 128, 32},
          {640, 256, 64, true, true},
          {256, 320, 32},
          {48, 256, 128, true, false, true}}},
        {1, 6, true, false, {{64, 768, 128}, {128, 64, 32, true, true, true}}},
        {1, 3, false, true, {{32, 192, 32, false, false, true}}},
        {1, 3, false, true, {{32, 128, 64, false, true, true}}},
    };
    for (const Subject &each : subjects) {
        check_chain(each);
    }
}
