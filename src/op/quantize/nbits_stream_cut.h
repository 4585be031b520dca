/* nbits_stream_cut.h - how nbits_stream.cu cuts a product of one row with many packed weights.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_NBITS_STREAM_CUT_H
#define MP_OP_NBITS_STREAM_CUT_H

#include "op/quantize/nbits_cut.h"

typedef struct mp_nbits_stream_cut {
    uint32_t blocks, lanes; /* lanes: of a block */
    k_nbits_shared shared;
} mp_nbits_stream_cut;

/* For blocks of 2^block_shift weights; `made`: the kernel makes its row itself. False where another
 * way is better, or the device cannot. */
bool mp_nbits_stream_cut_for(const mp_device_info *info, const mp_nbits_work *work, int block_shift,
                             bool made, mp_nbits_stream_cut *out);

#endif
