/* fused_steps.c - an expression as a step of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_steps.h"

#include "op/core/pieces.h"
#include "op/core/row_grid.h"
#include "op/fused/fused_kernel.h"

typedef struct fused {
    const mp_expression *e;
    const mp_operand *in;
    const mp_ref *out;
    const int64_t *in_pitch; /* NULL: 0 for all */
    int64_t out_pitch;
    mp_reading readings[K_FUSED_IN];
    int64_t views[K_WALK_VIEWS][MP_RANK_MAX]; /* strides */
    int view_count;
    int64_t row_keep; /* elements of a row that a lane keeps */
} fused;

static int64_t pitch_of(const fused *f, int i) {
    return f->in_pitch != NULL ? f->in_pitch[i] : 0;
}

static mp_status add_view(fused *f, const mp_shape *shape, int64_t pitch, const mp_shape *all) {
    const mp_tensor tensor = {.shape = *shape, .pitch = pitch};
    if (f->view_count == K_WALK_VIEWS) {
        return MP_FAIL(UNSUPPORTED, "more than %d tensors are repeated or lie apart", K_WALK_VIEWS);
    }
    mp_tensor_broadcast_strides(&tensor, all, f->views[f->view_count++]);
    return MP_OK;
}

static mp_status set_readings(fused *f, const mp_shape *all) {
    for (int i = 0; i < f->e->input_count; i++) {
        const mp_shape *shape = f->in[i].shape;
        f->readings[i] =
            pitch_of(f, i) > 0 ? MP_READ_VIEW : mp_expression_reading(f->e, i, shape, all);
        if (mp_reading_is_view(f->readings[i])) {
            MP_TRY(add_view(f, shape, pitch_of(f, i), all));
        }
    }
    return f->e->is_apart ? add_view(f, all, f->out_pitch, all) : MP_OK;
}

static mp_ref ref_of(const fused *f, int i, const mp_piece *piece, int *view) {
    const mp_dtype type = f->e->inputs[i];
    switch (f->readings[i]) {
    case MP_READ_WHOLE:
        return mp_ref_element(f->in[i].ref, piece->out, type);
    case MP_READ_VIEW:
    case MP_READ_ROWS:
        return mp_ref_element(f->in[i].ref, piece->in[(*view)++], type);
    case MP_READ_ONE: /* and what only is where there are rows, in one piece */
    case MP_READ_COLUMN:
    case MP_READ_ROW:
    case MP_READING_END:
        break;
    }
    return f->in[i].ref;
}

/* Lanes that share a row: as few as keep it, which have most on their way at once; where there are
 * few rows, more lanes with a pack each are sooner done. A long row has a block. More than a warp
 * is one, too. */
static mp_grid row_grid(const mp_planner *p, const fused *f, int64_t keep, mp_fused_args *args) {
    const bool spare = args->rows < (int64_t)p->device->info.multiprocessors * 8;
    const int64_t each = f->e->is_long ? 1 : spare ? MP_MAX(keep / 2, 1) : keep;
    args->width = 1;
    while (args->width < K_FUSED_ROW_LANES && args->width * each < args->columns) {
        args->width *= 2;
    }
    const uint32_t lanes = mp_short_row_lanes(p, args->rows, args->width);
    return mp_plan_grid_rows(p, MP_CEIL_DIV(args->rows, (int64_t)lanes / args->width), lanes);
}

static mp_status launch_piece(mp_planner *p, const fused *f, const mp_fused_kernel *kernel,
                              const mp_shape *shape, const mp_piece *piece) {
    const mp_expression *e = f->e;
    mp_fused_args args = {.program = kernel->program,
                          .stand_in = (const void *)kernel->stand_in,
                          .walk = piece->walk};
    mp_bind binds[K_FUSED_IN + K_FUSED_OUT];
    size_t bound = 0;
    int view = 0;
    for (int i = 0; i < e->number_count; i++) {
        args.numbers[i] = e->numbers[i].value;
    }
    for (int i = 0; i < e->input_count; i++) {
        binds[bound++] = (mp_bind){offsetof(mp_fused_args, in) + (size_t)i * sizeof(void *),
                                   ref_of(f, i, piece, &view)};
    }
    for (int i = 0; i < e->output_count; i++) {
        const mp_dtype type = mp_expression_type(e, e->outputs[i]);
        const int64_t first = e->is_apart ? piece->in[view] : piece->out;
        binds[bound++] = (mp_bind){offsetof(mp_fused_args, out) + (size_t)i * sizeof(void *),
                                   mp_ref_element(f->out[i], first, type)};
    }
    const size_t widest = mp_dtype_size(mp_fused_widest(e, f->readings));
    const int per_lane = widest < 4 ? (int)(16 / widest) : 4;
    mp_grid grid = mp_plan_grid_stream(p, piece->walk.count, per_lane, 1);
    if (e->row_dims > 0) {
        args.columns = (int32_t)mp_shape_span(shape, shape->rank - e->row_dims, shape->rank);
        args.rows = piece->walk.count / args.columns;
        grid = row_grid(p, f, f->row_keep, &args);
    }
    return MP_LAUNCH_BOUND(p, kernel->kernel, grid, &args, sizeof args, binds, bound);
}

