/* deform_conv.c - DeformConv: a convolution whose taps are moved by offsets that are an input. The
 * moved taps are laid out as columns, some images at a time, and multiplied by the weights.
 * Kernel: linear/deform_columns.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/linear/linear_args.h"
#include "op/core/families.h"
#include "op/linear/product_steps.h"
#include "op/pointwise/pointwise_steps.h"
#include "op/signal/signal_window.h"

/* Columns of one pass: enough to fill a GPU, a bound on the scratch memory. */
#define PASS_BYTES ((int64_t)128 << 20)

enum { X, W, OFFSET, BIAS, MASK };

typedef struct deform {
    mp_deform_args args; /* of one image */
    int64_t columns;     /* elements of it */
    int64_t batch, outputs, groups;
    mp_shape out;
} deform;

static mp_status check_size(const mp_planner *p, int i, const char *name, int rank,
                            const int64_t *wanted) {
    const mp_tensor *given = mp_plan_in(p, i);
    mp_shape shape = {.rank = rank};
    char given_text[MP_SHAPE_TEXT];
    char wanted_text[MP_SHAPE_TEXT];
    for (int d = 0; d < rank; d++) {
        shape.dim[d] = wanted[d];
    }
    return given == NULL || mp_shape_equal(&given->shape, &shape)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s has the shape %s where %s is needed", name,
                         mp_shape_text(&given->shape, given_text),
                         mp_shape_text(&shape, wanted_text));
}

static mp_status check_channels(const mp_shape *x, const mp_shape *w, int64_t groups,
                                int64_t offset_groups) {
    int64_t grouped = 0;
    char x_text[MP_SHAPE_TEXT];
    char w_text[MP_SHAPE_TEXT];
    if (groups < 1 || offset_groups < 1 || __builtin_mul_overflow(w->dim[1], groups, &grouped) ||
        x->dim[1] != grouped || w->dim[0] % groups != 0 || x->dim[1] % offset_groups != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "X of shape %s, W of shape %s, group %lld and offset_group %lld do not fit",
                       mp_shape_text(x, x_text), mp_shape_text(w, w_text), (long long)groups,
                       (long long)offset_groups);
    }
    return MP_OK;
}

static mp_status describe(const mp_planner *p, deform *d) {
    const mp_shape *x = &p->in[X].shape, *w = &p->in[W].shape;
    const int64_t offset_groups = mp_node_int(p->node, "offset_group", 1);
    mp_window window;
    int64_t size[2] = {0, 0};
    if (x->rank != 4 || w->rank != 4) {
        return MP_FAIL(UNSUPPORTED,
                       "DeformConv over images of two dimensions needs X and W of rank "
                       "4, not %d and %d",
                       (int)x->rank, (int)w->rank);
    }
    d->groups = mp_node_int(p->node, "group", 1);
    MP_TRY(check_channels(x, w, d->groups, offset_groups));
    MP_TRY(mp_window_read(p->node, 2, &w->dim[2], &window));
    MP_TRY(mp_window_check_input(&window, &x->dim[2]));
    MP_TRY(mp_window_slide_over(&window, &x->dim[2], false, size));
    d->batch = x->dim[0];
    d->outputs = w->dim[0];
    d->out = (mp_shape){.rank = 4, .dim = {d->batch, d->outputs, size[0], size[1]}};
    d->args = (mp_deform_args){.channels = x->dim[1],
                               .offset_groups = offset_groups,
                               .in_h = x->dim[2],
                               .in_w = x->dim[3],
                               .out_h = size[0],
                               .out_w = size[1],
                               .kernel_h = window.kernel[0],
                               .kernel_w = window.kernel[1],
                               .stride_h = window.stride[0],
                               .stride_w = window.stride[1],
                               .dilation_h = window.dilation[0],
                               .dilation_w = window.dilation[1],
                               .pad_h = window.pad_begin[0],
                               .pad_w = window.pad_begin[1]};
    const int64_t taps = window.kernel[0] * window.kernel[1];
    int64_t moved = 0;
    if (__builtin_mul_overflow(offset_groups, taps, &moved) || moved > INT64_MAX / 2) {
        return MP_FAIL(INVALID_ARGUMENT, "offset_group %lld with %lld taps is too large",
                       (long long)offset_groups, (long long)taps);
    }
    MP_TRY(check_size(p, OFFSET, "offset", 4, (int64_t[]){d->batch, 2 * moved, size[0], size[1]}));
    MP_TRY(check_size(p, BIAS, "B", 1, (int64_t[]){d->outputs}));
    return check_size(p, MASK, "mask", 4, (int64_t[]){d->batch, moved, size[0], size[1]});
}

/* An input's image number `image`, all images of it being alike. */
static mp_ref image_of(const mp_planner *p, int i, int64_t image) {
    const mp_tensor *in = mp_plan_in(p, i);
    const mp_ref none = MP_NOWHERE;
    if (in == NULL) {
        return none;
    }
    const size_t bytes =
        (size_t)mp_shape_span(&in->shape, 1, in->shape.rank) * mp_dtype_size(in->type);
    return mp_ref_at(MP_IN(i), bytes * (uint64_t)image);
}

