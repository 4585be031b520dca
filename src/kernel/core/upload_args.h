/* upload_args.h - arguments of the kernels that write numbers which come as arguments.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_UPLOAD_ARGS_H
#define MP_KERNEL_UPLOAD_ARGS_H

#include "kernel/core/types.h"

typedef struct mp_fill_args {
    void *out;
    int64_t count;
    uint64_t value; /* its bits */
} mp_fill_args;

enum { K_UPLOAD_WORDS = 500 }; /* so that all arguments stay below 4 KiB */

typedef struct mp_upload_args {
    uint64_t *out;
    int64_t count;
    uint64_t word[K_UPLOAD_WORDS];
} mp_upload_args;

#endif
