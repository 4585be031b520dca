/* squeeze_excite.c - SqueezeExcite: from images with channels last the gates of their channels, as
 * two convolutions of one pixel make them of a global mean. A pass puts it in their place.
 * Kernel: linear/squeeze_excite.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/pointwise/activation_steps.h"

#include "kernel/linear/linear_args.h"

#include <string.h>

enum { X, FIRST, FIRST_BIAS, SECOND, SECOND_BIAS, IMAGE_RANK = 4, PACK_BYTES = 16, WARP = 32 };

/* ---- what it takes ---- */

static bool is_row(const mp_tensor *bias, int64_t length) {
    return bias == NULL || (bias->shape.rank == 1 && bias->shape.dim[0] == length);
}

static bool is_pixel_kernel(const mp_tensor *w) {
    return w->shape.rank == IMAGE_RANK && w->shape.dim[0] > 0 && w->shape.dim[1] > 0 &&
           w->shape.dim[2] == 1 && w->shape.dim[3] == 1;
}

/* The emulated device has fewer, each of which is a lot of work to it. */
static uint32_t lanes_of(const mp_planner *p) {
    return p->device->info.kind == MP_DEVICE_HOST ? WARP : K_EXCITE_LANES;
}

static int64_t bytes_of_rows(const mp_planner *p, const mp_excite_args *a) {
    const int64_t rows = (int64_t)a->rows1 * a->channels + (int64_t)a->rows2 * a->inner;
    return MP_ALIGN_UP(rows * (int64_t)mp_dtype_size(p->in[X].type), PACK_BYTES);
}

static int64_t bytes_held(const mp_planner *p, const mp_excite_args *a) {
    const int64_t pack = PACK_BYTES / (int64_t)mp_dtype_size(p->in[X].type);
    const int64_t numbers = (int64_t)a->blocks * a->slice + a->channels + a->inner;
    return PACK_BYTES * 2 + lanes_of(p) * (pack + 1) * (int64_t)sizeof(double) +
           numbers * (int64_t)sizeof(float) + (a->held ? bytes_of_rows(p, a) : 0);
}

/* Blocks enough that each has little to fetch, of the image and of the weights, as long as all
 * images fit on the device at once. */
static int32_t blocks_of(const mp_planner *p, int64_t images, const mp_excite_args *a) {
    enum { BYTES_EACH = 24 << 10, BLOCKS_EACH = 2 };
    const mp_device_info *info = &p->device->info;
    const int64_t numbers =
        (int64_t)a->channels * (a->pixels + a->inner) + (int64_t)a->inner * a->gates;
    const int64_t bytes = numbers * (int64_t)mp_dtype_size(p->in[X].type);
    const int64_t most = (int64_t)info->multiprocessors * BLOCKS_EACH / images;
    int32_t blocks = 1;
    while (blocks * 2 <= MP_MIN(most, info->cluster_blocks_max) && blocks * BYTES_EACH < bytes) {
        blocks *= 2;
    }
    return blocks;
}

static int32_t power_from(int64_t least, int32_t most) {
    int32_t power = 1;
    while (power < most && power < least) {
        power *= 2;
    }
    return power;
}

static void cut(const mp_planner *p, int64_t images, mp_excite_args *a) {
    const int32_t pack = PACK_BYTES / (int32_t)mp_dtype_size(p->in[X].type);
    a->blocks = images > 0 ? blocks_of(p, images, a) : 1;
    a->piece = MP_CEIL_DIV(a->pixels, a->blocks);
    a->slice = MP_CEIL_DIV(a->channels, a->blocks);
    a->beside = power_from(a->channels / pack, (int32_t)lanes_of(p));
    a->width = power_from(MP_MAX((a->inner + 1) / 2, K_EXCITE_GATES), WARP);
    a->rows1 = MP_CEIL_DIV(a->inner, a->blocks);
    a->rows2 = MP_ALIGN_UP(MP_CEIL_DIV(a->gates, a->blocks), pack);
    a->held = 1;
    a->held = p->device->info.kind == MP_DEVICE_CUDA &&
              bytes_held(p, a) <= (int64_t)p->device->info.shared_bytes_max;
    a->constant = mp_plan_is_constant(p, MP_IN(FIRST)) && mp_plan_is_constant(p, MP_IN(SECOND));
}

static const char *const names[] = {"activation", "gating"};

