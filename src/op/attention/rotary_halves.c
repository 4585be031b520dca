/* rotary_halves.c - what the compiler makes of rotary positions in primitive operators: x cos + r
 * sin, where r is x with its halves exchanged and the then first one negated.
 *
 * x is [batch, heads, rows, size], with `turned` [batch, rows, heads, size], or with `part` rows
 * that its heads lie in (heads_part.h); y is the first of these, and cos and sin are broadcast to
 * it. Both halves of their rows are alike, and the first is read. With `interleaved` neighbours are
 * rotated in place of elements half a row apart, and rows of cosines are half as long. Of heads
 * that are longer than what is rotated the rest stays as it is. A fourth input, [size], is what
 * RMSNormalization has as its scale: heads are normalised so first.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/rotary_halves.h"

#include "op/attention/heads_part.h"
#include "op/core/families.h"

#include <inttypes.h>
#include <string.h>

static mp_status no_fit(const mp_planner *p, const mp_halves_input *from, const char *why) {
    char x[MP_SHAPE_TEXT];
    char c[MP_SHAPE_TEXT];
    char s[MP_SHAPE_TEXT];
    return MP_FAIL(
        INVALID_ARGUMENT, "heads of shape %s, cosines of shape %s, sines of shape %s: %s",
        mp_shape_text(&p->in[from->x].shape, x), mp_shape_text(&p->in[from->cosine].shape, c),
        mp_shape_text(&p->in[from->sine].shape, s), why);
}

/* With dimensions of 1 in front, so that there are four. */
static mp_shape of_four(const mp_shape *shape) {
    mp_shape whole = {.rank = 4, .dim = {1, 1, 1, 1}};
    for (int d = 0; d < shape->rank && d < 4; d++) {
        whole.dim[4 - shape->rank + d] = shape->dim[d];
    }
    return whole;
}

/* Both repeat each other's dimensions of 1, as the operators do that this one stands for. `y` is
 * x's shape at first. */
static mp_status broadcast(const mp_planner *p, const mp_halves_input *from, mp_shape *y,
                           mp_rotary *r) {
    const mp_shape *c = &p->in[from->cosine].shape, *s = &p->in[from->sine].shape;
    const bool has_rows = c->rank >= 1 && c->rank <= 4 && s->rank >= 1 && s->rank <= 4;
    const mp_shape whole = of_four(has_rows ? c : y), other = of_four(has_rows ? s : y);
    const int64_t length = c->rank > 0 ? c->dim[c->rank - 1] : 0;
    int64_t stride[MP_RANK_MAX];
    const bool fits =
        r->interleaved ? length <= y->dim[3] / 2 : length <= y->dim[3] && length % 2 == 0;
    if (!has_rows || !mp_shape_equal(&whole, &other) || !fits) {
        return no_fit(p, from,
                      r->interleaved
                          ? "rows of both are to be of one length, at most half that of a head"
                          : "rows of both are to be of one even length, at most that of a head");
    }
    r->rotated = r->interleaved ? 2 * length : length;
    mp_shape_strides(&whole, stride);
    for (int d = 0; d < 3; d++) {
        const int64_t here = y->dim[d], there = whole.dim[d];
        if (here != there && here != 1 && there != 1) {
            return no_fit(p, from, "one does not repeat to the other's");
        }
        r->cache_stride[d] = there == 1 ? 0 : stride[d];
        r->x.stride[d] = here == 1 ? 0 : r->x.stride[d];
        y->dim[d] = here == 1 ? there : here;
    }
    return MP_OK;
}

/* `dim`: batch, heads, rows, size. */
static mp_status read_x(const mp_planner *p, const mp_halves_input *from, mp_heads *out,
                        int64_t dim[4]) {
    const mp_shape *x = &p->in[from->x].shape;
    const mp_attr *part = mp_node_attr(p->node, from->part);
    const bool turned = mp_node_flag(p->node, from->turned, false);
    if (part != NULL) {
        MP_TRY(mp_read_heads_part(p, from->x, from->part, part, out, dim));
    } else if (x->rank == 4) {
        const int64_t heads = x->dim[turned ? 2 : 1], rows = x->dim[turned ? 1 : 2];
        memcpy(dim, (int64_t[]){x->dim[0], heads, rows, x->dim[3]}, 4 * sizeof *dim);
        *out = turned ? mp_heads_last(MP_IN(from->x), heads, rows, dim[3])
                      : mp_heads_first(MP_IN(from->x), heads, rows, dim[3]);
    } else {
        return no_fit(p, from, "heads of four dimensions are wanted");
    }
    return dim[3] <= INT32_MAX ? MP_OK : no_fit(p, from, "heads are too long");
}

static mp_status read_weight(const mp_planner *p, const mp_halves_input *from, mp_rotary *r) {
    const mp_tensor *weight = mp_plan_in(p, from->weight);
    char text[MP_SHAPE_TEXT];
    if (weight == NULL) {
        return MP_OK;
    }
    if (weight->type != r->type || weight->shape.rank != 1 ||
        weight->shape.dim[0] != r->head_size) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "heads of %" PRId64 " elements of type %s are normalised by %s of type %s",
                       r->head_size, mp_dtype_name(r->type), mp_shape_text(&weight->shape, text),
                       mp_dtype_name(weight->type));
    }
    r->weight = MP_IN(from->weight);
    r->epsilon = mp_node_float(p->node, from->epsilon, 1e-5F);
    return MP_OK;
}

bool mp_halves_alike(const mp_rotary *q, const mp_rotary *k) {
    return memcmp(q->cache_stride, k->cache_stride, sizeof q->cache_stride) == 0 &&
           q->batch == k->batch && q->rows == k->rows && q->head_size == k->head_size;
}

mp_status mp_read_halves(const mp_planner *p, const mp_halves_input *from, mp_rotary *rotary,
                         mp_shape *y) {
    mp_rotary r = {.type = p->in[from->x].type,
                   .cosine = MP_IN(from->cosine),
                   .sine = MP_IN(from->sine),
                   .cache_rows = 1,
                   .positions = MP_NOWHERE,
                   .interleaved = mp_node_flag(p->node, "interleaved", false),
                   .position_kind = K_POSITION_STRIDED};
    *y = (mp_shape){.rank = 4};
    MP_TRY(read_x(p, from, &r.x, y->dim));
    r.head_size = y->dim[3];
    MP_TRY(read_weight(p, from, &r));
    MP_TRY(broadcast(p, from, y, &r));
    r.batch = y->dim[0];
    r.heads = y->dim[1];
    r.rows = y->dim[2];
    *rotary = r;
    return MP_OK;
}

static mp_status plan_halves(mp_planner *p) {
    const mp_halves_input from = {0, 1, 2, 3, "part", "turned", "epsilon"};
    mp_rotary r;
    mp_shape y;
    MP_TRY(mp_read_halves(p, &from, &r, &y));
    MP_TRY(mp_plan_output(p, 0, r.type, &y));
    r.out = mp_heads_first(MP_OUT(0), r.heads, r.rows, r.head_size);
    return mp_plan_rotary(p, &r);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {{"epsilon", MP_ATTR_FLOAT},
                                    {"interleaved", MP_ATTR_INT},
                                    {"part", MP_ATTR_INTS},
                                    {"turned", MP_ATTR_INT},
                                    {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "RotaryHalves",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_halves},
};

const mp_op_family mp__family_rotary_halves = {"rotary_halves", ops, MP_COUNT_OF(ops)};
