/* one_hot_row_args.h - arguments of one_hot_row.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ONE_HOT_ROW_ARGS_H
#define MP_KERNEL_ONE_HOT_ROW_ARGS_H

#include "kernel/core/types.h"

/* Rows as in mp_softmax_args. */
typedef struct mp_one_hot_row_args {
    const int64_t *index; /* of each row */
    void *out;
    int64_t count, columns, inner;
    uint64_t one; /* its bits */
} mp_one_hot_row_args;

#endif
