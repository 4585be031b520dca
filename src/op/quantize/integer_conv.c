/* integer_conv.c - ConvInteger and QLinearConv: for each image and group a product of the weights
 * with what the windows see, without that matrix being written down. Padding counts as the zero
 * point.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/quantize/integer_steps.h"
#include "op/signal/signal_window.h"

/* Where the inputs are; -1 for those an operator does not have. */
typedef struct roles {
    int x, w, x_zero, w_zero, x_scale, w_scale, out_scale, out_zero, bias;
} roles;

static const roles of_integer = {0, 1, 2, 3, -1, -1, -1, -1, -1};
static const roles of_linear = {0, 3, 2, 5, 1, 4, 6, 7, 8};

static const mp_tensor *input(const mp_planner *p, int i) {
    return i >= 0 ? mp_plan_in(p, i) : NULL;
}

static mp_ref ref_of(const mp_planner *p, int i) {
    return input(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

/* ---- what is asked ---- */

typedef struct conv {
    mp_window window;
    int64_t out[MP_SPATIAL_MAX];
    int64_t images, groups, channels; /* channels: of a group */
    mp_shape shape;                   /* of the result */
} conv;

static mp_status read_conv(const mp_planner *p, const mp_shape *x, const mp_shape *w, conv *c) {
    char image[MP_SHAPE_TEXT];
    char weights[MP_SHAPE_TEXT];
    const int spatial = x->rank - 2;
    c->groups = mp_node_int(p->node, "group", 1);
    if (spatial < 1 || spatial > MP_SPATIAL_MAX || w->rank != x->rank || c->groups < 1 ||
        x->dim[1] % c->groups != 0 || w->dim[0] % c->groups != 0 ||
        w->dim[1] != x->dim[1] / c->groups) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "an input of shape %s and weights of shape %s do not go together in %lld "
                       "groups; one to %d spatial dimensions are possible",
                       mp_shape_text(x, image), mp_shape_text(w, weights), (long long)c->groups,
                       MP_SPATIAL_MAX);
    }
    MP_TRY(mp_window_read_any(p->node, spatial, &w->dim[2], &c->window));
    MP_TRY(mp_window_slide(&c->window, &x->dim[2], c->out));
    c->images = x->dim[0];
    c->channels = w->dim[1];
    c->shape = (mp_shape){.rank = x->rank, .dim = {x->dim[0], w->dim[0]}};
    for (int d = 0; d < spatial; d++) {
        c->shape.dim[2 + d] = c->out[d];
    }
    return MP_OK;
}

/* Positions in an image, with its padding, are counted in 32 bits. */
static mp_status check_sizes(const conv *c, const mp_shape *x, int64_t rows, int64_t columns) {
    bool fits =
        rows <= INT32_MAX && columns <= INT32_MAX && mp_shape_span(x, 2, x->rank) <= INT32_MAX;
    for (int d = 0; d < c->window.spatial; d++) {
        fits = fits && c->window.stride[d] <= INT32_MAX &&
               x->dim[2 + d] + c->window.pad_begin[d] + c->window.pad_end[d] <= INT32_MAX / 2;
    }
    char text[MP_SHAPE_TEXT];
    return fits ? MP_OK
                : MP_FAIL(UNSUPPORTED,
                          "an image of shape %s with its padding and window is too large for a "
                          "convolution of integers",
                          mp_shape_text(x, text));
}

static mp_status make_window(const conv *c, const mp_shape *x, mp_integer_args *args) {
    k_integer_window *w = &args->window;
    const int skip = MP_SPATIAL_MAX - c->window.spatial;
    MP_TRY(check_sizes(c, x, args->k, args->n));
    for (int d = 0; d < MP_SPATIAL_MAX; d++) {
        const int from = d - skip;
        const bool there = from >= 0;
        w->in[d] = there ? (int32_t)x->dim[2 + from] : 1;
        w->kernel[d] = there ? (int32_t)c->window.kernel[from] : 1;
        w->out[d] = there ? (int32_t)c->out[from] : 1;
        w->stride[d] = there ? (int32_t)c->window.stride[from] : 1;
        w->dilation[d] = there && w->kernel[d] > 1 ? (int32_t)c->window.dilation[from] : 1;
        w->pad[d] = there ? (int32_t)c->window.pad_begin[from] : 0;
        w->by_kernel[d] = mp_divider((uint32_t)w->kernel[d]);
        w->by_out[d] = mp_divider((uint32_t)w->out[d]);
    }
    w->channels = c->channels;
    w->channel = mp_shape_span(x, 2, x->rank);
    return MP_OK;
}

/* ---- the operators ---- */

