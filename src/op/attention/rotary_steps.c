/* rotary_steps.c - heads are rotated by their positions.
 * Kernels: attention/rotary.cu, attention/rotary_append.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/rotary_steps.h"

#include <string.h>

static bool can_pack(const mp_planner *p, const mp_rotary *r) {
    const int64_t size = (int64_t)mp_dtype_size(r->type);
    const int64_t pack = 16 / size;
    bool fits = p->align >= 16 && r->base == 0 && r->rotated / 2 % pack == 0 &&
                (r->head_size - r->rotated) % (2 * pack) == 0 && r->x.ref.offset % 16 == 0 &&
                r->out.ref.offset % 16 == 0 && r->weight.offset % 16 == 0;
    for (int d = 0; d < 3; d++) {
        fits = fits && r->x.stride[d] % pack == 0 && r->out.stride[d] % pack == 0 &&
               r->cache_stride[d] % pack == 0;
    }
    return fits;
}

/* ---- Q, K and V in one launch ---- */

static int64_t pack_of(const mp_rotary *r) {
    return 16 / (int64_t)mp_dtype_size(r->type);
}

static int64_t pieces_of(const mp_rotary_append *a) {
    return a->rotary.head_size / 2 / pack_of(&a->rotary);
}

static int64_t heads_of(const mp_rotary_append *a) {
    return a->heads[0] + a->heads[1] + a->heads[2];
}

/* Pieces of both caches. */
static double kept_of(const mp_rotary_append *a) {
    return !a->grows ? 0
                     : 2.0 * (double)a->rotary.batch * (double)a->heads[1] *
                           (double)a->present_rows * (double)pieces_of(a);
}

bool mp_can_rotary_append(const mp_planner *p, const mp_rotary_append *a) {
    const mp_rotary *r = &a->rotary;
    const double count =
        (double)r->batch * (double)r->rows * (double)heads_of(a) * (double)pieces_of(a) +
        kept_of(a);
    bool fits = r->position_kind != K_POSITION_FIRST && r->position_kind != K_POSITION_AXES &&
                r->cache_rows > 0 && r->rows > 0 && (a->heads[1] > 0 || !a->grows) && count > 0 &&
                count <= (double)INT32_MAX;
    for (int side = 0; side < 3; side++) {
        mp_rotary one = *r;
        one.x = a->x[side];
        one.out = a->out[side];
        one.weight = side < 2 ? a->weight[side] : MP_NOWHERE;
        fits = fits && (a->heads[side] == 0 || can_pack(p, &one));
    }
    return fits;
}

static void set_sides(const mp_rotary_append *a, mp_rotary_append_args *args) {
    for (int side = 0; side < 3; side++) {
        args->side[side].appends = a->appends[side];
        args->side[side].epsilon = side < 2 ? a->epsilon[side] : 0;
        memcpy(args->side[side].x_stride, a->x[side].stride, sizeof a->x[side].stride);
        memcpy(args->side[side].out_stride, a->out[side].stride, sizeof a->out[side].stride);
    }
}

