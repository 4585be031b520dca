/* conv.c - Conv and ConvTranspose, by library math, with channels first or last.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/pointwise/pointwise_steps.h"
#include "op/signal/signal_window.h"

#include <string.h>

/* Checks X, W and B against each other and fills in what both operators share. */
static mp_status describe(const mp_planner *p, bool transposed, mp_conv *conv, mp_window *window) {
    const mp_shape image = mp_shape_first(p, &p->in[0].shape);
    const mp_shape *x = &image;
    const mp_shape *w = &p->in[1].shape;
    const mp_tensor *bias = mp_plan_in(p, 2);
    const int64_t groups = mp_node_int(p->node, "group", 1);
    char x_text[MP_SHAPE_TEXT];
    char w_text[MP_SHAPE_TEXT];
    mp_shape_text(x, x_text);
    mp_shape_text(w, w_text);
    if (x->rank < 3 || x->rank != w->rank) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "X of shape %s and W of shape %s need the same rank, 3 to 5", x_text,
                       w_text);
    }
    MP_TRY(mp_window_read(p->node, x->rank - 2, &w->dim[2], window));
    MP_TRY(mp_window_check_input(window, &x->dim[2]));
    int64_t grouped = 0; /* channels on the side that W has divided by the groups */
    if (groups < 1 || __builtin_mul_overflow(w->dim[1], groups, &grouped) ||
        x->dim[1] != (transposed ? w->dim[0] : grouped) || w->dim[0] % groups != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s, W of shape %s and group %lld do not fit",
                       x_text, w_text, (long long)groups);
    }
    *conv = (mp_conv){
        .type = p->in[0].type,
        .transposed = transposed,
        .channels_last = mp_channels_last(p),
        .tf32 = p->node->options.tf32,
        .bias = bias != NULL,
        .spatial = window->spatial,
        .search = p->node->options.conv_search,
        .workspace_max = p->node->options.conv_workspace_max,
        .align = p->align,
        .batch = x->dim[0],
        .in_channels = x->dim[1],
        .out_channels = transposed ? grouped : w->dim[0],
        .groups = groups,
    };
    if (bias != NULL && (bias->shape.rank != 1 || bias->shape.dim[0] != conv->out_channels)) {
        return MP_FAIL(INVALID_ARGUMENT, "B of shape %s does not have %lld elements",
                       mp_shape_text(&bias->shape, x_text), (long long)conv->out_channels);
    }
    memcpy(conv->in, &x->dim[2], (size_t)window->spatial * sizeof(int64_t));
    return MP_OK;
}

/* Every output is a sum over nothing, and the bias. `out` as stored. */
static mp_status plan_bias_only(mp_planner *p, const mp_conv *conv, const mp_shape *out) {
    size_t bytes = 0;
    mp_shape bias = {.rank = 1 + conv->spatial, .dim = {conv->out_channels, 1, 1, 1}};
    if (mp_channels_last(p)) {
        bias.rank = 1;
    }
    MP_TRY(mp_shape_bytes(out, conv->type, &bytes));
    MP_TRY(mp_plan_fill(p, MP_OUT(0), 0, 1, bytes));
    return conv->bias ? mp_pointwise2(p, "add", conv->type, (mp_operand){MP_OUT(0), out},
                                      (mp_operand){MP_IN(2), &bias}, MP_OUT(0), out, 0, 0)
                      : MP_OK;
}

/* Weights come as ONNX has them, and a library wants them as the image. Constants are brought into
 * that order once. */
static mp_status prepare_weights(mp_planner *p, int i) {
    const mp_tensor *w = &p->in[i];
    if (i != 1 || !mp_channels_last(p) || w->shape.rank < 3 || w->shape.dim[1] == 1) {
        return MP_OK; /* one channel: both orders are the same */
    }
    MP_TRY(mp_plan_output(p, 0, w->type, &w->shape));
    return mp_plan_channels_to_last(p, w->type, &w->shape, MP_IN(i), MP_OUT(0));
}

/* Where the device has no such convolution with channels last, the tensors are transposed. */
static mp_status plan_channels_first(mp_planner *p, const mp_conv *conv, const mp_shape *out,
                                     const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_shape image = mp_shape_first(p, &p->in[0].shape);
    const mp_shape *w = &p->in[1].shape;
    mp_conv transposed = *conv;
    mp_ref own[MP_CONV_OPERANDS];
    transposed.channels_last = false;
    memcpy(own, operands, sizeof own);
    if (mp_node_prepared(p->node, 1)) {
        MP_TRY(mp_plan_scratch_shape(p, w, conv->type, &own[MP_CONV_W]));
        MP_TRY(mp_plan_channels_to_first(p, conv->type, w, operands[MP_CONV_W], own[MP_CONV_W]));
    }
    MP_TRY(mp_plan_scratch_shape(p, &image, conv->type, &own[MP_CONV_X]));
    MP_TRY(mp_plan_scratch_shape(p, out, conv->type, &own[MP_CONV_Y]));
    MP_TRY(mp_plan_channels_to_first(p, conv->type, &image, operands[MP_CONV_X], own[MP_CONV_X]));
    MP_TRY(mp_plan_conv(p, &transposed, own));
    return mp_plan_channels_to_last(p, conv->type, out, own[MP_CONV_Y], operands[MP_CONV_Y]);
}

