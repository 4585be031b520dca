/* block_join.h - running sums or products of type K_SUM over the lanes of a block.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_BLOCK_JOIN_H
#define MP_KERNEL_BLOCK_JOIN_H

#include "kernel/core/block.h"
#include "kernel/core/block_scan.h"

K_FN K_SUM k_join(K_SUM a, K_SUM b, int product) {
    return product ? a * b : a + b;
}

K_BLOCK_SCAN(k_block_sums, K_SUM, (K_SUM)0, a + b)
K_BLOCK_SCAN(k_block_products, K_SUM, (K_SUM)1, a *b)

/* What the lanes before this one have, joined; `*all` is that of all lanes. Every lane calls. */
K_FN K_SUM k_block_join(K_SUM value, int product, K_SUM *all) {
    return product ? k_block_products(value, all) : k_block_sums(value, all);
}

#endif
