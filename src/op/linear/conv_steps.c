/* conv_steps.c - see conv_steps.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/conv_steps.h"

#include "op/core/channels.h"
#include "op/core/host_input.h"
#include "op/linear/conv_apart.h"
#include "op/linear/conv_columns.h"
#include "op/linear/conv_few.h"
#include "op/linear/conv_groups.h"
#include "op/linear/conv_rows.h"
#include "op/linear/conv_stem.h"
#include "op/linear/depthwise.h"
#include "op/linear/depthwise_line.h"
#include "op/linear/depthwise_planes.h"
#include "op/linear/depthwise_strip.h"
#include "op/linear/depthwise_volume.h"
#include "op/linear/epilogue_steps.h"
#include "op/linear/few_rows.h"
#include "op/linear/group_pixels.h"
#include "op/move/strided_copy.h"
#include "op/pointwise/pointwise_steps.h"

#include <string.h>

static const mp_conv_form *form_of(const mp_planner *p) {
    static const mp_conv_form usual = {.bias = 2};
    const mp_conv_form *form = p->node->op->detail;
    return form != NULL ? form : &usual;
}

/* The weights as ONNX has them, however they are stored. */
static mp_shape weights_of(const mp_planner *p, const mp_tensor *w) {
    return form_of(p)->weights_last ? mp_shape_first(p, &w->shape) : w->shape;
}

/* Padding that is an input takes the place of the attribute. */
static mp_status read_pads(const mp_planner *p, mp_window *window) {
    int64_t pads[2 * MP_SPATIAL_MAX];
    const int spatial = window->spatial, input = form_of(p)->pads;
    int count = -1;
    if (input > 0) {
        MP_TRY(mp_host_ints(p, input, "Pads", 2 * spatial, pads, &count));
    }
    if (count <= 0) {
        return MP_OK;
    }
    if (count != 2 * spatial) {
        return MP_FAIL(INVALID_ARGUMENT, "Pads has %d values where %d are needed", count,
                       2 * spatial);
    }
    for (int k = 0; k < count; k++) {
        if (pads[k] < 0 || pads[k] > 1 << 30) {
            return MP_FAIL(INVALID_ARGUMENT, "Pads has the value %lld; 0 to 2^30 are possible",
                           (long long)pads[k]);
        }
    }
    for (int d = 0; d < spatial && window->auto_pad == MP_PAD_NOTSET; d++) {
        window->pad_begin[d] = pads[d];
        window->pad_end[d] = pads[spatial + d];
    }
    return MP_OK;
}

mp_status mp_conv_describe(const mp_planner *p, bool transposed, mp_conv *conv, mp_window *window) {
    const mp_shape image = mp_shape_first(p, &p->in[0].shape);
    const mp_shape weights = weights_of(p, &p->in[1]);
    const mp_shape *x = &image;
    const mp_shape *w = &weights;
    const mp_tensor *bias = mp_plan_in(p, form_of(p)->bias);
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
    MP_TRY(read_pads(p, window));
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
        .x_pitch = p->in[0].pitch,
        .y_pitch = mp_plan_out_pitch(p, 0),
    };
    if (bias != NULL && (bias->shape.rank != 1 || bias->shape.dim[0] != conv->out_channels)) {
        return MP_FAIL(INVALID_ARGUMENT, "B of shape %s does not have %lld elements",
                       mp_shape_text(&bias->shape, x_text), (long long)conv->out_channels);
    }
    memcpy(conv->in, &x->dim[2], (size_t)window->spatial * sizeof(int64_t));
    return MP_OK;
}

/* Residual and activation are left to steps behind. */
static void leave_epilogue(mp_conv *conv) {
    conv->residual = conv->residual_behind = false;
    conv->activation = MP_ACTIVATION_NONE;
}

/* The same where a kernel of ours lacks the activation, or a residual behind it; `own` are the
 * operands that it has. */
static void leave_other(mp_conv *conv, const mp_ref operands[MP_CONV_OPERANDS],
                        mp_ref own[MP_CONV_OPERANDS]) {
    memcpy(own, operands, MP_CONV_OPERANDS * sizeof *own);
    if (conv->activation == MP_ACTIVATION_OTHER || conv->residual_behind) {
        leave_epilogue(conv);
        own[MP_CONV_RESIDUAL] = MP_NOWHERE;
    }
}

