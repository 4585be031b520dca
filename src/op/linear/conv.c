/* conv.c - Conv, FusedConv, those of com.microsoft with channels last: NhwcConv, NhwcFusedConv, and
 * StemConv, from channels first to channels last.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/linear/conv_stem.h"
#include "op/linear/conv_steps.h"
#include "op/linear/epilogue_steps.h"

static mp_status plan_conv(mp_planner *p) {
    mp_conv conv;
    mp_window window;
    MP_TRY(mp_conv_describe(p, false, &conv, &window));
    MP_TRY(mp_window_slide(&window, conv.in, conv.out));
    return mp_conv_finish(p, &conv, &window);
}

static mp_status plan_fused_conv(mp_planner *p) {
    mp_conv conv;
    mp_window window;
    MP_TRY(mp_conv_describe(p, false, &conv, &window));
    MP_TRY(mp_epilogue_read(p, &conv));
    MP_TRY(mp_window_slide(&window, conv.in, conv.out));
    return mp_conv_finish(p, &conv, &window);
}

static mp_status accept_stem_conv(const mp_planner *p) {
    return mp_conv_stem_suits(p->node, &p->in[1])
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "no kernel takes such a convolution from channels first to "
                                      "channels last");
}

static mp_status plan_stem_conv(mp_planner *p) {
    mp_conv conv;
    mp_window window;
    MP_TRY(mp_conv_describe(p, false, &conv, &window));
    MP_TRY(mp_epilogue_read(p, &conv));
    MP_TRY(mp_window_slide(&window, conv.in, conv.out));
    return mp_conv_finish_turned(p, &conv, &window);
}

static const mp_attr_def conv_attrs[] = {MP_WINDOW_ATTRS, {"group", MP_ATTR_INT}, {NULL, 0}};
#define FUSED_ATTRS                                                            \
    MP_WINDOW_ATTRS, {"group", MP_ATTR_INT}, {"activation", MP_ATTR_STRING}, { \
        "activation_params", MP_ATTR_FLOATS                                    \
    }
static const mp_attr_def fused_attrs[] = {FUSED_ATTRS, {NULL, 0}};
static const mp_attr_def own_fused_attrs[] = {
    FUSED_ATTRS, {"residual_behind", MP_ATTR_INT}, {NULL, 0}};
/* `apart_`: 1 where pixels of the image, and of the result, may lie apart. */
/* What makes a Conv an NhwcConv stores its weights so, too. */
static const mp_conv_form all_last = {.bias = 2, .weights_last = true};

#define CONV(domain_, apart_)                                                                      \
    {                                                                                              \
        .domain = (domain_), .name = "Conv", .since = 1, .until = 22, .types = {{"T", MP_FLOATS}}, \
        .needs_conv = true, .attrs = conv_attrs, .plan = plan_conv,                                \
        .prepare = mp_conv_prepare_weights, .apart_in = (apart_), .apart_out = (apart_)            \
    }
#define FUSED_CONV(domain_, types_, attrs_, apart_)                                        \
    {                                                                                      \
        .domain = (domain_), .name = "FusedConv", .since = 1, .until = 1,                  \
        .types = {{"T", (types_)}}, .needs_conv = true, .attrs = (attrs_),                 \
        .plan = plan_fused_conv, .prepare = mp_conv_prepare_weights, .apart_in = (apart_), \
        .apart_out = (apart_)                                                              \
    }
static const mp_op ops[] = {
    CONV("", 0),
    CONV(MP_NHWC_DOMAIN, 1),
    FUSED_CONV("com.microsoft", MP_IEEE_FLOATS, fused_attrs, 0),
    FUSED_CONV(MP_OWN_DOMAIN, MP_FLOATS, own_fused_attrs, 0),
    FUSED_CONV(MP_OWN_NHWC_DOMAIN, MP_FLOATS, own_fused_attrs, 1),
    {.domain = MP_OWN_DOMAIN, /* from channels first to channels last */
     .name = "StemConv",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .needs_conv = true,
     .attrs = fused_attrs,
     .plan = plan_stem_conv,
     .accept = accept_stem_conv},
    {.domain = "com.microsoft",
     .name = "NhwcConv",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_IEEE_FLOATS}},
     .needs_conv = true,
     .attrs = conv_attrs,
     .plan = plan_conv,
     .prepare = mp_conv_prepare_weights,
     .detail = &all_last},
    {.domain = "com.microsoft",
     .name = "NhwcFusedConv",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16)}},
     .needs_conv = true,
     .attrs = fused_attrs,
     .plan = plan_fused_conv,
     .prepare = mp_conv_prepare_weights},
};

const mp_op_family mp__family_conv = {"conv", ops, MP_COUNT_OF(ops)};
