/* integer_rows.cu - products of rows of 8-bit integers by tensor cores, and convolutions over
 * images with their channels last, with what follows: a sum with another image, and rounding to
 * bytes.
 *
 * A block makes tiles of K_ROWS x K_COLUMNS. Both sides come in stages of K_SPLIT chunks along k,
 * of which some are on their way meanwhile; warps share the tile, and where it is small, so that
 * there are few of them, each group of warps takes a chunk of its own. Of an image the bytes of
 * each window's places are copied from where they are, and what is beyond the image is padding:
 * the matrix of windows is never written down. What B has of the first stages is asked for before
 * the kernel before has ended.
 *
 * Lines of a chunk lie one behind the other, their four pieces of 16 bytes in an order that
 * changes every two lines, so that eight lines lie in different banks. Sums go through shared
 * memory in the end, so that neighbours along a row are written at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/index.h"
#include "kernel/core/late.h"
#include "kernel/core/warp_matrix.h"
#include "kernel/quantize/integer_rows_args.h"

/* ---- what becomes of a sum ---- */

/* 1.5 * 2^23: a float of a sum with it is rounded to a whole number, which its last bits are. */
#define R_WHOLE 0x1.8p23F

/* x kept in the range, NaN at its lower end, and rounded to the nearest whole number; plus R_WHOLE.
 */
K_FN float r_whole(float x, const k_byte_range *range) {
    return fminf(fmaxf(x, range->least), range->most) + R_WHOLE;
}

/* The byte that stands for a value, in the low bits. */
K_FN uint32_t r_byte(float x, const k_byte_range *range) {
    return k_bits_of_float(r_whole(x, range)) + (uint32_t)range->zero;
}

/* x / scale, whose reciprocal is `inverse`: near enough to be rounded as the quotient is. */
K_FN float r_share(float x, float scale, float inverse) {
    const float near = x * inverse;
    return near + (x - near * scale) * inverse;
}

/* The byte of a sum to which a value is added, as k_byte_sum has it. */
K_FN uint32_t r_byte_of_both(const k_byte_sum *both, float alone, float beside,
                             const k_byte_range *range) {
    const float first = r_whole(alone, &both->between) - R_WHOLE;
    const float value = first * both->between_scale + beside;
    return r_byte(r_share(value, both->scale, both->inverse), range);
}

/* The value of the byte `other`. */
K_FN float r_beside(const k_byte_sum *both, uint32_t other) {
    return (k_float_of_bits(0x4b000000u | other) - both->other_zero) * both->other_scale;
}

/* What is added to the sums of a column. */
K_FN int32_t r_add(const mp_integer_rows_args *args, int64_t column) {
    uint32_t add = args->add ? (uint32_t)args->add[column] : 0u;
    if (args->zero) {
        const int32_t zero = args->is_unsigned ? args->zero[0] : (int8_t)args->zero[0];
        add -= (uint32_t)zero * (uint32_t)args->sums[column];
    }
    return (int32_t)add;
}

K_FN float r_scale(const mp_integer_rows_args *args, int64_t column) {
    const float scale = args->scale ? args->scale[column * args->scale_step] : 1.0F;
    return args->factor ? scale * args->factor[0] : scale;
}

K_FN float r_row(const mp_integer_rows_args *args, int64_t column) {
    return args->row ? args->row[column] : 0.0F;
}

/* ---- windows ---- */

/* The corner of the window of a row of the result: where that is in its image, and in x, where it
 * may lie before the image. */
typedef struct r_corner {
    int64_t at;
    int32_t y, x;
} r_corner;

K_FN r_corner r_corner_of(const mp_integer_rows_args *args, int64_t row) {
    const k_byte_window *w = &args->window;
    const uint32_t image = k_divide((uint32_t)row, w->by_out[0]);
    const uint32_t place = (uint32_t)row - image * (uint32_t)w->out[0];
    const uint32_t line = k_divide(place, w->by_out[1]);
    r_corner at;
    at.y = (int32_t)line * w->stride[0] - w->pad[0];
    at.x = (int32_t)(place - line * (uint32_t)w->out[1]) * w->stride[1] - w->pad[1];
    at.at = image * w->image + ((int64_t)at.y * w->in[1] + at.x) * w->channels;
    return at;
}

