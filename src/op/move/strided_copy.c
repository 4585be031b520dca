/* strided_copy.c - the step that copies between two layouts: as one run of bytes, by tiles where
 * neighbours in the source are not those in the target, taken apart where few of them lie in turns,
 * by boxes where dimensions are short, rows that repeat read once, or element by element, in the
 * largest units that fit.
 * Kernels: move/strided_copy.cu, move/transpose.cu, move/repeat.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/move/strided_copy.h"
#include "kernel/move/move_args.h"
#include "op/move/box_copy.h"
#include "op/move/deinterleave_steps.h"

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
static int64_t elements_per_unit(const mp_planner *p, const mp_space *space, size_t size,
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

static void use_units(mp_space *space, int64_t per_unit) {
    const int inner = space->rank - 1;
    space->dim[inner] /= per_unit;
    for (int d = 0; d < inner; d++) {
        space->stride[0][d] /= per_unit;
        space->stride[1][d] /= per_unit;
    }
    if (inner > 0 && space->dim[inner] == 1) {
        space->rank--; /* whole rows are units now */
    }
}

static bool is_in_order(const mp_space *space) {
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
static int crossed_dimension(const mp_space *space) {
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

/* Whether tiles of these two dimensions are read and written in runs that memory serves well. */
static bool runs_are_long(const mp_space *space, int crossed, size_t size) {
    enum { LEAST = 64 };
    return space->dim[crossed] * (int64_t)size >= LEAST &&
           space->dim[space->rank - 1] * (int64_t)size >= LEAST;
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
static mp_status tiles_of(const mp_space *space, int crossed, int64_t side,
                          mp_transpose_args *out) {
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
    tiles.dim[tiles.rank++] = MP_CEIL_DIV(args.rows, rows);
    stride[X][tiles.rank] = columns;
    stride[OUT][tiles.rank] = columns * args.column_stride;
    stride[COLUMN][tiles.rank] = columns;
    tiles.dim[tiles.rank++] = MP_CEIL_DIV(args.columns, columns);
    args.count = mp_shape_count(&tiles);
    MP_TRY(mp_layout_make(&tiles, stride, VIEWS, &args.tiles));
    *out = args;
    return MP_OK;
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

/* Whether it is rows of units that each repeat, written in order; the space has them in `size`
 * bytes. Short rows would be written by few lanes each. */
static bool repeats_rows(const mp_space *space, size_t size, mp_repeat_args *out) {
    enum { UNIT = 16, LEAST = 8 };
    const int inner = space->rank - 1;
    if (size != UNIT || inner < 1 || inner > 2 || !is_in_order(space) ||
        space->stride[0][inner] != 1 || space->stride[0][inner - 1] != 0 ||
        space->dim[inner] < LEAST) {
        return false;
    }
    const int64_t rows = inner == 2 ? space->dim[0] : 1;
    *out = (mp_repeat_args){.length = space->dim[inner],
                            .times = space->dim[inner - 1],
                            .step = inner == 2 ? space->stride[0][0] : 0,
                            .groups = MP_CEIL_DIV(space->dim[inner - 1], K_REPEAT_EACH)};
    out->count = rows * out->groups * out->length;
    if (out->count > INT32_MAX || out->times > INT32_MAX / 2) {
        return false;
    }
    out->by_length = mp_divider((uint32_t)out->length);
    out->by_groups = mp_divider((uint32_t)out->groups);
    return true;
}

static mp_status plan_repeat(mp_planner *p, const mp_repeat_args *args, mp_ref from, mp_ref to) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "repeat_b128"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args->count, 1), *args,
                     MP_BIND(mp_repeat_args, x, from), MP_BIND(mp_repeat_args, out, to));
}

/* A space that a kernel can walk, in elements of `size` bytes. */
static mp_status plan_part(mp_planner *p, const mp_space *space, size_t size, mp_ref from,
                           mp_ref to) {
    mp_strided_copy_args args = {.count = 1};
    for (int d = 0; d < space->rank; d++) {
        args.count *= space->dim[d];
    }
    const int crossed = crossed_dimension(space);
    mp_deinterleave apart;
    if (crossed < 0 && mp_deinterleave_of(p, space, size, from, to, &apart)) {
        return mp_plan_deinterleave(p, &apart);
    }
    mp_box_copy_args box;
    if ((crossed < 0 || !runs_are_long(space, crossed, size)) &&
        mp_box_copy_of(p, space, size, from, to, &box)) {
        return mp_plan_box_copy(p, &box, size, from, to);
    }
    if (crossed >= 0) {
        mp_transpose_args tiles;
        MP_TRY(tiles_of(space, crossed, K_SQUARE_SIDE((int64_t)size), &tiles));
        if (!tiles.tiles.wide) {
            return plan_tiles(p, &tiles, size, from, to);
        }
    }
    mp_repeat_args repeat;
    if (repeats_rows(space, size, &repeat)) {
        return plan_repeat(p, &repeat, from, to);
    }
    const int run = K_COPY_RUN((int)size);
    MP_TRY(mp_space_layout(space, &args.layout));
    args.in_order = is_in_order(space);
    if (args.in_order && !args.layout.wide) {
        const bool is_long = space->dim[space->rank - 1] >= run;
        args.in_runs = is_long ? K_LONG_ROWS : space->rank > 1 ? K_SHORT_ROWS : 0;
    }
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "strided_copy_b%zu", size * 8));
    const mp_grid grid =
        args.in_runs ? mp_plan_grid_stream(p, args.count, run, 1) : mp_plan_grid(p, args.count, 1);
    return MP_LAUNCH(p, kernel, grid, args, MP_BIND(mp_strided_copy_args, x, from),
                     MP_BIND(mp_strided_copy_args, out, to));
}

