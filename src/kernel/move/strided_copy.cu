/* strided_copy.cu - moves elements between two layouts: slices, expansions, general transpositions.
 * Neighbouring lanes write neighbouring elements.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/move/move_args.h"

/* What a lane writes at once where out is written from its first element to its last. */
enum { RUN = K_COPY_RUN(sizeof(T)) };
typedef struct K_ALIGN(RUN * sizeof(T)) run {
    T at[RUN];
} run;

/* The offset in x of the row of this number. */
K_FN int64_t row_of(const k_layout *layout, uint32_t row) {
    int64_t at = 0;
    int32_t d = layout->rank - 2;
    for (; d > 0; d--) {
        const uint32_t outer = k_divide(row, layout->divider[d]);
        at += (row - outer * (uint32_t)layout->dim[d]) * layout->stride[0][d];
        row = outer;
    }
    return d == 0 ? at + row * layout->stride[0][0] : 0;
}

/* The elements from column `c` of this row on; those beyond its end are the first of the next row,
 * which has RUN elements at least. */
K_FN run read_run(const mp_strided_copy_args *a, uint32_t row, uint32_t c) {
    const k_layout *layout = &a->layout;
    const int32_t inner = layout->rank - 1;
    const int64_t step = layout->stride[0][inner];
    const uint32_t rest = (uint32_t)layout->dim[inner] - c;
    const T *here = (const T *)a->x + row_of(layout, row) + c * step;
    const T *next = here;
    run made;
    if (step == 0 && rest >= RUN) {
        const T value = *here;
        for (int k = 0; k < RUN; k++) {
            made.at[k] = value;
        }
        return made;
    }
    if (RUN > 1 && rest < RUN) {
        next = (const T *)a->x + row_of(layout, row + 1) - (int64_t)rest * step;
    }
    for (uint32_t k = 0; k < RUN; k++) {
        made.at[k] = (k < rest ? here : next)[k * step];
    }
    return made;
}

K_FN void write_run(T *out, run made) {
    if ((uint64_t)out % sizeof(run) == 0) {
        *(run *)out = made;
        return;
    }
    for (int k = 0; k < RUN; k++) {
        out[k] = made.at[k];
    }
}

K_FN void copy_runs(const mp_strided_copy_args *a) {
    const k_layout *layout = &a->layout;
    const int32_t inner = layout->rank - 1;
    K_GRID_LOOP(i, a->count / RUN) {
        const uint32_t first = (uint32_t)i * RUN;
        const uint32_t row = k_divide(first, layout->divider[inner]);
        const run made = read_run(a, row, first - row * (uint32_t)layout->dim[inner]);
        write_run((T *)a->out + first, made);
    }
}

/* The offset in x of what the two innermost dimensions are walked in. */
K_FN int64_t plane_of(const k_layout *layout, uint32_t plane) {
    int64_t at = 0;
    K_ONE_COPY
    for (int32_t d = layout->rank - 3; d >= 0; d--) {
        const uint32_t outer = d > 0 ? k_divide(plane, layout->divider[d]) : 0;
        at += (plane - outer * (uint32_t)layout->dim[d]) * layout->stride[0][d];
        plane = outer;
    }
    return at;
}

/* Elements from number `first` on, over rows of fewer than RUN. */
K_FN run read_rows(const mp_strided_copy_args *a, uint32_t first) {
    const T *__restrict__ x = (const T *)a->x;
    const k_layout *layout = &a->layout;
    const int32_t inner = layout->rank - 1;
    const uint32_t columns = (uint32_t)layout->dim[inner];
    const uint32_t rows = (uint32_t)layout->dim[inner - 1];
    const int64_t step = layout->stride[0][inner], row_step = layout->stride[0][inner - 1];
    uint32_t row = k_divide(first, layout->divider[inner]);
    uint32_t c = first - row * columns;
    uint32_t plane = k_divide(row, layout->divider[inner - 1]);
    row -= plane * rows;
    int64_t at = plane_of(layout, plane) + row * row_step + c * step;
    run made;
    K_UNROLL for (int k = 0; k < RUN; k++) {
        made.at[k] = x[at];
        c++;
        at += step;
        if (c == columns && k + 1 < RUN) {
            c = 0;
            row++;
            at += row_step - columns * step;
            if (row == rows) {
                row = 0;
                plane++;
                at = plane * (uint64_t)rows * columns < (uint64_t)a->count ? plane_of(layout, plane)
                                                                           : 0;
            }
        }
    }
    return made;
}

K_FN void copy_rows(const mp_strided_copy_args *a) {
    K_ONE_COPY
    K_GRID_LOOP(i, a->count / RUN) {
        const uint32_t first = (uint32_t)i * RUN;
        write_run((T *)a->out + first, read_rows(a, first));
    }
}

/* One by one, from element `first` on. */
K_FN void copy_elements(const mp_strided_copy_args *a, int64_t first) {
    const T *__restrict__ x = (const T *)a->x;
    T *__restrict__ out = (T *)a->out;
    K_GRID_LOOP(i, a->count - first) {
        int64_t at[2] = {0, first + i};
        k_offsets(&a->layout, first + i, a->in_order ? 1 : 2, at);
        out[at[1]] = x[at[0]];
    }
}

K_KERNEL(mp_strided_copy_args, args) {
    if (args.in_runs == K_LONG_ROWS) {
        copy_runs(&args);
    } else if (args.in_runs == K_SHORT_ROWS) {
        copy_rows(&args);
    }
    copy_elements(&args, args.in_runs ? args.count - args.count % RUN : 0);
}
