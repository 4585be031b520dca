/* peers_args.h - memory by which ranks on one machine reach each other, as kernels get it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PEERS_ARGS_H
#define MP_KERNEL_PEERS_ARGS_H

#include "kernel/core/types.h"

enum { K_PEERS_MAX = 8 };

typedef struct k_peers { /* as mp_peers of device/collective.h */
    uint64_t box[K_PEERS_MAX];
    uint64_t turns;
    uint64_t stop;
    uint64_t part;
    int32_t rank, ranks;
} k_peers;

typedef struct mp_peer_sum_args {
    const void *source; /* this rank's */
    void *target;
    int64_t count;
    k_peers peers;
} mp_peer_sum_args;

#endif