/* Every output is a sum over nothing, and the bias. `out` as stored. */
static mp_status plan_bias_only(mp_planner *p, mp_conv *conv, const mp_shape *out, mp_ref y) {
    size_t bytes = 0;
    mp_shape bias = {.rank = 1 + conv->spatial, .dim = {conv->out_channels, 1, 1, 1}};
    if (mp_channels_last(p)) {
        bias.rank = 1;
    }
    MP_TRY(mp_shape_bytes(out, conv->type, &bytes));
    MP_TRY(mp_plan_fill(p, y, 0, 1, bytes));
    leave_epilogue(conv);
    return conv->bias ? mp_pointwise2(p, "add", conv->type, (mp_operand){y, out},
                                      (mp_operand){MP_IN(form_of(p)->bias), &bias}, y, out, 0, 0)
                      : MP_OK;
}

/* Whether the kernel for single channels does it; only with channels last. */
static bool is_depthwise(const mp_planner *p, const mp_tensor *w) {
    const mp_shape shape = weights_of(p, w);
    return mp_channels_last(p) && strcmp(p->node->op->name, "ConvTranspose") != 0 &&
           mp_depthwise_takes(w->type, &shape, mp_node_int(p->node, "group", 1));
}

static mp_status plan_depthwise(mp_planner *p, mp_conv *conv,
                                const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_shape weights = weights_of(p, &p->in[1]), *w = &weights;
    mp_ref own[MP_CONV_OPERANDS];
    if (conv->residual && conv->y_pitch > 0) {
        leave_epilogue(conv);
    }
    leave_other(conv, operands, own);
    if (!mp_node_prepared(p->node, 1)) {
        MP_TRY(mp_plan_scratch_shape(p, w, conv->type, &own[MP_CONV_W]));
        MP_TRY(mp_depthwise_turn(p, conv->type, w, operands[MP_CONV_W], own[MP_CONV_W]));
    }
    return mp_depthwise_steps(p, conv, own);
}

/* Whether weights as they come are in the order of an image with channels last. */
static bool are_last(const mp_planner *p, const mp_shape *w) {
    return form_of(p)->weights_last || w->dim[1] == 1; /* one channel: both orders are the same */
}

/* Weights mostly come as ONNX has them, and a library wants them as the image. Constants are
 * brought into that order once. */
mp_status mp_conv_prepare_weights(mp_planner *p, int i) {
    const mp_tensor *w = &p->in[i];
    if (i != 1 || !mp_channels_last(p) || w->shape.rank < 3) {
        return MP_OK;
    }
    if (is_depthwise(p, w)) {
        const mp_shape shape = weights_of(p, w);
        MP_TRY(mp_plan_output(p, 0, w->type, &w->shape));
        return mp_depthwise_turn(p, w->type, &shape, MP_IN(i), MP_OUT(0));
    }
    if (are_last(p, &w->shape)) {
        return MP_OK;
    }
    MP_TRY(mp_plan_output(p, 0, w->type, &w->shape));
    return mp_plan_channels_to_last(p, w->type, &w->shape, MP_IN(i), MP_OUT(0));
}

/* What stays in `conv` is what the device does. */
static mp_status prepare(mp_planner *p, mp_conv *conv, mp_math **out) {
    bool whole = true;
    const mp_status status = mp_plan_conv_prepare(p, conv, out, &whole);
    if (status != MP_OK || !whole) {
        leave_epilogue(conv);
    }
    return status;
}

/* By the device's library; as products where it refuses the description, which has been checked
 * here: a library may have no kernel for a type, a dilation or a size. With channels first. */
static mp_status plan_library(mp_planner *p, mp_conv *conv,
                              const mp_ref operands[MP_CONV_OPERANDS]) {
    mp_math *math = NULL;
    const mp_status status = prepare(p, conv, &math);
    if (status == MP_UNSUPPORTED || status == MP_INVALID_ARGUMENT) {
        return mp_conv_columns_steps(p, conv, operands);
    }
    MP_TRY(status);
    return mp_plan_conv_step(p, math, operands);
}

