/* collective.h - work that all ranks do together: one description, the same on every rank.
 *
 * A rank is a process with one device. A description is prepared like a matrix product (math.h) and
 * run with mp_device_ops.math_run. The first run brings the ranks together; from then on they must
 * run the same descriptions in the same order. Ranks that do not are told so, all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_COLLECTIVE_H
#define MP_DEVICE_COLLECTIVE_H

#include "base/dtype.h"
#include "device/device.h"

typedef enum mp_collective_kind {
    MP_ALL_REDUCE, /* the target is the sum of all ranks' sources */
    MP_ALL_GATHER, /* the target is all ranks' sources, by rank, one behind the other */
    MP_ALL_TO_ALL, /* part i of the target is this rank's part of the source of rank i */
} mp_collective_kind;

struct mp_collective {
    mp_collective_kind kind;
    mp_dtype type; /* of ALL_REDUCE a float; otherwise any of at least a byte */
    int64_t count; /* elements of this rank's source, at least 1; of ALL_TO_ALL a multiple of the
                    * ranks */
    int64_t group; /* how many ranks the model is for; 0: as many as there are */
};

/* Source and target do not overlap. */
enum { MP_COLLECTIVE_SOURCE, MP_COLLECTIVE_TARGET, MP_COLLECTIVE_OPERANDS };

/* Whether the environment says that this process is one of several ranks, or kernels are noted for
 * one that will be (kernel_record.h). */
bool mp_collective_wanted(void);

/* "AllReduce": the operator of ONNX Runtime that is like it; static storage. */
const char *mp_collective_name(mp_collective_kind kind);

#endif
