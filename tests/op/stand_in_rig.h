/* stand_in_rig.h - runs a fused kernel and what stands in for it with the same arguments.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_STAND_IN_RIG_H
#define MP_TESTS_STAND_IN_RIG_H

#include "kernel/fused/fused_args.h"
#include "op/op_value.h"

enum { STAND_IN_OWN, STAND_IN_OTHER, STAND_IN_BOTH }; /* whose results */

typedef struct stand_in_rig {
    mp_device *device;
    mp_stream *stream;
    const mp_kernel *stand_in;
    size_t bytes, table_bytes; /* of each tensor, and of the table */
    mp_addr in[K_FUSED_IN], out[STAND_IN_BOTH][K_FUSED_OUT], table;
} stand_in_rig;

/* `kernel` stands in here; elsewhere nothing does any more. */
stand_in_rig stand_in_rig_open(mp_device *device, const char *kernel, size_t bytes,
                               size_t table_bytes);
void stand_in_rig_close(stand_in_rig *r);

/* Input `i` gets `r->bytes` of data. */
void stand_in_rig_set(const stand_in_rig *r, int i, const void *data);
/* Outputs begin `skew` bytes behind where they lie, and are 0 before. */
void stand_in_rig_launch(const stand_in_rig *r, const mp_kernel *kernel, int whose, mp_grid grid,
                         mp_fused_args args, size_t skew);
void stand_in_rig_get(const stand_in_rig *r, int whose, int o, size_t skew, void *to, size_t bytes);

/* Whether element `i` has the same bits in both, or is no number in either. */
bool stand_in_is_same(mp_dtype type, const void *own, const void *other, int64_t i);

#endif
