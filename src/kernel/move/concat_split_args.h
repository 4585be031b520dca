/* concat_split_args.h - arguments of concat_split.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PARTS_ARGS_H
#define MP_KERNEL_PARTS_ARGS_H

#include "kernel/core/index_args.h"

/* At most 4 KiB of arguments reach a kernel. */
enum { K_PARTS_MAX = 32 };

/* Numbers are of elements of the kernel's type. */
typedef struct k_part {
    void *data;     /* rows of `width`; NULL: an output that nobody wants */
    int64_t start;  /* of its first element in the walk over all parts */
    int64_t width;  /* 1 or more */
    int64_t column; /* where its rows lie in those of the whole */
    k_divider divider;
} k_part;

typedef struct mp_parts_args {
    void *whole;
    int64_t width; /* of a row of the whole */
    int64_t count; /* of all parts */
    int32_t parts;
    int32_t stride;   /* the search's first: the highest power of two below `parts`, or 0 */
    int32_t is_split; /* from the whole to the parts; otherwise from them to it */
    int32_t wide;     /* 2^31 elements or more: dividers are not used */
    k_part part[K_PARTS_MAX];
} mp_parts_args;

#endif
