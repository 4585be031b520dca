/* resize.c - Resize and Upsample: tables for the axes that change, made once, and one walk over the
 * output; with antialiasing one pass an axis.
 * Kernels: image/resize_table.cu, image/resize_smooth_table.cu, image/resize_nearest.cu,
 * image/resize_blend.cu, image/resize_smooth.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/image/resize_read.h"

#include "base/half.h"
#include "op/core/families.h"
#include "op/core/table_cache.h"

#include <math.h>
#include <string.h>

typedef struct tables {
    mp_resize_table_args args;
    mp_ref index, weight, outside;
    int dim[MP_RANK_MAX]; /* of the tensor, for each axis */
} tables;

/* ---- tables ---- */

/* Lists the axes in `mask`, each with a multiple of `entries`. */
static mp_status tables_init(const mp_resize *r, const mp_shape *x, uint32_t mask, int64_t entries,
                             tables *t) {
    memset(t, 0, sizeof *t); /* it becomes a key: gaps count, too */
    t->args.transform = r->transform;
    t->args.nearest = r->nearest;
    t->args.exclude_outside = r->exclude_outside;
    t->args.extrapolate = r->extrapolate;
    t->args.cubic_a = r->cubic_a;
    for (int d = 0; d < x->rank; d++) {
        if ((mask & 1u << d) == 0) {
            continue;
        }
        if (x->dim[d] > INT32_MAX / 2 || t->args.count + r->out.dim[d] > INT32_MAX / 2) {
            return MP_FAIL(UNSUPPORTED,
                           "axis %d is resized from %lld to %lld elements; at most %d "
                           "are supported",
                           d, (long long)x->dim[d], (long long)r->out.dim[d], INT32_MAX / 2);
        }
        if (t->args.axes == K_RANK_MAX) {
            return MP_FAIL(UNSUPPORTED, "more than %d axes are resized; resize some of them first",
                           K_RANK_MAX);
        }
        t->dim[t->args.axes] = d;
        t->args.axis[t->args.axes++] = (mp_resize_axis){.in = (int32_t)x->dim[d],
                                                        .out = (int32_t)r->out.dim[d],
                                                        .table = (int32_t)t->args.count,
                                                        .scale = r->scale[d],
                                                        .start = r->start[d],
                                                        .end = r->end[d]};
        t->args.count += MP_CEIL_DIV(r->out.dim[d], entries) * entries;
    }
    return MP_OK;
}

/* All that the tables follow from. */
typedef struct recipe {
    const mp_kernel *kernel;
    mp_grid grid;
    uint64_t weight_at, outside_at; /* behind the indices */
    mp_resize_table_args args;      /* but for the pointers */
} recipe;

static mp_status make_tables(const void *context, mp_device *device, mp_stream *stream, mp_addr out,
                             size_t size) {
    const recipe *of = context;
    mp_resize_table_args args = of->args;
    (void)size;
    args.index = (int32_t *)out;
    args.weight = (float *)(out + of->weight_at);
    args.outside = (int32_t *)(out + of->outside_at);
    return device->ops->launch(device, stream, of->kernel, of->grid, &args, sizeof args);
}

/* The tables that kernel `name` writes: `indices` an entry, and `weights` in all. Made now, or in
 * each run where the device keeps no more of them. */
