/* integer_steps.h - products of 8-bit integers as steps of any operator's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_INTEGER_STEPS_H
#define MP_OP_INTEGER_STEPS_H

#include "kernel/quantize/quantize_args.h"
#include "op/core/op.h"

/* Where the operands are; MP_NOWHERE for what there is not. A side is A (0) or B (1). */
typedef struct mp_integer_refs {
    mp_ref matrix[2], zero[2], scale[2];
    mp_ref bias, out_scale, out_zero, out;
} mp_integer_refs;

/* 0x80 four times where elements of the type are unsigned. */
uint32_t mp_integer_flip(mp_dtype dtype);

/* K_SCALE_... of the scales' type. */
int32_t mp_integer_scale(mp_dtype dtype);

/* Steps through a zero point or a scale of one value, of one for each of `lines` rows or columns,
 * or of that for each of `matrices`. Fails: INVALID_ARGUMENT, naming `what`. */
mp_status mp_integer_lines(const mp_tensor *of, const char *what, int64_t lines, int64_t matrices,
                           int64_t *step, int64_t *batch);

/* The launch; sizes, sides and batch of `args` are set. The result is not empty. `word` is that of
 * the kernel: "product", or "conv" where B is an image. */
mp_status mp_plan_integer(mp_planner *p, const char *word, mp_integer_args *args,
                          const mp_integer_refs *refs);

#endif
