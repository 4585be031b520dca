/* image_scaler.c - ImageScaler, whose bias is an attribute: it travels in the kernel's arguments,
 * some channels a launch.
 * Kernel: image/image_scaler.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/channel_args.h"
#include "op/core/families.h"

#include <string.h>

/* Channels [from, from + some). */
static mp_status scale_channels(mp_planner *p, const float *bias, int64_t from, int64_t some) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t place = mp_shape_span(x, 2, x->rank);
    const mp_shape space = {.rank = 3, .dim = {x->dim[0], some, place}};
    int64_t stride[2][MP_RANK_MAX] = {{x->dim[1] * place, place, 1}, {0, 1, 0}};
    mp_image_scaler_args args = {.count = mp_shape_count(&space),
                                 .scale = mp_node_float(p->node, "scale", 1)};
    const uint64_t skip = (uint64_t)(from * place) * mp_dtype_size(p->in[0].type);
    memcpy(args.bias, bias + from, (size_t)some * sizeof *bias);
    MP_TRY(mp_layout_make(&space, stride, 2, &args.layout));
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "image_scaler_%s", mp_dtype_word(p->in[0].type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_image_scaler_args, x, mp_ref_at(MP_IN(0), skip)),
                     MP_BIND(mp_image_scaler_args, out, mp_ref_at(MP_OUT(0), skip)));
}

static mp_status plan_image_scaler(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_attr *bias = mp_node_attr(p->node, "bias");
    const int64_t channels = x->shape.rank == 4 ? x->shape.dim[1] : -1;
    if (bias == NULL || (int64_t)bias->count != channels) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "bias has %zu values for input of shape %s; one for each channel of images "
                       "is needed",
                       bias != NULL ? bias->count : 0, mp_shape_text(&x->shape, text));
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    if (mp_shape_count(&x->shape) == 0) {
        return MP_OK;
    }
    for (int64_t from = 0; from < channels; from += K_SCALER_CHANNELS) {
        const int64_t left = channels - from;
        MP_TRY(scale_channels(p, bias->floats, from, MP_MIN(left, K_SCALER_CHANNELS)));
    }
    return MP_OK;
}

static const mp_attr_def attrs[] = {{"scale", MP_ATTR_FLOAT}, {"bias", MP_ATTR_FLOATS}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "ImageScaler",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_IEEE_FLOATS}},
     .in_place = {{0, 0}},
     .in_place_count = 1,
     .attrs = attrs,
     .plan = plan_image_scaler},
};

const mp_op_family mp__family_image_scaler = {"image_scaler", ops, MP_COUNT_OF(ops)};
