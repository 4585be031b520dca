/* table_rows.cu - rows of several tables side by side. An index that is out of range, which only a
 * broken model has, reads the nearest row: it must not read foreign memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/indexed_args.h"

K_KERNEL(mp_table_rows_args, args) {
    T *__restrict__ out = (T *)args.out;
    K_GRID_LOOP(i, args.count) {
        const int64_t row = args.wide ? i / args.inner : k_divide((uint32_t)i, args.by_inner);
        const int64_t list =
            args.wide ? row / args.tables : k_divide((uint32_t)row, args.by_tables);
        const int64_t at = i - row * args.inner, number = row - list * args.tables;
        const k_table *t = &args.table[number];
        int64_t index = ((const U *)t->indices)[list * t->step + t->column];
        index = index < 0 ? index + t->rows : index;
        index = index < 0 ? 0 : index >= t->rows ? t->rows - 1 : index;
        out[list * args.pitch + args.first + number * args.inner + at] =
            ((const T *)t->x)[index * args.inner + at];
    }
}
