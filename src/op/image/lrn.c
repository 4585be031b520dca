/* lrn.c - LRN: each element by a power of the squares in the channels around it.
 * Kernel: image/lrn.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channel_steps.h"
#include "op/core/families.h"

/* Whether a lane has some channels of a pixel: few of them count, and pixels enough of a channel
 * lie side by side for lanes that do. */
static bool is_by_parts(const mp_lrn_args *args) {
    enum { PIXELS = 32 };
    return args->channels.inner >= PIXELS && !args->channels.wide && args->before <= K_LRN_SIDE &&
           args->after <= K_LRN_SIDE;
}

static mp_status plan_lrn(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_shape image = mp_shape_first(p, &x->shape);
    const int64_t size = mp_node_int(p->node, "size", 0);
    const mp_kernel *kernel = NULL;
    char text[MP_SHAPE_TEXT];
    if (image.rank < 2) {
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s has no channels",
                       mp_shape_text(&x->shape, text));
    }
    if (size < 1) {
        return MP_FAIL(INVALID_ARGUMENT, "size is %lld; it must be positive", (long long)size);
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    mp_lrn_args args = {
        .count = mp_shape_count(&image),
        .before = (size - 1) / 2,
        .after = size - 1 - (size - 1) / 2,
        .share = mp_node_float(p->node, "alpha", 1e-4F) / (float)size,
        .bias = mp_node_float(p->node, "bias", 1.0F),
        .beta = mp_node_float(p->node, "beta", 0.75F),
    };
    if (args.count == 0) {
        return MP_OK;
    }
    args.channels = mp_channels_of(p, &image);
    args.items = args.count;
    if (is_by_parts(&args)) {
        args.parts = (int32_t)MP_CEIL_DIV(args.channels.channels, K_LRN_CHANNELS);
        args.by_parts = mp_divider((uint32_t)args.parts);
        args.items = args.count / args.channels.channels * args.parts;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "lrn_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.items, 1), args,
                     MP_BIND(mp_lrn_args, x, MP_IN(0)), MP_BIND(mp_lrn_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {{"alpha", MP_ATTR_FLOAT},
                                    {"beta", MP_ATTR_FLOAT},
                                    {"bias", MP_ATTR_FLOAT},
                                    {"size", MP_ATTR_INT},
                                    {NULL, 0}};

#define ROW(domain_, from, to, set)                                         \
    {                                                                       \
        .domain = (domain_), .name = "LRN", .since = (from), .until = (to), \
        .types = {{"T", (set)}}, .attrs = attrs, .plan = plan_lrn           \
    }
#define ROWS(domain_) ROW(domain_, 1, 12, MP_IEEE_FLOATS), ROW(domain_, 13, 13, MP_FLOATS)

static const mp_op ops[] = {ROWS(""), ROWS(MP_NHWC_DOMAIN)};

const mp_op_family mp__family_lrn = {"lrn", ops, MP_COUNT_OF(ops)};
