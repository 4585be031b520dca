/* pad.c - Pad and Tile: a tensor within a larger one. Negative pads crop first. Dimensions that are
 * not padded are merged with their neighbours, and elements move in the largest units that fit.
 * KeepFirst, which no model names, keeps the first elements of each row and fills up the rest.
 * Kernel: move/pad.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "kernel/move/move_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/move/strided_copy.h"

#include <string.h>

/* ---- one kernel for both ---- */

/* A dimension: `out` elements, of which `size` of x, `stride` apart, come after `before`. */
typedef struct padded {
    int64_t out, size, before, stride;
} padded;

typedef struct padding {
    int32_t mode;
    const void *value; /* where the host knows it: one element; otherwise it is input 2 */
    int rank;
    padded dim[MP_RANK_MAX];
    int64_t offset; /* of the first element of x that is used */
    mp_dtype type;
} padding;

static bool is_plain(const padded *dim) {
    return dim->before == 0 && dim->out == dim->size;
}

/* Makes dimensions that the kernel walks alike one. */
static void merge(padding *pad) {
    int rank = 0;
    for (int d = 0; d < pad->rank; d++) {
        const padded *next = &pad->dim[d];
        padded *last = rank > 0 ? &pad->dim[rank - 1] : NULL;
        if (next->out == 1 && is_plain(next) && pad->rank > 1) {
            continue;
        }
        if (last != NULL && is_plain(next) && last->stride == next->size * next->stride &&
            (is_plain(last) || pad->mode == K_PAD_CONSTANT)) {
            *last = (padded){last->out * next->out, last->size * next->size,
                             last->before * next->out, next->stride};
        } else {
            pad->dim[rank++] = *next;
        }
    }
    if (rank == 0) {
        pad->dim[rank++] = (padded){1, 1, 0, 1};
    }
    pad->rank = rank;
}

static int64_t elements_per_unit(const mp_planner *p, const padding *pad, size_t size) {
    const padded *inner = &pad->dim[pad->rank - 1];
    int64_t per_unit = 1;
    if (inner->stride != 1 || (!is_plain(inner) && pad->mode != K_PAD_CONSTANT)) {
        return 1;
    }
    for (int64_t next = 2; next * (int64_t)size <= p->align && next * (int64_t)size <= 16;
         next *= 2) {
        bool fits = inner->out % next == 0 && inner->size % next == 0 &&
                    inner->before % next == 0 && pad->offset % next == 0;
        for (int d = 0; d + 1 < pad->rank; d++) {
            fits = fits && pad->dim[d].stride % next == 0;
        }
        if (!fits) {
            break;
        }
        per_unit = next;
    }
    return per_unit;
}

/* Whether a lane's elements may be of more than two rows, or a position in out or x, or one
 * mirrored behind an end, may need more than 32 bits. */
static bool is_wide(const mp_pad_args *args, int run) {
    enum { MOST = INT32_MAX / 4 };
    int64_t last = 0;
    bool wide = args->count > INT32_MAX - 2 * MOST || args->dim[args->rank - 1] < run;
    for (int d = 0; d < args->rank; d++) {
        last += (args->size[d] - 1) * args->stride[d];
        wide = wide || args->dim[d] > MOST || args->size[d] > MOST;
    }
    return wide || last > INT32_MAX;
}

