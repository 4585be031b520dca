/* padding_rows.cu - rows between a batch with padding and a packed list. Every row of the result is
 * written, whatever the numbers say: one that has no source becomes 0. Only moves, so there is an
 * instance for each width.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/core/index.h"
#include "kernel/core/prelude.h"

/* The last entry that begins at `row` or before, by halves. */
K_FN int64_t p_entry(const mp_padding_args *args, int64_t row) {
    int64_t first = 0, end = args->batch;
    while (end - first > 1) {
        const int64_t middle = first + (end - first) / 2;
        if (args->starts[middle] <= row) {
            first = middle;
        } else {
            end = middle;
        }
    }
    return first;
}

/* The row of x that `row` of the result is; none of them where it is padding. */
K_FN int64_t p_source(const mp_padding_args *args, int64_t row) {
    if (args->kind == K_ROWS_LISTED) {
        return args->places[row];
    }
    const int64_t entry =
        args->kind == K_ROWS_PADDED ? k_divide_any(row, args->length) : p_entry(args, row);
    const int64_t start = args->starts[entry], end = args->starts[entry + 1];
    const int64_t gap = args->before ? args->length - (end - start) : 0;
    if (args->kind == K_ROWS_PADDED) {
        const int64_t at = start + row - entry * args->length - gap;
        return at >= start && at < end ? at : -1;
    }
    const int64_t at = row - start + gap;
    return row >= start && row < end && at >= 0 && at < args->length ? entry * args->length + at
                                                                     : -1;
}

K_KERNEL(mp_padding_args, args) {
    K_GRID_LOOP(i, args.rows * args.units) {
        const int64_t row = k_divide_any(i, args.units), c = i - row * args.units;
        const int64_t source = p_source(&args, row);
        const int is = source >= 0 && source < args.given;
        const int64_t from = is ? source * args.units + c : 0;
        const T none = {0};
        T value[K_PADDING_TENSORS];
        K_UNROLL
        for (int k = 0; k < K_PADDING_TENSORS; k++) { /* all are on their way at once */
            value[k] = none;
            if (is) {
                value[k] = ((const T *)args.x[k])[from];
            }
        }
        K_UNROLL
        for (int k = 0; k < K_PADDING_TENSORS; k++) {
            if (k < args.count) {
                ((T *)args.out[k])[i] = value[k];
            }
        }
    }
}
