/* resize_read.c - reads what Resize and Upsample ask for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/image/resize_read.h"

#include "op/core/host_float.h"
#include "op/core/host_input.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- words ---- */

static mp_status choose(const mp_node *node, const char *name, const char *fallback,
                        const char *const *words, int count, int *out) {
    const char *text = mp_node_string(node, name, fallback);
    for (int i = 0; i < count; i++) {
        if (words[i] != NULL && strcmp(text, words[i]) == 0) {
            *out = i;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "the attribute %s has the unknown value '%s'", name, text);
}

#define CHOOSE(node, name, fallback, words, out) \
    choose((node), (name), (fallback), (words), (int)MP_COUNT_OF(words), (out))

static const char *const mode_words[] = {
    [MP_RESIZE_NEAREST] = "nearest", [MP_RESIZE_LINEAR] = "linear", [MP_RESIZE_CUBIC] = "cubic"};

static const char *const transform_words[] = {
    [K_HALF_PIXEL] = "half_pixel",
    [K_HALF_PIXEL_SYMMETRIC] = "half_pixel_symmetric",
    [K_PYTORCH_HALF_PIXEL] = "pytorch_half_pixel",
    [K_ALIGN_CORNERS] = "align_corners",
    [K_ASYMMETRIC] = "asymmetric",
    [K_CROP_AND_RESIZE] = "tf_crop_and_resize",
    [K_HALF_PIXEL_FOR_NEAREST] = "tf_half_pixel_for_nn",
};

static const char *const nearest_words[] = {
    [K_ROUND_PREFER_FLOOR] = "round_prefer_floor",
    [K_ROUND_PREFER_CEIL] = "round_prefer_ceil",
    [K_FLOOR] = "floor",
    [K_CEIL] = "ceil",
};

typedef enum policy { STRETCH, NOT_LARGER, NOT_SMALLER } policy;

static const char *const policy_words[] = {
    [STRETCH] = "stretch", [NOT_LARGER] = "not_larger", [NOT_SMALLER] = "not_smaller"};

static mp_status read_words(const mp_node *node, bool old_rules, mp_resize *out) {
    int mode = 0;
    MP_TRY(CHOOSE(node, "mode", "nearest", mode_words, &mode));
    out->mode = (mp_resize_mode)mode;
    out->antialias = mp_node_int(node, "antialias", 0) != 0 && out->mode != MP_RESIZE_NEAREST;
    out->exclude_outside = mp_node_int(node, "exclude_outside", 0) != 0;
    out->cubic_a = mp_node_float(node, "cubic_coeff_a", -0.75f);
    out->outside = mp_node_float(node, "extrapolation_value", 0.0f);
    if (old_rules) {
        out->transform = K_ASYMMETRIC;
        out->nearest = K_TRUNCATE_OR_CEIL;
        return MP_OK;
    }
    MP_TRY(CHOOSE(node, "coordinate_transformation_mode", "half_pixel", transform_words,
                  &out->transform));
    out->extrapolate = out->transform == K_CROP_AND_RESIZE;
    return CHOOSE(node, "nearest_mode", "round_prefer_floor", nearest_words, &out->nearest);
}

/* ---- numbers ---- */

/* Input `i` into `out`, which has room for 2 * MP_RANK_MAX; *count is 0 where it is absent. */
static mp_status read_floats(const mp_planner *p, int i, const char *what, float *out, int *count) {
    const mp_tensor *tensor = i > 0 ? mp_plan_in(p, i) : NULL;
    *count = 0;
    if (tensor == NULL) {
        return MP_OK;
    }
    const int64_t length = mp_shape_count(&tensor->shape);
    if (tensor->shape.rank > 1 || length > 2 * (int64_t)MP_RANK_MAX) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "%s of shape %s; a short list is needed", what,
                       mp_shape_text(&tensor->shape, text));
    }
    for (int k = 0; k < (int)length; k++) {
        out[k] = (float)mp_host_float(tensor, k);
    }
    *count = (int)length;
    return MP_OK;
}

/* The axes that scales, sizes and roi speak of: those named, or all. */
static mp_status read_axes(const mp_node *node, int rank, int axes[MP_RANK_MAX], int *count) {
    const mp_attr *attr = mp_node_attr(node, "axes");
    const bool named = attr != NULL && attr->count > 0;
    uint32_t seen = 0;
    *count = rank;
    if (named && attr->count > (size_t)rank) {
        return MP_FAIL(INVALID_ARGUMENT, "axes names %zu axes of a tensor of rank %d", attr->count,
                       rank);
    }
    for (int k = 0; k < (named ? (int)attr->count : rank); k++) {
        MP_TRY(mp_shape_axis(named ? attr->ints[k] : k, rank, "axes", &axes[k]));
        if ((seen & 1u << axes[k]) != 0) {
            return MP_FAIL(INVALID_ARGUMENT, "axes names axis %d twice", axes[k]);
        }
        seen |= 1u << axes[k];
    }
    if (named) {
        *count = (int)attr->count;
    }
    return MP_OK;
}

static mp_status wrong_length(const char *what, int has, int needed) {
    return MP_FAIL(INVALID_ARGUMENT, "%s has %d values where %d are needed", what, has, needed);
}

