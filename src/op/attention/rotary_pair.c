/* rotary_pair.c - RotaryPair, what the compiler makes of queries and keys that are rotated alike,
 * as by RotaryHalves each: one launch, where sizes allow it. In are queries, keys, their cosines
 * and sines, and what queries and keys are normalised by, if they are; out are both. `part`,
 * `turned` and `epsilon` are of queries, `key_part`, `key_turned` and `key_epsilon` of keys,
 * and `interleaved` of both.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/rotary_halves.h"
#include "op/core/families.h"

enum { SIDES = 2 };

static mp_status plan_pair(mp_planner *p) {
    const mp_halves_input from[SIDES] = {{0, 2, 3, 4, "part", "turned", "epsilon"},
                                         {1, 2, 3, 5, "key_part", "key_turned", "key_epsilon"}};
    mp_rotary of[SIDES];
    for (int i = 0; i < SIDES; i++) {
        mp_shape y;
        MP_TRY(mp_read_halves(p, &from[i], &of[i], &y));
        MP_TRY(mp_plan_output(p, i, of[i].type, &y));
        of[i].out = mp_heads_first(MP_OUT(i), of[i].heads, of[i].rows, of[i].head_size);
    }
    const mp_rotary_append both = {.rotary = of[0],
                                   .heads = {of[0].heads, of[1].heads},
                                   .x = {of[0].x, of[1].x},
                                   .out = {of[0].out, of[1].out},
                                   .weight = {of[0].weight, of[1].weight},
                                   .epsilon = {of[0].epsilon, of[1].epsilon},
                                   .lengths = MP_NOWHERE,
                                   .present_rows = of[0].rows};
    if (of[0].type == of[1].type && mp_halves_alike(&of[0], &of[1]) &&
        mp_can_rotary_append(p, &both)) {
        return mp_plan_rotary_append(p, &both);
    }
    MP_TRY(mp_plan_rotary(p, &of[0]));
    return mp_plan_rotary(p, &of[1]);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"epsilon", MP_ATTR_FLOAT},     {"interleaved", MP_ATTR_INT},
                                    {"key_epsilon", MP_ATTR_FLOAT}, {"key_part", MP_ATTR_INTS},
                                    {"key_turned", MP_ATTR_INT},    {"part", MP_ATTR_INTS},
                                    {"turned", MP_ATTR_INT},        {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "RotaryPair",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_pair},
};

const mp_op_family mp__family_rotary_pair = {"rotary_pair", ops, MP_COUNT_OF(ops)};
