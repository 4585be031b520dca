/* batch_norm.c - BatchNormalization: a factor and a summand for each channel, of the statistics
 * that are given or, in training mode, of those of the batch.
 * Kernels: core/channel_affine.cu, image/batch_norm_fold.cu, image/batch_norm_running.cu,
 * image/batch_norm_stats.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/channel_steps.h"
#include "op/core/families.h"
#include "op/core/pieces.h"

static mp_status check_vectors(const mp_planner *p, int64_t channels) {
    static const char *const names[] = {"X", "scale", "B", "mean", "var"};
    for (int i = 1; i < 5; i++) {
        const mp_shape *shape = &p->in[i].shape;
        char text[MP_SHAPE_TEXT];
        if (shape->rank != 1 || shape->dim[0] != channels) {
            return MP_FAIL(INVALID_ARGUMENT, "%s of shape %s for %lld channels", names[i],
                           mp_shape_text(shape, text), (long long)channels);
        }
    }
    return MP_OK;
}

static bool is_training(const mp_planner *p) {
    return p->node->version >= 14 && mp_node_flag(p->node, "training_mode", false);
}

static mp_status check_mode(const mp_planner *p) {
    if (!is_training(p) && p->out_count > 1) {
        return MP_FAIL(UNSUPPORTED, "%d outputs; further ones need training_mode=1 of version 14",
                       p->out_count);
    }
    if (mp_node_int(p->node, "spatial", 1) == 0) {
        return MP_FAIL(UNSUPPORTED, "spatial=0 is not supported: statistics must be of channels");
    }
    if (p->in[1].type != p->in[2].type || p->in[3].type != p->in[4].type) {
        return MP_FAIL(INVALID_ARGUMENT, "scale and B, mean and var need one type each");
    }
    return MP_OK;
}

/* Where the statistics of each channel lie. */
typedef struct statistics {
    mp_dtype type;
    mp_ref mean, var;
} statistics;

typedef struct normalization {
    mp_shape image; /* as ONNX has it */
    int64_t channels;
    mp_dtype computed;
} normalization;

/* Two rows of a number for each channel. */
static mp_status two_rows(mp_planner *p, const normalization *n, mp_ref *out, size_t *row) {
    MP_TRY(mp_plan_bytes(n->channels, n->computed, row));
    return mp_plan_scratch(p, 2 * *row, out);
}

static mp_status plan_running(mp_planner *p, const normalization *n, mp_ref found) {
    const mp_kernel *kernel = NULL;
    const mp_batch_norm_running_args args = {
        .channels = n->channels,
        .momentum = mp_node_float(p->node, "momentum", 0.9F),
    };
    if (p->out_count < 2) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "batch_norm_running_%s_%s", mp_dtype_word(p->in[3].type),
                          mp_dtype_word(n->computed)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, n->channels, 1), args,
        MP_BIND(mp_batch_norm_running_args, mean, MP_IN(3)),
        MP_BIND(mp_batch_norm_running_args, var, MP_IN(4)),
        MP_BIND(mp_batch_norm_running_args, found, found),
        MP_BIND(mp_batch_norm_running_args, out_mean, MP_OUT(1)),
        MP_BIND(mp_batch_norm_running_args, out_var, p->out_count > 2 ? MP_OUT(2) : MP_NOWHERE));
}

/* The statistics of the batch, and the running ones moved towards them. */
static mp_status plan_statistics(mp_planner *p, const normalization *n, statistics *out) {
    enum { LANES = 256 };
    const mp_kernel *kernel = NULL;
    mp_ref found;
    size_t row = 0;
    const int64_t count = mp_shape_count(&n->image);
    mp_batch_norm_stats_args args = {
        .channels = n->channels,
        .inner = mp_channel_stride(p, &n->image),
    };
    args.outer = count / n->channels / args.inner;
    MP_TRY(two_rows(p, n, &found, &row));
    MP_TRY(mp_plan_kernel(p, &kernel, "batch_norm_stats_%s", mp_dtype_word(p->in[0].type)));
    MP_TRY(MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, n->channels, LANES), args,
                     MP_BIND(mp_batch_norm_stats_args, x, MP_IN(0)),
                     MP_BIND(mp_batch_norm_stats_args, out, found)));
    *out = (statistics){n->computed, found, mp_ref_at(found, row)};
    return plan_running(p, n, found);
}

