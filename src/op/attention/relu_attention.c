/* relu_attention.c - what the compiler makes of attention without a softmax over the pixels of an
 * image with its channels last: x [batch, height, width, heads * 3 * size] has a query, a key and a
 * value of each head, and so may a second image. The result has all heads.
 * Kernel: attention/relu_attention.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/relu_args.h"
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/core/op.h"

enum { X, MORE, RANK = 4, PARTS = 3, SMALL = 16, LARGE = 32, PACK_BYTES = 16 };

/* Heads of input `i`; 0 where it is not there. */
static mp_status count_heads(const mp_planner *p, int i, int64_t size, int64_t *out) {
    const mp_tensor *in = mp_plan_in(p, i);
    *out = 0;
    if (in == NULL) {
        return MP_OK;
    }
    const mp_shape *shape = &in->shape, *first = &p->in[X].shape;
    bool fits = shape->rank == RANK && first->rank == RANK;
    for (int d = 0; fits && d < RANK - 1; d++) {
        fits = shape->dim[d] == first->dim[d];
    }
    if (!fits || shape->dim[RANK - 1] % (PARTS * size) != 0 || shape->dim[RANK - 1] > INT32_MAX) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "an image of shape %s: heads of %lld are wanted last",
                       mp_shape_text(shape, text), (long long)(PARTS * size));
    }
    *out = shape->dim[RANK - 1] / (PARTS * size);
    return MP_OK;
}

/* Few pixels take fewer lanes, whose sums are sooner added. */
static int32_t groups_for(int64_t pixels, int64_t size) {
    enum { FEW = 512 };
    const int64_t quads = size / K_RELU_QUAD;
    return (int32_t)((pixels <= FEW ? K_RELU_LANES / 2 : K_RELU_LANES) / (quads * quads));
}

static mp_status plan_relu_attention(mp_planner *p) {
    const mp_dtype type = p->in[X].type;
    const int64_t size = mp_node_int(p->node, "size", 0);
    int64_t first = 0, more = 0;
    if (size != SMALL && size != LARGE) {
        return MP_FAIL(UNSUPPORTED, "heads of %lld elements; %d and %d are there", (long long)size,
                       SMALL, LARGE);
    }
    MP_TRY(count_heads(p, X, size, &first));
    MP_TRY(count_heads(p, MORE, size, &more));
    const mp_shape *x = &p->in[X].shape;
    const mp_shape y = {.rank = RANK,
                        .dim = {x->dim[0], x->dim[1], x->dim[2], (first + more) * size}};
    MP_TRY(mp_plan_output(p, 0, type, &y));
    if (first + more == 0 || mp_shape_count(&y) == 0) {
        return MP_OK;
    }
    const int64_t pixels = x->dim[1] * x->dim[2];
    if (x->dim[0] > INT32_MAX / (first + more) || pixels > INT32_MAX / 8) {
        return MP_FAIL(UNSUPPORTED, "%lld images of %lld pixels and %lld heads",
                       (long long)x->dim[0], (long long)pixels, (long long)(first + more));
    }
    mp_ref in[] = {MP_NOWHERE, MP_NOWHERE}, out = MP_OUT(0);
    MP_TRY(mp_plan_aligned(p, X, &in[X]));
    MP_TRY(mp_plan_aligned(p, MORE, &in[MORE]));
    if (p->align < PACK_BYTES) {
        MP_TRY(mp_plan_scratch_shape(p, &y, type, &out));
    }
    mp_relu_attention_args args = {.pixels = (int32_t)pixels,
                                   .heads = (int32_t)(first + more),
                                   .first = (int32_t)first,
                                   .units = (int32_t)(x->dim[0] * (first + more)),
                                   .epsilon = mp_node_float(p->node, "epsilon", 0)};
    args.groups = groups_for(pixels, size);
    const int32_t quads = (int32_t)size / K_RELU_QUAD;
    const mp_kernel *kernel = NULL;
    MP_TRY(
        mp_plan_kernel(p, &kernel, "relu_attention_%lld_%s", (long long)size, mp_dtype_word(type)));
    mp_grid grid = mp_plan_grid_rows(p, args.units, (uint32_t)(args.groups * quads * quads));
    grid.shared_bytes = (uint32_t)(args.groups * size * (size + 1)) * (uint32_t)sizeof(float);
    MP_TRY(MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_relu_attention_args, x[0], in[X]),
                     MP_BIND(mp_relu_attention_args, x[1], in[MORE]),
                     MP_BIND(mp_relu_attention_args, out, out)));
    return p->align < PACK_BYTES
               ? mp_plan_copy(p, MP_OUT(0), out, (size_t)mp_shape_count(&y) * mp_dtype_size(type))
               : MP_OK;
}

static const mp_attr_def attrs[] = {{"epsilon", MP_ATTR_FLOAT}, {"size", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_NHWC_DOMAIN,
     .name = "ReluAttention",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_relu_attention},
};

const mp_op_family mp__family_relu_attention = {"relu_attention", ops, MP_COUNT_OF(ops)};
