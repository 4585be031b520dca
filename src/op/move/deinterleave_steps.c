/* deinterleave_steps.c - see deinterleave_steps.h.
 * Kernel: move/deinterleave.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/move/deinterleave_steps.h"

enum { SOURCE, TARGET, VIEWS };
enum { BY_MIN = 2, BY_MAX = 4 }; /* what the kernel is built for */

/* The dimension that lies in turns in the source; -1 if there is none. */
static int turns_of(const mp_space *space) {
    const int inner = space->rank - 1;
    const int64_t step = space->stride[SOURCE][inner];
    if (space->stride[TARGET][inner] != 1 || step < BY_MIN || step > BY_MAX) {
        return -1;
    }
    for (int d = 0; d < inner; d++) {
        if (space->stride[SOURCE][d] == 1 && space->dim[d] == step) {
            return d;
        }
    }
    return -1;
}

/* Whether each row begins with a whole pack on both sides and ends with one. */
static bool is_packed(const mp_space *space, int turns, int64_t pack) {
    const int inner = space->rank - 1;
    bool packed = space->dim[inner] % pack == 0;
    for (int d = 0; d < inner; d++) {
        packed = packed && (d == turns || space->stride[SOURCE][d] % pack == 0) &&
                 space->stride[TARGET][d] % pack == 0;
    }
    return packed;
}

bool mp_deinterleave_of(const mp_planner *p, const mp_space *space, size_t size, mp_ref from,
                        mp_ref to, mp_deinterleave *out) {
    enum { ALIGNED = 16, LARGEST = 4 };
    const int turns = turns_of(space);
    const int64_t pack = K_DEINTERLEAVE_PACK((int64_t)size);
    const bool aligned = p->align >= ALIGNED && (from.offset | to.offset) % ALIGNED == 0;
    if (turns < 0 || size > LARGEST || !aligned || !is_packed(space, turns, pack)) {
        return false;
    }
    const int inner = space->rank - 1;
    mp_space packs = {.rank = 0};
    *out = (mp_deinterleave){.by = (int)space->dim[turns], .size = size, .from = from, .to = to};
    out->args.count = 1;
    out->args.plane = space->stride[TARGET][turns];
    for (int d = 0; d < space->rank; d++) {
        const int64_t each = d == inner ? pack : 1;
        if (d == turns) {
            continue;
        }
        for (int v = 0; v < VIEWS; v++) {
            packs.stride[v][packs.rank] = space->stride[v][d] * each;
        }
        packs.dim[packs.rank] = space->dim[d] / each;
        out->args.count *= packs.dim[packs.rank++];
    }
    return mp_space_layout(&packs, &out->args.packs) == MP_OK && !out->args.packs.wide;
}

mp_status mp_plan_deinterleave(mp_planner *p, const mp_deinterleave *step) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "deinterleave_%d_b%zu", step->by, step->size * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, step->args.count, 1), step->args,
                     MP_BIND(mp_deinterleave_args, x, step->from),
                     MP_BIND(mp_deinterleave_args, out, step->to));
}
