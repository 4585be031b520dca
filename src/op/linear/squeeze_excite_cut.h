/* squeeze_excite_cut.h - the numbers of squeeze_excite.cu: in how many launches, how an image is
 * dealt to blocks, and what lies where in their shared memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_SQUEEZE_EXCITE_CUT_H
#define MP_OP_SQUEEZE_EXCITE_CUT_H

#include "kernel/linear/linear_args.h"

#include <stdbool.h>

/* What blocks may have. */
typedef struct mp_excite_room {
    int64_t images;
    int32_t size;            /* bytes of an element */
    int32_t lanes;           /* of a block, a power of two */
    int32_t multiprocessors; /* at least 1 */
    int32_t cluster_max;     /* blocks that may meet */
    int64_t shared_max;      /* bytes */
    bool emulated;
} mp_excite_room;

/* Fills in the numbers of one launch whose blocks meet, of `blocks` an image. `a` has those of the
 * image and K_EXCITE_SCALE and _ADD, as for the functions below. */
void mp_excite_together(const mp_excite_room *room, int32_t blocks, mp_excite_args *a);

/* The same of two launches, the first of which leaves parts in memory. */
void mp_excite_apart(const mp_excite_room *room, mp_excite_args *first, mp_excite_args *second);

/* Chooses between them by the time that they take: the number of launches. */
int mp_excite_cut(const mp_excite_room *room, mp_excite_args out[2]);

/* Bytes of shared memory that a block needs. */
int64_t mp_excite_held(const mp_excite_room *room, const mp_excite_args *a);

#endif
