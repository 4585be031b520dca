/* dropout.c - Dropout, and com.microsoft's forms of it: BiasDropout adds a bias before and a
 * residual behind, those called Bitmask tell what stayed as bits of words of 32.
 * Kernel: pointwise/dropout.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"
#include "op/core/host_float.h"
#include "op/pointwise/seed.h"

/* ---- the steps ---- */

/* What is done besides dropping. */
typedef struct extras {
    mp_ref bias, residual;
    int64_t bias_count;
    int32_t mask_kind;
} extras;

static mp_status drop(mp_planner *p, float ratio, const extras *with) {
    const mp_tensor *x = &p->in[0];
    const mp_dropout_args args = {.seed = mp_seed_of(p),
                                  .count = mp_shape_count(&x->shape),
                                  .bias_count = with->bias_count,
                                  .ratio = ratio,
                                  .mask_kind = with->mask_kind};
    const mp_kernel *kernel = NULL;
    if (args.count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "dropout_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 8), args,
                     MP_BIND(mp_dropout_args, x, MP_IN(0)),
                     MP_BIND(mp_dropout_args, bias, with->bias),
                     MP_BIND(mp_dropout_args, residual, with->residual),
                     MP_BIND(mp_dropout_args, out, MP_OUT(0)),
                     MP_BIND(mp_dropout_args, mask, mp_plan_wants(p, 1) ? MP_OUT(1) : MP_NOWHERE),
                     MP_BIND(mp_dropout_args, run, MP_RUN));
}

/* Nothing is dropped; the `mask_size` bytes of the mask are all `mask`. */
static mp_status keep(mp_planner *p, uint8_t mask, size_t mask_size) {
    const mp_tensor *x = &p->in[0];
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&x->shape, x->type, &bytes));
    MP_TRY(mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes));
    return mp_plan_wants(p, 1) ? mp_plan_fill(p, MP_OUT(1), mask, 1, mask_size) : MP_OK;
}

/* ---- what the model asks for ---- */

static mp_status check_ratio(float ratio) {
    return ratio >= 0 && ratio < 1
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "ratio is %g; it must be in [0, 1)", (double)ratio);
}

/* The one value of a float input on the host. */
static mp_status read_float(const mp_planner *p, int i, float fallback, float *out) {
    const mp_tensor *given = mp_plan_in(p, i);
    *out = fallback;
    if (given == NULL) {
        return MP_OK;
    }
    if (mp_shape_count(&given->shape) != 1) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "ratio of shape %s; one value is needed",
                       mp_shape_text(&given->shape, text));
    }
    *out = (float)mp_host_float(given, 0);
    return MP_OK;
}

/* The ratio in input `i`, 0 unless the flag behind it says that the model is being trained. */
static mp_status read_training(const mp_planner *p, int i, float *ratio) {
    const mp_tensor *mode = mp_plan_in(p, i + 1);
    MP_TRY(read_float(p, i, 0.5f, ratio));
    if (mode != NULL && mp_shape_count(&mode->shape) != 1) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "training_mode of shape %s; one value is needed",
                       mp_shape_text(&mode->shape, text));
    }
    const bool trains = mode != NULL && *(const uint8_t *)mode->data != 0;
    *ratio = trains ? *ratio : 0;
    return check_ratio(*ratio);
}

/* The mask: a byte for each element, or words of bits. */
static mp_status declare_mask(mp_planner *p, bool bits, size_t *size) {
    const mp_shape *x = &p->in[0].shape;
    const int64_t count = mp_shape_count(x), words = count / 32 + (count % 32 != 0);
    const mp_shape flat = {.rank = 1, .dim = {words}};
    *size = bits ? (size_t)words * sizeof(uint32_t) : (size_t)count;
    return mp_plan_output(p, 1, bits ? MP_U32 : MP_BOOL, bits ? &flat : x);
}

/* ---- Dropout and BitmaskDropout ---- */

/* How a version of the schema says what is to be done. */
typedef struct dropout {
    bool typed_mask; /* the mask is of the type of x */
    bool trains;     /* unless told by is_test */
    bool bits;
} dropout;

static mp_status plan_dropout_attributes(mp_planner *p) {
    const dropout *d = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    const mp_dtype mask = d->typed_mask ? x->type : MP_BOOL;
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    MP_TRY(mp_plan_output(p, 1, mask, &x->shape));
    if (d->trains && mp_node_int(p->node, "is_test", 0) == 0) {
        const float ratio = mp_node_float(p->node, "ratio", 0.5f);
        MP_TRY(check_ratio(ratio));
        return drop(p, ratio, &(extras){.mask_kind = K_MASK_TYPED});
    }
    /* Up to version 11 the mask is 0 where nothing is dropped, as ONNX Runtime has it. */
    return keep(p, 0, (size_t)mp_shape_count(&x->shape) * mp_dtype_size(mask));
}

static mp_status plan_dropout(mp_planner *p) {
    const dropout *d = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    size_t mask_size = 0;
    float ratio = 0;
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    MP_TRY(declare_mask(p, d->bits, &mask_size));
    MP_TRY(read_training(p, 1, &ratio));
    if (ratio == 0) {
        return keep(p, d->bits ? 0xff : 1, mask_size);
    }
    return drop(p, ratio, &(extras){.mask_kind = d->bits ? K_MASK_BITS : K_MASK_BYTES});
}

