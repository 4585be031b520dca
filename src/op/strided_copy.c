/* strided_copy.c - the step that copies between two layouts: as one run of bytes, by tiles where
 * neighbours in the source are not those in the target, or element by element, in the largest units
 * that fit. SPDX-License-Identifier: Apache-2.0 */
#include "kernel/movement_args.h"
#include "op/movement.h"

#include <string.h>

size_t mp_move_unit(const mp_planner *p, int64_t bytes, size_t size) {
    size_t unit = size;
    while (unit * 2 <= (size_t)p->align && unit < 16 && bytes % (int64_t)(unit * 2) == 0) {
        unit *= 2;
    }
    return unit;
}

/* How many neighbouring elements may move as one: the inner dimension must be contiguous on both
 * sides and every other step and the starts must stay multiples. */
static int64_t elements_per_unit(const mp_planner *p, const k_layout *space, size_t size,
                                 const mp_strided *source, const mp_strided *target) {
    const int inner = space->rank - 1;
    if (space->stride[0][inner] != 1 || space->stride[1][inner] != 1) {
        return 1;
    }
    int64_t per_unit = 1;
    for (int64_t next = 2; next * (int64_t)size <= p->align && next * (int64_t)size <= 16;
         next *= 2) {
        bool fits = space->dim[inner] % next == 0 && source->offset % next == 0 &&
                    target->offset % next == 0;
        for (int d = 0; d < inner; d++) {
            fits = fits && space->stride[0][d] % next == 0 && space->stride[1][d] % next == 0;
        }
        if (!fits) {
            break;
        }
        per_unit = next;
    }
    return per_unit;
}

static void use_units(k_layout *space, int64_t per_unit, int64_t units) {
    const int inner = space->rank - 1;
    space->dim[inner] /= per_unit;
    for (int d = 0; d < inner; d++) {
        space->stride[0][d] /= per_unit;
        space->stride[1][d] /= per_unit;
    }
    space->wide = units > INT32_MAX;
    for (int d = 0; d <= inner && !space->wide; d++) {
        space->divider[d] = mp_divider((uint32_t)space->dim[d]);
    }
    if (inner > 0 && space->dim[inner] == 1) {
        space->rank--; /* whole rows are units now */
    }
}

static bool is_in_order(const k_layout *space) {
    int64_t step = 1;
    for (int d = space->rank - 1; d >= 0; d--) {
        if (space->stride[1][d] != step) {
            return false;
        }
        step *= space->dim[d];
    }
    return true;
}

/* The dimension whose elements are neighbours in the source, where it is another than those of the
 * target and both are long enough for tiles; -1 otherwise. */
static int crossed_dimension(const k_layout *space) {
    enum { LEAST = 8 };
    const int inner = space->rank - 1;
    if (space->stride[0][inner] == 1 || space->stride[1][inner] != 1 || space->dim[inner] < LEAST) {
        return -1;
    }
    for (int d = 0; d < inner; d++) {
        if (space->stride[0][d] == 1 && space->dim[d] >= LEAST) {
            return d;
        }
    }
    return -1;
}

/* Squares along a dimension as a power of two, as far as it needs them; two at least. */
static int32_t squares_along(int64_t size, int64_t side) {
    enum { MOST = 7 };
    int32_t log2 = 1;
    while (log2 < MOST && side << log2 < size) {
        log2++;
    }
    return log2;
}

/* The squares of a tile are those of a block's lanes: as many down as across, but no more than the
 * tensor has of either. */
static void shape_tile(mp_transpose_args *args, int64_t side) {
    enum { LEAST = 5, MOST = 8 }; /* a warp; 256 lanes */
    args->down = squares_along(args->rows, side);
    args->across = squares_along(args->columns, side);
    while (args->down + args->across > MOST) {
        *(args->across > args->down ? &args->across : &args->down) -= 1;
    }
    while (args->down + args->across < LEAST) {
        args->across++;
    }
}

