/* nms_args.h - arguments of the kernels of NonMaxSuppression.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NMS_ARGS_H
#define MP_KERNEL_NMS_ARGS_H

#include "kernel/core/types.h"

/* boxes is [batches][count][4], scores is [batches][classes][count]. A list is what is selected of
 * one class of one image. */
typedef struct mp_nms_args {
    const float *boxes, *scores;
    uint8_t *gone;   /* of each list and box: suppressed or selected */
    int32_t *picked; /* `most` of each list, in order */
    int64_t *starts; /* of each list; how many are selected, later how many lie before it */
    int64_t *out;    /* batch, class, box of each that is selected */
    int64_t lists, classes, count;
    int64_t most;  /* of a list */
    int64_t found; /* of all, once it is known */
    float overlap, threshold;
    int32_t centred;       /* boxes are x, y of the centre, width, height; otherwise two corners */
    int32_t has_threshold; /* scores must be larger than it */
} mp_nms_args;

#endif
