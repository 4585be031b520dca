/* heads_bias.c - see heads_bias.h. One launch for all where rows are whole pieces of 16 bytes;
 * otherwise an addition for each.
 * Kernel: attention/heads_bias.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/heads_bias.h"

#include "kernel/attention/attention_args.h"
#include "op/pointwise/pointwise_steps.h"

static mp_shape shape_of(const mp_heads_bias *side) {
    return (mp_shape){.rank = 2, .dim = {side->rows, side->width}};
}

static bool is_packed(const mp_planner *p, int64_t pack, const mp_heads_bias *side) {
    enum { PACKS_MAX = 1 << 30 };
    const mp_shape shape = shape_of(side);
    return p->align >= 16 && side->x.offset % 16 == 0 && side->bias.offset % 16 == 0 &&
           side->width % pack == 0 && mp_shape_count(&shape) / pack < PACKS_MAX;
}

static mp_status add(mp_planner *p, mp_dtype type, mp_heads_bias *side) {
    const mp_shape shape = shape_of(side), line = {.rank = 1, .dim = {side->width}};
    const mp_operand plain = {side->x, &shape}, added = {side->bias, &line};
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_shape(p, &shape, type, &side->x));
    return mp_pointwise2(p, "add", type, plain, added, side->x, &shape, 0, 0);
}

static mp_status add_all(mp_planner *p, mp_dtype type, int64_t pack, mp_heads_bias *sides,
                         int count) {
    mp_heads_bias_args args = {.side = {{.x = NULL}}};
    mp_ref x[K_HEADS_BIAS_SIDES] = {MP_NOWHERE}, bias[K_HEADS_BIAS_SIDES] = {MP_NOWHERE};
    mp_ref out[K_HEADS_BIAS_SIDES] = {MP_NOWHERE};
    const mp_kernel *kernel = NULL;
    int64_t units = 0;
    for (int i = 0; i < count; i++) {
        const mp_shape shape = shape_of(&sides[i]);
        const int64_t packs = mp_shape_count(&shape) / pack;
        if (packs == 0) {
            continue;
        }
        MP_TRY(mp_plan_scratch_shape(p, &shape, type, &out[i]));
        x[i] = sides[i].x;
        bias[i] = sides[i].bias;
        sides[i].x = out[i];
        args.side[i].packs = (uint32_t)packs;
        args.side[i].row = (uint32_t)(sides[i].width / pack);
        args.side[i].by_row = mp_divider(args.side[i].row);
        units += MP_CEIL_DIV(packs, (int64_t)K_HEADS_BIAS_LANES * K_HEADS_BIAS_AHEAD);
    }
    if (units == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "heads_bias_%s", mp_dtype_word(type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, units, K_HEADS_BIAS_LANES), args,
                     MP_BIND(mp_heads_bias_args, side[0].x, x[0]),
                     MP_BIND(mp_heads_bias_args, side[1].x, x[1]),
                     MP_BIND(mp_heads_bias_args, side[2].x, x[2]),
                     MP_BIND(mp_heads_bias_args, side[0].bias, bias[0]),
                     MP_BIND(mp_heads_bias_args, side[1].bias, bias[1]),
                     MP_BIND(mp_heads_bias_args, side[2].bias, bias[2]),
                     MP_BIND(mp_heads_bias_args, side[0].out, out[0]),
                     MP_BIND(mp_heads_bias_args, side[1].out, out[1]),
                     MP_BIND(mp_heads_bias_args, side[2].out, out[2]));
}

mp_status mp_plan_heads_bias(mp_planner *p, mp_dtype type, mp_heads_bias *sides, int count) {
    const int64_t pack = 16 / (int64_t)mp_dtype_size(type);
    bool packed = count > 1;
    for (int i = 0; i < count; i++) {
        packed = packed && is_packed(p, pack, &sides[i]);
    }
    if (packed) {
        return add_all(p, type, pack, sides, count);
    }
    for (int i = 0; i < count; i++) {
        MP_TRY(add(p, type, &sides[i]));
    }
    return MP_OK;
}
