/* stem.cpp - convolutions of few channels by 128 or 256 lanes with tensor cores, and the numbers
 * that a plan gives them: sizes, strides, dilations, padding, orders of channels, addresses that
 * are off. Shared memory begins as NaN, and so does what lies around the image.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "kernel/linear/conv_stem.cu"
#include "lanes.h"

extern "C" {
#include "op/linear/conv_stem_cut.h"
}

#include <cmath>

namespace {

struct image {
    int64_t batch, in_channels, channels, in[2], kernel[2], stride[2], dilation[2], begin[2],
        end[2];
    int spatial;
};

const mp_dtype TYPE = K_WORD == 1 ? MP_F32 : LANES_BF16 ? MP_BF16 : MP_F16;

mp_conv conv_of(const image &x) {
    mp_conv conv = {};
    conv.type = TYPE;
    conv.tf32 = true;
    conv.spatial = x.spatial;
    conv.batch = x.batch;
    conv.in_channels = x.in_channels;
    conv.out_channels = x.channels;
    conv.groups = 1;
    for (int d = 0; d < x.spatial; d++) {
        const int s = d + 2 - x.spatial;
        conv.in[d] = x.in[s];
        conv.kernel[d] = x.kernel[s];
        conv.stride[d] = x.stride[s];
        conv.dilation[d] = x.dilation[s];
        conv.pad_begin[d] = x.begin[s];
        conv.pad_end[d] = x.end[s];
        const int64_t reach = x.dilation[s] * (x.kernel[s] - 1) + 1;
        conv.out[d] = (x.in[s] + x.begin[s] + x.end[s] - reach) / x.stride[s] + 1;
    }
    return conv;
}

void fill(Buffer<T> &to, size_t count) {
    for (size_t i = 0; i < count; i++) {
        to[i] = T_store((float)((int)(next_random() % 65) - 32) / 16);
    }
}

double expected(const mp_stem_args &a, int64_t n, int64_t c, int64_t row, int64_t column) {
    const T *x = (const T *)a.x + n * a.x_image, *w = (const T *)a.w + c * a.taps;
    double sum = a.bias != nullptr ? T_load(((const T *)a.bias)[c]) : 0;
    for (int64_t i = 0; i < a.in_channels; i++) {
        for (int64_t ky = 0; ky < a.kernel_h; ky++) {
            for (int64_t kx = 0; kx < a.kernel_w; kx++) {
                const int64_t y = row * a.stride_h - a.pad_h + ky * a.dilation_h;
                const int64_t z = column * a.stride_w - a.pad_w + kx * a.dilation_w;
                const int64_t pixel = y * a.in_w + z, tap = ky * a.kernel_w + kx;
                if (y >= 0 && y < a.in_h && z >= 0 && z < a.in_w) {
                    const T v = x[a.pixel > 1 ? pixel * a.in_channels + i
                                              : i * (int64_t)a.in_h * a.in_w + pixel];
                    const T u = w[a.w_last ? tap * a.in_channels + i
                                           : i * (int64_t)a.kernel_h * a.kernel_w + tap];
                    sum += (double)T_load(v) * (double)T_load(u);
                }
            }
        }
    }
    switch (a.activation) {
    case K_ACTIVATE_RELU:
        return sum < 0 ? 0 : sum;
    case K_ACTIVATE_CLIP:
        return sum < a.alpha ? a.alpha : sum > a.beta ? a.beta : sum;
    case K_ACTIVATE_SILU:
        return sum / (1 + exp(-sum));
    default:
        return sum;
    }
}

bool is_close(double got, double want) {
    const double bound = K_WORD == 1 ? 1e-5 : LANES_BF16 ? 8e-3 : 1e-3;
    return std::isnan(want) ? std::isnan(got)
                            : got == want || fabs(got - want) <= bound * fmax(1, fabs(want));
}

void check_image(const image &x, unsigned kind) {
    static const mp_activation activations[] = {MP_ACTIVATION_NONE, MP_ACTIVATION_RELU,
                                                MP_ACTIVATION_CLIP, MP_ACTIVATION_SILU};
    mp_conv conv = conv_of(x);
    const size_t skew = kind % 7 == 4 ? 1 : 0;
    mp_stem_args args = {};
    conv.activation = activations[kind % 4];
    conv.alpha = -0.5F;
    conv.beta = 3;
    conv.align = skew != 0 ? 1 : 16;
    const int32_t lanes = kind % 3 == 1 ? 256 : 128;
    const mp_stem_form form = {(kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0};
    const bool fits = mp_stem_cut(&conv, form, lanes, &args);
    check(fits, "that the kernel takes it", x.channels);
    if (!fits || mp_stem_wide(&conv) != K_WIDE) {
        return;
    }
    const size_t in = (size_t)(x.batch * args.x_image), out = (size_t)(x.batch * args.y_image);
    Buffer<T> image(in, skew), w((size_t)(x.channels * args.taps), skew), y(out + 64, skew),
        bias((size_t)x.channels, skew);
    fill(image, in);
    fill(w, (size_t)(x.channels * args.taps));
    fill(bias, (size_t)x.channels);
    if (kind % 3 == 0) {
        image[next_random() % in] = T_store(INFINITY); /* which only those who see it know */
    }
    for (size_t i = 0; i < out + 64; i++) {
        y[i] = T_store(77);
    }
    args.x = image.data();
    args.w = w.data();
    args.y = y.data();
    args.bias = kind % 2 == 0 ? bias.data() : nullptr;
    args.constant = kind % 2;
    const size_t held = (size_t)mp_stem_held(&conv, &args), beyond = 4096;
    const unsigned char *shared = (const unsigned char *)k_shared_bytes();
    run_blocks(args.count > 3 ? 3 : (unsigned)args.count, (unsigned)lanes,
               [&] { conv_stem(args); });
    for (size_t i = 0; i < out; i++) {
        const int64_t plane = (int64_t)args.out_h * args.out_w, at = (int64_t)i;
        const int64_t n = at / args.y_image, rest = at % args.y_image;
        const int64_t c = args.y_last ? rest % x.channels : rest / plane;
        const int64_t pixel = args.y_last ? rest / x.channels : rest % plane;
        check(is_close(T_load(y[i]), expected(args, n, c, pixel / args.out_w, pixel % args.out_w)),
              "an output", at);
    }
    for (size_t i = held; i < held + beyond; i++) {
        check(shared[i] == 0xff, "what lies behind the shared memory", (int64_t)i);
    }
    for (size_t i = out; i < out + 64; i++) {
        check(T_load(y[i]) == 77, "what lies behind the outputs", (int64_t)i);
    }
}

