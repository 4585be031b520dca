/* conv_form_test.c - convolutions whose inputs are not those of ONNX's Conv: weights with channels
 * last, as they come and as constants; padding as an input.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

enum { H = 5, W = 6, K = 3 };

/* [1, H, W, channels] by weights [channels * each, K, K, per_group], without padding. */
static void check_last(mp_device *device, int64_t channels, int64_t groups, int64_t out_channels,
                       bool constant) {
    const int64_t per_group = channels / groups, each = out_channels / groups;
    const int64_t out_h = H - K + 1, out_w = W - K + 1;
    float *x = op_numbers(MP_F32, 1, H * W * channels),
          *w = op_numbers(MP_F32, 2, out_channels * K * K * per_group);
    const mp_attr attrs[] = {OP_INT("group", groups)};
    op_case c = {.domain = "com.microsoft",
                 .name = "NhwcConv",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = 1,
                 .in = {op_f32(x, 1, H, W, channels), op_f32(w, out_channels, K, K, per_group)},
                 .in_count = 2,
                 .out_count = 1,
                 .constant = constant ? 2 : 0};
    op_run(device, &c);
    CHECK_EQ_INT(c.out[0].shape.dim[3], out_channels);
    for (int64_t i = 0; i < out_h * out_w * out_channels; i++) {
        const int64_t m = i % out_channels, col = i / out_channels % out_w,
                      row = i / out_channels / out_w;
        double want = 0;
        for (int64_t t = 0; t < (int64_t)K * K * per_group; t++) {
            const int64_t k = t % per_group, kw = t / per_group % K, kh = t / per_group / K;
            const int64_t at = ((row + kh) * W + col + kw) * channels + m / each * per_group + k;
            want += (double)x[at] * (double)w[m * K * K * per_group + t];
        }
        op_check_close((double)((const float *)c.out[0].data)[i], want, 1e-5, "NhwcConv", i);
    }
    op_close(device, &c);
    free(x);
    free(w);
}

DEVICE_TEST(conv_whose_weights_have_channels_last) {
    for (int constant = 0; constant < 2; constant++) {
        check_last(device, 4, 1, 6, constant == 1);
        check_last(device, 4, 2, 6, constant == 1);
        check_last(device, 8, 8, 8, constant == 1);
        check_last(device, 3, 3, 6, constant == 1);
        check_last(device, 1, 1, 5, constant == 1);
    }
}

DEVICE_TEST(conv_refuses_padding_that_does_not_fit) {
    const float x[64] = {0};
    int64_t pads[4] = {0, 0, 0, -1};
    mp_plan *plan = NULL;
    op_case c = {.domain = "com.microsoft",
                 .name = "ConvTransposeWithDynamicPads",
                 .version = 1,
                 .in = {op_f32(x, 1, 2, 4, 4), op_f32(x, 2, 2, 2, 2), op_i64(pads, 4)},
                 .in_count = 3,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "Pads has the value -1");
    pads[3] = INT64_MAX;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "Pads has the value 9223372036854");
    c.in[2] = op_i64(pads, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "Pads has 3 values where 4");
    pads[3] = 0;
    c.in[2] = op_i64(pads, 4);
    c.in[3] = op_f32(x, 3);
    c.in_count = 4;
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "B of shape 3 does not have 2");
}
