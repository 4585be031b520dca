/* pool.c - MaxPool, AveragePool, LpPool and GlobalLpPool. The kernel always has three spatial
 * dimensions; those that a tensor lacks are of size 1, in front. A window that is the whole input
 * is a reduction.
 * Kernels: image/pool.cu, image/pool_last.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/window_args.h"
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/rows/reduce_steps.h"
#include "op/signal/signal_window.h"

#include <float.h>
#include <string.h>

enum {
    EXTENT_MAX = 1 << 29,     /* so that the kernel's 32-bit coordinates cannot overflow */
    REDUCE_ELEMENTS_MIN = 64, /* below this a lane alone is as fast as a block, */
    REDUCE_PIXELS_MIN = 16,   /* and with channels last */
};

static mp_status check_sizes(const mp_window *window, const int64_t *in) {
    for (int d = 0; d < window->spatial; d++) {
        const int64_t padded = in[d] + window->pad_begin[d] + window->pad_end[d];
        if (padded > EXTENT_MAX || window->stride[d] > EXTENT_MAX) {
            return MP_FAIL(
                UNSUPPORTED,
                "spatial dimension %d has %lld elements with padding and stride %lld; at "
                "most %d are supported",
                d, (long long)padded, (long long)window->stride[d], EXTENT_MAX);
        }
    }
    return MP_OK;
}

static bool covers_input(const mp_window *window, const int64_t *in) {
    for (int d = 0; d < window->spatial; d++) {
        if (window->kernel[d] != in[d] || window->dilation[d] != 1 || window->pad_begin[d] != 0 ||
            window->pad_end[d] != 0) {
            return false;
        }
    }
    return true;
}

static void fill_window(const mp_window *window, const int64_t *in, const int64_t *out,
                        mp_pool_args *args) {
    const int absent = K_POOL_DIMS - window->spatial;
    for (int k = 0; k < K_POOL_DIMS; k++) {
        const int d = k - absent;
        const bool here = d >= 0;
        args->out_dim[k] = here ? (int32_t)out[d] : 1;
        args->in[k] = here ? (int32_t)in[d] : 1;
        args->kernel[k] = here ? (int32_t)window->kernel[d] : 1;
        args->stride[k] = here ? (int32_t)window->stride[d] : 1;
        args->dilation[k] = here ? (int32_t)window->dilation[d] : 1;
        args->pad_begin[k] = here ? (int32_t)window->pad_begin[d] : 0;
        args->pad_end[k] = here ? (int32_t)window->pad_end[d] : 0;
        args->divider[k] = mp_divider((uint32_t)args->out_dim[k]);
    }
    args->lines = true;
    for (int k = 0; k < K_POOL_DIMS - 1; k++) {
        args->lines &= args->in[k] == 1 && args->kernel[k] == 1 && args->out_dim[k] == 1 &&
                       args->pad_begin[k] == 0;
    }
}

/* How outputs are counted, and lanes: by packs where those are whole and windows are of neighbours
 * in a plane. */
static void fill_channels(const mp_planner *p, mp_pool_args *args) {
    enum { LINES = 4 }; /* whose elements the kernel counts in 32 bits */
    const int64_t pack = 16 / (int64_t)mp_dtype_size(p->in[0].type);
    const bool plain = args->in[0] == 1 && args->kernel[0] == 1 && args->stride[0] == 1 &&
                       args->dilation[1] == 1 && args->dilation[2] == 1;
    args->x_pitch = p->in[0].pitch > 0 ? p->in[0].pitch : args->channels;
    args->out_pitch = mp_plan_out_pitch(p, 0) > 0 ? mp_plan_out_pitch(p, 0) : args->channels;
    args->packed = mp_channels_last(p) && plain && p->align >= 16 && args->channels % pack == 0 &&
                   args->x_pitch % pack == 0 && args->out_pitch % pack == 0 &&
                   args->x_pitch <= INT32_MAX / LINES / MP_MAX(args->in[2], 1) &&
                   args->count / pack <= INT32_MAX;
    const int64_t each = args->packed ? pack : 1;
    args->wide = args->count / each > INT32_MAX;
    if (!args->wide) {
        args->by_channels = mp_divider((uint32_t)(args->channels / each));
    }
}

static bool is_norm(const mp_planner *p) {
    return strcmp(p->node->op->detail, "lp") == 0;
}

