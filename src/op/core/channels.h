/* channels.h - tensors [batch, channels, d...] whose channels may be stored last.
 *
 * ONNX Runtime rewrites a node for a provider that prefers channels last: it puts the node into a
 * domain of its own and stores its first input and its outputs as [batch, d..., channels]; what the
 * node means stays as ONNX has it. So one plan serves both domains: it computes with shapes as ONNX
 * has them ("first", channels first) and asks here for what is in memory ("stored").
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CHANNELS_H
#define MP_OP_CHANNELS_H

#include "op/core/op.h"

#define MP_NHWC_DOMAIN     "com.ms.internal.nhwc"
#define MP_OWN_NHWC_DOMAIN MP_OWN_DOMAIN ".nhwc" /* of rows that no model names */

/* Whether the node is one of those that were rewritten, or one of com.microsoft that is called
 * Nhwc.
 */
bool mp_channels_last(const mp_planner *p);

/* From one order of dimensions to the other; the same where channels are not last. */
mp_shape mp_shape_first(const mp_planner *p, const mp_shape *stored);
mp_shape mp_shape_stored(const mp_planner *p, const mp_shape *first);

/* With its channels last, whatever the node is. */
mp_shape mp_shape_last(const mp_shape *first);

/* Steps through a stored tensor along the dimensions as ONNX has them. */
void mp_stored_strides(const mp_planner *p, const mp_shape *first, int64_t stride[MP_RANK_MAX]);

/* Elements between neighbouring channels of a stored tensor. */
int64_t mp_channel_stride(const mp_planner *p, const mp_shape *first);

/* Moves a tensor of shape `first` into the other order. */
mp_status mp_plan_channels_to_last(mp_planner *p, mp_dtype dtype, const mp_shape *first,
                                   mp_ref source, mp_ref target);
mp_status mp_plan_channels_to_first(mp_planner *p, mp_dtype dtype, const mp_shape *first,
                                    mp_ref source, mp_ref target);

#endif
