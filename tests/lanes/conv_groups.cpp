/* conv_groups.cpp - convolutions in groups of some channels by lanes with tensor cores, against
 * plain sums: parts of a group, an odd word of each lane, tiles that end in the next image, taps
 * beyond it. Shared memory begins as NaN, and so does what lies around the image.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "divider.h"
#include "kernel/linear/conv_groups.cu"
#include "lanes.h"

#include <cmath>

namespace {

struct image {
    int32_t batch, groups, width, group, part, in[2], kernel[2], stride[2], dilation[2], pad[2],
        end[2];
};

mp_group_conv_args args_of(const image &x) {
    mp_group_conv_args a = {};
    const auto out = [&](int d) {
        const int32_t reach = x.dilation[d] * (x.kernel[d] - 1) + 1;
        return (x.in[d] + x.pad[d] + x.end[d] - reach) / x.stride[d] + 1;
    };
    a.in_h = x.in[0], a.in_w = x.in[1], a.out_h = out(0), a.out_w = out(1);
    a.groups = x.groups, a.width = x.width, a.group = x.group, a.part = x.part;
    a.parts = (x.group + x.part - 1) / x.part;
    a.in_channels = x.groups * x.width, a.out_channels = x.groups * x.group;
    a.x_image = (int64_t)x.in[0] * x.in[1] * a.in_channels;
    a.kernel_h = x.kernel[0], a.kernel_w = x.kernel[1];
    a.stride_h = x.stride[0], a.stride_w = x.stride[1];
    a.dilation_h = x.dilation[0], a.dilation_w = x.dilation[1];
    a.pad_h = x.pad[0], a.pad_w = x.pad[1];
    a.pixels = x.batch * a.out_h * a.out_w;
    a.count = (a.pixels + K_GROUP_PIXELS - 1) / K_GROUP_PIXELS;
    a.steps = (x.width / 4 / K_WORD + 1) / 2;
    a.items = a.steps * x.kernel[0] * x.kernel[1];
    a.by_out_w = divider((uint32_t)a.out_w), a.by_out_h = divider((uint32_t)a.out_h);
    a.by_steps = divider((uint32_t)a.steps), a.by_kernel_w = divider((uint32_t)a.kernel_w);
    return a;
}

void fill(Buffer<T> &to, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = T_store((float)((int)(next_random() % 65) - 32) / 16);
    }
}

double expected(const mp_group_conv_args &a, int64_t at) {
    const int64_t channel = at % a.out_channels, pixel = at / a.out_channels;
    const int64_t column = pixel % a.out_w, row = pixel / a.out_w % a.out_h;
    const T *x =
        (const T *)a.x + pixel / a.out_w / a.out_h * a.x_image + channel / a.group * a.width;
    const T *w = (const T *)a.w + channel * a.kernel_h * a.kernel_w * a.width;
    double sum = a.bias != nullptr ? T_load(((const T *)a.bias)[channel]) : 0;
    sum += a.residual != nullptr ? T_load(((const T *)a.residual)[at]) : 0;
    for (int64_t ky = 0; ky < a.kernel_h; ky++) {
        for (int64_t kx = 0; kx < a.kernel_w; kx++) {
            const int64_t y = row * a.stride_h - a.pad_h + ky * a.dilation_h;
            const int64_t z = column * a.stride_w - a.pad_w + kx * a.dilation_w;
            for (int64_t c = 0; y >= 0 && y < a.in_h && z >= 0 && z < a.in_w && c < a.width; c++) {
                sum += (double)T_load(x[(y * a.in_w + z) * a.in_channels + c]) *
                       (double)T_load(w[(ky * a.kernel_w + kx) * a.width + c]);
            }
        }
    }
    return a.activation == K_ACTIVATE_RELU   ? (sum < 0 ? 0 : sum)
           : a.activation == K_ACTIVATE_SILU ? sum / (1 + exp(-sum))
                                             : sum;
}

bool is_close(double got, double want) {
    const double bound = K_WORD == 1 ? 1e-2 : LANES_BF16 ? 8e-3 : 1e-3;
    return std::isnan(want) ? std::isnan(got)
                            : got == want || fabs(got - want) <= bound * fmax(1, fabs(want));
}

void check_image(const image &x, unsigned kind) {
    static const int32_t activations[] = {K_ACTIVATE_NONE, K_ACTIVATE_RELU, K_ACTIVATE_SILU};
    mp_group_conv_args a = args_of(x);
    const size_t in = (size_t)(x.batch * a.x_image), out = (size_t)a.pixels * a.out_channels;
    const size_t weights = (size_t)a.out_channels * a.kernel_h * a.kernel_w * a.width;
    Buffer<T> images(in, 0), w(weights, 0), y(out + 64, 0), bias((size_t)a.out_channels, 0),
        residual(out, 0);
    fill(images, in);
    fill(w, weights);
    fill(bias, (size_t)a.out_channels);
    fill(residual, out);
    for (size_t i = 0; i < out + 64; i++) {
        y[i] = T_store(77);
    }
    if (kind % 3 == 0) {
        images[next_random() % in] = T_store(INFINITY); /* which only those who see it know */
    }
    a.activation = activations[kind % 3];
    a.constant = (int32_t)(kind % 2);
    a.x = images.data(), a.w = w.data(), a.y = y.data();
    a.bias = kind % 2 == 0 ? bias.data() : nullptr;
    a.residual = kind % 4 < 2 ? residual.data() : nullptr;
    const unsigned sides = (unsigned)(a.groups * a.parts);
    run_blocks(kind % 2 == 0 ? sides : 2 * sides, K_GROUP_LANES, [&] { conv_groups(a); });
    for (size_t i = 0; i < out; i++) {
        check(is_close(T_load(y[i]), expected(a, (int64_t)i)), "an output", (int64_t)i);
    }
    const size_t held = 4 * (size_t)K_GROUP_SHARED(a.items, a.part / 8), beyond = 4096;
    const unsigned char *shared = (const unsigned char *)k_shared_bytes();
    for (size_t i = held; i < held + beyond; i++) {
        check(shared[i] == 0xff, "what lies behind the shared memory", (int64_t)i);
    }
    for (size_t i = out; i < out + 64; i++) {
        check(T_load(y[i]) == 77, "what lies behind the outputs", (int64_t)i);
    }
}

const image images[] = {
    {2, 3, 24, 24, 24, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 2, 24, 48, 32, {8, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {3, 2, 40, 16, 16, {5, 5}, {3, 2}, {1, 2}, {2, 1}, {4, 0}, {1, 3}},
    {1, 1, 8, 8, 8, {4, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 2, 56, 24, 16, {3, 6}, {2, 3}, {1, 3}, {1, 1}, {0, 5}, {2, 0}},
};

const image wide[] = {
    {1, 2, 40, 40, 40, {5, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 24, 144, 64, {4, 5}, {1, 3}, {1, 1}, {1, 1}, {0, 1}, {0, 1}},
};

} // namespace

void run_tests() {
    for (unsigned kind = 0; kind < 4; kind++) {
        for (const image &x : wide) {
            if (K_WIDE == 64) {
                check_image(x, kind);
            }
        }
        for (const image &x : images) {
            check_image(x, kind);
        }
    }
}
