/* recurrent_steps.c - how the steps of a recurrent network are queued. Three ways: all steps in one
 * launch, where R is small enough for one multiprocessor to read it at every step; a launch a step
 * over all multiprocessors; a matrix product and a launch a step, for many entries.
 * Before these comes what recurrent_mma.c and recurrent_group.c can do.
 * Kernels: recurrent/recurrent_cell.cu, recurrent/recurrent_steps.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/recurrent/recurrent_steps.h"

#include "op/recurrent/recurrent_group.h"
#include "op/recurrent/recurrent_mma.h"

#include <string.h>

enum {
    ALONE_BYTES_MAX = 512 << 10, /* of R, read by one block a step */
    FEW_ENTRIES = 16,            /* up to which R is read again for every four entries */
    BLOCK_UNITS_MIN = 16
};

typedef enum way { WAY_LAUNCH_ALL, WAY_LAUNCH_EACH, WAY_PRODUCTS } way;

static size_t accumulator_size(mp_dtype type) {
    return type == MP_F64 ? sizeof(double) : sizeof(float);
}

int32_t mp_recurrent_lanes(int64_t hidden, int64_t piece) {
    int32_t lanes = 1;
    while (lanes < 32 && lanes * piece < hidden) {
        lanes *= 2;
    }
    return lanes;
}

static mp_ref input_or_nowhere(const mp_planner *p, int i) {
    return mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

static mp_ref output_or_nowhere(const mp_planner *p, int i) {
    return mp_plan_wants(p, i) ? MP_OUT(i) : MP_NOWHERE;
}

void mp_recurrent_bind(const mp_planner *p, mp_ref projected, size_t offset,
                       mp_bind out[MP_CELL_BINDS]) {
    const bool lstm = *(const k_cell_kind *)p->node->op->detail == K_CELL_LSTM;
    const mp_bind binds[MP_CELL_BINDS] = {
        MP_BIND(k_cell, projected, projected),
        MP_BIND(k_cell, bias, input_or_nowhere(p, MP_RNN_B)),
        MP_BIND(k_cell, lengths, input_or_nowhere(p, MP_RNN_LENGTHS)),
        MP_BIND(k_cell, h_first, input_or_nowhere(p, MP_RNN_H)),
        MP_BIND(k_cell, c_first, lstm ? input_or_nowhere(p, MP_RNN_C) : MP_NOWHERE),
        MP_BIND(k_cell, peephole, lstm ? input_or_nowhere(p, MP_RNN_P) : MP_NOWHERE),
        MP_BIND(k_cell, y, output_or_nowhere(p, MP_RNN_Y)),
        MP_BIND(k_cell, y_h, output_or_nowhere(p, MP_RNN_Y_H)),
        MP_BIND(k_cell, y_c, lstm ? output_or_nowhere(p, MP_RNN_Y_C) : MP_NOWHERE)};
    memcpy(out, binds, sizeof binds);
    for (int i = 0; i < MP_CELL_BINDS; i++) {
        out[i].field += offset;
    }
}

/* ---- steps with their products ---- */

static bool resets_first(const k_cell *cell) {
    return cell->kind == K_CELL_GRU && !cell->linear_before_reset;
}

static size_t shared_bytes(const mp_recurrent *r) {
    const size_t pitch = (size_t)(r->cell.hidden + 7) / 8 * 8;
    return pitch * K_RECURRENT_ROWS * accumulator_size(r->type) * (resets_first(&r->cell) ? 4 : 3);
}

/* Scratch memory of [D][B][H] elements. */
static mp_status state_place(mp_planner *p, const k_cell *cell, size_t size, mp_ref *out) {
    const mp_shape shape = {.rank = 3, .dim = {cell->directions, cell->batch, cell->hidden}};
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&shape,
                          size == sizeof(double) ? MP_F64
                          : size == 4            ? MP_F32
                                                 : MP_F16,
                          &bytes));
    return mp_plan_scratch(p, bytes, out);
}

static mp_status launch_steps(mp_planner *p, const mp_recurrent *r, mp_ref projected,
                              const mp_recurrent_args *args, const mp_ref state[3]) {
    const k_cell *cell = &r->cell;
    const int64_t entries = MP_CEIL_DIV(cell->batch, K_RECURRENT_ROWS);
    const mp_kernel *kernel = NULL;
    mp_bind binds[4 + MP_CELL_BINDS] = {MP_BIND(mp_recurrent_args, recurrence, MP_IN(MP_RNN_R)),
                                        MP_BIND(mp_recurrent_args, h_from, state[0]),
                                        MP_BIND(mp_recurrent_args, h_to, state[1]),
                                        MP_BIND(mp_recurrent_args, c, state[2])};
    mp_recurrent_bind(p, projected, offsetof(mp_recurrent_args, cell), binds + 4);
    MP_TRY(mp_plan_kernel(p, &kernel, "recurrent_steps_%s", mp_dtype_word(r->type)));
    mp_grid grid =
        mp_plan_grid_rows(p, cell->directions * entries * args->unit_blocks, K_RECURRENT_LANES);
    grid.shared_bytes = (uint32_t)shared_bytes(r);
    return MP_LAUNCH_BOUND(p, kernel, grid, args, sizeof *args, binds, MP_COUNT_OF(binds));
}