static mp_status tables_write(mp_planner *p, const char *name, int64_t indices, int64_t weights,
                              tables *t) {
    const int64_t count = t->args.count;
    const int64_t outside = t->args.extrapolate ? count : 0;
    recipe of;
    memset(&of, 0, sizeof of); /* it is a key: gaps count, too */
    int64_t words = count * indices + outside;
    if (__builtin_add_overflow(words, weights, &words)) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld weights are too many", (long long)weights);
    }
    mp_table table = {.fill = make_tables, .context = &of, .key = &of, .key_size = sizeof of};
    MP_TRY(mp_plan_bytes(words, MP_I32, &table.size));
    MP_TRY(mp_plan_kernel(p, &of.kernel, "%s", name));
    of.grid = mp_plan_grid(p, count, 1);
    of.weight_at = (uint64_t)(count * indices) * sizeof(int32_t);
    of.outside_at = of.weight_at + (uint64_t)weights * sizeof(float);
    memcpy(&of.args, &t->args, sizeof of.args);
    MP_TRY(mp_plan_table(p, &table, &t->index));
    const bool made = t->index.place == MP_PLACE_TABLE;
    if (!made) {
        MP_TRY(mp_plan_scratch(p, table.size, &t->index));
    }
    t->weight = weights > 0 ? mp_ref_at(t->index, of.weight_at) : MP_NOWHERE;
    t->outside = outside > 0 ? mp_ref_at(t->index, of.outside_at) : MP_NOWHERE;
    return made ? MP_OK
                : MP_LAUNCH(p, of.kernel, of.grid, t->args,
                            MP_BIND(mp_resize_table_args, index, t->index),
                            MP_BIND(mp_resize_table_args, weight, t->weight),
                            MP_BIND(mp_resize_table_args, outside, t->outside));
}

/* ---- nearest, linear, cubic ---- */

/* The alternating dimensions of mp_resize_args. */
static void fill_parts(const mp_resize *r, const mp_tensor *tensor, const tables *t,
                       mp_resize_args *args) {
    const mp_shape *x = &tensor->shape;
    int64_t stride[MP_RANK_MAX];
    mp_tensor_strides(tensor, stride);
    args->axes = t->args.axes;
    for (int a = 0; a <= args->axes; a++) {
        const int from = a > 0 ? t->dim[a - 1] + 1 : 0;
        const int to = a < args->axes ? t->dim[a] : x->rank;
        args->dim[2 * a] = mp_shape_span(x, from, to);
        args->stride[2 * a] = to > from ? stride[to - 1] : 0;
        if (a < args->axes) {
            args->dim[2 * a + 1] = r->out.dim[to];
            args->stride[2 * a + 1] = stride[to];
            args->table[a] = t->args.axis[a].table;
        }
    }
}

/* Whether lines are of the last resized axis: nothing is kept behind it. */
static bool is_along(const mp_resize_args *args) {
    return args->dim[2 * args->axes] == 1;
}

/* Cuts the lines into runs. */
static void fill_runs(const mp_planner *p, mp_resize_args *args) {
    const int64_t size = (int64_t)mp_dtype_size(p->in[0].type);
    const int64_t run = K_RESIZE_RUN(size);
    const int last = 2 * args->axes - (is_along(args) ? 1 : 0);
    args->line = args->dim[last];
    args->runs = MP_CEIL_DIV(args->line, run);
    args->out_line = mp_plan_out_pitch(p, 0) > 0 ? mp_plan_out_pitch(p, 0) : args->line;
    args->packed = args->line % run == 0 && args->out_line % run == 0 &&
                   p->in[0].pitch % run == 0 && p->align % (size * run) == 0;
    args->count = args->runs;
    for (int k = 0; k < last; k++) {
        args->count *= args->dim[k];
    }
    args->wide = args->count * run > INT32_MAX || mp_shape_count(&p->in[0].shape) > INT32_MAX;
    for (int k = 0; k < last && !args->wide; k++) {
        args->divider[k] = mp_divider((uint32_t)args->dim[k]);
    }
    args->by_runs = mp_divider(args->wide ? 1 : (uint32_t)args->runs);
}

static int64_t whole_number(float value, int64_t low, int64_t high) {
    return value <= (float)low ? low : value >= (float)high ? high : (int64_t)value;
}

