/* transpose.cu - moves elements whose neighbours lie along one dimension in the source and along
 * another in the target, so that both sides are read and written in runs.
 *
 * A tile is a number of squares, one for each lane. A lane reads the lines of its square,
 * transposes them in registers and leaves them in shared memory; behind the barrier it takes lines
 * that lie side by side in the target:
 *
 *     x, a row of squares:  a0 a1 | b0 b1      shared: line 0 of a, line 0 of b,   out: a0 a2 ..
 *                           a2 a3 | b2 b3              line 1 of a, line 1 of b         a1 a3 ..
 *
 * Lines of one number and one row of squares lie `pitch` apart, an odd number: neighbouring lanes
 * write to other banks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

enum { SIDE = K_SQUARE_SIDE(sizeof(T)) };

typedef struct K_ALIGN(SIDE * sizeof(T)) line {
    T at[SIDE];
} line;

typedef struct tile {
    const T *from;
    T *to;
    int64_t row_stride, column_stride;
    int32_t rows, columns; /* of what is left of the tensor, at most the tile's */
    uint32_t across, down; /* squares, as powers of two */
    uint32_t pitch;
    line *shared;
} tile;

/* Whether lines at `at` and each `stride` elements further can be moved at once. */
K_FN int are_aligned(const T *at, int64_t stride) {
    return (uint64_t)at % sizeof(line) == 0 && (uint64_t)stride % SIDE == 0;
}

K_FN line *line_of(const tile *t, uint32_t number, uint32_t x, uint32_t y) {
    return t->shared + ((number << t->across) + x) * t->pitch + y;
}

/* A square that is whole, from aligned lines. */
K_FN void read_lines(const tile *t, const T *from, uint32_t x, uint32_t y) {
    line in[SIDE];
    for (int j = 0; j < SIDE; j++) {
        in[j] = *(const line *)(from + j * t->row_stride);
    }
    for (int k = 0; k < SIDE; k++) {
        line transposed;
        for (int j = 0; j < SIDE; j++) {
            transposed.at[j] = in[j].at[k];
        }
        *line_of(t, (uint32_t)k, x, y) = transposed;
    }
}

/* Any other square. What lies beyond the tensor's last column is that column: nobody takes it. */
K_FN void read_elements(const tile *t, const T *from, int32_t rows, int32_t columns, uint32_t x,
                        uint32_t y) {
    K_ONE_COPY
    for (int32_t j = 0; j < SIDE && j < rows; j++) {
        T in[SIDE];
        for (int k = 0; k < SIDE; k++) {
            in[k] = from[k < columns ? k : columns - 1];
        }
        for (int k = 0; k < SIDE; k++) {
            line_of(t, (uint32_t)k, x, y)->at[j] = in[k];
        }
        from += t->row_stride;
    }
}

K_FN void read_tile(const tile *t) {
    const int aligned = are_aligned(t->from, t->row_stride);
    for (uint32_t i = threadIdx.x; i < 1u << (t->across + t->down); i += blockDim.x) {
        const uint32_t x = i & ((1u << t->across) - 1), y = i >> t->across;
        const int32_t rows = t->rows - (int32_t)y * SIDE;
        const int32_t columns = t->columns - (int32_t)x * SIDE;
        const T *from = t->from + y * SIDE * t->row_stride + x * SIDE;
        if (aligned && rows >= SIDE && columns >= SIDE) {
            read_lines(t, from, x, y);
        } else if (rows > 0 && columns > 0) {
            read_elements(t, from, rows, columns, x, y);
        }
    }
}

K_FN void write_line(const tile *t, T *to, uint32_t number, uint32_t x, uint32_t y) {
    *(line *)(to + number * t->column_stride) = *line_of(t, number, x, y);
}

K_FN void write_lines(const tile *t) {
    for (uint32_t i = threadIdx.x; i < 1u << (t->across + t->down); i += blockDim.x) {
        const uint32_t y = i & ((1u << t->down) - 1), x = i >> t->down;
        const int32_t lines = t->columns - (int32_t)x * SIDE;
        T *to = t->to + x * SIDE * t->column_stride + y * SIDE;
        if ((int32_t)y * SIDE >= t->rows) {
            continue;
        }
        if (lines >= SIDE) {
            for (uint32_t k = 0; k < SIDE; k++) {
                write_line(t, to, k, x, y);
            }
        } else {
            K_ONE_COPY
            for (int32_t k = 0; k < lines; k++) {
                write_line(t, to, (uint32_t)k, x, y);
            }
        }
    }
}

/* The same where rows of the target start anywhere: neighbouring lanes write neighbours, of which
 * shared memory has those of one column side by side. */
K_FN void write_elements(const tile *t) {
    const uint32_t length = SIDE << t->down;
    for (uint32_t i = threadIdx.x; i < length * (uint32_t)t->columns; i += blockDim.x) {
        const uint32_t column = i / SIDE >> t->down, row = i & (length - 1);
        if (row < (uint32_t)t->rows) {
            const T *from = line_of(t, column % SIDE, column / SIDE, 0)->at;
            t->to[column * t->column_stride + row] = from[row];
        }
    }
}

K_BLOCK_KERNEL(mp_transpose_args, args) {
    K_SHARED(line, shared);
    const int32_t rows = SIDE << args.down, columns = SIDE << args.across;
    for (uint32_t i = blockIdx.x; i < (uint32_t)args.count; i += gridDim.x) {
        int64_t at[4];
        k_offsets_narrow(&args.tiles, i, 4, at);
        const int64_t rows_left = args.rows - at[2], columns_left = args.columns - at[3];
        tile t;
        t.from = (const T *)args.x + at[0];
        t.to = (T *)args.out + at[1];
        t.row_stride = args.row_stride;
        t.column_stride = args.column_stride;
        t.rows = rows_left < rows ? (int32_t)rows_left : rows;
        t.columns = columns_left < columns ? (int32_t)columns_left : columns;
        t.across = (uint32_t)args.across;
        t.down = (uint32_t)args.down;
        t.pitch = (1u << args.down) | 1u;
        t.shared = shared;
        read_tile(&t);
        __syncthreads();
        if (are_aligned(t.to, t.column_stride) && t.rows % SIDE == 0) {
            write_lines(&t);
        } else {
            write_elements(&t);
        }
        __syncthreads();
    }
}
