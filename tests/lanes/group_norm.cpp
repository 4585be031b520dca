/* group_norm.cpp - groups of channels that are stored last: sums that lanes of a block leave to one
 * another, groups that several chunks of channels share, more slices than lanes of a team.
 * SPDX-License-Identifier: Apache-2.0 */
#include "divider.h"
#include "kernel/rows/group_stats.cu"
#include "lanes.h"

extern "C" void group_apply(const mp_group_norm_args args);

namespace {

enum { GROUP = 64 }; /* lanes of a block */

struct Norm {
    int64_t batch, pixels;
    int32_t channels, groups;
    int64_t slice;
    bool skips;
};

/* Where element `i` of a group lies. */
size_t place_of(const Norm &n, int64_t entry, int32_t group, int64_t i) {
    const int32_t each = n.channels / n.groups;
    return (size_t)((entry * n.pixels + i / each) * n.channels + group * each + i % each);
}

void check_group(const Norm &n, const std::vector<double> &x, Buffer<T> &out, int64_t entry,
                 int32_t group) {
    const int64_t count = n.pixels * (n.channels / n.groups);
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < count; i++) {
        mean += x[place_of(n, entry, group, i)] / (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        variance += std::pow(x[place_of(n, entry, group, i)] - mean, 2) / (double)count;
    }
    for (int64_t i = 0; i < count; i++) {
        const size_t at = place_of(n, entry, group, i);
        const double value = (x[at] - mean) / std::sqrt(variance + 1e-5) * 2 + 0.5;
        const double want = value / (1 + std::exp(-value)), got = T_load(out[at]);
        check(std::fabs(got - want) <= (sizeof(T) == 2 ? 2e-3 : 2e-5) * (1 + std::fabs(want)),
              "an element", (int64_t)at);
    }
}

void check_norm(const Norm &n) {
    const size_t count = (size_t)(n.batch * n.pixels * n.channels);
    Buffer<T> x(count), skip(count), sum(count), out(count), add((size_t)n.channels);
    std::vector<float> scale((size_t)n.channels, 2.0F), bias((size_t)n.channels, 0.5F);
    std::vector<double> all(count);
    for (int32_t c = 0; c < n.channels; c++) {
        add[(size_t)c] = T_store((float)(c % 5));
    }
    for (size_t i = 0; i < count; i++) {
        x[i] = T_store((float)(next_random() % 2001) / 500 - 2 + 30.0F);
        skip[i] = T_store((float)(next_random() % 101) / 50);
        const float both = T_load(x[i]) + T_load(skip[i]) + T_load(add[i % (size_t)n.channels]);
        all[i] = n.skips ? T_load(T_store(both)) : T_load(x[i]);
    }
    mp_group_norm_args args = {};
    const int32_t packs = n.channels / PACK;
    args.x = x.data();
    args.skip = n.skips ? skip.data() : nullptr;
    args.add = n.skips ? add.data() : nullptr;
    args.sum = n.skips ? sum.data() : nullptr;
    args.scale = scale.data();
    args.bias = bias.data();
    args.out = out.data();
    args.batch = n.batch;
    args.pixels = n.pixels;
    args.slice = n.slice;
    args.channels = n.channels;
    args.groups = n.groups;
    args.each = n.channels / n.groups;
    args.slices = (int32_t)((n.pixels + n.slice - 1) / n.slice);
    args.across = packs < GROUP ? packs : GROUP;
    args.lines = GROUP / args.across;
    args.chunks = (packs + args.across - 1) / args.across;
    const int32_t width = args.across * PACK;
    args.spans = width % args.each == 0 ? 1 : (args.each + width - 2) / width + 1;
    args.skip_step = n.channels;
    args.activation = K_GROUP_NORM_SWISH;
    args.epsilon = 1e-5F;
    args.by_each = divider((uint32_t)args.each);
    args.by_width = divider((uint32_t)width);
    args.by_chunks = divider((uint32_t)args.chunks);
    args.by_slices = divider((uint32_t)args.slices);
    std::vector<float> partial((size_t)(n.batch * n.groups * args.spans * args.slices * 2), NAN);
    args.partial = partial.data();
    run_blocks(3, GROUP, [&] { group_stats(args); });
    run_blocks(3, GROUP, [&] { group_apply(args); });
    for (size_t i = 0; n.skips && i < count; i++) {
        check(T_load(sum[i]) == (float)all[i], "a sum", (int64_t)i);
    }
    for (int64_t i = 0; i < n.batch * n.groups; i++) {
        check_group(n, all, out, i / n.groups, (int32_t)(i % n.groups));
    }
}

} // namespace

void run_tests() {
    for (int skips = 0; skips < 2; skips++) {
        check_norm({2, 100, 40, 4, 5, skips != 0});
        check_norm({1, 37, 320, 32, 37, skips != 0});
        check_norm({1, 9, 1048, 2, 4, skips != 0});
        check_norm({1, 11, 600, 25, 3, skips != 0});
        check_norm({1, 300, 8, 1, 2, skips != 0});
    }
}
