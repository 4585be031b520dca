/* island_instance.c - programs as captured graphs.
 *
 * A graph has the addresses of one run in it: inputs, outputs, block, what earlier segments kept. A
 * pool in steady state gives the same memory for the same requests, so most runs find a graph with
 * theirs; one is captured when addresses come for the third time. The run's own stream is not
 * captured, so that nobody who records an event on it or waits for it meanwhile breaks the capture:
 * a stream aside is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/island.h"

#include "base/log.h"
#include "device/profile.h"
#include "ep/stream/run_stream.h"

#include <stdlib.h>
#include <string.h>

enum {
    RUNS_BEFORE = 2, /* with these addresses */
    STEPS_LEAST = 1,
    IDLE_RUNS = 256,       /* of the program, after which a graph may give way to another */
    LAUNCHES_MOST = 20000, /* of one graph */
    GRAPH_BYTES = 16 << 10,
    LAUNCH_BYTES = 2 << 10,
};

/* Bases that the program reads, and its own. */
static size_t bases_of(const mp_island_program *p) {
    return (size_t)mp_program_base_own(p->program) + !mp_program_is_last(p->program);
}

static size_t address_count(const mp_island *island, const mp_island_program *p) {
    return (size_t)island->graph->input_count + (size_t)island->graph->output_count + 1 +
           bases_of(p);
}

static bool same(const mp_addr *a, const mp_addr *b, size_t count) {
    return count == 0 || memcmp(a, b, count * sizeof *a) == 0;
}

static bool matches(const mp_island *island, const mp_island_program *p,
                    const mp_island_instance *instance, const mp_program_call *call) {
    const size_t in = (size_t)island->graph->input_count;
    const size_t out = (size_t)island->graph->output_count;
    const mp_addr *a = instance->addresses;
    return same(a, call->in, in) && same(a + in, call->out, out) && a[in + out] == call->block &&
           same(a + in + out + 1, call->bases, bases_of(p));
}

static void set_addresses(const mp_island *island, const mp_island_program *p, mp_addr *a,
                          const mp_program_call *call) {
    const size_t in = (size_t)island->graph->input_count;
    const size_t out = (size_t)island->graph->output_count;
    memcpy(a, call->in, in * sizeof *a);
    memcpy(a + in, call->out, out * sizeof *a);
    a[in + out] = call->block;
    for (size_t i = 0; i < bases_of(p); i++) {
        a[in + out + 1 + i] = call->bases[i];
    }
}

/* What a captured graph keeps on the device: no driver says it. */
static size_t graph_bytes(const mp_island_program *p) {
    return GRAPH_BYTES + LAUNCH_BYTES * (size_t)mp_program_launch_count(p->program);
}

/* ---- the list; with the island's lock held ---- */

static mp_island_instance *find(const mp_island *island, mp_island_program *p,
                                const mp_program_call *call) {
    for (int i = 0; i < p->instance_count; i++) {
        if (matches(island, p, &p->instances[i], call)) {
            return &p->instances[i];
        }
    }
    return NULL;
}

static bool may_go(const mp_island_program *p, const mp_island_instance *instance) {
    return !instance->busy && (instance->exec == NULL || p->runs - instance->last > IDLE_RUNS);
}

/* The one that was used longest ago of those that may give way; NULL where none may. */
static mp_island_instance *oldest(mp_island_program *p) {
    mp_island_instance *found = NULL;
    for (int i = 0; i < p->instance_count; i++) {
        mp_island_instance *instance = &p->instances[i];
        if (may_go(p, instance) && (found == NULL || instance->last < found->last)) {
            found = instance;
        }
    }
    return found;
}

/* A record for these addresses; NULL where there is no room. `*old`: a graph that gave way, which
 * may still run. */
static mp_island_instance *make_record(const mp_island *island, mp_island_program *p,
                                       const mp_program_call *call, mp_graph_exec **old) {
    mp_island_instance *instance = NULL;
    *old = NULL;
    if (p->instance_count < MP_ISLAND_INSTANCES_MAX) {
        mp_addr *addresses = calloc(address_count(island, p), sizeof *addresses);
        if (addresses == NULL) {
            return NULL;
        }
        instance = &p->instances[p->instance_count++];
        *instance = (mp_island_instance){.addresses = addresses};
    } else {
        instance = oldest(p);
        if (instance == NULL) {
            return NULL;
        }
        *old = instance->exec;
        mp__island_keeps(island, p, 0, *old != NULL ? graph_bytes(p) : 0);
        *instance = (mp_island_instance){.addresses = instance->addresses};
    }
    set_addresses(island, p, instance->addresses, call);
    return instance;
}

/* ---- graphs ---- */

static mp_status record(const mp_island *island, const mp_island_program *p, mp_stream *aside,
                        const mp_program_call *call, mp_graph_exec **out) {
    mp_device *device = island->provider->unit->device;
    MP_TRY(device->ops->capture_begin(device, aside));
    const mp_status status = mp_program_run(p->program, aside, call);
    const mp_status ended = device->ops->capture_end(device, aside, out);
    if (status != MP_OK && ended == MP_OK) {
        device->ops->graph_destroy(device, *out);
        *out = NULL;
    }
    return status != MP_OK ? status : ended;
}

