/* quantized_lstm.c - DynamicQuantizeLSTM of com.microsoft: weights of 8 bits, inputs and states
 * quantised by their ranges as they come.
 * Kernels: quantize/quantized_product.cu, quantize/quantized_range.cu,
 * quantize/quantized_rows.cu, recurrent/quantized_lstm.cu, recurrent/quantized_group.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/move/strided_copy.h"
#include "op/recurrent/recurrent_read.h"
#include "op/recurrent/recurrent_steps.h"

enum { IN_W_SCALE = 8, IN_W_ZERO, IN_R_SCALE, IN_R_ZERO };
enum { TILE = 64, TILE_SHARED = (2 * TILE * 33 + TILE * TILE + 2 * TILE) * 4, LANES = 256 };

/* A weight matrix as given, [D][depth][4 H], and its scales. */
typedef struct weight {
    const char *name;
    int input, scale, zero;
    int64_t depth;
} weight;

static mp_status check_weight(const mp_planner *p, const weight *w, const k_cell *cell,
                              k_quantized *out) {
    const mp_tensor *tensor = &p->in[w->input];
    const mp_tensor *scale = &p->in[w->scale];
    const mp_tensor *zero = mp_plan_in(p, w->zero);
    const int64_t columns = cell->kind * cell->hidden;
    const mp_shape want = {.rank = 3, .dim = {cell->directions, w->depth, columns}};
    const int64_t scales = mp_shape_count(&scale->shape);
    char given[MP_SHAPE_TEXT];
    char needed[MP_SHAPE_TEXT];
    if (!mp_shape_equal(&tensor->shape, &want)) {
        return MP_FAIL(INVALID_ARGUMENT, "%s is of shape %s; %s is needed", w->name,
                       mp_shape_text(&tensor->shape, given), mp_shape_text(&want, needed));
    }
    if (zero == NULL || mp_shape_count(&zero->shape) != scales ||
        (scales != cell->directions && scales != cell->directions * columns)) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "%s has %lld scales; one for each direction or column is needed, and as "
                       "many zero points",
                       w->name, (long long)scales);
    }
    if (w->depth > INT32_MAX / (255 * 128)) {
        return MP_FAIL(UNSUPPORTED, "%s has %lld rows, whose sums of products may overflow",
                       w->name, (long long)w->depth);
    }
    *out = (k_quantized){.columns = columns,
                         .depth = w->depth,
                         .per_column = scales != cell->directions,
                         .is_signed = tensor->type == MP_I8};
    return MP_OK;
}

/* Input `i`, a weight matrix of bytes, into `target` with the columns of each direction as rows. */
static mp_status transpose(mp_planner *p, int i, mp_ref target) {
    const mp_shape *given = &p->in[i].shape;
    const int64_t depth = given->dim[1], columns = given->dim[2];
    const mp_shape shape = {.rank = 3, .dim = {given->dim[0], columns, depth}};
    const mp_strided from = {.ref = MP_IN(i), .stride = {depth * columns, 1, columns}};
    const mp_strided to = {.ref = target, .stride = {columns * depth, depth, 1}};
    return mp_plan_strided_copy(p, &shape, 1, &from, &to);
}

/* The weights are constants, and then transposed once. */
static mp_status prepare_weight(mp_planner *p, int i) {
    if ((i != MP_RNN_W && i != MP_RNN_R) || p->in[i].shape.rank != 3) {
        return MP_OK;
    }
    MP_TRY(mp_plan_output(p, 0, p->in[i].type, &p->in[i].shape));
    return transpose(p, i, MP_OUT(0));
}

static mp_status transposed_weight(mp_planner *p, const weight *w, mp_ref *out) {
    *out = MP_IN(w->input);
    if (mp_node_prepared(p->node, w->input)) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch(p, (size_t)mp_shape_count(&p->in[w->input].shape), out));
    return transpose(p, w->input, *out);
}

/* X as bytes, and the scale and zero point with which they were made. */
static mp_status quantize_input(mp_planner *p, int64_t count, mp_ref *bytes, mp_ref *parameter) {
    const mp_kernel *kernel = NULL;
    mp_ref range;
    const int64_t wanted = MP_CEIL_DIV(count, LANES * 8);
    const int64_t parts = MP_MIN(wanted, K_QUANT_BLOCKS);
    const mp_quantized_range_args range_args = {.count = count};
    const mp_quantized_rows_args rows_args = {.count = count, .parts = parts};
    MP_TRY(mp_plan_scratch(p, (size_t)parts * 2 * sizeof(float), &range));
    MP_TRY(mp_plan_scratch(p, 2 * sizeof(float), parameter));
    MP_TRY(mp_plan_scratch(p, (size_t)count, bytes));
    MP_TRY(mp_plan_kernel(p, &kernel, "quantized_range"));
    MP_TRY(MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, parts, LANES), range_args,
                     MP_BIND(mp_quantized_range_args, x, MP_IN(MP_RNN_X)),
                     MP_BIND(mp_quantized_range_args, range, range)));
    MP_TRY(mp_plan_kernel(p, &kernel, "quantized_rows"));
    return MP_LAUNCH(p, kernel, mp_plan_grid_rows(p, parts, LANES), rows_args,
                     MP_BIND(mp_quantized_rows_args, x, MP_IN(MP_RNN_X)),
                     MP_BIND(mp_quantized_rows_args, range, range),
                     MP_BIND(mp_quantized_rows_args, out, *bytes),
                     MP_BIND(mp_quantized_rows_args, parameter, *parameter));
}

