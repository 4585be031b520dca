/* nms.c - NonMaxSuppression: the best boxes of each class that do not overlap better ones. How many
 * that are depends on data, so they are selected first and written once the count is known.
 * Long lists are sorted and the overlaps of many boxes found side by side, of others the best box
 * is sought again and again.
 *
 * Kernels: image/nms_select.cu, image/nms_order.cu, image/nms_overlaps.cu, image/nms_pick.cu,
 * image/nms_write.cu, move/compact_scan.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/window_args.h"
#include "kernel/move/indexed_args.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

#include <math.h>

enum { LANES = 512, SCAN_LANES = 256 };

/* The scratch memory that stays for the step that writes: the total, the starts, what is picked. */
typedef struct kept_layout {
    size_t starts, picked, size;
} kept_layout;

/* A float on the host; absent or empty inputs leave `*out`. */
static mp_status host_float(const mp_planner *p, int i, const char *what, bool *given, float *out) {
    const mp_tensor *value = mp_plan_in(p, i);
    *given = value != NULL && mp_shape_count(&value->shape) > 0;
    if (!*given) {
        return MP_OK;
    }
    if (mp_shape_count(&value->shape) != 1) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "%s of shape %s must be one number", what,
                       mp_shape_text(&value->shape, text));
    }
    *out = *(const float *)(uintptr_t)value->data;
    return MP_OK;
}

static mp_status read_limits(const mp_planner *p, mp_nms_args *args) {
    int64_t most = 0;
    int count = 0;
    bool given = false, has_threshold = false;
    MP_TRY(mp_host_ints(p, 2, "max_output_boxes_per_class", 1, &most, &count));
    MP_TRY(host_float(p, 3, "iou_threshold", &given, &args->overlap));
    MP_TRY(host_float(p, 4, "score_threshold", &has_threshold, &args->threshold));
    if (!(args->overlap >= 0 && args->overlap <= 1)) {
        return MP_FAIL(INVALID_ARGUMENT, "iou_threshold %g must be within 0 and 1",
                       (double)args->overlap);
    }
    args->has_threshold = has_threshold;
    args->centred = mp_node_int(p->node, "center_point_box", 0) != 0;
    args->most = count < 1 || most < 0 ? 0 : MP_MIN(most, args->count);
    return MP_OK;
}

static mp_status read_inputs(const mp_planner *p, mp_nms_args *args) {
    const mp_shape *boxes = &p->in[0].shape, *scores = &p->in[1].shape;
    char boxes_text[MP_SHAPE_TEXT];
    char scores_text[MP_SHAPE_TEXT];
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dim[2] != 4 ||
        boxes->dim[0] != scores->dim[0] || boxes->dim[1] != scores->dim[2]) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "boxes of shape %s and scores of shape %s must be [batches, boxes, 4] and "
                       "[batches, classes, boxes]",
                       mp_shape_text(boxes, boxes_text), mp_shape_text(scores, scores_text));
    }
    if (boxes->dim[1] > INT32_MAX) {
        return MP_FAIL(UNSUPPORTED, "%lld boxes are more than 2^31", (long long)boxes->dim[1]);
    }
    *args = (mp_nms_args){.lists = scores->dim[0] * scores->dim[1],
                          .classes = scores->dim[1],
                          .count = scores->dim[2],
                          .words = MP_CEIL_DIV(scores->dim[2], K_NMS_WORD)};
    return read_limits(p, args);
}

static mp_status lay_out(const mp_nms_args *args, kept_layout *out) {
    size_t picked = 0;
    if (__builtin_mul_overflow(args->lists, args->most, &picked) ||
        __builtin_mul_overflow(picked, sizeof(int32_t), &picked) || picked > SIZE_MAX / 4) {
        return MP_FAIL(INVALID_ARGUMENT, "%lld lists of %lld boxes are too many",
                       (long long)args->lists, (long long)args->most);
    }
    out->starts = MP_ALIGNMENT;
    out->picked = out->starts + (size_t)args->lists * sizeof(int64_t);
    out->size = out->picked + picked;
    return MP_OK;
}

