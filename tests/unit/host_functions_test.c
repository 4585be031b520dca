/* host_functions_test.c - functions for kernels on the CPU, against those of doubles.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_functions.h"
#include "unit/test.h"

enum {
    STEP = 65537
}; /* between the bits of the numbers that are looked at, of all that there are */

/* Within three units in the last place, of numbers below the normal ones too. */
static void compare(float result, double expected) {
    const float nearest = (float)expected;
    int exponent = 0;
    if (isnan(expected)) {
        CHECK(isnan(result));
        return;
    }
    if (isinf(nearest)) {
        CHECK(result == nearest);
        return;
    }
    (void)frexpf(nearest, &exponent);
    const double unit = ldexp(1, exponent < -125 ? -149 : exponent - 24);
    CHECK(fabs((double)result - expected) <= 3 * unit);
}

TEST(host_functions_are_right) {
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += STEP) {
        const float x = k_host_float((uint32_t)bits);
        compare(expf(x), exp((double)x));
        compare(exp2f(x), exp2((double)x));
        compare(tanhf(x), tanh((double)x));
        compare(erff(x), erf((double)x));
    }
}

TEST(host_functions_end_as_they_should) {
    CHECK(expf(0.0F) == 1 && exp2f(-3.0F) == 0.125F);
    CHECK(expf(-INFINITY) == 0 && expf(INFINITY) == INFINITY);
    CHECK(exp2f(-INFINITY) == 0 && exp2f(INFINITY) == INFINITY);
    CHECK(tanhf(INFINITY) == 1 && tanhf(-INFINITY) == -1);
    CHECK(erff(INFINITY) == 1 && erff(-INFINITY) == -1);
    CHECK(signbit(tanhf(-0.0F)) && signbit(erff(-0.0F)));
    CHECK(isnan(expf(NAN)) && isnan(exp2f(-NAN)) && isnan(tanhf(NAN)) && isnan(erff(NAN)));
}
