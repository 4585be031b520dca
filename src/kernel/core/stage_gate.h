/* stage_gate.h - gates in shared memory, which open each time so many lanes have passed them, and
 * which any lane may wait for: unlike at a place to meet (group_matrix.h), those who wait are not
 * counted and need not come together. Only where K_GROUP_MATRIX is 1.
 *
 * A gate's openings are told apart as even and odd ones, the first, 0, being even: so nobody may be
 * two of them behind. What a lane has stored before it passes is seen by those who waited.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_STAGE_GATE_H
#define MP_KERNEL_STAGE_GATE_H

#include "kernel/core/prelude.h"

/* One lane prepares a gate that opens each time it was passed `count` times. The others know of it
 * behind a barrier. */
K_FN void k_gate_prepare(uint64_t *gate, uint32_t count) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(gate)),
        "r"(count)
        : "memory");
}

K_FN void k_gate_pass(uint64_t *gate) {
    asm volatile(
        "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(gate))
        : "memory");
}

/* The same, not now but once all copies have arrived that the lane has begun. */
K_FN void k_gate_pass_with_copies(uint64_t *gate) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(gate))
                 : "memory");
}

/* Waits for the last even or odd opening, by the lowest bit of `turn`. That of turn -1 has been
 * when a gate is prepared. */
K_FN void k_gate_wait(uint64_t *gate, uint32_t turn) {
    const uint32_t here = (uint32_t)__cvta_generic_to_shared(gate);
    uint32_t open;
    do {
        asm volatile("{ .reg .pred open;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 open, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, open; }"
                     : "=r"(open)
                     : "r"(here), "r"(turn & 1)
                     : "memory");
    } while (open == 0);
}

#endif
