/* peer_sum.cu - the sum of what all ranks of a machine have, each of which sends all of it to all
 * others (peers.h). It is made in the order of ranks, narrow floats in float, so that every rank
 * has the same bits. The blocks are few enough to be there all at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/peers.h"

enum { EACH = 8 / sizeof(T) }; /* elements of a packet */

typedef union K_ALIGN(8) pair {
    uint32_t word[2];
    T lane[EACH];
} pair;

/* The elements of a packet; zeros behind the last one. */
K_FN pair load_own(const T *source, int64_t packet, int64_t count) {
    const T *from = source + packet * EACH;
    const int64_t left = count - packet * EACH;
    if ((uint64_t)from % sizeof(pair) == 0 && left >= EACH) {
        return *(const pair *)(const void *)from;
    }
    pair own;
    own.word[0] = own.word[1] = 0;
    K_UNROLL
    for (int k = 0; k < EACH; k++) {
        if (k < left) {
            own.lane[k] = from[k];
        }
    }
    return own;
}

K_FN void store_sum(T *target, int64_t packet, int64_t count, pair sum) {
    T *to = target + packet * EACH;
    const int64_t left = count - packet * EACH;
    if ((uint64_t)to % sizeof(pair) == 0 && left >= EACH) {
        *(pair *)(void *)to = sum;
        return;
    }
    K_UNROLL
    for (int k = 0; k < EACH; k++) {
        if (k < left) {
            to[k] = sum.lane[k];
        }
    }
}

K_FN pair sum_of(const uint32_t *words, int32_t ranks) {
    TA sum[EACH];
    pair one;
    one.word[0] = words[0];
    one.word[1] = words[1];
    K_UNROLL
    for (int k = 0; k < EACH; k++) {
        sum[k] = T_load(one.lane[k]);
    }
    K_UNROLL
    for (int32_t r = 1; r < K_PEERS_MAX; r++) {
        if (r < ranks) {
            one.word[0] = words[2 * r];
            one.word[1] = words[2 * r + 1];
            K_UNROLL
            for (int k = 0; k < EACH; k++) {
                sum[k] += T_load(one.lane[k]);
            }
        }
    }
    K_UNROLL
    for (int k = 0; k < EACH; k++) {
        one.lane[k] = T_store(sum[k]);
    }
    return one;
}

K_BLOCK_KERNEL_LATE(512, mp_peer_sum_args, args) {
    const T *source = (const T *)args.source;
    const int64_t packets = (args.count + EACH - 1) / EACH;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    uint32_t words[2 * K_PEERS_MAX];
    k_wait();
    pair own; /* on its way while the number is */
    own.word[0] = own.word[1] = 0;
    if (first < packets) {
        own = load_own(source, first, args.count);
    }
    const uint32_t number = k_peers_begin(&args.peers);
    for (int64_t i = first; i < packets; i += step) {
        const pair now = i == first ? own : load_own(source, i, args.count);
        k_peers_send(&args.peers, number, i, now.word);
    }
    k_peers_sent();
    for (int64_t i = first; i < packets; i += step) {
        const pair now = i == first ? own : load_own(source, i, args.count);
        K_UNROLL
        for (int32_t r = 0; r < K_PEERS_MAX; r++) {
            const int is_own = r == args.peers.rank;
            words[2 * r] = is_own ? now.word[0] : 0;
            words[2 * r + 1] = is_own ? now.word[1] : 0;
        }
        if (!k_peers_receive(&args.peers, number, i, words)) {
            return;
        }
        store_sum((T *)args.target, i, args.count, sum_of(words, args.peers.ranks));
    }
}
