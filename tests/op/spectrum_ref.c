/* spectrum_ref.c - sums of terms in double.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/spectrum_ref.h"

#include <math.h>
#include <stdlib.h>

complex_number *ref_roots(int64_t n) {
    complex_number *roots = calloc((size_t)n, sizeof *roots);
    CHECK(roots != NULL);
    for (int64_t k = 0; k < n; k++) {
        const double turn = 2 * 3.14159265358979323846 * (double)k / (double)n;
        roots[k] = (complex_number){cos(turn), sin(turn)};
    }
    return roots;
}

void ref_add(complex_number *sum, complex_number value, complex_number root, bool inverse) {
    const double sine = inverse ? root.im : -root.im;
    sum->re += value.re * root.re - value.im * sine;
    sum->im += value.re * sine + value.im * root.re;
}

double ref_norm(complex_number value) {
    return value.re * value.re + value.im * value.im;
}

static double share_of(mp_dtype type) {
    return type == MP_F64 ? 5e-14 : 2e-6;
}

void ref_check(const op_tensor *out, int64_t at, int64_t parts, complex_number want, double norm,
               double squares[2]) {
    complex_number got = {op_real(out->type, out->data, at * parts), 0};
    if (parts == 2) {
        got.im = op_real(out->type, out->data, at * parts + 1);
    }
    const complex_number wrong = {got.re - want.re, parts == 2 ? got.im - want.im : 0};
    const double rounded = out->type == MP_F32 || out->type == MP_F64 ? 0 : op_precision(out->type);
    const double bound = share_of(out->type) * norm + rounded * sqrt(ref_norm(want)) + 1e-300;
    if (!(sqrt(ref_norm(wrong)) <= bound)) {
        test_fail(__FILE__, __LINE__, "element %lld is %.9g %+.9gi, not %.9g %+.9gi", (long long)at,
                  got.re, got.im, want.re, want.im);
    }
    squares[0] += ref_norm(wrong);
    squares[1] += ref_norm(want);
}

void ref_check_squares(mp_dtype type, const double squares[2]) {
    if (type == MP_F32) {
        CHECK(sqrt(squares[0]) <= 1e-6 * sqrt(squares[1]) + 1e-300);
    }
}
