/* label_args.h - arguments of label.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_LABEL_ARGS_H
#define MP_KERNEL_LABEL_ARGS_H

#include "kernel/core/types.h"

/* How both sides write a key: integers by their bits, without their sign's; floats by their bits,
 * where zeros are alike and all that is not a number is alike. */
enum { K_LABEL_INT64, K_LABEL_INT32, K_LABEL_INT16, K_LABEL_FLOAT, K_LABEL_DOUBLE };

typedef struct mp_label_args {
    const void *x;
    void *out;
    const uint64_t *table; /* `entries` keys, ascending; then their values */
    int64_t count, entries;
    uint64_t fallback;
    int32_t kind; /* of the elements of x */
    int32_t size; /* of a value in bytes: 2, 4 or 8 */
} mp_label_args;

#endif
