/* group_norm.c - GroupNorm and SkipGroupNorm of com.microsoft, with an activation behind, and a
 * GroupNorm that passes put in the place of others, which may have a Relu behind. With
 * channels last there are two kernels for it: what is known of each group in each slice of pixels,
 * then the result. With channels first groups are rows.
 * Kernels: rows/group_apply.cu, rows/group_stats.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/fused/fused_steps.h"
#include "op/rows/norm_steps.h"

typedef struct group_norm {
    mp_shape shape; /* of X */
    bool last, skips;
    int32_t activation; /* a K_GROUP_NORM_ */
    int64_t groups, batch, channels, pixels;
    mp_ref sum; /* what is normalised: X, or the sum */
} group_norm;

/* ---- what the model asks for ---- */

static mp_status check_vector(const mp_planner *p, int i, const char *name, int64_t channels) {
    const mp_tensor *given = mp_plan_in(p, i);
    char text[MP_SHAPE_TEXT];
    return given == NULL || (given->shape.rank == 1 && given->shape.dim[0] == channels)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s of shape %s; %lld values are needed", name,
                         mp_shape_text(&given->shape, text), (long long)channels);
}

/* As X, or one value for each channel of each element of the batch. `*repeated`: which. */
static mp_status check_skip(const mp_planner *p, const group_norm *g, bool *repeated) {
    const mp_shape *skip = &p->in[3].shape;
    mp_shape single = g->shape;
    for (int d = 1; d < single.rank; d++) {
        single.dim[d] = d == (g->last ? single.rank - 1 : 1) ? g->channels : 1;
    }
    const mp_shape flat = {.rank = 2, .dim = {g->batch, g->channels}};
    char text[MP_SHAPE_TEXT], x_text[MP_SHAPE_TEXT];
    *repeated = !mp_shape_equal(skip, &g->shape);
    return !*repeated || mp_shape_equal(skip, &single) || mp_shape_equal(skip, &flat)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "skip of shape %s for X of shape %s; its shape, or one value for each "
                         "channel, is needed",
                         mp_shape_text(skip, text), mp_shape_text(&g->shape, x_text));
}

static mp_status read_group_norm(const mp_planner *p, group_norm *g) {
    const int64_t activation = mp_node_int(p->node, "activation", 0);
    const int64_t most = mp_op_is_own(p->node->op) ? K_GROUP_NORM_RELU : K_GROUP_NORM_SWISH;
    const bool *skips = p->node->op->detail;
    const int rank = p->in[0].shape.rank;
    *g = (group_norm){.shape = p->in[0].shape,
                      .last = mp_node_int(p->node, "channels_last", 1) != 0,
                      .activation = (int32_t)activation,
                      .skips = *skips,
                      .groups = mp_node_int(p->node, "groups", 0),
                      .sum = MP_IN(0)};
    if (rank < 3 || activation < 0 || activation > most) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(
            INVALID_ARGUMENT,
            "X of shape %s and activation %lld; 3 dimensions or more, and 0 to %lld, are "
            "needed",
            mp_shape_text(&g->shape, text), (long long)activation, (long long)most);
    }
    g->batch = g->shape.dim[0];
    g->channels = g->shape.dim[g->last ? rank - 1 : 1];
    g->pixels = g->last ? mp_shape_span(&g->shape, 1, rank - 1) : mp_shape_span(&g->shape, 2, rank);
    if (g->groups < 1 || g->channels % g->groups != 0) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld channels do not make %lld groups",
                       (long long)g->channels, (long long)g->groups);
    }
    MP_TRY(check_vector(p, 1, "gamma", g->channels));
    MP_TRY(check_vector(p, 2, "beta", g->channels));
    return check_vector(p, 4, "bias", g->channels);
}

/* ---- channels last ---- */

/* Packs of a chunk of channels: so few that a block has to put together what is known of few
 * groups, but some that lie together in memory; all chunks as long and of whole groups, if that can
 * be. */