static mp_status plan_fold(mp_planner *p, const normalization *n, const statistics *by,
                           mp_ref *factors) {
    const mp_kernel *kernel = NULL;
    size_t row = 0;
    const mp_batch_norm_fold_args args = {
        .channels = n->channels,
        .epsilon = mp_node_float(p->node, "epsilon", 1e-5F),
    };
    MP_TRY(two_rows(p, n, factors, &row));
    MP_TRY(mp_plan_kernel(p, &kernel, "batch_norm_fold_%s_%s_%s", mp_dtype_word(p->in[1].type),
                          mp_dtype_word(by->type), mp_dtype_word(n->computed)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, n->channels, 1), args,
                     MP_BIND(mp_batch_norm_fold_args, scale, MP_IN(1)),
                     MP_BIND(mp_batch_norm_fold_args, bias, MP_IN(2)),
                     MP_BIND(mp_batch_norm_fold_args, mean, by->mean),
                     MP_BIND(mp_batch_norm_fold_args, var, by->var),
                     MP_BIND(mp_batch_norm_fold_args, out, *factors));
}

static mp_status plan_affine(mp_planner *p, const normalization *n, mp_ref factors) {
    const mp_dtype type = p->in[0].type;
    const int per_lane = (int)(16 / mp_dtype_size(type));
    const int64_t count = mp_shape_count(&n->image);
    const int64_t inner = mp_channel_stride(p, &n->image);
    const mp_shape whole = {3, {count / n->channels / inner, n->channels, inner}};
    const mp_shape vector = {2, {n->channels, 1}};
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "channel_affine_%s", mp_dtype_word(type)));
    mp_piece at;
    for (int64_t first = 0; first < count; first += at.walk.count) {
        MP_TRY(mp_piece_at(&whole, (const mp_shape *const[]){&whole, &vector}, 2, first, &at));
        const mp_channel_affine_args args = {.channels = n->channels, .walk = at.walk};
        MP_TRY(MP_LAUNCH(
            p, kernel, mp_plan_grid_stream(p, at.walk.count, per_lane, 1), args,
            MP_BIND(mp_channel_affine_args, x, mp_ref_element(MP_IN(0), at.in[0], type)),
            MP_BIND(mp_channel_affine_args, factors,
                    mp_ref_element(factors, at.in[1], n->computed)),
            MP_BIND(mp_channel_affine_args, out, mp_ref_element(MP_OUT(0), at.out, type))));
    }
    return MP_OK;
}

static mp_status plan_batch_norm(mp_planner *p) {
    const mp_tensor *x = &p->in[0];
    normalization n = {
        .image = mp_shape_first(p, &x->shape),
        .computed = x->type == MP_F64 ? MP_F64 : MP_F32,
    };
    statistics by = {p->in[3].type, MP_IN(3), MP_IN(4)};
    mp_ref factors;
    if (n.image.rank < 1) {
        return MP_FAIL(INVALID_ARGUMENT, "X is a scalar and has no channels");
    }
    n.channels = n.image.rank > 1 ? n.image.dim[1] : 1;
    MP_TRY(check_mode(p));
    MP_TRY(check_vectors(p, n.channels));
    MP_TRY(mp_plan_output(p, 0, x->type, &x->shape));
    MP_TRY(mp_plan_output(p, 1, p->in[3].type, &p->in[3].shape));
    MP_TRY(mp_plan_output(p, 2, p->in[3].type, &p->in[3].shape));
    if (mp_shape_count(&n.image) == 0) {
        return p->out_count < 2 ? MP_OK
                                : MP_FAIL(INVALID_ARGUMENT, "a batch of nothing has no statistics");
    }
    if (is_training(p)) {
        MP_TRY(plan_statistics(p, &n, &by));
    }
    MP_TRY(plan_fold(p, &n, &by, &factors));
    return plan_affine(p, &n, factors);
}

static const mp_attr_def attrs[] = {{"epsilon", MP_ATTR_FLOAT},
                                    {"momentum", MP_ATTR_FLOAT},
                                    {"spatial", MP_ATTR_INT},
                                    {"training_mode", MP_ATTR_INT},
                                    {NULL, 0}};

#define ROW(domain_, from, to, ...)                                                        \
    {                                                                                      \
        .domain = (domain_), .name = "BatchNormalization", .since = (from), .until = (to), \
        .types = {__VA_ARGS__}, .in_place = {{0, 0}}, .in_place_count = 1, .attrs = attrs, \
        .plan = plan_batch_norm                                                            \
    }
#define ROWS(domain_)                                             \
    ROW(domain_, 7, 13, {"T", MP_IEEE_FLOATS}),                   \
        ROW(domain_, 14, 14, {"T", MP_FLOATS}, {"U", MP_FLOATS}), \
        ROW(domain_, 15, 15, {"T", MP_FLOATS}, {"T1", MP_FLOATS}, {"T2", MP_FLOATS})

static const mp_op ops[] = {ROWS(""), ROWS(MP_NHWC_DOMAIN)};

const mp_op_family mp__family_batch_norm = {"batch_norm", ops, MP_COUNT_OF(ops)};