/* Where the device has no such convolution with channels last, the tensors are transposed. */
static mp_status plan_channels_first(mp_planner *p, const mp_conv *conv, const mp_shape *out,
                                     const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_shape image = mp_shape_first(p, &p->in[0].shape);
    const mp_shape weights = weights_of(p, &p->in[1]), *w = &weights;
    mp_conv transposed = *conv;
    mp_ref own[MP_CONV_OPERANDS];
    transposed.channels_last = false;
    memcpy(own, operands, sizeof own);
    if (mp_node_prepared(p->node, 1) || form_of(p)->weights_last) {
        MP_TRY(mp_plan_scratch_shape(p, w, conv->type, &own[MP_CONV_W]));
        MP_TRY(mp_plan_channels_to_first(p, conv->type, w, operands[MP_CONV_W], own[MP_CONV_W]));
    }
    MP_TRY(mp_plan_scratch_shape(p, &image, conv->type, &own[MP_CONV_X]));
    MP_TRY(mp_plan_scratch_shape(p, out, conv->type, &own[MP_CONV_Y]));
    MP_TRY(mp_plan_channels_to_first(p, conv->type, &image, operands[MP_CONV_X], own[MP_CONV_X]));
    MP_TRY(plan_library(p, &transposed, own));
    return mp_plan_channels_to_last(p, conv->type, out, own[MP_CONV_Y], operands[MP_CONV_Y]);
}

/* By the kernel for few channels, which takes it. */
static mp_status plan_stem(mp_planner *p, mp_conv *conv, mp_stem_form form,
                           const mp_ref operands[MP_CONV_OPERANDS]) {
    mp_ref own[MP_CONV_OPERANDS];
    leave_other(conv, operands, own);
    return mp_conv_stem_steps(p, conv, form, own);
}

/* The weights as the image: their channels last. */
static mp_status turn_weights(mp_planner *p, const mp_conv *conv, mp_ref *w) {
    const mp_shape *shape = &p->in[1].shape;
    const mp_ref first = *w;
    if (mp_node_prepared(p->node, 1) || are_last(p, shape)) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_shape(p, shape, conv->type, w));
    return mp_plan_channels_to_last(p, conv->type, shape, first, *w);
}

static mp_status plan_groups(mp_planner *p, mp_conv *conv,
                             const mp_ref operands[MP_CONV_OPERANDS]) {
    mp_ref own[MP_CONV_OPERANDS];
    leave_other(conv, operands, own);
    MP_TRY(turn_weights(p, conv, &own[MP_CONV_W]));
    return mp_conv_groups_steps(p, conv, own);
}

/* Whether a transposed convolution makes lines of one channel, such as the sound behind a mask. A
 * library's tensor cores would make seven more of each; what few windows overlap is few sums. */
static bool makes_one_line(const mp_conv *conv) {
    enum { OVERLAP_MAX = 4, LENGTH_MAX = 1 << 24, CHANNELS_MIN = 32 };
    return conv->transposed && conv->out_channels == 1 && conv->groups == 1 &&
           !mp_conv_has_epilogue(conv) && conv->spatial == 2 && conv->in[0] == 1 &&
           conv->out[0] == 1 && conv->kernel[0] == 1 && conv->in_channels >= CHANNELS_MIN &&
           conv->dilation[1] == 1 && conv->stride[1] > 1 &&
           conv->kernel[1] <= OVERLAP_MAX * MP_MIN(conv->stride[1], LENGTH_MAX) &&
           conv->in[1] <= LENGTH_MAX && conv->batch <= LENGTH_MAX;
}

static mp_stem_form last_form(const mp_planner *p) {
    const bool w_last = mp_node_prepared(p->node, 1) || are_last(p, &p->in[1].shape);
    return (mp_stem_form){.x_last = true, .w_last = w_last, .y_last = true};
}

