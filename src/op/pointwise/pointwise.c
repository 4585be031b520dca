/* pointwise.c - the element-wise operators. Their functions are text in
 * kernel/pointwise/pointwise.def; here is what ONNX calls them, in which versions, and where their
 * attributes go.
 * Kernels: pointwise/clip.cu, pointwise/fold.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/families.h"
#include "op/core/op.h"
#include "op/fused/expression.h"
#include "op/pointwise/narrow.h"
#include "op/pointwise/pointwise_steps.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- operators of one input ---- */

typedef struct unary {
    const char *word;
    const char *attr_a, *attr_b; /* float attributes, NULL for none */
    float a, b;                  /* their defaults */
} unary;

static mp_status plan_unary_as(mp_planner *p, mp_dtype result, float a, float b) {
    const unary *u = p->node->op->detail;
    const mp_tensor *x = &p->in[0];
    MP_TRY(mp_plan_output(p, 0, result, &x->shape));
    return mp_pointwise1(p, u->word, x->type, MP_IN(0), MP_OUT(0), mp_shape_count(&x->shape), a, b);
}

static mp_status plan_unary(mp_planner *p) {
    const unary *u = p->node->op->detail;
    const float a = u->attr_a != NULL ? mp_node_float(p->node, u->attr_a, u->a) : u->a;
    const float b = u->attr_b != NULL ? mp_node_float(p->node, u->attr_b, u->b) : u->b;
    return plan_unary_as(p, p->in[0].type, a, b);
}

static int express_unary_as(mp_expresser *e, float a, float b) {
    const unary *u = e->node->op->detail;
    return mp_expression_function(e->to, u->word, e->input(e, 0), MP_NO_REGISTER, a, b);
}

static int express_unary(mp_expresser *e) {
    const unary *u = e->node->op->detail;
    const float a = u->attr_a != NULL ? mp_node_float(e->node, u->attr_a, u->a) : u->a;
    const float b = u->attr_b != NULL ? mp_node_float(e->node, u->attr_b, u->b) : u->b;
    return express_unary_as(e, a, b);
}

static mp_status plan_isnan(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    if (mp_is_narrow(x->type)) {
        MP_TRY(mp_plan_output(p, 0, MP_BOOL, &x->shape));
        return mp_plan_narrow_isnan(p, x->type, MP_IN(0), MP_OUT(0), mp_shape_count(&x->shape));
    }
    return plan_unary_as(p, MP_BOOL, 0, 0);
}

static int express_isnan(mp_expresser *e) {
    return express_unary_as(e, 0, 0);
}

static mp_status plan_isinf(mp_planner *p) {
    const bool positive = mp_node_int(p->node, "detect_positive", 1) != 0;
    const bool negative = mp_node_int(p->node, "detect_negative", 1) != 0;
    const mp_tensor *x = &p->in[0];
    if (mp_is_narrow(x->type)) {
        MP_TRY(mp_plan_output(p, 0, MP_BOOL, &x->shape));
        return mp_plan_narrow_isinf(p, x->type, positive, negative, MP_IN(0), MP_OUT(0),
                                    mp_shape_count(&x->shape));
    }
    return plan_unary_as(p, MP_BOOL, positive ? 1.0f : 0.0f, negative ? 1.0f : 0.0f);
}

static int express_isinf(mp_expresser *e) {
    const bool positive = mp_node_int(e->node, "detect_positive", 1) != 0;
    const bool negative = mp_node_int(e->node, "detect_negative", 1) != 0;
    return express_unary_as(e, positive ? 1.0f : 0.0f, negative ? 1.0f : 0.0f);
}

/* ---- operators of two inputs ---- */

static mp_operand operand_in(const mp_planner *p, int i) {
    return (mp_operand){MP_IN(i), &p->in[i].shape};
}