/* Bytes of the words that say what one box of each list overlaps. */
static int64_t row_bytes(const mp_nms_args *args) {
    return args->lists * args->words * (int64_t)sizeof(uint64_t);
}

/* Whether overlaps of many boxes are found at once: each that is selected would be a round through
 * the list. Boxes are sorted by counting those that are better, and a block keeps a bit of each;
 * for the few lanes of the emulated device that is soon too much. */
static bool is_sorted_first(const mp_planner *p, const mp_nms_args *args) {
    const int64_t most = p->device->info.arch == 0 ? 1 << 12 : 1 << 16;
    enum { ROUNDS = 16, LISTS = 1 << 16, BYTES = 256 << 20 };
    return args->most > ROUNDS && args->count > ROUNDS && args->count <= most &&
           args->lists <= LISTS && row_bytes(args) <= BYTES / K_NMS_WORD;
}

/* Of how many boxes the overlaps are known at a time: on the emulated device of a third, so that it
 * does what a GPU does for long lists. */
static int64_t rows_of(const mp_planner *p, const mp_nms_args *args) {
    enum { BYTES = 64 << 20, EMULATED = 3 };
    const int64_t rows = p->device->info.arch == 0 ? MP_CEIL_DIV(args->count, (int64_t)EMULATED)
                                                   : BYTES / row_bytes(args);
    const int64_t some = MP_MAX(rows / K_NMS_WORD, 1) * K_NMS_WORD;
    return MP_MIN(some, MP_ALIGN_UP(args->count, (int64_t)K_NMS_WORD));
}

static mp_status plan_sorted(mp_planner *p, mp_nms_args *args, mp_ref picked, mp_ref starts) {
    enum { ORDER_LANES = 128, PICK_LANES = 256, CORNERS = 4 };
    const int64_t boxes = args->lists * args->count;
    mp_ref order = MP_NOWHERE, sorted = MP_NOWHERE, bits = MP_NOWHERE, taken = MP_NOWHERE;
    const mp_kernel *sort = NULL, *compare = NULL, *pick = NULL;
    args->rows = rows_of(p, args);
    MP_TRY(mp_plan_scratch(p, (size_t)boxes * sizeof(int32_t), &order));
    MP_TRY(mp_plan_scratch(p, (size_t)boxes * CORNERS * sizeof(float), &sorted));
    MP_TRY(mp_plan_scratch(p, (size_t)(args->rows * row_bytes(args)), &bits));
    MP_TRY(mp_plan_scratch(p, (size_t)row_bytes(args), &taken));
    MP_TRY(mp_plan_kernel(p, &sort, "nms_order"));
    MP_TRY(mp_plan_kernel(p, &compare, "nms_overlaps"));
    MP_TRY(mp_plan_kernel(p, &pick, "nms_pick"));
    MP_TRY(MP_LAUNCH(p, sort, mp_plan_grid_rows(p, boxes, ORDER_LANES), *args,
                     MP_BIND(mp_nms_args, boxes, MP_IN(0)), MP_BIND(mp_nms_args, scores, MP_IN(1)),
                     MP_BIND(mp_nms_args, order, order), MP_BIND(mp_nms_args, sorted, sorted)));
    mp_grid grid = mp_plan_grid_rows(p, args->lists, PICK_LANES);
    grid.shared_bytes = (uint32_t)((size_t)(K_NMS_WORD + 1 + args->words) * sizeof(uint64_t));
    for (args->first = 0; args->first < args->count; args->first += args->rows) {
        MP_TRY(MP_LAUNCH(p, compare, mp_plan_grid(p, args->lists * args->rows * args->words, 1),
                         *args, MP_BIND(mp_nms_args, order, order),
                         MP_BIND(mp_nms_args, sorted, sorted), MP_BIND(mp_nms_args, bits, bits),
                         MP_BIND(mp_nms_args, starts, starts)));
        MP_TRY(MP_LAUNCH(p, pick, grid, *args, MP_BIND(mp_nms_args, order, order),
                         MP_BIND(mp_nms_args, bits, bits), MP_BIND(mp_nms_args, taken, taken),
                         MP_BIND(mp_nms_args, picked, picked),
                         MP_BIND(mp_nms_args, starts, starts)));
    }
    return MP_OK;
}

