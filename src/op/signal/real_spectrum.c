/* real_spectrum.c - Rfft and Irfft of com.microsoft: transforms of real numbers over the last one
 * to three dimensions, of which the last is stored by its first half; and back. One dimension at a
 * time: the last one first, or back last.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/signal/spectrum_steps.h"

typedef struct signal {
    bool inverse;
    int dims;       /* that are transformed */
    mp_shape shape; /* of the half spectrum, in complex numbers */
    int64_t length; /* of the last dimension of the real numbers */
} signal;

/* ---- what the model asks for ---- */

static mp_status read_attributes(const mp_planner *p, signal *s) {
    const int64_t dims = mp_node_int(p->node, "signal_ndim", 1);
    const int64_t onesided = mp_node_int(p->node, "onesided", 1);
    const int64_t normalized = mp_node_int(p->node, "normalized", 0);
    const bool *inverse = p->node->op->detail;
    if (onesided != 1 || normalized != 0) {
        return MP_FAIL(UNSUPPORTED,
                       "onesided %lld and normalized %lld; the operator is defined for 1 and 0",
                       (long long)onesided, (long long)normalized);
    }
    *s = (signal){.inverse = *inverse, .dims = (int)dims};
    return dims >= 1 && dims <= 3
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "signal_ndim is %lld; 1, 2 and 3 are possible",
                         (long long)dims);
}

/* The half spectrum that belongs to X, and how long the last dimension is in real numbers. */
static mp_status read_signal(const mp_planner *p, signal *s) {
    const mp_shape *x = &p->in[0].shape;
    MP_TRY(read_attributes(p, s));
    s->shape = *x;
    s->shape.rank -= s->inverse ? 1 : 0;
    const int last = s->shape.rank - 1;
    const bool fits = s->shape.rank >= s->dims && s->shape.rank < MP_RANK_MAX &&
                      (!s->inverse || x->dim[x->rank - 1] == 2) && s->shape.dim[last] > 0;
    if (!fits) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "X of shape %s; %d dimensions that are not empty%s",
                       mp_shape_text(x, text), s->dims,
                       s->inverse ? ", and 2 for real and imaginary parts, are needed"
                                  : " are needed");
    }
    if (s->inverse) {
        s->length = 2 * (s->shape.dim[last] - 1);
    } else {
        s->length = s->shape.dim[last];
        s->shape.dim[last] = s->length / 2 + 1;
    }
    return MP_OK;
}

/* ---- the steps ---- */

/* What a dimension is made of and becomes; between dimensions numbers are as wide as they are
 * computed. */
typedef struct step {
    mp_dtype x_type, out_type;
    mp_ref x, out;
} step;

/* The last dimension, from real numbers to half a spectrum or back. */
static mp_status plan_last(mp_planner *p, const signal *s, mp_dtype type, const step *of) {
    const int64_t half = s->shape.dim[s->shape.rank - 1];
    const mp_spectrum_side real = {s->length, 1, 1, 1, 0}, complex = {half, 1, 1, 2, 0};
    const mp_spectrum last = {.type = type,
                              .x_type = of->x_type,
                              .out_type = of->out_type,
                              .x = of->x,
                              .out = of->out,
                              .window = MP_NOWHERE,
                              .rows = mp_shape_span(&s->shape, 0, s->shape.rank - 1),
                              .minor_rows = 1,
                              .n = s->length,
                              .have = s->inverse ? half : s->length,
                              .made = s->inverse ? s->length : half,
                              .from = s->inverse ? complex : real,
                              .to = s->inverse ? real : complex,
                              .inverse = s->inverse,
                              .hermitian = s->inverse};
    return mp_plan_spectrum(p, &last);
}

/* Dimension d of the half spectrum. */
static mp_status plan_other(mp_planner *p, const signal *s, int d, mp_dtype type, const step *of) {
    const int64_t length = s->shape.dim[d];
    const int64_t inner = mp_shape_span(&s->shape, d + 1, s->shape.rank);
    const mp_spectrum_side side = {length * inner, 1, inner, 2, 0};
    const mp_spectrum other = {.type = type,
                               .x_type = of->x_type,
                               .out_type = of->out_type,
                               .x = of->x,
                               .out = of->out,
                               .window = MP_NOWHERE,
                               .rows = mp_shape_span(&s->shape, 0, d) * inner,
                               .minor_rows = inner,
                               .n = length,
                               .have = length,
                               .made = length,
                               .from = side,
                               .to = side,
                               .inverse = s->inverse};
    return mp_plan_spectrum(p, &other);
}

/* What lies between dimensions: two buffers in turn. */
static mp_status plan_dimensions(mp_planner *p, const signal *s, mp_dtype type) {
    const int rank = s->shape.rank;
    mp_shape complex = s->shape;
    mp_ref between[2] = {MP_NOWHERE, MP_NOWHERE};
    const mp_dtype given = p->in[0].type;
    step of = {.x_type = given, .out_type = type, .x = MP_IN(0)};
    complex.dim[complex.rank++] = 2;
    for (int i = 0; i < s->dims; i++) {
        const bool is_end = i + 1 == s->dims;
        const int d = s->inverse ? rank - s->dims + i : rank - 1 - i;
        if (is_end) {
            of.out = MP_OUT(0);
            of.out_type = given;
        } else {
            if (i < 2) {
                MP_TRY(mp_plan_scratch_shape(p, &complex, type, &between[i]));
            }
            of.out = between[i % 2];
        }
        MP_TRY(d == rank - 1 ? plan_last(p, s, type, &of) : plan_other(p, s, d, type, &of));
        of.x = of.out;
        of.x_type = type;
    }
    return MP_OK;
}

static mp_status plan_real_spectrum(mp_planner *p) {
    const mp_dtype type = p->in[0].type;
    signal s;
    MP_TRY(read_signal(p, &s));
    mp_shape shape = s.shape;
    if (s.inverse) {
        shape.dim[shape.rank - 1] = s.length;
    } else {
        shape.dim[shape.rank++] = 2;
    }
    MP_TRY(mp_plan_output(p, 0, type, &shape));
    return mp_shape_count(&shape) == 0 ? MP_OK : plan_dimensions(p, &s, mp_spectrum_type(type));
}

/* ---- the rows ---- */

static const mp_attr_def spectrum_attrs[] = {{"normalized", MP_ATTR_INT},
                                             {"onesided", MP_ATTR_INT},
                                             {"signal_ndim", MP_ATTR_INT},
                                             {NULL, 0}};
static const bool forward = false, back = true;

#define ROW(op_name, which)                                                                    \
    {                                                                                          \
        .domain = "com.microsoft", .name = (op_name), .since = 1, .until = 1,                  \
        .types = {{"T", MP_IEEE_FLOATS}}, .attrs = spectrum_attrs, .plan = plan_real_spectrum, \
        .detail = &(which)                                                                     \
    }

static const mp_op ops[] = {
    ROW("Rfft", forward),
    ROW("Irfft", back),
};

const mp_op_family mp__family_real_spectrum = {"real_spectrum", ops, MP_COUNT_OF(ops)};
