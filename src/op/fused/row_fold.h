/* row_fold.h - loops over rows in memory, as the emulated device reduces and repeats them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_ROW_FOLD_H
#define MP_OP_ROW_FOLD_H

#include "op/fused/expression.h"

/* What nothing reduces to. A mean is a sum here. */
double mp_row_fold_none(mp_reduction reduction);

/* Reduces `rows` rows of `columns` neighbours each, of float, or of double where `is_wide`. */
void mp_row_fold(mp_reduction reduction, bool is_wide, const void *x, int64_t rows, int64_t columns,
                 double *out);

/* Of two results. */
double mp_row_fold_both(mp_reduction reduction, double a, double b);

/* `columns` elements for each of `rows` rows, all of a row as the one that `from` has for it.
 * `size` is 1, 2, 4 or 8. */
void mp_row_spread(void *to, const void *from, size_t size, int64_t rows, int64_t columns);

#endif