/* What a kernel can walk: `pad` is merged. */
static mp_status plan_pass(mp_planner *p, const padding *pad, mp_ref x, mp_ref out) {
    const size_t size = mp_dtype_size(pad->type);
    mp_pad_args args = {.count = 1, .value_size = (int32_t)size, .mode = pad->mode};
    const int64_t per_unit = elements_per_unit(p, pad, size);
    const int unit = (int)size * (int)per_unit;
    const int run = unit <= 4 ? 4 : 16 / unit; /* as in vector.h */
    args.rank = pad->rank;
    for (int d = 0; d < pad->rank; d++) {
        const int64_t shrink = d == pad->rank - 1 ? per_unit : 1;
        args.dim[d] = pad->dim[d].out / shrink;
        args.size[d] = pad->dim[d].size / shrink;
        args.before[d] = pad->dim[d].before / shrink;
        args.stride[d] = shrink > 1 ? 1 : pad->dim[d].stride / per_unit;
        args.count *= args.dim[d];
    }
    const bool wide = is_wide(&args, run);
    for (int d = 0; d < pad->rank && !wide; d++) {
        args.divider[d] = mp_divider((uint32_t)args.dim[d]);
    }
    args.stride[pad->rank - 1] = 1;
    if (pad->value != NULL) {
        memcpy(&args.bits, pad->value, size);
    }
    const bool on_device = pad->value == NULL && mp_plan_in(p, 2) != NULL;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "pad_%sb%d", wide ? "wide_" : "", unit * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, run), args,
                     MP_BIND(mp_pad_args, x, mp_ref_at(x, (uint64_t)pad->offset * (uint64_t)size)),
                     MP_BIND(mp_pad_args, value, on_device ? MP_IN(2) : MP_NOWHERE),
                     MP_BIND(mp_pad_args, out, out));
}

/* ---- more dimensions than the kernel walks ---- */

/* What is used of x, without gaps. */
static mp_status make_compact(mp_planner *p, const padding *pad, mp_ref *out) {
    mp_shape used = {.rank = pad->rank};
    mp_strided source = {.ref = MP_IN(0), .offset = pad->offset};
    mp_strided target = {.ref = MP_NOWHERE};
    for (int d = 0; d < pad->rank; d++) {
        used.dim[d] = pad->dim[d].size;
        source.stride[d] = pad->dim[d].stride;
    }
    mp_shape_strides(&used, target.stride);
    MP_TRY(mp_plan_scratch_of(p, mp_shape_count(&used), pad->type, &target.ref));
    *out = target.ref;
    return mp_plan_strided_copy(p, &used, mp_dtype_size(pad->type), &source, &target);
}

/* Dimensions [from, to) of `pad`; those before are padded already, those behind not yet. */
static padding pass_of(const padding *pad, int from, int to) {
    padding pass = {.mode = pad->mode, .value = pad->value, .type = pad->type};
    int64_t outer = 1;
    int64_t inner = 1;
    for (int d = 0; d < from; d++) {
        outer *= pad->dim[d].out;
    }
    for (int d = to; d < pad->rank; d++) {
        inner *= pad->dim[d].size;
    }
    pass.dim[pass.rank++] = (padded){.out = outer, .size = outer};
    for (int d = from; d < to; d++) {
        pass.dim[pass.rank++] = pad->dim[d];
    }
    pass.dim[pass.rank++] = (padded){.out = inner, .size = inner};
    int64_t stride = 1;
    for (int d = pass.rank - 1; d >= 0; d--) {
        pass.dim[d].stride = stride;
        stride *= pass.dim[d].size;
    }
    return pass;
}

/* Some dimensions a pass, as every mode does one dimension after the other. */
static mp_status plan_passes(mp_planner *p, const padding *pad) {
    enum { EACH = K_RANK_MAX - 2 };
    mp_ref from = MP_NOWHERE;
    MP_TRY(make_compact(p, pad, &from));
    for (int d = 0; d < pad->rank; d += EACH) {
        const int end = MP_MIN(d + EACH, pad->rank);
        padding pass = pass_of(pad, d, end);
        mp_ref to = MP_OUT(0);
        int64_t count = 1;
        for (int k = 0; k < pass.rank; k++) {
            count *= pass.dim[k].out;
        }
        if (end < pad->rank) {
            MP_TRY(mp_plan_scratch_of(p, count, pad->type, &to));
        }
        merge(&pass);
        MP_TRY(plan_pass(p, &pass, from, to));
        from = to;
    }
    return MP_OK;
}

static bool is_empty(const padding *pad) {
    for (int d = 0; d < pad->rank; d++) {
        if (pad->dim[d].size == 0) {
            return true;
        }
    }
    return false;
}

