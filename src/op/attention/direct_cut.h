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
    bool causal;
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

#endif
