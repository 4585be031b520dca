/* integer_rows.cpp - tiles of products of bytes by tensor cores: tails of rows, columns and k, more
 * stages than a ring has, tiles that come in turn, windows with padding, and what becomes of sums.
 * SPDX-License-Identifier: Apache-2.0 */
#include "matrix.h"

#include "lanes.h"

#include "kernel/quantize/integer_rows.cu"

#include "divider.h"

namespace {

struct Subject {
    int32_t images, in[2], channels, columns, kernel[2], stride, pad;
    unsigned blocks;
    int32_t kind;
    bool is_unsigned, is_constant, has_other;
};

struct Problem {
    const Subject *s;
    int32_t out[2];
    int64_t rows, k;
    uint8_t *x;
    int8_t *w;
    int32_t *add;
    float *scale;
    uint8_t *other;
};

constexpr int32_t PADDING = 203;

int32_t seen(const Problem *p, int64_t row, int64_t k) {
    const Subject *s = p->s;
    const int64_t pixel = k / s->channels, places = p->out[0] * p->out[1], place = row % places;
    const int64_t y = place / p->out[1] * s->stride - s->pad + pixel / s->kernel[1];
    const int64_t x = place % p->out[1] * s->stride - s->pad + pixel % s->kernel[1];
    const bool inside = y >= 0 && y < s->in[0] && x >= 0 && x < s->in[1];
    const int64_t at =
        ((row / places * s->in[0] + y) * s->in[1] + x) * s->channels + k % s->channels;
    const uint8_t byte = inside ? p->x[at] : (uint8_t)PADDING;
    return s->is_unsigned ? (int32_t)byte : (int8_t)byte;
}

/* What has to be there; `out` is the place of the result. */
double wanted(const Problem *p, int64_t row, int64_t column) {
    int32_t sum = p->add[column];
    for (int64_t k = 0; k < p->k; k++) {
        sum += seen(p, row, k) * p->w[column * p->k + k];
    }
    if (p->s->kind == K_INTEGER_ROWS_I32) {
        return sum;
    }
    const double value = (double)((float)sum * p->scale[column]);
    if (p->s->kind == K_INTEGER_ROWS_F32) {
        return value;
    }
    const double alone = fmin(fmax(nearbyint(value), -128), 127);
    const double both = alone + p->other[row * p->s->columns + column] - 100.0;
    return (p->s->has_other ? fmin(fmax(nearbyint(both / 2), -30), 120)
                            : fmin(fmax(alone, -30), 120)) +
           7;
}

mp_integer_rows_args args_of(const Problem *p, void *out) {
    const Subject *s = p->s;
    mp_integer_rows_args args = {};
    k_byte_window *w = &args.window;
    args.x = p->x;
    args.w = p->w;
    args.add = p->add;
    args.scale = p->scale;
    args.other = s->has_other ? p->other : nullptr;
    args.out = out;
    args.rows = p->rows;
    args.columns = s->columns;
    args.k = p->k;
    args.tiles_across = (uint32_t)((s->columns + K_COLUMNS - 1) / K_COLUMNS);
    args.tiles = (uint32_t)((p->rows + K_ROWS - 1) / K_ROWS) * args.tiles_across;
    args.by_across = divider(args.tiles_across);
    args.kind = s->kind;
    args.scale_step = 1;
    args.constant = s->is_constant;
    args.is_unsigned = s->is_unsigned;
    args.padding = PADDING * 0x01010101u;
    args.range = {-30, 120, 7};
    args.has_sum = s->has_other;
    args.both = {{-128, 127, 0}, 1, 1, 0x1p23F + 100, 0, 2, 0.5F};
    for (int d = 0; d < 2; d++) {
        w->in[d] = s->in[d];
        w->kernel[d] = s->kernel[d];
        w->stride[d] = s->stride;
        w->dilation[d] = 1;
        w->pad[d] = s->pad;
    }
    w->out[0] = p->out[0] * p->out[1];
    w->out[1] = p->out[1];
    w->channels = s->channels;
    w->by_channels = divider((uint32_t)s->channels);
    w->by_kernel = divider((uint32_t)s->kernel[1]);
    w->by_out[0] = divider((uint32_t)w->out[0]);
    w->by_out[1] = divider((uint32_t)w->out[1]);
    w->image = (int64_t)s->in[0] * s->in[1] * s->channels;
    return args;
}

void check_product(const Subject *s) {
    Problem p = {};
    p.s = s;
    for (int d = 0; d < 2; d++) {
        p.out[d] = (s->in[d] + 2 * s->pad - s->kernel[d]) / s->stride + 1;
    }
    p.rows = (int64_t)s->images * p.out[0] * p.out[1];
    p.k = (int64_t)s->kernel[0] * s->kernel[1] * s->channels;
    const int64_t count = p.rows * s->columns, size = s->kind == K_INTEGER_ROWS_BYTE ? 1 : 4;
    Buffer<uint8_t> x((size_t)(s->images * s->in[0] * s->in[1] * s->channels)),
        other((size_t)count), out((size_t)(count * size));
    Buffer<int8_t> w((size_t)(s->columns * p.k));
    Buffer<int32_t> add((size_t)s->columns);
    Buffer<float> scale((size_t)s->columns);
    const auto byte = [] { return (uint8_t)next_random(); };
    fill_with(x, (int64_t)s->images * s->in[0] * s->in[1] * s->channels, byte);
    fill_with(other, count, byte);
    fill_with(w, s->columns * p.k, [] { return (int8_t)next_random(); });
    fill_with(add, s->columns, [] { return (int32_t)(next_random() % 2000) - 1000; });
    fill_with(scale, s->columns, [] { return 0x1p-10F; }); /* exact in both */
    p.x = x.data();
    p.w = w.data();
    p.add = add.data();
    p.scale = scale.data();
    p.other = other.data();
    const mp_integer_rows_args args = args_of(&p, out.data());
    run_blocks(s->blocks, R_LANES, [&] { K_NAME(args); });
    for (int64_t i = 0; i < count; i++) {
        const double want = wanted(&p, i / s->columns, i % s->columns);
        const double got = s->kind == K_INTEGER_ROWS_I32   ? ((int32_t *)(void *)out.data())[i]
                           : s->kind == K_INTEGER_ROWS_F32 ? ((float *)(void *)out.data())[i]
                                                           : (int8_t)out[(size_t)i];
        check(got == want, "a result", i);
    }
}

} // namespace

void run_tests() {
    static const Subject subjects[] = {
        {K_ROWS + 3,
         {1, 1},
         2 * K_PIECE,
         9,
         {1, 1},
         1,
         0,
         2,
         K_INTEGER_ROWS_I32,
         true,
         true,
         false},
        {5,
         {1, 1},
         64 * (K_SPLIT * 5 - 2) + K_PIECE,
         K_COLUMNS,
         {1, 1},
         1,
         0,
         1,
         K_INTEGER_ROWS_F32,
         false,
         false,
         false},
        {1,
         {6, 5},
         K_PIECE,
         K_COLUMNS + 16,
         {3, 3},
         1,
         1,
         1,
         K_INTEGER_ROWS_BYTE,
         true,
         true,
         true},
        {2, {7, 4}, 3 * K_PIECE, 18, {3, 2}, 2, 1, 1, K_INTEGER_ROWS_BYTE, false, true, true},
        {1, {3, 4}, 2 * K_PIECE, 30, {1, 1}, 1, 0, 1, K_INTEGER_ROWS_BYTE, true, false, false},
    };
    for (const Subject &each : subjects) {
        check_product(&each);
    }
}
