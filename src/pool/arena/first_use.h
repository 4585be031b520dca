/* first_use.h - a further stream that is about to use an allocated block.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_FIRST_USE_H
#define MP_POOL_FIRST_USE_H

#include "pool/arena/arena.h"

/* As mp_pool_record_use. */
mp_status mp__arena_record_use(arena *a, mp_addr addr, void *native);
/* The same for a stream that was ordered before it used the block: it is not made to wait. */
mp_status mp__arena_record_end(arena *a, mp_addr addr, void *native);

#endif
