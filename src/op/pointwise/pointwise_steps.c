/* pointwise_steps.c - element-wise steps for any operator's plan. The functions are text in
 * kernel/pointwise/pointwise.def.
 * Kernels: pointwise/pointwise1.cu, pointwise/pointwise2.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/pointwise/pointwise_steps.h"

#include "kernel/pointwise/pointwise_args.h"
#include "op/core/pieces.h"

#include <string.h>

mp_status mp_pointwise1(mp_planner *p, const char *word, mp_dtype dtype, mp_ref x, mp_ref out,
                        int64_t count, float a, float b) {
    if (count == 0) {
        return MP_OK;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "pointwise1_%s_%s", word, mp_dtype_word(dtype)));
    const mp_pointwise1_args args = {.count = count, .a = a, .b = b};
    const int per_lane = (int)(16 / mp_dtype_size(dtype));
    return MP_LAUNCH(p, kernel, mp_plan_grid_stream(p, count, per_lane, K_STREAM_AHEAD), args,
                     MP_BIND(mp_pointwise1_args, x, x), MP_BIND(mp_pointwise1_args, out, out));
}

typedef struct built_row {
    const char *word, *types;
} built_row;

/* What each function is built for, as pointwise.def says it: "FLOATS+UNSIGNED". */
static const built_row built[] = {
#define K_POINTWISE(word, arity, types, ...) {#word, #types},
#include "kernel/pointwise/pointwise.def"
#undef K_POINTWISE
};

/* The instance that computes it: functions that wrap are built for UNSIGNED in place of INTS. */
static mp_dtype computed_as(const char *word, mp_dtype dtype) {
    for (size_t i = 0; i < MP_COUNT_OF(built); i++) {
        if (strcmp(word, built[i].word) == 0) {
            return strstr(built[i].types, "UNSIGNED") != NULL ? mp_dtype_unsigned(dtype) : dtype;
        }
    }
    return dtype;
}

mp_status mp_plan_pair(mp_planner *p, const mp_pair *pair) {
    const int64_t count = mp_shape_count(pair->shape);
    const int per_lane = (int)(16 / mp_dtype_size(pair->dtype));
    const mp_shape *const inputs[] = {pair->x.shape, pair->y.shape};
    const mp_kernel *kernel = NULL;
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "pointwise2_%s_%s", pair->word,
                          mp_dtype_word(computed_as(pair->word, pair->dtype))));
    mp_piece piece;
    for (int64_t first = 0; first < count; first += piece.walk.count) {
        MP_TRY(mp_piece_at(pair->shape, inputs, 2, first, &piece));
        const mp_ref x = mp_ref_element(pair->x.ref, piece.in[0], pair->dtype);
        const mp_ref y = mp_ref_element(pair->y.ref, piece.in[1], pair->dtype);
        const mp_ref out = mp_ref_element(pair->out, piece.out, pair->result);
        const mp_pointwise2_args args = {.a = pair->a, .b = pair->b, .walk = piece.walk};
        MP_TRY(MP_LAUNCH(p, kernel, mp_plan_grid_stream(p, piece.walk.count, per_lane, 1), args,
                         MP_BIND(mp_pointwise2_args, x, x), MP_BIND(mp_pointwise2_args, y, y),
                         MP_BIND(mp_pointwise2_args, out, out)));
    }
    return MP_OK;
}

mp_status mp_pointwise2(mp_planner *p, const char *word, mp_dtype dtype, mp_operand x, mp_operand y,
                        mp_ref out, const mp_shape *shape, float a, float b) {
    const mp_pair pair = {.word = word,
                          .dtype = dtype,
                          .result = dtype,
                          .x = x,
                          .y = y,
                          .out = out,
                          .shape = shape,
                          .a = a,
                          .b = b};
    return mp_plan_pair(p, &pair);
}
