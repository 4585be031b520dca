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

/* ---- by kernels of the caller's ---- */

enum {
    MP_PEERS_MAX = 8,             /* ranks */
    MP_PEERS_BYTES_MAX = 1 << 20, /* of a rank's source */
};

/* Memory by which kernels of ranks on one machine reach each other
 * (mp_device_ops.collective_peers). Each rank has a box, which all of them write into: it has two
 * parts for each rank, which that one writes in turns, and is all zeros where nothing is under way.
 * Kernels see this as it lies here (kernel/core/peers_args.h). */
typedef struct mp_peers {
    uint64_t box[MP_PEERS_MAX]; /* by rank: where its box is for this rank */
    uint64_t turns;             /* this rank's own word, which counts works; 0 at first */
    uint64_t stop;              /* a word of the host: not 0 where nobody is to be waited for */
    uint64_t part;              /* bytes of a part */
    int32_t rank, ranks;
} mp_peers;

/* Whether a kernel may be wanted for it, as far as this process knows alone. */
bool mp_collective_may_be_direct(const mp_collective *what);

/* Whether the environment says that this process is one of several ranks, or kernels are noted for
 * one that will be (kernel_record.h). */
bool mp_collective_wanted(void);

/* "AllReduce": the operator of ONNX Runtime that is like it; static storage. */
const char *mp_collective_name(mp_collective_kind kind);

#endif