static mp_status plan_last(mp_planner *p, mp_conv *conv, const mp_shape *out,
                           const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_stem_form form = last_form(p);
    mp_math *math = NULL;
    mp_ref own[MP_CONV_OPERANDS];
    if (mp_conv_stem_takes(p, conv, form)) {
        return plan_stem(p, conv, form, operands);
    }
    if (mp_conv_groups_takes(p, conv)) {
        return plan_groups(p, conv, operands);
    }
    if (mp_conv_rows_takes(conv)) {
        memcpy(own, operands, sizeof own);
        MP_TRY(turn_weights(p, conv, &own[MP_CONV_W]));
        return mp_conv_rows_steps(p, conv, own);
    }
    if (makes_one_line(conv)) {
        return mp_conv_columns_steps(p, conv, operands);
    }
    mp_status status = prepare(p, conv, &math);
    if (status == MP_UNSUPPORTED) {
        return plan_channels_first(p, conv, out, operands);
    }
    MP_TRY(status);
    memcpy(own, operands, sizeof own);
    status = turn_weights(p, conv, &own[MP_CONV_W]);
    if (status != MP_OK) {
        mp_plan_conv_drop(p, math);
        return status;
    }
    return mp_plan_conv_step(p, math, own);
}

/* ---- single pixels ---- */

/* Whether planes are multiplied where they lie, so that nothing is turned: types of two bytes,
 * which a product reads by 16 bytes. */
static bool are_planes(const mp_conv *conv) {
    const int64_t pack = 8;
    return (conv->type == MP_F16 || conv->type == MP_BF16) && conv->groups == 1 &&
           mp_conv_is_of_pixels(conv) && !conv->bias && !mp_conv_has_epilogue(conv) &&
           conv->align >= 16 && conv->in_channels % pack == 0 && mp_conv_pixels(conv) % pack == 0;
}

/* For each image [out_channels, in_channels] x [in_channels, pixels]. */
static mp_status plan_planes(mp_planner *p, const mp_conv *conv,
                             const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_ref own[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = operands[MP_CONV_W],
                                          [MP_GEMM_B] = operands[MP_CONV_X],
                                          [MP_GEMM_C] = operands[MP_CONV_Y]};
    const int64_t pixels = mp_conv_pixels(conv);
    const mp_gemm gemm = {.type = conv->type,
                          .m = conv->out_channels,
                          .n = pixels,
                          .k = conv->in_channels,
                          .lda = conv->in_channels,
                          .ldb = pixels,
                          .ldc = pixels,
                          .batch = conv->batch,
                          .stride_b = conv->in_channels * pixels,
                          .stride_c = conv->out_channels * pixels,
                          .alpha = 1,
                          .align = conv->align};
    return mp_plan_gemm(p, &gemm, own);
}

/* ---- long windows of groups ---- */

/* Channels of a group; images, which are multiplied one behind the other. */
enum { LONG_TAPS = 32, GROUP_MIN = 8, IMAGES_MAX = 4 };

/* Libraries have kernels for groups that are made for small windows: one image of long ones took
 * five times as long as products of what its taps read. */
static bool are_long_groups(const mp_conv *conv) {
    int64_t taps = 1;
    for (int d = 0; d < conv->spatial; d++) {
        taps = MP_MIN(taps * MP_MIN(conv->kernel[d], INT32_MAX), INT32_MAX);
    }
    return conv->groups > 1 && !conv->transposed && taps >= LONG_TAPS &&
           conv->batch <= IMAGES_MAX && conv->in_channels / conv->groups >= GROUP_MIN &&
           conv->out_channels / conv->groups >= GROUP_MIN;
}

/* ---- which way ---- */

/* A sum of few taps for each output, or over few channels, leaves a library's products idle, and
 * its kernels for that are several times as slow as memory; so those that networks have, and those
 * of few outputs, go to kernels of ours. Windows that lie side by side are a product, and one pass
 * over what it makes; libraries turn all tensors to have their channels last, and back. All else is
 * the library's. The emulated device's own loops over planes are faster than its kernel. */
