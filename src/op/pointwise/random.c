/* random.c - RandomUniform, RandomNormal, their Like forms, and Multinomial.
 * Kernels: pointwise/multinomial.cu, pointwise/random.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/pointwise/seed.h"

/* ---- uniform and normal numbers ---- */

/* What the attributes are called. */
typedef struct distribution {
    bool normal, like;
    const char *a, *b;
    float a_default, b_default;
} distribution;

static mp_status read_shape(const mp_planner *p, mp_shape *out) {
    int count = 0;
    MP_TRY(mp_listed_ints(p, "shape", -1, MP_RANK_MAX, out->dim, &count));
    if (count < 0) {
        return MP_FAIL(INVALID_ARGUMENT, "the attribute shape is needed");
    }
    out->rank = count;
    return MP_OK;
}

static mp_status plan_random(mp_planner *p) {
    const distribution *d = p->node->op->detail;
    const mp_dtype fallback = d->like ? p->in[0].type : MP_F32;
    const int64_t dtype = mp_node_int(p->node, "dtype", (int64_t)fallback);
    const float a = mp_node_float(p->node, d->a, d->a_default);
    const float b = mp_node_float(p->node, d->b, d->b_default);
    mp_shape shape = {.rank = 0};
    if (dtype < 1 || dtype >= MP_DTYPE_END || (MP_BIT(dtype) & MP_FLOATS) == 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "numbers of the type %s cannot be drawn; set dtype to a float type",
                       mp_dtype_name((mp_dtype)dtype));
    }
    if (d->like) {
        shape = p->in[0].shape;
    } else {
        MP_TRY(read_shape(p, &shape));
    }
    MP_TRY(mp_plan_output(p, 0, (mp_dtype)dtype, &shape));
    const mp_random_args args = {.seed = mp_seed_of(p),
                                 .count = mp_shape_count(&shape),
                                 .a = a,
                                 .b = d->normal ? b : b - a,
                                 .normal = d->normal};
    if (args.count == 0) {
        return MP_OK;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "random_%s", mp_dtype_word((mp_dtype)dtype)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 4), args,
                     MP_BIND(mp_random_args, out, MP_OUT(0)), MP_BIND(mp_random_args, run, MP_RUN));
}

/* ---- Multinomial ---- */

static mp_status plan_multinomial(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const int64_t samples = mp_node_int(p->node, "sample_size", 1);
    const int64_t dtype = mp_node_int(p->node, "dtype", MP_I32);
    if (x->shape.rank != 2 || samples < 1 || (dtype != MP_I32 && dtype != MP_I64)) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "an input of shape %s, sample_size %lld and dtype %lld; two dimensions, at "
                       "least 1 and int32 or int64 are needed",
                       mp_shape_text(&x->shape, text), (long long)samples, (long long)dtype);
    }
    const mp_shape shape = {.rank = 2, .dim = {x->shape.dim[0], samples}};
    mp_multinomial_args args = {.seed = mp_seed_of(p),
                                .rows = x->shape.dim[0],
                                .classes = x->shape.dim[1],
                                .samples = samples,
                                .wide = dtype == MP_I64};
    mp_ref sums = MP_NOWHERE;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_output(p, 0, (mp_dtype)dtype, &shape));
    if (args.rows == 0) {
        return MP_OK;
    }
    if (args.classes == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "there are no classes to draw from");
    }
    MP_TRY(mp_plan_scratch_of(p, args.rows * args.classes, MP_F64, &sums));
    MP_TRY(mp_plan_kernel(p, &kernel, "multinomial_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid_rows(p, args.rows, 256), args,
        MP_BIND(mp_multinomial_args, x, MP_IN(0)), MP_BIND(mp_multinomial_args, sums, sums),
        MP_BIND(mp_multinomial_args, out, MP_OUT(0)), MP_BIND(mp_multinomial_args, run, MP_RUN));
}

/* ---- the rows ---- */

#define RANDOM_ATTRS(a, b)                                                   \
    {"dtype", MP_ATTR_INT}, {"seed", MP_ATTR_FLOAT}, {(a), MP_ATTR_FLOAT}, { \
        (b), MP_ATTR_FLOAT                                                   \
    }
static const mp_attr_def uniform_attrs[] = {
    RANDOM_ATTRS("low", "high"), {"shape", MP_ATTR_INTS}, {NULL, 0}};
static const mp_attr_def uniform_like_attrs[] = {RANDOM_ATTRS("low", "high"), {NULL, 0}};
static const mp_attr_def normal_attrs[] = {
    RANDOM_ATTRS("mean", "scale"), {"shape", MP_ATTR_INTS}, {NULL, 0}};
static const mp_attr_def normal_like_attrs[] = {RANDOM_ATTRS("mean", "scale"), {NULL, 0}};
static const mp_attr_def multinomial_attrs[] = {
    {"dtype", MP_ATTR_INT}, {"sample_size", MP_ATTR_INT}, {"seed", MP_ATTR_FLOAT}, {NULL, 0}};

#define UNIFORM .a = "low", .b = "high", .a_default = 0, .b_default = 1
#define NORMAL  .normal = true, .a = "mean", .b = "scale", .a_default = 0, .b_default = 1
static const distribution uniform = {UNIFORM}, uniform_like = {UNIFORM, .like = true};
static const distribution normal = {NORMAL}, normal_like = {NORMAL, .like = true};

#define DRAW(op_name, which)                                                                   \
    {                                                                                          \
        .domain = "", .name = (op_name), .since = 1, .until = 22, .types = {{"T", MP_FLOATS}}, \
        .draws = true, .attrs = which##_attrs, .plan = plan_random, .detail = &(which)         \
    }
#define DRAW_LIKE(op_name, which)                                                                  \
    {                                                                                              \
        .domain = "", .name = (op_name), .since = 1, .until = 22,                                  \
        .types = {{"T1", MP_ALL_TYPES}, {"T2", MP_FLOATS}}, .draws = true, .attrs = which##_attrs, \
        .plan = plan_random, .detail = &(which)                                                    \
    }

static const mp_op ops[] = {
    DRAW("RandomUniform", uniform),
    DRAW("RandomNormal", normal),
    DRAW_LIKE("RandomUniformLike", uniform_like),
    DRAW_LIKE("RandomNormalLike", normal_like),
    {.domain = "",
     .name = "Multinomial",
     .since = 7,
     .until = 22,
     .types = {{"T1", MP_FLOATS}, {"T2", 1u << MP_I32 | 1u << MP_I64}},
     .draws = true,
     .attrs = multinomial_attrs,
     .plan = plan_multinomial},
};

const mp_op_family mp__family_random = {"random", ops, MP_COUNT_OF(ops)};
