/* island_walk.c - the segments of one run, one behind the other.
 *
 * Behind each but the last one the host waits once: what the next one is planned with comes to
 * pinned memory, and the next program is found by it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/growing.h"
#include "ep/capture/session_graph.h"
#include "ep/island/island.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNED = 16, MISSES_MOST = 4 };

/* ---- what lasts until the end ---- */

static mp_status grow_list(void *list, int count, size_t *capacity, size_t width) {
    return mp_grow(list, (size_t)count, capacity, width)
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a run");
}

static mp_status grow_bases(mp_walk *walk, int count) {
    MP_TRY(grow_list(&walk->bases, count, &walk->base_capacity, sizeof *walk->bases));
    for (; walk->base_count < count; walk->base_count++) {
        walk->bases[walk->base_count] = 0;
    }
    return MP_OK;
}

static mp_status hold(mp_walk *walk, mp_island_program *program) {
    const mp_status status = grow_list(&walk->programs, walk->depth + 1, &walk->depth_capacity,
                                       sizeof(mp_island_program *));
    if (status != MP_OK) {
        mp__island_program_drop(walk->island, program);
        return status;
    }
    walk->programs[walk->depth++] = program;
    return MP_OK;
}

const mp_program *mp__walk_end(const mp_walk *walk, const mp_island_program *first) {
    return walk->depth > 0 ? walk->programs[walk->depth - 1]->program : first->program;
}

mp_status mp__walk_close(mp_walk *walk) {
    mp_status status = MP_OK;
    for (int i = 0; i < walk->base_count; i++) {
        const mp_status freed = mp__give_back(walk->island->provider->pool, walk->bases[i]);
        status = status == MP_OK ? freed : status;
    }
    while (walk->depth > 0) {
        mp__island_program_drop(walk->island, walk->programs[--walk->depth]);
    }
    free(walk->bases);
    free(walk->programs);
    walk->bases = NULL;
    walk->programs = NULL;
    walk->base_count = 0;
    walk->base_capacity = walk->depth_capacity = 0;
    return status;
}

mp_status mp__walk_outputs(mp_walk *walk, const mp_program *program) {
    for (int32_t i = 0; i < walk->island->graph->output_count; i++) {
        if (mp_program_writes(program, i) && !walk->is_again) {
            MP_TRY(walk->output(walk, program, i));
        }
    }
    return MP_OK;
}

/* ---- one segment ---- */

static mp_status walk_through(const mp_walk *walk, const mp_island_program *p,
                              const mp_program_call *with) {
    mp_pool *pinned_pool = walk->island->provider->pinned;
    mp_program_call call = *with;
    if (!mp_program_has_branches(p->program)) {
        return mp_program_run(p->program, walk->stream, with);
    }
    MP_TRY(mp_pool_alloc(pinned_pool, 1, MP_NO_STREAM, &call.pinned));
    const mp_status status = mp_program_run(p->program, walk->stream, &call);
    const mp_status freed = mp_pool_free(pinned_pool, call.pinned);
    return status != MP_OK ? status : freed;
}

static mp_status launch_or_walk(mp_walk *walk, mp_island_program *p, const mp_program_call *with) {
    bool done = false;
    if (mp__run_now == NULL) { /* a run that may be captured for the user is walked through */
        done = mp__island_launch(walk->island, p, walk->stream, with);
    }
    return done ? MP_OK : walk_through(walk, p, with);
}

static mp_program_call call_of(const mp_walk *walk, const mp_island_program *p) {
    return (mp_program_call){.in = walk->in,
                             .out = walk->out,
                             .literals = p->literals,
                             .bases = walk->bases,
                             .known = walk->known};
}

/* Whether what the program assumed of conditions was so. Blocks, as the segments would. */
static mp_status check_assumptions(const mp_walk *walk, const mp_island_program *p,
                                   const mp_program_call *with, bool *right) {
    mp_device *device = walk->island->provider->unit->device;
    mp_pool *pinned_pool = walk->island->provider->pinned;
    const int count = mp_program_assumption_count(p->program);
    mp_addr pinned = 0;
    *right = true;
    if (count == 0) {
        return MP_OK;
    }
    MP_TRY(mp_pool_alloc(pinned_pool, (size_t)count, MP_NO_STREAM, &pinned));
    mp_status status = mp_program_fetch_assumptions(p->program, walk->stream, with, pinned);
    const mp_status waited = device->ops->stream_synchronize(device, walk->stream);
    status = status == MP_OK ? waited : status;
    *right = status != MP_OK || mp_program_assumed_right(p->program, (const void *)pinned);
    const mp_status freed = mp_pool_free(pinned_pool, pinned);
    return status != MP_OK ? status : freed;
}

static mp_status run_segment(mp_walk *walk, mp_island_program *p, bool *right) {
    mp_pool *pool = walk->island->provider->pool;
    const size_t kept = mp_program_kept_bytes(p->program);
    const size_t size = mp_program_block_bytes(p->program);
    mp_status status = grow_bases(walk, mp_program_base_count(p->program));
    if (status == MP_OK && kept > 0) {
        status = mp__lend(pool, kept, walk->native, &walk->bases[mp_program_base_own(p->program)]);
    }
    mp_program_call with = call_of(walk, p);
    if (status == MP_OK && size > 0) {
        status = mp__lend(pool, size, walk->native, &with.block);
    }
    if (status == MP_OK) {
        status = launch_or_walk(walk, p, &with);
    }
    if (status == MP_OK) {
        status = check_assumptions(walk, p, &with, right);
    }
    /* The stream's order keeps users apart. */
    const mp_status freed = mp__give_back(pool, with.block);
    return status != MP_OK ? status : freed;
}