/* A place along k, from the corner, and how many bytes its pixel has from there on. */
typedef struct r_depth {
    int32_t y, x, left;
    int64_t at;
} r_depth;

K_FN r_depth r_depth_of(const mp_integer_rows_args *args, int32_t k) {
    const k_byte_window *w = &args->window;
    const uint32_t pixel = k_divide((uint32_t)k, w->by_channels);
    const uint32_t line = k_divide(pixel, w->by_kernel);
    r_depth at;
    at.y = (int32_t)line * w->dilation[0];
    at.x = (int32_t)(pixel - line * (uint32_t)w->kernel[1]) * w->dilation[1];
    at.left = ((int32_t)pixel + 1) * w->channels - k;
    at.at = ((int64_t)at.y * w->in[1] + at.x + 1) * w->channels - at.left;
    return at;
}

K_FN int r_is_inside(const mp_integer_rows_args *args, const r_corner *corner,
                     const r_depth *depth) {
    const k_byte_window *w = &args->window;
    return (uint32_t)(corner->y + depth->y) < (uint32_t)w->in[0] &&
           (uint32_t)(corner->x + depth->x) < (uint32_t)w->in[1];
}

#if K_WARP_MATRIX

enum {
    R_DOWN = K_ROWS / K_WARP_ROWS,
    R_ACROSS = K_COLUMNS / K_WARP_COLUMNS,
    R_LANES = R_DOWN * R_ACROSS * K_SPLIT * 32,
    R_CHUNK = K_INTEGER_ROWS_CHUNK,
    R_EACH = K_SPLIT * R_CHUNK, /* bytes along k of a stage */
    R_STEP = 32,                /* bytes along k of a product */
    R_HIGH = K_WARP_ROWS / 16,
    R_WIDE = K_WARP_COLUMNS / 8,
    R_PIECES = R_CHUNK / K_PIECE, /* of a line */
    R_LINES = R_LANES / R_PIECES, /* that the block copies at once */
    R_STAGE = K_INTEGER_ROWS_STAGE(K_ROWS, K_COLUMNS, K_SPLIT),
    R_AHEAD = K_INTEGER_ROWS_AHEAD(K_ROWS, K_SPLIT),
    R_A = K_ROWS * K_SPLIT * R_CHUNK, /* bytes of A in a stage */
    R_PITCH = K_INTEGER_ROWS_PITCH(K_COLUMNS),
    R_OTHER = K_INTEGER_ROWS_OTHER(K_ROWS, K_COLUMNS, K_SPLIT), /* where that tile lies */
    /* Of what a lane copies: lines that differ, and chunks of a stage. */
    R_A_LINES = K_ROWS > R_LINES ? K_ROWS / R_LINES : 1,
    R_A_STEP = K_ROWS > R_LINES ? 1 : R_LINES / K_ROWS, /* from chunk to chunk */
    R_A_CHUNKS = K_SPLIT / R_A_STEP,
    R_B_LINES = K_COLUMNS > R_LINES ? K_COLUMNS / R_LINES : 1,
    R_B_STEP = K_COLUMNS > R_LINES ? 1 : R_LINES / K_COLUMNS,
    R_B_CHUNKS = K_SPLIT / R_B_STEP,
};

/* What a lane does. */
typedef struct r_place {
    const mp_integer_rows_args *args;
    uint8_t *shared;
    int32_t lane, stages;       /* stages: all along k */
    int32_t row, column, group; /* of the warp in the tile, its chunk of a stage */
    int32_t a_line, b_line, piece, a_chunk, b_chunk; /* the first that it copies */
    int32_t a_spot, b_spot;
    int64_t tile_row, tile_column;
    r_corner corner[R_A_LINES];
} r_place;