/* Which tiles there are of rows along the inner dimension and columns along `crossed`. */
static mp_transpose_args tiles_of(const k_layout *space, int crossed, int64_t side) {
    enum { X, OUT, ROW, COLUMN, VIEWS };
    const int inner = space->rank - 1;
    mp_transpose_args args = {.rows = space->dim[inner],
                              .columns = space->dim[crossed],
                              .row_stride = space->stride[X][inner],
                              .column_stride = space->stride[OUT][crossed]};
    shape_tile(&args, side);
    const int64_t rows = side << args.down;
    const int64_t columns = side << args.across;
    mp_shape tiles = {.rank = 0};
    int64_t stride[VIEWS][MP_RANK_MAX] = {{0}};
    for (int d = 0; d < inner; d++) {
        if (d != crossed) {
            stride[X][tiles.rank] = space->stride[X][d];
            stride[OUT][tiles.rank] = space->stride[OUT][d];
            tiles.dim[tiles.rank++] = space->dim[d];
        }
    }
    stride[X][tiles.rank] = rows * args.row_stride;
    stride[OUT][tiles.rank] = rows;
    stride[ROW][tiles.rank] = rows;
    tiles.dim[tiles.rank++] = (args.rows - 1) / rows + 1;
    stride[X][tiles.rank] = columns;
    stride[OUT][tiles.rank] = columns * args.column_stride;
    stride[COLUMN][tiles.rank] = columns;
    tiles.dim[tiles.rank++] = (args.columns - 1) / columns + 1;
    args.count = mp_shape_count(&tiles);
    mp_layout_make(&tiles, stride, VIEWS, &args.tiles);
    return args;
}

/* Tile by tile through shared memory, of which a line of each square is a little apart. */
static mp_status plan_tiles(mp_planner *p, const mp_transpose_args *args, size_t size, mp_ref from,
                            mp_ref to) {
    const uint32_t side = K_SQUARE_SIDE((uint32_t)size);
    const uint32_t lines = (side << args->across) * ((1u << args->down) + 1);
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "transpose_b%zu", size * 8));
    mp_grid grid = mp_plan_grid_rows(p, args->count, 1u << (args->down + args->across));
    grid.shared_bytes = lines * side * (uint32_t)size;
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_transpose_args, x, from),
                     MP_BIND(mp_transpose_args, out, to));
}

mp_status mp_plan_strided_copy(mp_planner *p, const mp_shape *shape, size_t size,
                               const mp_strided *source, const mp_strided *target) {
    const int64_t count = mp_shape_count(shape);
    if (count == 0) {
        return MP_OK;
    }
    int64_t stride[2][MP_RANK_MAX];
    memcpy(stride[0], source->stride, sizeof stride[0]);
    memcpy(stride[1], target->stride, sizeof stride[1]);
    mp_strided_copy_args args = {.count = count};
    mp_layout_make(shape, stride, 2, &args.layout);
    const mp_ref from = mp_ref_at(source->ref, (uint64_t)(source->offset * (int64_t)size));
    const mp_ref to = mp_ref_at(target->ref, (uint64_t)(target->offset * (int64_t)size));
    const k_layout *space = &args.layout;
    if (count == 1 || (space->rank == 1 && space->stride[0][0] == 1 && space->stride[1][0] == 1)) {
        return mp_plan_copy(p, to, from, (size_t)count * size);
    }
    const int64_t per_unit = elements_per_unit(p, space, size, source, target);
    const size_t unit = size * (size_t)per_unit;
    args.count /= per_unit;
    use_units(&args.layout, per_unit, args.count);
    const int crossed = crossed_dimension(space);
    if (crossed >= 0) {
        const mp_transpose_args tiles = tiles_of(space, crossed, K_SQUARE_SIDE((int64_t)unit));
        if (!tiles.tiles.wide) {
            return plan_tiles(p, &tiles, unit, from, to);
        }
    }
    const int run = K_COPY_RUN((int)unit);
    args.in_order = is_in_order(space);
    args.in_runs = args.in_order && !space->wide && space->dim[space->rank - 1] >= run;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "strided_copy_b%zu", unit * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.count, args.in_runs ? run : 1), args,
                     MP_BIND(mp_strided_copy_args, x, from),
                     MP_BIND(mp_strided_copy_args, out, to));
}
