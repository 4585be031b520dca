/* pointwise_test.c - every element-wise operator for every type it takes, against the same function
 * written over double or int64.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/op_value.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- functions over double; a and b are attributes ---- */

typedef double real_fn(double x, double y, double a, double b);

#define REAL(name, expression)                                   \
    static double name(double x, double y, double a, double b) { \
        (void)x, (void)y, (void)a, (void)b;                      \
        return expression;                                       \
    }

static double clamp(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

REAL(real_abs, fabs(x))
REAL(real_neg, -x)
REAL(real_sign, isnan(x) ? x : (double)((x > 0) - (x < 0)))
REAL(real_floor, floor(x))
REAL(real_ceil, ceil(x))
REAL(real_round, rint(x))
REAL(real_sqrt, sqrt(x))
REAL(real_reciprocal, 1 / x)
REAL(real_exp, exp(x))
REAL(real_log, log(x))
REAL(real_sin, sin(x))
REAL(real_cos, cos(x))
REAL(real_tan, tan(x))
REAL(real_asin, asin(x))
REAL(real_acos, acos(x))
REAL(real_atan, atan(x))
REAL(real_sinh, sinh(x))
REAL(real_cosh, cosh(x))
REAL(real_asinh, asinh(x))
REAL(real_acosh, acosh(x))
REAL(real_atanh, atanh(x))
REAL(real_tanh, tanh(x))
REAL(real_erf, erf(x))
REAL(real_relu, x < 0 ? 0 : x)
REAL(real_sigmoid, 1 / (1 + exp(-x)))
REAL(real_hard_sigmoid, clamp(a *x + b, 0, 1))
REAL(real_clip, clamp(x, a, b))
REAL(real_leaky_relu, x < 0 ? a * x : x)
REAL(real_elu, x < 0 ? a * expm1(x) : x)
REAL(real_selu, b *(x < 0 ? a * expm1(x) : x))
REAL(real_softplus, x > 30 ? x : log1p(exp(x)))
REAL(real_celu, x > 0 ? x : a * expm1(x / a))
REAL(real_swish, x / (1 + exp(-a * x)))
REAL(real_mish, x *tanh(x > 30 ? x : log1p(exp(x))))
REAL(real_affine, a *x + b)
REAL(real_scaled_tanh, a *tanh(b *x))
REAL(real_parametric_softplus, a *(b *x > 30 ? b * x : log1p(exp(b * x))))
REAL(real_shrink, x<-b ? x + a : x> b ? x - a : 0)
REAL(real_softsign, x / (1 + fabs(x)))
REAL(real_thresholded_relu, x > a ? x : 0)
REAL(real_hard_swish, x *clamp(x / 6 + 0.5, 0, 1))
REAL(real_isnan, isnan(x))
REAL(real_isinf, (isinf(x) && x > 0 && a != 0) || (isinf(x) && x < 0 && b != 0))
REAL(real_add, x + y)
REAL(real_sub, x - y)
REAL(real_mul, x *y)
REAL(real_div, x / y)
REAL(real_fmod, fmod(x, y))
REAL(real_max, isnan(x) ? x : isnan(y) ? y : fmax(x, y))
REAL(real_min, isnan(x) ? x : isnan(y) ? y : fmin(x, y))
REAL(real_mean, x / 2 + y / 2)
REAL(real_prelu, x < 0 ? x * y : x)
REAL(real_equal, x == y)
REAL(real_less, x < y)
REAL(real_less_or_equal, x <= y)
REAL(real_greater, x > y)
REAL(real_greater_or_equal, x >= y)

/* ---- functions over int64; `u` says that the numbers are unsigned ---- */

typedef int64_t whole_fn(int64_t x, int64_t y, bool u);

#define WHOLE(name, expression)                         \
    static int64_t name(int64_t x, int64_t y, bool u) { \
        (void)x, (void)y, (void)u;                      \
        return expression;                              \
    }

static int64_t wrap(uint64_t bits) {
    return (int64_t)bits;
}

static bool less(int64_t x, int64_t y, bool u) {
    return u ? (uint64_t)x < (uint64_t)y : x < y;
}

static int64_t divide(int64_t x, int64_t y, bool u) {
    return y == 0 ? 0 : u ? wrap((uint64_t)x / (uint64_t)y) : y == -1 ? wrap(-(uint64_t)x) : x / y;
}

static int64_t rest_of(int64_t x, int64_t y, bool u) {
    return y == 0 ? 0 : u ? wrap((uint64_t)x % (uint64_t)y) : y == -1 ? 0 : x % y;
}

static int64_t modulus(int64_t x, int64_t y, bool u) {
    const int64_t rest = rest_of(x, y, u);
    return !u && rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

WHOLE(whole_abs, less(x, 0, u) ? wrap(-(uint64_t)x) : x)
WHOLE(whole_neg, wrap(-(uint64_t)x))
WHOLE(whole_sign, u ? x != 0 : (x > 0) - (x < 0))
WHOLE(whole_shrink, x) /* without a bias */
WHOLE(whole_relu, less(x, 0, u) ? 0 : x)
WHOLE(whole_not, !x)
WHOLE(whole_add, wrap((uint64_t)x + (uint64_t)y))
WHOLE(whole_sub, wrap((uint64_t)x - (uint64_t)y))
WHOLE(whole_mul, wrap((uint64_t)x *(uint64_t)y))
WHOLE(whole_div, divide(x, y, u))
WHOLE(whole_mod, modulus(x, y, u))
WHOLE(whole_fmod, rest_of(x, y, u))
WHOLE(whole_max, less(x, y, u) ? y : x)
WHOLE(whole_min, less(x, y, u) ? x : y)
WHOLE(whole_prelu, less(x, 0, u) ? wrap((uint64_t)x *(uint64_t)y) : x)
WHOLE(whole_and, x &&y)
WHOLE(whole_or, x || y)
WHOLE(whole_xor, x != y)
WHOLE(whole_equal, x == y)
WHOLE(whole_less, less(x, y, u))
WHOLE(whole_less_or_equal, !less(y, x, u))
WHOLE(whole_greater, less(y, x, u))
WHOLE(whole_greater_or_equal, !less(x, y, u))

/* ---- the operators ---- */

typedef struct subject {
    const char *name;
    int version;
    real_fn *real;   /* NULL: not for floats */
    whole_fn *whole; /* NULL: not for integers */
    const char *attr_a, *attr_b;
    float a, b; /* given where named, otherwise the defaults that the function should see */
} subject;

static const subject unary[] = {
    {"Abs", 13, real_abs, whole_abs, NULL, NULL, 0, 0},
    {"Neg", 13, real_neg, whole_neg, NULL, NULL, 0, 0},
    {"Sign", 13, real_sign, whole_sign, NULL, NULL, 0, 0},
    {"Floor", 13, real_floor, NULL, NULL, NULL, 0, 0},
    {"Ceil", 13, real_ceil, NULL, NULL, NULL, 0, 0},
    {"Round", 22, real_round, NULL, NULL, NULL, 0, 0},
    {"Sqrt", 13, real_sqrt, NULL, NULL, NULL, 0, 0},
    {"Reciprocal", 13, real_reciprocal, NULL, NULL, NULL, 0, 0},
    {"Exp", 13, real_exp, NULL, NULL, NULL, 0, 0},
    {"Log", 13, real_log, NULL, NULL, NULL, 0, 0},
    {"Sin", 22, real_sin, NULL, NULL, NULL, 0, 0},
    {"Cos", 22, real_cos, NULL, NULL, NULL, 0, 0},
    {"Tan", 22, real_tan, NULL, NULL, NULL, 0, 0},
    {"Asin", 22, real_asin, NULL, NULL, NULL, 0, 0},
    {"Acos", 22, real_acos, NULL, NULL, NULL, 0, 0},
    {"Atan", 22, real_atan, NULL, NULL, NULL, 0, 0},
    {"Sinh", 22, real_sinh, NULL, NULL, NULL, 0, 0},
    {"Cosh", 22, real_cosh, NULL, NULL, NULL, 0, 0},
    {"Asinh", 22, real_asinh, NULL, NULL, NULL, 0, 0},
    {"Acosh", 22, real_acosh, NULL, NULL, NULL, 0, 0},
    {"Atanh", 22, real_atanh, NULL, NULL, NULL, 0, 0},
    {"Tanh", 13, real_tanh, NULL, NULL, NULL, 0, 0},
    {"Erf", 13, real_erf, NULL, NULL, NULL, 0, 0},
    {"Relu", 14, real_relu, whole_relu, NULL, NULL, 0, 0},
    {"Sigmoid", 13, real_sigmoid, NULL, NULL, NULL, 0, 0},
    {"HardSigmoid", 22, real_hard_sigmoid, NULL, NULL, NULL, 0.2f, 0.5f},
    {"HardSigmoid", 6, real_hard_sigmoid, NULL, "alpha", "beta", 0.25f, 0.125f},
    {"Clip", 6, real_clip, NULL, "min", "max", -1.0f, 2.0f},
    {"Clip", 6, real_clip, NULL, NULL, NULL, -FLT_MAX, FLT_MAX},
    {"LeakyRelu", 16, real_leaky_relu, NULL, NULL, NULL, 0.01f, 0},
    {"LeakyRelu", 6, real_leaky_relu, NULL, "alpha", NULL, 0.25f, 0},
    {"Elu", 22, real_elu, NULL, "alpha", NULL, 1.5f, 0},
    {"Selu", 22, real_selu, NULL, NULL, NULL, 1.67326319217681884765625f,
     1.05070102214813232421875f},
    {"Selu", 6, real_selu, NULL, "alpha", "gamma", 1.5f, 2.0f},
    {"Softplus", 22, real_softplus, NULL, NULL, NULL, 0, 0},
    {"Celu", 12, real_celu, NULL, NULL, NULL, 1, 0},
    {"Celu", 12, real_celu, NULL, "alpha", NULL, 1.5f, 0},
    {"Swish", 24, real_swish, NULL, NULL, NULL, 1, 0},
    {"Swish", 24, real_swish, NULL, "alpha", NULL, 0.25f, 0},
    {"Mish", 22, real_mish, NULL, NULL, NULL, 0, 0},
    {"Affine", 1, real_affine, NULL, "alpha", "beta", 0.5f, -2.0f},
    {"Scale", 1, real_affine, NULL, "scale", NULL, 0.5f, 0},
    {"ScaledTanh", 1, real_scaled_tanh, NULL, "alpha", "beta", 2.0f, 0.5f},
    {"ParametricSoftplus", 1, real_parametric_softplus, NULL, "alpha", "beta", 2.0f, 0.5f},
    {"Shrink", 9, real_shrink, whole_shrink, NULL, NULL, 0, 0.5f},
    {"Shrink", 9, real_shrink, NULL, "bias", "lambd", 0.5f, 1.5f},
    {"Softsign", 22, real_softsign, NULL, NULL, NULL, 0, 0},
    {"ThresholdedRelu", 22, real_thresholded_relu, NULL, "alpha", NULL, 0.5f, 0},
    {"HardSwish", 22, real_hard_swish, NULL, NULL, NULL, 0, 0},
    {"Not", 1, NULL, whole_not, NULL, NULL, 0, 0},
    {"IsNaN", 20, real_isnan, NULL, NULL, NULL, 0, 0},
    {"IsInf", 20, real_isinf, NULL, NULL, NULL, 1, 1},
};

static const subject binary[] = {
    {"Add", 14, real_add, whole_add, NULL, NULL, 0, 0},
    {"Sub", 14, real_sub, whole_sub, NULL, NULL, 0, 0},
    {"Mul", 14, real_mul, whole_mul, NULL, NULL, 0, 0},
    {"Div", 14, real_div, whole_div, NULL, NULL, 0, 0},
    {"Max", 13, real_max, whole_max, NULL, NULL, 0, 0},
    {"Min", 13, real_min, whole_min, NULL, NULL, 0, 0},
    {"Mean", 13, real_mean, NULL, NULL, NULL, 0, 0},
    {"Sum", 13, real_add, NULL, NULL, NULL, 0, 0},
    {"PRelu", 16, real_prelu, whole_prelu, NULL, NULL, 0, 0},
    {"And", 7, NULL, whole_and, NULL, NULL, 0, 0},
    {"Or", 7, NULL, whole_or, NULL, NULL, 0, 0},
    {"Xor", 7, NULL, whole_xor, NULL, NULL, 0, 0},
    {"Equal", 19, real_equal, whole_equal, NULL, NULL, 0, 0},
    {"Less", 13, real_less, whole_less, NULL, NULL, 0, 0},
    {"LessOrEqual", 16, real_less_or_equal, whole_less_or_equal, NULL, NULL, 0, 0},
    {"Greater", 13, real_greater, whole_greater, NULL, NULL, 0, 0},
    {"GreaterOrEqual", 16, real_greater_or_equal, whole_greater_or_equal, NULL, NULL, 0, 0},
};

/* Mod is two functions; floats have only one of them. */
static const subject moduli[] = {
    {"Mod", 13, NULL, whole_mod, NULL, NULL, 0, 0},
    {"Mod", 13, real_fmod, whole_fmod, "fmod", NULL, 1, 0},
};

/* ---- values ---- */

/* One number a line otherwise. */
/* clang-format off */
static const double real_edges[] = {
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.25, -3.25, 0.1, -0.7, 7.0, -7.0,
    20.0, -20.0, 90.0, -90.0, 300.0, -9e3, 6.1e4, 1e-3, -1e-4, 6e-8, 1e-40, 1e30, -1e30, 0x1p-14,
    (double)NAN, (double)INFINITY, -(double)INFINITY};
/* clang-format on */
enum { REAL_EDGES = MP_COUNT_OF(real_edges), WHOLE_EDGES = 16 };

/* The edges of an integer type, and what lies between. */
static int64_t whole_edge(mp_dtype type, int i) {
    const int bits = (int)mp_dtype_size(type) * 8;
    const uint64_t top = (uint64_t)1 << (bits - 1);
    const uint64_t edges[WHOLE_EDGES] = {0,
                                         1,
                                         (uint64_t)-1,
                                         2,
                                         (uint64_t)-2,
                                         7,
                                         (uint64_t)-7,
                                         3,
                                         (uint64_t)-3,
                                         100,
                                         (uint64_t)-100,
                                         top,
                                         top - 1,
                                         top + 1,
                                         top - 2,
                                         64};
    return op_wrapped(type, (int64_t)edges[i]);
}

static int edge_count(mp_dtype type) {
    return op_is_float(type) ? REAL_EDGES : WHOLE_EDGES;
}

static void store_edge(mp_dtype type, void *data, int64_t i, int edge) {
    if (op_is_float(type)) {
        op_store_real(type, data, i, real_edges[edge]);
    } else {
        op_store_whole(type, data, i, whole_edge(type, edge));
    }
}

/* ---- checks ---- */

static bool is_unsigned(mp_dtype type) {
    return (MP_BIT(type) & (MP_SIGNED_INTS | MP_FLOATS)) == 0;
}

/* out[i] against the function of x[i] and y[i]. Functions whose result in float is a few roundings
 * away, or that cancel, get the bound that goes with it. */
static void check_element(const subject *s, mp_dtype type, const op_tensor *out, int64_t i,
                          const void *x, int64_t at_x, const void *y, int64_t at_y) {
    char what[64];
    (void)snprintf(what, sizeof what, "%s of %s", s->name, mp_dtype_name(type));
    if (!op_is_float(type)) {
        const int64_t want = s->whole(op_whole(type, x, at_x),
                                      y != NULL ? op_whole(type, y, at_y) : 0, is_unsigned(type));
        const int64_t got = op_whole(out->type, out->data, i);
        if (got != op_wrapped(out->type, want)) {
            test_fail(__FILE__, __LINE__, "%s: [%lld] is %lld, not %lld", what, (long long)i,
                      (long long)got, (long long)op_wrapped(out->type, want));
        }
        return;
    }
    const double want = s->real(op_real(type, x, at_x), y != NULL ? op_real(type, y, at_y) : 0,
                                (double)s->a, (double)s->b);
    if (out->type == MP_BOOL) {
        op_check_close(op_real(MP_BOOL, out->data, i), want, 0, what, i);
        return;
    }
    op_check_close(op_real(type, out->data, i), op_rounded(type, want),
                   op_precision(type) + op_precision(MP_F32) * (type == MP_F64 ? 0 : 4), what, i);
}

static void run_subject(mp_device *device, const subject *s, op_case *c) {
    mp_attr attrs[2];
    size_t count = 0;
    if (s->attr_a != NULL && strcmp(s->attr_a, "fmod") == 0) {
        attrs[count++] = (mp_attr)OP_INT("fmod", 1);
    } else if (s->attr_a != NULL) {
        attrs[count++] = (mp_attr)OP_FLOAT(s->attr_a, s->a);
    }
    if (s->attr_b != NULL) {
        attrs[count++] = (mp_attr)OP_FLOAT(s->attr_b, s->b);
    }
    c->name = s->name;
    c->version = s->version;
    c->attrs = attrs;
    c->attr_count = count;
    c->out_count = 1;
    op_run(device, c);
    c->attrs = NULL;
}

static bool takes(const subject *s, mp_dtype type) {
    return (op_types_of(s->name, s->version) & MP_BIT(type)) != 0 &&
           (op_is_float(type) ? s->real != NULL : s->whole != NULL);
}

static void check_unary(mp_device *device, const subject *s, mp_dtype type) {
    enum { REPEATS = 5 }; /* more elements than a lane takes, and not a multiple */
    const int edges = edge_count(type);
    const int64_t count = (int64_t)edges * REPEATS;
    void *x = op_memory(type, count);
    for (int64_t i = 0; i < count; i++) {
        store_edge(type, x, i, (int)(i % edges));
    }
    op_case c = {.in = {OP_TENSOR(type, x, count)}, .in_count = 1};
    run_subject(device, s, &c);
    for (int64_t i = 0; i < count; i++) {
        check_element(s, type, &c.out[0], i, x, i, NULL, 0);
    }
    op_close(device, &c);
    free(x);
}

/* Every edge with every other. */
static void check_binary(mp_device *device, const subject *s, mp_dtype type) {
    const int edges = edge_count(type);
    const int64_t count = (int64_t)edges * edges;
    void *x = op_memory(type, count);
    void *y = op_memory(type, count);
    for (int64_t i = 0; i < count; i++) {
        store_edge(type, x, i, (int)(i % edges));
        store_edge(type, y, i, (int)(i / edges));
    }
    op_case c = {.in = {OP_TENSOR(type, x, count), OP_TENSOR(type, y, count)}, .in_count = 2};
    run_subject(device, s, &c);
    for (int64_t i = 0; i < count; i++) {
        check_element(s, type, &c.out[0], i, x, i, y, i);
    }
    op_close(device, &c);
    free(x);
    free(y);
}

static void check_all(mp_device *device, const subject *subjects, size_t count,
                      void (*check)(mp_device *, const subject *, mp_dtype)) {
    for (size_t s = 0; s < count; s++) {
        for (int t = 0; op_types[t] != MP_NONE; t++) {
            if (takes(&subjects[s], op_types[t])) {
                check(device, &subjects[s], op_types[t]);
            }
        }
    }
}

DEVICE_TEST(pointwise_functions_of_one) {
    check_all(device, unary, MP_COUNT_OF(unary), check_unary);
}

DEVICE_TEST(pointwise_functions_of_two) {
    check_all(device, binary, MP_COUNT_OF(binary), check_binary);
    check_all(device, moduli, MP_COUNT_OF(moduli), check_binary);
}

/* A row whose function is in neither list would go untested. */
TEST(pointwise_rows_are_all_tested) {
    extern const mp_op_family mp__family_pointwise;
    for (size_t k = 0; k < mp__family_pointwise.count; k++) {
        const char *name = mp__family_pointwise.ops[k].name;
        bool found = strcmp(name, "Mod") == 0;
        for (size_t s = 0; s < MP_COUNT_OF(unary); s++) {
            found = found || strcmp(unary[s].name, name) == 0;
        }
        for (size_t s = 0; s < MP_COUNT_OF(binary); s++) {
            found = found || strcmp(binary[s].name, name) == 0;
        }
        if (!found) {
            test_fail(__FILE__, __LINE__, "%s is not tested", name);
        }
    }
}

/* ---- where the elements lie ---- */

static int64_t broadcast_at(const mp_shape *out, const mp_shape *in, int64_t i) {
    int64_t offset = 0;
    int64_t step = 1;
    for (int d = out->rank - 1; d >= 0; d--) {
        const int64_t at = i % out->dim[d];
        const int own = d - (out->rank - in->rank);
        i /= out->dim[d];
        if (own >= 0) {
            offset += in->dim[own] == 1 ? 0 : at * step;
            step *= in->dim[own];
        }
    }
    return offset;
}

static void check_shapes(mp_device *device, mp_dtype type, const mp_shape *left,
                         const mp_shape *right, uint32_t skew) {
    static const subject sub = {"Sub", 14, real_sub, whole_sub, NULL, NULL, 0, 0};
    void *x = op_numbers(type, 1, mp_shape_count(left));
    void *y = op_numbers(type, 2, mp_shape_count(right));
    op_case c = {.in = {{type, *left, x}, {type, *right, y}},
                 .in_count = 2,
                 .align = skew != 0 ? 1 : 16,
                 .skew = skew};
    run_subject(device, &sub, &c);
    const mp_shape *out = &c.out[0].shape;
    for (int64_t i = 0; i < mp_shape_count(out); i++) {
        check_element(&sub, type, &c.out[0], i, x, broadcast_at(out, left, i), y,
                      broadcast_at(out, right, i));
    }
    op_close(device, &c);
    free(x);
    free(y);
}

static const mp_shape pairs[][2] = {
    {{2, {33, 7}}, {2, {33, 7}}},
    {{0, {0}}, {2, {5, 7}}},
    {{2, {5, 7}}, {1, {1}}},
    {{2, {5, 7}}, {1, {7}}},
    {{3, {2, 1, 7}}, {3, {1, 5, 1}}},
    {{0, {0}}, {0, {0}}},
    {{4, {2, 3, 1, 5}}, {3, {3, 4, 1}}},
    {{2, {0, 3}}, {2, {1, 3}}},
    {{8, {2, 1, 2, 1, 2, 1, 2, 3}}, {7, {2, 1, 2, 1, 2, 1, 1}}},
};

DEVICE_TEST(pointwise_broadcasts) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        if ((op_types_of("Sub", 14) & MP_BIT(op_types[t])) != 0) {
            for (size_t k = 0; k < MP_COUNT_OF(pairs); k++) {
                check_shapes(device, op_types[t], &pairs[k][0], &pairs[k][1], 0);
            }
        }
    }
}