/* f(x, y), or f(y, x) where `first` is 1. */
static mp_status plan_binary_as(mp_planner *p, const char *word, mp_dtype result, int first) {
    mp_shape shape;
    MP_TRY(mp_shape_broadcast(&p->in[0].shape, &p->in[1].shape, &shape));
    MP_TRY(mp_plan_output(p, 0, result, &shape));
    const mp_pair pair = {.word = word,
                          .dtype = p->in[0].type,
                          .result = result,
                          .x = operand_in(p, first),
                          .y = operand_in(p, 1 - first),
                          .out = MP_OUT(0),
                          .shape = &shape};
    return mp_plan_pair(p, &pair);
}

static mp_status plan_binary(mp_planner *p) {
    return plan_binary_as(p, p->node->op->detail, p->in[0].type, 0);
}

static mp_status plan_compare(mp_planner *p) {
    return plan_binary_as(p, p->node->op->detail, MP_BOOL, 0);
}

/* x > y by the kernel of y < x. */
static mp_status plan_compare_swapped(mp_planner *p) {
    return plan_binary_as(p, p->node->op->detail, MP_BOOL, 1);
}

static int express_pair(mp_expresser *e, const char *word, int first) {
    const int x = e->input(e, first);
    return mp_expression_function(e->to, word, x, e->input(e, 1 - first), 0, 0);
}

static int express_binary(mp_expresser *e) {
    return express_pair(e, e->node->op->detail, 0);
}

static int express_swapped(mp_expresser *e) {
    return express_pair(e, e->node->op->detail, 1);
}

static mp_status plan_mod(mp_planner *p) {
    const bool c_sign = mp_node_int(p->node, "fmod", 0) != 0;
    if (!c_sign && (MP_BIT(p->in[0].type) & MP_FLOATS) != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "inputs of type %s need the attribute fmod=1",
                       mp_dtype_name(p->in[0].type));
    }
    const bool same =
        (MP_BIT(p->in[0].type) & MP_UNSIGNED_INTS) != 0; /* where nothing is negative */
    return plan_binary_as(p, c_sign || same ? "fmod" : "mod", p->in[0].type, 0);
}

static mp_status plan_prelu(mp_planner *p) {
    mp_shape shape;
    MP_TRY(mp_shape_broadcast(&p->in[0].shape, &p->in[1].shape, &shape));
    if (!mp_shape_equal(&shape, &p->in[0].shape)) {
        char x[MP_SHAPE_TEXT];
        char slope[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "slope of shape %s does not broadcast to X of shape %s",
                       mp_shape_text(&p->in[1].shape, slope), mp_shape_text(&p->in[0].shape, x));
    }
    if ((MP_BIT(p->in[0].type) & MP_UNSIGNED_INTS) != 0) {
        size_t bytes = 0;
        MP_TRY(mp_shape_bytes(&shape, p->in[0].type, &bytes));
        MP_TRY(mp_plan_output(p, 0, p->in[0].type, &shape));
        return mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes); /* nothing is negative */
    }
    return plan_binary_as(p, "prelu", p->in[0].type, 0);
}

static int express_prelu(mp_expresser *e) {
    mp_shape shape;
    const bool fits = mp_shape_broadcast(&e->in[0].shape, &e->in[1].shape, &shape) == MP_OK &&
                      mp_shape_equal(&shape, &e->in[0].shape);
    return fits ? express_pair(e, "prelu", 0) : MP_NO_REGISTER;
}

/* ---- operators of any number of inputs: folded from the left into the output ---- */

/* Of inputs that all are as large as the output: as many at a time as the kernel takes, the output
 * being one of them after the first time. */
static mp_status fold_whole(mp_planner *p, int64_t count) {
    const char *word = p->node->op->detail;
    const bool mean = word == NULL, sum = mean || strcmp(word, "add") == 0;
    const mp_dtype dtype = p->in[0].type;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "fold_%s_%s", sum ? "sum" : word, mp_dtype_word(dtype)));
    const int per_lane = (int)(16 / mp_dtype_size(dtype));
    for (int done = 0; done < p->in_count;) {
        mp_fold_args args = {.count = count,
                             .whole = p->align >= 16,
                             .goes_on = done > 0,
                             .mean_of = mean ? p->in_count : 0};
        mp_bind binds[K_FOLD_INPUTS + 1] = {MP_BIND(mp_fold_args, out, MP_OUT(0))};
        for (; args.inputs < K_FOLD_INPUTS && done < p->in_count; args.inputs++) {
            const bool before = args.goes_on && args.inputs == 0;
            binds[1 + args.inputs] =
                (mp_bind){offsetof(mp_fold_args, in) + (size_t)args.inputs * sizeof(void *),
                          before ? MP_OUT(0) : MP_IN(done)};
            done += before ? 0 : 1;
        }
        MP_TRY(MP_LAUNCH_BOUND(p, kernel, mp_plan_grid_stream(p, count, per_lane, 1), &args,
                               sizeof args, binds, (size_t)args.inputs + 1));
    }
    return MP_OK;
}

