/* integer_rows.c - IntegerProduct: what passes make of products and convolutions between quantised
 * tensors, whose weights are constants.
 *
 * X is rows [..., k], and W [n, k]; or X is images with their channels last, and W filters [n,
 * height, width, channels], which are rows, too. Sums are exact in 32 bits, to which `add` is added
 * for each column; what becomes of them `to` says:
 *
 *     int32          the sum
 *     float          the sum times the scale and the factor, plus the row
 *     int8, uint8    the sum times the scale, rounded, moved by the zero point `zero` and kept from
 *                    `low` on; with `sum` first so by a scale and zero point of its own, and that
 *                    value plus another tensor's, or the row, again
 *
 * Kernel: quantize/integer_rows.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/byte_rows.h"
#include "op/core/families.h"
#include "op/quantize/integer_rows_cut.h"
#include "op/signal/signal_window.h"

#include "kernel/quantize/integer_rows_args.h"

enum { PIECE = 16 /* bytes that the kernel copies at once, or half of that */ };

typedef struct span {
    int32_t low, high;
} span;

static span span_of(mp_dtype byte) {
    return byte == MP_I8 ? (span){INT8_MIN, INT8_MAX} : (span){0, UINT8_MAX};
}

/* ---- what is asked ---- */

static mp_status misfit(const mp_planner *p) {
    char x[MP_SHAPE_TEXT];
    char w[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT, "values of shape %s do not go with weights of shape %s",
                   mp_shape_text(&p->in[MP_ROWS_X].shape, x),
                   mp_shape_text(&p->in[MP_ROWS_W].shape, w));
}

/* Rows are images of one pixel. */
static mp_status read_rows(const mp_planner *p, mp_integer_rows_args *args, mp_shape *out) {
    const mp_shape *x = &p->in[MP_ROWS_X].shape, *w = &p->in[MP_ROWS_W].shape;
    if (x->rank < 1 || x->dim[x->rank - 1] != w->dim[1]) {
        return misfit(p);
    }
    *out = *x;
    out->dim[x->rank - 1] = w->dim[0];
    args->k = w->dim[1];
    for (int d = 0; d < 2; d++) {
        args->window.in[d] = args->window.out[d] = args->window.kernel[d] = 1;
        args->window.stride[d] = args->window.dilation[d] = 1;
    }
    return MP_OK;
}

static mp_status read_images(const mp_planner *p, mp_integer_rows_args *args, mp_shape *out) {
    const mp_shape *x = &p->in[MP_ROWS_X].shape, *w = &p->in[MP_ROWS_W].shape;
    mp_window window;
    int64_t size[2];
    if (x->rank != 4 || x->dim[3] != w->dim[3]) {
        return misfit(p);
    }
    MP_TRY(mp_window_read(p->node, 2, &w->dim[1], &window));
    MP_TRY(mp_window_slide(&window, &x->dim[1], size));
    *out = (mp_shape){.rank = 4, .dim = {x->dim[0], size[0], size[1], w->dim[0]}};
    args->k = mp_shape_span(w, 1, 4);
    for (int d = 0; d < 2; d++) {
        if (x->dim[1 + d] + window.pad_begin[d] + window.pad_end[d] > INT32_MAX / 2) {
            return MP_FAIL(UNSUPPORTED,
                           "an image of %lld elements and its padding is too large "
                           "for a convolution of integers",
                           (long long)x->dim[1 + d]);
        }
        args->window.in[d] = (int32_t)x->dim[1 + d];
        args->window.out[d] = (int32_t)size[d];
        args->window.kernel[d] = (int32_t)window.kernel[d];
        args->window.stride[d] = (int32_t)window.stride[d];
        args->window.dilation[d] = (int32_t)window.dilation[d];
        args->window.pad[d] = (int32_t)window.pad_begin[d];
    }
    return MP_OK;
}