/* Tensors that start at any multiple of their element. */
DEVICE_TEST(pointwise_needs_no_alignment) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        if ((op_types_of("Sub", 14) & MP_BIT(op_types[t])) != 0) {
            const uint32_t size = (uint32_t)mp_dtype_size(op_types[t]);
            for (size_t k = 0; k < 4; k++) {
                check_shapes(device, op_types[t], &pairs[k][0], &pairs[k][1], size);
            }
        }
    }
}

/* ---- what is not a plain function of one or two ---- */

DEVICE_TEST(pointwise_folds_many_inputs) {
    const float a[] = {1, 2, 3, 4, 5, 6};
    const float b[] = {10, 20, 30};
    const float d[] = {100};
    const struct {
        const char *name;
        double want[6];
    } forms[] = {{"Sum", {111, 122, 133, 114, 125, 136}},
                 {"Mean", {37, 122 / 3.0, 133 / 3.0, 38, 125 / 3.0, 136 / 3.0}},
                 {"Max", {100, 100, 100, 100, 100, 100}},
                 {"Min", {1, 2, 3, 4, 5, 6}}};
    for (size_t f = 0; f < MP_COUNT_OF(forms); f++) {
        op_case c = {.name = forms[f].name,
                     .version = 13,
                     .in = {op_f32(a, 2, 3), op_f32(b, 3), op_f32(d, 1)},
                     .in_count = 3,
                     .out_count = 1};
        op_run(device, &c);
        for (int i = 0; i < 6; i++) {
            op_check_close(op_real(MP_F32, c.out[0].data, i), forms[f].want[i], 1e-6, c.name, i);
        }
        op_close(device, &c);
        c.in_count = 1;
        op_run(device, &c);
        CHECK(op_same(&c.out[0], a));
        op_close(device, &c);
    }
}

