/* program_walk.c - where the values of a run are, and in which branches it is. Captured, these are
 * parts of the graph, each with a stream of its own (device.h); otherwise the host waits for the
 * condition, and leaves steps out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_private.h"

#include <string.h>

mp_addr mp_spot_address(const mp_spot *spot, const mp_program_call *call) {
    switch (spot->kind) {
    case MP_SPOT_NONE:
        return 0;
    case MP_SPOT_IN:
        return call->in[spot->index] + spot->offset;
    case MP_SPOT_OUT:
        return call->out[spot->index] + spot->offset;
    case MP_SPOT_FIXED:
        return spot->offset;
    case MP_SPOT_LITERAL:
        return call->literals + spot->offset;
    case MP_SPOT_BLOCK:
        return call->block + spot->offset;
    case MP_SPOT_BASE:
        return call->bases[spot->index] + spot->offset;
    }
    return 0;
}

/* ---- begin ---- */

mp_status mp_branch_walk_open(mp_branch_walk *walk, const mp_program *program, mp_stream *stream,
                              const mp_program_call *call) {
    memset(walk, 0, sizeof *walk);
    walk->program = program;
    walk->call = call;
    walk->streams[0] = stream;
    return program->branch_count > 0
               ? program->device->ops->capture_active(program->device, stream, &walk->is_captured)
               : MP_OK;
}

/* ---- conditions ---- */

static mp_status read_byte(const mp_branch_walk *walk, const mp_spot *spot, unsigned char *out) {
    const mp_program_call *call = walk->call;
    mp_device *device = walk->program->device;
    const bool is_input = spot->kind == MP_SPOT_IN && spot->offset == 0;
    const void *known = is_input && call->known != NULL ? call->known[spot->index] : NULL;
    if (known != NULL) {
        memcpy(out, known, 1);
        return MP_OK;
    }
    if (call->pinned == 0) {
        return MP_FAIL(INTERNAL, "a run has no memory to read a condition to");
    }
    mp_stream *stream = walk->streams[0];
    MP_TRY(device->ops->copy(device, stream, call->pinned, mp_spot_address(spot, call), 1));
    MP_TRY(device->ops->stream_synchronize(device, stream));
    memcpy(out, (const void *)call->pinned, 1);
    return MP_OK;
}

static mp_status is_taken(mp_branch_walk *walk, const mp_program_branch *branch, bool *out) {
    unsigned char *found = &walk->found[branch->same];
    if (*found == 0) {
        unsigned char byte = 0;
        MP_TRY(read_byte(walk, &walk->program->spots[branch->condition], &byte));
        *found = byte != 0 ? 2 : 1;
    }
    *out = (*found == 2) == branch->wanted;
    return MP_OK;
}

/* ---- in and out ---- */

static mp_status leave(mp_branch_walk *walk) {
    mp_device *device = walk->program->device;
    walk->depth--;
    return walk->is_captured ? device->ops->branch_end(device, walk->streams[walk->depth],
                                                       walk->streams[walk->depth + 1])
                             : MP_OK;
}

static mp_status enter(mp_branch_walk *walk, int32_t number) {
    const mp_program_branch *branch = &walk->program->branches[number - 1];
    mp_device *device = walk->program->device;
    bool taken = true;
    mp_stream *inside = walk->streams[walk->depth];
    if (walk->is_captured) {
        const mp_addr at = mp_spot_address(&walk->program->spots[branch->condition], walk->call);
        MP_TRY(device->ops->branch_begin(device, walk->streams[walk->depth], at, branch->wanted,
                                         &inside));
    } else {
        MP_TRY(is_taken(walk, branch, &taken));
    }
    if (taken) {
        walk->open[walk->depth++] = number;
        walk->streams[walk->depth] = inside;
    } else {
        walk->skipped = number;
    }
    return MP_OK;
}

/* Into all that are between where the walk is and `number`, the outermost first. */
static mp_status enter_down_to(mp_branch_walk *walk, int32_t number) {
    const int32_t here = walk->depth > 0 ? walk->open[walk->depth - 1] : 0;
    int32_t chain[MP_BRANCH_DEPTH_MOST];
    int count = 0;
    for (int32_t b = number; b != here; b = walk->program->branches[b - 1].outer) {
        chain[count++] = b;
    }
    while (count > 0 && walk->skipped == 0) {
        MP_TRY(enter(walk, chain[--count]));
    }
    return MP_OK;
}

mp_status mp_branch_walk_to(mp_branch_walk *walk, const mp_program_step *step, mp_stream **out) {
    const mp_program *program = walk->program;
    *out = NULL;
    if (walk->skipped != 0 && mp_branch_is_within(program, step->branch, walk->skipped)) {
        return MP_OK;
    }
    walk->skipped = 0;
    while (walk->depth > 0 &&
           !mp_branch_is_within(program, step->branch, walk->open[walk->depth - 1])) {
        MP_TRY(leave(walk));
    }
    MP_TRY(enter_down_to(walk, step->branch));
    *out = walk->skipped == 0 ? walk->streams[walk->depth] : NULL;
    return MP_OK;
}

mp_status mp_branch_walk_close(mp_branch_walk *walk) {
    mp_status status = MP_OK;
    while (walk->depth > 0) {
        const mp_status left = leave(walk);
        status = status == MP_OK ? left : status;
    }
    return status;
}