/* Within chunks: where the bytes `piece` of line `line` lie. */
K_FN int32_t r_spot(int32_t line, int32_t piece) {
    const int32_t sixteen = piece * K_PIECE / 16;
    return line * R_CHUNK + (sixteen ^ (line / 2 & 3)) * 16 + piece * K_PIECE % 16;
}

/* Copies a piece; where `is` is 0 it becomes the word `padding` again and again, without that
 * anything is read: all blocks would ask for the same bytes. */
K_FN void r_copy(uint8_t *to, const void *from, int is, uint32_t padding) {
    const int fills = !is && padding != 0;
    if (K_PIECE == 16) {
        k_copy_begin_if(!fills, to, from, is ? 16 : 0);
        k_fill_half_if(fills, to + 8, padding);
    } else {
        k_copy_half_begin_if(!fills, to, from, is ? 8 : 0);
    }
    k_fill_half_if(fills, to, padding);
}

/* A stage whose places along k are all of one pixel, of which `depth` is the first. */
K_FN void r_fill_pixel(const r_place *at, const r_depth *depth, uint8_t *to) {
    const mp_integer_rows_args *args = at->args;
    const uint8_t *x = (const uint8_t *)args->x;
    const int64_t first = depth->at + at->a_chunk * R_CHUNK + at->piece * K_PIECE;
    uint8_t *spot = to + at->a_chunk * (K_ROWS * R_CHUNK) + at->a_spot;
    K_UNROLL
    for (int32_t l = 0; l < R_A_LINES; l++) {
        const int is = r_is_inside(args, &at->corner[l], depth);
        const uint8_t *from = x + (is ? at->corner[l].at + first : 0);
        K_UNROLL
        for (int32_t c = 0; c < R_A_CHUNKS; c++) {
            r_copy(spot + c * (R_A_STEP * K_ROWS * R_CHUNK) + l * (R_LINES * R_CHUNK),
                   from + c * (R_A_STEP * R_CHUNK), is, args->padding);
        }
    }
}

K_FN void r_fill_a(const r_place *at, int32_t stage, uint8_t *to) {
    const mp_integer_rows_args *args = at->args;
    const uint8_t *x = (const uint8_t *)args->x;
    const r_depth start = r_depth_of(args, stage * R_EACH);
    if (start.left >= R_EACH) {
        r_fill_pixel(at, &start, to);
        return;
    }
    K_UNROLL
    for (int32_t c = 0; c < R_A_CHUNKS; c++) {
        const int32_t chunk = at->a_chunk + c * R_A_STEP;
        const int32_t k = stage * R_EACH + chunk * R_CHUNK + at->piece * K_PIECE;
        const uint32_t padding = k < args->k ? args->padding : 0u;
        const r_depth depth = r_depth_of(args, k);
        uint8_t *spot = to + chunk * (K_ROWS * R_CHUNK) + at->a_spot;
        K_UNROLL
        for (int32_t l = 0; l < R_A_LINES; l++) {
            const int is = k < args->k && r_is_inside(args, &at->corner[l], &depth);
            r_copy(spot + l * (R_LINES * R_CHUNK), x + (is ? at->corner[l].at + depth.at : 0), is,
                   padding);
        }
    }
}

/* Zeros beyond k, so that there it does not matter what A has. */
K_FN void r_fill_b(const r_place *at, int32_t stage, uint8_t *to) {
    const mp_integer_rows_args *args = at->args;
    const int64_t column = at->tile_column + at->b_line;
    const int64_t left = args->columns - column, step = R_LINES * args->k;
    const int32_t k = stage * R_EACH + at->b_chunk * R_CHUNK + at->piece * K_PIECE;
    const int whole = (stage + 1) * R_EACH <= args->k; /* of k */
    const uint8_t *first = (const uint8_t *)args->w + column * args->k + k;
    uint8_t *spot = to + R_A + at->b_chunk * (K_COLUMNS * R_CHUNK) + at->b_spot;
    K_UNROLL
    for (int32_t l = 0; l < R_B_LINES; l++) {
        const int is_there = l * R_LINES < left;
        const uint8_t *from = first + l * step;
        K_UNROLL
        for (int32_t c = 0; c < R_B_CHUNKS; c++) {
            const int is = is_there && (whole || k + c * (R_B_STEP * R_CHUNK) < args->k);
            r_copy(spot + c * (R_B_STEP * K_COLUMNS * R_CHUNK) + l * (R_LINES * R_CHUNK),
                   is ? from + c * (R_B_STEP * R_CHUNK) : (const uint8_t *)args->w, is, 0);
        }
    }
}

