/* spectrum_steps.c - chooses how a Fourier transform is done.
 *
 * A power of two that fits into shared memory: fft.cu. Other lengths whose matrix is small: a
 * product with that matrix, which is made first. The rest: dft_sum.cu, whose time grows with the
 * square of the length but which needs no memory. All share a table of the n-th roots of one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/spectrum_steps.h"
#include "op/movement.h"

enum {
    FFT_BITS_MAX = 13,
    GROUP_BITS_MAX = 6,
    GROUP_BYTES_MAX = 64 << 10, /* so that a multiprocessor holds several blocks */
    GROUP_POINTS = 1024,        /* enough for a block of 256 lanes */
    ACROSS_BITS = 3,            /* rows that lie side by side: 8 make whole sectors of memory */
    MATRIX_LENGTH_MAX = 4096,   /* so that its size cannot overflow */
    MATRIX_BYTES_MAX = 32 << 20 /* it is made anew in each run */
};

static mp_status plan_turns(mp_planner *p, const mp_spectrum *s, mp_ref *turns) {
    const mp_turns_args args = {.n = s->args.n};
    const mp_kernel *kernel = NULL;
    const mp_shape shape = {.rank = 2, .dim = {args.n, 2}};
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&shape, s->type, &bytes));
    MP_TRY(mp_plan_scratch(p, bytes, turns));
    MP_TRY(mp_plan_kernel(p, &kernel, "turns_%s", mp_dtype_word(s->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.n, 1), args,
                     MP_BIND(mp_turns_args, out, *turns));
}

/* ---- in shared memory ---- */

static size_t shared_bytes(const mp_spectrum *s, int bits) {
    return (size_t)4 * mp_dtype_size(s->type) << bits; /* two buffers of complex numbers */
}

/* The exponent of n, or -1 where fft.cu cannot. */
static int fft_bits(const mp_planner *p, const mp_spectrum *s) {
    int bits = 0;
    while (bits < FFT_BITS_MAX && (int64_t)1 << bits < s->args.n) {
        bits++;
    }
    return (int64_t)1 << bits == s->args.n &&
                   shared_bytes(s, bits) <= p->device->info.shared_bytes_max
               ? bits
               : -1;
}

static int group_bits(const mp_planner *p, const mp_spectrum *s, int n_bits) {
    const bool across = s->args.from.step > 1 || s->args.to.step > 1;
    const size_t most = p->device->info.shared_bytes_max;
    const size_t room = most < GROUP_BYTES_MAX ? most : GROUP_BYTES_MAX;
    int bits = 0;
    while (bits < GROUP_BITS_MAX && (int64_t)1 << bits < s->args.rows &&
           shared_bytes(s, n_bits + bits + 1) <= room &&
           (1 << (n_bits + bits) < GROUP_POINTS || (across && bits < ACROSS_BITS))) {
        bits++;
    }
    return bits;
}

static mp_status plan_fft(mp_planner *p, const mp_spectrum *s, mp_ref turns, int n_bits) {
    enum { LANES_MIN = 32, LANES_MAX = 256, POINTS_OF_A_LANE = 4 };
    mp_spectrum_args args = s->args;
    const mp_kernel *kernel = NULL;
    args.n_bits = n_bits;
    args.group_bits = group_bits(p, s, n_bits);
    const int bits = n_bits + args.group_bits;
    const int64_t groups = ((args.rows - 1) >> args.group_bits) + 1;
    uint32_t lanes = LANES_MIN;
    while (lanes < LANES_MAX && lanes * POINTS_OF_A_LANE < 1u << bits) {
        lanes *= 2;
    }
    mp_grid grid = mp_plan_grid_rows(p, groups, lanes);
    grid.shared_bytes = (uint32_t)shared_bytes(s, bits);
    MP_TRY(mp_plan_kernel(p, &kernel, "fft_%s", mp_dtype_word(s->type)));
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_spectrum_args, x, s->x),
                     MP_BIND(mp_spectrum_args, window, s->window),
                     MP_BIND(mp_spectrum_args, turns, turns),
                     MP_BIND(mp_spectrum_args, out, s->out));
}

/* ---- by a matrix ---- */

static int64_t x_width(const mp_spectrum *s) {
    return s->args.have * s->args.from.parts;
}
static int64_t out_width(const mp_spectrum *s) {
    return s->args.made * s->args.to.parts;
}

