/* integer_rows_cut.h - how a product of rows of bytes is cut into tiles.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_INTEGER_ROWS_CUT_H
#define MP_OP_INTEGER_ROWS_CUT_H

#include <stdbool.h>
#include <stdint.h>

/* An instance of the kernel, and what is known of it. */
typedef struct mp_integer_rows_cut {
    int32_t rows, columns, split; /* chunks of a stage, each of which a group of warps takes */
    uint32_t lanes, shared_bytes;
    int32_t blocks_each; /* that a multiprocessor has at once */
} mp_integer_rows_cut;

/* The instance that is the soonest done with rows x columns sums of k bytes, by an estimate. Static
 * storage. `by_eight`: channels are whole pieces of 8 bytes, not of 16. */
const mp_integer_rows_cut *mp_integer_rows_cut_for(int64_t rows, int64_t columns, int64_t k,
                                                   bool by_eight, int32_t multiprocessors);

#endif