static mp_status plan_last(mp_planner *p, const mp_conv *conv, const mp_shape *out,
                           const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_shape *w = &p->in[1].shape;
    mp_math *math = NULL;
    mp_ref own[MP_CONV_OPERANDS];
    mp_status status = mp_plan_conv_prepare(p, conv, &math);
    if (status == MP_UNSUPPORTED) {
        return plan_channels_first(p, conv, out, operands);
    }
    MP_TRY(status);
    memcpy(own, operands, sizeof own);
    if (mp_node_prepared(p->node, 1) || w->dim[1] == 1) {
        return mp_plan_conv_step(p, math, own);
    }
    status = mp_plan_scratch_shape(p, w, conv->type, &own[MP_CONV_W]);
    if (status == MP_OK) {
        status = mp_plan_channels_to_last(p, conv->type, w, operands[MP_CONV_W], own[MP_CONV_W]);
    }
    if (status != MP_OK) {
        mp_plan_conv_drop(p, math);
        return status;
    }
    return mp_plan_conv_step(p, math, own);
}

/* With conv->out known: the output, and the steps unless there is nothing to compute. */
static mp_status finish(mp_planner *p, mp_conv *conv, const mp_window *window) {
    mp_shape out = {.rank = 2 + conv->spatial, .dim = {conv->batch, conv->out_channels}};
    for (int d = 0; d < conv->spatial; d++) {
        out.dim[2 + d] = conv->out[d];
        conv->kernel[d] = window->kernel[d];
        conv->stride[d] = window->stride[d];
        conv->dilation[d] = window->dilation[d];
        conv->pad_begin[d] = window->pad_begin[d];
        conv->pad_end[d] = window->pad_end[d];
    }
    const mp_shape stored = mp_shape_stored(p, &out);
    MP_TRY(mp_plan_output(p, 0, conv->type, &stored));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    if (mp_shape_count(&p->in[0].shape) == 0) {
        return plan_bias_only(p, conv, &stored);
    }
    const mp_ref operands[MP_CONV_OPERANDS] = {
        [MP_CONV_X] = MP_IN(0),
        [MP_CONV_W] = MP_IN(1),
        [MP_CONV_Y] = MP_OUT(0),
        [MP_CONV_BIAS] = conv->bias ? MP_IN(2) : MP_NOWHERE,
    };
    return conv->channels_last ? plan_last(p, conv, &out, operands)
                               : mp_plan_conv(p, conv, operands);
}

static mp_status plan_conv(mp_planner *p) {
    mp_conv conv;
    mp_window window;
    MP_TRY(describe(p, false, &conv, &window));
    MP_TRY(mp_window_slide(&window, conv.in, conv.out));
    return finish(p, &conv, &window);
}

/* ---- ConvTranspose ---- */

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
    MP_TRY(describe(p, true, &conv, &window));
    MP_TRY(mp_window_ints(p->node, "output_padding", conv.spatial, 0, output_padding));
    MP_TRY(read_output_shape(p->node, conv.spatial, asked));
    for (int d = 0; d < conv.spatial; d++) {
        MP_TRY(transposed_size(&window, d, conv.in[d], output_padding[d], asked[d], &conv.out[d]));
    }
    return finish(p, &conv, &window);
}

static const mp_attr_def conv_attrs[] = {MP_WINDOW_ATTRS, {"group", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def transpose_attrs[] = {MP_WINDOW_ATTRS,
                                              {"group", MP_ATTR_INT},
                                              {"output_padding", MP_ATTR_INTS},
                                              {"output_shape", MP_ATTR_INTS},
                                              {NULL, 0}};

#define CONV(domain_)                                                                              \
    {                                                                                              \
        .domain = (domain_), .name = "Conv", .since = 1, .until = 22, .types = {{"T", MP_FLOATS}}, \
        .needs_conv = true, .attrs = conv_attrs, .plan = plan_conv, .prepare = prepare_weights     \
    }
#define CONV_TRANSPOSE(domain_)                                                    \
    {                                                                              \
        .domain = (domain_), .name = "ConvTranspose", .since = 1, .until = 22,     \
        .types = {{"T", MP_FLOATS}}, .needs_conv = true, .attrs = transpose_attrs, \
        .plan = plan_conv_transpose, .prepare = prepare_weights                    \
    }

static const mp_op ops[] = {
    CONV(""),
    CONV(MP_NHWC_DOMAIN),
    CONV_TRANSPOSE(""),
    CONV_TRANSPOSE(MP_NHWC_DOMAIN),
};

const mp_op_family mp__family_conv = {"conv", ops, MP_COUNT_OF(ops)};
