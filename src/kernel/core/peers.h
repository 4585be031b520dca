/* peers.h - ranks on one machine, each with a GPU, send each other small things from within a
 * kernel that all of them run.
 *
 * What is sent is packets of 16 bytes: two words, and behind each a mark that says by which work it
 * was sent. A word and its mark are stored at once, since they are 8 aligned bytes, so whoever
 * finds the mark has the word: nothing need be ordered, no fence waits for bytes that are on their
 * way, and one trip is all it takes. (NCCL calls the like LL; it works by NVLink and by PCIe.)
 *
 *   box of a rank:   | turn 0: part of rank 0, part of rank 1, ... | turn 1: the same |
 *
 * Works are numbered by a word that each rank has for itself, and take turns by that number. No
 * rank waits before it writes, for this reason: it is at work n, so its work n - 1 has ended, and
 * that one had packets of all ranks, who sent them when their works n - 2 had ended. So what was
 * sent by work n - 2, in the parts that are written now, has been read everywhere. Each rank then
 * puts zeros there (before its work n - 2 ends, and thus before others learn that it did), so that
 * no mark lies there when numbers come again: they have 31 bits.
 *
 * All of that rests on one kernel ending before the next one sends or counts: k_wait() of late.h
 * comes first. Each packet of a source must be sent by all ranks, and read by one lane.
 *
 *   k_peers_begin(peers)   the work's number; all lanes of all blocks call, once, and wait
 *   k_peers_send(peers, number, packet, words)    two words to all other ranks
 *   k_peers_receive(peers, number, packet, words)  two words of each rank: words[2 * rank]; the
 *                          caller's own are there already. 0 where nobody is to be waited for any
 *                          more, as another rank is gone: the words are then worthless
 *
 * Between the last k_peers_send and the first k_peers_receive of a block lanes call
 * k_peers_sent(): the emulated device has one lane run after the other.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_PEERS_H
#define MP_KERNEL_PEERS_H

#include "kernel/core/late.h"
#include "kernel/core/peers_args.h"

/* Looks for packets between two looks whether to go on. Each crosses PCIe: in about a millisecond,
 * one a lane. */
enum { K_PEERS_LOOKS = 2048 };

enum { K_PACKET_BYTES = 16, K_TURN_BITS = 16 };

typedef struct K_ALIGN(16) k_packet {
    uint32_t word[4]; /* a word, its mark, a word, its mark */
} k_packet;

#if K_PTX

/* Not from a cache that others' stores do not reach, and in one piece. */
K_FN void k_packet_store(k_packet *place, const uint32_t *word) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(place), "r"(word[0]),
                 "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
}

/* Where `is` is 0 nothing is read, and the words stay. Predicated, so that the loads of all ranks
 * are under way at once. */
K_FN void k_packet_load(const k_packet *place, int is, uint32_t *word) {
    asm volatile("{ .reg .pred is;\n"
                 "setp.ne.s32 is, %5, 0;\n"
                 "@is ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(word[0]), "+r"(word[1]), "+r"(word[2]), "+r"(word[3])
                 : "l"(place), "r"(is)
                 : "memory");
}

K_FN uint64_t k_turns_add(uint64_t *turns, uint64_t value) {
    return atomicAdd((unsigned long long *)turns, (unsigned long long)value);
}

K_FN int k_peers_stopped(const k_peers *peers) {
    uint32_t stop;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(stop) : "l"(peers->stop) : "memory");
    return stop != 0;
}

K_FN int k_peers_go_on(const k_peers *peers, int looks) {
    return looks % K_PEERS_LOOKS != 0 || !k_peers_stopped(peers);
}

#else

/* A word with its mark, as one: what a GPU promises, and no more. */
K_FN void k_packet_store(k_packet *place, const uint32_t *word) {
    uint64_t *to = (uint64_t *)(void *)place->word;
    __atomic_store_n(to, word[0] | (uint64_t)word[1] << 32, __ATOMIC_RELAXED);
    __atomic_store_n(to + 1, word[2] | (uint64_t)word[3] << 32, __ATOMIC_RELAXED);
}

