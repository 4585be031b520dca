/* spectrum.c - DFT and STFT.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/signal/spectrum_steps.h"

static const int64_t length_max = (int64_t)1 << 48;

/* Transforms input 0 into output 0 of shape `out`, with the window in input `window`, -1 for none.
 * `s` has the sizes. */
static mp_status plan_typed(mp_planner *p, mp_spectrum s, const mp_shape *out, int window) {
    s.x_type = s.out_type = p->in[0].type;
    s.type = mp_spectrum_type(s.x_type);
    s.x = MP_IN(0);
    s.window = window >= 0 ? MP_IN(window) : MP_NOWHERE;
    s.out = MP_OUT(0);
    return mp_shape_count(out) == 0 ? MP_OK : mp_plan_spectrum(p, &s);
}

/* ---- lengths ---- */

/* The one value of input i, or `fallback` where it is absent. */
static mp_status read_number(const mp_planner *p, int i, const char *what, int64_t fallback,
                             int64_t *out) {
    int count = 0;
    *out = fallback;
    MP_TRY(mp_host_ints(p, i, what, 1, out, &count));
    return count != 0 ? MP_OK : MP_FAIL(INVALID_ARGUMENT, "%s is empty; one value is needed", what);
}

static mp_status read_positive(const mp_planner *p, int i, const char *what, int64_t fallback,
                               int64_t *out) {
    MP_TRY(read_number(p, i, what, fallback, out));
    return *out >= 1 && *out <= length_max
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s is %lld; it must be at least 1 and at most 2^48",
                         what, (long long)*out);
}

/* Whether x is of real or complex numbers, by its last dimension. */
static mp_status read_parts(const mp_shape *x, int32_t *parts) {
    char text[MP_SHAPE_TEXT];
    const int64_t last = x->rank > 0 ? x->dim[x->rank - 1] : 0;
    *parts = (int32_t)last;
    return x->rank >= 2 && (last == 1 || last == 2)
               ? MP_OK
               : MP_FAIL(
                     INVALID_ARGUMENT,
                     "input of shape %s; its last dimension must be 1 for real or 2 for complex "
                     "numbers",
                     mp_shape_text(x, text));
}

/* ---- DFT ---- */

static mp_status read_axis(const mp_planner *p, int rank, int *axis) {
    const bool as_input = p->node->version >= 20;
    int64_t given = mp_node_int(p->node, "axis", 1);
    if (as_input) {
        MP_TRY(read_number(p, 2, "axis", -2, &given));
    }
    MP_TRY(mp_shape_axis(given, rank, "axis", axis));
    return *axis < rank - 1
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "axis %lld is that of the parts of a number",
                         (long long)given);
}

static mp_status check_onesided(bool inverse, int32_t parts) {
    return inverse == (parts == 2)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "onesided with %s; %s",
                         inverse ? "inverse and real numbers" : "complex numbers",
                         inverse ? "give complex numbers"
                                 : "give real numbers or set onesided to 0");
}

/* Nothing of no given length comes to nothing. */
static bool is_empty(const mp_planner *p, int64_t length, bool onesided) {
    return length == 0 && !onesided && mp_plan_in(p, 1) == NULL;
}

static mp_status plan_dft(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const bool inverse = mp_node_int(p->node, "inverse", 0) != 0;
    const bool onesided = mp_node_int(p->node, "onesided", 0) != 0;
    int32_t parts = 0;
    int axis = 0;
    MP_TRY(read_parts(x, &parts));
    MP_TRY(read_axis(p, x->rank, &axis));
    if (onesided) {
        MP_TRY(check_onesided(inverse, parts));
    }
    const bool hermitian = onesided && inverse;
    const int64_t length = x->dim[axis];
    mp_shape out = *x;
    if (is_empty(p, length, onesided)) {
        out.dim[x->rank - 1] = 2;
        return mp_plan_output(p, 0, p->in[0].type, &out);
    }
    mp_spectrum s = {.inverse = inverse, .hermitian = hermitian};
    MP_TRY(read_positive(p, 1, "dft_length", hermitian ? 2 * (length - 1) : length, &s.n));
    s.have = MP_MIN(length, hermitian ? s.n / 2 + 1 : s.n);
    s.made = onesided && !inverse ? s.n / 2 + 1 : s.n;
    out.dim[axis] = s.made;
    out.dim[x->rank - 1] = hermitian ? 1 : 2;
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &out));
    const int64_t inner = mp_shape_span(x, axis + 1, x->rank - 1);
    s.rows = mp_shape_span(x, 0, axis) * inner;
    s.minor_rows = inner;
    s.from = (mp_spectrum_side){length * inner, 1, inner, parts, 0};
    s.to = (mp_spectrum_side){s.made * inner, 1, inner, hermitian ? 1 : 2, 0};
    return plan_typed(p, s, &out, -1);
}