/* Of others: by pairs, of which either side may be repeated. */
static mp_status fold_pairs(mp_planner *p, const mp_shape *shape) {
    const char *word = p->node->op->detail;
    const bool mean = word == NULL;
    const float share = mean ? 1.0f / (float)p->in_count : 1.0f;
    mp_operand sum = operand_in(p, 0);
    for (int i = 1; i < p->in_count; i++) {
        const float a = i == 1 ? share : 1.0f;
        MP_TRY(mp_pointwise2(p, mean ? "mean_step" : word, p->in[0].type, sum, operand_in(p, i),
                             MP_OUT(0), shape, a, share));
        sum = (mp_operand){MP_OUT(0), shape};
    }
    return MP_OK;
}

static mp_status plan_variadic(mp_planner *p) {
    const mp_dtype dtype = p->in[0].type;
    mp_shape shape = p->in[0].shape;
    for (int i = 1; i < p->in_count; i++) {
        MP_TRY(mp_shape_broadcast(&shape, &p->in[i].shape, &shape));
    }
    MP_TRY(mp_plan_output(p, 0, dtype, &shape));
    if (p->in_count == 1) {
        size_t bytes = 0;
        MP_TRY(mp_shape_bytes(&shape, dtype, &bytes));
        return mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes);
    }
    const int64_t count = mp_shape_count(&shape);
    bool whole = p->in_count > 2 && count > 0;
    for (int i = 0; i < p->in_count; i++) {
        whole = whole && mp_shape_count(&p->in[i].shape) == count;
    }
    return whole ? fold_whole(p, count) : fold_pairs(p, &shape);
}

static int express_variadic(mp_expresser *e) {
    const char *word = e->node->op->detail;
    const bool mean = word == NULL;
    const float share = mean ? 1.0f / (float)e->in_count : 0.0f;
    int sum = e->in_count > 1 ? e->input(e, 0) : MP_NO_REGISTER;
    for (int i = 1; i < e->in_count; i++) {
        const float a = mean ? (i == 1 ? share : 1.0f) : 0.0f;
        sum =
            mp_expression_function(e->to, mean ? "mean_step" : word, sum, e->input(e, i), a, share);
    }
    return sum;
}

/* ---- Clip ---- */

static mp_status plan_clip_attributes(mp_planner *p) {
    return plan_unary_as(p, p->in[0].type, mp_node_float(p->node, "min", -FLT_MAX),
                         mp_node_float(p->node, "max", FLT_MAX));
}

static mp_status plan_clip(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    for (int i = 1; i <= 2; i++) {
        const mp_tensor *bound = mp_plan_in(p, i);
        if (bound != NULL && mp_shape_count(&bound->shape) != 1) {
            char text[MP_SHAPE_TEXT];
            return MP_FAIL(INVALID_ARGUMENT, "%s must be a scalar, not of shape %s",
                           i == 1 ? "min" : "max", mp_shape_text(&bound->shape, text));
        }
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    const mp_clip_args args = {.count = mp_shape_count(&x->shape)};
    if (args.count == 0) {
        return MP_OK;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "clip_%s", mp_dtype_word(x->type)));
    const int per_lane = (int)(16 / mp_dtype_size(x->type));
    return MP_LAUNCH(p, kernel, mp_plan_grid_stream(p, args.count, per_lane, K_STREAM_AHEAD), args,
                     MP_BIND(mp_clip_args, x, MP_IN(0)),
                     MP_BIND(mp_clip_args, low, mp_plan_in(p, 1) ? MP_IN(1) : MP_NOWHERE),
                     MP_BIND(mp_clip_args, high, mp_plan_in(p, 2) ? MP_IN(2) : MP_NOWHERE),
                     MP_BIND(mp_clip_args, out, MP_OUT(0)));
}

