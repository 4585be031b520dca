/* integer_plain.h - what integer_product.cu does, on the emulated device.
 *
 * Some columns of B lie as lines of 16-bit integers in shared memory, some of k at a time, and meet
 * every row of A, which is widened for them: sums of products of two such lines are what
 * processors do many of at once. B, which is costly to find where it is windows over an image, so
 * is found once for up to ROWS rows.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INTEGER_PLAIN_H
#define MP_KERNEL_INTEGER_PLAIN_H

#include "kernel/quantize/integer.h"

enum {
    COLUMNS = K_INTEGER_PLAIN_COLUMNS,
    ROWS = K_INTEGER_PLAIN_ROWS,
    DEPTH = K_INTEGER_PLAIN_DEPTH,
    PITCH = K_INTEGER_PLAIN_PITCH,
    /* Rows and columns that are multiplied at a time; of nothing some, whose sums go nowhere. */
    HIGH = K_INTEGER_PLAIN_HIGH,
    WIDE = 4,
    STEP = 16, /* lines are multiples of it, zeros at their ends */
};

typedef struct unit {
    int16_t *a, *b;          /* lines PITCH apart: HIGH, COLUMNS */
    uint32_t *sum;           /* [ROWS][COLUMNS] */
    uint32_t *a_sum, *b_sum; /* ROWS, COLUMNS */
    int32_t *corner, *run; /* of the windows that the columns see; columns from one on in a line */
    const uint8_t *from_a, *from_b;
    int64_t row, column; /* of the first of each */
    int32_t rows, columns;
    int64_t at[2]; /* which matrix of A, of B */
    int16_t padding;
} unit;

K_FN int16_t plain_byte(const k_integer_side *side, uint8_t byte) {
    return (int8_t)(byte ^ side->flip);
}

K_FN int32_t plain_least(int64_t left, int32_t most) {
    return left < most ? (int32_t)left : most;
}

/* ---- lines ---- */

/* Row r of the unit, `count` elements from `first` on. */
K_FN void plain_a(const mp_integer_args *args, const unit *u, int32_t r, int64_t first,
                  int32_t count, int16_t *to) {
    const uint8_t *from = u->from_a + (u->row + r) * args->k + first;
    int32_t total = 0;
    for (int32_t k = 0; k < count; k++) {
        to[k] = plain_byte(&args->side[0], from[k]);
    }
    for (int32_t k = 0; k < count; k++) {
        total += to[k];
    }
    for (int32_t k = count; k % STEP != 0; k++) {
        to[k] = 0;
    }
    u->a_sum[r] += (uint32_t)total;
}

/* Columns c to c + count see the same place of their windows in elements `step` apart. */
K_FN void plain_put(const k_integer_side *side, const uint8_t *from, int64_t step, int32_t count,
                    int16_t *to, uint32_t *total) {
    for (int32_t c = 0; c < count; c++) {
        const int16_t value = plain_byte(side, from[c * step]);
        to[c * PITCH] = value;
        total[c] += (uint32_t)value;
    }
}

#if K_CONV

K_FN void plain_find(const mp_integer_args *args, const unit *u) {
    const k_integer_window *w = &args->window;
    for (int32_t c = u->columns - 1; c >= 0; c--) {
        int32_t corner[3];
        i_corner(w, u->column + c, corner);
        for (int d = 0; d < 3; d++) {
            u->corner[d * COLUMNS + c] = corner[d];
        }
        const int32_t line_ends = corner[2] + w->pad[2] == (w->out[2] - 1) * w->stride[2];
        u->run[c] = line_ends || c + 1 == u->columns ? 1 : u->run[c + 1] + 1;
    }
}

K_FN void plain_pad(const unit *u, int32_t from, int32_t to, int16_t *line) {
    for (int32_t c = from; c < to; c++) {
        line[c * PITCH] = u->padding;
        u->b_sum[c] += (uint32_t)u->padding;
    }
}

/* Columns of a line, from `c` on: those in the middle see the image, others what is around it. */
K_FN void plain_line(const mp_integer_args *args, const unit *u, const uint8_t *plane,
                     const int32_t *place, int32_t c, int16_t *to) {
    const k_integer_window *w = &args->window;
    const int32_t end = c + u->run[c], stride = w->stride[2];
    const int32_t z = u->corner[c] + place[0], y = u->corner[COLUMNS + c] + place[1];
    const int32_t x = u->corner[2 * COLUMNS + c] + place[2];
    const int32_t inside = (uint32_t)z < (uint32_t)w->in[0] && (uint32_t)y < (uint32_t)w->in[1];
    const int32_t before = x >= 0 ? 0 : (int32_t)((-(int64_t)x + stride - 1) / stride);
    const int32_t behind =
        w->in[2] <= x ? 0 : (int32_t)(((int64_t)w->in[2] - x + stride - 1) / stride);
    const int32_t from = !inside || before > end - c ? end : c + before;
    const int32_t last = !inside || behind > end - c ? end : c + behind;
    plain_pad(u, c, from, to);
    if (from < last) {
        const int64_t line = ((int64_t)z * w->in[1] + y) * w->in[2];
        plain_put(&args->side[1], plane + line + x + (int64_t)(from - c) * stride, stride,
                  last - from, to + from * PITCH, u->b_sum + from);
    }
    plain_pad(u, last > from ? last : from, end, to);
}

K_FN void plain_row(const mp_integer_args *args, const unit *u, int64_t k, int16_t *to) {
    int32_t place[3];
    const int64_t channel = i_place(&args->window, k, place);
    const uint8_t *plane = u->from_b + channel * args->window.channel;
    for (int32_t c = 0; c < u->columns; c += u->run[c]) {
        plain_line(args, u, plane, place, c, to);
    }
}

