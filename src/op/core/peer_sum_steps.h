/* peer_sum_steps.h - sums of ranks by a kernel of ours: what a plan keeps for them, and their run.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PEER_SUM_STEPS_H
#define MP_OP_PEER_SUM_STEPS_H

#include "kernel/core/peers_args.h"
#include "op/core/plan.h"
#include "op/core/plan_record.h"

/* Gives the record of `what` its kernel, where one may do it. Blocks: while it compiles. */
mp_status mp__plan_peer_sum(mp_planner *p, const mp_collective *what, plan_step *step);

/* Queues that kernel, which makes it `*done`, unless the ranks do not reach each other's memory. */
mp_status mp__plan_run_peer_sum(mp_device *device, mp_stream *stream, const plan_step *step,
                                const mp_addr *operands, bool *done);

#endif