static int64_t across_of(int64_t packs, int64_t pack, int64_t size, int64_t each) {
    enum { BYTES = 128, FURTHER = 4 };
    const int64_t most = MP_MIN(packs, K_GROUP_NORM_LANES);
    const int64_t least = MP_CEIL_DIV(BYTES, pack * size);
    int64_t even = most;
    for (int64_t across = MP_MIN(least, most); across <= MP_MIN(most, FURTHER * least); across++) {
        if (packs % across == 0) {
            if (across * pack % each == 0) {
                return across;
            }
            even = MP_MIN(even, across);
        }
    }
    return even;
}

/* How channels are cut into chunks, and pixels into slices so long that what is kept of them is
 * little, but so many that they fill the device; more of them where lanes have much to read. */
static void cut(const mp_planner *p, int64_t pack, int64_t size, mp_group_norm_args *args) {
    enum { LEAST = 2, MUCH = 8, LANES = K_GROUP_NORM_LANES }; /* pixels of a lane */
    const int64_t packs = args->channels / pack, each = args->channels / args->groups;
    const int64_t across = across_of(packs, pack, size, each);
    const int64_t width = across * pack, chunks = MP_CEIL_DIV(packs, across);
    const int64_t few = (int64_t)p->device->info.multiprocessors * K_GROUP_NORM_BLOCKS;
    const bool is_much = args->pixels / MUCH >= few * LANES / (args->batch * packs);
    const int64_t blocks = is_much ? 2 * few : few;
    args->across = (int32_t)across;
    args->lines = (int32_t)(LANES / across);
    args->chunks = (int32_t)chunks;
    args->each = (int32_t)each;
    args->spans = width % each == 0 ? 1 : (int32_t)MP_MIN(chunks, (each + width - 2) / width + 1);
    args->by_each = mp_divider((uint32_t)each);
    args->by_width = mp_divider((uint32_t)width);
    const int64_t wanted = MP_MAX(blocks / (args->batch * chunks), 1);
    const int64_t most = MP_CEIL_DIV(args->pixels, (int64_t)args->lines * LEAST);
    const int64_t slice = MP_CEIL_DIV(args->pixels, MP_MIN(wanted, most));
    args->slice = MP_MIN(slice, 1 << 30);
    args->slices = (int32_t)MP_CEIL_DIV(args->pixels, args->slice);
    args->by_chunks = mp_divider((uint32_t)args->chunks);
    args->by_slices = mp_divider((uint32_t)args->slices);
}

/* What both launches bind of. */
typedef struct group_refs {
    mp_ref x, skip, add, sum, partial;
} group_refs;

static mp_status launch(mp_planner *p, const mp_kernel *kernel, size_t shared,
                        const mp_group_norm_args *args, const group_refs *refs) {
    mp_grid grid =
        mp_plan_grid_rows(p, args->batch * args->slices * args->chunks, K_GROUP_NORM_LANES);
    grid.shared_bytes = (uint32_t)shared;
    return MP_LAUNCH(
        p, kernel, grid, *args, MP_BIND(mp_group_norm_args, x, refs->x),
        MP_BIND(mp_group_norm_args, skip, refs->skip), MP_BIND(mp_group_norm_args, add, refs->add),
        MP_BIND(mp_group_norm_args, sum, refs->sum), MP_BIND(mp_group_norm_args, scale, MP_IN(1)),
        MP_BIND(mp_group_norm_args, bias, MP_IN(2)), MP_BIND(mp_group_norm_args, out, MP_OUT(0)),
        MP_BIND(mp_group_norm_args, partial, refs->partial));
}

