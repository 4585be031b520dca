/* fft_power.cpp - transforms of rows whose length is a power of two, against sums of terms in
 * double: rows of a warp and of a block, there and back, halves and wholes of spectra of real
 * numbers, rows that are not full, frames that overlap, rows across others, halves on either side.
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
    int64_t rows, minor_rows; /* minor rows overlap, or lie side by side */
    int32_t group_bits, have; /* elements, or pairs; 0: all */
    bool inverse, windowed, whole, narrow_in, narrow_out;
};

/* Complex numbers of T or of halves. */
class Numbers {
  public:
    Numbers(int64_t count, bool of_halves)
        : count(count), is_narrow(of_halves), memory((size_t)(count * 2 * sizeof(T))) {
    }
    void put(int64_t i, Complex value) {
        if (is_narrow) {
            halves()[2 * i] = k_store_f16((float)value.real());
            halves()[2 * i + 1] = k_store_f16((float)value.imag());
        } else {
            wide()[2 * i] = (T)value.real();
            wide()[2 * i + 1] = (T)value.imag();
        }
    }
    Complex get(int64_t i) {
        return is_narrow ? Complex(k_load_f16(halves()[2 * i]), k_load_f16(halves()[2 * i + 1]))
                         : Complex(wide()[2 * i], wide()[2 * i + 1]);
    }
    void *data() {
        return memory.data();
    }
    const int64_t count;

  private:
    k_f16 *halves() {
        return (k_f16 *)data();
    }
    T *wide() {
        return (T *)data();
    }
    bool is_narrow;
    Buffer<unsigned char> memory;
};

/* Where element t of a row is. */
struct Side {
    int64_t major, minor, step;
    int64_t at(const Rows &r, int64_t row, int64_t t) const {
        return row / r.minor_rows * major + row % r.minor_rows * minor + t * step;
    }
    int64_t count(const Rows &r) const {
        return r.rows / r.minor_rows * major;
    }
};

int64_t made_of(const Rows &r) {
    return K_PAIRS == K_FFT_PAIRS_IN && !r.whole ? half
           : K_PAIRS == K_FFT_PAIRS_OUT          ? LENGTH
                                                 : NUMBERS;
}

double random_number() {
    return (double)(next_random() % 2001) / 1000 - 1;
}

