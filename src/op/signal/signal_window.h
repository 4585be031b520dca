/* signal_window.h - what convolutions and pools share: the attributes that place a window on the
 * spatial dimensions.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_WINDOW_H
#define MP_OP_WINDOW_H

#include "op/core/op.h"

enum { MP_SPATIAL_MAX = 3 };

#define MP_WINDOW_ATTRS                                                                        \
    {"auto_pad", MP_ATTR_STRING}, {"dilations", MP_ATTR_INTS}, {"kernel_shape", MP_ATTR_INTS}, \
        {"pads", MP_ATTR_INTS}, {                                                              \
        "strides", MP_ATTR_INTS                                                                \
    }

typedef enum mp_auto_pad {
    MP_PAD_NOTSET,
    MP_PAD_SAME_UPPER,
    MP_PAD_SAME_LOWER,
    MP_PAD_VALID,
} mp_auto_pad;

typedef struct mp_window {
    int spatial; /* 1 to MP_SPATIAL_MAX */
    mp_auto_pad auto_pad;
    int64_t kernel[MP_SPATIAL_MAX], stride[MP_SPATIAL_MAX], dilation[MP_SPATIAL_MAX];
    int64_t pad_begin[MP_SPATIAL_MAX], pad_end[MP_SPATIAL_MAX];
} mp_window;

/* Reads the attributes for `spatial` dimensions. `kernel` (spatial values, or NULL) is what the
 * weights say; the attribute kernel_shape must agree. Fails: INVALID_ARGUMENT; UNSUPPORTED for
 * negative padding, which cuts elements off, but for mp_window_read_any. */
mp_status mp_window_read(const mp_node *node, int spatial, const int64_t *kernel, mp_window *out);
mp_status mp_window_read_any(const mp_node *node, int spatial, const int64_t *kernel,
                             mp_window *out);

/* An attribute of `count` integers into `out`, or `fallback` in each. Fails: INVALID_ARGUMENT for
 * another length. */
mp_status mp_window_ints(const mp_node *node, const char *name, int count, int64_t fallback,
                         int64_t *out);

/* Elements that a window covers: dilation * (kernel - 1) + 1. */
int64_t mp_window_extent(const mp_window *window, int d);

/* Fails: INVALID_ARGUMENT for an input so long that positions in it could overflow. */
mp_status mp_window_check_input(const mp_window *window, const int64_t *in);

/* Settles auto_pad for inputs of `in` and gives the output sizes. Fails: INVALID_ARGUMENT where no
 * window fits. */
mp_status mp_window_slide(mp_window *window, const int64_t *in, int64_t *out);

/* The same as ONNX Runtime's pools have it, whose division rounds towards 0: a window that is
 * larger than the input and its padding by less than a stride is the only one, beyond that by less
 * than two there is none and the result is empty, and then it fails. With `ceil_mode` a last window
 * that starts inside the input or the padding before it counts. */
mp_status mp_window_slide_over(mp_window *window, const int64_t *in, bool ceil_mode, int64_t *out);

#endif
