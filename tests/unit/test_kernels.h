/* test_kernels.h - a few kernels for tests of devices, each as C for the CPU and as CUDA text.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_UNIT_TEST_KERNELS_H
#define MP_TESTS_UNIT_TEST_KERNELS_H

#include "device/device.h"

typedef struct affine_args { /* y[i] = x[i] * scale + shift */
    int64_t *y;
    const int64_t *x;
    int64_t count, scale, shift;
} affine_args;

typedef struct sum_args { /* y[row] = the sum of a row of x, by the lanes of a block */
    int64_t *y;
    const int64_t *x;
    int64_t rows, columns;
} sum_args;

extern const mp_kernel_image test_affine_image;
extern const mp_kernel_image test_sum_image; /* 8 shared bytes a lane */

#endif
