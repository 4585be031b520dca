/* unpool_args.h - arguments of MaxUnpool's kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_UNPOOL_ARGS_H
#define MP_KERNEL_UNPOOL_ARGS_H

#include "kernel/core/types.h"

typedef struct mp_unpool_args {
    const void *x;
    const int64_t *indices; /* of each element of x: where in out */
    void *out;              /* filled with zeros */
    int64_t count;          /* of x */
    int64_t out_count;
} mp_unpool_args;

#endif