enum { FOLDED_MOST = 18 };

/* What element `i` of all inputs makes; `sum` and `mean` in double, for floats. */
static double folded(const char *name, mp_dtype type, void *const *x, int inputs, int64_t i) {
    double all = op_real(type, x[0], i);
    for (int v = 1; v < inputs; v++) {
        const double next = op_real(type, x[v], i);
        if (strcmp(name, "Max") == 0) {
            all = isnan(all) || all > next ? all : next;
        } else if (strcmp(name, "Min") == 0) {
            all = isnan(all) || all < next ? all : next;
        } else {
            all += next;
        }
    }
    return strcmp(name, "Mean") == 0 ? all / inputs : all;
}

static void check_folded(mp_device *device, const char *name, mp_dtype type, int inputs,
                         int64_t count, bool aligned) {
    void *x[FOLDED_MOST];
    op_case c = {.name = name,
                 .version = 13,
                 .align = aligned ? 16 : 1,
                 .skew = aligned ? 0 : (uint32_t)mp_dtype_size(type),
                 .in_count = inputs,
                 .out_count = 1};
    for (int v = 0; v < inputs; v++) {
        x[v] = op_numbers(type, (uint64_t)v + 1, count);
        c.in[v] = OP_TENSOR(type, x[v], count);
    }
    if (op_is_float(type) && count > 2) {
        op_store_real(type, x[inputs - 1], 1, (double)NAN);
        op_store_real(type, x[0], 2, (double)INFINITY);
    }
    op_run(device, &c);
    for (int64_t i = 0; i < count; i++) {
        op_check_close(op_real(type, c.out[0].data, i), folded(name, type, x, inputs, i),
                       op_is_float(type) ? 3 * op_precision(type) : 0, name, i);
    }
    op_close(device, &c);
    for (int v = 0; v < inputs; v++) {
        free(x[v]);
    }
}

