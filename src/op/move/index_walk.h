/* index_walk.h - walks over elements that name others by indices on the device, for gathers and
 * scatters.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_INDEX_WALK_H
#define MP_OP_INDEX_WALK_H

#include "kernel/move/indexed_args.h"
#include "op/core/plan.h"

/* The walk over `indices`, each the place along `axis` of an element of `data` that is where the
 * index itself is along all other axes. Fails: INVALID_ARGUMENT where the shapes do not fit. */
mp_status mp_indexed_elements(const mp_shape *data, const mp_tensor *indices, int axis,
                              k_indexed *out);

/* The walk over the slices of `data` that the rows of `indices` name, behind `batch_dims` leading
 * dimensions that both share. Its elements are of `*unit` bytes, as many of the type's size as can
 * move as one, or of one each where `whole_units` is false. `slices` gets the shape of what is
 * walked. Fails: INVALID_ARGUMENT where the shapes do not fit, UNSUPPORTED for too high a rank. */
typedef struct mp_sliced {
    mp_shape slices;
    size_t unit;
    k_indexed walk;
} mp_sliced;

/* What of their nodes a session can know, as mp_op's accept: data and indices are inputs 0 and 1.
 */
mp_status mp_indexed_elements_accept(const mp_planner *p);
mp_status mp_indexed_slices_accept(const mp_planner *p);

mp_status mp_indexed_slices(const mp_planner *p, const mp_tensor *data, const mp_tensor *indices,
                            int64_t batch_dims, bool whole_units, mp_sliced *out);

#endif
