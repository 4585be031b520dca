/* peer_sum.cpp - sums of ranks as GPUs make them: each rank is a process, whose lanes are threads,
 * and what GPUs reach of each other is memory that the processes share.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/peer_sum.cu"
#include "lanes.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

enum { COUNT_MAX = 4100, PART = 2 * 8 * COUNT_MAX, TURNS = 5 };

struct Given {
    int32_t ranks;
    unsigned blocks, lanes; /* of each: blocks run one after the other, so ranks need the same */
    int64_t count;
    size_t skew;
    uint64_t first; /* number */
};

T value_of(int32_t rank, int64_t i, int turn) {
    return T_store((TC)((i * 37 + rank * 11 + turn * 5) % 101) / (TC)7);
}

T sum_of_all(int32_t ranks, int64_t i, int turn) {
    TA sum = T_load(value_of(0, i, turn));
    for (int32_t r = 1; r < ranks; r++) {
        sum += T_load(value_of(r, i, turn));
    }
    return T_store(sum);
}

/* How many elements are wrong. */
int64_t be_rank(const Given &given, mp_peer_sum_args args) {
    Buffer<T> source((size_t)given.count, given.skew), target((size_t)given.count + 1, given.skew);
    int64_t wrong = 0;
    args.source = source.data();
    args.target = target.data();
    args.count = given.count;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int64_t i = 0; i < given.count; i++) {
            source[(size_t)i] = value_of(args.peers.rank, i, turn);
        }
        target[(size_t)given.count] = T_store((TC)3);
        run_blocks(given.blocks, given.lanes, [&] { peer_sum(args); });
        for (int64_t i = 0; i < given.count; i++) {
            const T want = sum_of_all(given.ranks, i, turn);
            wrong += memcmp(&target[(size_t)i], &want, sizeof want) != 0;
        }
        wrong += T_load(target[(size_t)given.count]) != 3; /* what is behind */
    }
    return wrong;
}

void check_ranks(const Given &given) {
    const size_t box = (size_t)2 * K_PEERS_MAX * PART, all = K_PEERS_MAX * box + 4096;
    auto *memory = (unsigned char *)mmap(nullptr, all, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[K_PEERS_MAX];
    uint64_t *turns = (uint64_t *)(memory + K_PEERS_MAX * box);
    check(memory != MAP_FAILED, "memory", 0);
    for (int32_t r = 0; r < given.ranks; r++) {
        mp_peer_sum_args args = {};
        for (int32_t other = 0; other < given.ranks; other++) {
            args.peers.box[other] = (uint64_t)memory + (uint64_t)other * box;
        }
        turns[r] = given.first << K_TURN_BITS;
        args.peers.turns = (uint64_t)&turns[r];
        args.peers.stop = (uint64_t)&turns[K_PEERS_MAX];
        args.peers.part = PART;
        args.peers.rank = r;
        args.peers.ranks = given.ranks;
        children[r] = fork();
        if (children[r] == 0) {
            _exit(be_rank(given, args) != 0);
        }
    }
    for (int32_t r = 0; r < given.ranks; r++) {
        int state = 0;
        waitpid(children[r], &state, 0);
        check(WIFEXITED(state) && WEXITSTATUS(state) == 0, "the sums of rank", r);
        check(turns[r] == (given.first + TURNS) << K_TURN_BITS, "the number of rank", r);
    }
    size_t left = 0;
    for (size_t i = 0; i < K_PEERS_MAX * box; i++) {
        left += memory[i] != 0;
    }
    check(left == 0, "bytes that nobody took away", (int64_t)left);
    munmap(memory, all);
}

/* One that waits for a rank which never comes is let go. */
void check_stop() {
    static uint32_t stop[2] = {1, 0};
    static uint64_t turns[1];
    std::vector<unsigned char> box((size_t)2 * 2 * PART);
    Buffer<T> source(4), target(4);
    mp_peer_sum_args args = {};
    args.peers.box[0] = args.peers.box[1] = ((uint64_t)box.data() + 15) / 16 * 16;
    args.peers.turns = (uint64_t)turns;
    args.peers.stop = (uint64_t)stop;
    args.peers.part = PART / 2;
    args.peers.ranks = 2;
    args.source = source.data();
    args.target = target.data();
    args.count = 4;
    run_blocks(1, 32, [&] { peer_sum(args); });
    check(turns[0] == (uint64_t)1 << K_TURN_BITS, "the number, where nobody is waited for", 0);
}

/* Two ranks, both of which this thread is; nobody is waited for. */
struct Pair {
    std::vector<unsigned char> memory = std::vector<unsigned char>(4 * 4 * PART + 16);
    uint32_t stop[2] = {1, 0};
    k_peers side[2] = {};

    Pair() {
        for (int32_t r = 0; r < 2; r++) {
            for (uint64_t other = 0; other < 2; other++) {
                side[r].box[other] = ((uint64_t)memory.data() + 15) / 16 * 16 + other * 4 * PART;
            }
            side[r].stop = (uint64_t)stop;
            side[r].part = PART;
            side[r].rank = r;
            side[r].ranks = 2;
        }
    }
    bool sends(uint32_t number, uint32_t first, uint32_t second) {
        const uint32_t words[2] = {first, second};
        k_peers_send(&side[1], number, 3, words);
        return true;
    }
    bool receives(uint32_t number, uint32_t first, uint32_t second) {
        uint32_t words[2 * K_PEERS_MAX] = {};
        return k_peers_receive(&side[0], number, 3, words) && words[2] == first &&
               words[3] == second;
    }
};

/* What is sent a work ahead takes nothing away from one that has not been looked at. */
void check_ahead(uint32_t number) {
    Pair pair;
    check(pair.sends(number, 1, 2) && pair.sends(number + 1, 3, 4), "two works", number);
    check(pair.receives(number, 1, 2), "the first of two", number);
    check(!pair.receives(number, 1, 2), "what has been taken", number);
    check(pair.receives(number + 1, 3, 4), "the second of two", number);
}

/* Words come one by one, and over what was there before. */
void check_halves() {
    Pair pair;
    k_packet *place = k_peers_part(&pair.side[0], 8, 0, 1) + 3;
    const uint32_t mark = k_peers_mark(8), old = k_peers_mark(6);
    const uint32_t stages[][4] = {
        {5, mark, 0, 0}, {0, 0, 6, mark}, {5, mark, 6, old}, {5, old, 6, mark}};
    for (const uint32_t *each : stages) {
        k_packet_store(place, each);
        check(!pair.receives(8, 5, 6), "a half of a packet", each - stages[0]);
    }
    check(pair.sends(8, 0, 0) && pair.receives(8, 0, 0), "a packet of zeros", 8);
}

} // namespace

void run_tests() {
    check_ahead(1);
    check_ahead(UINT32_MAX);
    check_halves();
    check_ranks({2, 1, 32, 1, 0, 0});
    check_ranks({2, 3, 64, 1001, 0, 1});
    check_ranks({3, 2, 32, 777, 1, 7});
    check_ranks({2, 2, 64, COUNT_MAX, 0, (1u << 31) - 3});
    check_ranks({8, 1, 32, 130, 0, ((uint64_t)1 << 32) - 2});
    check_ranks({5, 2, 32, 5, 3, ((uint64_t)1 << 48) - 2});
    check_stop();
}