/* The kernel has these. */
static bool is_known(const char *activation) {
    static const char *const known[] = {"", "Relu", "Sigmoid", "HardSigmoid", "HardSwish", "Silu"};
    for (size_t i = 0; i < MP_COUNT_OF(known); i++) {
        if (strcmp(activation, known[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The channels, and what they are squeezed to, are those of the weights. */
static mp_status accept(const mp_planner *p) {
    enum { HELD_MAX = 10 << 10 }; /* numbers that a block holds, the channels twice */
    const int64_t pack = PACK_BYTES / (int64_t)mp_dtype_size(p->in[FIRST].type);
    const mp_shape *w1 = &p->in[FIRST].shape;
    const mp_shape *w2 = &p->in[SECOND].shape;
    const bool fits = is_pixel_kernel(&p->in[FIRST]) && is_pixel_kernel(&p->in[SECOND]) &&
                      w2->dim[1] == w1->dim[0] && w1->dim[1] % pack == 0 &&
                      w1->dim[0] <= HELD_MAX && w1->dim[1] <= HELD_MAX &&
                      2 * w1->dim[1] + w1->dim[0] <= HELD_MAX && w2->dim[0] <= INT32_MAX / 2 &&
                      is_known(mp_node_string(p->node, names[0], "")) &&
                      is_known(mp_node_string(p->node, names[1], "")) &&
                      is_row(mp_plan_in(p, FIRST_BIAS), w1->dim[0]) &&
                      is_row(mp_plan_in(p, SECOND_BIAS), w2->dim[0]);
    return fits ? MP_OK
                : MP_FAIL(UNSUPPORTED, "no kernel squeezes and excites by weights of such shapes, "
                                       "or with such an activation");
}

/* ---- planning ---- */

static mp_status read_activations(const mp_node *node, mp_excite_args *a) {
    static const char *const params[] = {"activation_params", "gating_params"};
    mp_activate *into[] = {&a->squeezed, &a->gating};
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        const mp_attr *given = mp_node_attr(node, params[i]);
        mp_activation_choice choice;
        MP_TRY(mp_activation_read(mp_node_string(node, names[i], NULL),
                                  given != NULL ? given->floats : NULL,
                                  given != NULL ? given->count : 0, &choice));
        *into[i] = (mp_activate){.kind = (int32_t)choice.kind, .alpha = choice.a, .beta = choice.b};
    }
    return MP_OK;
}

/* Input `i` where its elements lie at multiples of 16 bytes: a copy where they may not. */
static mp_status aligned(mp_planner *p, int i, mp_ref *out) {
    size_t bytes = 0;
    *out = MP_IN(i);
    if (p->align >= PACK_BYTES) {
        return MP_OK;
    }
    MP_TRY(mp_shape_bytes(&p->in[i].shape, p->in[i].type, &bytes));
    MP_TRY(mp_plan_scratch(p, bytes, out));
    return mp_plan_copy(p, *out, MP_IN(i), bytes);
}

static mp_status check(const mp_planner *p) {
    enum { IMAGES_MAX = INT32_MAX / 16 }; /* a grid has that many clusters */
    const mp_shape *x = &p->in[X].shape;
    char text[MP_SHAPE_TEXT];
    MP_TRY(accept(p));
    if (x->rank != IMAGE_RANK || x->dim[3] != p->in[FIRST].shape.dim[1] || x->dim[0] > IMAGES_MAX ||
        x->dim[1] > INT32_MAX / MP_MAX(x->dim[2], 1)) {
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s is no image of %lld channels, or too large",
                       mp_shape_text(x, text), (long long)p->in[FIRST].shape.dim[1]);
    }
    return MP_OK;
}

static mp_status plan_squeeze_excite(mp_planner *p) {
    MP_TRY(check(p));
    const mp_shape *x = &p->in[X].shape;
    const mp_shape *w2 = &p->in[SECOND].shape;
    const mp_shape shape = {.rank = IMAGE_RANK, .dim = {x->dim[0], 1, 1, w2->dim[0]}};
    mp_excite_args a = {.pixels = (int32_t)(x->dim[1] * x->dim[2]),
                        .channels = (int32_t)x->dim[3],
                        .inner = (int32_t)w2->dim[1],
                        .gates = (int32_t)w2->dim[0]};
    const mp_kernel *kernel = NULL;
    mp_ref image = MP_IN(X), first = MP_IN(FIRST), second = MP_IN(SECOND);
    MP_TRY(mp_plan_output(p, 0, p->in[X].type, &shape));
    MP_TRY(read_activations(p->node, &a));
    cut(p, x->dim[0], &a);
    if (x->dim[0] == 0) {
        return MP_OK;
    }
    MP_TRY(aligned(p, X, &image));
    MP_TRY(aligned(p, FIRST, &first));
    MP_TRY(aligned(p, SECOND, &second));
    MP_TRY(mp_plan_kernel(p, &kernel, "squeeze_excite_%s", mp_dtype_word(p->in[X].type)));
    const mp_grid grid = {.blocks = (uint32_t)(x->dim[0] * a.blocks),
                          .lanes = lanes_of(p),
                          .shared_bytes = (uint32_t)bytes_held(p, &a),
                          .meets = a.blocks > 1 ? (uint32_t)a.blocks : 0};
    return MP_LAUNCH(p, kernel, grid, a, MP_BIND(mp_excite_args, x, image),
                     MP_BIND(mp_excite_args, w1, first),
                     MP_BIND(mp_excite_args, b1,
                             mp_plan_in(p, FIRST_BIAS) != NULL ? MP_IN(FIRST_BIAS) : MP_NOWHERE),
                     MP_BIND(mp_excite_args, w2, second),
                     MP_BIND(mp_excite_args, b2,
                             mp_plan_in(p, SECOND_BIAS) != NULL ? MP_IN(SECOND_BIAS) : MP_NOWHERE),
                     MP_BIND(mp_excite_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {{"activation", MP_ATTR_STRING},
                                    {"activation_params", MP_ATTR_FLOATS},
                                    {"gating", MP_ATTR_STRING},
                                    {"gating_params", MP_ATTR_FLOATS},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_NHWC_DOMAIN,
     .name = "SqueezeExcite",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_squeeze_excite,
     .accept = accept},
};

const mp_op_family mp__family_squeeze_excite = {"squeeze_excite", ops, MP_COUNT_OF(ops)};
