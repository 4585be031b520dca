/* mempool_mode.h - a pool whose memory comes from the driver's own pool.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_MEMPOOL_MODE_H
#define MP_POOL_MEMPOOL_MODE_H

#include "pool/arena/arena.h"

extern const pool_mode mp__mode_mempool;

/* Gives a fresh arena the driver's own pool in place of regions, and its mode.
 * Fails: UNSUPPORTED (the driver has no such pools), OUT_OF_MEMORY, DEVICE. */
mp_status mp__mempool_mode_enter(arena *a);

#endif