static mp_status plan_first(mp_planner *p, mp_conv *conv, const mp_ref operands[MP_CONV_OPERANDS]) {
    const bool is_gpu = p->device->info.arch > 0;
    mp_ref own[MP_CONV_OPERANDS];
    if (mp_conv_few_takes(p, conv)) {
        return mp_conv_few_steps(p, conv, operands);
    }
    if (is_gpu && mp_depthwise_strip_takes(conv)) {
        leave_other(conv, operands, own);
        return mp_depthwise_strip_steps(p, conv, own);
    }
    if (is_gpu && mp_depthwise_planes_takes(conv)) {
        leave_other(conv, operands, own);
        return mp_depthwise_planes_steps(p, conv, own);
    }
    if (is_gpu && mp_depthwise_volume_takes(conv)) {
        leave_other(conv, operands, own);
        return mp_depthwise_volume_steps(p, conv, own);
    }
    if (mp_conv_apart_takes(conv)) {
        return mp_conv_apart_steps(p, conv, operands);
    }
    if (is_gpu && are_long_groups(conv)) {
        leave_epilogue(conv);
        const mp_status status = mp_conv_columns_steps(p, conv, operands);
        if (status != MP_UNSUPPORTED) { /* it is too large for 32 bits */
            return status;
        }
    }
    if (mp_conv_stem_takes(p, conv, (mp_stem_form){0})) {
        return plan_stem(p, conv, (mp_stem_form){0}, operands);
    }
    return are_planes(conv) ? plan_planes(p, conv, operands) : plan_library(p, conv, operands);
}

/* With channels last a convolution of single pixels is one product; of few channels, whose rows a
 * library reads element by element, a kernel of ours makes it. */
static mp_status plan_pixels(mp_planner *p, mp_conv *done, const mp_shape *out,
                             const mp_ref operands[MP_CONV_OPERANDS]) {
    if (done->residual_behind || (done->residual && done->y_pitch > 0)) {
        leave_epilogue(done);
    }
    const mp_ref own[MP_GEMM_OPERANDS] = {[MP_GEMM_A] = operands[MP_CONV_X],
                                          [MP_GEMM_B] = operands[MP_CONV_W],
                                          [MP_GEMM_C] = operands[MP_CONV_Y],
                                          [MP_GEMM_D] = operands[MP_CONV_RESIDUAL],
                                          [MP_GEMM_BIAS] = operands[MP_CONV_BIAS]};
    mp_gemm gemm = {.type = done->type,
                    .trans_b = true,
                    .tf32 = done->tf32,
                    .bias = done->bias,
                    .activation = done->activation,
                    .activation_alpha = done->alpha,
                    .activation_beta = done->beta,
                    .m = mp_shape_count(out) / done->out_channels,
                    .n = done->out_channels,
                    .k = done->in_channels,
                    .lda = done->x_pitch > 0 ? done->x_pitch : done->in_channels,
                    .ldb = done->in_channels,
                    .ldc = done->y_pitch > 0 ? done->y_pitch : done->out_channels,
                    .batch = 1,
                    .alpha = 1,
                    .beta = done->residual ? 1.0F : 0.0F,
                    .align = done->align};
    const mp_status status = mp_plan_some_rows(p, &gemm, own);
    if (status != MP_UNSUPPORTED || done->activation == MP_ACTIVATION_NONE) {
        return status;
    }
    leave_epilogue(done);
    gemm.activation = MP_ACTIVATION_NONE;
    gemm.beta = 0;
    return mp_plan_gemm(p, &gemm, own);
}

static bool takes_pixels(const mp_planner *p, const mp_conv *conv) {
    return conv->channels_last && conv->groups == 1 && mp_conv_is_of_pixels(conv) &&
           !mp_conv_stem_takes(p, conv, last_form(p));
}

static void name_operands(const mp_planner *p, const mp_conv *conv, mp_ref x, mp_ref y,
                          mp_ref operands[MP_CONV_OPERANDS]) {
    operands[MP_CONV_X] = x;
    operands[MP_CONV_W] = MP_IN(1);
    operands[MP_CONV_Y] = y;
    operands[MP_CONV_BIAS] = conv->bias ? MP_IN(form_of(p)->bias) : MP_NOWHERE;
    operands[MP_CONV_RESIDUAL] = conv->residual ? MP_IN(3) : MP_NOWHERE;
}