/* Rows that are longer than lanes keep have another text. */
static mp_status plan_rows(mp_planner *p, fused *f, const mp_shape *shape) {
    mp_expression e = *f->e;
    mp_fused_kernel kernel;
    mp_piece piece;
    const int64_t count = mp_shape_count(shape);
    const int64_t columns = mp_shape_span(shape, shape->rank - e.row_dims, shape->rank);
    f->row_keep = mp_fused_row_keep(&e, f->readings);
    e.is_long = columns > f->row_keep * K_FUSED_ROW_LANES;
    f->e = &e;
    MP_TRY(mp_piece_strided(shape, f->views, f->view_count, 0, &piece));
    if (count > MP_ROW_ELEMENTS_MAX || piece.walk.count != count) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(UNSUPPORTED, "rows of shape %s are too many for one kernel",
                       mp_shape_text(shape, text));
    }
    MP_TRY(mp_fused_kernel_get(p->device, &e, f->readings, &kernel));
    return launch_piece(p, f, &kernel, shape, &piece);
}

static mp_status plan(mp_planner *p, fused *f, const mp_shape *shape) {
    const int64_t count = mp_shape_count(shape);
    mp_fused_kernel kernel;
    mp_piece piece;
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(set_readings(f, shape));
    if (f->e->row_dims > 0) {
        return plan_rows(p, f, shape);
    }
    MP_TRY(mp_fused_kernel_get(p->device, f->e, f->readings, &kernel));
    for (int64_t begin = 0; begin < count; begin += piece.walk.count) {
        MP_TRY(mp_piece_strided(shape, f->views, f->view_count, begin, &piece));
        MP_TRY(launch_piece(p, f, &kernel, shape, &piece));
    }
    return MP_OK;
}

mp_status mp_plan_fused(mp_planner *p, const mp_expression *e, const mp_operand *in,
                        const mp_ref *out, const mp_shape *shape) {
    fused f = {.e = e, .in = in, .out = out};
    return plan(p, &f, shape);
}

/* Whether all rows of the shape, so far apart, are within what kernels count. */
static bool is_near(const mp_shape *shape, int64_t pitch) {
    int64_t all = 0;
    return !__builtin_mul_overflow(mp_shape_span(shape, 0, MP_MAX(shape->rank - 1, 0)), pitch,
                                   &all) &&
           all <= INT32_MAX;
}

static bool are_packs(const mp_expression *e, const mp_shape *shape, int64_t pitch) {
    enum { PACK_BYTES = 16 };
    const int64_t pack = PACK_BYTES / (int64_t)mp_dtype_size(mp_expression_type(e, e->outputs[0]));
    return e->output_count == 1 && shape->rank > 0 && shape->dim[shape->rank - 1] % pack == 0 &&
           pitch % pack == 0;
}

mp_status mp_plan_fused_apart(mp_planner *p, const mp_expression *e, const mp_operand *in,
                              const int64_t *in_pitch, const mp_ref *out, int64_t out_pitch,
                              const mp_shape *shape) {
    mp_expression own = *e;
    fused f = {.e = &own, .in = in, .out = out, .in_pitch = in_pitch, .out_pitch = out_pitch};
    bool takes = out_pitch == 0 || (are_packs(e, shape, out_pitch) && is_near(shape, out_pitch));
    bool is_apart = out_pitch > 0;
    own.is_apart = own.is_apart || is_apart;
    for (int i = 0; i < e->input_count; i++) {
        takes = takes && is_near(in[i].shape, in_pitch[i]);
        is_apart = is_apart || in_pitch[i] > 0;
    }
    return takes && (e->row_dims == 0 || !is_apart)
               ? plan(p, &f, shape)
               : MP_FAIL(UNSUPPORTED, "no kernel takes rows that lie so far apart");
}