/* The bound that is known, or what bounds nothing. */
static bool bound_of(const mp_expresser *e, int i, float fallback, float *out) {
    *out = fallback;
    return i >= e->in_count || e->in[i].type == MP_NONE || mp_express_known(e, i, out);
}

static int express_clip(mp_expresser *e) {
    float low = 0;
    float high = 0;
    const bool known = bound_of(e, 1, -INFINITY, &low) && bound_of(e, 2, INFINITY, &high);
    return known ? mp_expression_function(e->to, "clip", e->input(e, 0), MP_NO_REGISTER, low, high)
                 : MP_NO_REGISTER;
}

static int express_clip_attributes(mp_expresser *e) {
    return mp_expression_function(e->to, "clip", e->input(e, 0), MP_NO_REGISTER,
                                  mp_node_float(e->node, "min", -FLT_MAX),
                                  mp_node_float(e->node, "max", FLT_MAX));
}

/* ---- the rows ---- */

static const mp_attr_def alpha_beta[] = {
    {"alpha", MP_ATTR_FLOAT}, {"beta", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def alpha[] = {{"alpha", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def alpha_gamma[] = {
    {"alpha", MP_ATTR_FLOAT}, {"gamma", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def min_max[] = {{"min", MP_ATTR_FLOAT}, {"max", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def scale_only[] = {{"scale", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def bias_lambd[] = {
    {"bias", MP_ATTR_FLOAT}, {"lambd", MP_ATTR_FLOAT}, {NULL, 0}};
static const mp_attr_def detect[] = {
    {"detect_positive", MP_ATTR_INT}, {"detect_negative", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def fmod_only[] = {{"fmod", MP_ATTR_INT}, {NULL, 0}};

#define IN_PLACE  .in_place = {{0, 0}}, .in_place_count = 1
#define IN_PLACE2 .in_place = {{0, 0}, {1, 0}}, .in_place_count = 2

/* name, versions, types, word [, attributes, where their values go] */
#define UNARY(op_name, from, to, set, ...)                                                    \
    {                                                                                         \
        .name = (op_name), .since = (from), .until = (to), .types = {{"T", (set)}}, IN_PLACE, \
        .plan = plan_unary, .domain = "", .express = express_unary, __VA_ARGS__               \
    }
#define WORD(text)             \
    .detail = &(const unary) { \
        .word = (text)         \
    }
#define WITH(text, list, name_a, default_a, name_b, default_b)                                     \
    .attrs = (list), .detail = &(const unary) {                                                    \
        .word = (text), .attr_a = (name_a), .attr_b = (name_b), .a = (default_a), .b = (default_b) \
    }
#define TEST(op_name, from, to, set, function, ...)                                          \
    {                                                                                        \
        .name = (op_name), .since = (from), .until = (to), .plan = (function), .domain = "", \
        .types = {{"T1", (set)}, {"T2", MP_BIT(MP_BOOL)}}, __VA_ARGS__                       \
    }
#define BINARY(op_name, from, to, set, word)                                                   \
    {                                                                                          \
        .name = (op_name), .since = (from), .until = (to), .types = {{"T", (set)}}, IN_PLACE2, \
        .plan = plan_binary, .domain = "", .express = express_binary, .detail = (word)         \
    }
#define COMPARE(op_name, from, to, set, word, function, express_)                                 \
    {                                                                                             \
        .name = (op_name), .since = (from), .until = (to), .plan = (function), .domain = "",      \
        .types = {{"T", (set)}, {"T1", MP_BIT(MP_BOOL)}}, .express = (express_), .detail = (word) \
    }
#define VARIADIC(op_name, from, to, set, word)                                                \
    {                                                                                         \
        .name = (op_name), .since = (from), .until = (to), .types = {{"T", (set)}}, IN_PLACE, \
        .variadic = true, .plan = plan_variadic, .express = express_variadic, .domain = "",   \
        .detail = (word)                                                                      \
    }

static const mp_op ops[] = {
    UNARY("Abs", 6, 13, MP_NUMBERS, WORD("abs")),
    UNARY("Neg", 6, 13, MP_FLOATS | MP_SIGNED_INTS, WORD("neg")),
    UNARY("Sign", 9, 13, MP_NUMBERS, WORD("sign")),
    UNARY("Floor", 6, 13, MP_FLOATS, WORD("floor")),
    UNARY("Ceil", 6, 13, MP_FLOATS, WORD("ceil")),
    UNARY("Round", 11, 22, MP_FLOATS, WORD("round")),
    UNARY("Sqrt", 6, 13, MP_FLOATS, WORD("sqrt")),
    UNARY("Reciprocal", 6, 13, MP_FLOATS, WORD("reciprocal")),
    UNARY("Exp", 6, 13, MP_FLOATS, WORD("exp")),
    UNARY("Log", 6, 13, MP_FLOATS, WORD("log")),
    UNARY("Sin", 7, 22, MP_FLOATS, WORD("sin")),
    UNARY("Cos", 7, 22, MP_FLOATS, WORD("cos")),
    UNARY("Tan", 7, 22, MP_FLOATS, WORD("tan")),
    UNARY("Asin", 7, 22, MP_FLOATS, WORD("asin")),
    UNARY("Acos", 7, 22, MP_FLOATS, WORD("acos")),
    UNARY("Atan", 7, 22, MP_FLOATS, WORD("atan")),
    UNARY("Sinh", 9, 22, MP_FLOATS, WORD("sinh")),
    UNARY("Cosh", 9, 22, MP_FLOATS, WORD("cosh")),
    UNARY("Asinh", 9, 22, MP_FLOATS, WORD("asinh")),
    UNARY("Acosh", 9, 22, MP_FLOATS, WORD("acosh")),
    UNARY("Atanh", 9, 22, MP_FLOATS, WORD("atanh")),
    UNARY("Tanh", 6, 13, MP_FLOATS, WORD("tanh")),
    UNARY("Erf", 9, 13, MP_FLOATS, WORD("erf")),
    UNARY("Relu", 6, 14, MP_FLOATS | MP_SIGNED_INTS, WORD("relu")),
    UNARY("Sigmoid", 6, 13, MP_FLOATS, WORD("sigmoid")),
    UNARY("HardSigmoid", 6, 22, MP_FLOATS,
          WITH("hard_sigmoid", alpha_beta, "alpha", 0.2f, "beta", 0.5f)),
    UNARY("LeakyRelu", 6, 16, MP_FLOATS, WITH("leaky_relu", alpha, "alpha", 0.01f, NULL, 0)),
    UNARY("Elu", 6, 22, MP_FLOATS, WITH("elu", alpha, "alpha", 1.0f, NULL, 0)),
    UNARY("Selu", 6, 22, MP_FLOATS,
          WITH("selu", alpha_gamma, "alpha", 1.67326319217681884765625f, "gamma",
               1.05070102214813232421875f)),
    UNARY("Celu", 12, 12, MP_BIT(MP_F32), WITH("celu", alpha, "alpha", 1.0f, NULL, 0)),
    UNARY("Swish", 24, 24, MP_FLOATS, WITH("swish", alpha, "alpha", 1.0f, NULL, 0)),
    UNARY("Mish", 18, 22, MP_FLOATS, WORD("mish")),
    UNARY("Affine", 1, 1, MP_IEEE_FLOATS, WITH("affine", alpha_beta, "alpha", 1.0f, "beta", 0.0f)),
    UNARY("Scale", 1, 1, MP_IEEE_FLOATS, WITH("affine", scale_only, "scale", 1.0f, NULL, 0)),
    UNARY("ScaledTanh", 1, 1, MP_IEEE_FLOATS,
          WITH("scaled_tanh", alpha_beta, "alpha", 1.0f, "beta", 1.0f)),
    UNARY("ParametricSoftplus", 1, 1, MP_IEEE_FLOATS,
          WITH("parametric_softplus", alpha_beta, "alpha", 1.0f, "beta", 1.0f)),
    UNARY("Shrink", 9, 9, MP_IEEE_FLOATS | MP_INTS,
          WITH("shrink", bias_lambd, "bias", 0.0f, "lambd", 0.5f)),
    UNARY("Softplus", 1, 22, MP_FLOATS, WORD("softplus")),
    UNARY("Softsign", 1, 22, MP_FLOATS, WORD("softsign")),
    UNARY("ThresholdedRelu", 1, 22, MP_FLOATS,
          WITH("thresholded_relu", alpha, "alpha", 1.0f, NULL, 0)),
    UNARY("HardSwish", 14, 22, MP_FLOATS, WORD("hard_swish")),
    UNARY("Not", 1, 1, MP_BIT(MP_BOOL), WORD("not")),
    TEST("IsNaN", 9, 20, MP_FLOATS | MP_FLOAT8, plan_isnan, WORD("isnan"),
         .express = express_isnan),
    TEST("IsInf", 10, 20, MP_FLOATS | MP_FLOAT8, plan_isinf, WORD("isinf"), .attrs = detect,
         .express = express_isinf),
    BINARY("Add", 7, 14, MP_NUMBERS, "add"),
    BINARY("Sub", 7, 14, MP_NUMBERS, "sub"),
    BINARY("Mul", 7, 14, MP_NUMBERS, "mul"),
    BINARY("Div", 7, 14, MP_NUMBERS, "div"),
    {.name = "Mod",
     .domain = "",
     .since = 10,
     .until = 13,
     .types = {{"T", MP_NUMBERS}},
     IN_PLACE2,
     .attrs = fmod_only,
     .plan = plan_mod},
    {.name = "PRelu",
     .domain = "",
     .since = 7,
     .until = 16,
     IN_PLACE,
     .plan = plan_prelu,
     .express = express_prelu,
     .types = {{"T",
                MP_FLOATS | MP_BIT(MP_I32) | MP_BIT(MP_I64) | MP_BIT(MP_U32) | MP_BIT(MP_U64)}}},
    COMPARE("And", 7, 7, MP_BIT(MP_BOOL), "and", plan_compare, express_binary),
    COMPARE("Or", 7, 7, MP_BIT(MP_BOOL), "or", plan_compare, express_binary),
    COMPARE("Xor", 7, 7, MP_BIT(MP_BOOL), "xor", plan_compare, express_binary),
    COMPARE("Equal", 7, 19, MP_ALL_TYPES, "equal", plan_compare, express_binary),
    COMPARE("Less", 7, 13, MP_NUMBERS, "less", plan_compare, express_binary),
    COMPARE("LessOrEqual", 12, 16, MP_NUMBERS, "less_or_equal", plan_compare, express_binary),
    COMPARE("Greater", 7, 13, MP_NUMBERS, "less", plan_compare_swapped, express_swapped),
    COMPARE("GreaterOrEqual", 12, 16, MP_NUMBERS, "less_or_equal", plan_compare_swapped,
            express_swapped),
    VARIADIC("Max", 6, 13, MP_NUMBERS, "max"),
    VARIADIC("Min", 6, 13, MP_NUMBERS, "min"),
    VARIADIC("Sum", 6, 13, MP_FLOATS, "add"),
    VARIADIC("Mean", 6, 13, MP_FLOATS, NULL),
    {.name = "Clip",
     .domain = "",
     .since = 6,
     .until = 10,
     .types = {{"T", MP_IEEE_FLOATS}},
     IN_PLACE,
     .attrs = min_max,
     .plan = plan_clip_attributes,
     .express = express_clip_attributes,
     WORD("clip")},
    {.name = "Clip",
     .domain = "",
     .since = 11,
     .until = 13,
     .types = {{"T", MP_NUMBERS}},
     IN_PLACE,
     .plan = plan_clip,
     .express = express_clip},
};

const mp_op_family mp__family_pointwise = {"pointwise", ops, MP_COUNT_OF(ops)};