/* ---- output shape ---- */

static mp_status by_scales(const mp_shape *x, const float *scales, const int *axes, int count,
                           mp_resize *out) {
    for (int k = 0; k < count; k++) {
        const int d = axes[k];
        if (!(scales[k] > 0.0f) || scales[k] > FLT_MAX) {
            return MP_FAIL(INVALID_ARGUMENT, "the scale of axis %d is %g; it must be positive", d,
                           (double)scales[k]);
        }
        const float size = scales[k] * (float)x->dim[d];
        if (!(size < 0x1p62f)) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "axis %d of %lld elements is too long for a scale of %g", d,
                           (long long)x->dim[d], (double)scales[k]);
        }
        out->scale[d] = scales[k];
        out->out.dim[d] = (int64_t)size;
    }
    return MP_OK;
}

static mp_status by_sizes(const mp_shape *x, const int64_t *sizes, const int *axes, int count,
                          policy keep, mp_resize *out) {
    float common = keep == NOT_LARGER ? FLT_MAX : 0.0f;
    for (int k = 0; k < count; k++) {
        const int d = axes[k];
        if (sizes[k] < 0 || (x->dim[d] == 0 && sizes[k] != 0)) {
            return MP_FAIL(INVALID_ARGUMENT, "axis %d of %lld elements cannot get %lld", d,
                           (long long)x->dim[d], (long long)sizes[k]);
        }
        out->out.dim[d] = sizes[k];
        out->scale[d] = x->dim[d] == 0 ? 1.0f : (float)sizes[k] / (float)x->dim[d];
        common = keep == NOT_LARGER ? fminf(common, out->scale[d]) : fmaxf(common, out->scale[d]);
    }
    for (int k = 0; k < count && keep != STRETCH; k++) {
        const int d = axes[k];
        out->scale[d] = common;
        out->out.dim[d] = (int64_t)roundf(common * (float)x->dim[d]);
    }
    return MP_OK;
}

static mp_status read_scales(const mp_planner *p, const mp_resize_form *form, float *scales,
                             int *count) {
    const mp_attr *attr = form->scales == 0 ? mp_node_attr(p->node, "scales") : NULL;
    if (attr == NULL) {
        return read_floats(p, form->scales, "scales", scales, count);
    }
    if (attr->count > MP_RANK_MAX) {
        return wrong_length("scales", (int)attr->count, p->in[0].shape.rank);
    }
    memcpy(scales, attr->floats, attr->count * sizeof *scales);
    *count = (int)attr->count;
    return MP_OK;
}

static mp_status read_output(const mp_planner *p, const mp_resize_form *form, const int *axes,
                             int count, mp_resize *out) {
    const mp_shape *x = &p->in[0].shape;
    float scales[2 * MP_RANK_MAX];
    int64_t sizes[MP_RANK_MAX];
    int scale_count = 0;
    int size_count = -1;
    MP_TRY(read_scales(p, form, scales, &scale_count));
    if (form->sizes > 0) {
        MP_TRY(mp_host_ints(p, form->sizes, "sizes", MP_RANK_MAX, sizes, &size_count));
    }
    out->out = *x;
    if (scale_count > 0) {
        return scale_count == count ? by_scales(x, scales, axes, count, out)
                                    : wrong_length("scales", scale_count, count);
    }
    if (size_count <= 0 && count > 0) {
        return MP_FAIL(INVALID_ARGUMENT, "neither scales nor sizes are given");
    }
    if (size_count != count) {
        return wrong_length("sizes", size_count, count);
    }
    int keep = STRETCH;
    MP_TRY(CHOOSE(p->node, "keep_aspect_ratio_policy", "stretch", policy_words, &keep));
    return by_sizes(x, sizes, axes, count, (policy)keep, out);
}

static mp_status read_region(const mp_planner *p, const mp_resize_form *form, const int *axes,
                             int count, mp_resize *out) {
    float roi[2 * MP_RANK_MAX] = {0};
    int length = 0;
    if (!out->extrapolate) {
        return MP_OK;
    }
    MP_TRY(read_floats(p, form->roi, "roi", roi, &length));
    if (length != 0 && length != 2 * count) {
        return wrong_length("roi", length, 2 * count);
    }
    for (int k = 0; k < count && length != 0; k++) {
        out->start[axes[k]] = roi[k];
        out->end[axes[k]] = roi[count + k];
    }
    return MP_OK;
}

mp_status mp_resize_read(const mp_planner *p, const mp_resize_form *form, mp_resize *out) {
    int axes[MP_RANK_MAX];
    int count = 0;
    *out = (mp_resize){.mode = MP_RESIZE_NEAREST};
    for (int d = 0; d < MP_RANK_MAX; d++) {
        out->scale[d] = 1.0f;
        out->end[d] = 1.0f;
    }
    MP_TRY(read_words(p->node, form->old_rules, out));
    MP_TRY(read_axes(p->node, p->in[0].shape.rank, axes, &count));
    MP_TRY(read_output(p, form, axes, count, out));
    return read_region(p, form, axes, count, out);
}
