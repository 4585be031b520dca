/* row_stand_in.cu - what fused kernels with reductions compute, read from a table of terms: it
 * stands in for one that is still being compiled.
 *
 * Each result has the bits that the kernel's own text gives: a lane adds the same elements in the
 * same order, part by part, and then lanes do. It computes again in each pass what that needs, as
 * the text for long rows does. Bound by the values, which lie in the lane's own memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/walk.h"
#include "kernel/fused/row_part.h"
#include "kernel/fused/stand_in_terms.h"

/* What all lanes of a block have in common. */
typedef struct r_table {
    const k_stand_in_code *code;
    const k_stand_in_rows *rows;
    const k_stand_in_term *terms;
    int32_t views;
    int packed;
} r_table;

K_FN int r_is_view(int32_t reading) {
    return reading == K_STAND_IN_VIEW || reading == K_STAND_IN_ROWS;
}

/* By how much an address misses packs of that type. */
K_FN uint64_t r_skew(const r_table *b, const void *at, int32_t type) {
    const uint64_t bytes = (uint64_t)s_size(type) * b->rows->pack;
    return (uint64_t)at % (bytes < 16 ? bytes : 16);
}

K_FN r_table r_table_of(const mp_fused_args *args) {
    r_table b;
    uint64_t skew = 0;
    b.code = (const k_stand_in_code *)args->stand_in;
    b.rows = (const k_stand_in_rows *)(b.code + 1);
    b.terms = (const k_stand_in_term *)(b.rows + 1);
    b.views = 0;
    K_ONE_COPY
    for (int32_t i = 0; i < b.code->out_count; i++) {
        skew |= r_skew(&b, args->out[i], b.code->out_type[i]);
    }
    K_ONE_COPY
    for (int32_t i = 0; i < b.code->in_count; i++) {
        const int32_t reading = b.code->in_reading[i];
        skew |= reading == K_STAND_IN_WHOLE ? r_skew(&b, args->in[i], b.code->in_type[i]) : 0;
        b.views += r_is_view(reading);
    }
    b.packed = f_is_in_packs(args, b.rows->pack, skew);
    return b;
}

/* ---- reductions ---- */

K_FN float r_none(int32_t reduction) {
    switch (reduction) {
    case K_STAND_IN_MAX:
        return f_rowmax_none_f32();
    case K_STAND_IN_MIN:
        return f_rowmin_none_f32();
    case K_STAND_IN_PRODUCT:
        return f_rowproduct_none_f32();
    default:
        return f_rowsum_none_f32();
    }
}

K_FN float r_both(int32_t reduction, float a, float b) {
    switch (reduction) {
    case K_STAND_IN_MAX:
        return f_rowmax_of_f32(a, b);
    case K_STAND_IN_MIN:
        return f_rowmin_of_f32(a, b);
    case K_STAND_IN_PRODUCT:
        return f_rowproduct_of_f32(a, b);
    default:
        return f_rowsum_of_f32(a, b);
    }
}

/* Every lane of the block calls. */
K_FN float r_group(int32_t reduction, float value, uint32_t width, int32_t columns) {
    switch (reduction) {
    case K_STAND_IN_MAX:
        return f_rowmax_f32(value, width);
    case K_STAND_IN_MIN:
        return f_rowmin_f32(value, width);
    case K_STAND_IN_PRODUCT:
        return f_rowproduct_f32(value, width);
    case K_STAND_IN_MEAN:
        return f_rowsum_f32(value, width) / (float)columns;
    default:
        return f_rowsum_f32(value, width);
    }
}

/* ---- rows and elements ---- */

/* What is of rows, and numbers: nothing else is ever in their slots. */
K_FN void r_load_row(const r_table *b, const mp_fused_args *args, const f_part *p,
                     const uint32_t *at, uint64_t *slots) {
    int32_t view = 0;
    K_ONE_COPY
    for (int32_t i = 0; i < b->code->in_count; i++) {
        const int32_t reading = b->code->in_reading[i];
        const int64_t from = reading == K_STAND_IN_ONE ? 0
                             : r_is_view(reading)      ? (int64_t)at[view++]
                                                       : p->row;
        if (b->rows->is_row_in[i]) {
            slots[b->code->in_slot[i]] = s_load(b->code->in_type[i], args->in[i], from);
        }
    }
    K_ONE_COPY
    for (int32_t i = 0; i < b->code->number_count; i++) {
        slots[b->code->number_slot[i]] = s_of_real(args->numbers[i]);
    }
}

K_FN int64_t r_place(int32_t reading, uint32_t n, int32_t column) {
    switch (reading) {
    case K_STAND_IN_WHOLE:
        return (int64_t)n;
    case K_STAND_IN_ONE:
        return 0;
    default:
        return column;
    }
}

/* The other inputs; `begins`: where the row begins in each view. */
K_FN void r_load_element(const r_table *b, const mp_fused_args *args, const f_part *p,
                         const uint32_t *begins, int32_t column, uint64_t *slots) {
    const uint32_t n = p->begin + (uint32_t)column;
    uint32_t at[K_WALK_VIEWS];
    int32_t view = 0;
    k_walk_to(&args->walk, n, b->views, at);
    K_ONE_COPY
    for (int32_t i = 0; i < b->code->in_count; i++) {
        const int32_t reading = b->code->in_reading[i];
        int64_t from = r_place(reading, n, column);
        if (r_is_view(reading)) {
            from = reading == K_STAND_IN_VIEW ? (int64_t)at[view] : (int64_t)begins[view] + column;
            view++;
        }
        if (!b->rows->is_row_in[i]) {
            slots[b->code->in_slot[i]] = s_load(b->code->in_type[i], args->in[i], from);
        }
    }
}