const image images[] = {
    {1, 3, 64, {31, 30}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}, 2},
    {2, 3, 16, {17, 32}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 2},
    {1, 3, 33, {9, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 2},
    {1, 3, 96, {16, 64}, {4, 4}, {4, 4}, {1, 1}, {0, 0}, {0, 0}, 2},
    {2, 1, 24, {11, 13}, {5, 3}, {1, 3}, {2, 1}, {0, 2}, {4, 1}, 2},
    {1, 4, 127, {12, 9}, {2, 5}, {3, 1}, {1, 2}, {5, 0}, {0, 3}, 2},
    {3, 2, 5, {7, 6}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, 2},
    {1, 3, 40, {1, 300}, {1, 9}, {1, 2}, {1, 1}, {0, 4}, {0, 4}, 1},
    {2, 1, 8, {1, 61}, {1, 4}, {1, 1}, {1, 3}, {0, 0}, {0, 5}, 1},
    {1, 3, 56, {20, 26}, {6, 6}, {2, 2}, {1, 1}, {2, 2}, {2, 2}, 2},
    {1, 2, 12, {19, 18}, {11, 12}, {4, 3}, {1, 1}, {-2, 9}, {20, -3}, 2},
    {1, 3, 72, {10, 16}, {3, 3}, {1, 1}, {3, 4}, {3, 4}, {3, 4}, 2},
};

} // namespace

void run_tests() {
    for (unsigned i = 0; i < sizeof images / sizeof *images; i++) {
        for (unsigned kind = i; kind < i + 20; kind += 5) {
            check_image(images[i], kind);
        }
    }
}
