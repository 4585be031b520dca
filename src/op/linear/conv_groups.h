/* conv_groups.h - convolutions in groups of some channels, with channels last: a kernel of ours for
 * the numbers of channels that libraries have none for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_CONV_GROUPS_H
#define MP_OP_CONV_GROUPS_H

#include "op/core/op.h"

/* Whether the kernel computes it, and sooner than a library. */
bool mp_conv_groups_takes(const mp_planner *p, const mp_conv *conv);

/* The convolution, with its epilogue, whose activation is not MP_ACTIVATION_OTHER; of w the
 * channels come last, too. */
mp_status mp_conv_groups_steps(mp_planner *p, const mp_conv *conv,
                               const mp_ref operands[MP_CONV_OPERANDS]);

#endif
