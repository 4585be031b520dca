/* beams.h - entries of a batch whose rows of the past are those of other entries.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_BEAMS_H
#define MP_KERNEL_BEAMS_H

#include "kernel/attention/attention_args.h"
#include "kernel/core/prelude.h"

/* The entry whose past has this row. A beam that no group has is taken as the entry itself. */
K_FN int64_t b_entry(const k_beams *beams, int64_t entry, int64_t row) {
    if (beams->of == 0 || row >= beams->rows) {
        return entry;
    }
    const int64_t first = entry / beams->width * beams->width;
    const int64_t beam = ((const int32_t *)beams->of)[entry * beams->pitch + row];
    return beam >= 0 && beam < beams->width ? first + beam : entry;
}

#endif