mp_status mp_plan_rotary_append(mp_planner *p, const mp_rotary_append *a) {
    const mp_rotary *r = &a->rotary;
    const int64_t heads = heads_of(a), pieces = pieces_of(a);
    const bool given = r->position_kind == K_POSITION_GIVEN;
    mp_rotary_append_args args = {
        .count = r->batch * r->rows * heads * pieces,
        .rows = r->rows,
        .present_rows = a->present_rows,
        .cache_rows = r->cache_rows,
        .first = {0, (int32_t)a->heads[0], (int32_t)(a->heads[0] + a->heads[1])},
        .heads = (int32_t)heads,
        .pieces = (int32_t)pieces,
        .half = (int32_t)(r->rotated / 2),
        .interleaved = r->interleaved,
        .prompt = r->prompt,
        .placed = a->placed,
        .past_more = (a->whole ? 0 : 1) - r->rows,
        .position_kind = (int32_t)r->position_kind,
        .scale = r->scaled ? r->scale : 1,
        .past = r->past,
        .by_pieces = mp_divider((uint32_t)pieces),
        .by_heads = mp_divider((uint32_t)heads),
        .by_rows = mp_divider((uint32_t)r->rows)};
    if (a->grows) {
        args.batch = r->batch;
        args.past_rows = a->past_rows;
        args.kept = (int64_t)kept_of(a);
        args.by_present = mp_divider((uint32_t)a->present_rows);
        args.by_kv_heads = mp_divider((uint32_t)a->heads[1]);
        args.by_batch = mp_divider((uint32_t)r->batch);
    }
    memcpy(args.cache_stride, r->cache_stride, sizeof args.cache_stride);
    set_sides(a, &args);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "rotary_append_%s", mp_dtype_word(r->type)));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count + args.kept, 1), args,
                     MP_BIND(mp_rotary_append_args, side[0].x, a->x[0].ref),
                     MP_BIND(mp_rotary_append_args, side[1].x, a->x[1].ref),
                     MP_BIND(mp_rotary_append_args, side[2].x, a->x[2].ref),
                     MP_BIND(mp_rotary_append_args, side[0].out, a->out[0].ref),
                     MP_BIND(mp_rotary_append_args, side[1].out, a->out[1].ref),
                     MP_BIND(mp_rotary_append_args, side[2].out, a->out[2].ref),
                     MP_BIND(mp_rotary_append_args, side[0].weight, a->weight[0]),
                     MP_BIND(mp_rotary_append_args, side[1].weight, a->weight[1]),
                     MP_BIND(mp_rotary_append_args, cosine, r->cosine),
                     MP_BIND(mp_rotary_append_args, sine, r->sine),
                     MP_BIND(mp_rotary_append_args, positions, given ? r->positions : MP_NOWHERE),
                     MP_BIND(mp_rotary_append_args, old[0], a->past[0]),
                     MP_BIND(mp_rotary_append_args, old[1], a->past[1]),
                     MP_BIND(mp_rotary_append_args, lengths, a->lengths));
}

/* ---- one tensor ---- */

/* As the first side of a launch for several, whose kernel is the shorter one. */
static mp_rotary_append alone(const mp_rotary *r) {
    const bool by_lengths = r->position_kind == K_POSITION_LENGTHS;
    return (mp_rotary_append){.rotary = *r,
                              .heads = {r->heads},
                              .x = {r->x},
                              .out = {r->out},
                              .weight = {r->weight},
                              .epsilon = {r->epsilon},
                              .lengths = by_lengths ? r->positions : MP_NOWHERE,
                              .present_rows = r->rows};
}

mp_status mp_plan_rotary(mp_planner *p, const mp_rotary *r) {
    const bool packed = can_pack(p, r);
    const mp_rotary_append one = alone(r);
    if (mp_can_rotary_append(p, &one)) {
        return mp_plan_rotary_append(p, &one);
    }
    const int64_t pack = packed ? 16 / (int64_t)mp_dtype_size(r->type) : 1;
    mp_rotary_args args = {.batch = r->batch,
                           .heads = r->heads,
                           .rows = r->rows,
                           .cache_rows = r->cache_rows,
                           .pieces = (r->head_size + 1) / 2 / pack,
                           .head_size = (int32_t)r->head_size,
                           .half = (int32_t)(r->rotated / 2),
                           .interleaved = r->interleaved,
                           .position_kind = (int32_t)r->position_kind,
                           .prompt = r->prompt,
                           .packed = packed,
                           .axes_mixed = r->axes_mixed,
                           .axis_end = {r->axis_end[0], r->axis_end[1]},
                           .scale = r->scaled ? r->scale : 1,
                           .base = r->base,
                           .epsilon = r->epsilon,
                           .past = r->past};
    memcpy(args.x_stride, r->x.stride, sizeof args.x_stride);
    memcpy(args.cache_stride, r->cache_stride, sizeof args.cache_stride);
    memcpy(args.out_stride, r->out.stride, sizeof args.out_stride);
    const int64_t count = r->batch * r->heads * r->rows * args.pieces;
    if (count == 0) {
        return MP_OK;
    }
    if (r->cache_rows < 1) {
        return MP_FAIL(INVALID_ARGUMENT, "cos_cache and sin_cache have no row for any position");
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "rotary_%s", mp_dtype_word(r->type)));
    return MP_LAUNCH(
        p, kernel, mp_plan_grid(p, count, 1), args, MP_BIND(mp_rotary_args, x, r->x.ref),
        MP_BIND(mp_rotary_args, out, r->out.ref), MP_BIND(mp_rotary_args, cosine, r->cosine),
        MP_BIND(mp_rotary_args, sine, r->sine), MP_BIND(mp_rotary_args, positions, r->positions),
        MP_BIND(mp_rotary_args, weight, r->weight));
}
