/* host_functions.h - expf, exp2f, tanhf and erff for kernels compiled for the CPU.
 *
 * A compiler keeps loops that call the C library one element at a time. These are sums of powers
 * without branches, which it turns into vector instructions. Each is off by less than three units
 * in the last place, keeps NaN, and gives the same on every processor.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_HOST_FUNCTIONS_H
#define MP_DEVICE_HOST_FUNCTIONS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define K_HOST_FN static inline __attribute__((unused, always_inline))

K_HOST_FN float k_host_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

K_HOST_FN uint32_t k_host_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Adding it leaves a whole number, rounded to nearest, in the low bits: SSE2 rounds no other way.
 */
#define K_HOST_ROUNDER 0x1.8p23F

/* `whole` is the number n with the rounder added, from -150 to 129: (1 + r + ...) times 2^n in two
 * steps, so that results below the normal numbers are rounded once. */
K_HOST_FN float k_host_scaled_power(float r, float whole) {
    const int32_t n = (int32_t)(k_host_bits(whole) - k_host_bits(K_HOST_ROUNDER));
    const int32_t half = n >> 1;
    float p = 1.9916694e-4F;
    p = p * r + 1.3946221e-3F;
    p = p * r + 8.3332676e-3F;
    p = p * r + 4.1666268e-2F;
    p = p * r + 1.6666667e-1F;
    p = p * r + 5.0000001e-1F;
    p = p * (r * r) + r + 1.0F;
    return p * k_host_float((uint32_t)(half + 127) << 23) *
           k_host_float((uint32_t)(n - half + 127) << 23);
}

K_HOST_FN float k_host_between(float x, float low, float high) { /* keeps NaN */
    const float raised = x < low ? low : x;
    return raised > high ? high : raised;
}

K_HOST_FN float k_host_expf(float x) {
    const float z = k_host_between(x, -104.0F, 89.0F);
    const float whole = z * 1.44269504F + K_HOST_ROUNDER, n = whole - K_HOST_ROUNDER;
    return k_host_scaled_power(z - n * 0.693359375F - n * -2.12194440e-4F, whole);
}

K_HOST_FN float k_host_exp2f(float x) {
    const float z = k_host_between(x, -150.0F, 128.0F);
    const float whole = z + K_HOST_ROUNDER, n = whole - K_HOST_ROUNDER;
    return k_host_scaled_power((z - n) * 0.693147181F, whole);
}

/* Near zero a power series; beyond, 1 - 2 / (e^2x + 1). */
K_HOST_FN float k_host_tanhf(float x) {
    const float size = fabsf(x), s = x * x;
    float p = -5.4534823e-3F;
    p = p * s + 2.0412902e-2F;
    p = p * s - 5.3670529e-2F;
    p = p * s + 1.3330623e-1F;
    p = p * s - 3.3333252e-1F;
    const float near = x + x * (s * p);
    const float far = 1.0F - 2.0F / (k_host_expf(size + size) + 1.0F);
    return copysignf(size < 0.65F ? near : far, x);
}

/* Near zero a power series; beyond, 1 - e^-q with a polynomial q, which is past all bits from 4 on.
 */
K_HOST_FN float k_host_erff(float x) {
    const float size = fabsf(x), s = x * x, t = size > 4.0F ? 4.0F : size;
    float p = 8.2154199e-5F;
    p = p * s - 8.1059641e-4F;
    p = p * s + 5.1977971e-3F;
    p = p * s - 2.6858104e-2F;
    p = p * s + 1.1283673e-1F;
    p = p * s - 3.7612632e-1F;
    p = p * s + 1.2837917e-1F;
    float q = 2.1095163e-5F;
    q = q * t - 4.3446385e-4F;
    q = q * t + 4.1710687e-3F;
    q = q * t - 2.5119441e-2F;
    q = q * t + 1.0828011e-1F;
    q = q * t + 6.3334689e-1F;
    q = q * t + 1.1295149F;
    q = q * t - 1.7468604e-4F;
    const float near = x + x * p, far = 1.0F - k_host_expf(-q);
    return size < 0.93F ? near : copysignf(far, x);
}

#define expf  k_host_expf
#define exp2f k_host_exp2f
#define tanhf k_host_tanhf
#define erff  k_host_erff

#endif