static mp_status plan_padding(mp_planner *p, padding *pad, const mp_shape *shape) {
    const int64_t count = mp_shape_count(shape);
    if (count == 0) {
        return MP_OK;
    }
    if (is_empty(pad)) { /* nothing but the value */
        pad->dim[0] = (padded){.out = count, .stride = 1};
        pad->rank = 1;
        pad->offset = 0;
    }
    merge(pad);
    return pad->rank > K_RANK_MAX ? plan_passes(p, pad) : plan_pass(p, pad, MP_IN(0), MP_OUT(0));
}

/* ---- Pad ---- */

static const char *const modes[] = {
    [K_PAD_CONSTANT] = "constant",
    [K_PAD_EDGE] = "edge",
    [K_PAD_REFLECT] = "reflect",
    [K_PAD_WRAP] = "wrap",
};

static mp_status read_mode(const mp_node *node, int32_t *mode) {
    const char *name = mp_node_string(node, "mode", "constant");
    for (*mode = 0; *mode < (int32_t)MP_COUNT_OF(modes); ++*mode) {
        if (strcmp(name, modes[*mode]) == 0) {
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "mode '%s' is not known; use constant, edge, reflect or wrap",
                   name);
}

/* Elements before and behind each axis of x. */
static mp_status read_pads(const mp_planner *p, int rank, int64_t *before, int64_t *behind) {
    int64_t pads[2 * MP_RANK_MAX];
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    int axis_count = 0;
    uint32_t seen = 0;
    MP_TRY(mp_listed_ints(p, "pads", 1, 2 * MP_RANK_MAX, pads, &count));
    MP_TRY(mp_host_ints(p, 3, "axes", MP_RANK_MAX, axes, &axis_count));
    const int named = axis_count >= 0 ? axis_count : rank;
    if (count != 2 * named) {
        return MP_FAIL(INVALID_ARGUMENT, "pads has %d values; two for each of %d axes are needed",
                       count, named);
    }
    for (int k = 0; k < named; k++) {
        int axis = k;
        if (axis_count >= 0) {
            MP_TRY(mp_shape_axis(axes[k], rank, "axes", &axis));
        }
        if ((seen & 1u << axis) != 0) {
            return MP_FAIL(INVALID_ARGUMENT, "axes names axis %d twice", axis);
        }
        seen |= 1u << axis;
        before[axis] = pads[k];
        behind[axis] = pads[named + k];
    }
    return MP_OK;
}

static mp_status pad_axis(padding *pad, int axis, int64_t dim, int64_t before, int64_t behind,
                          int64_t stride) {
    padded *to = &pad->dim[axis];
    const int64_t cut = MP_MIN(before, 0);
    const int64_t cut_behind = MP_MIN(behind, 0);
    *to = (padded){.before = MP_MAX(before, 0), .stride = stride};
    if (__builtin_add_overflow(dim, cut, &to->size) ||
        __builtin_add_overflow(to->size, cut_behind, &to->size) || to->size < 0 ||
        __builtin_add_overflow(to->size, to->before, &to->out) ||
        __builtin_add_overflow(to->out, MP_MAX(behind, 0), &to->out)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "pads of %lld and %lld do not fit axis %d of %lld elements",
                       (long long)before, (long long)behind, axis, (long long)dim);
    }
    if (to->size == 0 && to->out > 0 && pad->mode != K_PAD_CONSTANT) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "mode %s has nothing to repeat along axis %d, which is empty",
                       modes[pad->mode], axis);
    }
    pad->offset -= to->size > 0 ? cut * stride : 0;
    return MP_OK;
}

/* The value of old versions is an attribute, in float. */
static void value_of_attribute(float value, mp_dtype type, uint64_t *bits) {
    const double wide = (double)value;
    memset(bits, 0, sizeof *bits);
    if (type == MP_F64) {
        memcpy(bits, &wide, sizeof wide);
    } else if (type == MP_F16 || type == MP_BF16) {
        const uint16_t half = type == MP_F16 ? mp_to_f16(value) : mp_to_bf16(value);
        memcpy(bits, &half, sizeof half);
    } else {
        memcpy(bits, &value, sizeof value);
    }
}

