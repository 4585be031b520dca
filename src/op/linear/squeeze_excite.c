/* squeeze_excite.c - SqueezeExcite: from images with channels last the gates of their channels, as
 * two convolutions of one pixel make them of a global mean; with `scales` the images times these,
 * and with `adds` the images added to that, in one launch or in two (squeeze_excite_cut.h). A pass
 * puts it in their place.
 * Kernel: linear/squeeze_excite.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/linear/squeeze_excite_cut.h"
#include "op/pointwise/activation_steps.h"

#include <string.h>

enum { X, FIRST, FIRST_BIAS, SECOND, SECOND_BIAS, INPUTS, IMAGE_RANK = 4, PACK_BYTES = 16 };

/* ---- what it takes ---- */

static bool is_row(const mp_tensor *bias, int64_t length) {
    return bias == NULL || (bias->shape.rank == 1 && bias->shape.dim[0] == length);
}

static bool is_pixel_kernel(const mp_tensor *w) {
    return w->shape.rank == IMAGE_RANK && w->shape.dim[0] > 0 && w->shape.dim[1] > 0 &&
           w->shape.dim[2] == 1 && w->shape.dim[3] == 1;
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
    const bool scales = mp_node_int(p->node, "scales", 0) != 0;
    const int64_t pack = PACK_BYTES / (int64_t)mp_dtype_size(p->in[FIRST].type);
    const mp_shape *w1 = &p->in[FIRST].shape;
    const mp_shape *w2 = &p->in[SECOND].shape;
    const bool fits = is_pixel_kernel(&p->in[FIRST]) && is_pixel_kernel(&p->in[SECOND]) &&
                      w2->dim[1] == w1->dim[0] && w1->dim[1] % pack == 0 &&
                      (!scales || w2->dim[0] == w1->dim[1]) && w1->dim[0] <= HELD_MAX &&
                      w1->dim[1] <= HELD_MAX && 2 * w1->dim[1] + w1->dim[0] <= HELD_MAX &&
                      w2->dim[0] <= INT32_MAX / 2 &&
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

/* The emulated device has fewer lanes, each of which is a lot of work to it. */
static mp_excite_room room_of(const mp_planner *p) {
    enum { EMULATED_LANES = 32 };
    const mp_device_info *info = &p->device->info;
    const bool emulated = info->kind == MP_DEVICE_HOST;
    return (mp_excite_room){.images = p->in[X].shape.dim[0],
                            .size = (int32_t)mp_dtype_size(p->in[X].type),
                            .lanes = emulated ? EMULATED_LANES : K_EXCITE_LANES,
                            .multiprocessors = MP_MAX(info->multiprocessors, 1),
                            .cluster_max = info->cluster_blocks_max,
                            .shared_max = (int64_t)info->shared_bytes_max,
                            .emulated = emulated};
}

static mp_status launch(mp_planner *p, const mp_excite_room *room, const mp_excite_args *a,
                        const mp_ref in[INPUTS], mp_ref parts, mp_ref out) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "squeeze_excite_%s", mp_dtype_word(p->in[X].type)));
    const mp_grid grid = {.blocks = (uint32_t)(room->images * a->blocks),
                          .lanes = (uint32_t)room->lanes,
                          .shared_bytes = (uint32_t)mp_excite_held(room, a),
                          .meets = a->meets ? (uint32_t)a->blocks : 0};
    return MP_LAUNCH(
        p, kernel, grid, *a, MP_BIND(mp_excite_args, x, in[X]),
        MP_BIND(mp_excite_args, w1, in[FIRST]), MP_BIND(mp_excite_args, b1, in[FIRST_BIAS]),
        MP_BIND(mp_excite_args, w2, in[SECOND]), MP_BIND(mp_excite_args, b2, in[SECOND_BIAS]),
        MP_BIND(mp_excite_args, out, (a->work & K_EXCITE_GATES) != 0 ? out : MP_NOWHERE),
        MP_BIND(mp_excite_args, parts, parts));
}

static mp_status plan_launches(mp_planner *p, const mp_excite_args *image, size_t bytes) {
    const mp_excite_room room = room_of(p);
    mp_excite_args cut[2] = {*image};
    mp_ref in[INPUTS], parts = MP_NOWHERE, out = MP_OUT(0);
    const int launches = mp_excite_cut(&room, cut);
    for (int i = 0; i < INPUTS; i++) {
        MP_TRY(mp_plan_aligned(p, i, &in[i]));
    }
    if (p->align < PACK_BYTES) {
        MP_TRY(mp_plan_scratch(p, bytes, &out));
    }
    if (launches > 1) {
        const mp_shape shape = {.rank = 3, .dim = {room.images, cut[0].told, cut[0].pitch}};
        MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, &parts));
    }
    for (int i = 0; i < launches; i++) {
        MP_TRY(launch(p, &room, &cut[i], in, parts, out));
    }
    return out.place == MP_PLACE_OUT ? MP_OK : mp_plan_copy(p, MP_OUT(0), out, bytes);
}

static bool are_constant(const mp_planner *p) {
    bool all = true;
    for (int i = FIRST; i < INPUTS; i++) {
        all = all && (mp_plan_in(p, i) == NULL || mp_plan_is_constant(p, MP_IN(i)));
    }
    return all && p->align >= PACK_BYTES; /* not of copies */
}

static mp_status plan_squeeze_excite(mp_planner *p) {
    MP_TRY(check(p));
    const mp_shape *x = &p->in[X].shape;
    const mp_shape *w2 = &p->in[SECOND].shape;
    const bool scales = mp_node_int(p->node, "scales", 0) != 0;
    const bool adds = mp_node_int(p->node, "adds", 0) != 0;
    const mp_shape gates = {.rank = IMAGE_RANK, .dim = {x->dim[0], 1, 1, w2->dim[0]}};
    mp_excite_args a = {.pixels = (int32_t)(x->dim[1] * x->dim[2]),
                        .channels = (int32_t)x->dim[3],
                        .inner = (int32_t)w2->dim[1],
                        .gates = (int32_t)w2->dim[0],
                        .work = (scales ? K_EXCITE_SCALE : 0) | (adds ? K_EXCITE_ADD : 0),
                        .constant = are_constant(p)};
    const mp_shape *made = scales ? x : &gates;
    size_t bytes = 0;
    MP_TRY(mp_plan_output(p, 0, p->in[X].type, made));
    MP_TRY(mp_shape_bytes(made, p->in[X].type, &bytes));
    MP_TRY(read_activations(p->node, &a));
    const bool is_empty = x->dim[0] == 0 || (scales && a.pixels == 0);
    return is_empty ? MP_OK : plan_launches(p, &a, bytes);
}

static const mp_attr_def attrs[] = {{"activation", MP_ATTR_STRING},
                                    {"activation_params", MP_ATTR_FLOATS},
                                    {"adds", MP_ATTR_INT},
                                    {"gating", MP_ATTR_STRING},
                                    {"gating_params", MP_ATTR_FLOATS},
                                    {"scales", MP_ATTR_INT},
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
