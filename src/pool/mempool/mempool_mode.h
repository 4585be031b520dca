/* mempool_mode.h - what an arena does whose memory the driver's own pool lends: the work of
 * the functions of millpond.h of the same names. Threads: any.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_MEMPOOL_MODE_H
#define MP_POOL_MEMPOOL_MODE_H

#include "pool/arena/arena.h"

/* The driver's own pool in place of the arena's regions, where the options ask for it and there is
 * one; else a warning is logged. Fails: OUT_OF_MEMORY, DEVICE. */
mp_status mp__mempool_mode_enter(arena *a);

mp_status mp__mempool_mode_alloc(arena *a, size_t size, void *stream, uint8_t client, mp_addr *out);
mp_status mp__mempool_mode_reserve(arena *a, size_t size, uint8_t client, mp_addr *out);
/* `stream` MP_SAME_STREAM: the one it was lent on. */
mp_status mp__mempool_mode_free(arena *a, mp_addr addr, void *stream);

mp_status mp__mempool_mode_find(arena *a, mp_addr addr, mp_block_info *out);
void mp__mempool_mode_clients(arena *a, mp_share *out, size_t capacity, size_t *count);
mp_status mp__mempool_mode_dump(arena *a, mp_write_fn *write, void *context);
mp_status mp__mempool_mode_layout(arena *a, mp_layout *out);

#endif
