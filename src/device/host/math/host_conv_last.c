/* host_conv_last.c - convolutions with channels last, on the CPU: x and w are reordered to channels
 * first, and y is reordered back. The workspace is [x][w][y][what the convolution itself needs].
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/math/host_conv.h"

#include "base/worker.h"

#include <string.h>

/* [outer][channels][points] and [outer][points][channels]. */
typedef struct reordering {
    int64_t outer, channels, points;
    size_t size; /* of an element */
    bool to_last;
    const char *from;
    char *to;
} reordering;

static void move_element(char *to, const char *from, size_t size) {
    switch (size) { /* constants, so that the compiler moves a register */
    case 2:
        memcpy(to, from, 2);
        return;
    case 4:
        memcpy(to, from, 4);
        return;
    default:
        memcpy(to, from, size);
        return;
    }
}

/* Row `i` of what is written: a point's channels, or a channel's points. */
static void reorder_rows(void *context, size_t begin, size_t end) {
    const reordering *t = context;
    const int64_t rows = t->to_last ? t->points : t->channels;
    const int64_t columns = t->to_last ? t->channels : t->points;
    for (size_t i = begin; i < end; i++) {
        const int64_t outer = (int64_t)i / rows, row = (int64_t)i % rows;
        const char *from = t->from + (size_t)(outer * rows * columns + row) * t->size;
        char *to = t->to + i * (size_t)columns * t->size;
        for (int64_t j = 0; j < columns; j++) {
            move_element(to + (size_t)j * t->size, from + (size_t)(j * rows) * t->size, t->size);
        }
    }
}

static void reorder(reordering t) {
    const int64_t rows = t.to_last ? t.points : t.channels;
    mp_worker_run((size_t)(t.outer * rows), 64, reorder_rows, &t);
}

typedef struct parts {
    reordering x, w, y;
    size_t x_size, w_size, y_size; /* rounded up */
} parts;

static size_t part_size(const reordering *t) {
    const size_t size = (size_t)(t->outer * t->channels * t->points) * t->size;
    return MP_ALIGN_UP(size, MP_ALIGNMENT);
}

static parts parts_of(const mp_conv *conv) {
    const conv_shape s = mp__host_conv_shape(conv);
    const int64_t w_outer = conv->transposed ? conv->in_channels : conv->out_channels;
    const int64_t w_inner = conv->transposed ? s.group_out : s.group_in;
    const size_t size = s.real->size;
    parts p = {
        .x = {conv->batch, conv->in_channels, s.in_points, size, false, NULL, NULL},
        .w = {w_outer, w_inner, s.taps, size, false, NULL, NULL},
        .y = {conv->batch, conv->out_channels, s.out_points, size, true, NULL, NULL},
    };
    p.x_size = part_size(&p.x);
    p.w_size = part_size(&p.w);
    p.y_size = part_size(&p.y);
    return p;
}

size_t mp__host_conv_last_size(const mp_conv *conv) {
    const parts p = parts_of(conv);
    return p.x_size + p.w_size + p.y_size;
}

void mp__host_conv_last_begin(const mp_conv *conv, const mp_addr *operands, mp_addr workspace,
                              mp_addr *own) {
    parts p = parts_of(conv);
    memcpy(own, operands, MP_CONV_OPERANDS * sizeof *own);
    own[MP_CONV_X] = workspace;
    own[MP_CONV_W] = workspace + p.x_size;
    own[MP_CONV_Y] = workspace + p.x_size + p.w_size;
    p.x.from = (const char *)operands[MP_CONV_X];
    p.x.to = (char *)own[MP_CONV_X];
    p.w.from = (const char *)operands[MP_CONV_W];
    p.w.to = (char *)own[MP_CONV_W];
    reorder(p.x);
    reorder(p.w);
}

void mp__host_conv_last_end(const mp_conv *conv, const mp_addr *own, const mp_addr *operands) {
    parts p = parts_of(conv);
    p.y.from = (const char *)own[MP_CONV_Y];
    p.y.to = (char *)operands[MP_CONV_Y];
    reorder(p.y);
}
