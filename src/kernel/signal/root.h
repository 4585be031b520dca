/* root.h - cosines and sines of fractions of a turn, the parts of roots of unity. The octant is
 * found with integers, so that the error does not grow with the angle and multiples of a quarter
 * are exact.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROOT_H
#define MP_KERNEL_ROOT_H

#include "kernel/core/prelude.h"

typedef struct k_root {
    double cosine, sine;
} k_root;

/* Of k / n turns, for 0 <= k < n and n below 2^60. */
K_FN k_root k_root_of(int64_t k, int64_t n) {
    const double eighth = 0.78539816339744830962;
    const int64_t octant = 8 * k / n;
    const int64_t rest = 8 * k - octant * n;
    const int odd = (octant & 1) != 0;
    const double angle = eighth * ((double)(odd ? n - rest : rest) / (double)n);
    const double near = cos(angle), far = sin(angle); /* of the closer axis */
    const int upright = ((octant + 1) & 2) != 0;      /* it is the second axis */
    k_root root;
    root.cosine = upright ? far : near;
    root.sine = upright ? near : far;
    if (octant >= 2 && octant < 6) {
        root.cosine = -root.cosine;
    }
    if (octant >= 4) {
        root.sine = -root.sine;
    }
    return root;
}

#endif
