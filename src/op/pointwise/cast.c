/* cast.c - Cast and CastLike: the same values in another element type.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/fused/expression.h"
#include "op/pointwise/cast_steps.h"

#include <string.h>

static mp_status cast_to(mp_planner *p, mp_dtype to_type, mp_narrowing how) {
    const mp_tensor *x = &p->in[0];
    const mp_typed from = {x->type, MP_IN(0)};
    const mp_typed to = {to_type, MP_OUT(0)};
    MP_TRY(mp_plan_output(p, 0, to_type, &x->shape));
    return mp_plan_cast(p, from, to, &x->shape, how);
}

/* ---- attributes ---- */

static mp_status read_narrowing(const mp_node *node, mp_narrowing *out) {
    static const char *const modes[] = {
        [K_ROUND_UP] = "up", [K_ROUND_DOWN] = "down", [K_ROUND_NEAREST] = "nearest"};
    const char *mode = mp_node_string(node, "round_mode", "up");
    out->saturate = mp_node_int(node, "saturate", 1) != 0;
    for (int32_t i = 0; i < (int32_t)MP_COUNT_OF(modes); i++) {
        if (strcmp(mode, modes[i]) == 0) {
            out->round = i;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "round_mode is '%s', not up, down or nearest", mode);
}

static mp_status plan_cast(mp_planner *p) {
    const int64_t to = mp_node_int(p->node, "to", 0);
    const mp_dtype dtype = mp_dtype_of_onnx(to);
    mp_narrowing how;
    if (dtype == MP_NONE) {
        return MP_FAIL(UNSUPPORTED, "a cast to ONNX's element type %lld is not supported",
                       (long long)to);
    }
    MP_TRY(read_narrowing(p->node, &how));
    return cast_to(p, dtype, how);
}

static mp_status plan_cast_like(mp_planner *p) {
    mp_narrowing how;
    MP_TRY(read_narrowing(p->node, &how));
    return cast_to(p, p->in[1].type, how);
}

/* Of types that are only stored the register has none. */
static int express_cast(mp_expresser *e) {
    const mp_dtype to = mp_dtype_of_onnx(mp_node_int(e->node, "to", 0));
    return mp_expression_cast(e->to, e->input(e, 0), to);
}

static int express_cast_like(mp_expresser *e) {
    return mp_expression_cast(e->to, e->input(e, 0), e->in[1].type);
}

/* ---- the rows ---- */

static const mp_attr_def cast_attrs[] = {
    {"to", MP_ATTR_INT}, {"saturate", MP_ATTR_INT}, {"round_mode", MP_ATTR_STRING}, {NULL, 0}};

enum { EVERY = MP_ALL_TYPES | MP_NARROW };
#define TYPES .types = {{"T1", EVERY}, {"T2", EVERY}}, .attrs = cast_attrs

static const mp_op ops[] = {
    {.domain = "",
     .name = "Cast",
     .since = 6,
     .until = 25,
     TYPES,
     .plan = plan_cast,
     .express = express_cast},
    {.domain = "",
     .name = "CastLike",
     .since = 15,
     .until = 25,
     TYPES,
     .plan = plan_cast_like,
     .express = express_cast_like},
};

const mp_op_family mp__family_cast = {"cast", ops, MP_COUNT_OF(ops)};