static mp_status plan_projection(mp_planner *p, const mp_recurrent *r, const k_quantized *w,
                                 mp_ref transposed, mp_ref *out) {
    const k_cell *cell = &r->cell;
    const int64_t rows = cell->steps * cell->batch;
    const mp_shape shape = {.rank = 3, .dim = {cell->directions, rows, w->columns}};
    const mp_quantized_product_args args = {.rows = rows,
                                            .directions = cell->directions,
                                            .tiles_down = MP_CEIL_DIV(rows, TILE),
                                            .tiles_across = MP_CEIL_DIV(w->columns, TILE),
                                            .w = *w};
    const mp_kernel *kernel = NULL;
    mp_ref bytes;
    mp_ref parameter;
    MP_TRY(mp_plan_scratch_shape(p, &shape, MP_F32, out));
    MP_TRY(quantize_input(p, rows * r->input, &bytes, &parameter));
    MP_TRY(mp_plan_kernel(p, &kernel, "quantized_product"));
    mp_grid grid =
        mp_plan_grid_rows(p, args.directions * args.tiles_down * args.tiles_across, LANES);
    grid.shared_bytes = TILE_SHARED;
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_quantized_product_args, a, bytes),
                     MP_BIND(mp_quantized_product_args, parameter, parameter),
                     MP_BIND(mp_quantized_product_args, out, *out),
                     MP_BIND(mp_quantized_product_args, w.weight, transposed),
                     MP_BIND(mp_quantized_product_args, w.scale, MP_IN(IN_W_SCALE)),
                     MP_BIND(mp_quantized_product_args, w.zero, MP_IN(IN_W_ZERO)));
}

/* Blocks that share the units of a direction: as many as a cluster may have where each has some,
 * so that R lies in their shared memory. 0 where it has no room, or a lane had several units. */
static int32_t blocks_of(const mp_planner *p, const k_cell *cell) {
    enum { UNITS_MIN = 16, BLOCKS_MAX = 8 };
    const mp_device_info *info = &p->device->info;
    const int32_t lanes = info->warp > 1 ? K_RECURRENT_LANES : INT32_MAX;
    int64_t blocks = 1;
    while (blocks < MP_MIN(info->cluster_blocks_max, BLOCKS_MAX) &&
           cell->hidden / (2 * blocks) >= UNITS_MIN) {
        blocks *= 2;
    }
    const int64_t units = MP_CEIL_DIV(cell->hidden, blocks);
    const bool is_small =
        cell->hidden <= UINT16_MAX && cell->batch <= UINT16_MAX && cell->batch * units <= lanes;
    return is_small && K_QUANTIZED_GROUP_HELD(cell->batch, cell->hidden, units) <=
                           (int64_t)info->shared_bytes_max
               ? (int32_t)blocks
               : 0;
}

static mp_status plan_group(mp_planner *p, const mp_recurrent *r, const k_quantized *w,
                            mp_ref transposed, mp_ref projected, int32_t blocks) {
    const k_cell *cell = &r->cell;
    const int32_t units = (int32_t)MP_CEIL_DIV(cell->hidden, blocks);
    mp_quantized_group_args args = {.blocks = blocks,
                                    .units = units,
                                    .lanes = 1,
                                    .pitch = (int32_t)K_QUANTIZED_GROUP_PITCH(cell->hidden),
                                    .wide = cell->hidden % 4 == 0,
                                    .r = *w,
                                    .cell = *cell};
    while (args.lanes < p->device->info.warp &&
           units * cell->kind * args.lanes * 2 <= K_RECURRENT_LANES) {
        args.lanes *= 2;
    }
    const mp_kernel *kernel = NULL;
    mp_bind binds[3 + MP_CELL_BINDS] = {
        MP_BIND(mp_quantized_group_args, r.weight, transposed),
        MP_BIND(mp_quantized_group_args, r.scale, MP_IN(IN_R_SCALE)),
        MP_BIND(mp_quantized_group_args, r.zero, MP_IN(IN_R_ZERO))};
    mp_recurrent_bind(p, projected, offsetof(mp_quantized_group_args, cell), binds + 3);
    MP_TRY(mp_plan_kernel(p, &kernel, "quantized_group_f32"));
    const mp_grid grid = {.blocks = (uint32_t)(cell->directions * blocks),
                          .lanes = K_RECURRENT_LANES,
                          .shared_bytes =
                              (uint32_t)K_QUANTIZED_GROUP_HELD(cell->batch, cell->hidden, units),
                          .meets = blocks > 1 ? (uint32_t)blocks : 0};
    return MP_LAUNCH_BOUND(p, kernel, grid, &args, sizeof args, binds, MP_COUNT_OF(binds));
}

