/* signal_window.c - places windows.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/signal/signal_window.h"

#include <string.h>

enum { SIZE_LIMIT = 1 << 30 };         /* of any one attribute, so that sums cannot overflow */
#define INPUT_LIMIT ((int64_t)1 << 31) /* of an input's dimension; times a stride it still fits */

mp_status mp_window_ints(const mp_node *node, const char *name, int count, int64_t fallback,
                         int64_t *out) {
    const mp_attr *attr = mp_node_attr(node, name);
    if (attr == NULL || attr->count == 0) {
        for (int i = 0; i < count; i++) {
            out[i] = fallback;
        }
        return MP_OK;
    }
    if (attr->count != (size_t)count) {
        return MP_FAIL(INVALID_ARGUMENT, "attribute %s has %zu values where %d are needed", name,
                       attr->count, count);
    }
    for (int i = 0; i < count; i++) {
        if (attr->ints[i] < -SIZE_LIMIT || attr->ints[i] > SIZE_LIMIT) {
            return MP_FAIL(INVALID_ARGUMENT, "attribute %s has the value %lld", name,
                           (long long)attr->ints[i]);
        }
        out[i] = attr->ints[i];
    }
    return MP_OK;
}

static mp_status read_auto_pad(const mp_node *node, mp_auto_pad *out) {
    static const char *const names[] = {[MP_PAD_NOTSET] = "NOTSET",
                                        [MP_PAD_SAME_UPPER] = "SAME_UPPER",
                                        [MP_PAD_SAME_LOWER] = "SAME_LOWER",
                                        [MP_PAD_VALID] = "VALID"};
    const char *text = mp_node_string(node, "auto_pad", "NOTSET");
    for (size_t i = 0; i < MP_COUNT_OF(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (mp_auto_pad)i;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "auto_pad '%s' is not known", text);
}

static mp_status check_positive(const int64_t *values, int count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (values[i] < 1 || values[i] > SIZE_LIMIT) {
            return MP_FAIL(INVALID_ARGUMENT, "%s has the value %lld; it must be positive", name,
                           (long long)values[i]);
        }
    }
    return MP_OK;
}

static mp_status read_kernel(const mp_node *node, int spatial, const int64_t *kernel,
                             int64_t *out) {
    MP_TRY(mp_window_ints(node, "kernel_shape", spatial, 0, out));
    for (int d = 0; d < spatial && kernel != NULL; d++) {
        if (out[d] != 0 && out[d] != kernel[d]) {
            return MP_FAIL(INVALID_ARGUMENT, "kernel_shape says %lld where the weights have %lld",
                           (long long)out[d], (long long)kernel[d]);
        }
        out[d] = kernel[d];
    }
    return check_positive(out, spatial, "kernel_shape");
}

mp_status mp_window_read_any(const mp_node *node, int spatial, const int64_t *kernel,
                             mp_window *out) {
    int64_t pads[2 * MP_SPATIAL_MAX];
    if (spatial < 1 || spatial > MP_SPATIAL_MAX) {
        return MP_FAIL(UNSUPPORTED, "%d spatial dimensions; 1 to %d are supported", spatial,
                       MP_SPATIAL_MAX);
    }
    *out = (mp_window){.spatial = spatial};
    MP_TRY(read_auto_pad(node, &out->auto_pad));
    MP_TRY(read_kernel(node, spatial, kernel, out->kernel));
    MP_TRY(mp_window_ints(node, "strides", spatial, 1, out->stride));
    MP_TRY(mp_window_ints(node, "dilations", spatial, 1, out->dilation));
    MP_TRY(mp_window_ints(node, "pads", 2 * spatial, 0, pads));
    MP_TRY(check_positive(out->stride, spatial, "strides"));
    MP_TRY(check_positive(out->dilation, spatial, "dilations"));
    for (int d = 0; d < spatial && out->auto_pad == MP_PAD_NOTSET; d++) {
        out->pad_begin[d] = pads[d];
        out->pad_end[d] = pads[spatial + d];
    }
    return MP_OK;
}

