/* conv_planes_test.c - convolutions of single pixels with channels first, of types of two bytes,
 * against plain loops: planes that are multiplied where they lie, and those that cannot be.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <stdlib.h>

typedef struct planes {
    int64_t batch, in_channels, out_channels, height, width;
    mp_dtype type;
} planes;

static void check_planes(mp_device *device, const planes *a) {
    const int64_t pixels = a->height * a->width;
    void *x = op_numbers(a->type, 1, a->batch * a->in_channels * pixels);
    void *w = op_numbers(a->type, 2, a->out_channels * a->in_channels);
    op_case c = {.name = "Conv",
                 .version = 11,
                 .in = {OP_TENSOR(a->type, x, a->batch, a->in_channels, a->height, a->width),
                        OP_TENSOR(a->type, w, a->out_channels, a->in_channels, 1, 1)},
                 .in_count = 2,
                 .out_count = 1};
    op_run(device, &c);
    for (int64_t i = 0; i < a->batch * a->out_channels * pixels; i++) {
        const int64_t pixel = i % pixels, to = i / pixels % a->out_channels;
        const int64_t image = i / pixels / a->out_channels;
        double want = 0;
        for (int64_t k = 0; k < a->in_channels; k++) {
            want += op_real(a->type, x, (image * a->in_channels + k) * pixels + pixel) *
                    op_real(a->type, w, to * a->in_channels + k);
        }
        op_check_close(op_real(a->type, c.out[0].data, i), want,
                       op_precision(a->type) * (double)(1 + a->in_channels), "pixel", i);
    }
    op_close(device, &c);
    free(x);
    free(w);
}

DEVICE_TEST(conv_of_single_pixels) {
    static const planes all[] = {{3, 16, 24, 4, 6, MP_F16}, {2, 8, 5, 2, 4, MP_BF16},
                                 {1, 64, 3, 1, 8, MP_F16},  {2, 16, 8, 3, 5, MP_F16},
                                 {2, 12, 8, 4, 4, MP_BF16}, {1, 8, 8, 1, 1, MP_F16}};
    for (size_t i = 0; i < MP_COUNT_OF(all); i++) {
        check_planes(device, &all[i]);
    }
}
