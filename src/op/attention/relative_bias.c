/* relative_bias.c - RelativePositionBias and GatedRelativePositionBias of com.microsoft: what
 * attention adds to its scores by the distance from query to key.
 * Kernels: attention/relative_bias.cu, attention/gated_bias.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

#include <math.h>

/* ---- from a table of buckets ---- */

static mp_status read_rows(const mp_planner *p, int64_t *out) {
    int64_t length[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        int count = 0;
        MP_TRY(
            mp_host_ints(p, i + 1, i == 0 ? "query_length" : "key_length", 1, &length[i], &count));
        if (count != 1 || length[i] < 0) {
            return MP_FAIL(INVALID_ARGUMENT, "query_length and key_length must be one number each");
        }
    }
    if (length[0] != length[1]) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "query_length is %lld and key_length %lld; a bias by position needs as many "
                       "of both",
                       (long long)length[0], (long long)length[1]);
    }
    *out = length[0];
    return MP_OK;
}

static mp_status read_buckets(const mp_planner *p, mp_relative_bias_args *args) {
    const mp_shape *table = &p->in[0].shape;
    const int64_t most = mp_node_int(p->node, "max_distance", 0);
    char text[MP_SHAPE_TEXT];
    args->both = mp_node_flag(p->node, "is_bidirectional", false);
    const int64_t buckets = table->rank == 2 ? table->dim[0] / (args->both ? 2 : 1) : 0;
    if (buckets < 2 || buckets > INT32_MAX / 2 || (args->both && table->dim[0] % 2 != 0) ||
        most <= buckets / 2) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "bias_table of shape %s with max_distance %lld: it needs two dimensions, at "
                       "least two buckets for each direction, and a distance beyond half of them",
                       mp_shape_text(table, text), (long long)most);
    }
    args->buckets = (int32_t)buckets;
    args->exact = (int32_t)(buckets / 2);
    args->log_range = logf((float)most / (float)args->exact);
    args->heads = table->dim[1];
    return MP_OK;
}

static mp_status plan_relative(mp_planner *p) {
    mp_relative_bias_args args = {.table = NULL};
    const mp_kernel *kernel = NULL;
    MP_TRY(read_buckets(p, &args));
    MP_TRY(read_rows(p, &args.rows));
    const mp_shape out = {.rank = 4, .dim = {1, args.heads, args.rows, args.rows}};
    MP_TRY(mp_plan_output(p, 0, p->in[0].type, &out));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "relative_bias_%s", mp_dtype_word(p->in[0].type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.rows * args.rows, 1), args,
                     MP_BIND(mp_relative_bias_args, table, MP_IN(0)),
                     MP_BIND(mp_relative_bias_args, out, MP_OUT(0)));
}

/* ---- times a gate of the query ---- */

enum { QUERY, QUERY_BIAS, BIAS, WEIGHT, WEIGHT_BIAS, LIMIT, OFFSETS };

static bool has_shape(const mp_planner *p, int i, const mp_shape *want) {
    return mp_shape_equal(&p->in[i].shape, want);
}

static mp_status read_gated(const mp_planner *p, mp_gated_bias_args *args) {
    const mp_shape *query = &p->in[QUERY].shape, *weight = &p->in[WEIGHT].shape;
    const mp_tensor *offsets = mp_plan_in(p, OFFSETS);
    const mp_shape *tokens = offsets != NULL ? &offsets->shape : query;
    char text[MP_SHAPE_TEXT];
    args->heads = mp_node_int(p->node, "num_heads", 0);
    const int64_t width = query->rank > 0 ? query->dim[query->rank - 1] : 0;
    if (args->heads < 1 || width < 1 || width % args->heads != 0 ||
        query->rank != (offsets != NULL ? 2 : 3) || tokens->rank != (offsets != NULL ? 2 : 3) ||
        weight->rank != 2 || weight->dim[0] != width / args->heads || weight->dim[1] < 2 ||
        weight->dim[1] % 2 != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "query_layer of shape %s does not go with %lld heads, the weight and "
                       "token_offset: three dimensions (two with token_offset) of whole heads, a "
                       "row of the weight for each element of a head, columns in pairs",
                       mp_shape_text(query, text), (long long)args->heads);
    }
    args->batch = tokens->dim[0];
    args->rows = tokens->dim[1];
    args->size = weight->dim[0];
    args->columns = weight->dim[1];
    args->tokens = offsets != NULL ? query->dim[0] : 0;
    return MP_OK;
}

static mp_status check_gated(const mp_planner *p, const mp_gated_bias_args *args) {
    const mp_shape query_bias = {.rank = 1, .dim = {args->heads * args->size}};
    const mp_shape bias = {.rank = 4, .dim = {1, args->heads, args->rows, args->rows}};
    const mp_shape weight_bias = {.rank = 1, .dim = {args->columns}};
    const mp_shape limit = {.rank = 4, .dim = {1, args->heads, 1, 1}};
    if (!has_shape(p, QUERY_BIAS, &query_bias) || !has_shape(p, BIAS, &bias) ||
        !has_shape(p, WEIGHT_BIAS, &weight_bias) || !has_shape(p, LIMIT, &limit)) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "query_bias, rel_pos, bias and eco_a must be as large as %lld heads of %lld, "
            "%lld tokens and %lld columns of the weight ask for",
            (long long)args->heads, (long long)args->size, (long long)args->rows,
            (long long)args->columns);
    }
    const int64_t places = args->batch * args->rows;
    if (args->tokens > places || (p->in_count > OFFSETS && places > INT32_MAX)) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld tokens do not fit the %lld places of token_offset",
                       (long long)args->tokens, (long long)places);
    }
    return MP_OK;
}

