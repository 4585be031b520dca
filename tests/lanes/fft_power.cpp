/* fft_power.cpp - transforms of rows whose length is a power of two, against sums of terms in
 * double: rows of a warp and of a block, there and back, halves and wholes of spectra of real
 * numbers, rows that are not full, frames that overlap.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/signal/fft_power.cu"
#include "divider.h"
#include "lanes.h"

#include <complex>
#include <vector>

namespace {

typedef std::complex<double> Complex;

enum { NUMBERS = K_PAIRS == K_FFT_PAIRS_NONE ? LENGTH : 2 * LENGTH, GAP = 3 };
const int64_t half = LENGTH + 1;

struct Rows {
    int64_t rows, minor_rows; /* minor rows overlap */
    int32_t group_bits, have; /* elements, or pairs; 0: all */
    bool inverse, windowed, whole;
};

int64_t made_of(const Rows &r) {
    return K_PAIRS == K_FFT_PAIRS_IN && !r.whole ? half
           : K_PAIRS == K_FFT_PAIRS_OUT          ? LENGTH
                                                 : NUMBERS;
}

double random_number() {
    return (double)(next_random() % 2001) / 1000 - 1;
}

double accuracy() {
    return sizeof(T) == 8   ? 1e-15 * std::sqrt((double)NUMBERS) /* of the sums themselves */
           : sizeof(T) == 4 ? 1e-6
                            : 2e-3;
}

std::vector<Complex> roots_of(int64_t n) {
    std::vector<Complex> roots;
    for (int64_t k = 0; k < n; k++) {
        roots.push_back(std::polar(1.0, -2 * M_PI * (double)k / (double)n));
    }
    return roots;
}

/* Tables as roots.cu makes them: root `row * column` of n in columns, or with none root k. */
Buffer<s_complex> table_of(int64_t n, int64_t count, int64_t columns) {
    const std::vector<Complex> roots = roots_of(n);
    Buffer<s_complex> table((size_t)count);
    for (int64_t k = 0; k < count; k++) {
        const Complex root = roots[(size_t)(columns > 0 ? (k / columns) * (k % columns) : k)];
        table[(size_t)k] = {(TC)root.real(), (TC)root.imag()};
    }
    return table;
}

/* The numbers that the row of x stands for. */
std::vector<Complex> given_of(const Rows &r, const number *row, const number *window) {
    std::vector<Complex> given(NUMBERS);
    const int64_t all = K_PAIRS == K_FFT_PAIRS_OUT ? half : LENGTH;
    for (int64_t t = 0; t < (r.have > 0 ? r.have : all); t++) {
        const Complex value(T_load(row[t].re), T_load(row[t].im));
        if (K_PAIRS == K_FFT_PAIRS_IN) {
            given[2 * t] = value.real() * (r.windowed ? T_load(window[t].re) : 1);
            given[2 * t + 1] = value.imag() * (r.windowed ? T_load(window[t].im) : 1);
        } else if (K_PAIRS == K_FFT_PAIRS_OUT && t % LENGTH != 0) {
            given[t] = value;
            given[NUMBERS - t] = std::conj(value);
        } else {
            given[t] = K_PAIRS == K_FFT_PAIRS_OUT ? value.real() : value;
        }
    }
    return given;
}

Complex sum_of(const Rows &r, const std::vector<Complex> &given, const std::vector<Complex> &roots,
               int64_t k) {
    Complex sum = 0;
    for (int64_t t = 0; t < NUMBERS; t++) {
        const Complex root = roots[(size_t)(t * k % NUMBERS)];
        sum += given[t] * (r.inverse ? std::conj(root) : root);
    }
    return r.inverse ? sum / (double)NUMBERS : sum;
}

