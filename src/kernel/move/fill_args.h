/* fill_args.h - arguments of fill.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_FILL_ARGS_H
#define MP_KERNEL_FILL_ARGS_H

#include "kernel/core/types.h"

typedef struct mp_fill_args {
    void *out;
    int64_t count;
    uint64_t value; /* its bits */
} mp_fill_args;

#endif