static mp_recurrent_args steps_args(const mp_planner *p, const mp_recurrent *r) {
    const int64_t row = r->cell.hidden * (int64_t)mp_dtype_size(r->type);
    return (mp_recurrent_args){.unit_blocks = 1,
                               .lanes =
                                   MP_MAX(mp_recurrent_lanes(r->cell.hidden, 8), K_RECURRENT_ROWS),
                               .wide = p->align >= 16 && row % 16 == 0 && r->cell.hidden % 8 == 0,
                               .cell = r->cell};
}

static mp_status plan_launch_all(mp_planner *p, const mp_recurrent *r, mp_ref projected) {
    const mp_ref none[3] = {MP_NOWHERE, MP_NOWHERE, MP_NOWHERE};
    mp_recurrent_args args = steps_args(p, r);
    args.step_count = r->cell.steps;
    return launch_steps(p, r, projected, &args, none);
}

static mp_status plan_launch_each(mp_planner *p, const mp_recurrent *r, mp_ref projected) {
    const k_cell *cell = &r->cell;
    mp_recurrent_args args = steps_args(p, r);
    const int64_t most = MP_CEIL_DIV(cell->hidden, BLOCK_UNITS_MIN);
    const int64_t wanted = p->device->info.multiprocessors;
    mp_ref state[3];
    for (int i = 0; i < 3; i++) {
        MP_TRY(state_place(p, cell, accumulator_size(r->type), &state[i]));
    }
    args.unit_blocks = MP_MIN(most, wanted);
    args.step_count = 1;
    for (int64_t step = 0; step < cell->steps; step++) {
        const mp_ref now[3] = {state[step % 2], state[1 - step % 2], state[2]};
        args.step_first = step;
        MP_TRY(launch_steps(p, r, projected, &args, now));
    }
    return MP_OK;
}

/* ---- a product and the rest of a step ---- */

typedef struct products {
    mp_ref h, c, update, reset, product, projected;
} products;

static mp_status plan_product(mp_planner *p, const mp_recurrent *r, mp_ref h, int gate, int gates,
                              mp_ref out) {
    const k_cell *cell = &r->cell;
    const int64_t hidden = cell->hidden;
    const int64_t size = (int64_t)mp_dtype_size(r->type);
    const int64_t first = gate * hidden * hidden * size;
    const mp_gemm gemm = {.type = r->type,
                          .tf32 = p->node->options.tf32,
                          .trans_b = true,
                          .m = cell->batch,
                          .n = gates * hidden,
                          .k = hidden,
                          .lda = hidden,
                          .ldb = hidden,
                          .ldc = gates * hidden,
                          .batch = cell->directions,
                          .stride_a = cell->batch * hidden,
                          .stride_b = cell->kind * hidden * hidden,
                          .stride_c = cell->batch * gates * hidden,
                          .alpha = 1,
                          .align = hidden * size % 16 == 0    ? p->align
                                   : (int32_t)size < p->align ? (int32_t)size
                                                              : p->align};
    const mp_ref operands[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = h,
                                               [MP_GEMM_B] =
                                                   mp_ref_at(MP_IN(MP_RNN_R), (uint64_t)first),
                                               [MP_GEMM_C] = out};
    return mp_plan_gemm(p, &gemm, operands);
}

static mp_status launch_cell(mp_planner *p, const mp_recurrent *r, const products *x, int64_t step,
                             k_cell_phase phase) {
    const k_cell *cell = &r->cell;
    const mp_recurrent_cell_args args = {.step = step, .phase = (int32_t)phase, .cell = *cell};
    const mp_kernel *kernel = NULL;
    mp_bind binds[5 + MP_CELL_BINDS] = {MP_BIND(mp_recurrent_cell_args, product, x->product),
                                        MP_BIND(mp_recurrent_cell_args, h, x->h),
                                        MP_BIND(mp_recurrent_cell_args, c, x->c),
                                        MP_BIND(mp_recurrent_cell_args, update, x->update),
                                        MP_BIND(mp_recurrent_cell_args, reset, x->reset)};
    mp_recurrent_bind(p, x->projected, offsetof(mp_recurrent_cell_args, cell), binds + 5);
    MP_TRY(mp_plan_kernel(p, &kernel, "recurrent_cell_%s", mp_dtype_word(r->type)));
    const int64_t count = cell->directions * cell->batch * cell->hidden;
    return MP_LAUNCH_BOUND(p, kernel, mp_plan_grid(p, count, 1), &args, sizeof args, binds,
                           MP_COUNT_OF(binds));
}