double accuracy(const Rows &r) {
    return r.narrow_out     ? 2e-3
           : sizeof(T) == 8 ? 1e-15 * std::sqrt((double)NUMBERS) /* of the sums themselves */
                            : 1e-6;
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

/* The numbers that a row of x stands for. */
std::vector<Complex> given_of(const Rows &r, Numbers &x, const Side &from, int64_t row,
                              Numbers &window) {
    std::vector<Complex> given(NUMBERS);
    const int64_t all = K_PAIRS == K_FFT_PAIRS_OUT ? half : LENGTH;
    for (int64_t t = 0; t < (r.have > 0 ? r.have : all); t++) {
        const Complex value = x.get(from.at(r, row, t));
        const Complex taps = r.windowed ? window.get(t) : Complex(1, 1);
        if (K_PAIRS == K_FFT_PAIRS_IN) {
            given[2 * t] = value.real() * taps.real();
            given[2 * t + 1] = value.imag() * taps.imag();
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

void check_row(const Rows &r, const std::vector<Complex> &given, Numbers &out, const Side &to,
               int64_t row) {
    static const std::vector<Complex> roots = roots_of(NUMBERS);
    double norm = 0;
    for (const Complex &value : given) {
        norm += std::norm(value);
    }
    const double limit = accuracy(r) * std::sqrt(norm) / (r.inverse ? NUMBERS : 1);
    const int64_t every = NUMBERS > 1024 ? NUMBERS / 256 - 1 : 1;
    for (int64_t k = 0; k < made_of(r); k += every) {
        const int64_t number = K_PAIRS == K_FFT_PAIRS_OUT ? 2 * k : k;
        Complex want = sum_of(r, given, roots, number);
        if (K_PAIRS == K_FFT_PAIRS_OUT) {
            want = Complex(want.real(), sum_of(r, given, roots, number + 1).real());
        }
        check(std::abs(out.get(to.at(r, row, k)) - want) <= limit, "an element", k);
    }
    if (K_PAIRS == K_FFT_PAIRS_IN) {
        check(out.get(to.at(r, row, 0)).imag() == 0, "the real start", row);
        check(out.get(to.at(r, row, LENGTH)).imag() == 0, "the real middle", row);
    }
}

const Complex untouched(-7, -7);

/* Nothing is written but the rows. */
void check_gaps(const Rows &r, Numbers &out, const Side &to) {
    std::vector<bool> is_made((size_t)out.count);
    for (int64_t row = 0; row < r.rows; row++) {
        for (int64_t k = 0; k < made_of(r); k++) {
            is_made[(size_t)to.at(r, row, k)] = true;
        }
    }
    for (int64_t i = 0; i < out.count; i++) {
        check(is_made[(size_t)i] || out.get(i) == untouched, "a gap", i);
    }
}

Side side_of(const Rows &r, bool is_from) {
    const int64_t pitch = made_of(r) + GAP, wide = r.minor_rows + GAP;
    return K_ACROSS  ? Side{LENGTH * wide, 1, wide}
           : is_from ? Side{(r.minor_rows + 2) * LENGTH, LENGTH / 2, 1}
                     : Side{r.minor_rows * pitch, pitch, 1};
}

void check_rows(const Rows &r) {
    const Side from = side_of(r, true), to = side_of(r, false);
    Numbers x(from.count(r), r.narrow_in), window(LENGTH, r.narrow_in);
    Numbers out(to.count(r), r.narrow_out);
    for (Numbers *numbers : {&x, &window}) {
        for (int64_t i = 0; i < numbers->count; i++) {
            const double re = random_number();
            numbers->put(i, Complex(re, random_number()));
        }
    }
    for (int64_t i = 0; i < out.count; i++) {
        out.put(i, untouched);
    }
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
    args.from_major = from.major;
    args.from_minor = from.minor;
    args.to_major = to.major;
    args.to_minor = to.minor;
    args.from_step = (int32_t)from.step;
    args.to_step = (int32_t)to.step;
    args.scale = r.inverse ? 1 / (double)NUMBERS : 1;
    args.rows = (int32_t)r.rows;
    args.minor_rows = (uint32_t)r.minor_rows;
    args.by_minor = divider((uint32_t)r.minor_rows);
    args.have = r.have > 0 ? r.have : K_PAIRS == K_FFT_PAIRS_OUT ? half : LENGTH;
    args.group_bits = r.group_bits;
    args.inverse = r.inverse;
    args.whole = r.whole;
    args.narrow_in = r.narrow_in ? K_FFT_F16 : K_FFT_WIDE;
    args.narrow_out = r.narrow_out ? K_FFT_F16 : K_FFT_WIDE;
    run_blocks(2, (unsigned)LANES << r.group_bits, [&] { fft_power(args); });
    for (int64_t row = 0; row < r.rows; row++) {
        check_row(r, given_of(r, x, from, row, window), out, to, row);
    }
    check_gaps(r, out, to);
}

/* Blocks have rows of two outer indices, and the last one none for some of its lanes. */
void check_across() {
    enum { GROUP = K_FFT_ACROSS_BITS(K_BITS), HAVE = LENGTH / 4 + 1 };
    const int64_t inner = ROWS + 1;
    check_rows({3 * inner, inner, GROUP, 0, false, false, false, false, false});
    check_rows({6, 3, GROUP, HAVE, true, false, false, false, false});
    check_rows({inner, inner, GROUP, 0, true, false, false, true, false});
    check_rows({5, 5, GROUP, 0, false, false, false, false, true});
}

} // namespace

void run_tests() {
    enum { WARP = 32, HAVE = LENGTH / 4 + 1 };
    const bool halves = sizeof(T) == sizeof(float);
    int32_t group = 0;
    while (LANES << group < WARP) {
        group++;
    }
    const int64_t rows = (2 << group) + 1; /* a block comes to a second round of rows */
    if (K_ACROSS) {
        check_across();
        return;
    }
    if (K_PAIRS == K_FFT_PAIRS_IN) {
        check_rows({rows, 1, group, 0, false, false, false, false, false});
        check_rows({rows, 1, group, HAVE, false, false, true, false, halves});
        check_rows({6, 3, group, 0, false, true, false, halves, false});
        check_rows({2, 1, group, 0, false, true, true, false, false});
    } else if (K_PAIRS == K_FFT_PAIRS_OUT) {
        check_rows({rows, 1, group, 0, true, false, false, false, halves});
        check_rows({2, 2, group, HAVE, true, false, false, false, false});
        check_rows({2, 1, group, 0, true, false, false, halves, false});
    } else {
        check_rows({rows, 1, group, 0, false, false, false, halves, halves});
        check_rows({6, 3, group, 0, true, false, false, false, false});
        check_rows({2, 1, group, HAVE, false, false, false, false, false});
    }
    if (LANES <= WARP) {
        const bool inverse = K_PAIRS == K_FFT_PAIRS_OUT;
        check_rows({5, 1, group + 1, 0, inverse, false, false, false, false});
    }
}
