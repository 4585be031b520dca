/* pad_channels.c - PadChannels: images [batch, channels, d...] with few channels as [batch, d...,
 * channels], with zeros behind the channels up to 16 bytes, so that what computes on tensor cores
 * loads a pixel at once.
 *
 * No model names it.
 * Kernel: move/pad_channels.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/move_args.h"
#include "op/core/families.h"
#include "op/core/op.h"

static mp_status plan_pad_channels(mp_planner *p) {
    enum { BATCH, CHANNELS, INNER };
    const mp_tensor *x = &p->in[0];
    const size_t size = mp_dtype_size(x->type);
    const int64_t width = K_PIXEL_BYTES / (int64_t)size;
    const int rank = x->shape.rank;
    mp_shape shape = x->shape;
    char text[MP_SHAPE_TEXT];
    const mp_kernel *kernel = NULL;
    if (rank < INNER || x->shape.dim[CHANNELS] > width) {
        return MP_FAIL(INVALID_ARGUMENT, "images of shape %s have no channels, or more than %lld",
                       mp_shape_text(&x->shape, text), (long long)width);
    }
    for (int d = CHANNELS; d + 1 < rank; d++) {
        shape.dim[d] = x->shape.dim[d + 1];
    }
    shape.dim[rank - 1] = width;
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    const int64_t pixels = mp_shape_span(&x->shape, INNER, rank);
    const mp_shape space = {.rank = 2, .dim = {x->shape.dim[BATCH], pixels}};
    int64_t stride[1][MP_RANK_MAX] = {{x->shape.dim[CHANNELS] * pixels, 1}};
    mp_pad_channels_args args = {
        .count = mp_shape_count(&space), .channels = x->shape.dim[CHANNELS], .stride = pixels};
    MP_TRY(mp_layout_make(&space, stride, 1, &args.layout));
    MP_TRY(mp_plan_kernel(p, &kernel, "pad_channels_b%zu", size * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_pad_channels_args, x, MP_IN(0)),
                     MP_BIND(mp_pad_channels_args, out, MP_OUT(0)));
}

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "PadChannels",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .plan = plan_pad_channels},
};

const mp_op_family mp__family_pad_channels = {"pad_channels", ops, MP_COUNT_OF(ops)};
