/* shuffle_parts.c - ShuffleParts: tensors side by side along `axis`, whose channels are dealt to
 * `groups` of neighbours and taken from these in turns; then cut into `sizes`, if these are given.
 *
 *     a0 a1 a2, b0 b1 b2    of two groups: a0 b0 a1 b1 a2 b2
 *
 * No model names it.
 * Kernels: move/shuffle_parts.cu, move/interleave.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/move/move_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"
#include "op/move/concat_split.h"
#include "op/move/strided_copy.h"

typedef struct part {
    mp_ref ref;
    int64_t first, channels;
} part;

typedef struct shuffle {
    int64_t rows, channels, inner; /* of all parts side by side */
    int64_t groups;
    size_t size; /* bytes of an element */
    part in[K_SHUFFLE_MAX], out[K_SHUFFLE_MAX];
    int ins, outs; /* without empty ones, and those that nobody wants */
} shuffle;

/* ---- two groups of neighbours ---- */

/* The part that all of a group lies in, or NULL. */
static const part *part_of(const shuffle *s, int64_t group) {
    const int64_t each = s->channels / s->groups;
    for (int i = 0; i < s->ins; i++) {
        const part *in = &s->in[i];
        if (in->first <= group * each && (group + 1) * each <= in->first + in->channels) {
            return in;
        }
    }
    return NULL;
}

/* Whether packs of `each` channels are aligned wherever they are read and written. */
static bool fits(const mp_planner *p, const shuffle *s, const part *const of[2], int64_t each) {
    enum { WIDEST = 16 };
    const int64_t written = 2 * each * (int64_t)s->size;
    bool all = written <= MP_MIN(p->align, WIDEST) && s->rows * s->channels <= INT32_MAX;
    for (int j = 0; j < 2; j++) {
        const int64_t before = j * (s->channels / 2) - of[j]->first;
        all = all && of[j]->channels % each == 0 && before % each == 0;
    }
    for (int i = 0; i < s->outs; i++) {
        all = all && s->out[i].channels % (2 * each) == 0 && s->out[i].first % (2 * each) == 0;
    }
    return all;
}

/* How many channels of a group are a pack; 0 where they are not read in packs. */
static int64_t pack_of(const mp_planner *p, const shuffle *s) {
    enum { SMALLEST = 2, LARGEST = 8 }; /* what the kernel is built for */
    const bool two = s->groups == 2 && s->inner == 1 && s->size >= SMALLEST && s->size <= LARGEST;
    const part *const of[] = {part_of(s, 0), two ? part_of(s, 1) : NULL};
    int64_t each = 0;
    if (!two || of[0] == NULL || of[1] == NULL) {
        return 0;
    }
    for (int64_t next = 1; fits(p, s, of, next); next *= 2) {
        each = next;
    }
    return each;
}

/* Outputs in a walk, in what a lane writes at once: `per_channel` of these a channel, or `each`
 * channels in one. Gives: how many there are. */
static int64_t walk_outs(const shuffle *s, int64_t per_channel, int64_t each, k_shuffle_out *out) {
    int64_t count = 0;
    for (int i = 0; i < s->outs; i++) {
        const int64_t width = s->out[i].channels * per_channel / each;
        out[i] = (k_shuffle_out){.start = count, .width = width, .first = s->out[i].first / each};
        if (width <= INT32_MAX) {
            out[i].divider = mp_divider((uint32_t)width);
        }
        count += s->rows * width;
    }
    return count;
}

#define OUT_BIND(args_type, i, ref) \
    ((mp_bind){offsetof(args_type, out) + (size_t)(i) * sizeof(k_shuffle_out), (ref)})
static_assert(offsetof(k_shuffle_out, data) == 0, "OUT_BIND relies on it");
static_assert(offsetof(k_shuffle_part, data) == 0, "shuffle() relies on it");

static mp_status interleave(mp_planner *p, const shuffle *s, int64_t each) {
    const part *even = part_of(s, 0), *odd = part_of(s, 1);
    const int64_t before = (s->channels / 2 - odd->first) * (int64_t)s->size;
    mp_interleave_args args = {.even_stride = (uint32_t)even->channels,
                               .odd_stride = (uint32_t)odd->channels,
                               .outs = s->outs};
    mp_bind binds[K_SHUFFLE_MAX + 2] = {
        MP_BIND(mp_interleave_args, even, even->ref),
        MP_BIND(mp_interleave_args, odd, mp_ref_at(odd->ref, (uint64_t)before)),
    };
    args.count = walk_outs(s, 1, 2 * each, args.out);
    for (int i = 0; i < s->outs; i++) {
        binds[i + 2] = OUT_BIND(mp_interleave_args, i, s->out[i].ref);
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "interleave_%d_b%zu", (int)each, s->size * 8));
    return MP_LAUNCH_BOUND(p, kernel, mp_plan_grid_stream(p, args.count, 1, 1), &args, sizeof args,
                           binds, (size_t)s->outs + 2);
}

/* ---- any ---- */