/* The power of a norm; 0 for other pools. */
static mp_status read_power(const mp_planner *p, float *out) {
    const mp_attr *attr = mp_node_attr(p->node, "p");
    *out = 0;
    if (!is_norm(p)) {
        return MP_OK;
    }
    *out = attr == NULL ? 2 : attr->kind == MP_ATTR_FLOAT ? attr->f : (float)attr->i;
    return *out > 0 && *out <= FLT_MAX
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "p is %g; it must be a number above 0", (double)*out);
}

/* The reduction that does the same to a whole input, or NULL. */
static const char *whole_word(const mp_planner *p, float power) {
    if (!is_norm(p)) {
        return p->node->op->detail;
    }
    return power == 1 ? "l1" : power == 2 ? "l2" : NULL;
}

/* A window that is the whole input. */
static mp_status plan_whole(mp_planner *p, const char *word) {
    const mp_tensor *x = &p->in[0];
    const uint32_t all = (1u << x->shape.rank) - 1;
    const uint32_t axes = mp_channels_last(p) ? all >> 1 & ~1u : all & ~3u;
    return mp_plan_reduce(p, word, x->type, MP_IN(0), &x->shape, axes, MP_OUT(0));
}

static mp_status plan_windows(mp_planner *p, const mp_pool_args *args) {
    const bool indices = p->out_count > 1;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "pool%s_%s%s_%s", mp_channels_last(p) ? "_last" : "",
                          indices ? "arg" : "", (const char *)p->node->op->detail,
                          mp_dtype_word(p->in[0].type)));
    const int64_t pack = args->packed ? 16 / (int64_t)mp_dtype_size(p->in[0].type) : 1;
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args->count / pack, 1), *args,
                     MP_BIND(mp_pool_args, x, MP_IN(0)), MP_BIND(mp_pool_args, out, MP_OUT(0)),
                     MP_BIND(mp_pool_args, indices, indices ? MP_OUT(1) : MP_NOWHERE));
}

static mp_status plan_pool(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_shape image = mp_shape_first(p, &x->shape);
    mp_window window;
    if (image.rank < 3) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s has no spatial dimensions",
                       mp_shape_text(&x->shape, text));
    }
    float power = 0;
    MP_TRY(read_power(p, &power));
    MP_TRY(mp_window_read(p->node, image.rank - 2, NULL, &window));
    if (mp_channels_last(p) && p->out_count > 1) {
        return MP_FAIL(UNSUPPORTED, "indices with channels last; ONNX counts them channels first");
    }
    const int64_t *in = &image.dim[2];
    mp_shape shape = image;
    MP_TRY(mp_window_slide_over(&window, in, mp_node_flag(p->node, "ceil_mode", false),
                                &shape.dim[2]));
    MP_TRY(check_sizes(&window, in));
    const mp_shape stored = mp_shape_stored(p, &shape);
    MP_TRY(mp_plan_output(p, 0, x->type, &stored));
    MP_TRY(mp_plan_output(p, 1, MP_I64, &stored));
    mp_pool_args args = {
        .count = mp_shape_count(&shape),
        .plane = mp_shape_span(&image, 2, image.rank),
        .channels = image.dim[1],
        .column_major = mp_node_int(p->node, "storage_order", 0) != 0,
        .include_pad = mp_node_int(p->node, "count_include_pad", 0) != 0,
        .power = power,
    };
    if (args.count == 0) {
        return MP_OK;
    }
    const char *whole = whole_word(p, power);
    const int64_t least = mp_channels_last(p) ? REDUCE_PIXELS_MIN : REDUCE_ELEMENTS_MIN;
    const bool is_apart = x->pitch > 0 || mp_plan_out_pitch(p, 0) > 0;
    if (p->out_count < 2 && whole != NULL && args.plane >= least && !is_apart &&
        covers_input(&window, in)) {
        return plan_whole(p, whole);
    }
    fill_window(&window, in, &shape.dim[2], &args);
    fill_channels(p, &args);
    return plan_windows(p, &args);
}

/* ---- GlobalLpPool ---- */

