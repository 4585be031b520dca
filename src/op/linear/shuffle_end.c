/* shuffle_end.c - ShuffleEnd: of an image with channels last windows of 3 x 3 of each channel,
 * times a matrix, and a Relu; what that makes comes in turns with the channels of the image `even`,
 * and goes to one tensor or to two. A pass puts it in the place of two convolutions and a
 * ShuffleParts.
 *
 * Inputs: even, x, the windows as [9, channels] with a bias behind them, the matrix as [channels,
 * columns], and its bias, which may be left out.
 * Kernel: linear/shuffle_end.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/linear/shuffle_end_args.h"
#include "op/core/channels.h"
#include "op/core/families.h"
#include "op/core/host_input.h"

enum { EVEN, X, TAPS, MATRIX, BIAS, INPUTS, IMAGE_RANK = 4, OUTS_MAX = 2 };
enum { N, H, W, C };
enum { PACK_MAX = 4, ALIGN = 16, HELD_MAX = 48 << 10 /* what every GPU gives a block */ };

/* ---- what it takes ---- */

typedef struct end_size {
    int64_t pixels, channels, columns; /* that are made, of x, of the matrix */
    int64_t strides[2], pads[4];
} end_size;

/* Whether there is so little of it that launches weigh more than the work, which tensor cores would
 * do sooner. */
static bool is_little(const end_size *size) {
    enum { STRIDE_MAX = 2, PAD_MAX = 2, WORK_MAX = 12000000 /* multiplications */ };
    int64_t products = 0;
    bool fits = size->channels >= 2 && size->channels % 2 == 0 && size->columns >= 2 &&
                size->columns % 2 == 0 && size->columns <= INT32_MAX / 2 && size->pixels > 0 &&
                size->channels <= HELD_MAX / (int64_t)sizeof(float) &&
                K_SHUFFLE_END_BYTES((int32_t)size->channels, K_SHUFFLE_END_LEAST) <= HELD_MAX &&
                !__builtin_mul_overflow(size->pixels, size->channels, &products) &&
                !__builtin_mul_overflow(products, size->columns, &products) && products <= WORK_MAX;
    for (int i = 0; i < 2; i++) {
        fits = fits && size->strides[i] >= 1 && size->strides[i] <= STRIDE_MAX;
    }
    for (int i = 0; i < 4; i++) {
        fits = fits && size->pads[i] >= 0 && size->pads[i] <= PAD_MAX;
    }
    return fits;
}

/* Of what the attributes say there are two strides and four pads. */
static mp_status read_size(const mp_planner *p, end_size *size) {
    const mp_shape *even = &p->in[EVEN].shape, *matrix = &p->in[MATRIX].shape;
    int strides = 0, pads = 0;
    MP_TRY(mp_listed_ints(p, "strides", -1, 2, size->strides, &strides));
    MP_TRY(mp_listed_ints(p, "pads", -1, 4, size->pads, &pads));
    if (strides != 2 || pads != 4 || even->rank != IMAGE_RANK || matrix->rank != 2) {
        return MP_FAIL(INVALID_ARGUMENT, "%d strides, %d pads, or images of other dimensions",
                       strides, pads);
    }
    size->channels = matrix->dim[0];
    size->columns = matrix->dim[1];
    size->pixels = 1;
    for (int d = N; d < C; d++) {
        if (even->dim[d] < 0 || __builtin_mul_overflow(size->pixels, even->dim[d], &size->pixels)) {
            size->pixels = 0; /* not known, or too many */
            break;
        }
    }
    return MP_OK;
}

static mp_status accept(const mp_planner *p) {
    end_size size = {0};
    MP_TRY(read_size(p, &size));
    return is_little(&size) ? MP_OK
                            : MP_FAIL(UNSUPPORTED, "no kernel makes so many pixels in one launch");
}

/* ---- how it is cut ---- */

