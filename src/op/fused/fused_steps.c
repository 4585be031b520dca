/* fused_steps.c - an expression as a step of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_steps.h"

#include "op/core/pieces.h"
#include "op/fused/fused_kernel.h"

typedef struct fused {
    const mp_expression *e;
    const mp_operand *in;
    const mp_ref *out;
    mp_reading readings[K_FUSED_IN];
    const mp_shape *views[K_WALK_VIEWS];
    int view_count;
} fused;

static mp_status set_readings(fused *f, int64_t count) {
    for (int i = 0; i < f->e->input_count; i++) {
        const mp_shape *shape = f->in[i].shape;
        const int64_t own = mp_shape_count(shape);
        f->readings[i] = own == count ? MP_READ_WHOLE : own == 1 ? MP_READ_ONE : MP_READ_VIEW;
        if (f->readings[i] != MP_READ_VIEW) {
            continue;
        }
        if (f->view_count == K_WALK_VIEWS) {
            return MP_FAIL(UNSUPPORTED, "more than %d inputs are repeated", K_WALK_VIEWS);
        }
        f->views[f->view_count++] = shape;
    }
    return MP_OK;
}

static mp_ref ref_of(const fused *f, int i, const mp_piece *piece, int *view) {
    const mp_dtype type = f->e->inputs[i];
    switch (f->readings[i]) {
    case MP_READ_WHOLE:
        return mp_ref_element(f->in[i].ref, piece->out, type);
    case MP_READ_VIEW:
        return mp_ref_element(f->in[i].ref, piece->in[(*view)++], type);
    case MP_READ_ONE:
        break;
    }
    return f->in[i].ref;
}

static mp_status launch_piece(mp_planner *p, const fused *f, const mp_fused_kernel *kernel,
                              const mp_piece *piece) {
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
        binds[bound++] = (mp_bind){offsetof(mp_fused_args, out) + (size_t)i * sizeof(void *),
                                   mp_ref_element(f->out[i], piece->out, type)};
    }
    const size_t widest = mp_dtype_size(mp_fused_widest(e, f->readings));
    const int per_lane = widest < 4 ? (int)(16 / widest) : 4;
    return MP_LAUNCH_BOUND(p, kernel->kernel,
                           mp_plan_grid_stream(p, piece->walk.count, per_lane, 1), &args,
                           sizeof args, binds, bound);
}

mp_status mp_plan_fused(mp_planner *p, const mp_expression *e, const mp_operand *in,
                        const mp_ref *out, const mp_shape *shape) {
    const int64_t count = mp_shape_count(shape);
    fused f = {.e = e, .in = in, .out = out};
    mp_fused_kernel kernel;
    mp_piece piece;
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(set_readings(&f, count));
    MP_TRY(mp_fused_kernel_get(p->device, e, f.readings, &kernel));
    for (int64_t begin = 0; begin < count; begin += piece.walk.count) {
        MP_TRY(mp_piece_at(shape, f.views, f.view_count, begin, &piece));
        MP_TRY(launch_piece(p, &f, &kernel, &piece));
    }
    return MP_OK;
}
