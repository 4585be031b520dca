/* conv_transpose.c - ConvTranspose, and com.microsoft's form of it whose padding is an input.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/linear/conv_steps.h"

#include <string.h>

/* The output size of dimension d; settles its padding. `asked` is 0 where the model leaves the
 * size open. Fails: INVALID_ARGUMENT for a size whose convolution would not give the input's. */
static mp_status transposed_size(mp_window *window, int d, int64_t in, int64_t output_padding,
                                 int64_t asked, int64_t *out) {
    const int64_t stride = window->stride[d];
    const int64_t whole = stride * (in - 1) + output_padding + mp_window_extent(window, d);
    const bool same =
        window->auto_pad == MP_PAD_SAME_UPPER || window->auto_pad == MP_PAD_SAME_LOWER;
    if (asked == 0 && !same) {
        *out = whole - window->pad_begin[d] - window->pad_end[d];
    } else {
        /* ONNX says in * stride for SAME, ONNX Runtime no more than the input reaches over. */
        *out = asked != 0 ? asked : MP_MIN(whole, in * stride);
        const int64_t total = whole > *out ? whole - *out : 0;
        const bool upper = window->auto_pad == MP_PAD_SAME_UPPER;
        window->pad_begin[d] = upper ? total / 2 : total - total / 2;
        window->pad_end[d] = total - window->pad_begin[d];
    }
    if (*out < 0 || output_padding < 0 || *out - whole >= stride) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "spatial dimension %d would have %lld elements, with an output_padding of "
                       "%lld; the input has %lld and reaches over %lld",
                       d, (long long)*out, (long long)output_padding, (long long)in,
                       (long long)whole);
    }
    return MP_OK;
}

/* output_shape may or may not include the batch and the channels. */
static mp_status read_output_shape(const mp_node *node, int spatial, int64_t *out) {
    const mp_attr *attr = mp_node_attr(node, "output_shape");
    if (attr == NULL || attr->count == 0) {
        memset(out, 0, (size_t)spatial * sizeof *out);
        return MP_OK;
    }
    const size_t wanted = (size_t)spatial;
    if (attr->count != wanted && attr->count != wanted + 2) {
        return MP_FAIL(INVALID_ARGUMENT, "output_shape has %zu values where %d are needed",
                       attr->count, spatial);
    }
    for (size_t d = 0; d < wanted; d++) {
        out[d] = attr->ints[attr->count - wanted + d];
        if (out[d] < 0 || out[d] > INT64_MAX / 4) {
            return MP_FAIL(INVALID_ARGUMENT, "output_shape has the value %lld", (long long)out[d]);
        }
    }
    return MP_OK;
}

static mp_status plan_conv_transpose(mp_planner *p) {
    mp_conv conv;
    mp_window window;
    int64_t output_padding[MP_SPATIAL_MAX] = {0};
    int64_t asked[MP_SPATIAL_MAX] = {0};
    MP_TRY(mp_conv_describe(p, true, &conv, &window));
    MP_TRY(mp_window_ints(p->node, "output_padding", conv.spatial, 0, output_padding));
    MP_TRY(read_output_shape(p->node, conv.spatial, asked));
    for (int d = 0; d < conv.spatial; d++) {
        MP_TRY(transposed_size(&window, d, conv.in[d], output_padding[d], asked[d], &conv.out[d]));
    }
    return mp_conv_finish(p, &conv, &window);
}

static const mp_attr_def transpose_attrs[] = {MP_WINDOW_ATTRS,
                                              {"group", MP_ATTR_INT},
                                              {"output_padding", MP_ATTR_INTS},
                                              {"output_shape", MP_ATTR_INTS},
                                              {NULL, 0}};

static const mp_attr_def dynamic_attrs[] = {
    MP_WINDOW_ATTRS, {"group", MP_ATTR_INT}, {"output_padding", MP_ATTR_INTS}, {NULL, 0}};
static const mp_conv_form dynamic_pads = {.bias = 3, .pads = 2};

#define CONV_TRANSPOSE(domain_)                                                    \
    {                                                                              \
        .domain = (domain_), .name = "ConvTranspose", .since = 1, .until = 22,     \
        .types = {{"T", MP_FLOATS}}, .needs_conv = true, .attrs = transpose_attrs, \
        .plan = plan_conv_transpose, .prepare = mp_conv_prepare_weights            \
    }

static const mp_op ops[] = {
    CONV_TRANSPOSE(""),
    CONV_TRANSPOSE(MP_NHWC_DOMAIN),
    {.domain = "com.microsoft",
     .name = "ConvTransposeWithDynamicPads",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_IEEE_FLOATS}},
     .host_in = 1u << 2,
     .needs_conv = true,
     .attrs = dynamic_attrs,
     .plan = plan_conv_transpose,
     .prepare = mp_conv_prepare_weights,
     .detail = &dynamic_pads},
};

const mp_op_family mp__family_conv_transpose = {"conv_transpose", ops, MP_COUNT_OF(ops)};