static mp_status plan_last(mp_planner *p, const group_norm *g, bool repeated) {
    const mp_dtype type = p->in[0].type;
    const char *word = mp_dtype_word(type);
    const int64_t wide = 16 / (int64_t)mp_dtype_size(type);
    const bool packed = p->align >= 16 && g->channels % wide == 0;
    const int64_t pack = packed ? wide : 1;
    const char *rows = packed ? "packed" : "edged";
    if (g->channels >= 1 << 30) {
        return MP_FAIL(UNSUPPORTED, "%lld channels; fewer than 2^30 are needed",
                       (long long)g->channels);
    }
    mp_group_norm_args args = {.batch = g->batch,
                               .pixels = g->pixels,
                               .channels = (int32_t)g->channels,
                               .groups = (int32_t)g->groups,
                               .skip_step = repeated ? 0 : (int32_t)g->channels,
                               .epsilon = mp_node_float(p->node, "epsilon", 1e-5f),
                               .activation = g->activation};
    group_refs refs = {.x = MP_IN(0),
                       .skip = g->skips ? MP_IN(3) : MP_NOWHERE,
                       .add = g->skips && mp_plan_in(p, 4) != NULL ? MP_IN(4) : MP_NOWHERE,
                       .sum = g->skips ? g->sum : MP_NOWHERE};
    const mp_kernel *stats = NULL, *apply = NULL;
    cut(p, pack, (int64_t)mp_dtype_size(type), &args);
    if (args.batch > INT32_MAX / args.slices / args.chunks) {
        return MP_FAIL(UNSUPPORTED, "%lld images of %lld pixels; fewer are needed",
                       (long long)args.batch, (long long)args.pixels);
    }
    MP_TRY(mp_plan_scratch_of(p, args.batch * args.groups * args.spans * args.slices * 2, MP_F32,
                              &refs.partial));
    MP_TRY(mp_plan_kernel(p, &stats, "group_stats_%s_%s", rows, word));
    MP_TRY(mp_plan_kernel(p, &apply, "group_apply_%s_%s_%s", rows, word,
                          mp_dtype_word(p->in[1].type)));
    /* A row of lanes for both sums of each channel of a pack, and the first pixel's channels; then
     * two numbers for each group that a chunk can have a part in. */
    const int64_t width = args.across * pack, sums = K_GROUP_NORM_LANES * pack * 2 + width;
    const int64_t groups = MP_MIN(args.groups, (width + args.each - 2) / args.each + 1);
    MP_TRY(launch(p, stats, (size_t)sums * sizeof(float), &args, &refs));
    return launch(p, apply, (size_t)groups * 2 * sizeof(float), &args, &refs);
}

/* ---- channels first ---- */

static mp_status add_skip(mp_planner *p, const group_norm *g) {
    const mp_dtype type = p->in[0].type;
    const mp_shape skip = {.rank = 3, .dim = {g->batch, g->channels, 1}};
    const mp_shape bias = {.rank = 2, .dim = {g->channels, 1}};
    const mp_shape all = {.rank = 3, .dim = {g->batch, g->channels, g->pixels}};
    const bool whole = mp_shape_equal(&p->in[3].shape, &g->shape);
    const mp_operand in[] = {{MP_IN(0), &all}, {MP_IN(3), whole ? &all : &skip}, {MP_IN(4), &bias}};
    mp_expression e = {.input_count = 0};
    int sum = mp_expression_input(&e, type);
    for (int i = 0; i < (mp_plan_in(p, 4) != NULL ? 2 : 1); i++) {
        sum = mp_expression_function(&e, "add", sum, mp_expression_input(&e, type), 0, 0);
    }
    return mp_expression_output(&e, sum) ? mp_plan_fused(p, &e, in, &g->sum, &all)
                                         : MP_FAIL(INTERNAL, "the sum has no function");
}

/* out = x as another type, or its activation. */
static mp_status convert(mp_planner *p, mp_ref x, mp_dtype from, mp_ref out, mp_dtype to,
                         int64_t count, int32_t activation) {
    static const char *const functions[] = {NULL, "swish", "relu"};
    const mp_shape shape = {.rank = 1, .dim = {count}};
    const mp_operand in = {x, &shape};
    mp_expression e = {.input_count = 0};
    int value = mp_expression_input(&e, from);
    if (functions[activation] != NULL) {
        value = mp_expression_function(&e, functions[activation], value, MP_NO_REGISTER, 1, 0);
    }
    if (from != to) {
        value = mp_expression_cast(&e, value, to);
    }
    return mp_expression_output(&e, value) ? mp_plan_fused(p, &e, &in, &out, &shape)
                                           : MP_FAIL(INTERNAL, "the activation has no function");
}