static mp_status plan_in_rounds(mp_planner *p, const mp_nms_args *args, mp_ref picked,
                                mp_ref starts) {
    mp_ref gone = MP_NOWHERE;
    const mp_kernel *select = NULL;
    MP_TRY(mp_plan_scratch(p, (size_t)(args->lists * args->count), &gone));
    MP_TRY(mp_plan_kernel(p, &select, "nms_select"));
    return MP_LAUNCH(p, select, mp_plan_grid_rows(p, args->lists, LANES), *args,
                     MP_BIND(mp_nms_args, boxes, MP_IN(0)), MP_BIND(mp_nms_args, scores, MP_IN(1)),
                     MP_BIND(mp_nms_args, gone, gone), MP_BIND(mp_nms_args, picked, picked),
                     MP_BIND(mp_nms_args, starts, starts));
}

static mp_status plan_nms(mp_planner *p) {
    mp_nms_args args;
    kept_layout at;
    mp_ref kept = MP_NOWHERE;
    const mp_kernel *scan = NULL;
    MP_TRY(read_inputs(p, &args));
    MP_TRY(lay_out(&args, &at));
    MP_TRY(mp_plan_scratch(p, at.size, &kept));
    MP_TRY(mp_plan_read_back(p, kept, 1));
    if (args.lists == 0 || args.most == 0) {
        return mp_plan_fill(p, kept, 0, 1, sizeof(int64_t));
    }
    const mp_compact_args total = {.tiles = args.lists};
    const mp_ref picked = mp_ref_at(kept, at.picked), starts = mp_ref_at(kept, at.starts);
    MP_TRY(is_sorted_first(p, &args) ? plan_sorted(p, &args, picked, starts)
                                     : plan_in_rounds(p, &args, picked, starts));
    MP_TRY(mp_plan_kernel(p, &scan, "compact_scan"));
    return MP_LAUNCH(p, scan, ((mp_grid){.blocks = 1, .lanes = SCAN_LANES}), total,
                     MP_BIND(mp_compact_args, starts, starts),
                     MP_BIND(mp_compact_args, total, kept));
}

static mp_status finish_nms(mp_planner *p, const int64_t *found) {
    mp_nms_args args;
    kept_layout at;
    const mp_kernel *kernel = NULL;
    MP_TRY(read_inputs(p, &args));
    MP_TRY(lay_out(&args, &at));
    args.found = found[0];
    if (args.found < 0 || args.found > args.lists * args.most) {
        return MP_FAIL(DEVICE, "%lld boxes were selected of %lld at most", (long long)args.found,
                       (long long)(args.lists * args.most));
    }
    const mp_shape out = {.rank = 2, .dim = {args.found, 3}};
    MP_TRY(mp_plan_output(p, 0, MP_I64, &out));
    if (args.found == 0) {
        return MP_OK;
    }
    MP_TRY(mp_plan_kernel(p, &kernel, "nms_write"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.lists * args.most, 1), args,
                     MP_BIND(mp_nms_args, picked, mp_ref_at(MP_KEPT, at.picked)),
                     MP_BIND(mp_nms_args, starts, mp_ref_at(MP_KEPT, at.starts)),
                     MP_BIND(mp_nms_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {{"center_point_box", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "NonMaxSuppression",
     .since = 10,
     .until = 11,
     .host_in = 1u << 2 | 1u << 3 | 1u << 4,
     .attrs = attrs,
     .plan = plan_nms,
     .finish = finish_nms},
};

const mp_op_family mp__family_nms = {"nms", ops, MP_COUNT_OF(ops)};