/* Whether the tile of what is added is copied, too, before it is wanted. */
K_FN int r_brings_other(const mp_integer_rows_args *args) {
    return args->other != 0 && args->columns % 16 == 0;
}

K_FN void r_fill_other(const r_place *at) {
    enum { PIECES = K_COLUMNS / 16 };
    const mp_integer_rows_args *args = at->args;
    K_ONE_COPY
    for (int32_t i = at->lane; r_brings_other(args) && i < K_ROWS * PIECES; i += R_LANES) {
        const int64_t row = at->tile_row + i / PIECES;
        const int64_t column = at->tile_column + i % PIECES * 16;
        const int is = row < args->rows && column < args->columns;
        k_copy_begin(at->shared + R_OTHER + i * 16,
                     (const uint8_t *)args->other + (is ? row * args->columns + column : 0),
                     is ? 16 : 0);
    }
}

/* ---- products ---- */

typedef struct r_sums {
    int32_t of[R_HIGH][R_WIDE][4];
} r_sums;

K_FN void r_multiply(const r_place *at, const uint8_t *stage, int is_unsigned, r_sums *sums) {
    const uint8_t *a = stage + at->group * (K_ROWS * R_CHUNK) + at->row * R_CHUNK;
    const uint8_t *b = stage + R_A + at->group * (K_COLUMNS * R_CHUNK) + at->column * R_CHUNK;
    const int32_t lane = at->lane % 32, sixteen = 16 / K_PIECE;
    const int32_t a_spot = r_spot(lane % 16, lane / 16 * sixteen);
    const int32_t b_spot = r_spot(lane / 16 * 8 + lane % 8, lane / 8 % 2 * sixteen);
    K_UNROLL
    for (int32_t step = 0; step < R_CHUNK; step += R_STEP) {
        uint32_t left[R_HIGH][4], right[R_WIDE / 2][4];
        K_UNROLL
        for (int32_t i = 0; i < R_HIGH; i++) {
            k_matrices_load(left[i], a + (a_spot ^ step) + i * 16 * R_CHUNK);
        }
        K_UNROLL
        for (int32_t j = 0; j < R_WIDE / 2; j++) {
            k_matrices_load(right[j], b + (b_spot ^ step) + j * 16 * R_CHUNK);
        }
        K_UNROLL
        for (int32_t i = 0; i < R_HIGH * R_WIDE; i++) {
            const int32_t j = i % R_WIDE;
            if (is_unsigned) {
                k_mma_u8(sums->of[i / R_WIDE][j], left[i / R_WIDE], right[j / 2] + j % 2 * 2);
            } else {
                k_mma_i8(sums->of[i / R_WIDE][j], left[i / R_WIDE], right[j / 2] + j % 2 * 2);
            }
        }
    }
}

/* What B has of the first stages of a tile. */
K_FN void r_fill_early(const r_place *at) {
    K_ONE_COPY
    for (int32_t stage = 0; stage < R_AHEAD - 1 && stage < at->stages; stage++) {
        r_fill_b(at, stage, at->shared + stage * R_STAGE);
    }
}

/* All of a tile. At each turn a stage is filled and an earlier one multiplied; `early`: of the
 * first ones B has been asked for, which comes with the first stage. */