static mp_status plan_pad(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const mp_tensor *value = mp_plan_in(p, 2);
    int64_t before[MP_RANK_MAX] = {0};
    int64_t behind[MP_RANK_MAX] = {0};
    int64_t stride[MP_RANK_MAX] = {0};
    uint64_t bits = 0;
    padding pad = {.rank = x->shape.rank, .type = x->type};
    mp_shape shape = {.rank = x->shape.rank};
    if (value != NULL && mp_shape_count(&value->shape) != 1) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "constant_value must be one element, not of shape %s",
                       mp_shape_text(&value->shape, text));
    }
    MP_TRY(read_mode(p->node, &pad.mode));
    MP_TRY(read_pads(p, pad.rank, before, behind));
    mp_shape_strides(&x->shape, stride);
    for (int d = 0; d < pad.rank; d++) {
        MP_TRY(pad_axis(&pad, d, x->shape.dim[d], before[d], behind[d], stride[d]));
        shape.dim[d] = pad.dim[d].out;
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    if (value == NULL) {
        value_of_attribute(mp_node_float(p->node, "value", 0), x->type, &bits);
        pad.value = &bits;
    }
    return plan_padding(p, &pad, &shape);
}

/* ---- KeepFirst: of each row the first elements, then a value ---- */

static mp_status plan_keep_first(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    const int last = x->shape.rank - 1;
    const int64_t kept = mp_node_int(p->node, "kept", 0), size = mp_node_int(p->node, "size", 0);
    int64_t stride[MP_RANK_MAX] = {0};
    uint64_t bits = 0;
    padding pad = {.rank = x->shape.rank, .type = x->type, .mode = K_PAD_CONSTANT, .value = &bits};
    mp_shape shape = x->shape;
    if (last < 0 || kept < 0 || kept > x->shape.dim[last] || size < kept) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "%lld of %lld elements cannot be kept of shape %s",
                       (long long)kept, (long long)size, mp_shape_text(&x->shape, text));
    }
    shape.dim[last] = size;
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    mp_shape_strides(&x->shape, stride);
    for (int d = 0; d < pad.rank; d++) {
        pad.dim[d] = (padded){
            .out = shape.dim[d], .size = d == last ? kept : shape.dim[d], .stride = stride[d]};
    }
    value_of_attribute(mp_node_float(p->node, "value", 0), x->type, &bits);
    return plan_padding(p, &pad, &shape);
}

/* ---- Tile ---- */

/* As one strided copy over [repeats, elements, repeats, elements, ...], where that is of no higher
 * rank than a kernel walks. */
static bool as_strided(const mp_shape *x, const int64_t *repeats, mp_shape *space,
                       mp_strided *source) {
    int64_t stride[MP_RANK_MAX] = {0};
    mp_shape_strides(x, stride);
    *space = (mp_shape){.rank = 0};
    for (int k = 0; k < 2 * x->rank; k++) {
        const bool repeated = k % 2 == 0;
        const int64_t extent = repeated ? repeats[k / 2] : x->dim[k / 2];
        const int64_t step = repeated ? 0 : stride[k / 2];
        const int last = space->rank - 1;
        if (extent == 1) {
            continue;
        }
        if (last >= 0 && source->stride[last] == step * extent) {
            space->dim[last] *= extent;
            source->stride[last] = step;
        } else if (space->rank == K_RANK_MAX) {
            return false;
        } else {
            space->dim[space->rank] = extent;
            source->stride[space->rank++] = step;
        }
    }
    return true;
}

