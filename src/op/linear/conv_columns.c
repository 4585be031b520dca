/* conv_columns.c - see conv_columns.h.
 *
 * Forward: columns, which hold for each output what its taps read, are multiplied by the weights.
 * Transposed: the weights are multiplied by x, and each output sums what the taps make for it. Both
 * in passes, so that what one step writes the next one finds in a cache.
 * Kernels: linear/conv_columns.cu, linear/col2im.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/conv_columns.h"

#include "kernel/linear/linear_args.h"
#include "op/pointwise/pointwise_steps.h"

enum { PASSES_MAX = 1 << 16, PASS_BYTES = 16 << 20 /* what a GPU's cache has room for */ };

typedef struct sizes {
    int64_t size; /* of an element */
    int64_t in_plane, out_plane, taps;
    int64_t group_in, group_out;
    int64_t rows; /* of an image's columns, or of what taps make, in all groups */
} sizes;

static bool multiply(int64_t *value, const int64_t *by, int count) {
    bool fits = true;
    for (int i = 0; i < count; i++) {
        fits = fits && !__builtin_mul_overflow(*value, by[i], value) && *value <= INT32_MAX;
    }
    return fits;
}

/* Kernels count elements of a pass in 32 bits. */
static mp_status measure(const mp_conv *conv, sizes *out) {
    *out = (sizes){.size = (int64_t)mp_dtype_size(conv->type),
                   .in_plane = 1,
                   .out_plane = 1,
                   .taps = 1,
                   .group_in = conv->in_channels / conv->groups,
                   .group_out = conv->out_channels / conv->groups,
                   .rows = conv->transposed ? conv->out_channels : conv->in_channels};
    if (!multiply(&out->in_plane, conv->in, conv->spatial) ||
        !multiply(&out->out_plane, conv->out, conv->spatial) ||
        !multiply(&out->taps, conv->kernel, conv->spatial) ||
        !multiply(&out->rows, &out->taps, 1)) {
        return MP_FAIL(UNSUPPORTED,
                       "the device's library has no kernel for this convolution, and without one a "
                       "plane, or %lld channels by their taps, can have %d elements at most; use "
                       "smaller images or fewer channels",
                       (long long)(conv->transposed ? conv->out_channels : conv->in_channels),
                       INT32_MAX);
    }
    return MP_OK;
}

static mp_status too_many(const mp_conv *conv) {
    return MP_FAIL(UNSUPPORTED,
                   "the device's library has no kernel for this convolution, and without one %lld "
                   "images need more than %d passes; run fewer of them at a time",
                   (long long)conv->batch, PASSES_MAX);
}

/* ---- a pass: some images, or some outputs of one ---- */

typedef struct pass {
    int64_t image, images;
    int64_t first, outputs; /* of a plane */
} pass;

static int64_t images_of(const mp_conv *conv, const sizes *s, int64_t plane) {
    const int64_t fit = PASS_BYTES / s->size / s->rows / plane;
    return conv->groups > 1 || fit < 1 ? 1 : MP_MIN(fit, conv->batch);
}

static mp_ref image_at(const mp_conv *conv, const sizes *s, const mp_ref *operands, int operand,
                       int64_t image) {
    const bool is_x = operand == MP_CONV_X;
    const int64_t elements =
        is_x ? conv->in_channels * s->in_plane : conv->out_channels * s->out_plane;
    return mp_ref_at(operands[operand], (uint64_t)(image * elements * s->size));
}

/* What both directions share of a product: a batch of groups, or of images that have one. */
static mp_gemm product_of(const mp_planner *p, const mp_conv *conv, int64_t images) {
    return (mp_gemm){.type = conv->type,
                     .tf32 = conv->tf32,
                     .batch = conv->groups > 1 ? conv->groups : images,
                     .alpha = 1,
                     .align = (int32_t)mp_dtype_size(conv->type),
                     .tune = p->node->options.tune,
                     .tune_ms = p->node->options.tune_ms};
}

/* ---- forward ---- */

