/* arena_mode.h - the modes of a pool that has an arena: of regions, or of blocks passed on.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_ARENA_MODE_H
#define MP_POOL_ARENA_MODE_H

#include "pool/pool_mode.h"

extern const pool_mode mp__mode_arena;
extern const pool_mode mp__mode_direct;

#endif
