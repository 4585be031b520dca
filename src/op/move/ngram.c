/* ngram.c - NGramRepeatBlock: no token may follow that would make a sequence of n tokens which
 * there is already; its score becomes -inf.
 * Kernel: move/ngram_block.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/indexed_args.h"
#include "op/core/families.h"

static mp_status check_ngram(const mp_planner *p, int64_t size) {
    const mp_shape *ids = &p->in[0].shape, *scores = &p->in[1].shape;
    if (ids->rank != 2 || scores->rank != 2 || ids->dim[0] != scores->dim[0]) {
        char text[MP_SHAPE_TEXT], ids_text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "input_ids of shape %s and scores of shape %s; two dimensions each and one "
                       "batch size are needed",
                       mp_shape_text(ids, ids_text), mp_shape_text(scores, text));
    }
    return size >= 1 ? MP_OK
                     : MP_FAIL(INVALID_ARGUMENT, "ngram_size is %lld; it must be at least 1",
                               (long long)size);
}

static mp_status plan_ngram(mp_planner *p) {
    const mp_shape *ids = &p->in[0].shape;
    const mp_tensor *scores = &p->in[1];
    const int64_t size = mp_node_int(p->node, "ngram_size", 0);
    size_t bytes = 0;
    MP_TRY(check_ngram(p, size));
    MP_TRY(mp_plan_output(p, 0, scores->type, &scores->shape));
    MP_TRY(mp_shape_bytes(&scores->shape, scores->type, &bytes));
    MP_TRY(mp_plan_copy(p, MP_OUT(0), MP_IN(1), bytes));
    mp_ngram_args args = {.batch = ids->dim[0],
                          .length = ids->dim[1],
                          .vocabulary = scores->shape.dim[1],
                          .size = size};
    args.places = args.length >= size ? args.length - size + 1 : 0;
    if (args.batch == 0 || args.places == 0 || args.vocabulary == 0) {
        return MP_OK;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "ngram_block"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.batch * args.places, 1), args,
                     MP_BIND(mp_ngram_args, ids, MP_IN(0)), MP_BIND(mp_ngram_args, out, MP_OUT(0)));
}

static const mp_attr_def ngram_attrs[] = {{"ngram_size", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "NGramRepeatBlock",
     .since = 1,
     .until = 1,
     .types = {{"Tid", MP_BIT(MP_I64)}, {"T", MP_BIT(MP_F32)}},
     .in_place = {{1, 0}},
     .in_place_count = 1,
     .attrs = ngram_attrs,
     .plan = plan_ngram},
};

const mp_op_family mp__family_ngram = {"ngram", ops, MP_COUNT_OF(ops)};
