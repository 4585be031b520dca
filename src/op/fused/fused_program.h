/* fused_program.h - an expression on the emulated device: the element-wise kernels that it has
 * anyway, for some elements at a time, so that what is between them stays in the cache.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FUSED_PROGRAM_H
#define MP_OP_FUSED_PROGRAM_H

#include "device/device.h"
#include "op/fused/fused_source.h"

typedef struct mp_fused_program mp_fused_program;

/* Gives: `*out`, until free. Fails: OUT_OF_MEMORY (host), INTERNAL for a kernel that there is not.
 */
mp_status mp_fused_program_make(const mp_expression *e, const mp_reading *readings,
                                mp_fused_program **out);

/* The entry of a kernel image: runs mp_fused_args.program. */
void mp_fused_program_enter(const void *packed);

#endif