/* ---- STFT ---- */

/* The length of a frame, which the window has or is given. */
static mp_status read_frame(const mp_planner *p, int64_t length, int64_t *frame) {
    const mp_tensor *window = mp_plan_in(p, 2);
    const int64_t taps = window != NULL ? mp_shape_count(&window->shape) : length;
    MP_TRY(read_positive(p, 3, "frame_length", taps, frame));
    if (window != NULL && (window->shape.rank != 1 || taps != *frame)) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "a window of shape %s for frames of %lld",
                       mp_shape_text(&window->shape, text), (long long)*frame);
    }
    return *frame <= length ? MP_OK
                            : MP_FAIL(INVALID_ARGUMENT, "frames of %lld in a signal of %lld",
                                      (long long)*frame, (long long)length);
}

static mp_status plan_stft(mp_planner *p) {
    const mp_shape *given = &p->in[0].shape;
    mp_shape x = *given;
    int32_t parts = 0;
    if (x.rank == 2) { /* ONNX Runtime takes a real signal without its last dimension, too */
        x.dim[x.rank++] = 1;
    }
    MP_TRY(read_parts(&x, &parts));
    if (x.rank != 3) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "signal of shape %s; [batch, length, 1 or 2] is needed",
                       mp_shape_text(given, text));
    }
    const bool onesided = mp_node_int(p->node, "onesided", 1) != 0;
    int64_t step = 0, frame = 0;
    MP_TRY(read_positive(p, 1, "frame_step", 0, &step));
    MP_TRY(read_frame(p, x.dim[1], &frame));
    if (onesided) {
        MP_TRY(check_onesided(false, parts));
    }
    const int64_t frames = (x.dim[1] - frame) / step + 1;
    const int64_t made = onesided ? frame / 2 + 1 : frame;
    const mp_shape out = {.rank = 4, .dim = {x.dim[0], frames, made, 2}};
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &out));
    const mp_spectrum s = {.rows = x.dim[0] * frames,
                           .minor_rows = frames,
                           .n = frame,
                           .have = frame,
                           .made = made,
                           .from = {x.dim[1], step, 1, parts, 0},
                           .to = {frames * made, made, 1, 2, 0}};
    return plan_typed(p, s, &out, mp_plan_in(p, 2) != NULL ? 2 : -1);
}

/* ---- the rows ---- */

static const mp_attr_def dft_attrs[] = {
    {"axis", MP_ATTR_INT}, {"inverse", MP_ATTR_INT}, {"onesided", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def stft_attrs[] = {{"onesided", MP_ATTR_INT}, {NULL, 0}};

#define TYPES                                     \
    {                                             \
        {"T1", MP_FLOATS}, {                      \
            "T2", MP_BIT(MP_I32) | MP_BIT(MP_I64) \
        }                                         \
    }

static const mp_op ops[] = {
    {.domain = "",
     .name = "DFT",
     .since = 17,
     .until = 20,
     .types = TYPES,
     .host_in = 1u << 1 | 1u << 2,
     .attrs = dft_attrs,
     .plan = plan_dft},
    {.domain = "",
     .name = "STFT",
     .since = 17,
     .until = 17,
     .types = TYPES,
     .host_in = 1u << 1 | 1u << 3,
     .attrs = stft_attrs,
     .plan = plan_stft},
};

const mp_op_family mp__family_spectrum = {"spectrum", ops, MP_COUNT_OF(ops)};
