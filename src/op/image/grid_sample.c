/* grid_sample.c - GridSample: an image sampled at the points of a grid, over two dimensions or
 * three.
 * Kernel: image/grid_sample.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/sample_args.h"
#include "op/core/channels.h"
#include "op/core/families.h"

#include <string.h>

typedef struct word {
    const char *text;
    int32_t value;
} word;

/* How many pixels of two dimensions are weighed; each with the name it had before schema 20. */
enum { NEAREST = 1, LINEAR = 4, CUBIC = 16 };
static const word modes[] = {{"linear", LINEAR}, {"bilinear", LINEAR}, {"nearest", NEAREST},
                             {"cubic", CUBIC},   {"bicubic", CUBIC},   {NULL, 0}};
static const word paddings[] = {{"zeros", K_SAMPLE_ZEROS},
                                {"border", K_SAMPLE_BORDER},
                                {"reflection", K_SAMPLE_REFLECTION},
                                {NULL, 0}};

static mp_status read_word(const mp_node *node, const char *name, const word *words, int32_t *out) {
    const char *text = mp_node_string(node, name, words[0].text);
    for (const word *w = words; w->text != NULL; w++) {
        if (strcmp(w->text, text) == 0) {
            *out = w->value;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "%s '%s' is not known", name, text);
}

static mp_status check_shapes(const mp_shape *x, const mp_shape *grid) {
    char x_text[MP_SHAPE_TEXT];
    char grid_text[MP_SHAPE_TEXT];
    const int dims = x->rank - 2;
    if ((dims != 2 && dims != 3) || grid->rank != x->rank || grid->dim[0] != x->dim[0] ||
        grid->dim[grid->rank - 1] != dims) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "X of shape %s, channels first, and grid of shape %s do not fit",
                       mp_shape_text(x, x_text), mp_shape_text(grid, grid_text));
    }
    return MP_OK;
}

static mp_status read_attrs(const mp_planner *p, mp_grid_sample_args *args, int32_t *pixels) {
    MP_TRY(read_word(p->node, "mode", modes, pixels));
    MP_TRY(read_word(p->node, "padding_mode", paddings, &args->padding));
    args->align_corners = mp_node_int(p->node, "align_corners", 0) != 0;
    if (*pixels == CUBIC && args->dims == 3) {
        return MP_FAIL(UNSUPPORTED, "mode cubic needs two spatial dimensions, not three");
    }
    *pixels *= *pixels == LINEAR && args->dims == 3 ? 2 : 1;
    return MP_OK;
}

/* Which lane makes what. */
static void deal(mp_grid_sample_args *args, int64_t images) {
    args->groups = MP_CEIL_DIV(args->channels, K_SAMPLE_EACH);
    args->count = images * args->groups * args->points;
    args->wide = args->count > INT32_MAX;
    if (!args->wide) {
        const int64_t inner = args->channels_last ? args->groups : args->points;
        const int64_t outer = args->channels_last ? args->points : args->groups;
        args->by_inner = mp_divider((uint32_t)inner);
        args->by_outer = mp_divider((uint32_t)outer);
    }
}

static mp_status plan_grid_sample(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_shape image = mp_shape_first(p, &x->shape);
    const mp_shape *grid = &p->in[1].shape;
    const mp_kernel *kernel = NULL;
    int32_t pixels = 0;
    mp_grid_sample_args args = {.dims = image.rank - 2, .in = {1, 1, 1}};
    MP_TRY(check_shapes(&image, grid));
    MP_TRY(read_attrs(p, &args, &pixels));
    mp_shape shape = image;
    memcpy(&shape.dim[2], &grid->dim[1], (size_t)args.dims * sizeof(int64_t));
    const mp_shape stored = mp_shape_stored(p, &shape);
    MP_TRY(mp_plan_output(p, 0, x->type, &stored));
    args.points = mp_shape_span(&shape, 2, shape.rank);
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    if (mp_shape_count(&image) == 0) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s has nothing to sample",
                       mp_shape_text(&x->shape, text));
    }
    int64_t stride[MP_RANK_MAX] = {0};
    mp_stored_strides(p, &image, stride);
    args.batch_stride = stride[0];
    args.channel_stride = stride[1];
    args.point_stride = stride[image.rank - 1];
    args.channels = image.dim[1];
    args.channels_last = mp_channels_last(p);
    memcpy(&args.in[K_SAMPLE_DIMS - args.dims], &image.dim[2], (size_t)args.dims * sizeof(int64_t));
    deal(&args, image.dim[0]);
    MP_TRY(mp_plan_kernel(p, &kernel, "grid_sample_%d_%s_%s", (int)pixels, mp_dtype_word(x->type),
                          mp_dtype_word(p->in[1].type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, args.count, 1), args, MP_BIND(mp_grid_sample_args, x, MP_IN(0)),
        MP_BIND(mp_grid_sample_args, grid, MP_IN(1)), MP_BIND(mp_grid_sample_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {{"align_corners", MP_ATTR_INT},
                                    {"mode", MP_ATTR_STRING},
                                    {"padding_mode", MP_ATTR_STRING},
                                    {NULL, 0}};

#define ROW(domain_, from, to)                                                     \
    {                                                                              \
        .domain = (domain_), .name = "GridSample", .since = (from), .until = (to), \
        .types = {{"T1", MP_IEEE_FLOATS}, {"T2", MP_IEEE_FLOATS}}, .attrs = attrs, \
        .plan = plan_grid_sample                                                   \
    }

static const mp_op ops[] = {
    ROW("", 16, 22),
    ROW("com.microsoft", 1, 1),
    ROW(MP_NHWC_DOMAIN, 16, 22),
};

const mp_op_family mp__family_grid_sample = {"grid_sample", ops, MP_COUNT_OF(ops)};
