/* team.h - threads that start together and stay on processors of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_POOL_TEAM_H
#define BENCH_POOL_TEAM_H

#include "bench.h"

typedef void team_fn(bench *self, unsigned index, void *context);

/* Runs `fn` on `count` threads; returns the nanoseconds from the common start to the last end. */
double team_run(bench *self, unsigned count, team_fn *fn, void *context);

/* To be called again and again while waiting for another thread: spins, then lets others run. */
void team_pause(unsigned *spins);

#endif