static mp_status plan_products(mp_planner *p, const mp_recurrent *r, mp_ref projected) {
    const k_cell *cell = &r->cell;
    const bool two = resets_first(cell);
    const size_t size = mp_dtype_size(r->type);
    const mp_shape shape = {.rank = 3,
                            .dim = {cell->directions, cell->batch, cell->kind * cell->hidden}};
    products x = {.projected = projected, .update = MP_NOWHERE, .reset = MP_NOWHERE};
    MP_TRY(state_place(p, cell, size, &x.h));
    MP_TRY(state_place(p, cell, accumulator_size(r->type), &x.c));
    MP_TRY(mp_plan_scratch_shape(p, &shape, r->type, &x.product));
    if (two) {
        MP_TRY(state_place(p, cell, accumulator_size(r->type), &x.update));
        MP_TRY(state_place(p, cell, size, &x.reset));
    }
    MP_TRY(launch_cell(p, r, &x, 0, K_PHASE_BEGIN));
    for (int64_t step = 0; step < cell->steps; step++) {
        if (two) {
            MP_TRY(plan_product(p, r, x.h, 0, 2, x.product));
            MP_TRY(launch_cell(p, r, &x, step, K_PHASE_GATES));
            MP_TRY(plan_product(p, r, x.reset, 2, 1, x.product));
            MP_TRY(launch_cell(p, r, &x, step, K_PHASE_HIDDEN));
        } else {
            MP_TRY(plan_product(p, r, x.h, 0, cell->kind, x.product));
            MP_TRY(launch_cell(p, r, &x, step, K_PHASE_ALL));
        }
    }
    return MP_OK;
}

/* ---- the choice ---- */

static way choose(const mp_planner *p, const mp_recurrent *r) {
    const k_cell *cell = &r->cell;
    const double bytes = (double)cell->kind * (double)cell->hidden * (double)cell->hidden *
                         (double)mp_dtype_size(r->type);
    const int64_t entries = MP_CEIL_DIV(cell->batch, K_RECURRENT_ROWS);
    const bool fits = shared_bytes(r) <= p->device->info.shared_bytes_max;
    const bool few = cell->batch <= FEW_ENTRIES;
    const bool alone = bytes <= (double)ALONE_BYTES_MAX &&
                       cell->directions * entries <= 2 * (int64_t)p->device->info.multiprocessors;
    if (!fits) {
        return WAY_PRODUCTS;
    }
    if (resets_first(cell)) { /* two rounds a step, between which blocks would have to meet */
        return alone || cell->steps == 1 ? WAY_LAUNCH_ALL : WAY_PRODUCTS;
    }
    if (few && (cell->steps == 1 || !alone)) {
        return WAY_LAUNCH_EACH;
    }
    return alone ? WAY_LAUNCH_ALL : WAY_PRODUCTS;
}

mp_status mp_recurrent_plan(mp_planner *p, const mp_recurrent *r, mp_ref projected) {
    mp_recurrent_group group;
    mp_recurrent_mma mma;
    const bool is_grouped = mp_recurrent_group_choose(p, r, &group);
    if (mp_recurrent_mma_choose(p, r, is_grouped ? &group : NULL, &mma)) {
        return mp_recurrent_mma_plan(p, r, &mma, projected);
    }
    if (is_grouped) {
        return mp_recurrent_group_plan(p, r, &group, projected);
    }
    switch (choose(p, r)) {
    case WAY_LAUNCH_ALL:
        return plan_launch_all(p, r, projected);
    case WAY_LAUNCH_EACH:
        return plan_launch_each(p, r, projected);
    case WAY_PRODUCTS:
        break;
    }
    return plan_products(p, r, projected);
}

mp_status mp_recurrent_no_steps(mp_planner *p, const mp_recurrent *r) {
    const k_cell *c = &r->cell;
    const mp_shape state = {.rank = 3, .dim = {c->directions, c->batch, c->hidden}};
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&state, r->type, &bytes));
    for (int i = MP_RNN_Y_H; i <= MP_RNN_Y_C; i++) {
        if (mp_plan_wants(p, i)) {
            MP_TRY(mp_plan_fill(p, MP_OUT(i), 0, 1, bytes));
        }
    }
    return MP_OK;
}