/* A is the weights, whose matrices are the groups; B the image, one matrix a group and image. */
static mp_status make_args(const mp_planner *p, const roles *at, const conv *c,
                           mp_integer_args *args) {
    const mp_tensor *x = &p->in[at->x];
    const mp_tensor *w = &p->in[at->w];
    k_integer_side *a = &args->side[0];
    const mp_shape batch = {.rank = 2, .dim = {c->images, c->groups}};
    int64_t stride[2][MP_RANK_MAX] = {{0, 1}, {c->groups, 1}};
    const int64_t filters = w->shape.dim[0];
    args->m = filters / c->groups;
    args->n = mp_shape_span(&c->shape, 2, c->shape.rank);
    args->k = mp_shape_span(&w->shape, 1, w->shape.rank);
    MP_TRY(mp_integer_lines(input(p, at->w_zero), "a zero point of the weights", filters, 1,
                            &a->zero_step, &a->zero_batch));
    MP_TRY(mp_integer_lines(input(p, at->w_scale), "a scale of the weights", filters, 1,
                            &a->scale_step, &a->scale_batch));
    a->zero_batch = a->zero_step * args->m;
    a->scale_batch = a->scale_step * args->m;
    args->bias_batch = args->m;
    a->flip = mp_integer_flip(w->type);
    args->side[1].flip = mp_integer_flip(x->type);
    MP_TRY(mp_layout_make(&batch, stride, 2, &args->batch));
    return make_window(c, &x->shape, args);
}

static mp_status check_single(const mp_planner *p, int i, const char *what) {
    const mp_tensor *tensor = input(p, i);
    return tensor == NULL || mp_shape_count(&tensor->shape) == 1
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s has %lld values; it has one", what,
                         (long long)mp_shape_count(&tensor->shape));
}

static mp_status check_values(const mp_planner *p, const roles *at, int64_t filters) {
    const mp_tensor *bias = input(p, at->bias);
    MP_TRY(check_single(p, at->x_zero, "the zero point of the input"));
    MP_TRY(check_single(p, at->x_scale, "the scale of the input"));
    MP_TRY(check_single(p, at->out_zero, "the zero point of the result"));
    MP_TRY(check_single(p, at->out_scale, "the scale of the result"));
    return bias == NULL || mp_shape_count(&bias->shape) == filters
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "the bias has %lld values for %lld filters",
                         (long long)mp_shape_count(&bias->shape), (long long)filters);
}

/* Windows of one element that take each position once see the image as it lies: a matrix with a row
 * for each channel. */
static bool is_product(const conv *c) {
    bool is = true;
    for (int d = 0; d < c->window.spatial; d++) {
        is = is && c->window.kernel[d] == 1 && c->window.stride[d] == 1 &&
             c->window.pad_begin[d] == 0 && c->window.pad_end[d] == 0;
    }
    return is;
}

static mp_status plan_conv(mp_planner *p) {
    const roles *at = p->node->op->detail;
    const bool linear = at == &of_linear;
    conv c;
    mp_integer_args args = {.kind = linear ? K_INTEGER_BYTE : K_INTEGER_I32};
    MP_TRY(read_conv(p, &p->in[at->x].shape, &p->in[at->w].shape, &c));
    MP_TRY(check_values(p, at, p->in[at->w].shape.dim[0]));
    MP_TRY(mp_plan_output(p, 0, linear ? p->in[at->out_zero].type : MP_I32, &c.shape));
    if (mp_shape_count(&c.shape) == 0) {
        return MP_OK;
    }
    MP_TRY(make_args(p, at, &c, &args));
    if (linear) {
        args.scale_type = mp_integer_scale(p->in[at->x_scale].type);
        args.out_flip = mp_integer_flip(p->in[at->out_zero].type) & 0xffu;
    }
    const mp_integer_refs refs = {
        .matrix = {MP_IN(at->w), MP_IN(at->x)},
        .zero = {ref_of(p, at->w_zero), ref_of(p, at->x_zero)},
        .scale = {ref_of(p, at->w_scale), ref_of(p, at->x_scale)},
        .bias = ref_of(p, at->bias),
        .out_scale = ref_of(p, at->out_scale),
        .out_zero = ref_of(p, at->out_zero),
        .out = MP_OUT(0),
    };
    return mp_plan_integer(p, is_product(&c) ? "product" : "conv", &args, &refs);
}

static const mp_attr_def attrs[] = {MP_WINDOW_ATTRS, {"group", MP_ATTR_INT}, {NULL, 0}};

enum { BYTES = MP_BIT(MP_I8) | MP_BIT(MP_U8), INT32 = MP_BIT(MP_I32) };

static const mp_op ops[] = {
    {.domain = "",
     .name = "ConvInteger",
     .since = 10,
     .until = 10,
     .types = {{"T1", BYTES}, {"T2", BYTES}, {"T3", INT32}},
     .attrs = attrs,
     .plan = plan_conv,
     .detail = &of_integer},
    {.domain = "",
     .name = "QLinearConv",
     .since = 10,
     .until = 10,
     .types = {{"T1", BYTES}, {"T2", BYTES}, {"T3", BYTES}, {"T4", INT32}},
     .attrs = attrs,
     .plan = plan_conv,
     .detail = &of_linear},
};

const mp_op_family mp__family_integer_conv = {"integer_conv", ops, MP_COUNT_OF(ops)};
