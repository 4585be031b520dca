/* depth_to_space.c - DepthToSpace and SpaceToDepth: one strided copy between the image with small
 * pixels, [batch, channels, rows * block, columns * block], and the one with many channels. It
 * walks [batch, channel, row, row in block, column, column in block].
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/move/strided_copy.h"

#include <string.h>

enum { WALK_RANK = 6 };

/* The order of the many channels: the place in the block is their outer part, or their inner. */
static mp_status read_order(const mp_node *node, bool *block_outer) {
    const char *mode = mp_node_string(node, "mode", "DCR");
    *block_outer = strcmp(mode, "DCR") == 0;
    return *block_outer || strcmp(mode, "CRD") == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "mode '%s' is not known; use DCR or CRD", mode);
}

static void walk_small(const mp_planner *p, const mp_shape *small, int64_t block,
                       int64_t stride[MP_RANK_MAX]) {
    int64_t own[MP_RANK_MAX] = {0};
    mp_stored_strides(p, small, own);
    const int64_t steps[WALK_RANK] = {own[0], own[1],         own[2] * block,
                                      own[2], own[3] * block, own[3]};
    memcpy(stride, steps, sizeof steps);
}

static void walk_deep(const mp_planner *p, const mp_shape *deep, int64_t channels, int64_t block,
                      bool block_outer, int64_t stride[MP_RANK_MAX]) {
    int64_t own[MP_RANK_MAX] = {0};
    mp_stored_strides(p, deep, own);
    const int64_t channel = block_outer ? own[1] : own[1] * block * block;
    const int64_t place = block_outer ? own[1] * channels : own[1];
    const int64_t steps[WALK_RANK] = {own[0], channel, own[2], place * block, own[3], place};
    memcpy(stride, steps, sizeof steps);
}

static mp_status read_block(const mp_planner *p, const mp_shape *x, int64_t *block) {
    enum { BLOCK_MAX = 1 << 15 };
    char text[MP_SHAPE_TEXT];
    *block = mp_node_int(p->node, "blocksize", 0);
    if (x->rank != 4) {
        return MP_FAIL(INVALID_ARGUMENT, "input of shape %s where four dimensions are needed",
                       mp_shape_text(x, text));
    }
    return *block >= 1 && *block <= BLOCK_MAX
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "blocksize is %lld; it must be from 1 to %d",
                         (long long)*block, BLOCK_MAX);
}

static mp_status indivisible(const mp_shape *x, int64_t block) {
    char text[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT,
                   "input of shape %s, channels first, does not divide by blocks of %lld",
                   mp_shape_text(x, text), (long long)block);
}

static mp_status plan_depth_to_space(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_shape deep = mp_shape_first(p, &x->shape);
    int64_t block = 0;
    bool block_outer = true;
    MP_TRY(read_block(p, &deep, &block));
    MP_TRY(read_order(p->node, &block_outer));
    if (deep.dim[1] % (block * block) != 0) {
        return indivisible(&deep, block);
    }
    const int64_t channels = deep.dim[1] / (block * block);
    const mp_shape small = {
        .rank = 4, .dim = {deep.dim[0], channels, deep.dim[2] * block, deep.dim[3] * block}};
    const mp_shape stored = mp_shape_stored(p, &small);
    MP_TRY(mp_plan_output(p, 0, x->type, &stored));
    const mp_shape walk = {.rank = WALK_RANK,
                           .dim = {deep.dim[0], channels, deep.dim[2], block, deep.dim[3], block}};
    mp_strided source = {.ref = MP_IN(0)};
    mp_strided target = {.ref = MP_OUT(0)};
    walk_deep(p, &deep, channels, block, block_outer, source.stride);
    walk_small(p, &small, block, target.stride);
    return mp_plan_strided_copy(p, &walk, mp_dtype_size(x->type), &source, &target);
}

static mp_status plan_space_to_depth(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_shape small = mp_shape_first(p, &x->shape);
    int64_t block = 0;
    MP_TRY(read_block(p, &small, &block));
    if (small.dim[2] % block != 0 || small.dim[3] % block != 0) {
        return indivisible(&small, block);
    }
    const int64_t channels = small.dim[1];
    int64_t deep_channels = 0;
    if (__builtin_mul_overflow(channels, block * block, &deep_channels)) {
        return indivisible(&small, block);
    }
    const mp_shape deep = {
        .rank = 4,
        .dim = {small.dim[0], deep_channels, small.dim[2] / block, small.dim[3] / block}};
    const mp_shape stored = mp_shape_stored(p, &deep);
    MP_TRY(mp_plan_output(p, 0, x->type, &stored));
    const mp_shape walk = {.rank = WALK_RANK,
                           .dim = {small.dim[0], channels, deep.dim[2], block, deep.dim[3], block}};
    mp_strided source = {.ref = MP_IN(0)};
    mp_strided target = {.ref = MP_OUT(0)};
    walk_small(p, &small, block, source.stride);
    walk_deep(p, &deep, channels, block, true, target.stride);
    return mp_plan_strided_copy(p, &walk, mp_dtype_size(x->type), &source, &target);
}

static const mp_attr_def attrs[] = {
    {"blocksize", MP_ATTR_INT}, {"mode", MP_ATTR_STRING}, {NULL, 0}};

#define ROW(domain_, name_, from, to, set, plan_)                             \
    {                                                                         \
        .domain = (domain_), .name = (name_), .since = (from), .until = (to), \
        .types = {{"T", (set)}}, .attrs = attrs, .plan = (plan_)              \
    }
#define ROWS(domain_)                                                            \
    ROW(domain_, "DepthToSpace", 1, 11, MP_OLD_TYPES, plan_depth_to_space),      \
        ROW(domain_, "DepthToSpace", 13, 13, MP_ALL_TYPES, plan_depth_to_space), \
        ROW(domain_, "SpaceToDepth", 1, 1, MP_OLD_TYPES, plan_space_to_depth),   \
        ROW(domain_, "SpaceToDepth", 13, 13, MP_ALL_TYPES, plan_space_to_depth)

static const mp_op ops[] = {ROWS(""), ROWS(MP_NHWC_DOMAIN)};

const mp_op_family mp__family_depth_to_space = {"depth_to_space", ops, MP_COUNT_OF(ops)};
