/* direct_cut.h - how attention_direct.cu cuts its work: rows of a warp, warps of a block, tiles.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_DIRECT_CUT_H
#define MP_OP_DIRECT_CUT_H

#include "device/device.h"

typedef struct mp_direct_work {
    int64_t units; /* key heads of all entries */
    int64_t rows;  /* of a unit */
    int64_t keys;
    int32_t head; /* of the kernel */
    int32_t size; /* bytes of an element */
    bool causal;
    bool masked; /* by the kernel for masks */
    bool added;  /* what they add to a key is the same for all rows of a block */
} mp_direct_work;

typedef struct mp_direct_cut {
    int32_t rows;      /* of a warp: 16 or 32 */
    int32_t row_warps; /* side by side */
    int32_t sets;      /* of those, which share the keys of a tile */
    int32_t share;     /* keys of a set's share */
    int32_t resident;  /* blocks that a multiprocessor has at a time */
    uint32_t shared_bytes;
} mp_direct_cut;

/* What takes the least time by a model of it. */
mp_direct_cut mp_direct_cut_for(const mp_device_info *info, const mp_direct_work *work);

/* Keys for which a block of `work` has what is added to them in shared memory; or 0. */
int32_t mp_direct_added(const mp_direct_work *work, const mp_direct_cut *cut);

#endif
