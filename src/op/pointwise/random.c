/* random.c - RandomUniform, RandomNormal, their Like forms, Multinomial and Dropout.
 *
 * Numbers come from a counter (kernel/core/philox.h): the seed, the run and the place decide. With
 * the attribute `seed` a plan gives the same numbers in its first run in every session, and others
 * in each further run; without it a plan has a seed of its own, which nobody chose. A captured
 * graph replays the run that was captured, with its numbers.
 * Kernels: pointwise/dropout.cu, pointwise/multinomial.cu, pointwise/random.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* ---- seeds ---- */

static atomic_ullong plans_without_seed;
static uint64_t process_seed;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void make_process_seed(void) {
    if (getentropy(&process_seed, sizeof process_seed) != 0) {
        struct timespec now = {0, 0};
        (void)clock_gettime(CLOCK_REALTIME, &now);
        process_seed = (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec;
    }
}

static uint64_t seed_of(const mp_planner *p) {
    const mp_attr *attr = mp_node_attr(p->node, "seed");
    if (attr == NULL) {
        const uint64_t step = UINT64_C(0x9e3779b97f4a7c15); /* odd: no two plans share a seed */
        (void)pthread_once(&process_once, make_process_seed);
        return process_seed + step * atomic_fetch_add(&plans_without_seed, 1);
    }
    uint32_t bits = 0;
    if (attr->kind == MP_ATTR_INT) {
        return (uint64_t)attr->i;
    }
    memcpy(&bits, &attr->f, sizeof bits);
    return bits;
}

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
    const mp_random_args args = {.seed = seed_of(p),
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
    mp_multinomial_args args = {.seed = seed_of(p),
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

/* ---- Dropout ---- */

/* How a version of the schema says what is to be done. */
typedef struct dropout {
    bool typed_mask; /* the mask is of the type of x */
    bool trains;     /* unless told by is_test */
} dropout;

static mp_status drop(mp_planner *p, float ratio, bool typed_mask) {
    const mp_tensor *x = &p->in[0];
    const mp_dropout_args args = {.seed = seed_of(p),
                                  .count = mp_shape_count(&x->shape),
                                  .ratio = ratio,
                                  .typed_mask = typed_mask};
    const mp_kernel *kernel = NULL;
    if (ratio < 0 || ratio >= 1 || ratio != ratio) {
        return MP_FAIL(INVALID_ARGUMENT, "ratio is %g; it must be in [0, 1)", (double)ratio);
    }
    if (args.count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "dropout_%s", mp_dtype_word(x->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, 4), args,
                     MP_BIND(mp_dropout_args, x, MP_IN(0)),
                     MP_BIND(mp_dropout_args, out, MP_OUT(0)),
                     MP_BIND(mp_dropout_args, mask, p->out_count > 1 ? MP_OUT(1) : MP_NOWHERE),
                     MP_BIND(mp_dropout_args, run, MP_RUN));
}

/* Nothing is dropped. Up to version 11 the mask then is 0, as ONNX Runtime has it, from 12 on 1. */
static mp_status keep(mp_planner *p, uint8_t mask, size_t mask_size) {
    const mp_tensor *x = &p->in[0];
    size_t bytes = 0;
    MP_TRY(mp_shape_bytes(&x->shape, x->type, &bytes));
    MP_TRY(mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes));
    return p->out_count > 1
               ? mp_plan_fill(p, MP_OUT(1), mask, 1, (size_t)mp_shape_count(&x->shape) * mask_size)
               : MP_OK;
}

static mp_status plan_dropout_attributes(mp_planner *p) {
    const dropout *d = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    const mp_dtype mask = d->typed_mask ? x->type : MP_BOOL;
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    MP_TRY(mp_plan_output(p, 1, mask, &x->shape));
    if (d->trains && mp_node_int(p->node, "is_test", 0) == 0) {
        return drop(p, mp_node_float(p->node, "ratio", 0.5f), true);
    }
    return keep(p, 0, mp_dtype_size(mask));
}

static float float_of_half(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const float mantissa = (float)(bits & 0x3ff);
    float value = exponent == 0 ? mantissa * 0x1p-24f : (mantissa + 1024) * 0x1p-25f;
    for (int i = 1; i <= exponent; i++) {
        value *= 2;
    }
    return (bits & 0x8000) != 0 ? -value : value; /* inf comes out above 1, where it is refused */
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
    const void *data = (const void *)given->data;
    uint16_t half = 0;
    uint32_t bits = 0;
    double wide = 0;
    switch (given->type) {
    case MP_F32:
        memcpy(out, data, sizeof *out);
        return MP_OK;
    case MP_F64:
        memcpy(&wide, data, sizeof wide);
        *out = (float)wide;
        return MP_OK;
    case MP_F16:
        memcpy(&half, data, sizeof half);
        *out = float_of_half(half);
        return MP_OK;
    default:
        memcpy(&half, data, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(out, &bits, sizeof *out);
        return MP_OK;
    }
}

static mp_status plan_dropout(mp_planner *p) {
    const mp_tensor *x = &p->in[0], *mode = mp_plan_in(p, 2);
    float ratio = 0;
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    MP_TRY(mp_plan_output(p, 1, MP_BOOL, &x->shape));
    MP_TRY(read_float(p, 1, 0.5f, &ratio));
    if (mode != NULL && mp_shape_count(&mode->shape) != 1) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "training_mode of shape %s; one value is needed",
                       mp_shape_text(&mode->shape, text));
    }
    const bool trains = mode != NULL && *(const uint8_t *)mode->data != 0;
    return trains && ratio != 0 ? drop(p, ratio, false) : keep(p, 1, 1);
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
static const mp_attr_def test_attrs[] = {
    {"is_test", MP_ATTR_INT}, {"ratio", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def seed_attr[] = {{"seed", MP_ATTR_INT}, {NULL, 0}};

#define UNIFORM .a = "low", .b = "high", .a_default = 0, .b_default = 1
#define NORMAL  .normal = true, .a = "mean", .b = "scale", .a_default = 0, .b_default = 1
static const distribution uniform = {UNIFORM}, uniform_like = {UNIFORM, .like = true};
static const distribution normal = {NORMAL}, normal_like = {NORMAL, .like = true};
static const dropout of_1 = {.typed_mask = true, .trains = true};
static const dropout of_7 = {.typed_mask = true}, of_10 = {.typed_mask = false};

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
#define IN_PLACE .in_place = {{0, 0}}, .in_place_count = 1

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
     .plan = plan_dropout},
};

const mp_op_family mp__family_random = {"random", ops, MP_COUNT_OF(ops)};
