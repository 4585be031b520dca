/* attention_ways.h - the ways of computing attention, of which attention_choice.c takes one, and
 * what they share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ATTENTION_WAYS_H
#define MP_OP_ATTENTION_WAYS_H

#include "op/attention/attention_steps.h"

/* The least compute capability whose tensor cores these kernels are for, times 10. */
enum { MP_ATTENTION_ARCH = 80 };

/* Whether heads can be read by 16 bytes. */
bool mp_attention_is_wide(const mp_planner *p, const mp_attention *a);

/* What every kernel is told: all keys in one block. */
mp_attention_args mp_attention_args_of(const mp_planner *p, const mp_attention *a);

/* part: what several blocks have found of a row; MP_NOWHERE where there is one. */
mp_status mp_attention_launch(mp_planner *p, const mp_attention *a, const mp_kernel *kernel,
                              mp_grid grid, const mp_attention_args *args, mp_ref part);

/* Whether attention_decode.cu is there for the type and the heads, and nothing else than a mask is
 * done to scores. */
bool mp_attention_can_decode(const mp_planner *p, const mp_attention *a);
mp_status mp_plan_attention_decode(mp_planner *p, const mp_attention *a);

/* A few queries of each key head, bound by reading keys. */
mp_status mp_plan_attention_few(mp_planner *p, const mp_attention *a);

/* By tensor cores, as attention_direct.cu or attention_mma.cu. */
bool mp_attention_can_mma(const mp_planner *p, const mp_attention *a);
mp_status mp_plan_attention_mma(mp_planner *p, const mp_attention *a);

/* As attention_group.cu, which passes over blocks of keys that none of its rows sees. */
bool mp_attention_can_group_blocks(const mp_planner *p, const mp_attention *a);
mp_status mp_plan_attention_group_blocks(mp_planner *p, const mp_attention *a);

/* Tiles in shared memory, or products by library math where none fits. */
mp_status mp_plan_attention_tiles(mp_planner *p, const mp_attention *a);

#endif
