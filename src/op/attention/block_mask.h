/* block_mask.h - blocks of keys that queries see as a mask: tensor cores are sooner with that than
 * other lanes are with the blocks alone.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_BLOCK_MASK_H
#define MP_OP_BLOCK_MASK_H

#include "op/attention/attention_steps.h"

/* Whether attention_mma can take that, and there is room for it. */
bool mp_blocks_as_mask(const mp_planner *p, const mp_attention *a);

/* Makes the mask, in scratch memory, and gives `a` that in place of its blocks. */
mp_status mp_plan_block_mask(mp_planner *p, mp_attention *a);

#endif
