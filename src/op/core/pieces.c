/* pieces.c - the pieces of an output that broadcasts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/pieces.h"

#include <assert.h>

/* Elements of a piece at most, and what a piece of a longer dimension is a multiple of, so that the
 * next one is as well aligned. */
enum { PIECE_MAX = INT32_MAX, PIECE_UNIT = 1024 };

/* How many of the outer dimensions do not fit into a piece as a whole; `*inner` are the elements of
 * those that do. A piece has a part of one more dimension, and no more than a kernel can walk. */
static int outer_dims(const mp_space *space, int64_t *inner) {
    const int least = space->rank > K_RANK_MAX ? space->rank - K_RANK_MAX + 1 : 0;
    int outer = space->rank;
    *inner = 1;
    while (outer > least && space->dim[outer - 1] <= PIECE_MAX / *inner) {
        *inner *= space->dim[--outer];
    }
    return outer;
}

/* How much of the last of the outer dimensions a piece has at most. */
static int64_t most_of_last(int64_t inner) {
    const int64_t most = PIECE_MAX / inner;
    return most > PIECE_UNIT ? most - most % PIECE_UNIT : most;
}

/* Cuts the last of the `outer` dimensions down to what goes from element `first` on, and moves the
 * piece there. The dimensions before it are one index each. */
static void piece_cut(mp_space *space, int outer, int64_t inner, int views, mp_piece *out) {
    const int last = outer - 1;
    int64_t rest = out->out / inner;
    const int64_t begin = rest % space->dim[last];
    for (int d = last; d >= 0; d--) {
        for (int v = 0; v < views; v++) {
            out->in[v] += rest % space->dim[d] * space->stride[v][d];
        }
        rest /= space->dim[d];
    }
    const int64_t most = most_of_last(inner);
    const int64_t left = space->dim[last] - begin;
    space->dim[last] = MP_MIN(left, most);
}

static bool is_whole(const mp_space *space, int from, int view) {
    int64_t step = 1;
    for (int d = space->rank - 1; d >= from; d--) {
        if (space->dim[d] != 1 && space->stride[view][d] != step) {
            return false;
        }
        step *= space->dim[d];
    }
    return true;
}

static void set_level(k_walk_level *level, const mp_space *space, int d, int views) {
    level->dim = (uint32_t)space->dim[d];
    level->divider = mp_divider(level->dim);
    for (int v = 0; v < views; v++) {
        level->stride[v] = space->dim[d] != 1 ? (uint32_t)space->stride[v][d] : 0;
    }
}

/* Whether each view is whole, or the same in all rows. */
static bool has_one_row(const k_walk *walk, int views) {
    for (int v = 0; v < views; v++) {
        for (int32_t d = 0; (walk->whole >> v & 1) == 0 && d < walk->levels; d++) {
            if (walk->level[d].stride[v] != 0) {
                return false;
            }
        }
    }
    return true;
}

/* Dimensions [from, rank) of the space. */
static void set_walk(const mp_space *space, int from, int views, k_walk *walk) {
    const int inner = space->rank - 1;
    walk->count = 1;
    for (int d = from; d <= inner; d++) {
        walk->count *= space->dim[d];
    }
    walk->length = (uint32_t)space->dim[inner];
    walk->by_length = mp_divider(walk->length);
    for (int v = 0; v < views; v++) {
        const int64_t step = space->stride[v][inner];
        assert(step == 0 || step == 1);
        walk->whole |= (uint32_t)is_whole(space, from, v) << v;
        walk->repeated |= (uint32_t)(step == 0) << v;
    }
    for (int d = inner - 1; d >= from; d--) {
        set_level(&walk->level[walk->levels++], space, d, views);
    }
    if (walk->levels == 0) { /* the kernel takes one without asking */
        walk->level[walk->levels++] = (k_walk_level){.dim = 1, .divider = mp_divider(1)};
    }
    walk->one_row = has_one_row(walk, views);
}

/* How many pieces there are: the last of the `outer` dimensions is cut, for each index of those
 * before it. */
static int64_t pieces_of(const mp_space *space, int outer, int64_t inner) {
    int64_t count = MP_CEIL_DIV(space->dim[outer - 1], most_of_last(inner));
    for (int d = 0; d < outer - 1; d++) {
        count *= space->dim[d];
    }
    return count;
}

mp_status mp_piece_strided(const mp_shape *shape, int64_t (*stride)[MP_RANK_MAX], int views,
                           int64_t first, mp_piece *out) {
    int64_t inner = 1;
    mp_space space;
    mp_space_make(shape, stride, views, &space);
    *out = (mp_piece){.out = first};
    const int outer = outer_dims(&space, &inner);
    if (outer > 0) {
        MP_TRY(mp_parts_check(pieces_of(&space, outer, inner), shape));
        piece_cut(&space, outer, inner, views, out);
    }
    set_walk(&space, outer > 0 ? outer - 1 : 0, views, &out->walk);
    return MP_OK;
}

mp_status mp_piece_at(const mp_shape *shape, const mp_shape *const *in, int views, int64_t first,
                      mp_piece *out) {
    int64_t stride[K_WALK_VIEWS][MP_RANK_MAX];
    for (int v = 0; v < views; v++) {
        mp_shape_broadcast_strides(in[v], shape, stride[v]);
    }
    return mp_piece_strided(shape, stride, views, first, out);
}

mp_ref mp_ref_element(mp_ref ref, int64_t element, mp_dtype dtype) {
    return mp_ref_at(ref, (uint64_t)element * mp_dtype_size(dtype));
}