/* ---- more dimensions than a kernel walks ---- */

/* Moves the shortest of the outer dimensions from `space` to the end of `apart`. */
static void set_apart(mp_space *space, mp_space *apart) {
    int shortest = 0;
    for (int d = 1; d < space->rank - 1; d++) {
        shortest = space->dim[d] < space->dim[shortest] ? d : shortest;
    }
    apart->dim[apart->rank] = space->dim[shortest];
    for (int v = 0; v < 2; v++) {
        apart->stride[v][apart->rank] = space->stride[v][shortest];
    }
    apart->rank++;
    space->rank--;
    for (int d = shortest; d < space->rank; d++) {
        space->dim[d] = space->dim[d + 1];
        for (int v = 0; v < 2; v++) {
            space->stride[v][d] = space->stride[v][d + 1];
        }
    }
}

/* One part for each index into the dimensions that are set apart; nearly always there are none. */
static mp_status plan_parts(mp_planner *p, const mp_shape *shape, mp_space *space, size_t size,
                            mp_ref from, mp_ref to) {
    mp_space apart = {.rank = 0};
    int64_t parts = 1;
    while (space->rank > K_RANK_MAX) {
        set_apart(space, &apart);
        parts *= apart.dim[apart.rank - 1];
    }
    MP_TRY(mp_parts_check(parts, shape));
    for (int64_t i = 0; i < parts; i++) {
        int64_t rest = i;
        int64_t at[2] = {0, 0};
        for (int d = apart.rank - 1; d >= 0; d--) {
            at[0] += rest % apart.dim[d] * apart.stride[0][d];
            at[1] += rest % apart.dim[d] * apart.stride[1][d];
            rest /= apart.dim[d];
        }
        MP_TRY(plan_part(p, space, size, mp_ref_at(from, (uint64_t)(at[0] * (int64_t)size)),
                         mp_ref_at(to, (uint64_t)(at[1] * (int64_t)size))));
    }
    return MP_OK;
}

mp_status mp_plan_strided_copy(mp_planner *p, const mp_shape *shape, size_t size,
                               const mp_strided *source, const mp_strided *target) {
    const int64_t count = mp_shape_count(shape);
    if (count == 0) {
        return MP_OK;
    }
    int64_t stride[2][MP_RANK_MAX];
    mp_space space;
    memcpy(stride[0], source->stride, sizeof stride[0]);
    memcpy(stride[1], target->stride, sizeof stride[1]);
    mp_space_make(shape, stride, 2, &space);
    const mp_ref from = mp_ref_at(source->ref, (uint64_t)(source->offset * (int64_t)size));
    const mp_ref to = mp_ref_at(target->ref, (uint64_t)(target->offset * (int64_t)size));
    if (count == 1 || (space.rank == 1 && space.stride[0][0] == 1 && space.stride[1][0] == 1)) {
        return mp_plan_copy(p, to, from, (size_t)count * size);
    }
    const int64_t per_unit = elements_per_unit(p, &space, size, source, target);
    use_units(&space, per_unit);
    return plan_parts(p, shape, &space, size * (size_t)per_unit, from, to);
}