/* Rows, columns, places along k and positions in an image are counted in 31 bits. */
static mp_status check_sizes(const mp_planner *p, const mp_shape *out) {
    const mp_shape *x = &p->in[MP_ROWS_X].shape, *w = &p->in[MP_ROWS_W].shape;
    const bool is_image = w->rank == 4;
    const bool fits = mp_shape_span(out, 0, out->rank - 1) <= INT32_MAX / 2 &&
                      w->dim[0] <= INT32_MAX / 2 &&
                      mp_shape_count(out) / 512 <= INT32_MAX / 2 && /* tiles */
                      mp_shape_span(w, 1, w->rank) <= INT32_MAX / 2 &&
                      (!is_image || mp_shape_span(x, 1, 4) <= INT32_MAX / 2);
    char text[MP_SHAPE_TEXT];
    return fits ? MP_OK
                : MP_FAIL(UNSUPPORTED, "values of shape %s are too many for a product of integers",
                          mp_shape_text(x, text));
}

/* The window as rows where it is one pixel that goes everywhere. */
static void settle_window(mp_integer_rows_args *args) {
    k_byte_window *w = &args->window;
    bool single = true;
    for (int d = 0; d < 2; d++) {
        single = single && w->kernel[d] == 1 && w->stride[d] == 1 && w->pad[d] == 0 &&
                 w->in[d] == w->out[d];
    }
    for (int d = 0; single && d < 2; d++) {
        w->in[d] = w->out[d] = 1;
    }
    w->channels = (int32_t)(args->k / (w->kernel[0] * w->kernel[1]));
    w->image = (int64_t)w->in[0] * w->in[1] * w->channels;
    w->by_channels = mp_divider((uint32_t)w->channels);
    w->by_kernel = mp_divider((uint32_t)w->kernel[1]);
    w->out[0] *= w->out[1];
    w->by_out[0] = mp_divider((uint32_t)w->out[0]);
    w->by_out[1] = mp_divider((uint32_t)w->out[1]);
}

/* ---- results ---- */

static k_byte_range range_of(span range, int32_t zero) {
    return (k_byte_range){.least = (float)((int64_t)range.low - zero),
                          .most = (float)((int64_t)range.high - zero),
                          .zero = zero};
}

static mp_status read_sum(const mp_planner *p, mp_integer_rows_args *args) {
    enum { SCALE, ZERO, OTHER_SCALE, OTHER_ZERO, TO_SCALE, ALL };
    const mp_attr *sum = mp_node_attr(p->node, "sum");
    const mp_dtype between = mp_dtype_of_onnx(mp_node_int(p->node, "between", MP_I8));
    const mp_tensor *other = mp_plan_in(p, MP_ROWS_OTHER);
    args->has_sum =
        args->kind == K_INTEGER_ROWS_BYTE && (other != NULL || mp_plan_in(p, MP_ROWS_ROW) != NULL);
    if (!args->has_sum) {
        return MP_OK;
    }
    if (sum == NULL || sum->count != ALL) {
        return MP_FAIL(INVALID_ARGUMENT, "it is not said by which scales a tensor is added");
    }
    const bool is_signed = other != NULL && other->type == MP_I8;
    const float *numbers = sum->floats;
    args->both = (k_byte_sum){
        .between = range_of(span_of(between), (int32_t)numbers[ZERO]),
        .between_scale = numbers[SCALE],
        .other_scale = numbers[OTHER_SCALE],
        .other_zero = 0x1p23F + numbers[OTHER_ZERO] + (is_signed ? 128.0F : 0.0F),
        .flip = is_signed ? 0x80808080U : 0,
        .scale = numbers[TO_SCALE],
        .inverse = 1 / numbers[TO_SCALE],
    };
    return MP_OK;
}

static mp_status read_result(const mp_planner *p, mp_dtype to, mp_integer_rows_args *args) {
    const bool is_byte = to == MP_I8 || to == MP_U8;
    span range = span_of(to);
    if (!is_byte && to != MP_F32 && to != MP_I32) {
        return MP_FAIL(INVALID_ARGUMENT, "a product of integers gives bytes, int32 or float");
    }
    args->kind = is_byte        ? K_INTEGER_ROWS_BYTE
                 : to == MP_F32 ? K_INTEGER_ROWS_F32
                                : K_INTEGER_ROWS_I32;
    range.low =
        (int32_t)MP_MIN(MP_MAX(mp_node_int(p->node, "low", range.low), range.low), range.high);
    args->range = range_of(range, (int32_t)mp_node_int(p->node, "zero", 0));
    return read_sum(p, args);
}

