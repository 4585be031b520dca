/* rotary_steps.c - heads are rotated by their positions.
 * Kernel: attention/rotary.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/rotary_steps.h"

#include <string.h>

static bool can_pack(const mp_planner *p, const mp_rotary *r) {
    const int64_t size = (int64_t)mp_dtype_size(r->type);
    const int64_t pack = 16 / size;
    bool fits = p->align >= 16 && r->base == 0 && r->rotated / 2 % pack == 0 &&
                (r->head_size - r->rotated) % (2 * pack) == 0 && r->x.ref.offset % 16 == 0 &&
                r->out.ref.offset % 16 == 0;
    for (int d = 0; d < 3; d++) {
        fits = fits && r->x.stride[d] % pack == 0 && r->out.stride[d] % pack == 0 &&
               r->cache_stride[d] % pack == 0;
    }
    return fits;
}

mp_status mp_plan_rotary(mp_planner *p, const mp_rotary *r) {
    const bool packed = can_pack(p, r);
    const int64_t pack = packed ? 16 / (int64_t)mp_dtype_size(r->type) : 1;
    mp_rotary_args args = {.batch = r->batch,
                           .heads = r->heads,
                           .rows = r->rows,
                           .cache_rows = r->cache_rows,
                           .pieces = (r->head_size + 1) / 2 / pack,
                           .head_size = (int32_t)r->head_size,
                           .half = (int32_t)(r->rotated / 2),
                           .interleaved = r->interleaved,
                           .position_kind = (int32_t)r->position_kind,
                           .prompt = r->prompt,
                           .packed = packed,
                           .axes_mixed = r->axes_mixed,
                           .axis_end = {r->axis_end[0], r->axis_end[1]},
                           .scale = r->scaled ? r->scale : 1,
                           .base = r->base,
                           .past = r->past};
    memcpy(args.x_stride, r->x.stride, sizeof args.x_stride);
    memcpy(args.cache_stride, r->cache_stride, sizeof args.cache_stride);
    memcpy(args.out_stride, r->out.stride, sizeof args.out_stride);
    const int64_t count = r->batch * r->heads * r->rows * args.pieces;
    if (count == 0) {
        return MP_OK;
    }
    if (r->cache_rows < 1) {
        return MP_FAIL(INVALID_ARGUMENT, "cos_cache and sin_cache have no row for any position");
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "rotary_%s", mp_dtype_word(r->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, count, 1), args, MP_BIND(mp_rotary_args, x, r->x.ref),
        MP_BIND(mp_rotary_args, out, r->out.ref), MP_BIND(mp_rotary_args, cosine, r->cosine),
        MP_BIND(mp_rotary_args, sine, r->sine), MP_BIND(mp_rotary_args, positions, r->positions));
}
