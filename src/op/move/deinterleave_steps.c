/* deinterleave_steps.c - see deinterleave_steps.h.
 * Kernel: move/deinterleave.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/move/deinterleave_steps.h"

enum { SOURCE, TARGET, VIEWS };
enum { BY_MIN = 2, BY_MAX = 4 }; /* what the kernel is built for */

/* Which dimension lies in turns in the source, and along which there are rows in the target:
 * the places of both among the space's, in whatever order these are. */
static bool find_turns(const mp_space *space, int *turns, int *along) {
    for (int d = 0; d < space->rank; d++) {
        const int64_t step = space->stride[SOURCE][d];
        if (space->stride[TARGET][d] != 1 || step < BY_MIN || step > BY_MAX) {
            continue;
        }
        for (int t = 0; t < space->rank; t++) {
            if (space->stride[SOURCE][t] == 1 && space->dim[t] == step) {
                *turns = t;
                *along = d;
                return true;
            }
        }
    }
    return false;
}

/* Whether each row begins with a whole pack on both sides and ends with one. */
static bool is_packed(const mp_space *space, int turns, int along, int64_t pack) {
    bool packed = space->dim[along] % pack == 0;
    for (int d = 0; d < space->rank; d++) {
        packed = packed && (d == along || d == turns || space->stride[SOURCE][d] % pack == 0) &&
                 (d == along || space->stride[TARGET][d] % pack == 0);
    }
    return packed;
}

/* Adds a dimension to the packs', in steps of `each` elements. */
static void add_packs(const mp_space *space, int d, int64_t each, mp_space *packs,
                      mp_deinterleave *out) {
    for (int v = 0; v < VIEWS; v++) {
        packs->stride[v][packs->rank] = space->stride[v][d] * each;
    }
    packs->dim[packs->rank] = space->dim[d] / each;
    out->args.count *= packs->dim[packs->rank++];
}

bool mp_deinterleave_of(const mp_planner *p, const mp_space *space, size_t size, mp_ref from,
                        mp_ref to, mp_deinterleave *out) {
    enum { ALIGNED = 16, LARGEST = 4 };
    int turns = -1, along = -1;
    const int64_t pack = K_DEINTERLEAVE_PACK((int64_t)size);
    const bool aligned = p->align >= ALIGNED && (from.offset | to.offset) % ALIGNED == 0;
    if (!find_turns(space, &turns, &along) || size > LARGEST || !aligned ||
        !is_packed(space, turns, along, pack)) {
        return false;
    }
    mp_space packs = {.rank = 0};
    *out = (mp_deinterleave){.by = (int)space->dim[turns], .size = size, .from = from, .to = to};
    out->args.count = 1;
    out->args.plane = space->stride[TARGET][turns];
    for (int d = 0; d < space->rank; d++) {
        if (d != turns && d != along) {
            add_packs(space, d, 1, &packs, out);
        }
    }
    add_packs(space, along, pack, &packs, out); /* neighbouring lanes have neighbouring packs */
    return mp_space_layout(&packs, &out->args.packs) == MP_OK && !out->args.packs.wide;
}

mp_status mp_plan_deinterleave(mp_planner *p, const mp_deinterleave *step) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "deinterleave_%d_b%zu", step->by, step->size * 8));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, step->args.count, 1), step->args,
                     MP_BIND(mp_deinterleave_args, x, step->from),
                     MP_BIND(mp_deinterleave_args, out, step->to));
}
