/* squeeze_excite_cut.c - see squeeze_excite_cut.h. How long a launch takes is estimated: what any
 * takes, with a meeting of its blocks, and what the busiest multiprocessor moves and multiplies. A
 * cluster is a small part of a GPU, so that large images are sooner done by two launches of more
 * blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/squeeze_excite_cut.h"

#include "base/macros.h"

#include <stddef.h>
#include <stdint.h>

enum {
    PACK_BYTES = 16,
    SECTOR_BYTES = 32, /* that memory moves at once: a slice has whole ones of each pixel */
    WARP = 32,
    SHARERS = 2,          /* blocks of a multiprocessor */
    BYTES_EACH = 8 << 10, /* of the image, that a block of one of two launches has at least */
    GATES_EACH = 8 << 10, /* the same of weights, where there are only gates to make */
    GATES_BLOCKS_MAX = 16,
    BYTES_OF_NS = 60, /* that a multiprocessor moves from or to the cache of all */
    PRODUCTS_OF_NS = 80,
    APART_NS = 4500, /* two launches that do nothing much */
    TURN_NS = 1500,  /* blocks that come up when others have ended */
};

/* One launch, by the blocks of an image. Larger clusters wait until nearly all of a group of
 * multiprocessors is free. */
static const struct {
    int32_t blocks, ns;
} starts[] = {{1, 2200}, {2, 2900}, {4, 2900}, {8, 3000}, {16, 4000}};

/* ---- shared memory ---- */

static int32_t place(int64_t *end, int64_t bytes) {
    const int64_t at = *end;
    *end += MP_ALIGN_UP(bytes, PACK_BYTES);
    return (int32_t)MP_MIN(at, INT32_MAX);
}

/* Lays out what there is, and gives its size. */
static int64_t lay_out(const mp_excite_room *room, mp_excite_args *a) {
    const bool squeezes = (a->work & K_EXCITE_SQUEEZE) != 0;
    const bool gates = (a->work & K_EXCITE_GATES) != 0;
    const bool scales = gates && (a->work & K_EXCITE_SCALE) != 0;
    const int64_t sums = room->lanes * (PACK_BYTES / room->size) *
                         (int64_t)(room->emulated ? sizeof(double) : sizeof(float));
    const int64_t number = sizeof(float), numbers = a->pitch * number;
    const int64_t first = a->held && squeezes ? (int64_t)a->inner * a->slice : 0;
    const int64_t rows = a->held && gates ? a->rows2 : 0;
    int64_t end = K_EXCITE_BOX;
    a->at_sums = place(&end, squeezes ? sums : 0);
    a->at_mean = place(&end, squeezes ? a->slice * number : 0);
    a->at_mine = place(&end, squeezes ? numbers : 0);
    a->at_told = squeezes && !a->meets ? a->at_mine : place(&end, a->told * numbers);
    a->at_inner = place(&end, gates ? numbers : 0);
    a->at_gate = place(&end, scales ? a->rows2 * number : 0);
    a->at_w1 = place(&end, first * room->size);
    a->at_w2 = place(&end, rows * a->inner * room->size);
    a->at_b1 = place(&end, rows > 0 ? (int64_t)a->inner * room->size : 0);
    a->at_b2 = place(&end, rows * room->size);
    a->at_x = place(&end, a->keeps ? (int64_t)a->piece * a->slice * room->size : 0);
    return end;
}

int64_t mp_excite_held(const mp_excite_room *room, const mp_excite_args *a) {
    mp_excite_args same = *a;
    return lay_out(room, &same);
}

/* Whether a multiprocessor has room for several such blocks. */
static bool can_share(const mp_excite_room *room, const mp_excite_args *a) {
    enum { RESERVED = 1 << 10 /* bytes of each */ };
    return (mp_excite_held(room, a) + RESERVED) * SHARERS <= room->shared_max;
}

/* A group of multiprocessors may be too small for a large cluster with a block on each. */
static bool fits(const mp_excite_room *room, const mp_excite_args *a) {
    enum { LARGE = 8 /* more blocks than that */ };
    return a->meets && a->blocks > LARGE ? can_share(room, a)
                                         : mp_excite_held(room, a) <= room->shared_max;
}

/* Holds what there is room for, weights first: they are what a product would wait for. */
static void hold(const mp_excite_room *room, mp_excite_args *a) {
    const bool may_keep = !room->emulated && (a->work & (K_EXCITE_SQUEEZE | K_EXCITE_SCALE)) != 0;
    a->keeps = 0;
    a->held = !room->emulated;
    a->held = a->held && fits(room, a);
    a->keeps = may_keep;
    a->keeps = may_keep && fits(room, a);
    (void)lay_out(room, a);
}

/* ---- how an image is dealt ---- */

static int32_t power_from(int64_t least, int32_t most) {
    int32_t power = 1;
    while (power < most && power < least) {
        power *= 2;
    }
    return power;
}

/* Slices are as many as leave no block much less than others, since each block reads the weights of
 * its slice alone. */
static int32_t slices_of(const mp_excite_room *room, const mp_excite_args *a, int32_t blocks) {
    enum { SECTORS_EACH = 2, WASTE = 5 /* a fifth of the work */ };
    const int64_t bytes = (int64_t)a->channels * room->size;
    int32_t best = 1;
    for (int32_t slices = 2; slices <= blocks; slices *= 2) {
        const int64_t each = MP_CEIL_DIV(MP_CEIL_DIV(bytes, SECTOR_BYTES), slices);
        const int64_t dealt = each * slices * SECTOR_BYTES;
        if (each >= SECTORS_EACH && (dealt - bytes) * WASTE <= dealt) {
            best = slices;
        }
    }
    return best;
}