K_FN void r_row_terms(const r_table *b, int32_t begin, int32_t end, uint64_t *slots) {
    K_ONE_COPY
    for (int32_t i = begin; i < end; i++) {
        const k_stand_in_term *term = &b->terms[b->rows->order[i]];
        slots[term->out] = s_term(term, slots);
    }
}

/* Reductions add to `sums`, in their order. */
K_FN void r_element_terms(const r_table *b, int32_t begin, int32_t end, uint64_t *slots,
                          float *sums) {
    int32_t sum = 0;
    K_ONE_COPY
    for (int32_t i = begin; i < end; i++) {
        const k_stand_in_term *term = &b->terms[b->rows->order[i]];
        if (term->kind == K_STAND_IN_REDUCTION) {
            sums[sum] = r_both(term->function, sums[sum], s_real(slots[term->x[0]]));
            sum++;
        } else {
            slots[term->out] = s_term(term, slots);
        }
    }
}

K_FN void r_store(const r_table *b, const mp_fused_args *args, int of_row, int64_t to,
                  const uint64_t *slots) {
    K_ONE_COPY
    for (int32_t i = 0; i < b->code->out_count; i++) {
        if (b->rows->is_row_out[i] == of_row) {
            s_store(b->code->out_type[i], args->out[i], to, slots[b->code->out_slot[i]]);
        }
    }
}

/* ---- passes ---- */

/* The reductions of a pass, in their order: what they begin with, where `both` is not given, or
 * what they and `both` give. */
K_FN void r_join(const r_table *b, int32_t begin, int32_t end, float *sums, const float *both) {
    int32_t sum = 0;
    K_ONE_COPY
    for (int32_t i = begin; i < end; i++) {
        const k_stand_in_term *term = &b->terms[b->rows->order[i]];
        if (term->kind == K_STAND_IN_REDUCTION) {
            sums[sum] =
                both == 0 ? r_none(term->function) : r_both(term->function, sums[sum], both[sum]);
            sum++;
        }
    }
}

K_FN void r_pass(const r_table *b, const mp_fused_args *args, f_part *p, const uint32_t *begins,
                 int32_t begin, int32_t end, int is_last, uint64_t *slots, float *sums) {
    const int32_t keep = b->rows->pack * b->rows->packs;
    r_join(b, begin, end, sums, 0);
    K_ONE_COPY
    for (p->base = 0; p->base < p->columns; p->base += p->width * keep) {
        float part[K_STAND_IN_SUMS];
        r_join(b, begin, end, part, 0);
        K_ONE_COPY
        for (int32_t k = 0; k < keep; k++) {
            const int32_t column = f_column_in_packs(p, b->rows->pack, k);
            if (column < p->columns) {
                r_load_element(b, args, p, begins, column, slots);
                r_element_terms(b, begin, end, slots, part);
                if (is_last) {
                    r_store(b, args, 0, (int64_t)p->begin + column, slots);
                }
            }
        }
        r_join(b, begin, end, sums, part);
    }
}

K_FN void r_meet(const r_table *b, const mp_fused_args *args, uint32_t width, int32_t begin,
                 int32_t end, const float *sums, uint64_t *slots) {
    int32_t sum = 0;
    K_ONE_COPY
    for (int32_t i = begin; i < end; i++) {
        const k_stand_in_term *term = &b->terms[b->rows->order[i]];
        if (term->kind == K_STAND_IN_REDUCTION) {
            const float all = r_group(term->function, sums[sum++], width, args->columns);
            slots[term->out] = s_of_real(all);
        }
    }
}

K_BLOCK_KERNEL_UP_TO(K_FUSED_ROW_LANES, mp_fused_args, args) {
    const r_table b = r_table_of(&args);
    const k_round t = k_rounds(args.width);
    K_ONE_COPY
    K_ROUND_LOOP(first, t, args.rows) {
        uint64_t slots[K_STAND_IN_SLOTS];
        uint32_t begins[K_WALK_VIEWS];
        int32_t from = 0;
        f_part p = f_part_of(&args, &t, first + t.group, b.packed);
        k_walk_to(&args.walk, p.begin, b.views, begins);
        r_load_row(&b, &args, &p, begins, slots);
        K_ONE_COPY
        for (int32_t pass = 0; pass < b.rows->pass_count; pass++) {
            const int32_t middle = b.rows->row_end[pass], end = b.rows->element_end[pass];
            float sums[K_STAND_IN_SUMS];
            r_row_terms(&b, from, middle, slots);
            r_pass(&b, &args, &p, begins, middle, end, pass == b.rows->pass_count - 1, slots, sums);
            r_meet(&b, &args, t.width, middle, end, sums, slots);
            from = end;
        }
        r_row_terms(&b, from, b.rows->row_end[b.rows->pass_count], slots);
        if (p.lane == 0 && p.columns > 0) {
            r_store(&b, &args, 1, p.row, slots);
        }
    }
}