K_FN void k_packet_load(const k_packet *place, int is, uint32_t *word) {
    const uint64_t *from = (const uint64_t *)(const void *)place->word;
    for (int i = 0; is && i < 2; i++) {
        const uint64_t both = __atomic_load_n(from + i, __ATOMIC_RELAXED);
        word[2 * i] = (uint32_t)both;
        word[2 * i + 1] = (uint32_t)(both >> 32);
    }
}

K_FN uint64_t k_turns_add(uint64_t *turns, uint64_t value) {
    return __atomic_fetch_add(turns, value, __ATOMIC_RELAXED);
}

K_FN int k_peers_stopped(const k_peers *peers) {
    return __atomic_load_n((const uint32_t *)peers->stop, __ATOMIC_RELAXED) != 0;
}

K_FN int k_peers_go_on(const k_peers *peers, int looks) {
    (void)looks;
#if K_HOST
    k_host_wait();
#else
    lane_rest();
#endif
    return !k_peers_stopped(peers);
}

#endif

/* The parts that rank `from` writes into, in the box of rank `to`. */
K_FN k_packet *k_peers_part(const k_peers *peers, uint32_t number, int32_t to, int32_t from) {
    const uint64_t part = (uint64_t)(number & 1) * (uint64_t)peers->ranks + (uint64_t)from;
    return (k_packet *)(peers->box[to] + part * peers->part);
}

/* One word has both the number and how many blocks have asked for it, so that none can read the one
 * after the other has changed. The last block makes it the next number. */
K_FN uint32_t k_peers_begin(const k_peers *peers) {
    __shared__ uint32_t number;
    if (threadIdx.x == 0) {
        uint64_t *turns = (uint64_t *)peers->turns;
        const uint64_t before = k_turns_add(turns, 1);
        if ((uint32_t)(before & ((1u << K_TURN_BITS) - 1)) == gridDim.x - 1) {
            k_turns_add(turns, ((uint64_t)1 << K_TURN_BITS) - gridDim.x);
        }
        number = (uint32_t)(before >> K_TURN_BITS);
    }
    __syncthreads();
    return number;
}

K_FN uint32_t k_peers_mark(uint32_t number) {
    return number | 1u << 31; /* never 0 */
}

K_FN void k_peers_send(const k_peers *peers, uint32_t number, int64_t packet,
                       const uint32_t *words) {
    const uint32_t mark = k_peers_mark(number);
    const uint32_t all[4] = {words[0], mark, words[1], mark};
    int32_t to = peers->rank;
    for (int32_t i = 1; i < peers->ranks; i++) { /* each begins with another one */
        to = to + 1 < peers->ranks ? to + 1 : 0;
        k_packet_store(k_peers_part(peers, number, to, peers->rank) + packet, all);
    }
}

K_FN void k_peers_sent(void) {
#if K_HOST
    __syncthreads();
#endif
}

K_FN int k_peers_receive(const k_peers *peers, uint32_t number, int64_t packet, uint32_t *words) {
    const uint32_t mark = k_peers_mark(number);
    const uint32_t none[4] = {0, 0, 0, 0};
    uint32_t missing = ((1u << peers->ranks) - 1) & ~(1u << peers->rank);
    for (int looks = 1; missing != 0; looks++) {
        uint32_t got[K_PEERS_MAX][4];
        K_UNROLL
        for (int32_t r = 0; r < K_PEERS_MAX; r++) {
            const int is = missing >> r & 1;
            got[r][0] = got[r][1] = got[r][2] = got[r][3] = 0;
            k_packet_load(k_peers_part(peers, number, peers->rank, r) + packet, is, got[r]);
        }
        K_UNROLL
        for (int32_t r = 0; r < K_PEERS_MAX; r++) {
            if (got[r][1] == mark && got[r][3] == mark) {
                words[2 * r] = got[r][0];
                words[2 * r + 1] = got[r][2];
                missing &= ~(1u << r);
                k_packet_store(k_peers_part(peers, number, peers->rank, r) + packet, none);
            }
        }
        if (missing != 0 && !k_peers_go_on(peers, looks)) {
            return 0;
        }
    }
    return 1;
}

#endif