/* As padding behind x that wraps around. */
static mp_status tile_by_padding(mp_planner *p, const mp_shape *shape) {
    const mp_tensor *x = &p->in[0];
    static const uint64_t unused = 0;
    int64_t stride[MP_RANK_MAX] = {0};
    padding pad = {.mode = K_PAD_WRAP, .value = &unused, .rank = shape->rank, .type = x->type};
    mp_shape_strides(&x->shape, stride);
    for (int d = 0; d < pad.rank; d++) {
        pad.dim[d] = (padded){shape->dim[d], x->shape.dim[d], 0, stride[d]};
    }
    return plan_padding(p, &pad, shape);
}

static mp_status plan_tile(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    int64_t repeats[MP_RANK_MAX];
    int count = 0;
    mp_shape shape = x->shape;
    MP_TRY(mp_host_ints(p, 1, "repeats", MP_RANK_MAX, repeats, &count));
    if (count != shape.rank) {
        return MP_FAIL(INVALID_ARGUMENT, "repeats has %d values for a tensor of rank %d", count,
                       shape.rank);
    }
    for (int d = 0; d < shape.rank; d++) {
        if (repeats[d] < 0 || __builtin_mul_overflow(shape.dim[d], repeats[d], &shape.dim[d])) {
            return MP_FAIL(INVALID_ARGUMENT, "repeats has the value %lld for axis %d",
                           (long long)repeats[d], d);
        }
    }
    MP_TRY(mp_plan_output(p, 0, x->type, &shape));
    if (mp_shape_count(&shape) == 0) {
        return MP_OK;
    }
    mp_shape space;
    mp_strided source = {.ref = MP_IN(0)};
    if (!as_strided(&x->shape, repeats, &space, &source)) {
        return tile_by_padding(p, &shape);
    }
    mp_strided target = {.ref = MP_OUT(0)};
    mp_shape_strides(&space, target.stride);
    return mp_plan_strided_copy(p, &space, mp_dtype_size(x->type), &source, &target);
}

/* ---- the rows ---- */

static const mp_attr_def mode_only[] = {{"mode", MP_ATTR_STRING}, {NULL, 0}};
static const mp_attr_def old_pad[] = {
    {"mode", MP_ATTR_STRING}, {"pads", MP_ATTR_INTS}, {"value", MP_ATTR_FLOAT}, {NULL, 0}};

static const mp_attr_def keep_first[] = {
    {"kept", MP_ATTR_INT}, {"size", MP_ATTR_INT}, {"value", MP_ATTR_FLOAT}, {NULL, 0}};

enum { INDEX = 1u << MP_I32 | 1u << MP_I64 };

static const mp_op ops[] = {
    {.domain = "",
     .name = "Pad",
     .since = 2,
     .until = 2,
     .types = {{"T", MP_IEEE_FLOATS}},
     .attrs = old_pad,
     .plan = plan_pad},
    {.domain = "",
     .name = "Pad",
     .since = 11,
     .until = 13,
     .host_in = 1u << 1,
     .types = {{"T", MP_ALL_TYPES}},
     .attrs = mode_only,
     .plan = plan_pad},
    {.domain = "",
     .name = "Pad",
     .since = 18,
     .until = 25,
     .host_in = 1u << 1 | 1u << 3,
     .types = {{"T", MP_ALL_TYPES | MP_FLOAT8}, {"Tind", INDEX}},
     .attrs = mode_only,
     .plan = plan_pad},
    {.domain = "com.microsoft",
     .name = "Pad",
     .since = 1,
     .until = 1,
     .host_in = 1u << 1,
     .types = {{"T", MP_IEEE_FLOATS}},
     .attrs = mode_only,
     .plan = plan_pad},
    {.domain = "",
     .name = "Tile",
     .since = 6,
     .until = 13,
     .host_in = 1u << 1,
     .types = {{"T", MP_ALL_TYPES}, {"T1", MP_BIT(MP_I64)}},
     .plan = plan_tile},
    {.domain = MP_OWN_DOMAIN,
     .name = "KeepFirst",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = keep_first,
     .plan = plan_keep_first},
};

const mp_op_family mp__family_pad = {"pad", ops, MP_COUNT_OF(ops)};