/* Columns of a block: as many as leave a block for most multiprocessors, since what few columns
 * need of windows is made again and again. */
static void cut(const mp_device_info *info, mp_shuffle_end_args *a) {
    const int64_t tiles = MP_CEIL_DIV(a->pixels, K_SHUFFLE_END_PIXELS);
    int32_t log = K_SHUFFLE_END_MOST;
    while (log > K_SHUFFLE_END_LEAST &&
           (tiles * MP_CEIL_DIV(a->columns, 1 << log) * 3 < info->multiprocessors * 2 ||
            K_SHUFFLE_END_BYTES(a->channels, log) > HELD_MAX || a->columns <= 1 << (log - 1))) {
        log--;
    }
    a->columns_log = log;
    a->column_tiles = (int32_t)MP_CEIL_DIV(a->columns, 1 << log);
}

/* ---- the tensors ---- */

static mp_status refuse(const mp_planner *p) {
    char even[MP_SHAPE_TEXT], x[MP_SHAPE_TEXT], matrix[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT,
                   "images of shape %s and %s and a matrix of shape %s do not fit, or are too much",
                   mp_shape_text(&p->in[EVEN].shape, even), mp_shape_text(&p->in[X].shape, x),
                   mp_shape_text(&p->in[MATRIX].shape, matrix));
}

static bool is_row(const mp_tensor *t, int64_t length) {
    return t == NULL || (t->shape.rank == 1 && t->shape.dim[0] == length);
}

static bool is_matrix(const mp_tensor *t, int64_t rows, int64_t columns) {
    return t->shape.rank == 2 && t->shape.dim[0] == rows && t->shape.dim[1] == columns;
}

static bool is_out(const end_size *size, int axis, int64_t in, int64_t out) {
    const int64_t padded = in + size->pads[axis] + size->pads[axis + 2];
    return in > 0 && padded >= K_SHUFFLE_END_SIDE &&
           (padded - K_SHUFFLE_END_SIDE) / size->strides[axis] + 1 == out;
}

static mp_status describe(const mp_planner *p, mp_shuffle_end_args *a) {
    const mp_shape *even = &p->in[EVEN].shape, *x = &p->in[X].shape;
    end_size size = {0};
    MP_TRY(read_size(p, &size));
    if (x->rank != IMAGE_RANK || even->dim[N] != x->dim[N] || even->dim[C] != size.columns ||
        x->dim[C] != size.channels || !is_little(&size) ||
        !is_out(&size, 0, x->dim[H], even->dim[H]) || !is_out(&size, 1, x->dim[W], even->dim[W]) ||
        !is_matrix(&p->in[TAPS], K_SHUFFLE_END_ROWS, size.channels) ||
        !is_row(mp_plan_in(p, BIAS), size.columns)) {
        return refuse(p);
    }
    *a = (mp_shuffle_end_args){
        .height = (int32_t)x->dim[H],
        .width = (int32_t)x->dim[W],
        .channels = (int32_t)size.channels,
        .columns = (int32_t)size.columns,
        .out_height = (int32_t)even->dim[H],
        .out_width = (int32_t)even->dim[W],
        .pixels = (int32_t)size.pixels,
        .stride = {(int32_t)size.strides[0], (int32_t)size.strides[1]},
        .pad = {(int32_t)size.pads[0], (int32_t)size.pads[1]},
        .in_pairs = p->align >= ALIGN,
        .by_width = mp_divider((uint32_t)even->dim[W]),
        .by_height = mp_divider((uint32_t)even->dim[H]),
    };
    return MP_OK;
}