/* The convolution of `x` at `y`, as far as `done` says; the rest of the epilogue is taken out of
 * that. */
static mp_status plan_product(mp_planner *p, mp_conv *done, const mp_shape *out, mp_ref x,
                              mp_ref y) {
    mp_ref operands[MP_CONV_OPERANDS];
    name_operands(p, done, x, y, operands);
    if (is_depthwise(p, &p->in[1])) {
        return plan_depthwise(p, done, operands);
    }
    if (mp_group_pixels_takes(done)) {
        const mp_shape stored = mp_shape_stored(p, out);
        return mp_group_pixels_steps(p, done, &stored, operands);
    }
    if (takes_pixels(p, done)) {
        return plan_pixels(p, done, out, operands);
    }
    return done->channels_last ? plan_last(p, done, out, operands) : plan_first(p, done, operands);
}

/* A line is an image of one row: both are stored alike. */
static mp_conv as_picture(const mp_conv *line) {
    mp_conv conv = *line;
    conv.spatial = 2;
    conv.in[1] = line->in[0];
    conv.out[1] = line->out[0];
    conv.kernel[1] = line->kernel[0];
    conv.stride[1] = line->stride[0];
    conv.dilation[1] = line->dilation[0];
    conv.pad_begin[1] = line->pad_begin[0];
    conv.pad_end[1] = line->pad_end[0];
    conv.in[0] = conv.out[0] = conv.kernel[0] = conv.stride[0] = conv.dilation[0] = 1;
    conv.pad_begin[0] = conv.pad_end[0] = 0;
    return conv;
}

/* ---- pixels that lie apart ---- */

/* Whether a way of doing it is one that knows of them. */
static bool takes_apart(const mp_planner *p, const mp_conv *conv) {
    return is_depthwise(p, &p->in[1]) ? !mp_depthwise_line_takes(conv) : takes_pixels(p, conv);
}

/* Rows of `shape` from where they lie apart to where they do not, or back. */
static mp_status copy_rows(mp_planner *p, const mp_shape *shape, mp_dtype type, mp_ref source,
                           int64_t source_pitch, mp_ref target, int64_t target_pitch) {
    const mp_tensor from = {.shape = *shape, .pitch = source_pitch};
    const mp_tensor to = {.shape = *shape, .pitch = target_pitch};
    mp_strided source_at = {.ref = source}, target_at = {.ref = target};
    mp_tensor_strides(&from, source_at.stride);
    mp_tensor_strides(&to, target_at.stride);
    return mp_plan_strided_copy(p, shape, mp_dtype_size(type), &source_at, &target_at);
}

/* With an image, and at `*y` a result, that do not. */
static mp_status plan_gathered(mp_planner *p, mp_conv *done, const mp_shape *out,
                               const mp_shape *stored, mp_ref *y) {
    const mp_shape *image = &p->in[0].shape;
    mp_ref x = MP_IN(0);
    if (done->x_pitch > 0) {
        MP_TRY(mp_plan_scratch_shape(p, image, done->type, &x));
        MP_TRY(copy_rows(p, image, done->type, MP_IN(0), done->x_pitch, x, 0));
    }
    if (done->y_pitch > 0) {
        MP_TRY(mp_plan_scratch_shape(p, stored, done->type, y));
    }
    done->x_pitch = done->y_pitch = 0;
    return mp_shape_count(image) > 0 ? plan_product(p, done, out, x, *y)
                                     : plan_bias_only(p, done, stored, *y);
}

/* As plan_product, wherever image and result lie; `*y` is elsewhere then if it has to be. */
static mp_status plan_image(mp_planner *p, mp_conv *done, const mp_shape *out,
                            const mp_shape *stored, mp_ref *y) {
    if (mp_shape_count(&p->in[0].shape) > 0 && (!mp_conv_is_apart(done) || takes_apart(p, done))) {
        mp_conv own = *done;
        const mp_status status = plan_product(p, &own, out, MP_IN(0), *y);
        if (status != MP_UNSUPPORTED || !mp_conv_is_apart(done)) {
            *done = own;
            return status;
        }
    }
    return plan_gathered(p, done, out, stored, y);
}