static mp_status plan_global(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_shape image = mp_shape_first(p, &x->shape);
    mp_shape shape = image;
    float power = 0;
    char text[MP_SHAPE_TEXT];
    MP_TRY(read_power(p, &power));
    if (image.rank < 3) {
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s has no spatial dimensions",
                       mp_shape_text(&x->shape, text));
    }
    for (int d = 2; d < shape.rank; d++) {
        shape.dim[d] = 1;
    }
    const mp_shape stored = mp_shape_stored(p, &shape);
    MP_TRY(mp_plan_output(p, 0, x->type, &stored));
    /* The window is one line as long as all spatial dimensions. */
    const int64_t plane = mp_shape_span(&image, 2, image.rank);
    const mp_window window = {
        .spatial = 1, .kernel = {plane}, .stride = {1}, .dilation = {1}, .pad_begin = {0}};
    mp_pool_args args = {
        .count = mp_shape_count(&shape), .plane = plane, .channels = image.dim[1], .power = power};
    if (args.count == 0) {
        return MP_OK;
    }
    const char *whole = whole_word(p, power);
    if (whole != NULL) {
        return plan_whole(p, whole);
    }
    MP_TRY(check_sizes(&window, &plane));
    fill_window(&window, &plane, &(const int64_t){1}, &args);
    fill_channels(p, &args);
    return plan_windows(p, &args);
}

/* ---- the rows ---- */

static const mp_attr_def max_attrs[] = {
    MP_WINDOW_ATTRS, {"ceil_mode", MP_ATTR_INT}, {"storage_order", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def mean_attrs[] = {
    MP_WINDOW_ATTRS, {"ceil_mode", MP_ATTR_INT}, {"count_include_pad", MP_ATTR_INT}, {NULL, 0}};

#define MAX_POOL(domain_, apart_, from, to, ...)                                                 \
    {                                                                                            \
        .domain = (domain_), .name = "MaxPool", .since = (from), .until = (to),                  \
        .types = {__VA_ARGS__}, .apart_in = (apart_), .apart_out = (apart_), .attrs = max_attrs, \
        .plan = plan_pool, .detail = "max"                                                       \
    }
#define MEAN_POOL(domain_, apart_)                                                \
    {                                                                             \
        .domain = (domain_), .name = "AveragePool", .since = 1, .until = 22,      \
        .types = {{"T", MP_FLOATS}}, .apart_in = (apart_), .apart_out = (apart_), \
        .attrs = mean_attrs, .plan = plan_pool, .detail = "mean"                  \
    }
/* The power was a float at first. */
static const mp_attr_def lp_old_attrs[] = {MP_WINDOW_ATTRS, {"p", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def lp_attrs[] = {
    MP_WINDOW_ATTRS, {"ceil_mode", MP_ATTR_INT}, {"p", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def global_old_attrs[] = {{"p", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def global_attrs[] = {{"p", MP_ATTR_INT}, {NULL, 0}};

#define NORM_ROW(name_, from, to, set, attrs_, plan_)                                           \
    {                                                                                           \
        .domain = "", .name = (name_), .since = (from), .until = (to), .types = {{"T", (set)}}, \
        .attrs = (attrs_), .plan = (plan_), .detail = "lp"                                      \
    }
#define INDICES \
    { "I", MP_BIT(MP_I64) }

/* `apart_`: whether pixels may lie apart. */
#define BOTH(domain_, apart_)                                                               \
    MAX_POOL(domain_, apart_, 1, 7, {"T", MP_IEEE_FLOATS}),                                 \
        MAX_POOL(domain_, apart_, 8, 11, {"T", MP_IEEE_FLOATS}, INDICES),                   \
        MAX_POOL(domain_, apart_, 12, 22, {"T", MP_FLOATS | MP_BIT(MP_I8) | MP_BIT(MP_U8)}, \
                 INDICES),                                                                  \
        MEAN_POOL(domain_, apart_)

static const mp_op ops[] = {
    BOTH("", 0),
    BOTH(MP_NHWC_DOMAIN, 1),
    NORM_ROW("LpPool", 1, 1, MP_IEEE_FLOATS, lp_old_attrs, plan_pool),
    NORM_ROW("LpPool", 2, 18, MP_IEEE_FLOATS, lp_attrs, plan_pool),
    NORM_ROW("LpPool", 22, 22, MP_FLOATS, lp_attrs, plan_pool),
    NORM_ROW("GlobalLpPool", 1, 1, MP_IEEE_FLOATS, global_old_attrs, plan_global),
    NORM_ROW("GlobalLpPool", 2, 2, MP_IEEE_FLOATS, global_attrs, plan_global),
    NORM_ROW("GlobalLpPool", 22, 22, MP_FLOATS, global_attrs, plan_global),
};

const mp_op_family mp__family_pool = {"pool", ops, MP_COUNT_OF(ops)};
