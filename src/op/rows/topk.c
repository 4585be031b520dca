/* topk.c - TopK. Equal elements come in the order of their indices; a NaN counts as the largest.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/rows/key_bits.h"
#include "op/rows/topk_steps.h"

static mp_status read_k(const mp_planner *p, int64_t *out) {
    int count = 0;
    if (p->node->op->host_in == 0) {
        *out = mp_node_int(p->node, "k", -1);
        return MP_OK;
    }
    MP_TRY(mp_host_ints(p, 1, "K", 1, out, &count));
    return count == 1 ? MP_OK : MP_FAIL(INVALID_ARGUMENT, "K has %d values; one is needed", count);
}

static mp_status plan_topk(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const bool largest = mp_node_flag(p->node, "largest", true);
    mp_topk t = {.dtype = x->type,
                 .sorted = mp_node_flag(p->node, "sorted", true),
                 .order = mp_order_of(x->type, largest),
                 .x = MP_IN(0),
                 .values = MP_OUT(0),
                 .indices = MP_OUT(1)};
    int axis = 0;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", -1), x->shape.rank, "axis", &axis));
    MP_TRY(read_k(p, &t.k));
    t.rows = mp_rows_along(&x->shape, axis);
    if (t.k < 0 || t.k > t.rows.columns) {
        return MP_FAIL(INVALID_ARGUMENT, "k is %lld; axis %d has %lld elements", (long long)t.k,
                       axis, (long long)t.rows.columns);
    }
    mp_shape shape = x->shape;
    shape.dim[axis] = t.k;
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    MP_TRY(mp_plan_output(p, 1, MP_I64, &shape));
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    return mp_plan_topk(p, &t);
}

/* ---- the rows ---- */

static const mp_attr_def attrs_of_1[] = {{"axis", MP_ATTR_INT}, {"k", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def attrs_of_10[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def attrs_of_11[] = {
    {"axis", MP_ATTR_INT}, {"largest", MP_ATTR_INT}, {"sorted", MP_ATTR_INT}, {NULL, 0}};

#define TOPK(from, to, set, host, list)                                                     \
    {                                                                                       \
        .domain = "", .name = "TopK", .since = (from), .until = (to),                       \
        .types = {{"T", (set)}, {"I", MP_BIT(MP_I64)}}, .host_in = (host), .attrs = (list), \
        .plan = plan_topk                                                                   \
    }

static const mp_op ops[] = {
    TOPK(1, 1, MP_IEEE_FLOATS, 0, attrs_of_1),
    TOPK(10, 10, MP_IEEE_FLOATS, 1u << 1, attrs_of_10),
    TOPK(11, 24, MP_NUMBERS, 1u << 1, attrs_of_11),
};

const mp_op_family mp__family_topk = {"topk", ops, MP_COUNT_OF(ops)};
