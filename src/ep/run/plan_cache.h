/* plan_cache.h - the plans a node has made, by the shapes of its inputs and the values of those
 * that live on the host.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_PLAN_CACHE_H
#define MP_EP_PLAN_CACHE_H

#include "op/core/op.h"

typedef struct mp_plan_cache mp_plan_cache;

mp_status mp_plan_cache_create(mp_plan_cache **out);
void mp_plan_cache_destroy(mp_plan_cache *cache);

/* The plan for these inputs, made where there is none. Gives: `*out` with one reference of the
 * caller's. Threads: any. Blocks: while a plan is made. */
mp_status mp_plan_cache_get(mp_plan_cache *cache, mp_device *device, const mp_node *node,
                            const mp_tensor *in, int in_count, int out_count, int32_t align,
                            mp_plan **out);

/* Whether mp_plan_cache_get would find a plan and make none. */
bool mp_plan_cache_has(mp_plan_cache *cache, const mp_tensor *in, int in_count, int32_t align);

#endif
