/* integer_steps.c - products of 8-bit integers as steps of any operator's plan.
 * Kernel: quantize/integer_product.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/integer_steps.h"

#include "kernel/pointwise/narrow_args.h"

uint32_t mp_integer_flip(mp_dtype dtype) {
    return dtype == MP_U8 ? 0x80808080u : 0u;
}

int32_t mp_integer_scale(mp_dtype dtype) {
    return dtype == MP_F16 ? K_SCALE_F16 : dtype == MP_BF16 ? K_SCALE_BF16 : K_SCALE_F32;
}

mp_status mp_integer_lines(const mp_tensor *of, const char *what, int64_t lines, int64_t matrices,
                           int64_t *step, int64_t *batch) {
    *step = 0;
    *batch = 0;
    if (of == NULL || mp_shape_count(&of->shape) == 1) {
        return MP_OK;
    }
    const int64_t count = mp_shape_count(&of->shape);
    if (count != lines && (of->shape.rank < 2 || count / lines != matrices || count % lines != 0)) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "%s of shape %s goes neither with all nor with %lld lines",
                       what, mp_shape_text(&of->shape, text), (long long)lines);
    }
    *step = 1;
    *batch = count != lines ? lines : 0;
    return MP_OK;
}

/* GPUs from 8.0 on hold the sums in registers, as their tensor cores make them. */
static bool has_tensor_cores(const mp_planner *p) {
    return p->device->info.arch >= 80;
}

/* Large tiles unless they would leave the device idle. */
static int tile_for(const mp_planner *p, mp_integer_args *args) {
    enum { SMALL = 32, LARGE = 64, LARGEST = 128 };
    const int64_t matrices = args->tiles;
    for (int tile = has_tensor_cores(p) ? LARGEST : LARGE;; tile /= 2) {
        args->tiles_down = MP_CEIL_DIV(args->m, tile);
        args->tiles_across = MP_CEIL_DIV(args->n, tile);
        args->tiles = matrices * args->tiles_down * args->tiles_across;
        if (tile == SMALL || args->tiles >= p->device->info.multiprocessors) {
            return tile;
        }
    }
}

static int words_of_sums(const mp_planner *p, int tile) {
    const int squares = tile * tile / (K_INTEGER_SIDE * K_INTEGER_SIDE);
    return has_tensor_cores(p) ? 0 : MP_MAX(K_INTEGER_LANES / squares, 1) * tile * tile;
}

static uint32_t shared_bytes(const mp_planner *p, int tile) {
    const int factors = 2 * K_INTEGER_DEPTH(tile) * (tile + 8);
    const int lines = (2 + 3) * tile; /* sums of both sides, corners of windows */
    const int words = p->device->info.arch == 0 ? K_INTEGER_PLAIN_WORDS
                                                : factors + lines + words_of_sums(p, tile);
    return (uint32_t)sizeof(uint32_t) * (uint32_t)words;
}

/* Words of a row that can be read at once. */
static int32_t words_of(const mp_planner *p, int64_t row) {
    return p->align >= 16 && row % 16 == 0 ? 4 : p->align >= 4 && row % 4 == 0 ? 1 : 0;
}

mp_status mp_plan_integer(mp_planner *p, const char *word, mp_integer_args *args,
                          const mp_integer_refs *refs) {
    const mp_kernel *kernel = NULL;
    args->tiles = 1;
    for (int d = 0; d < args->batch.rank; d++) {
        args->tiles *= args->batch.dim[d];
    }
    args->side[0].words = words_of(p, args->k);
    args->side[1].words = words_of(p, args->n);
    args->pairs = p->align >= 8 && args->n % 2 == 0 &&
                  (args->kind == K_INTEGER_I32 || args->kind == K_INTEGER_F32);
    const int tile = tile_for(p, args);
    MP_TRY(mp_plan_kernel(p, &kernel, "integer_%s_%d", word, tile));
    mp_grid grid = mp_plan_grid_rows(p, args->tiles, K_INTEGER_LANES);
    grid.shared_bytes = shared_bytes(p, tile);
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_integer_args, a, refs->matrix[0]),
                     MP_BIND(mp_integer_args, b, refs->matrix[1]),
                     MP_BIND(mp_integer_args, side[0].zero, refs->zero[0]),
                     MP_BIND(mp_integer_args, side[1].zero, refs->zero[1]),
                     MP_BIND(mp_integer_args, side[0].scale, refs->scale[0]),
                     MP_BIND(mp_integer_args, side[1].scale, refs->scale[1]),
                     MP_BIND(mp_integer_args, bias, refs->bias),
                     MP_BIND(mp_integer_args, out_scale, refs->out_scale),
                     MP_BIND(mp_integer_args, out_zero, refs->out_zero),
                     MP_BIND(mp_integer_args, out, refs->out));
}
