/* pieces.h - an output made from inputs that broadcast to it, in pieces that a kernel walks with
 * numbers of 32 bits. Nearly always there is one piece; more where the output is very large, or of
 * so many dimensions that do not merge that a kernel cannot walk all of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PIECES_H
#define MP_OP_PIECES_H

#include "kernel/core/index_args.h"
#include "op/core/plan.h"

typedef struct mp_piece {
    k_walk walk;
    int64_t out;              /* where the piece begins in the output, in elements */
    int64_t in[K_WALK_VIEWS]; /* and in each input */
} mp_piece;

/* The piece of an output of that shape, not empty, that begins with element `first`: 0, or where
 * the piece before ended. `views` inputs, which broadcast to the shape. Fails: UNSUPPORTED for
 * more than MP_PARTS_MAX pieces. */
mp_status mp_piece_at(const mp_shape *shape, const mp_shape *const *in, int views, int64_t first,
                      mp_piece *out);

/* The same for views with these strides, as mp_shape_broadcast_strides gives them. */
mp_status mp_piece_strided(const mp_shape *shape, int64_t (*stride)[MP_RANK_MAX], int views,
                           int64_t first, mp_piece *out);

/* `ref` moved on by elements of `dtype`. */
mp_ref mp_ref_element(mp_ref ref, int64_t element, mp_dtype dtype);

#endif
