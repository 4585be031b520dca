/* rows_run.h - what a block does that makes a tile of some rows times a matrix: the first chunks
 * are asked for, B's before the kernel before has ended, then sums are made and finished.
 *
 * Before it is included: R_PARTS of a block, which have a ring of R_AHEAD stages of R_STAGE bytes
 * each and make sums of the whole tile; R_BROUGHT; r_place and r_place_of; r_fill_a, r_fill_b and
 * r_bring_b, of a chunk; r_lane_sums, r_sum and r_put.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_ROWS_RUN_H
#define MP_KERNEL_ROWS_RUN_H

#include "kernel/core/late.h"
#include "kernel/linear/rows_end.h"

K_FN void r_run(const mp_rows_mma_args *args, uint8_t *shared) {
    const r_place at = r_place_of(args, shared);
    const r_sums sums = {(float *)(void *)shared, R_PARTS,
                         R_AHEAD * R_STAGE / (int32_t)sizeof(float)};
    r_lane_sums sum = {};
    r_added added;
    if (args->splits_log > 0) {
        k_cluster_begin();
    }
    K_ONE_COPY
    for (int32_t i = 0; i < R_AHEAD; i++) {
        r_fill_b(&at, at.chunk + i * at.turn, at.ring + i * R_STAGE);
    }
    if (args->constant) { /* else the time for it is over */
        K_ONE_COPY
        for (int32_t i = R_AHEAD; i < R_AHEAD + R_BROUGHT; i++) {
            if (at.chunk + i * at.turn < at.chunks) {
                r_bring_b(&at, at.chunk + i * at.turn);
            }
        }
    }
    k_wait();
    K_ONE_COPY
    for (int32_t i = 0; i < R_AHEAD; i++) {
        r_fill_a(&at, at.chunk + i * at.turn, at.ring + i * R_STAGE);
        k_copies_group();
    }
    if (R_EARLY) {
        r_ask_all(&at.tile, &added);
    }
    r_sum(&at, sum);
    r_put(&at, sum);
    r_finish(&at.tile, sums, (float *)(void *)(shared + R_PARTS * R_AHEAD * R_STAGE), &added);
}

#endif