static mp_status columns(mp_planner *p, const deform *d, int64_t first, int64_t images,
                         mp_ref target) {
    const mp_kernel *kernel = NULL;
    mp_deform_args args = d->args;
    args.count *= images;
    args.wide = args.count > INT32_MAX;
    if (!args.wide) {
        args.by_points = mp_divider((uint32_t)(args.out_h * args.out_w));
        args.by_taps = mp_divider((uint32_t)(args.kernel_h * args.kernel_w));
        args.by_pieces = mp_divider((uint32_t)args.pieces);
        args.by_out_w = mp_divider((uint32_t)args.out_w);
        args.by_kernel_w = mp_divider((uint32_t)args.kernel_w);
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "deform_columns_%s", mp_dtype_word(p->in[X].type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_deform_args, x, image_of(p, X, first)),
                     MP_BIND(mp_deform_args, offset, image_of(p, OFFSET, first)),
                     MP_BIND(mp_deform_args, mask, image_of(p, MASK, first)),
                     MP_BIND(mp_deform_args, columns, target));
}

/* weights x columns: of one image in all its groups, or of several images that have one group. */
static mp_status product(mp_planner *p, const deform *d, int64_t first, int64_t images,
                         mp_ref source) {
    const int64_t m = d->outputs / d->groups, n = d->args.out_h * d->args.out_w;
    const int64_t k = mp_shape_span(&p->in[W].shape, 1, 4);
    const mp_dtype type = p->in[X].type;
    const size_t size = mp_dtype_size(type);
    mp_gemm gemm = {.type = type,
                    .tf32 = p->node->options.tf32,
                    .m = m,
                    .n = n,
                    .k = k,
                    .lda = k,
                    .ldb = n,
                    .ldc = n,
                    .batch = d->groups > 1 ? d->groups : images,
                    .stride_a = d->groups > 1 ? m * k : 0,
                    .stride_b = k * n,
                    .stride_c = m * n,
                    .alpha = 1,
                    .align = p->align};
    gemm.align = mp_align_after(gemm.align, gemm.stride_a, type);
    gemm.align = mp_align_after(gemm.align, gemm.stride_b, type);
    gemm.align = mp_align_after(gemm.align, gemm.stride_c, type);
    const mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = MP_IN(W),
        [MP_GEMM_B] = source,
        [MP_GEMM_C] = mp_ref_at(MP_OUT(0), (uint64_t)(first * d->outputs * n) * size)};
    return mp_plan_gemm(p, &gemm, operands);
}

/* With groups the product is one for each image. */
static mp_status products(mp_planner *p, const deform *d, int64_t first, int64_t images,
                          mp_ref source) {
    const uint64_t step = (uint64_t)d->columns * mp_dtype_size(p->in[X].type);
    if (d->groups == 1) {
        return product(p, d, first, images, source);
    }
    for (int64_t i = 0; i < images; i++) {
        MP_TRY(product(p, d, first + i, 1, mp_ref_at(source, step * (uint64_t)i)));
    }
    return MP_OK;
}

static mp_status plan_deform_conv(mp_planner *p) {
    const mp_dtype type = p->in[X].type;
    deform d;
    size_t bytes = 0;
    mp_ref scratch = MP_NOWHERE;
    MP_TRY(describe(p, &d));
    MP_TRY(mp_plan_output(p, 0, type, &d.out));
    if (mp_shape_count(&d.out) == 0) {
        return MP_OK;
    }
    const mp_shape one = {
        .rank = 5,
        .dim = {d.args.channels, d.args.kernel_h, d.args.kernel_w, d.args.out_h, d.args.out_w}};
    MP_TRY(mp_shape_bytes(&one, type, &bytes));
    d.columns = mp_shape_count(&one);
    if (d.columns == 0) {
        MP_TRY(mp_shape_bytes(&d.out, type, &bytes));
        MP_TRY(mp_plan_fill(p, MP_OUT(0), 0, 1, bytes));
    } else {
        const int64_t in_group = d.args.channels / d.args.offset_groups;
        d.args.pieces = MP_CEIL_DIV(in_group, K_DEFORM_PLANES);
        d.args.count = d.columns / in_group * d.args.pieces; /* a plane of each piece */
        const int64_t fit = PASS_BYTES / (int64_t)bytes;
        const int64_t pass = fit < 1 ? 1 : MP_MIN(fit, d.batch);
        if (__builtin_mul_overflow(bytes, (size_t)pass, &bytes)) {
            return MP_FAIL(INVALID_ARGUMENT, "the columns of an image are too large");
        }
        MP_TRY(mp_plan_scratch(p, bytes, &scratch));
        for (int64_t first = 0; first < d.batch; first += pass) {
            const int64_t images = MP_MIN(d.batch - first, pass);
            MP_TRY(columns(p, &d, first, images, scratch));
            MP_TRY(products(p, &d, first, images, scratch));
        }
    }
    if (mp_plan_in(p, BIAS) == NULL) {
        return MP_OK;
    }
    const mp_shape bias = {.rank = 3, .dim = {d.outputs, 1, 1}};
    return mp_pointwise2(p, "add", type, (mp_operand){MP_OUT(0), &d.out},
                         (mp_operand){MP_IN(BIAS), &bias}, MP_OUT(0), &d.out, 0, 0);
}

static const mp_attr_def attrs[] = {
    MP_WINDOW_ATTRS, {"group", MP_ATTR_INT}, {"offset_group", MP_ATTR_INT}, {NULL, 0}};

#define ROW(from, to, floats)                                                \
    {                                                                        \
        .domain = "", .name = "DeformConv", .since = (from), .until = (to),  \
        .types = {{"T", (floats)}}, .attrs = attrs, .plan = plan_deform_conv \
    }

static const mp_op ops[] = {
    ROW(19, 19, MP_IEEE_FLOATS),
    ROW(22, 22, MP_FLOATS),
};

const mp_op_family mp__family_deform_conv = {"deform_conv", ops, MP_COUNT_OF(ops)};
