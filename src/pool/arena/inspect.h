/* inspect.h - what an arena looks like: its layout, and single blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_INSPECT_H
#define MP_POOL_INSPECT_H

#include "pool/arena/arena.h"

/* Gives: `*out`, to be freed with mp__layout_free. */
mp_status mp__arena_layout(arena *a, mp_layout *out);
mp_status mp__arena_find(arena *a, mp_addr addr, mp_block_info *out);

#endif