static mp_status shuffle_all(mp_planner *p, const shuffle *s) {
    const int64_t bytes = s->inner * (int64_t)s->size;
    const int64_t unit = (int64_t)mp_move_unit(p, bytes, s->size);
    mp_shuffle_parts_args args = {.inner = bytes / unit,
                                  .groups = s->groups,
                                  .size = s->channels / s->groups,
                                  .parts = s->ins,
                                  .outs = s->outs};
    mp_bind binds[2 * K_SHUFFLE_MAX];
    args.count = walk_outs(s, args.inner, 1, args.out);
    args.wide = s->rows * s->channels * args.inner > INT32_MAX;
    if (!args.wide) {
        args.by_inner = mp_divider((uint32_t)args.inner);
        args.by_groups = mp_divider((uint32_t)args.groups);
    }
    for (int i = 0; i < s->ins; i++) {
        args.part[i] = (k_shuffle_part){.first = s->in[i].first, .channels = s->in[i].channels};
        binds[i] =
            (mp_bind){offsetof(mp_shuffle_parts_args, part) + (size_t)i * sizeof(k_shuffle_part),
                      s->in[i].ref};
    }
    for (int i = 0; i < s->outs; i++) {
        binds[s->ins + i] = OUT_BIND(mp_shuffle_parts_args, i, s->out[i].ref);
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "shuffle_parts_b%d", (int)unit * 8));
    return MP_LAUNCH_BOUND(p, kernel, mp_plan_grid_stream(p, args.count, 1, 1), &args, sizeof args,
                           binds, (size_t)(s->ins + s->outs));
}

/* One tensor, from which one is made, is a transposition. */
static mp_status transpose(mp_planner *p, const shuffle *s) {
    const int64_t each = s->channels / s->groups, row = s->channels * s->inner;
    const mp_shape shape = {.rank = 4, .dim = {s->rows, each, s->groups, s->inner}};
    const mp_strided source = {.ref = s->in[0].ref, .stride = {row, s->inner, each * s->inner, 1}};
    const mp_strided target = {.ref = s->out[0].ref,
                               .stride = {row, s->groups * s->inner, s->inner, 1}};
    return mp_plan_strided_copy(p, &shape, s->size, &source, &target);
}

/* ---- the tensors ---- */

/* Channels of the outputs; one output has all where they are not listed. */
static mp_status list_sizes(const mp_planner *p, int64_t channels, int64_t *sizes) {
    int64_t left = channels;
    int count = 0;
    MP_TRY(mp_listed_ints(p, "sizes", -1, K_SHUFFLE_MAX, sizes, &count));
    if (count < 0) {
        sizes[0] = channels;
        count = 1;
    }
    for (int i = 0; i < count; i++) {
        if (sizes[i] < 0 || sizes[i] > left) {
            return MP_FAIL(INVALID_ARGUMENT, "output %d cannot have %lld of %lld channels", i,
                           (long long)sizes[i], (long long)channels);
        }
        left -= sizes[i];
    }
    return left == 0 && count == p->out_count
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%d outputs have %lld of %lld channels", p->out_count,
                         (long long)(channels - left), (long long)channels);
}

static void add_part(part *list, int *count, int64_t *first, mp_ref ref, int64_t channels,
                     bool wanted) {
    if (channels > 0 && wanted) {
        list[(*count)++] = (part){ref, *first, channels};
    }
    *first += channels;
}

static mp_status plan_shuffle(mp_planner *p) {
    const mp_dtype type = p->in[0].type;
    const int64_t groups = mp_node_int(p->node, "groups", 1);
    shuffle s = {.groups = groups, .size = mp_dtype_size(type)};
    int64_t sizes[K_SHUFFLE_MAX], first = 0, made = 0;
    mp_shape shape;
    int axis = 0;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 1), p->in[0].shape.rank, "axis", &axis));
    MP_TRY(mp_joined_shape(p, axis, &shape));
    s.channels = shape.dim[axis];
    s.rows = mp_shape_span(&shape, 0, axis);
    s.inner = mp_shape_span(&shape, axis + 1, shape.rank);
    if (p->in_count > K_SHUFFLE_MAX || groups < 1 || s.channels % groups != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld channels of %d parts are not %lld groups",
                       (long long)s.channels, p->in_count, (long long)groups);
    }
    MP_TRY(list_sizes(p, s.channels, sizes));
    for (int i = 0; i < p->in_count; i++) {
        add_part(s.in, &s.ins, &first, MP_IN(i), p->in[i].shape.dim[axis], true);
    }
    for (int i = 0; i < p->out_count; i++) {
        shape.dim[axis] = sizes[i];
        MP_TRY(mp_plan_output(p, i, type, &shape));
        add_part(s.out, &s.outs, &made, MP_OUT(i), sizes[i], mp_plan_wants(p, i));
    }
    if (s.rows == 0 || s.inner == 0 || s.ins == 0 || s.outs == 0) {
        return MP_OK;
    }
    const int64_t each = pack_of(p, &s);
    return each > 0                                                       ? interleave(p, &s, each)
           : s.ins == 1 && s.outs == 1 && s.out[0].channels == s.channels ? transpose(p, &s)
                                                                          : shuffle_all(p, &s);
}

/* ---- the row ---- */

static const mp_attr_def attrs[] = {
    {"axis", MP_ATTR_INT}, {"groups", MP_ATTR_INT}, {"sizes", MP_ATTR_INTS}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_DOMAIN,
     .name = "ShuffleParts",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_ALL_TYPES}},
     .variadic = true,
     .attrs = attrs,
     .plan = plan_shuffle},
};

const mp_op_family mp__family_shuffle_parts = {"shuffle_parts", ops, MP_COUNT_OF(ops)};