/* Input i, a value for each channel, in the type of the result of the norm. */
static mp_status vector_as(mp_planner *p, int i, mp_dtype type, mp_ref *out) {
    const mp_tensor *given = &p->in[i];
    const int64_t count = mp_shape_count(&given->shape);
    *out = MP_IN(i);
    if (given->type == type) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_of(p, count, type, out));
    return convert(p, MP_IN(i), given->type, *out, type, count, K_GROUP_NORM_PLAIN);
}

/* The norm gives the wider type of X and gamma. */
static mp_status plan_first(mp_planner *p, const group_norm *g) {
    const mp_dtype type = p->in[0].type;
    const mp_dtype wide = p->in[1].type == MP_F32 ? MP_F32 : type;
    const int64_t count = mp_shape_count(&g->shape);
    if (g->skips) {
        MP_TRY(add_skip(p, g));
    }
    mp_norm n = {.type = type, .out_type = wide, .x = g->sum, .out = MP_OUT(0)};
    n.args = (mp_norm_args){.rows = g->batch * g->groups,
                            .columns = g->channels / g->groups * g->pixels,
                            .groups = g->groups,
                            .per_row = g->channels / g->groups,
                            .inner = g->pixels,
                            .by_inner = mp_divider((uint32_t)MP_MIN(g->pixels, 1 << 30)),
                            .epsilon = mp_node_float(p->node, "epsilon", 1e-5f),
                            .centred = 1};
    MP_TRY(vector_as(p, 1, wide, &n.scale));
    MP_TRY(vector_as(p, 2, wide, &n.bias));
    if (wide != type) {
        MP_TRY(mp_plan_scratch_of(p, count, wide, &n.out));
    }
    MP_TRY(mp_plan_norm(p, &n));
    return wide != type || g->activation != K_GROUP_NORM_PLAIN
               ? convert(p, n.out, wide, MP_OUT(0), type, count, g->activation)
               : MP_OK;
}

static mp_status plan_group_norm(mp_planner *p) {
    group_norm g;
    bool repeated = false;
    MP_TRY(read_group_norm(p, &g));
    if (g.skips) {
        MP_TRY(check_skip(p, &g, &repeated));
    }
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &g.shape));
    if (g.skips) {
        MP_TRY(mp_plan_output(p, 1, p->in[0].type, &g.shape));
        g.sum = MP_OUT(1);
    }
    if (mp_shape_count(&g.shape) == 0) {
        return MP_OK;
    }
    if (g.skips && !mp_plan_wants(p, 1)) {
        MP_TRY(mp_plan_scratch_shape(p, &g.shape, p->in[0].type, &g.sum));
    }
    return g.last ? plan_last(p, &g, repeated) : plan_first(p, &g);
}

/* ---- the rows ---- */

static const mp_attr_def group_attrs[] = {{"activation", MP_ATTR_INT},
                                          {"channels_last", MP_ATTR_INT},
                                          {"epsilon", MP_ATTR_FLOAT},
                                          {"groups", MP_ATTR_INT},
                                          {NULL, 0}};
static const bool alone = false, with_skip = true;

enum { TYPES = 1u << MP_F32 | 1u << MP_F16 };
#define ROW(domain_, op_name, which)                                                          \
    {                                                                                         \
        .domain = (domain_), .name = (op_name), .since = 1, .until = 1,                       \
        .types = {{"T", TYPES}, {"M", TYPES}}, .attrs = group_attrs, .plan = plan_group_norm, \
        .detail = &(which)                                                                    \
    }

static const mp_op ops[] = {
    ROW("com.microsoft", "GroupNorm", alone),
    ROW("com.microsoft", "SkipGroupNorm", with_skip),
    ROW(MP_OWN_DOMAIN, "GroupNorm", alone),
};

const mp_op_family mp__family_group_norm = {"group_norm", ops, MP_COUNT_OF(ops)};