K_FN void r_sum(const r_place *at, int early, r_sums *sums) {
    int32_t place = 0, from = 1; /* of a ring */
    r_fill_other(at);
    K_ONE_COPY
    for (int32_t turn = 0; turn < at->stages + R_AHEAD - 1; turn++) {
        const int multiplies = turn >= R_AHEAD - 1;
        if (multiplies) {
            K_COPIES_WAIT(R_AHEAD - 2);
            __syncthreads(); /* it is there, and the one before is no longer read */
        }
        if (turn < at->stages) {
            if (multiplies || !early) {
                r_fill_b(at, turn, at->shared + place * R_STAGE);
            }
            r_fill_a(at, turn, at->shared + place * R_STAGE);
        }
        k_copies_group();
        if (multiplies && at->args->is_unsigned) {
            r_multiply(at, at->shared + from * R_STAGE, 1, sums);
        } else if (multiplies) {
            r_multiply(at, at->shared + from * R_STAGE, 0, sums);
        }
        place = place + 1 < R_AHEAD ? place + 1 : 0;
        from = place + 1 < R_AHEAD ? place + 1 : 0;
    }
}

typedef struct K_ALIGN(8) r_two {
    int32_t of[2];
} r_two;

/* Puts the warp's sums where the stages were. */
K_FN void r_keep(const r_place *at, const r_sums *sums) {
    int32_t *to = (int32_t *)(void *)at->shared + (at->group * K_ROWS + at->row) * R_PITCH +
                  at->column + at->lane % 32 / 4 * R_PITCH + at->lane % 4 * 2;
    K_UNROLL
    for (int32_t i = 0; i < R_HIGH * R_WIDE * 2; i++) {
        const int32_t half = i % 2, x = i / 2 % R_WIDE, y = i / 2 / R_WIDE;
        const r_two two = {{sums->of[y][x][half * 2], sums->of[y][x][half * 2 + 1]}};
        *(r_two *)(void *)(to + (y * 16 + half * 8) * R_PITCH + x * 8) = two;
    }
}

typedef struct K_ALIGN(16) r_sixteen {
    uint32_t word[4];
} r_sixteen;

/* Sums of four neighbours, from those of all chunks. */
K_FN void r_four(const r_place *at, int32_t row, int32_t column, int32_t *sum) {
    const int32_t *from = (const int32_t *)(const void *)at->shared + row * R_PITCH + column;
    K_UNROLL
    for (int32_t e = 0; e < 4; e++) {
        sum[e] = 0;
    }
    K_UNROLL
    for (int32_t s = 0; s < K_SPLIT; s++) {
        const r_sixteen part = *(const r_sixteen *)(const void *)(from + s * (K_ROWS * R_PITCH));
        K_UNROLL
        for (int32_t e = 0; e < 4; e++) {
            sum[e] = (int32_t)((uint32_t)sum[e] + part.word[e]);
        }
    }
}

/* Four neighbours, of which there are `count`, as bytes; or as words of 32 bits. `apart`: they lie
 * anywhere. */
K_FN void r_finish_bytes(const mp_integer_rows_args *args, int64_t to, int32_t count, int apart,
                         uint32_t other, const int32_t *sum, const float *scale, const float *row) {
    uint8_t *out = (uint8_t *)args->out + to;
    uint32_t word = 0;
    other ^= args->both.flip;
    K_UNROLL
    for (int32_t e = 0; e < 4; e++) {
        const float alone = (float)sum[e] * scale[e];
        const float beside = args->other ? r_beside(&args->both, other >> e * 8 & 0xffu) : row[e];
        const uint32_t byte = args->has_sum
                                  ? r_byte_of_both(&args->both, alone, beside, &args->range)
                                  : r_byte(alone, &args->range);
        word |= (byte & 0xffu) << e * 8;
    }
    if (count == 4 && !apart) {
        *(uint32_t *)(void *)out = word;
        return;
    }
    K_ONE_COPY
    for (int32_t e = 0; e < count; e++) {
        out[e] = (uint8_t)(word >> e * 8);
    }
}

