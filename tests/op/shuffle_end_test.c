/* shuffle_end_test.c - ShuffleEnd against plain loops: packs of two and of four channels, each
 * number of columns of a block, strides and padding, one output and two, what is left out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/op_value.h"

#include <math.h>
#include <stdlib.h>

enum { EVEN, X, TAPS, MATRIX, BIAS, INPUTS, SIDE = 3, ROWS = 10 };

typedef struct end {
    int64_t images, height, width, channels, columns;
    int64_t strides[2], pads[4], sizes[2];
    bool bare, loose; /* without the matrix's bias; at places that are not aligned */
} end;

static int64_t out_of(int64_t in, int64_t stride, int64_t before, int64_t after) {
    return (in + before + after - SIDE) / stride + 1;
}

/* What the windows make of a channel of a pixel, as it is kept. */
static double window(const end *e, mp_dtype type, void *const *data, int64_t image, int64_t row,
                     int64_t column, int64_t channel) {
    double sum = op_real(type, data[TAPS], (ROWS - 1) * e->channels + channel);
    for (int64_t t = 0; t < SIDE * SIDE; t++) {
        const int64_t y = row * e->strides[0] - e->pads[0] + t / SIDE;
        const int64_t x = column * e->strides[1] - e->pads[1] + t % SIDE;
        if (y >= 0 && y < e->height && x >= 0 && x < e->width) {
            const int64_t at = ((image * e->height + y) * e->width + x) * e->channels + channel;
            sum +=
                op_real(type, data[X], at) * op_real(type, data[TAPS], t * e->channels + channel);
        }
    }
    uint64_t kept = 0;
    op_store_real(type, &kept, 0, sum);
    return op_real(type, &kept, 0);
}

static void compare(const end *e, mp_dtype type, void *const *data, const op_case *c, int64_t rows,
                    int64_t width) {
    double *pixel = calloc((size_t)e->channels, sizeof *pixel);
    CHECK(pixel != NULL);
    for (int64_t p = 0; p < e->images * rows * width; p++) {
        const int64_t image = p / width / rows, row = p / width % rows, column = p % width;
        for (int64_t k = 0; k < e->channels; k++) {
            pixel[k] = window(e, type, data, image, row, column, k);
        }
        for (int64_t n = 0; n < 2 * e->columns; n++) {
            const bool second = n >= e->sizes[0];
            const void *out = c->out[second].data;
            const int64_t at = second ? p * e->sizes[1] + n - e->sizes[0] : p * e->sizes[0] + n;
            double want = op_real(type, data[EVEN], p * e->columns + n / 2);
            double size = 1;
            if (n % 2 == 1) {
                want = e->bare ? 0 : op_real(type, data[BIAS], n / 2);
                for (int64_t k = 0; k < e->channels; k++) {
                    const double part =
                        pixel[k] * op_real(type, data[MATRIX], k * e->columns + n / 2);
                    want += part;
                    size += fabs(part);
                }
                want = want > 0 ? want : 0;
            }
            op_check_close(op_real(type, out, at) / size, want / size, 4 * op_precision(type),
                           "shuffled", p * 2 * e->columns + n);
        }
    }
    free(pixel);
}

static void check(mp_device *device, mp_dtype type, const end *e) {
    const int64_t rows = out_of(e->height, e->strides[0], e->pads[0], e->pads[2]);
    const int64_t width = out_of(e->width, e->strides[1], e->pads[1], e->pads[3]);
    const int64_t pixels = e->images * rows * width;
    const int64_t counts[INPUTS] = {pixels * e->columns,
                                    e->images * e->height * e->width * e->channels,
                                    ROWS * e->channels, e->channels * e->columns, e->columns};
    const mp_attr attrs[] = {
        {.name = "strides", .kind = MP_ATTR_INTS, .ints = e->strides, .count = 2},
        {.name = "pads", .kind = MP_ATTR_INTS, .ints = e->pads, .count = 4},
        {.name = "sizes", .kind = MP_ATTR_INTS, .ints = e->sizes, .count = 2},
    };
    const bool one = e->sizes[1] == 0;
    void *data[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
        data[i] = op_numbers(type, (uint64_t)i + 1, counts[i]);
    }
    op_case c = {.domain = MP_OWN_NHWC_DOMAIN,
                 .name = "ShuffleEnd",
                 .version = 1,
                 .attrs = attrs,
                 .attr_count = one ? 2 : 3,
                 .align = e->loose ? 1 : 16,
                 .skew = e->loose ? (uint32_t)mp_dtype_size(type) : 0,
                 .constant = e->bare ? 0 : 0x1c,
                 .in = {OP_TENSOR(type, data[EVEN], e->images, rows, width, e->columns),
                        OP_TENSOR(type, data[X], e->images, e->height, e->width, e->channels),
                        OP_TENSOR(type, data[TAPS], ROWS, e->channels),
                        OP_TENSOR(type, data[MATRIX], e->channels, e->columns),
                        OP_TENSOR(type, data[BIAS], e->columns)},
                 .in_count = INPUTS,
                 .out_count = one ? 1 : 2};
    if (e->bare) {
        c.in[BIAS].type = MP_NONE;
    }
    op_run(device, &c);
    compare(e, type, data, &c, rows, width);
    op_close(device, &c);
    for (int i = 0; i < INPUTS; i++) {
        free(data[i]);
    }
}

#define OF(images_, height_, width_, channels_, columns_)                                 \
    .images = (images_), .height = (height_), .width = (width_), .channels = (channels_), \
    .columns = (columns_)

DEVICE_TEST(shuffle_end) {
    static const mp_dtype types[] = {MP_F32, MP_F16, MP_BF16};
    static const end list[] = {
        {OF(1, 6, 7, 8, 8), .strides = {1, 1}, .pads = {1, 1, 1, 1}, .sizes = {8, 8}},
        {OF(2, 3, 5, 58, 58), .strides = {1, 1}, .pads = {1, 1, 1, 1}, .sizes = {58, 58}},
        {OF(1, 5, 6, 24, 116), .strides = {2, 2}, .pads = {1, 1, 1, 1}, .sizes = {116, 116}},
        {OF(1, 2, 3, 232, 232), .strides = {1, 1}, .pads = {1, 1, 1, 1}, .sizes = {464, 0}},
        {OF(3, 3, 4, 2, 2), .strides = {1, 2}, .pads = {0, 1, 1, 0}, .sizes = {2, 2}, .bare = true},
        {OF(1, 4, 3, 6, 10), .strides = {1, 1}, .pads = {2, 0, 0, 2}, .sizes = {4, 16}},
        {OF(1, 5, 5, 12, 20), .strides = {1, 1}, .pads = {1, 1, 1, 1}, .sizes = {20, 20},
         .loose = true},
    };
    for (size_t t = 0; t < MP_COUNT_OF(types); t++) {
        for (size_t i = 0; i < MP_COUNT_OF(list); i++) {
            check(device, types[t], &list[i]);
        }
    }
}
