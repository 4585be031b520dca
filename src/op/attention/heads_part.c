/* heads_part.c - HeadsPart, what the compiler makes of heads that are put first: they are read in
 * rows [batch, rows, elements] of one product for several readers (`part`, see heads_part.h), and y
 * is [batch, heads, rows, size].
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/heads_part.h"

#include "op/core/families.h"

#include <string.h>

mp_status mp_read_heads_part(const mp_planner *p, int i, const char *name, const mp_attr *part,
                             mp_heads *out, int64_t dim[4]) {
    const mp_tensor *x = &p->in[i];
    const int64_t *at = part->ints;
    int64_t reach = 0;
    const bool fits = x->shape.rank == 3 && part->count == 4 && at[0] >= 0 && at[1] > 0 &&
                      at[2] > 0 && at[3] > 0 && !__builtin_mul_overflow(at[1] - 1, at[3], &reach) &&
                      !__builtin_add_overflow(reach, at[0], &reach) &&
                      !__builtin_add_overflow(reach, at[2], &reach) && reach <= x->shape.dim[2];
    if (!fits) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "%s does not lie within an input of shape %s", name,
                       mp_shape_text(&x->shape, text));
    }
    const int64_t rows = x->shape.dim[1], row = x->shape.dim[2];
    *out = (mp_heads){.ref = MP_IN(i), .stride = {rows * row, at[3], row}};
    out->ref.offset = (uint64_t)at[0] * mp_dtype_size(x->type);
    memcpy(dim, (int64_t[]){x->shape.dim[0], at[1], rows, at[2]}, 4 * sizeof *dim);
    return MP_OK;
}

static mp_status plan_part(mp_planner *p) {
    const mp_attr *part = mp_node_attr(p->node, "part");
    const mp_dtype type = p->in[0].type;
    mp_heads from;
    int64_t dim[4];
    if (part == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "the part is not said");
    }
    MP_TRY(mp_read_heads_part(p, 0, "part", part, &from, dim));
    const mp_shape shape = {.rank = 4, .dim = {dim[0], dim[1], dim[2], dim[3]}};
    MP_TRY(mp_plan_output(p, 0, type, &shape));
    const mp_heads to = mp_heads_first(MP_OUT(0), dim[1], dim[2], dim[3]);
    return mp_shape_count(&shape) == 0 ? MP_OK : mp_plan_heads_copy(p, type, dim, &from, &to);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"part", MP_ATTR_INTS}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "HeadsPart",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_FLOATS}},
     .attrs = attrs,
     .plan = plan_part},
};

const mp_op_family mp__family_heads_part = {"heads_part", ops, MP_COUNT_OF(ops)};