K_FN void r_finish_words(const mp_integer_rows_args *args, int64_t to, int32_t count, int apart,
                         const int32_t *sum, const float *scale, const float *row) {
    uint32_t *out = (uint32_t *)args->out + to;
    r_sixteen words;
    K_UNROLL
    for (int32_t e = 0; e < 4; e++) {
        const int is_float = args->kind == K_INTEGER_ROWS_F32;
        words.word[e] =
            is_float ? k_bits_of_float((float)sum[e] * scale[e] + row[e]) : (uint32_t)sum[e];
    }
    if (count == 4 && !apart) {
        *(r_sixteen *)(void *)out = words;
        return;
    }
    K_UNROLL
    for (int32_t e = 0; e < 4; e++) {
        if (e < count) {
            out[e] = words.word[e];
        }
    }
}

/* What is added to four neighbours. */
K_FN uint32_t r_other(const r_place *at, int32_t row, int32_t column, int64_t to, int32_t count) {
    const uint8_t *beside = (const uint8_t *)at->args->other + to;
    uint32_t other = 0;
    if (r_brings_other(at->args)) {
        return *(const uint32_t *)(const void *)(at->shared + R_OTHER + row * K_COLUMNS + column);
    }
    K_ONE_COPY
    for (int32_t e = 0; at->args->other && e < count; e++) {
        other |= (uint32_t)beside[e] << e * 8;
    }
    return other;
}

/* A lane has the same four columns of some rows. The text is short, since most tiles have few rows
 * for each lane, and it takes longer to come than to be run. */
K_FN void r_write(const r_place *at) {
    enum { PIECES = K_COLUMNS / 4 };
    const mp_integer_rows_args *args = at->args;
    const int32_t column = at->lane % PIECES * 4;
    const int64_t first = at->tile_column + column, there = args->columns - first;
    const int64_t left = args->rows - at->tile_row;
    const int32_t count = there > 4 ? 4 : there < 0 ? 0 : (int32_t)there;
    const int apart = args->columns % 4 != 0 && count == 4; /* rows begin anywhere */
    int32_t add[4];
    float scale[4], beside[4];
    K_UNROLL
    for (int32_t e = 0; e < 4; e++) {
        const int64_t from = e < there ? first + e : args->columns - 1;
        add[e] = r_add(args, from);
        scale[e] = r_scale(args, from);
        beside[e] = r_row(args, from);
    }
    K_ONE_COPY
    for (int32_t row = at->lane / PIECES; row < K_ROWS && row < left; row += R_LANES / PIECES) {
        const int64_t to = (at->tile_row + row) * args->columns + first;
        int32_t sum[4];
        r_four(at, row, column, sum);
        K_UNROLL
        for (int32_t e = 0; e < 4; e++) {
            sum[e] = (int32_t)((uint32_t)sum[e] + (uint32_t)add[e]);
        }
        if (args->kind == K_INTEGER_ROWS_BYTE) {
            r_finish_bytes(args, to, count, apart, r_other(at, row, column, to, count), sum, scale,
                           beside);
        } else {
            r_finish_words(args, to, count, apart, sum, scale, beside);
        }
    }
}

/* ---- tiles ---- */

K_FN void r_find(r_place *at, uint32_t tile) {
    const mp_integer_rows_args *args = at->args;
    const uint32_t down = k_divide(tile, args->by_across);
    at->tile_row = (int64_t)down * K_ROWS;
    at->tile_column = (int64_t)(tile - down * args->tiles_across) * K_COLUMNS;
    K_UNROLL
    for (int32_t l = 0; l < R_A_LINES; l++) {
        const int64_t row = at->tile_row + at->a_line + l * R_LINES;
        at->corner[l] = r_corner_of(args, row < args->rows ? row : args->rows - 1);
    }
}

