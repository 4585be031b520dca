/* power.cpp - powers as a GPU makes them, beside those of double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pow.cu"
#include "lanes.h"

#include <cfloat>

namespace {

enum { PAIRS = 200000 };

float random_unit() {
    return (float)next_random() / 4294967296.0f;
}

float random_bits() {
    return k_float_of_bits(next_random());
}

/* Sizes of any kind, or around 1; exponents of any kind, small whole ones, or such that the power
 * is anywhere within the range of floats and beside it. */
void make_pair(int i, float *x, float *y) {
    const float size = fabsf(random_bits());
    *x = i % 3 == 0 ? k_float_of_bits(0x3f800000 + next_random() % 100000 - 50000) : size;
    const double wanted = (random_unit() - 0.5) * 310;
    const float exponents[] = {random_bits(), (float)(int)(next_random() % 41) - 20,
                               (float)(wanted / log2((double)*x))};
    *y = exponents[i / 3 % 3];
    *x = i % 7 == 0 ? -*x : *x;
}

/* Both of one kind, NaN, infinite or zero, with one sign. */
bool is_same(float a, float b) {
    return (a != a && b != b) || (a == b && std::signbit(a) == std::signbit(b));
}

/* How many units of the last place of a float `made` is off. */
double units_off(float made, double wanted) {
    int power = 0;
    frexp(wanted, &power);
    return fabs(made - wanted) / ldexp(1, (power < -125 ? -125 : power) - 24);
}

void check_pair(float x, float y, int64_t at) {
    const double wanted = pow((double)x, (double)y);
    const float nearest = (float)wanted, made = k_power(x, y), rough = k_power_rough(x, y);
    check(is_same(made, nearest) || units_off(made, wanted) < 3, "a power", at);
    const double less = fabs(wanted) * 0x1p-14 + 0x1p-126; /* what is tiny may become 0 */
    const double least = (double)FLT_MAX * (1 - 0x1p-14);  /* and what is huge, infinite */
    check(is_same(rough, nearest) || fabs(rough - wanted) <= less ||
              (std::isinf(rough) && fabs(wanted) > least && (rough > 0) == (wanted > 0)),
          "a rough power", at);
}

} // namespace

void run_tests() {
    const float few[] = {0,     1,    2,     3,     0.5f,        1.5f,        1e-45f,  1e-40f,
                         1e30f, 2.5f, K_INF, K_NAN, 16777215.0f, 16777216.0f, FLT_MAX, FLT_MIN};
    const int count = (int)(sizeof few / sizeof *few);
    for (int i = 0; i < 4 * count * count; i++) {
        const float x = few[i / 4 / count], y = few[i / 4 % count];
        check_pair(i & 1 ? -x : x, i & 2 ? -y : y, i);
    }
    for (int i = 0; i < PAIRS; i++) {
        float x = 0, y = 0;
        make_pair(i, &x, &y);
        check_pair(x, y, i);
    }
}