/* ---- what is found behind it ---- */

/* Queues copies of what is not known here to `pinned`, and counts their bytes. Without `pinned` it
 * only counts. */
static mp_status fetch(const mp_walk *walk, const mp_program *program, const mp_program_call *call,
                       mp_addr pinned, unsigned char *found, size_t *fetched) {
    mp_device *device = walk->island->provider->unit->device;
    *fetched = 0;
    for (int i = 0; i < mp_program_read_count(program); i++) {
        const mp_program_span span = mp_program_read_at(program, i, call);
        const void *known = span.input >= 0 && walk->known != NULL ? walk->known[span.input] : NULL;
        if (known != NULL) {
            memcpy(found + span.offset, known, span.bytes);
            continue;
        }
        if (pinned != 0 && span.bytes > 0) {
            MP_TRY(
                device->ops->copy(device, walk->stream, pinned + *fetched, span.from, span.bytes));
        }
        *fetched += MP_ALIGN_UP(span.bytes, (size_t)ALIGNED);
    }
    return MP_OK;
}

static void take_fetched(const mp_walk *walk, const mp_program *program,
                         const mp_program_call *call, mp_addr pinned, unsigned char *found) {
    size_t at = 0;
    for (int i = 0; i < mp_program_read_count(program); i++) {
        const mp_program_span span = mp_program_read_at(program, i, call);
        const bool known =
            span.input >= 0 && walk->known != NULL && walk->known[span.input] != NULL;
        if (known || pinned == 0) {
            continue;
        }
        memcpy(found + span.offset, (const void *)(pinned + at), span.bytes);
        at += MP_ALIGN_UP(span.bytes, (size_t)ALIGNED);
    }
}

static mp_status read_back(mp_walk *walk, const mp_program *program, const mp_program_call *call,
                           unsigned char *found) {
    mp_device *device = walk->island->provider->unit->device;
    mp_pool *pinned_pool = walk->island->provider->pinned;
    mp_addr pinned = 0;
    size_t size = 0;
    MP_TRY(fetch(walk, program, call, 0, found, &size));
    if (size == 0) {
        return MP_OK;
    }
    walk->has_waited = true;
    MP_TRY(mp_pool_alloc(pinned_pool, size, MP_NO_STREAM, &pinned));
    mp_status status = fetch(walk, program, call, pinned, found, &size);
    const mp_status waited = device->ops->stream_synchronize(device, walk->stream);
    status = status == MP_OK ? waited : status;
    if (status == MP_OK) {
        take_fetched(walk, program, call, pinned, found);
    }
    const mp_status freed = mp_pool_free(pinned_pool, pinned);
    return status != MP_OK ? status : freed;
}

static mp_status find_out(mp_walk *walk, const mp_island_program *p, unsigned char *found) {
    const mp_program_call call = call_of(walk, p);
    MP_TRY(read_back(walk, p->program, &call, found));
    for (int i = 0; i < mp_program_repeat_count(p->program); i++) {
        MP_TRY(mp__walk_loop(walk, p->program, i, &call, found));
    }
    return MP_OK;
}

static mp_status step_on(mp_walk *walk, mp_island_program *p, mp_island_program **next) {
    enum { FEW_BYTES = 1024 };
    _Alignas(16) unsigned char few[FEW_BYTES];
    const size_t size = mp_program_found_bytes(p->program);
    unsigned char *many = size > FEW_BYTES ? malloc(size) : NULL;
    unsigned char *found = many != NULL ? many : few;
    if (size > FEW_BYTES && many == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a run");
    }
    memset(found, 0, size);
    mp_status status = find_out(walk, p, found);
    if (status == MP_OK) {
        status = mp__island_program_next(walk->island, p, found, next);
    }
    free(many);
    MP_TRY(status);
    return hold(walk, *next);
}

static mp_status walk_segments(mp_walk *walk, mp_island_program *first, bool *right) {
    mp_island_program *p = first;
    MP_TRY(run_segment(walk, p, right));
    while (!mp_program_is_last(p->program)) {
        MP_TRY(step_on(walk, p, &p));
        MP_TRY(mp__walk_outputs(walk, p->program));
        MP_TRY(run_segment(walk, p, right));
    }
    if (walk->has_waited) {
        atomic_fetch_add_explicit(&first->waits, 1, memory_order_relaxed);
    }
    return MP_OK;
}

/* What rests on a wrong assumption is done again, from the same inputs, to the same outputs: none
 * of these shares memory with an input. */
mp_status mp__walk(mp_walk *walk, mp_island_program *first) {
    bool right = true;
    MP_TRY(walk_segments(walk, first, &right));
    if (right) {
        return MP_OK;
    }
    if (atomic_fetch_add(&first->misses, 1) >= MISSES_MOST) {
        first->owner->never_joined = true;
    }
    walk->is_again = true;
    return walk_segments(walk, first->owner, &right);
}