static mp_status launch_gated(mp_planner *p, const mp_gated_bias_args *args, mp_grid grid,
                              mp_ref places) {
    const mp_kernel *kernel = NULL;
    const bool placing = args->stage == K_GATED_BIAS_PLACES;
    MP_TRY(mp_plan_kernel(p, &kernel, "gated_bias_%s", mp_dtype_word(p->in[QUERY].type)));
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_gated_bias_args, query, MP_IN(QUERY)),
                     MP_BIND(mp_gated_bias_args, query_bias, MP_IN(QUERY_BIAS)),
                     MP_BIND(mp_gated_bias_args, weight, MP_IN(WEIGHT)),
                     MP_BIND(mp_gated_bias_args, weight_bias, MP_IN(WEIGHT_BIAS)),
                     MP_BIND(mp_gated_bias_args, limit, MP_IN(LIMIT)),
                     MP_BIND(mp_gated_bias_args, bias, MP_IN(BIAS)),
                     MP_BIND(mp_gated_bias_args, offsets, placing ? MP_IN(OFFSETS) : MP_NOWHERE),
                     MP_BIND(mp_gated_bias_args, places, places),
                     MP_BIND(mp_gated_bias_args, out, placing ? MP_NOWHERE : MP_OUT(0)));
}

/* How much a block has: many entries of the batch, for which it reads the bias once, then many
 * rows, but so little that all multiprocessors have blocks enough. */
static void cut_gated(const mp_planner *p, mp_gated_bias_args *args) {
    enum { TURNS = 16 };
    const int64_t wanted = (int64_t)p->device->info.multiprocessors * TURNS;
    const int64_t pack = p->align >= 16 ? 16 / (int64_t)mp_dtype_size(p->in[QUERY].type) : 1;
    const int64_t lines = args->batch * args->heads * args->rows;
    args->entries = K_GATED_BIAS_GATES / 2;
    while (args->entries > 1 &&
           (args->entries / 2 >= args->batch || lines / args->entries < wanted)) {
        args->entries /= 2;
    }
    args->tile = K_GATED_BIAS_GATES / args->entries;
    while (args->tile > 1 && lines / (args->entries * args->tile) < wanted) {
        args->tile /= 2;
    }
    args->tiles = MP_CEIL_DIV(args->rows, args->tile);
    args->parts = MP_CEIL_DIV(args->batch, args->entries);
    args->whole_heads = args->size % pack == 0 && pack > 1;
    args->whole_rows = args->rows % pack == 0 && pack > 1;
    args->by_row = mp_divider((uint32_t)(args->whole_rows ? args->rows / pack : args->rows));
}

static mp_status plan_gated(mp_planner *p) {
    enum { LANES = K_GATED_BIAS_LANES };
    mp_gated_bias_args args = {.stage = K_GATED_BIAS_PLACES};
    mp_ref places = MP_NOWHERE;
    MP_TRY(read_gated(p, &args));
    MP_TRY(check_gated(p, &args));
    const mp_shape out = {.rank = 4, .dim = {args.batch, args.heads, args.rows, args.rows}};
    MP_TRY(mp_plan_output(p, 0, p->in[QUERY].type, &out));
    if (mp_shape_count(&out) == 0) {
        return MP_OK;
    }
    if (mp_plan_in(p, OFFSETS) != NULL) {
        const int64_t count = args.batch * args.rows;
        MP_TRY(mp_plan_scratch_of(p, count, MP_I32, &places));
        MP_TRY(mp_plan_fill(p, places, UINT32_MAX, sizeof(int32_t), (size_t)count));
        if (args.tokens > 0) {
            const int64_t blocks = MP_CEIL_DIV(args.tokens, LANES);
            MP_TRY(launch_gated(p, &args, mp_plan_grid_rows(p, blocks, LANES), places));
        }
    }
    args.stage = K_GATED_BIAS_ROWS;
    cut_gated(p, &args);
    const int64_t items = args.heads * args.tiles * args.parts;
    return launch_gated(p, &args, mp_plan_grid_rows(p, items, LANES), places);
}

/* ---- the rows ---- */

enum { TYPES = 1u << MP_F32 | 1u << MP_F16 };

static const mp_attr_def attrs_relative[] = {
    {"is_bidirectional", MP_ATTR_INT}, {"max_distance", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def attrs_gated[] = {{"num_heads", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "RelativePositionBias",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"U", MP_BIT(MP_I64)}},
     .host_in = 1u << 1 | 1u << 2,
     .attrs = attrs_relative,
     .plan = plan_relative},
    {.domain = "com.microsoft",
     .name = "GatedRelativePositionBias",
     .since = 1,
     .until = 1,
     .types = {{"T", TYPES}, {"M", MP_BIT(MP_I32)}},
     .attrs = attrs_gated,
     .plan = plan_gated},
};

const mp_op_family mp__family_relative_bias = {"relative_bias", ops, MP_COUNT_OF(ops)};