mp_status mp_window_read(const mp_node *node, int spatial, const int64_t *kernel, mp_window *out) {
    MP_TRY(mp_window_read_any(node, spatial, kernel, out));
    for (int d = 0; d < spatial; d++) {
        if (out->pad_begin[d] < 0 || out->pad_end[d] < 0) {
            return MP_FAIL(UNSUPPORTED, "pads of %lld and %lld; negative padding is not supported",
                           (long long)out->pad_begin[d], (long long)out->pad_end[d]);
        }
    }
    return MP_OK;
}

int64_t mp_window_extent(const mp_window *window, int d) {
    return window->dilation[d] * (window->kernel[d] - 1) + 1;
}

/* SAME: as many outputs as strides fit, the odd element of padding at the end or the beginning. */
static void pad_same(mp_window *window, int d, int64_t in) {
    const int64_t stride = window->stride[d];
    const int64_t out = MP_CEIL_DIV(in, stride);
    const int64_t needed = (out - 1) * stride + mp_window_extent(window, d) - in;
    const int64_t total = MP_MAX(needed, 0);
    const bool upper = window->auto_pad == MP_PAD_SAME_UPPER;
    window->pad_begin[d] = upper ? total / 2 : total - total / 2;
    window->pad_end[d] = total - window->pad_begin[d];
}

mp_status mp_window_check_input(const mp_window *window, const int64_t *in) {
    for (int d = 0; d < window->spatial; d++) {
        if (in[d] > INPUT_LIMIT) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "spatial dimension %d has %lld elements; %lld are possible", d,
                           (long long)in[d], (long long)INPUT_LIMIT);
        }
    }
    return MP_OK;
}

static void settle_padding(mp_window *window, const int64_t *in) {
    for (int d = 0; d < window->spatial; d++) {
        if (window->auto_pad == MP_PAD_SAME_UPPER || window->auto_pad == MP_PAD_SAME_LOWER) {
            pad_same(window, d, in[d]);
        }
    }
}

/* What the input and its padding have beyond one window; negative where that does not fit. */
static int64_t room_of(const mp_window *window, const int64_t *in, int d) {
    return in[d] + window->pad_begin[d] + window->pad_end[d] - mp_window_extent(window, d);
}

static mp_status refuse(const mp_window *window, const int64_t *in, int d) {
    return MP_FAIL(INVALID_ARGUMENT,
                   "a window over %lld elements does not fit an input of %lld with padding",
                   (long long)mp_window_extent(window, d),
                   (long long)(in[d] + window->pad_begin[d] + window->pad_end[d]));
}

mp_status mp_window_slide(mp_window *window, const int64_t *in, int64_t *out) {
    MP_TRY(mp_window_check_input(window, in));
    settle_padding(window, in);
    for (int d = 0; d < window->spatial; d++) {
        const int64_t room = room_of(window, in, d);
        if (room < 0) {
            return refuse(window, in, d);
        }
        out[d] = room / window->stride[d] + 1;
    }
    return MP_OK;
}

mp_status mp_window_slide_over(mp_window *window, const int64_t *in, bool ceil_mode, int64_t *out) {
    MP_TRY(mp_window_check_input(window, in));
    settle_padding(window, in);
    for (int d = 0; d < window->spatial; d++) {
        const int64_t stride = window->stride[d];
        const int64_t room = room_of(window, in, d);
        const int64_t steps = room / stride; /* towards 0 */
        if (steps < -1) {
            return refuse(window, in, d);
        }
        out[d] = steps + 1 + (ceil_mode && room > steps * stride);
        /* A window that would start in the padding at the end has nothing to look at. */
        if (ceil_mode && (out[d] - 1) * stride >= in[d] + window->pad_begin[d]) {
            out[d]--;
        }
        if (out[d] < 0) {
            return refuse(window, in, d);
        }
    }
    return MP_OK;
}