/* ---- BiasDropout and BitmaskBiasDropout ---- */

/* The bias is a row of x, or as large as x. */
static mp_status check_bias_dropout(const mp_planner *p) {
    const mp_shape *x = &p->in[0].shape, *bias = &p->in[1].shape;
    const mp_tensor *residual = mp_plan_in(p, 2);
    char text[MP_SHAPE_TEXT], x_text[MP_SHAPE_TEXT];
    const bool is_row = bias->rank == 1 && x->rank > 0 && bias->dim[0] == x->dim[x->rank - 1];
    if (!is_row && !mp_shape_equal(bias, x)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "the bias of shape %s is neither a row of data of shape %s nor of its shape",
                       mp_shape_text(bias, text), mp_shape_text(x, x_text));
    }
    return residual == NULL || mp_shape_equal(&residual->shape, x)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "residual of shape %s; the shape of data, %s, is needed",
                         mp_shape_text(&residual->shape, text), mp_shape_text(x, x_text));
}

static mp_status plan_bias_dropout(mp_planner *p) {
    const dropout *d = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    const extras with = {.bias = MP_IN(1),
                         .residual = mp_plan_in(p, 2) != NULL ? MP_IN(2) : MP_NOWHERE,
                         .bias_count = mp_shape_count(&p->in[1].shape),
                         .mask_kind = d->bits ? K_MASK_BITS : K_MASK_BYTES};
    size_t mask_size = 0;
    float ratio = 0;
    MP_TRY(check_bias_dropout(p));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    MP_TRY(declare_mask(p, d->bits, &mask_size));
    MP_TRY(read_training(p, 3, &ratio));
    return drop(p, ratio, &with);
}

/* ---- the rows ---- */

static const mp_attr_def test_attrs[] = {
    {"is_test", MP_ATTR_INT}, {"ratio", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def seed_attr[] = {{"seed", MP_ATTR_INT}, {NULL, 0}};

static const dropout of_1 = {.typed_mask = true, .trains = true};
static const dropout of_7 = {.typed_mask = true}, of_10 = {.typed_mask = false};
static const dropout of_12 = {.bits = false}, of_bits = {.bits = true};

#define IN_PLACE .in_place = {{0, 0}}, .in_place_count = 1
#define BIASED                                                                       \
    .host_in = 1u << 3 | 1u << 4, .in_place = {{0, 0}, {2, 0}}, .in_place_count = 2, \
    .draws = true, .attrs = seed_attr, .plan = plan_bias_dropout

static const mp_op ops[] = {
    {.domain = "",
     .name = "Dropout",
     .since = 1,
     .until = 6,
     .types = {{"T", MP_IEEE_FLOATS}},
     IN_PLACE,
     .draws = true,
     .attrs = test_attrs,
     .plan = plan_dropout_attributes,
     .detail = &of_1},
    {.domain = "",
     .name = "Dropout",
     .since = 7,
     .until = 7,
     .types = {{"T", MP_IEEE_FLOATS}},
     .view_of = 1,
     .plan = plan_dropout_attributes,
     .detail = &of_7},
    {.domain = "",
     .name = "Dropout",
     .since = 10,
     .until = 10,
     .types = {{"T", MP_IEEE_FLOATS}, {"T1", MP_BIT(MP_BOOL)}},
     .view_of = 1,
     .plan = plan_dropout_attributes,
     .detail = &of_10},
    {.domain = "",
     .name = "Dropout",
     .since = 12,
     .until = 22,
     .types = {{"T", MP_FLOATS}, {"T1", MP_FLOATS}, {"T2", MP_BIT(MP_BOOL)}},
     .host_in = 1u << 1 | 1u << 2,
     IN_PLACE,
     .draws = true,
     .attrs = seed_attr,
     .plan = plan_dropout,
     .detail = &of_12},
    {.domain = "com.microsoft",
     .name = "BitmaskDropout",
     .since = 1,
     .until = 1,
     .types =
         {{"T", MP_FLOATS}, {"T1", MP_FLOATS}, {"T2", MP_BIT(MP_BOOL)}, {"T3", MP_BIT(MP_U32)}},
     .host_in = 1u << 1 | 1u << 2,
     IN_PLACE,
     .draws = true,
     .attrs = seed_attr,
     .plan = plan_dropout,
     .detail = &of_bits},
    {.domain = "com.microsoft",
     .name = "BiasDropout",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_FLOATS}, {"T1", MP_FLOATS}, {"T2", MP_BIT(MP_BOOL)}},
     BIASED,
     .detail = &of_12},
    {.domain = "com.microsoft",
     .name = "BitmaskBiasDropout",
     .since = 1,
     .until = 1,
     .types =
         {{"T", MP_FLOATS}, {"T1", MP_FLOATS}, {"T2", MP_BIT(MP_BOOL)}, {"T3", MP_BIT(MP_U32)}},
     BIASED,
     .detail = &of_bits},
};

const mp_op_family mp__family_dropout = {"dropout", ops, MP_COUNT_OF(ops)};
