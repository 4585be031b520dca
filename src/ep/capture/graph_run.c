/* graph_run.c - one run while it is recorded.
 *
 * The thread's own stream is captured, which the runs that warm up have used, so that handles of
 * libraries exist. The legacy default stream cannot be captured, nor one that all threads run on,
 * since another thread that waits for it would end the capture; a stream aside takes their place,
 * and the graph is launched on the thread's stream all the same.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/capture/graph_run.h"

#include "base/log.h"
#include "pool/pool_handle.h"

#include <stdlib.h>

_Thread_local mp_run *mp__run_now;

static mp_graphs *graphs_of(mp_run *run) {
    return MP_CONTAINER_OF(run, mp_graphs, run);
}

static mp_device *device_of(const mp_graphs *graphs) {
    return graphs->record->provider->unit->device;
}

/* ---- begin and end ---- */

static mp_status stream_to_record(mp_graphs *graphs, mp_run_stream **out) {
    mp_provider *provider = graphs->record->provider;
    MP_TRY(mp__thread_stream(graphs->record, out));
    if ((uintptr_t)(*out)->native > 1 && provider->only_stream == NULL) {
        return MP_OK;
    }
    if (graphs->side == NULL) {
        mp_pool *pool = NULL;
        MP_TRY(mp__pool_again(provider->pool, &pool));
        MP_TRY(mp__run_stream_create(provider->unit, pool, provider, &graphs->side));
    }
    *out = graphs->side;
    return MP_OK;
}

static mp_status begin(mp_graphs *graphs, mp_run_stream *into) {
    mp_device *device = device_of(graphs);
    (void)device->ops->kernels_settled(device, true); /* no graph keeps what stands in for them */
    graphs->memory.pool = graphs->record->provider->pool;
    MP_TRY(mp__graph_memory_begin(&graphs->memory, into->native));
    mp__run_stream_set_captured(into, true);
    const mp_status status = device->ops->capture_begin(device, into->stream);
    if (status != MP_OK) {
        mp__run_stream_set_captured(into, false);
        mp__graph_memory_end(&graphs->memory, into->native);
        mp__graph_memory_leave(&graphs->memory);
    }
    return status;
}

void mp__recording_begin(mp_graphs *graphs) {
    mp_run *run = &graphs->run;
    mp_status status = stream_to_record(graphs, &run->into);
    if (status == MP_OK) {
        status = begin(graphs, run->into);
    }
    run->is_recorded = status == MP_OK;
    if (status != MP_OK) {
        graphs->entry->attempts++;
        MP_LOG(WARNING, "a run is not recorded into graph %d: %s", graphs->entry->id,
               mp_error_message());
    }
}

/* A capture that did not end would keep the thread from everything else. */
static mp_status end_capture(mp_device *device, mp_stream *stream, mp_graph_exec **graph) {
    bool is_active = false;
    const mp_status status = device->ops->capture_end(device, stream, graph);
    if (status != MP_OK && device->ops->capture_active(device, stream, &is_active) == MP_OK &&
        is_active && device->ops->capture_end(device, stream, graph) == MP_OK) {
        device->ops->graph_destroy(device, *graph);
        *graph = NULL;
    }
    return status;
}

mp_status mp__recording_end(mp_graphs *graphs, mp_graph_exec **graph) {
    mp_device *device = device_of(graphs);
    mp_run *run = &graphs->run;
    *graph = NULL;
    run->is_recorded = false;
    const mp_status status = end_capture(device, run->into->stream, graph);
    mp__run_stream_set_captured(run->into, false);
    mp__graph_memory_end(&graphs->memory, run->into->native);
    return status;
}

mp_status mp__graph_queue(const mp_graphs *graphs, mp_graph_exec *graph) {
    mp_device *device = device_of(graphs);
    return device->ops->graph_launch(device, graph, mp__run_stream_use(graphs->record->stream));
}

/* ---- what cannot be recorded ---- */

/* Does what has been recorded, since the rest of the run will not wait for it. */
static mp_status run_part(const mp_graphs *graphs, mp_graph_exec *part) {
    mp_device *device = device_of(graphs);
    mp_status status = mp__graph_queue(graphs, part);
    const mp_status waited = mp__run_stream_wait(graphs->record->stream);
    status = status == MP_OK ? waited : status;
    device->ops->graph_destroy(device, part);
    return status;
}