/* A residual that is repeated, or repeats the result, is added by a step of ours. Kernels for
 * channels last know pictures. */
static mp_status plan_steps(mp_planner *p, const mp_conv *conv, const mp_shape *out,
                            const mp_shape *stored, const mp_shape *result) {
    mp_conv done = conv->channels_last && conv->spatial == 1 ? as_picture(conv) : *conv;
    mp_ref y = MP_OUT(0);
    if (conv->residual && !mp_shape_equal(&p->in[3].shape, stored)) {
        leave_epilogue(&done);
    }
    if (!mp_shape_equal(result, stored)) {
        MP_TRY(mp_plan_scratch_shape(p, stored, conv->type, &y));
        done.y_pitch = 0;
    }
    MP_TRY(plan_image(p, &done, out, stored, &y));
    if (mp_conv_has_epilogue(conv) && !mp_conv_has_epilogue(&done)) {
        return mp_epilogue_steps(p, conv, (mp_operand){y, stored}, (mp_operand){.shape = NULL},
                                 MP_OUT(0), conv->y_pitch, result);
    }
    return y.place == MP_PLACE_OUT
               ? MP_OK
               : copy_rows(p, stored, conv->type, y, 0, MP_OUT(0), conv->y_pitch);
}

/* The output's shape, with channels first, and what the window says. */
static mp_shape complete(mp_conv *conv, const mp_window *window) {
    mp_shape out = {.rank = 2 + conv->spatial, .dim = {conv->batch, conv->out_channels}};
    for (int d = 0; d < conv->spatial; d++) {
        out.dim[2 + d] = conv->out[d];
        conv->kernel[d] = window->kernel[d];
        conv->stride[d] = window->stride[d];
        conv->dilation[d] = window->dilation[d];
        conv->pad_begin[d] = window->pad_begin[d];
        conv->pad_end[d] = window->pad_end[d];
    }
    return out;
}

mp_status mp_conv_finish(mp_planner *p, mp_conv *conv, const mp_window *window) {
    const mp_shape out = complete(conv, window);
    const mp_shape stored = mp_shape_stored(p, &out);
    mp_shape result = stored;
    if (conv->residual) {
        MP_TRY(mp_shape_broadcast(&stored, &p->in[3].shape, &result));
    }
    MP_TRY(mp_plan_output(p, 0, conv->type, &result));
    return mp_shape_count(&out) > 0 && mp_shape_count(&result) > 0
               ? plan_steps(p, conv, &out, &stored, &result)
               : MP_OK;
}

/* ---- from channels first to channels last ---- */

/* By the kernel that does both, or one after the other. */
static mp_status plan_turned(mp_planner *p, mp_conv *done, const mp_shape *out) {
    const mp_stem_form form = {.y_last = true};
    const bool is_some = mp_shape_count(&p->in[0].shape) > 0;
    mp_ref operands[MP_CONV_OPERANDS], y = MP_NOWHERE;
    name_operands(p, done, MP_IN(0), MP_OUT(0), operands);
    if (is_some && mp_conv_stem_takes(p, done, form)) {
        return plan_stem(p, done, form, operands);
    }
    MP_TRY(mp_plan_scratch_shape(p, out, done->type, &y));
    MP_TRY(is_some ? plan_product(p, done, out, MP_IN(0), y) : plan_bias_only(p, done, out, y));
    return mp_plan_channels_to_last(p, done->type, out, y, MP_OUT(0));
}

mp_status mp_conv_finish_turned(mp_planner *p, mp_conv *conv, const mp_window *window) {
    const mp_shape out = complete(conv, window), last = mp_shape_last(&out);
    MP_TRY(mp_plan_output(p, 0, conv->type, &last));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    mp_conv done = *conv;
    MP_TRY(plan_turned(p, &done, &out));
    if (!mp_conv_has_epilogue(conv) || mp_conv_has_epilogue(&done)) {
        return MP_OK;
    }
    return mp_epilogue_steps(p, conv, (mp_operand){MP_OUT(0), &last}, (mp_operand){.shape = NULL},
                             MP_OUT(0), 0, &last);
}