static mp_columns_args columns_of(const mp_conv *conv, const sizes *s) {
    mp_columns_args a = {.in_plane = s->in_plane, .taps = (int32_t)s->taps};
    for (int d = 0; d < K_COLUMNS_RANK; d++) {
        const int i = d - (K_COLUMNS_RANK - conv->spatial); /* dimensions before the first are 1 */
        a.in[d] = i < 0 ? 1 : conv->in[i];
        a.out[d] = i < 0 ? 1 : (int32_t)conv->out[i];
        a.kernel[d] = i < 0 ? 1 : (int32_t)conv->kernel[i];
        a.stride[d] = i < 0 ? 1 : conv->stride[i];
        a.dilation[d] = i < 0 ? 1 : conv->dilation[i];
        a.pad[d] = i < 0 ? 0 : conv->pad_begin[i];
        a.by_out[d] = mp_divider((uint32_t)a.out[d]);
        a.by_kernel[d] = mp_divider((uint32_t)a.kernel[d]);
    }
    a.by_taps = mp_divider((uint32_t)a.taps);
    return a;
}

static mp_status forward_pass(mp_planner *p, const mp_conv *conv, const sizes *s,
                              const mp_ref *operands, const pass *now, mp_ref columns) {
    const mp_kernel *kernel = NULL;
    mp_columns_args a = columns_of(conv, s);
    mp_gemm gemm = product_of(p, conv, now->images);
    a.first = (int32_t)now->first;
    a.outputs = (int32_t)now->outputs;
    a.by_outputs = mp_divider((uint32_t)a.outputs);
    a.count = now->images * s->rows * now->outputs;
    gemm.m = s->group_out;
    gemm.n = now->outputs;
    gemm.k = gemm.lda = s->group_in * s->taps;
    gemm.ldb = now->outputs;
    gemm.ldc = s->out_plane;
    gemm.stride_a = conv->groups > 1 ? gemm.m * gemm.k : 0;
    gemm.stride_b = gemm.k * gemm.n;
    gemm.stride_c = gemm.m * s->out_plane;
    const mp_ref own[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = operands[MP_CONV_W],
        [MP_GEMM_B] = columns,
        [MP_GEMM_C] = mp_ref_at(image_at(conv, s, operands, MP_CONV_Y, now->image),
                                (uint64_t)(now->first * s->size)),
    };
    MP_TRY(mp_plan_kernel(p, &kernel, "conv_columns_%s", mp_dtype_word(conv->type)));
    MP_TRY(
        MP_LAUNCH(p, kernel, mp_plan_grid(p, a.count, 1), a,
                  MP_BIND(mp_columns_args, x, image_at(conv, s, operands, MP_CONV_X, now->image)),
                  MP_BIND(mp_columns_args, columns, columns)));
    return mp_plan_gemm(p, &gemm, own);
}

static mp_status forward(mp_planner *p, const mp_conv *conv, const sizes *s,
                         const mp_ref *operands) {
    const int64_t fit = PASS_BYTES / s->size / s->rows;
    const int64_t outputs = MP_MIN(s->out_plane, MP_MAX(fit, 1));
    const int64_t images = outputs < s->out_plane ? 1 : images_of(conv, s, outputs);
    mp_ref columns = MP_NOWHERE;
    if (MP_CEIL_DIV(conv->batch, images) > PASSES_MAX / MP_CEIL_DIV(s->out_plane, outputs)) {
        return too_many(conv);
    }
    MP_TRY(mp_plan_scratch_of(p, images * s->rows * outputs, conv->type, &columns));
    for (int64_t image = 0; image < conv->batch; image += images) {
        for (int64_t first = 0; first < s->out_plane; first += outputs) {
            const pass now = {.image = image,
                              .images = MP_MIN(images, conv->batch - image),
                              .first = first,
                              .outputs = MP_MIN(outputs, s->out_plane - first)};
            MP_TRY(forward_pass(p, conv, s, operands, &now, columns));
        }
    }
    return MP_OK;
}

/* ---- transposed ---- */