static bool matrix_is_small(const mp_spectrum *s) {
    return s->args.have > 0 && s->args.n <= MATRIX_LENGTH_MAX &&
           x_width(s) * out_width(s) <= MATRIX_BYTES_MAX / (int64_t)mp_dtype_size(s->type);
}

static mp_status plan_matrix(mp_planner *p, const mp_spectrum *s, mp_ref turns, mp_ref *out) {
    const mp_dft_matrix_args args = {.n = s->args.n,
                                     .have = s->args.have,
                                     .made = s->args.made,
                                     .x_parts = s->args.from.parts,
                                     .out_parts = s->args.to.parts,
                                     .inverse = s->args.inverse,
                                     .hermitian = s->args.hermitian};
    const int64_t count = x_width(s) * out_width(s);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_scratch_of(p, count, s->type, out));
    MP_TRY(mp_plan_kernel(p, &kernel, "dft_matrix_%s", mp_dtype_word(s->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, count, 1), args, MP_BIND(mp_dft_matrix_args, window, s->window),
        MP_BIND(mp_dft_matrix_args, turns, turns), MP_BIND(mp_dft_matrix_args, out, *out));
}

/* Between the rows of one side and a dense matrix of them. */
static mp_status move_rows(mp_planner *p, const mp_spectrum *s, const mp_spectrum_side *side,
                           int64_t length, mp_ref place, mp_ref dense, bool gather) {
    const mp_spectrum_args *a = &s->args;
    const mp_shape shape = {.rank = 4,
                            .dim = {a->rows / a->minor_rows, a->minor_rows, length, side->parts}};
    const mp_strided apart = {.ref = place,
                              .stride = {side->major * side->parts, side->minor * side->parts,
                                         side->step * side->parts, 1}};
    mp_strided together = {.ref = dense};
    mp_shape_strides(&shape, together.stride);
    return mp_plan_strided_copy(p, &shape, mp_dtype_size(s->type), gather ? &apart : &together,
                                gather ? &together : &apart);
}

static mp_status dense_scratch(mp_planner *p, const mp_spectrum *s, int64_t width, mp_ref *out) {
    const mp_shape shape = {.rank = 2, .dim = {s->args.rows, width}};
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&shape, s->type, &bytes));
    return mp_plan_scratch(p, bytes, out);
}

static mp_status plan_product(mp_planner *p, const mp_spectrum *s, mp_ref turns) {
    const mp_spectrum_args *a = &s->args;
    const bool x_dense = a->minor_rows == 1 && a->from.step == 1;
    const bool out_dense = a->to.step == 1;
    mp_ref x = s->x, matrix = MP_NOWHERE, out = s->out;
    MP_TRY(plan_matrix(p, s, turns, &matrix));
    if (!x_dense) {
        MP_TRY(dense_scratch(p, s, x_width(s), &x));
        MP_TRY(move_rows(p, s, &a->from, a->have, s->x, x, true));
    }
    if (!out_dense) {
        MP_TRY(dense_scratch(p, s, out_width(s), &out));
    }
    const mp_gemm gemm = {.type = s->type,
                          .m = a->rows,
                          .n = out_width(s),
                          .k = x_width(s),
                          .lda = x_dense ? a->from.major * a->from.parts : x_width(s),
                          .ldb = out_width(s),
                          .ldc = out_width(s),
                          .batch = 1,
                          .alpha = 1,
                          .align = p->align};
    const mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = x, [MP_GEMM_B] = matrix, [MP_GEMM_C] = out};
    MP_TRY(mp_plan_gemm(p, &gemm, operands));
    return out_dense ? MP_OK : move_rows(p, s, &a->to, a->made, s->out, out, false);
}

/* ---- term by term ---- */

static mp_status plan_sum(mp_planner *p, const mp_spectrum *s, mp_ref turns) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "dft_sum_%s", mp_dtype_word(s->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, s->args.rows * s->args.made, 1), s->args,
        MP_BIND(mp_spectrum_args, x, s->x), MP_BIND(mp_spectrum_args, window, s->window),
        MP_BIND(mp_spectrum_args, turns, turns), MP_BIND(mp_spectrum_args, out, s->out));
}

mp_status mp_plan_spectrum(mp_planner *p, const mp_spectrum *s) {
    const int bits = fft_bits(p, s);
    mp_ref turns = MP_NOWHERE;
    MP_TRY(plan_turns(p, s, &turns));
    if (bits >= 0) {
        return plan_fft(p, s, turns, bits);
    }
    return matrix_is_small(s) ? plan_product(p, s, turns) : plan_sum(p, s, turns);
}