static mp_status check_columns(const mp_planner *p, int i, bool may_be_one) {
    const mp_tensor *t = mp_plan_in(p, i);
    const int64_t columns = p->in[MP_ROWS_W].shape.dim[0];
    const int64_t count = t != NULL ? mp_shape_count(&t->shape) : columns;
    return count == columns || (may_be_one && count == 1)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "input %d has %lld values for %lld columns", i,
                         (long long)count, (long long)columns);
}

static mp_status check_inputs(const mp_planner *p, const mp_shape *out) {
    const mp_tensor *other = mp_plan_in(p, MP_ROWS_OTHER), *zero = mp_plan_in(p, MP_ROWS_ZERO);
    MP_TRY(check_columns(p, MP_ROWS_ADD, false));
    MP_TRY(check_columns(p, MP_ROWS_SCALE, true));
    MP_TRY(check_columns(p, MP_ROWS_SUMS, false));
    MP_TRY(check_columns(p, MP_ROWS_ROW, false));
    const mp_tensor *factor = mp_plan_in(p, MP_ROWS_FACTOR);
    const bool fits = (other == NULL || mp_shape_equal(&other->shape, out)) &&
                      (factor == NULL || mp_shape_count(&factor->shape) == 1) &&
                      (zero == NULL ||
                       (mp_shape_count(&zero->shape) == 1 && mp_plan_in(p, MP_ROWS_SUMS) != NULL));
    return fits ? check_sizes(p, out)
                : MP_FAIL(INVALID_ARGUMENT, "what is added does not have the result's shape, or a "
                                            "zero point or a factor is not one number");
}

/* ---- the step ---- */

static mp_ref ref_of(const mp_planner *p, int i) {
    return mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

static bool is_constant(const mp_planner *p) {
    return mp_plan_is_constant(p, ref_of(p, MP_ROWS_W)) &&
           mp_plan_is_constant(p, ref_of(p, MP_ROWS_ADD)) &&
           mp_plan_is_constant(p, ref_of(p, MP_ROWS_SCALE)) &&
           mp_plan_is_constant(p, ref_of(p, MP_ROWS_SUMS)) &&
           mp_plan_is_constant(p, ref_of(p, MP_ROWS_ROW));
}

/* Bytes are read and written in pieces, so that what may lie anywhere is copied. */
typedef struct ends {
    mp_ref x, w, other, out;
} ends;

static mp_status align_ends(mp_planner *p, size_t size, ends *at) {
    MP_TRY(mp_plan_aligned(p, MP_ROWS_X, &at->x));
    MP_TRY(mp_plan_aligned(p, MP_ROWS_W, &at->w));
    MP_TRY(mp_plan_aligned(p, MP_ROWS_OTHER, &at->other));
    at->out = MP_OUT(0);
    return p->align >= PIECE ? MP_OK : mp_plan_scratch(p, size, &at->out);
}

static mp_status launch(mp_planner *p, mp_integer_rows_args *args) {
    const mp_kernel *kernel = NULL;
    const int32_t multiprocessors = p->device->info.multiprocessors;
    const bool by_eight = args->window.channels % PIECE != 0;
    const mp_integer_rows_cut *cut =
        mp_integer_rows_cut_for(args->rows, args->columns, args->k, by_eight, multiprocessors);
    const size_t size = (size_t)(args->rows * args->columns) *
                        (args->kind == K_INTEGER_ROWS_BYTE ? 1 : sizeof(float));
    ends at;
    args->tiles_across = (uint32_t)MP_CEIL_DIV(args->columns, cut->columns);
    args->tiles = (uint32_t)MP_CEIL_DIV(args->rows, cut->rows) * args->tiles_across;
    args->by_across = mp_divider(args->tiles_across);
    mp_grid grid = mp_plan_grid(p, args->rows * args->columns, 1);
    if (p->device->info.arch != 0) {
        const int64_t most = (int64_t)multiprocessors * cut->blocks_each;
        grid = (mp_grid){.blocks = (uint32_t)MP_MIN(args->tiles, most),
                         .lanes = cut->lanes,
                         .shared_bytes = cut->shared_bytes};
    }
    MP_TRY(align_ends(p, size, &at));
    MP_TRY(mp_plan_kernel(p, &kernel, "integer_rows_%d_%d_%d", cut->rows, cut->columns,
                          by_eight ? PIECE / 2 : PIECE));
    MP_TRY(MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_integer_rows_args, x, at.x),
                     MP_BIND(mp_integer_rows_args, w, at.w),
                     MP_BIND(mp_integer_rows_args, add, ref_of(p, MP_ROWS_ADD)),
                     MP_BIND(mp_integer_rows_args, scale, ref_of(p, MP_ROWS_SCALE)),
                     MP_BIND(mp_integer_rows_args, factor, ref_of(p, MP_ROWS_FACTOR)),
                     MP_BIND(mp_integer_rows_args, row, ref_of(p, MP_ROWS_ROW)),
                     MP_BIND(mp_integer_rows_args, other, at.other),
                     MP_BIND(mp_integer_rows_args, zero, ref_of(p, MP_ROWS_ZERO)),
                     MP_BIND(mp_integer_rows_args, sums, ref_of(p, MP_ROWS_SUMS)),
                     MP_BIND(mp_integer_rows_args, out, at.out)));
    return at.out.place == MP_PLACE_SCRATCH ? mp_plan_copy(p, MP_OUT(0), at.out, size) : MP_OK;
}