/* Inputs of one size: as many as are read at once, fewer, and so many that it takes several times.
 */
DEVICE_TEST(pointwise_folds_inputs_of_one_size) {
    static const char *const names[] = {"Sum", "Mean", "Max", "Min"};
    static const int inputs[] = {2, 3, 4, 5, 6, 7, 8, 9, 15, 16, FOLDED_MOST};
    static const int64_t counts[] = {0, 1, 7, 64, 1003};
    for (size_t n = 0; n < MP_COUNT_OF(names); n++) {
        for (int t = 0; op_types[t] != MP_NONE; t++) {
            if ((op_types_of(names[n], 13) & MP_BIT(op_types[t])) == 0) {
                continue;
            }
            for (size_t k = 0; k < MP_COUNT_OF(inputs); k++) {
                check_folded(device, names[n], op_types[t], inputs[k],
                             counts[k % MP_COUNT_OF(counts)], k % 2 == 0);
                check_folded(device, names[n], op_types[t], inputs[k], 131, k % 2 != 0);
            }
        }
    }
}

DEVICE_TEST(pointwise_clips_to_tensors) {
    for (int t = 0; op_types[t] != MP_NONE; t++) {
        const mp_dtype type = op_types[t];
        if ((op_types_of("Clip", 13) & MP_BIT(type)) == 0) {
            continue;
        }
        void *x = op_numbers(type, 4, 100);
        void *bounds = op_memory(type, 2);
        op_store_whole(type, bounds, 0, 0);
        op_store_real(type, bounds, 0, 1);
        op_store_real(type, bounds, 1, 4);
        for (int given = 0; given < 4; given++) {
            op_tensor low = op_tensor_of(type, bounds, 0, NULL);
            op_tensor high =
                op_tensor_of(type, (const char *)bounds + mp_dtype_size(type), 0, NULL);
            low.type = (given & 1) != 0 ? type : MP_NONE;
            high.type = (given & 2) != 0 ? type : MP_NONE;
            op_case c = {.name = "Clip",
                         .version = 13,
                         .in = {OP_TENSOR(type, x, 100), low, high},
                         .in_count = 3,
                         .out_count = 1};
            op_run(device, &c);
            for (int64_t i = 0; i < 100; i++) {
                double want = op_real(type, x, i);
                want = (given & 1) != 0 && want < 1 ? 1 : want;
                want = (given & 2) != 0 && want > 4 ? 4 : want;
                op_check_close(op_real(type, c.out[0].data, i), want, 0, "Clip", i);
            }
            op_close(device, &c);
        }
        free(x);
        free(bounds);
    }
}

