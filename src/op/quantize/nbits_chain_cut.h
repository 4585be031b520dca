/* nbits_chain_cut.h - how nbits_chain.cu cuts a chain of products of one row.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_NBITS_CHAIN_CUT_H
#define MP_OP_NBITS_CHAIN_CUT_H

#include "device/device.h"
#include "kernel/quantize/nbits_chain_args.h"

typedef struct mp_nbits_chain_cut {
    uint32_t blocks, lanes, shared_bytes; /* of the cluster; of a block */
} mp_nbits_chain_cut;

/* Of `args`, which says of each link n, k, `chunks_log` and `gated`, fills in what follows from
 * them. Bit i of `normed`: link i has a norm. False where products
 * of their own are better, or the device cannot.
 */
bool mp_nbits_chain_cut_for(const mp_device_info *info, int bits, uint32_t normed,
                            mp_nbits_chain_args *args, mp_nbits_chain_cut *out);

/* The same for so many blocks of so many warps; what a block needs of shared memory. */
int64_t mp_nbits_chain_lay_out(int bits, uint32_t normed, int blocks_log, int warps,
                               mp_nbits_chain_args *args);

#endif