static mp_status plan(mp_planner *p) {
    const mp_tensor *x = &p->in[MP_ROWS_X], *w = &p->in[MP_ROWS_W];
    const mp_tensor *scale = mp_plan_in(p, MP_ROWS_SCALE);
    const mp_dtype to = mp_dtype_of_onnx(mp_node_int(p->node, "to", MP_F32));
    mp_integer_rows_args args = {.is_unsigned = x->type == MP_U8};
    mp_shape out;
    if (w->shape.rank != 2 && w->shape.rank != 4) {
        return misfit(p);
    }
    MP_TRY(w->shape.rank == 4 ? read_images(p, &args, &out) : read_rows(p, &args, &out));
    MP_TRY(read_result(p, to, &args));
    MP_TRY(mp_plan_output(p, 0, to, &out)); /* now the shape can be counted */
    MP_TRY(check_inputs(p, &out));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    if (args.k == 0) {
        return misfit(p);
    }
    settle_window(&args);
    if (p->device->info.arch != 0 && !mp_byte_rows_fit(p->device, args.window.channels)) {
        return MP_FAIL(UNSUPPORTED, "this GPU has no products of rows of %d bytes",
                       args.window.channels);
    }
    args.rows = mp_shape_span(&out, 0, out.rank - 1);
    args.columns = w->shape.dim[0];
    args.padding = (uint32_t)(mp_node_int(p->node, "padding", 0) & 0xff) * 0x01010101U;
    args.scale_step = scale != NULL && mp_shape_count(&scale->shape) > 1;
    args.constant = is_constant(p) && p->align >= PIECE;
    return launch(p, &args);
}

static const mp_attr_def attrs[] = {MP_WINDOW_ATTRS,          {"to", MP_ATTR_INT},
                                    {"zero", MP_ATTR_INT},    {"low", MP_ATTR_INT},
                                    {"padding", MP_ATTR_INT}, {"between", MP_ATTR_INT},
                                    {"sum", MP_ATTR_FLOATS},  {NULL, 0}};

enum { BYTES = MP_BIT(MP_I8) | MP_BIT(MP_U8), RESULTS = BYTES | MP_BIT(MP_I32) | MP_BIT(MP_F32) };

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "IntegerProduct",
     .since = 1,
     .until = 1,
     .types = {{"T1", BYTES}, {"T2", MP_BIT(MP_I8)}, {"T3", RESULTS}},
     .attrs = attrs,
     .plan = plan},
};

const mp_op_family mp__family_integer_rows = {"integer_rows", ops, MP_COUNT_OF(ops)};