/* `told`: blocks that have parts, where this launch does not make them. */
static void deal(const mp_excite_room *room, int32_t work, int32_t blocks, int32_t told,
                 mp_excite_args *a) {
    const int32_t pack = PACK_BYTES / room->size, sector = SECTOR_BYTES / room->size;
    a->work = (a->work & (K_EXCITE_SCALE | K_EXCITE_ADD)) | work;
    a->slices = slices_of(room, a, blocks);
    a->slice = MP_CEIL_DIV(a->channels, a->slices);
    a->slice = a->slices > 1 ? MP_ALIGN_UP(a->slice, sector) : a->slice;
    const int32_t pieces = MP_MAX(blocks / a->slices, 1);
    a->blocks = a->slices * pieces;
    a->piece = MP_CEIL_DIV(a->pixels, pieces);
    a->share = 1 / (float)a->pixels;
    a->rows2 = (a->work & K_EXCITE_SCALE) != 0
                   ? a->slice
                   : MP_ALIGN_UP(MP_CEIL_DIV(a->gates, a->blocks), pack);
    a->told = told > 0 ? told : a->blocks;
    a->pitch = MP_ALIGN_UP(a->inner, K_EXCITE_QUAD);
    a->across = power_from(MP_CEIL_DIV(a->slice, pack), room->lanes);
    a->width1 = power_from(MP_MAX(MP_CEIL_DIV(a->slice, pack * 2), K_EXCITE_ROWS), WARP);
    a->width2 = power_from(MP_MAX((a->inner + 1) / 2, K_EXCITE_ROWS), WARP);
    a->wide = power_from(a->told, WARP);
    a->meets = work == (K_EXCITE_SQUEEZE | K_EXCITE_GATES) && a->blocks > 1;
    hold(room, a);
}

void mp_excite_together(const mp_excite_room *room, int32_t blocks, mp_excite_args *a) {
    deal(room, K_EXCITE_SQUEEZE | K_EXCITE_GATES, blocks, 0, a);
}

/* Blocks of an image among those of all. */
static int32_t blocks_of(const mp_excite_room *room, int64_t bytes, int64_t each, int64_t most) {
    const int64_t share = room->multiprocessors / MP_MAX(room->images, 1);
    return (int32_t)MP_MAX(MP_MIN(MP_MIN(bytes / each, share), most), 1);
}

void mp_excite_apart(const mp_excite_room *room, mp_excite_args *first, mp_excite_args *second) {
    const int64_t bytes = (int64_t)first->pixels * first->channels * room->size;
    const int64_t weights = (int64_t)first->gates * first->inner * room->size;
    const bool scales = (first->work & K_EXCITE_SCALE) != 0;
    const int32_t blocks = blocks_of(room, bytes, BYTES_EACH, INT32_MAX);
    *second = *first;
    deal(room, K_EXCITE_SQUEEZE, blocks, 0, first);
    deal(room, K_EXCITE_GATES,
         scales ? blocks : blocks_of(room, weights, GATES_EACH, GATES_BLOCKS_MAX), first->blocks,
         second);
}

/* ---- how long it takes ---- */

/* What the busiest multiprocessor does; `passes`: how often pixels are moved. */
static int64_t busy_ns(const mp_excite_room *room, const mp_excite_args *a, int32_t passes) {
    const int64_t sharers = can_share(room, a) ? SHARERS : 1;
    const int64_t blocks = MP_CEIL_DIV(room->images * a->blocks, room->multiprocessors);
    const int64_t bytes = (int64_t)a->piece * a->slice * room->size * passes;
    const int64_t products =
        (int64_t)a->inner * (((a->work & K_EXCITE_SQUEEZE) != 0 ? a->slice : 0) +
                             ((a->work & K_EXCITE_GATES) != 0 ? a->rows2 : 0));
    return blocks * (bytes / BYTES_OF_NS + products / PRODUCTS_OF_NS) +
           MP_MAX(MP_CEIL_DIV(blocks, sharers) - 1, 0) * TURN_NS;
}

int mp_excite_cut(const mp_excite_room *room, mp_excite_args out[2]) {
    enum { READ = 1, AGAIN = 2 };
    const mp_excite_args image = out[0];
    const bool scales = (image.work & K_EXCITE_SCALE) != 0;
    int launches = 0;
    int64_t best = INT64_MAX;
    for (size_t i = 0; i < MP_COUNT_OF(starts); i++) {
        mp_excite_args a = image;
        if (starts[i].blocks > MP_MAX(room->cluster_max, 1)) {
            continue;
        }
        mp_excite_together(room, starts[i].blocks, &a);
        const int32_t passes = scales ? a.keeps ? READ + 1 : AGAIN + 1 : READ;
        const int64_t ns = starts[i].ns + busy_ns(room, &a, passes);
        if (launches == 0 || (fits(room, &a) && ns < best)) {
            out[0] = a;
            best = ns;
            launches = 1;
        }
    }
    mp_excite_args first = image, second;
    mp_excite_apart(room, &first, &second);
    const int64_t ns =
        APART_NS + busy_ns(room, &first, READ) + (scales ? busy_ns(room, &second, READ + 1) : 0);
    if (fits(room, &first) && fits(room, &second) && ns < best) {
        out[0] = first;
        out[1] = second;
        launches = 2;
    }
    return launches;
}