static mp_col2im_args image_args(const mp_conv *conv, const sizes *s, int64_t images) {
    const bool is_flat = conv->spatial > 1 && conv->in[0] == 1 && conv->out[0] == 1 &&
                         conv->kernel[0] == 1 && conv->pad_begin[0] == 0;
    const int first = is_flat ? 1 : 0; /* dimension that is more than a height of 1 */
    mp_col2im_args a = {.count = images * conv->out_channels * s->out_plane,
                        .taps = s->taps,
                        .blocks = s->in_plane,
                        .rank = conv->spatial - first};
    for (int d = 0; d < a.rank; d++) {
        a.image[d] = conv->out[first + d];
        a.kernel[d] = conv->kernel[first + d];
        a.across[d] = conv->in[first + d];
        a.stride[d] = conv->stride[first + d];
        a.dilation[d] = conv->dilation[first + d];
        a.pad[d] = conv->pad_begin[first + d];
    }
    return a;
}

static mp_status transposed_pass(mp_planner *p, const mp_conv *conv, const sizes *s,
                                 const mp_ref *operands, const pass *now, mp_ref made) {
    const mp_kernel *kernel = NULL;
    const mp_col2im_args a = image_args(conv, s, now->images);
    mp_gemm gemm = product_of(p, conv, now->images);
    gemm.trans_a = true;
    gemm.m = gemm.lda = s->group_out * s->taps;
    gemm.n = gemm.ldb = gemm.ldc = s->in_plane;
    gemm.k = s->group_in;
    gemm.stride_a = conv->groups > 1 ? gemm.m * gemm.k : 0;
    gemm.stride_b = gemm.k * gemm.n;
    gemm.stride_c = gemm.m * gemm.n;
    if (conv->channels_last) {
        gemm.trans_b = true;
        gemm.ldb = gemm.k;
    }
    const mp_ref own[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = operands[MP_CONV_W],
        [MP_GEMM_B] = image_at(conv, s, operands, MP_CONV_X, now->image),
        [MP_GEMM_C] = made,
    };
    MP_TRY(mp_plan_gemm(p, &gemm, own));
    MP_TRY(mp_plan_kernel(p, &kernel, "col2im_%s", mp_dtype_word(conv->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, a.count, 1), a, MP_BIND(mp_col2im_args, x, made),
        MP_BIND(mp_col2im_args, out, image_at(conv, s, operands, MP_CONV_Y, now->image)));
}

static mp_status transposed(mp_planner *p, const mp_conv *conv, const sizes *s,
                            const mp_ref *operands) {
    const int64_t images = images_of(conv, s, s->in_plane);
    mp_ref made = MP_NOWHERE;
    int64_t count = 0;
    if (MP_CEIL_DIV(conv->batch, images) > PASSES_MAX ||
        __builtin_mul_overflow(images * s->rows, s->in_plane, &count)) {
        return too_many(conv);
    }
    MP_TRY(mp_plan_scratch_of(p, count, conv->type, &made));
    for (int64_t image = 0; image < conv->batch; image += images) {
        const pass now = {.image = image, .images = MP_MIN(images, conv->batch - image)};
        MP_TRY(transposed_pass(p, conv, s, operands, &now, made));
    }
    return MP_OK;
}

mp_status mp_conv_columns_steps(mp_planner *p, const mp_conv *conv,
                                const mp_ref operands[MP_CONV_OPERANDS]) {
    sizes s;
    MP_TRY(measure(conv, &s));
    const mp_shape whole = {.rank = 3, .dim = {conv->batch, conv->out_channels, s.out_plane}};
    const mp_shape bias = {.rank = 2, .dim = {conv->out_channels, 1}};
    MP_TRY(conv->transposed ? transposed(p, conv, &s, operands) : forward(p, conv, &s, operands));
    return conv->bias
               ? mp_pointwise2(p, "add", conv->type, (mp_operand){operands[MP_CONV_Y], &whole},
                               (mp_operand){operands[MP_CONV_BIAS], &bias}, operands[MP_CONV_Y],
                               &whole, 0, 0)
               : MP_OK;
}