/* An element of `dtype` as the low bits of a word, as conversions in kernels would make it. */
static uint64_t element_bits(mp_dtype dtype, float value) {
    uint64_t bits = 0;
    const double wide = (double)value;
    switch (dtype) {
    case MP_F32:
        memcpy(&bits, &value, sizeof value);
        return bits;
    case MP_F64:
        memcpy(&bits, &wide, sizeof wide);
        return bits;
    case MP_F16:
        return mp_to_f16(value);
    case MP_BF16:
        return mp_to_bf16(value);
    case MP_I32:
        return (uint64_t)whole_number(value, INT32_MIN, INT32_MAX);
    case MP_I8:
        return (uint64_t)whole_number(value, INT8_MIN, INT8_MAX);
    default:
        return (uint64_t)whole_number(value, 0, UINT8_MAX);
    }
}

/* The number that a kernel was built for: how many axes it unrolls. */
static int axes_built(const mp_resize_args *args) {
    return args->axes <= (is_along(args) ? 3 : 2) && !args->wide ? args->axes : K_RANK_MAX;
}

static mp_status plan_interpolate(mp_planner *p, const mp_resize *r, uint32_t mask) {
    static const int taps_of[] = {
        [MP_RESIZE_NEAREST] = 1, [MP_RESIZE_LINEAR] = 2, [MP_RESIZE_CUBIC] = 4};
    static const char *const table_of[] = {[MP_RESIZE_NEAREST] = "resize_table_1",
                                           [MP_RESIZE_LINEAR] = "resize_table_2",
                                           [MP_RESIZE_CUBIC] = "resize_table_4"};
    const mp_tensor *x = &p->in[0];
    const int taps = taps_of[r->mode];
    const mp_kernel *kernel = NULL;
    tables t;
    mp_resize_args args = {.extrapolate = r->extrapolate,
                           .outside_value = r->outside,
                           .outside_bits = element_bits(x->type, r->outside)};
    MP_TRY(tables_init(r, &x->shape, mask, K_RESIZE_ENTRIES, &t));
    MP_TRY(tables_write(p, table_of[r->mode], taps, taps > 1 ? t.args.count * taps : 0, &t));
    fill_parts(r, x, &t, &args);
    fill_runs(p, &args);
    const char *const kept = is_along(&args) ? "" : "kept_";
    const int axes = axes_built(&args);
    if (r->mode == MP_RESIZE_NEAREST) {
        const int bits = (int)mp_dtype_size(x->type) * 8;
        MP_TRY(mp_plan_kernel(p, &kernel, "resize_nearest_%s%d_b%d", kept, axes, bits));
    } else {
        MP_TRY(mp_plan_kernel(p, &kernel, "resize_blend_%s%d_%d_%s", kept, taps, axes,
                              mp_dtype_word(x->type)));
    }
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args.count, 1), args, MP_BIND(mp_resize_args, x, MP_IN(0)),
        MP_BIND(mp_resize_args, out, MP_OUT(0)), MP_BIND(mp_resize_args, index, t.index),
        MP_BIND(mp_resize_args, weight, t.weight), MP_BIND(mp_resize_args, outside, t.outside));
}

/* ---- antialiasing ---- */

/* The filter covers 2 (linear) or 4 (cubic) outputs' worth of inputs, or of outputs where there are
 * more of those. */
static mp_status size_windows(const mp_resize *r, tables *t, int64_t *weights) {
    *weights = 0;
    for (int a = 0; a < t->args.axes; a++) {
        mp_resize_axis *axis = &t->args.axis[a];
        const float reach = r->mode == MP_RESIZE_CUBIC ? 2.0f : 1.0f;
        const float shrink = 1.0f / axis->scale;
        axis->support = shrink >= 1.0f ? reach * shrink : reach;
        if (!(axis->support < 0x1p28f)) {
            return MP_FAIL(UNSUPPORTED, "antialiasing for a scale of %g", (double)axis->scale);
        }
        axis->window = (int32_t)ceilf(axis->support) * 2 + 1;
        axis->weights = *weights;
        if (__builtin_add_overflow(*weights, (int64_t)axis->out * axis->window, weights)) {
            return MP_FAIL(INVALID_ARGUMENT, "antialiasing for a scale of %g", (double)axis->scale);
        }
    }
    return MP_OK;
}