static mp_status stop(mp_run *run, const char *why) {
    mp_graphs *graphs = graphs_of(run);
    mp_graph_exec *part = NULL;
    mp_status status = mp__recording_end(graphs, &part);
    if (status == MP_OK) {
        status = run_part(graphs, part);
    }
    (void)pthread_mutex_lock(&graphs->lock); /* another thread may release a graph */
    mp__graph_memory_leave(&graphs->memory);
    (void)pthread_mutex_unlock(&graphs->lock);
    MP_LOG(INFO, "graph %d is not captured in this run: %s", graphs->entry->id, why);
    run->failed |= status != MP_OK;
    return status;
}

mp_status mp__run_stop_recording(const char *why) {
    mp_run *run = mp__run_now;
    if (run == NULL || !run->is_recorded) {
        return MP_OK;
    }
    graphs_of(run)->entry->attempts++;
    return stop(run, why);
}

mp_status mp__run_unfit(const char *why) {
    mp_run *run = mp__run_now;
    if (run == NULL) {
        return MP_OK;
    }
    run->unfit = run->unfit != NULL ? run->unfit : why;
    return run->is_recorded ? stop(run, why) : MP_OK;
}

/* ---- what it uses ---- */

static mp_status make_room(mp_run *run, size_t more) {
    if (run->seen_capacity - run->seen_count >= more) {
        return MP_OK;
    }
    const size_t capacity = run->seen_capacity * 2 + more + 64;
    mp_addr *grown = realloc(run->seen, capacity * sizeof *grown);
    if (grown == NULL) {
        return mp__run_stop_recording("cannot allocate host memory for a list of addresses");
    }
    run->seen = grown;
    run->seen_capacity = capacity;
    return MP_OK;
}

static void add_seen(mp_run *run, const mp_addr *addresses, int count) {
    for (int i = 0; i < count; i++) {
        if (addresses[i] != 0) {
            run->seen[run->seen_count++] = addresses[i];
        }
    }
}

mp_status mp__run_saw(const mp_addr *in, int in_count, const mp_addr *out, int out_count) {
    mp_run *run = mp__run_now;
    if (run == NULL || !run->is_recorded) {
        return MP_OK;
    }
    MP_TRY(make_room(run, (size_t)in_count + (size_t)out_count));
    if (run->is_recorded) {
        add_seen(run, in, in_count);
        add_seen(run, out, out_count);
    }
    return MP_OK;
}

void mp__run_nodes_ended(const mp_provider *provider, int count, mp_status status) {
    mp_run *run = mp__run_now;
    if (run != NULL && run->provider == provider) {
        run->nodes += count;
        run->failed |= status != MP_OK;
    }
}

/* ---- memory ---- */

mp_status mp__lend(mp_pool *pool, size_t size, void *native, mp_addr *out) {
    mp_run *run = mp__run_now;
    if (run == NULL || !run->is_recorded) {
        return mp_pool_alloc(pool, size, native, out);
    }
    const mp_status status =
        mp__graph_memory_lend(&graphs_of(run)->memory, size, run->into->native, out);
    if (status != MP_OUT_OF_MEMORY) {
        return status;
    }
    /* Memory of earlier runs is not for the graph, but it may do for this run. */
    MP_TRY(mp__run_stop_recording("no memory can be set apart for it"));
    return mp_pool_alloc(pool, size, native, out);
}

mp_status mp__give_back(mp_pool *pool, mp_addr addr) {
    return mp__give_back_on(pool, addr, MP_NO_STREAM);
}

mp_status mp__give_back_on(mp_pool *pool, mp_addr addr, void *native) {
    mp_run *run = mp__run_now;
    if (run != NULL && run->is_recorded && graphs_of(run)->memory.is_listed &&
        mp__graph_memory_take_back(&graphs_of(run)->memory, addr)) {
        return MP_OK;
    }
    bool kept = false;
    MP_TRY(mp__holds_keep(addr, &kept));
    if (kept) {
        return MP_OK;
    }
    return native == MP_NO_STREAM ? mp_pool_free(pool, addr) : mp_pool_free_on(pool, addr, native);
}
