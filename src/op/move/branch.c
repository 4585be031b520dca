/* branch.c - which branch of an If gives a result. In graphs of islands alone: the branches stand
 * beside each other there, and nodes of the one that is not taken are not computed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"

/* (condition, of then, of else); the one that is not chosen may be left out. The output may be the
 * memory of the chosen one; then the copy does nothing. */
static mp_status plan_choose(mp_planner *p) {
    if (p->in_count != 3 || p->in[0].type != MP_BOOL || mp_shape_count(&p->in[0].shape) != 1) {
        return MP_FAIL(INVALID_ARGUMENT, "a condition must be one boolean");
    }
    const int chosen = *(const bool *)(uintptr_t)p->in[0].data ? 1 : 2;
    const mp_tensor *x = &p->in[chosen];
    size_t bytes = 0;
    if (x->type == MP_NONE) {
        return MP_FAIL(INVALID_ARGUMENT, "the chosen branch gives nothing");
    }
    MP_TRY(mp_shape_bytes(&x->shape, x->type, &bytes));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    return mp_plan_copy(p, MP_OUT(0), MP_IN(chosen), bytes);
}

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "Choose",
     .since = 1,
     .until = 1,
     .types = {{"B", MP_BIT(MP_BOOL)}, {"V", MP_ALL_TYPES | MP_NARROW}},
     .host_in = 1,
     .plan = plan_choose},
};

const mp_op_family mp__family_branch = {"branch", ops, MP_COUNT_OF(ops)};
