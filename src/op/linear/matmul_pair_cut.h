/* matmul_pair_cut.h - the numbers of a launch of matmul_pair.cu, and whether it is sooner than two
 * products.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_MATMUL_PAIR_CUT_H
#define MP_OP_MATMUL_PAIR_CUT_H

#include "device/device.h"
#include "kernel/linear/matmul_pair_args.h"

#include <stdbool.h>
#include <stdint.h>

/* Rows of `from` elements of `size` bytes, which become `inner` of them and then `to`; what `steps`
 * there are behind the products where these are not one launch. */
typedef struct mp_pair_size {
    int64_t rows, from, inner, to;
    int32_t size, steps;
} mp_pair_size;

/* Whether the kernel has so many columns, whatever the rows are. */
bool mp_pair_suits(const mp_pair_size *size);

/* Rows of a block; blocks of a cluster, as a power of two; columns between the products that a
 * block makes at a time, at most. */
typedef struct mp_pair_tile {
    int32_t rows, splits_log, part_max;
} mp_pair_tile;

/* Lays out what a block holds; bytes of its shared memory. */
int64_t mp_pair_lay_out(const mp_pair_size *size, mp_pair_tile tile, mp_pair_args *a);

/* Fills in how it is cut, and `*rows` of a block and `*held`, bytes of its shared memory. False
 * where the device cannot, or two products are taken to be sooner. */
bool mp_pair_cut(const mp_device_info *info, const mp_pair_size *size, mp_pair_args *a,
                 int32_t *rows, int64_t *held);

#endif