/* Axis `a` from `source` to `target`; `shape` is that of the source and becomes the target's. */
static mp_status plan_pass(mp_planner *p, const mp_resize *r, const tables *t, int a,
                           mp_shape *shape, mp_ref source, mp_ref target) {
    const int d = t->dim[a];
    const mp_resize_axis *axis = &t->args.axis[a];
    const mp_kernel *kernel = NULL;
    shape->dim[d] = axis->out;
    mp_resize_pass_args args = {.count = mp_shape_count(shape),
                                .inner = mp_shape_span(shape, d + 1, shape->rank),
                                .in = axis->in,
                                .length = axis->out,
                                .window = axis->window,
                                .outside_value = r->outside};
    args.wide = args.count > INT32_MAX;
    args.by_inner = mp_divider(args.wide ? 1 : (uint32_t)args.inner);
    args.by_length = mp_divider((uint32_t)args.length);
    MP_TRY(mp_plan_kernel(p, &kernel, "resize_smooth_%s", mp_dtype_word(p->in[0].type)));
    const uint64_t entry = (uint64_t)axis->table * 2 * sizeof(int32_t);
    const uint64_t first = (uint64_t)axis->weights * sizeof(float);
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 1), args,
                     MP_BIND(mp_resize_pass_args, x, source),
                     MP_BIND(mp_resize_pass_args, out, target),
                     MP_BIND(mp_resize_pass_args, index, mp_ref_at(t->index, entry)),
                     MP_BIND(mp_resize_pass_args, weight, mp_ref_at(t->weight, first)));
}

static mp_status plan_smooth(mp_planner *p, const mp_resize *r, uint32_t mask) {
    const mp_tensor *x = &p->in[0];
    mp_shape shape = x->shape;
    mp_ref source = MP_IN(0);
    int64_t weights = 0;
    tables t;
    MP_TRY(tables_init(r, &x->shape, mask, 1, &t));
    t.args.cubic = r->mode == MP_RESIZE_CUBIC;
    t.args.fixed_point = mp_dtype_size(x->type) == 1;
    MP_TRY(size_windows(r, &t, &weights));
    MP_TRY(tables_write(p, "resize_smooth_table", 2, weights, &t));
    for (int a = t.args.axes - 1; a >= 0; a--) {
        mp_ref target = MP_OUT(0);
        if (a > 0) {
            mp_shape next = shape;
            next.dim[t.dim[a]] = t.args.axis[a].out;
            MP_TRY(mp_plan_scratch_shape(p, &next, x->type, &target));
        }
        MP_TRY(plan_pass(p, r, &t, a, &shape, source, target));
        source = target;
    }
    return MP_OK;
}

/* ---- the operators ---- */

/* The axes that ONNX Runtime's CPU kernels interpolate along, whether they change or not. Integers
 * are cut off, so a sum that would be whole but for its rounding has to be rounded alike. */
static uint32_t axes_of_integers(const mp_resize *r, int rank) {
    const uint32_t all = (1u << rank) - 1;
    const bool channels_last = rank == 4 && r->scale[1] != 1.0f;
    return rank <= 3 ? all : channels_last ? 6u : all & ~3u;
}

/* Which axes change is a matter of values; of a higher rank they may be more than kernels walk. */
static mp_status accept_resize(const mp_planner *p) {
    return mp_rank_accept(&p->in[0].shape, K_RANK_MAX, "X");
}

/* Whether it makes rows of rows, as they are. */
static bool keeps_rows(const mp_resize *r, const mp_shape *x) {
    const int last = x->rank - 1;
    return r->out.dim[last] == x->dim[last] && x->dim[last] > 1 && r->scale[last] == 1.0f &&
           !r->antialias && !mp_shape_equal(&r->out, x);
}