static mp_status capture(const mp_island *island, const mp_island_program *p,
                         const mp_program_call *call, mp_graph_exec **out) {
    mp_device *device = island->provider->unit->device;
    mp_stream *aside = NULL;
    *out = NULL;
    MP_TRY(device->ops->stream_create(device, &aside));
    const mp_status status = record(island, p, aside, call, out);
    device->ops->stream_destroy(device, aside);
    return status;
}

static void destroy_later(const mp_island *island, mp_graph_exec *exec) {
    mp_device *device = island->provider->unit->device;
    if (exec != NULL) {
        (void)mp__run_streams_finish(island->provider);
        device->ops->graph_destroy(device, exec);
    }
}

/* ---- one run ---- */

/* What the run found under the lock. */
typedef struct choice {
    mp_island_instance *instance; /* busy, for this run alone; or NULL */
    mp_graph_exec *old;           /* to be destroyed */
} choice;

static choice choose(mp_island *island, mp_island_program *p, const mp_program_call *call) {
    choice c = {NULL, NULL};
    (void)pthread_mutex_lock(&island->lock);
    mp_island_instance *instance = find(island, p, call);
    p->runs++;
    if (instance == NULL) {
        instance = make_record(island, p, call, &c.old);
    }
    if (instance != NULL) {
        instance->last = p->runs;
        instance->runs++;
    }
    if (instance != NULL && !instance->busy &&
        (instance->exec != NULL || instance->runs > RUNS_BEFORE)) {
        instance->busy = true;
        c.instance = instance;
    }
    (void)pthread_mutex_unlock(&island->lock);
    return c;
}

/* `failed`: why there is no graph that can be launched. What lacked memory is tried again after
 * some more runs. */
static void let_go(mp_island *island, mp_island_program *p, mp_island_instance *instance,
                   bool is_new, mp_status failed) {
    (void)pthread_mutex_lock(&island->lock);
    instance->busy = false;
    if (is_new && instance->exec != NULL) {
        mp__island_keeps(island, p, graph_bytes(p), 0);
    }
    if (failed == MP_OUT_OF_MEMORY) {
        instance->runs = 0;
    } else if (failed != MP_OK) {
        p->never_captured = true;
        if (p->owner != NULL) {
            p->owner->never_joined = true; /* segments are captured, each for itself */
        }
    }
    (void)pthread_mutex_unlock(&island->lock);
}

static bool is_worth_it(const mp_island_program *p) {
    return !p->never_captured && !mp_program_draws(p->program) &&
           mp_program_launch_count(p->program) >= STEPS_LEAST &&
           mp_program_launch_count(p->program) <= LAUNCHES_MOST;
}

/* A stream that is captured by its user takes launches one by one, and so does every one while
 * kernels are compiled: a graph would wait for them, since it would keep for good what stands in
 * for them. */
static bool is_free(mp_device *device, mp_stream *stream) {
    bool captured = false;
    return device->ops->kernels_settled(device, false) &&
           device->ops->capture_active(device, stream, &captured) == MP_OK && !captured;
}

/* A graph that was captured before somebody listened, or for another, does not tell for which nodes
 * it works: it is captured once more. */
static void forget_silent(mp_island *island, mp_island_program *p, mp_island_instance *instance) {
    const uint64_t listener = mp_profile_listener();
    if (instance->exec == NULL || listener == 0 || listener == instance->listener) {
        return;
    }
    destroy_later(island, instance->exec);
    instance->exec = NULL;
    (void)pthread_mutex_lock(&island->lock);
    mp__island_keeps(island, p, 0, graph_bytes(p));
    (void)pthread_mutex_unlock(&island->lock);
}

static mp_status capture_or_make_room(const mp_island *island, const mp_island_program *p,
                                      const mp_program_call *call, mp_graph_exec **out) {
    const mp_status status = capture(island, p, call, out);
    return status == MP_OUT_OF_MEMORY && mp__islands_shed(island->provider)
               ? capture(island, p, call, out)
               : status;
}

bool mp__island_launch(mp_island *island, mp_island_program *p, mp_stream *stream,
                       const mp_program_call *call) {
    mp_device *device = island->provider->unit->device;
    mp_status status = MP_OK;
    if (!is_worth_it(p) || !is_free(device, stream)) {
        return false;
    }
    const choice c = choose(island, p, call);
    destroy_later(island, c.old);
    if (c.instance == NULL) {
        return false;
    }
    forget_silent(island, p, c.instance);
    const bool is_new = c.instance->exec == NULL;
    if (is_new) {
        c.instance->listener = mp_profile_listener();
        status = capture_or_make_room(island, p, call, &c.instance->exec);
    }
    if (status == MP_OK) {
        status = device->ops->graph_launch(device, c.instance->exec, stream);
    }
    if (status != MP_OK) {
        MP_LOG(INFO, "%s is not launched as a graph, and walked through: %s", island->name,
               mp_error_message());
    }
    let_go(island, p, c.instance, is_new, status);
    return status == MP_OK;
}
