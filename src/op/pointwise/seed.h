/* seed.h - where random numbers begin.
 *
 * Numbers come from a counter (kernel/core/philox.h): the seed, the run and the place decide. With
 * the attribute `seed` a plan gives the same numbers in its first run in every session, and others
 * in each further run; without it a plan has a seed of its own, which nobody chose. A captured
 * graph replays the run that was captured, with its numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SEED_H
#define MP_OP_SEED_H

#include "op/core/op.h"

/* Of the plan that is being made. Threads: any. */
uint64_t mp_seed_of(const mp_planner *p);

#endif