DEVICE_TEST(pointwise_tells_the_infinities_apart) {
    const float x[] = {INFINITY, -INFINITY, NAN, 1};
    for (int positive = 0; positive < 2; positive++) {
        for (int negative = 0; negative < 2; negative++) {
            const mp_attr attrs[] = {OP_INT("detect_positive", positive),
                                     OP_INT("detect_negative", negative)};
            op_case c = {.name = "IsInf",
                         .version = 10,
                         .attrs = attrs,
                         .attr_count = 2,
                         .in = {op_f32(x, 4)},
                         .in_count = 1,
                         .out_count = 1};
            op_run(device, &c);
            const uint8_t *got = c.out[0].data;
            CHECK(got[0] == positive && got[1] == negative && got[2] == 0 && got[3] == 0);
            op_close(device, &c);
        }
    }
}

DEVICE_TEST(pointwise_keeps_the_sign_of_zero) {
    static const char *const names[] = {"Abs", "Neg", "Floor", "Ceil", "Round", "Sqrt", "Relu"};
    static const bool minus[] = {false, false, true, true, true, true, true};
    const float x[] = {-0.0f};
    for (size_t k = 0; k < MP_COUNT_OF(names); k++) {
        op_case c = {.name = names[k],
                     .version = strcmp(names[k], "Round") == 0 ? 11 : 13,
                     .in = {op_f32(x, 1)},
                     .in_count = 1,
                     .out_count = 1};
        op_run(device, &c);
        const float got = *(const float *)c.out[0].data;
        CHECK(got == 0.0f && (signbit(got) != 0) == minus[k]);
        op_close(device, &c);
    }
}

DEVICE_TEST(pointwise_refuses_what_does_not_fit) {
    const float x[12] = {0};
    const int32_t whole[2] = {0};
    mp_plan *plan = NULL;
    op_case c = {.name = "Add",
                 .version = 14,
                 .in = {op_f32(x, 2, 3), op_f32(x, 2)},
                 .in_count = 2,
                 .out_count = 1};
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "2x3 and 2 do not broadcast");
    c.name = "PRelu";
    c.version = 16;
    c.in[1] = op_f32(x, 4, 1, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "slope of shape 4x1x3");
    c.name = "Mod";
    c.version = 13;
    c.in[1] = op_f32(x, 3);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "need the attribute fmod=1");
    c.name = "Clip";
    c.in[1] = OP_TENSOR(MP_I32, whole, 2);
    CHECK_FAILS(op_plan(device, &c, &plan), INVALID_ARGUMENT, "min must be a scalar");
}
