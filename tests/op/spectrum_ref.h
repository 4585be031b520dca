/* spectrum_ref.h - sums of terms in double, and how far from them a spectrum may be.
 *
 * An element of a transform is a sum of n rounded terms, so its error is a share of the row's norm.
 * 2e-6 is some five times what is seen in float, and 1e-6 is asked of all elements together; in
 * double the reference itself errs, too, by the square root of n roundings.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_OP_SPECTRUM_REF_H
#define MP_TESTS_OP_SPECTRUM_REF_H

#include "op/op_value.h"

typedef struct complex_number {
    double re, im;
} complex_number;

/* Gives: the n-th roots of one (free them). */
complex_number *ref_roots(int64_t n);

/* Adds value * exp(-2 pi i t k / n), whose root is that of t k / n; inverse: the other way round.
 */
void ref_add(complex_number *sum, complex_number value, complex_number root, bool inverse);

double ref_norm(complex_number value); /* squared */

/* Compares element `at`, of `parts` numbers, of a result; adds to the squares of error and wanted.
 */
void ref_check(const op_tensor *out, int64_t at, int64_t parts, complex_number want, double norm,
               double squares[2]);

/* All elements together. */
void ref_check_squares(mp_dtype type, const double squares[2]);

#endif
