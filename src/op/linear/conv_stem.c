/* conv_stem.c - see conv_stem.h.
 * Kernel: linear/conv_stem.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/conv_stem.h"

#include "op/signal/signal_window.h"

enum {
    ARCH = 80,               /* whose tensor cores the kernel is written for */
    LANES_MIN = 128,         /* of a block */
    LANES_WIDE = 512,        /* of a multiprocessor, as the kernel's registers allow */
    LANES_NARROW = 768,      /* with K_WIDE of 32 */
    SHARED_EACH = 200 << 10, /* shared memory of a large multiprocessor, in bytes */
};

/* Large tiles see less of the image twice and bring up the weights less often, but all
 * multiprocessors want some. */
static bool cut(const mp_planner *p, const mp_conv *conv, mp_stem_form form, mp_stem_args *out) {
    enum { TILES_EACH = 2 };
    return (mp_stem_cut(conv, form, K_STEM_LANES, out) &&
            out->count >= TILES_EACH * p->device->info.multiprocessors) ||
           mp_stem_cut(conv, form, LANES_MIN, out);
}

bool mp_conv_stem_takes(const mp_planner *p, const mp_conv *conv, mp_stem_form form) {
    mp_stem_args a;
    return p->device->info.arch >= ARCH && cut(p, conv, form, &a) &&
           mp_stem_held(conv, &a) <= (int64_t)p->device->info.shared_bytes_max;
}

bool mp_conv_stem_suits(const mp_node *node, const mp_tensor *w) {
    enum { LINE = 3, PICTURE = 4, SIDE = 256 }; /* whether a tile fits is the same for all sizes */
    mp_window window;
    mp_stem_args a;
    const int spatial = w->shape.rank - 2;
    if (w->shape.rank < LINE || w->shape.rank > PICTURE || mp_node_int(node, "group", 1) != 1 ||
        mp_window_read(node, spatial, &w->shape.dim[2], &window) != MP_OK) {
        return false;
    }
    mp_conv conv = {.type = w->type,
                    .tf32 = node->options.tf32,
                    .spatial = spatial,
                    .batch = 1,
                    .in_channels = w->shape.dim[1],
                    .out_channels = w->shape.dim[0],
                    .groups = 1};
    for (int d = 0; d < conv.spatial; d++) {
        conv.in[d] = conv.out[d] = SIDE;
        conv.kernel[d] = window.kernel[d];
        conv.stride[d] = window.stride[d];
        conv.dilation[d] = window.dilation[d];
    }
    return mp_stem_cut(&conv, (mp_stem_form){.y_last = true}, LANES_MIN, &a);
}

/* As many blocks as are there at once: each brings up the weights. */
static mp_grid grid_of(const mp_planner *p, const mp_conv *conv, const mp_stem_args *a) {
    const int64_t held = mp_stem_held(conv, a);
    const int64_t each = (mp_stem_wide(conv) > 32 ? LANES_WIDE : LANES_NARROW) / a->pixels;
    const int64_t most = p->device->info.multiprocessors * MP_MIN(each, SHARED_EACH / held);
    return (mp_grid){.blocks = (uint32_t)MP_MIN(a->count, most),
                     .lanes = (uint32_t)a->pixels,
                     .shared_bytes = (uint32_t)held};
}

mp_status mp_conv_stem_steps(mp_planner *p, const mp_conv *conv, mp_stem_form form,
                             const mp_ref operands[MP_CONV_OPERANDS]) {
    const mp_kernel *kernel = NULL;
    mp_stem_args a;
    if (!cut(p, conv, form, &a)) {
        return MP_FAIL(INTERNAL, "the kernel for few channels has no such convolution");
    }
    a.constant = mp_plan_is_constant(p, operands[MP_CONV_W]) &&
                 mp_plan_is_constant(p, operands[MP_CONV_BIAS]);
    const mp_grid grid = grid_of(p, conv, &a);
    MP_TRY(mp_plan_kernel(p, &kernel, "conv_stem_%d_%s", mp_stem_wide(conv),
                          mp_dtype_word(conv->type)));
    return MP_LAUNCH(p, kernel, grid, a, MP_BIND(mp_stem_args, x, operands[MP_CONV_X]),
                     MP_BIND(mp_stem_args, w, operands[MP_CONV_W]),
                     MP_BIND(mp_stem_args, bias, operands[MP_CONV_BIAS]),
                     MP_BIND(mp_stem_args, y, operands[MP_CONV_Y]));
}