void check_row(const Rows &r, const std::vector<Complex> &given, const number *out) {
    static const std::vector<Complex> roots = roots_of(NUMBERS);
    double norm = 0;
    for (const Complex &value : given) {
        norm += std::norm(value);
    }
    const double limit = accuracy() * std::sqrt(norm) / (r.inverse ? NUMBERS : 1);
    const int64_t every = NUMBERS > 1024 ? NUMBERS / 256 - 1 : 1;
    for (int64_t k = 0; k < made_of(r); k += every) {
        const Complex got(T_load(out[k].re), T_load(out[k].im));
        const int64_t number = K_PAIRS == K_FFT_PAIRS_OUT ? 2 * k : k;
        Complex want = sum_of(r, given, roots, number);
        if (K_PAIRS == K_FFT_PAIRS_OUT) {
            want = Complex(want.real(), sum_of(r, given, roots, number + 1).real());
        }
        check(std::abs(got - want) <= limit, "an element", k);
    }
    if (K_PAIRS == K_FFT_PAIRS_IN) {
        check(T_load(out[0].im) == 0 && T_load(out[LENGTH].im) == 0, "the real ends", 0);
    }
    for (int64_t k = made_of(r); k < made_of(r) + GAP; k++) {
        check(T_load(out[k].re) == -7 && T_load(out[k].im) == -7, "the gap", k);
    }
}

void check_rows(const Rows &r) {
    const int64_t major = (r.minor_rows + 2) * LENGTH, pitch = made_of(r) + GAP;
    Buffer<number> x((size_t)(r.rows / r.minor_rows * major)), window((size_t)LENGTH);
    Buffer<number> out((size_t)(r.rows * pitch));
    auto random_pair = [] {
        return number{T_store((TC)random_number()), T_store((TC)random_number())};
    };
    fill_with(x, r.rows / r.minor_rows * major, random_pair);
    fill_with(window, LENGTH, random_pair);
    fill_with(out, r.rows * pitch, [] { return number{T_store(-7), T_store(-7)}; });
    std::vector<Buffer<s_complex>> tables;
    mp_fft_power_args args = {};
    for (int32_t step = 0, done = FIRST_BITS; step <= MIDDLE_STEPS; step++, done += EACH_BITS) {
        const int64_t n = step < MIDDLE_STEPS ? (int64_t)1 << (done + EACH_BITS) : LENGTH;
        tables.push_back(table_of(n, n, (int64_t)1 << done));
        args.roots[step] = tables.back().data();
    }
    Buffer<s_complex> turns = table_of(2 * LENGTH, LENGTH, 0);
    args.x = x.data();
    args.window = r.windowed ? window.data() : nullptr;
    args.turns = turns.data();
    args.out = out.data();
    args.from_major = major;
    args.from_minor = LENGTH / 2;
    args.to_major = r.minor_rows * pitch;
    args.to_minor = pitch;
    args.scale = r.inverse ? 1 / (double)NUMBERS : 1;
    args.rows = (int32_t)r.rows;
    args.minor_rows = (uint32_t)r.minor_rows;
    args.by_minor = divider((uint32_t)r.minor_rows);
    args.have = r.have > 0 ? r.have : K_PAIRS == K_FFT_PAIRS_OUT ? half : LENGTH;
    args.group_bits = r.group_bits;
    args.inverse = r.inverse;
    args.whole = r.whole;
    run_blocks(2, (unsigned)LANES << r.group_bits, [&] { fft_power(args); });
    for (int64_t row = 0; row < r.rows; row++) {
        const int64_t at = row / r.minor_rows * major + row % r.minor_rows * (LENGTH / 2);
        check_row(r, given_of(r, x.data() + at, window.data()), out.data() + row * pitch);
    }
}

} // namespace

void run_tests() {
    enum { WARP = 32, HAVE = LENGTH / 4 + 1 };
    int32_t group = 0;
    while (LANES << group < WARP) {
        group++;
    }
    const int64_t rows = (2 << group) + 1; /* a block comes to a second round of rows */
    if (K_PAIRS == K_FFT_PAIRS_IN) {
        check_rows({rows, 1, group, 0, false, false, false});
        check_rows({rows, 1, group, HAVE, false, false, true});
        check_rows({6, 3, group, 0, false, true, false});
        check_rows({2, 1, group, 0, false, true, true});
    } else if (K_PAIRS == K_FFT_PAIRS_OUT) {
        check_rows({rows, 1, group, 0, true, false, false});
        check_rows({2, 2, group, HAVE, true, false, false});
    } else {
        check_rows({rows, 1, group, 0, false, false, false});
        check_rows({6, 3, group, 0, true, false, false});
        check_rows({2, 1, group, HAVE, false, false, false});
    }
    if (LANES <= WARP) {
        check_rows({5, 1, group + 1, 0, K_PAIRS == K_FFT_PAIRS_OUT, false, false});
    }
}