/* Channels of the outputs: pairs, of which there are as many as columns. */
static mp_status declare_outs(mp_planner *p, mp_shuffle_end_args *a) {
    int64_t sizes[OUTS_MAX] = {2 * (int64_t)a->columns, 0};
    int count = 0;
    mp_shape shape = p->in[EVEN].shape;
    MP_TRY(mp_listed_ints(p, "sizes", -1, OUTS_MAX, sizes, &count));
    count = MP_MAX(count, 1);
    if (count != p->out_count || sizes[0] < 0 || sizes[1] < 0 || sizes[0] % 2 != 0 ||
        sizes[0] + (count > 1 ? sizes[1] : 0) != 2 * (int64_t)a->columns) {
        return MP_FAIL(INVALID_ARGUMENT, "%d outputs do not have %d pairs of channels",
                       p->out_count, a->columns);
    }
    for (int i = 0; i < count; i++) {
        if (!mp_plan_wants(p, i)) {
            return MP_FAIL(INVALID_ARGUMENT, "output %d is left out", i);
        }
        shape.dim[C] = sizes[i];
        MP_TRY(mp_plan_output(p, i, p->in[EVEN].type, &shape));
    }
    a->first_pairs = (int32_t)(sizes[0] / 2);
    return MP_OK;
}

static mp_status plan_end(mp_planner *p) {
    mp_shuffle_end_args args;
    mp_ref in[INPUTS] = {[EVEN] = MP_IN(EVEN), [BIAS] = MP_NOWHERE};
    MP_TRY(describe(p, &args));
    MP_TRY(declare_outs(p, &args));
    for (int i = X; i <= MATRIX; i++) {
        MP_TRY(mp_plan_aligned(p, i, &in[i])); /* it is read by packs and pairs */
    }
    if (mp_plan_in(p, BIAS) != NULL) {
        in[BIAS] = MP_IN(BIAS);
    }
    cut(&p->device->info, &args);
    const int32_t each = args.channels % PACK_MAX == 0 ? PACK_MAX : PACK_MAX / 2;
    args.by_packs = mp_divider((uint32_t)(args.channels / each));
    args.by_tiles = mp_divider((uint32_t)args.column_tiles);
    args.constant = 1;
    for (int i = TAPS; i < INPUTS; i++) {
        args.constant = args.constant && mp_plan_is_constant(p, in[i]);
    }
    const mp_kernel *kernel = NULL;
    const mp_grid grid = {
        .blocks = (uint32_t)(MP_CEIL_DIV(args.pixels, K_SHUFFLE_END_PIXELS) * args.column_tiles),
        .lanes = K_SHUFFLE_END_LANES,
        .shared_bytes = (uint32_t)K_SHUFFLE_END_BYTES(args.channels, args.columns_log)};
    MP_TRY(
        mp_plan_kernel(p, &kernel, "shuffle_end_%d_%s", (int)each, mp_dtype_word(p->in[X].type)));
    return MP_LAUNCH(
        p, kernel, grid, args, MP_BIND(mp_shuffle_end_args, even, in[EVEN]),
        MP_BIND(mp_shuffle_end_args, x, in[X]), MP_BIND(mp_shuffle_end_args, taps, in[TAPS]),
        MP_BIND(mp_shuffle_end_args, matrix, in[MATRIX]),
        MP_BIND(mp_shuffle_end_args, bias, in[BIAS]),
        MP_BIND(mp_shuffle_end_args, first, MP_OUT(0)),
        MP_BIND(mp_shuffle_end_args, second, p->out_count > 1 ? MP_OUT(1) : MP_NOWHERE));
}

static const mp_attr_def attrs[] = {
    {"strides", MP_ATTR_INTS}, {"pads", MP_ATTR_INTS}, {"sizes", MP_ATTR_INTS}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = MP_OWN_NHWC_DOMAIN,
     .name = "ShuffleEnd",
     .since = 1,
     .until = 1,
     .types = {{"T", MP_BIT(MP_F32) | MP_BIT(MP_F16) | MP_BIT(MP_BF16)}},
     .attrs = attrs,
     .plan = plan_end,
     .accept = accept},
};

const mp_op_family mp__family_shuffle_end = {"shuffle_end", ops, MP_COUNT_OF(ops)};