K_FN r_place r_place_of(const mp_integer_rows_args *args, uint8_t *shared) {
    r_place at;
    at.args = args;
    at.shared = shared;
    at.lane = (int32_t)threadIdx.x;
    at.group = at.lane / 32 / (R_DOWN * R_ACROSS);
    at.row = at.lane / 32 / R_ACROSS % R_DOWN * K_WARP_ROWS;
    at.column = at.lane / 32 % R_ACROSS * K_WARP_COLUMNS;
    at.piece = at.lane % R_PIECES;
    at.a_line = at.lane / R_PIECES % K_ROWS;
    at.b_line = at.lane / R_PIECES % K_COLUMNS;
    at.a_chunk = at.lane / R_PIECES / K_ROWS;
    at.b_chunk = at.lane / R_PIECES / K_COLUMNS;
    at.a_spot = r_spot(at.a_line, at.piece);
    at.b_spot = r_spot(at.b_line, at.piece);
    at.stages = (int32_t)((args->k + R_EACH - 1) / R_EACH);
    return at;
}

K_BLOCK_KERNEL_LATE_OF(R_LANES, 2, mp_integer_rows_args, args) {
    K_SHARED(uint8_t, shared);
    r_place at = r_place_of(&args, shared);
    int early = args.constant;
    r_find(&at, blockIdx.x);
    if (early) {
        r_fill_early(&at);
    }
    k_wait();
    for (uint32_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
        r_sums sums;
        K_UNROLL
        for (int32_t i = 0; i < R_HIGH * R_WIDE * 4; i++) {
            sums.of[i / 4 / R_WIDE][i / 4 % R_WIDE][i % 4] = 0;
        }
        r_sum(&at, early, &sums);
        K_COPIES_WAIT(0);
        __syncthreads(); /* nobody reads the stages any more */
        r_keep(&at, &sums);
        __syncthreads();
        r_write(&at);
        __syncthreads();
        r_find(&at, tile + gridDim.x); /* beyond the end, the last row's */
        early = 0;
    }
}

#else

/* The emulated device, and GPUs before 8.0, for which plans do not ask: one result after the
 * other. */
K_FN int32_t r_sum(const mp_integer_rows_args *args, int64_t row, int64_t column) {
    const r_corner corner = r_corner_of(args, row);
    const int8_t *w = (const int8_t *)args->w + column * args->k;
    const int32_t channels = args->window.channels;
    uint32_t sum = 0;
    for (int32_t k = 0; k < args->k; k += channels) {
        const r_depth depth = r_depth_of(args, k);
        const int is = r_is_inside(args, &corner, &depth);
        const uint8_t *from = (const uint8_t *)args->x + (is ? corner.at + depth.at : 0);
        for (int32_t c = 0; c < channels; c++) {
            const uint32_t byte = is ? from[c] : args->padding & 0xffu;
            const int32_t x = args->is_unsigned ? (int32_t)byte : (int8_t)byte;
            sum += (uint32_t)(x * w[k + c]);
        }
    }
    return (int32_t)sum;
}

K_FN uint8_t r_byte_of(const mp_integer_rows_args *args, float alone, float row, int64_t at) {
    if (!args->has_sum) {
        return (uint8_t)r_byte(alone, &args->range);
    }
    const uint8_t *other = (const uint8_t *)args->other;
    const float beside = other ? r_beside(&args->both, other[at] ^ (args->both.flip & 0xffu)) : row;
    return (uint8_t)r_byte_of_both(&args->both, alone, beside, &args->range);
}

K_KERNEL(mp_integer_rows_args, args) {
    K_GRID_LOOP(i, args.rows * args.columns) {
        const int64_t row = i / args.columns, column = i - row * args.columns;
        const uint32_t total = (uint32_t)r_sum(&args, row, column) + (uint32_t)r_add(&args, column);
        const int32_t sum = (int32_t)total;
        if (args.kind == K_INTEGER_ROWS_I32) {
            ((int32_t *)args.out)[i] = sum;
        } else if (args.kind == K_INTEGER_ROWS_F32) {
            ((float *)args.out)[i] = (float)sum * r_scale(&args, column) + r_row(&args, column);
        } else {
            ((uint8_t *)args.out)[i] =
                r_byte_of(&args, (float)sum * r_scale(&args, column), r_row(&args, column), i);
        }
    }
}

#endif