#else

K_FN void plain_find(const mp_integer_args *args, const unit *u) {
    (void)args;
    (void)u;
}

K_FN void plain_row(const mp_integer_args *args, const unit *u, int64_t k, int16_t *to) {
    plain_put(&args->side[1], u->from_b + k * args->n + u->column, 1, u->columns, to, u->b_sum);
}

#endif

/* All columns, `count` elements from `first` on. */
K_FN void plain_b(const mp_integer_args *args, const unit *u, int64_t first, int32_t count) {
    for (int32_t k = 0; k < count; k++) {
        plain_row(args, u, first + k, u->b + k);
    }
    for (int32_t c = 0; c < u->columns; c++) {
        for (int32_t k = count; k % STEP != 0; k++) {
            u->b[c * PITCH + k] = 0;
        }
    }
}

/* ---- products ---- */

/* Adds the products of two lines with four, `count` of each; pointers of their own, since with one
 * and an index that may wrap compilers do not see lines. */
K_FN void plain_multiply(const int16_t *a, const int16_t *b, int32_t count, uint32_t *sum) {
    const int16_t *a1 = a + PITCH, *b1 = b + PITCH, *b2 = b1 + PITCH, *b3 = b2 + PITCH;
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0;
    for (int32_t k = 0; k < count; k++) {
        s0 += a[k] * b[k];
        s1 += a[k] * b1[k];
        s2 += a[k] * b2[k];
        s3 += a[k] * b3[k];
        t0 += a1[k] * b[k];
        t1 += a1[k] * b1[k];
        t2 += a1[k] * b2[k];
        t3 += a1[k] * b3[k];
    }
    sum[0] += (uint32_t)s0;
    sum[1] += (uint32_t)s1;
    sum[2] += (uint32_t)s2;
    sum[3] += (uint32_t)s3;
    sum[COLUMNS] += (uint32_t)t0;
    sum[COLUMNS + 1] += (uint32_t)t1;
    sum[COLUMNS + 2] += (uint32_t)t2;
    sum[COLUMNS + 3] += (uint32_t)t3;
}

K_FN void plain_sum(const mp_integer_args *args, const unit *u) {
    for (int64_t first = 0; first < args->k; first += DEPTH) {
        const int32_t count = plain_least(args->k - first, DEPTH);
        plain_b(args, u, first, count);
        for (int32_t r = 0; r < u->rows; r += HIGH) {
            for (int32_t h = 0; h < HIGH && r + h < u->rows; h++) {
                plain_a(args, u, r + h, first, count, u->a + h * PITCH);
            }
            for (int32_t c = 0; c < u->columns; c += WIDE) {
                plain_multiply(u->a, u->b + c * PITCH, (count + STEP - 1) & -STEP,
                               u->sum + r * COLUMNS + c);
            }
        }
    }
}

/* Results, from which goes what zero points have added. */
K_FN void plain_store(const mp_integer_args *args, const unit *u, int64_t matrix) {
    for (int32_t r = 0; r < u->rows; r++) {
        const uint32_t a_zero = (uint32_t)i_zero(&args->side[0], u->at[0], u->row + r);
        const int64_t place = (matrix * args->m + u->row + r) * args->n + u->column;
        for (int32_t c = 0; c < u->columns; c++) {
            const uint32_t b_zero = (uint32_t)i_zero(&args->side[1], u->at[1], u->column + c);
            const uint32_t sum = u->sum[r * COLUMNS + c] + (uint32_t)args->k * a_zero * b_zero -
                                 a_zero * u->b_sum[c] - b_zero * u->a_sum[r];
            i_put(args, u->at, u->row + r, u->column + c, (int32_t)sum, place + c);
        }
    }
}

/* ---- units ---- */

K_FN unit plain_unit(uint32_t *shared) {
    unit u;
    u.sum = shared;
    u.a_sum = u.sum + ROWS * COLUMNS;
    u.b_sum = u.a_sum + ROWS;
    u.corner = (int32_t *)(u.b_sum + COLUMNS);
    u.run = u.corner + 3 * COLUMNS;
    u.b = (int16_t *)(void *)(u.run + COLUMNS);
    u.a = u.b + COLUMNS * PITCH;
    return u;
}

K_FN void plain_all(const mp_integer_args *args, uint32_t *shared) {
    const int64_t down = (args->m + ROWS - 1) / ROWS, across = (args->n + COLUMNS - 1) / COLUMNS;
    const int64_t matrices = args->tiles / args->tiles_down / args->tiles_across;
    unit u = plain_unit(shared);
    for (int64_t i = blockIdx.x; i < matrices * down * across; i += gridDim.x) {
        const int64_t rest = i / across, matrix = rest / down;
        u.column = i % across * COLUMNS;
        u.row = rest % down * ROWS;
        u.columns = plain_least(args->n - u.column, COLUMNS);
        u.rows = plain_least(args->m - u.row, ROWS);
        k_offsets(&args->batch, matrix, 2, u.at);
        u.from_a = (const uint8_t *)args->a + u.at[0] * args->m * args->k;
#if K_CONV
        u.from_b =
            (const uint8_t *)args->b + u.at[1] * args->window.channels * args->window.channel;
#else
        u.from_b = (const uint8_t *)args->b + u.at[1] * args->k * args->n;
#endif
        u.padding = (int16_t)i_zero(&args->side[1], u.at[1], 0);
        for (int32_t s = 0; s < ROWS * COLUMNS + ROWS + COLUMNS; s++) {
            u.sum[s] = 0; /* and the two behind it */
        }
        plain_find(args, &u);
        plain_sum(args, &u);
        plain_store(args, &u, matrix);
    }
}

#endif
