/* compact.cpp - counting and writing what is not zero, by several warps.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/compact_count.cu"
#include "lanes.h"

namespace {
enum { TILE = 4096, LANES = 64, ROW = 7 };
}

extern "C" void compact_scan(const mp_compact_args args);
extern "C" void compact_write(const mp_compact_args args);

/* Zeros alone and in runs, or none. */
static T value_of(int64_t i, int kind) {
    return (T)(kind == 0 ? next_random() % 3 == 0 : kind == 1 || i / 300 % 2 != 0);
}

static void check_compact(int64_t count, bool is_packed, int kind) {
    Buffer<T> x((size_t)count, is_packed ? 0 : 1);
    std::vector<int64_t> starts((size_t)count / TILE + 1), out((size_t)count * 2 + 1);
    std::vector<uint16_t> masks(starts.size() * TILE / K_COMPACT_EACH);
    int64_t total = -1, at = 0;
    for (int64_t i = 0; i < count; i++) {
        x[i] = value_of(i, kind);
    }
    mp_compact_args args = {};
    args.x = x.data();
    args.starts = starts.data();
    args.masks = masks.data();
    args.total = &total;
    args.count = count;
    args.tile = TILE;
    args.tiles = (count + TILE - 1) / TILE;
    args.flags = K_COMPACT_WIDE | (is_packed ? K_COMPACT_PACKED : 0);
    run_blocks(3, LANES, [&] { compact_count(args); });
    run_blocks(1, LANES, [&] { compact_scan(args); });
    args.found = total;
    args.out = out.data();
    args.rank = 2;
    args.stride[0] = ROW;
    args.stride[1] = 1;
    run_blocks(3, LANES, [&] { compact_write(args); });
    for (int64_t i = 0; i < count; i++) {
        if (x[i] != 0) {
            check(at < total && out[at] == i / ROW && out[total + at] == i % ROW, "a place", i);
            at++;
        }
    }
    check(at == total, "the total", count);
}

void run_tests() {
    for (int kind = 0; kind < 3; kind++) {
        check_compact(5, kind == 0, kind);
        check_compact(4096 + kind, kind == 1, kind);
        check_compact(9001, kind != 0, kind);
    }
}