static mp_status plan_steps(mp_planner *p, const mp_recurrent *r, const k_quantized *w,
                            mp_ref transposed, mp_ref projected) {
    const k_cell *cell = &r->cell;
    const int32_t blocks = blocks_of(p, cell);
    if (blocks > 0) {
        return plan_group(p, r, w, transposed, projected, blocks);
    }
    const int64_t states = cell->directions * cell->batch * cell->hidden;
    mp_quantized_lstm_args args = {.pitch = (cell->hidden + 15) / 16 * 16,
                                   .lanes = mp_recurrent_lanes(cell->hidden, 16),
                                   .wide = cell->hidden % 4 == 0,
                                   .r = *w,
                                   .cell = *cell};
    const int64_t bytes = cell->batch * args.pitch;
    const bool shared = bytes <= (int64_t)p->device->info.shared_bytes_max;
    const mp_kernel *kernel = NULL;
    mp_ref h;
    mp_ref c;
    mp_ref outside = MP_NOWHERE;
    MP_TRY(mp_plan_scratch_of(p, states, MP_F32, &h));
    MP_TRY(mp_plan_scratch_of(p, states, MP_F32, &c));
    if (!shared) {
        MP_TRY(mp_plan_scratch(p, (size_t)(bytes * cell->directions), &outside));
    }
    mp_bind binds[6 + MP_CELL_BINDS] = {MP_BIND(mp_quantized_lstm_args, h, h),
                                        MP_BIND(mp_quantized_lstm_args, c, c),
                                        MP_BIND(mp_quantized_lstm_args, bytes, outside),
                                        MP_BIND(mp_quantized_lstm_args, r.weight, transposed),
                                        MP_BIND(mp_quantized_lstm_args, r.scale, MP_IN(IN_R_SCALE)),
                                        MP_BIND(mp_quantized_lstm_args, r.zero, MP_IN(IN_R_ZERO))};
    mp_recurrent_bind(p, projected, offsetof(mp_quantized_lstm_args, cell), binds + 6);
    MP_TRY(mp_plan_kernel(p, &kernel, "quantized_lstm_f32"));
    mp_grid grid = mp_plan_grid_rows(p, cell->directions, K_RECURRENT_LANES);
    grid.shared_bytes = shared ? (uint32_t)bytes : 0;
    return MP_LAUNCH_BOUND(p, kernel, grid, &args, sizeof args, binds, MP_COUNT_OF(binds));
}

static mp_status plan_quantized(mp_planner *p) {
    mp_recurrent r;
    k_quantized w;
    k_quantized recurrent;
    mp_ref w_transposed;
    mp_ref r_transposed;
    mp_ref projected;
    MP_TRY(mp_recurrent_read(p, K_CELL_LSTM, &r));
    const weight given[2] = {{"W", MP_RNN_W, IN_W_SCALE, IN_W_ZERO, r.input},
                             {"R", MP_RNN_R, IN_R_SCALE, IN_R_ZERO, r.cell.hidden}};
    MP_TRY(check_weight(p, &given[0], &r.cell, &w));
    MP_TRY(check_weight(p, &given[1], &r.cell, &recurrent));
    if (r.cell.batch == 0) {
        return MP_OK;
    }
    if (r.cell.steps == 0) {
        return mp_recurrent_no_steps(p, &r);
    }
    if (r.input == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "X has no element at a step; at least one is needed");
    }
    MP_TRY(transposed_weight(p, &given[0], &w_transposed));
    MP_TRY(transposed_weight(p, &given[1], &r_transposed));
    MP_TRY(plan_projection(p, &r, &w, w_transposed, &projected));
    return plan_steps(p, &r, &recurrent, r_transposed, projected);
}

/* ---- the row ---- */

static const k_cell_kind lstm = K_CELL_LSTM;

static const mp_attr_def attrs[] = {
    {"activation_alpha", MP_ATTR_FLOATS}, {"activation_beta", MP_ATTR_FLOATS},
    {"activations", MP_ATTR_STRINGS},     {"clip", MP_ATTR_FLOAT},
    {"direction", MP_ATTR_STRING},        {"hidden_size", MP_ATTR_INT},
    {"input_forget", MP_ATTR_INT},        {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "DynamicQuantizeLSTM",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32)},
               {"T1", MP_BIT(MP_I32)},
               {"T2", MP_BIT(MP_I8) | MP_BIT(MP_U8)}},
     .attrs = attrs,
     .plan = plan_quantized,
     .prepare = prepare_weight,
     .detail = &lstm},
};

const mp_op_family mp__family_quantized_lstm = {"quantized_lstm", ops, MP_COUNT_OF(ops)};