static mp_status plan_resize(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    mp_resize r;
    MP_TRY(mp_resize_read(p, p->node->op->detail, &r));
    MP_TRY(mp_plan_output(p, 0, x->type, &r.out));
    const bool is_apart = x->pitch > 0 || mp_plan_out_pitch(p, 0) > 0;
    if (is_apart && !keeps_rows(&r, &x->shape)) {
        return MP_FAIL(UNSUPPORTED, "rows that lie apart are not resized themselves");
    }
    if (mp_shape_equal(&r.out, &x->shape)) {
        size_t bytes = 0;
        MP_TRY(mp_shape_bytes(&x->shape, x->type, &bytes));
        return mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes);
    }
    if (mp_shape_count(&r.out) == 0) {
        return MP_OK;
    }
    uint32_t changed = 0;
    uint32_t scaled = 0;
    for (int d = 0; d < x->shape.rank; d++) {
        const bool differs = r.out.dim[d] != x->shape.dim[d];
        changed |= differs ? 1u << d : 0;
        scaled |= differs || r.scale[d] != 1.0f ? 1u << d : 0;
    }
    if (r.mode == MP_RESIZE_LINEAR && (MP_BIT(x->type) & MP_INTS) != 0) {
        scaled |= axes_of_integers(&r, x->shape.rank);
    }
    return r.antialias ? plan_smooth(p, &r, changed) : plan_interpolate(p, &r, scaled);
}

/* ---- the rows ---- */

static const mp_attr_def upsample_attrs[] = {
    {"mode", MP_ATTR_STRING}, {"scales", MP_ATTR_FLOATS}, {NULL, 0}};
static const mp_attr_def mode_attrs[] = {{"mode", MP_ATTR_STRING}, {NULL, 0}};
#define RESIZE_ATTRS                                                                      \
    {"coordinate_transformation_mode", MP_ATTR_STRING}, {"cubic_coeff_a", MP_ATTR_FLOAT}, \
        {"exclude_outside", MP_ATTR_INT}, {"extrapolation_value", MP_ATTR_FLOAT},         \
        {"mode", MP_ATTR_STRING}, {                                                       \
        "nearest_mode", MP_ATTR_STRING                                                    \
    }
static const mp_attr_def resize11_attrs[] = {RESIZE_ATTRS, {NULL, 0}};
static const mp_attr_def resize18_attrs[] = {RESIZE_ATTRS,
                                             {"antialias", MP_ATTR_INT},
                                             {"axes", MP_ATTR_INTS},
                                             {"keep_aspect_ratio_policy", MP_ATTR_STRING},
                                             {NULL, 0}};

enum {
    OLD_TYPES = MP_IEEE_FLOATS | 1u << MP_I32 | 1u << MP_I8 | 1u << MP_U8,
    TYPES = OLD_TYPES | 1u << MP_BF16,
};

static const mp_resize_form by_attribute = {.old_rules = true};
static const mp_resize_form by_input = {.old_rules = true, .scales = 1};
static const mp_resize_form by_inputs = {.roi = 1, .scales = 2, .sizes = 3};

#define ROW(op_name, from, to, list, form, host, ...)                                            \
    {                                                                                            \
        .domain = "", .name = (op_name), .since = (from), .until = (to), .types = {__VA_ARGS__}, \
        .host_in = (host), .apart_in = 1, .apart_out = 1, .attrs = (list), .plan = plan_resize,  \
        .accept = accept_resize, .detail = &(form)                                               \
    }
#define ROI \
    { "T2", MP_IEEE_FLOATS }

static const mp_op ops[] = {
    ROW("Upsample", 7, 8, upsample_attrs, by_attribute, 0, {"T", OLD_TYPES}),
    ROW("Upsample", 9, 9, mode_attrs, by_input, 1u << 1, {"T", OLD_TYPES}),
    ROW("Resize", 10, 10, mode_attrs, by_input, 1u << 1, {"T", OLD_TYPES}),
    ROW("Resize", 11, 17, resize11_attrs, by_inputs, 7u << 1, {"T1", TYPES}, ROI),
    ROW("Resize", 18, 19, resize18_attrs, by_inputs, 7u << 1, {"T1", TYPES}, ROI),
};

const mp_op_family mp__family_resize = {"resize", ops, MP_COUNT_OF(ops)};
