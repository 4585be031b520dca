/* padding.c - RemovePadding and RestorePadding of com.microsoft. How many rows stay depends on
 * data, so they are counted first.
 * Kernels: attention/padding_count.cu, attention/padding_places.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/attention/padding_steps.h"
#include "op/core/families.h"

enum { OUT_Y, OUT_PLACES, OUT_STARTS, OUT_MOST };
enum { STARTS_AT = MP_ALIGNMENT, COUNT_LANES = 256 };

static mp_status launch(mp_planner *p, const char *name, mp_grid grid, const mp_padding_args *args,
                        const mp_ref *x, mp_ref kept, mp_ref places) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "%s", name));
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_padding_args, x, *x),
                     MP_BIND(mp_padding_args, counts, *x), MP_BIND(mp_padding_args, found, kept),
                     MP_BIND(mp_padding_args, starts, mp_ref_at(kept, STARTS_AT)),
                     MP_BIND(mp_padding_args, places, places));
}

/* ---- RemovePadding ---- */

static mp_status read_remove(const mp_planner *p, mp_padding_args *args) {
    const mp_shape *x = &p->in[0].shape;
    const mp_shape *counts = &p->in[1].shape;
    char text[2][MP_SHAPE_TEXT];
    if (x->rank != 3 || counts->rank != 1 || counts->dim[0] != x->dim[0]) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "an input of shape %s with counts of shape %s; it must be of batch, rows and "
            "width, with a count for each entry",
            mp_shape_text(x, text[0]), mp_shape_text(counts, text[1]));
    }
    if (x->dim[1] > 0 && x->dim[0] > INT32_MAX / x->dim[1]) {
        return MP_FAIL(UNSUPPORTED,
                       "an input of shape %s; places are of 32 bits, so more than "
                       "2147483647 rows are not supported",
                       mp_shape_text(x, text[0]));
    }
    *args = (mp_padding_args){.batch = x->dim[0], .length = x->dim[1]};
    return MP_OK;
}

static mp_status plan_remove(mp_planner *p) {
    mp_padding_args args;
    mp_ref kept = MP_NOWHERE;
    const mp_ref counts = MP_IN(1);
    MP_TRY(read_remove(p, &args));
    const size_t starts = ((size_t)args.batch + 1) * sizeof(int32_t);
    MP_TRY(mp_plan_scratch(p, STARTS_AT + starts, &kept));
    MP_TRY(mp_plan_read_back(p, kept, 2));
    return launch(p, "padding_count", (mp_grid){.blocks = 1, .lanes = COUNT_LANES}, &args, &counts,
                  kept, MP_NOWHERE);
}

static mp_status finish_remove(mp_planner *p, const int64_t *found) {
    mp_padding_args args;
    MP_TRY(read_remove(p, &args));
    const int64_t width = p->in[0].shape.dim[2];
    const int64_t rows = args.batch * args.length;
    const int32_t most = (int32_t)found[1];
    if (found[0] < 0 || found[0] > rows || found[1] < 0 || found[1] > args.length) {
        return MP_FAIL(DEVICE, "%lld of %lld rows were counted, %lld at most in an entry",
                       (long long)found[0], (long long)rows, (long long)found[1]);
    }
    const mp_shape y = {.rank = 2, .dim = {found[0], width}};
    const mp_shape places = {.rank = 2, .dim = {args.batch, args.length}};
    const mp_shape starts = {.rank = 1, .dim = {args.batch + 1}};
    const mp_shape one = {.rank = 1, .dim = {1}};
    const mp_padding pad = {.type = p->in[0].type,
                            .kind = K_ROWS_PACKED,
                            .batch = args.batch,
                            .length = args.length,
                            .width = width,
                            .given = rows,
                            .rows = found[0],
                            .count = 1,
                            .x = {MP_IN(0)},
                            .out = {MP_OUT(OUT_Y)},
                            .starts = mp_ref_at(MP_KEPT, STARTS_AT)};
    MP_TRY(mp_plan_output(p, OUT_Y, p->in[0].type, &y));
    MP_TRY(mp_plan_output(p, OUT_PLACES, MP_I32, &places));
    MP_TRY(mp_plan_output(p, OUT_STARTS, MP_I32, &starts));
    MP_TRY(mp_plan_output(p, OUT_MOST, MP_I32, &one));
    MP_TRY(mp_plan_host_output(p, OUT_MOST, &most, sizeof most));
    MP_TRY(
        mp_plan_copy(p, MP_OUT(OUT_STARTS), pad.starts, sizeof(int32_t) * (size_t)starts.dim[0]));
    if (rows > 0) {
        MP_TRY(launch(p, "padding_places", mp_plan_grid(p, rows, 1), &args, &pad.x[0], MP_KEPT,
                      MP_OUT(OUT_PLACES)));
    }
    return mp_plan_padding(p, &pad);
}

/* ---- RestorePadding ---- */

/* By the inverse of the list: so each row of the result is written once, and a place that the list
 * names not at all has no row. Of several rows for one place some one is there. */
static mp_status plan_restore(mp_planner *p) {
    const mp_shape *x = &p->in[0].shape;
    const mp_shape *list = &p->in[1].shape;
    if (x->rank != 2 || list->rank != 2 || x->dim[0] > INT32_MAX) {
        char text[2][MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "an input of shape %s with offsets of shape %s; they must be of tokens and "
                       "width, and of batch and rows",
                       mp_shape_text(x, text[0]), mp_shape_text(list, text[1]));
    }
    const mp_shape y = {.rank = 3, .dim = {list->dim[0], list->dim[1], x->dim[1]}};
    const int64_t rows = mp_shape_count(list);
    mp_padding pad = {.type = p->in[0].type,
                      .kind = K_ROWS_LISTED,
                      .width = x->dim[1],
                      .given = x->dim[0],
                      .rows = rows,
                      .count = 1,
                      .x = {MP_IN(0)},
                      .out = {MP_OUT(OUT_Y)}};
    const mp_padding_args args = {.inverse = 1, .given = MP_MIN(x->dim[0], rows), .rows = rows};
    const mp_ref listed = MP_IN(1);
    MP_TRY(mp_plan_output(p, OUT_Y, p->in[0].type, &y));
    if (mp_shape_count(&y) == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_scratch_of(p, rows, MP_I32, &pad.places));
    MP_TRY(mp_plan_fill(p, pad.places, UINT32_MAX, sizeof(int32_t), (size_t)rows));
    if (args.given > 0) {
        MP_TRY(launch(p, "padding_places", mp_plan_grid(p, args.given, 1), &args, &listed,
                      MP_NOWHERE, pad.places));
    }
    return mp_plan_padding(p, &pad);
}

/* ---- the rows ---- */

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "RemovePadding",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16)}, {"M", MP_BIT(MP_I32)}},
     .host_out = 1u << OUT_MOST,
     .plan = plan_remove,
     .finish = finish_remove},
    {.domain = "com.microsoft",
     .name = "RestorePadding",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16)}, {"M", MP_BIT(MP_I32)}},
     .plan = plan_restore},
};

const mp_op_family mp__family_padding = {"padding", ops, MP_COUNT_OF(ops)};
