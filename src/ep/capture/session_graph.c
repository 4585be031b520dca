/* session_graph.c - captured graphs through ONNX Runtime's callbacks.
 *
 * In one Run of the user's, ONNX Runtime asks IsGraphCaptured, runs the session, asks again, and
 * runs it again and again until the answer is yes; after eight runs it gives up with an error.
 * Where the answer will stay no, it is yes once after a run all the same: the outputs are there.
 * Before a run the answer is never but the truth, since ReplayGraph would follow.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/capture/session_graph.h"

#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/capture/graph_run.h"

#include <stdlib.h>

enum {
    NO_GRAPH = -1,   /* gpu_graph_id of a run that is not to be captured */
    CHAIN_MAX = 7,   /* of runs in one Run: before ONNX Runtime gives up */
    API_SYNCS = 27,  /* the first that calls Sync after ReplayGraph */
    API_RELEASE = 27 /* the first that has ReleaseCapturedGraph */
};

static mp_provider *from(const OrtEp *self) {
    return (mp_provider *)(uintptr_t)self;
}

static mp_graphs *known_graphs(const OrtEp *self) {
    const mp_thread_record *record = mp__thread_record_find(from(self));
    return record != NULL ? record->graphs : NULL;
}

/* ---- entries; with the lock held ---- */

static mp_graph_entry *find_entry(const mp_graphs *graphs, int id) {
    mp_graph_entry *entry = graphs->entries;
    while (entry != NULL && entry->id != id) {
        entry = entry->next;
    }
    return entry;
}

static mp_status get_entry(mp_graphs *graphs, int id, mp_graph_entry **out) {
    *out = find_entry(graphs, id);
    if (*out != NULL) {
        return MP_OK;
    }
    mp_graph_entry *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of graph %d", id);
    }
    fresh->id = id;
    fresh->next = graphs->entries;
    graphs->entries = fresh;
    *out = fresh;
    return MP_OK;
}

/* Waits for the graph's last launch and gives back what it used. */
static void drop_graph(mp_graphs *graphs, mp_graph_entry *entry) {
    if (entry->graph == NULL) {
        return;
    }
    mp_device *device = graphs->record->provider->unit->device;
    if (mp__run_stream_finish(graphs->record->stream) != MP_OK) {
        MP_LOG(ERROR, "a graph is released on a device that reports: %s", mp_error_message());
    }
    device->ops->graph_destroy(device, entry->graph);
    entry->graph = NULL;
    mp__holds_drop(graphs->memory.pool, &entry->holds);
    mp__graph_memory_leave(&graphs->memory);
}

/* Takes: `graphs`, none of which is being recorded. */
static void destroy_graphs(mp_graphs *graphs) {
    while (graphs->entries != NULL) {
        mp_graph_entry *entry = graphs->entries;
        graphs->entries = entry->next;
        drop_graph(graphs, entry);
        free(entry);
    }
    mp__run_stream_drop(graphs->side);
    free(graphs->run.seen);
    pthread_mutex_destroy(&graphs->lock);
    free(graphs);
}

static mp_status get_graphs(mp_provider *provider, mp_graphs **out) {
    mp_thread_record *record = NULL;
    MP_TRY(mp__thread_record_get(provider, &record));
    if (record->graphs == NULL) {
        mp_graphs *fresh = calloc(1, sizeof *fresh);
        if (fresh == NULL) {
            return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a thread's graphs");
        }
        fresh->record = record;
        pthread_mutex_init(&fresh->lock, NULL);
        record->destroy_graphs = destroy_graphs;
        atomic_store(&record->graphs, fresh);
    }
    *out = record->graphs;
    return MP_OK;
}

/* ---- a run begins ---- */

/* As ONNX Runtime reads it, which refuses anything but a number. */
static int read_id(const OrtRunOptions *options) {
    const char *text = options != NULL ? ORT->GetRunConfigEntry(options, "gpu_graph_id") : NULL;
    return text != NULL ? (int)strtol(text, NULL, 10) : 0;
}

static void open_run(mp_graphs *graphs) {
    mp_run *run = &graphs->run;
    *run = (mp_run){.provider = graphs->record->provider,
                    .outer = mp__run_now,
                    .seen = run->seen,
                    .seen_capacity = run->seen_capacity};
    mp__run_now = run;
    graphs->entry = NULL;
    graphs->stops_chain = graphs->was_launched = false;
}

static bool is_due(const mp_graphs *graphs, const mp_graph_entry *entry) {
    const int64_t least = graphs->record->provider->options.min_num_runs_before_cuda_graph_capture;
    return entry->graph == NULL && entry->warm_ups >= least && entry->attempts < MP_GRAPH_ATTEMPTS;
}

static OrtStatus *on_run_start(OrtEp *self, const OrtRunOptions *options) {
    mp_graphs *graphs = NULL;
    const mp_status found = get_graphs(from(self), &graphs);
    if (found != MP_OK) {
        return mp__to_ort(found);
    }
    if (graphs->depth++ > 0) { /* a run from within a run: part of that */
        return NULL;
    }
    open_run(graphs);
    const int id = read_id(options);
    if (id == NO_GRAPH) {
        return NULL;
    }
    (void)pthread_mutex_lock(&graphs->lock);
    const mp_status status = get_entry(graphs, id, &graphs->entry);
    if (status == MP_OK && is_due(graphs, graphs->entry)) {
        mp__recording_begin(graphs);
    }
    (void)pthread_mutex_unlock(&graphs->lock);
    if (status != MP_OK) { /* the run needs no graph */
        MP_LOG(WARNING, "%s", mp_error_message());
    }
    return NULL;
}

/* ---- a run ends ---- */

/* Whether all of the session's nodes have run. ONNX Runtime does not say whether a run failed, and
 * a node of another provider may have. */
static bool is_whole(const mp_graphs *graphs) {
    const mp_run *run = &graphs->run;
    return !run->failed && (run->nodes == atomic_load(&run->provider->kernel_count) ||
                            (run->nodes > 0 && run->nodes == graphs->entry->nodes));
}

/* The runs that one Run of the user's makes must come to an end. */
static void count_chain(mp_graphs *graphs, bool goes_on) {
    graphs->chain = goes_on ? graphs->chain + 1 : 0;
    graphs->stops_chain = !goes_on || graphs->chain == CHAIN_MAX;
    if (graphs->stops_chain) {
        graphs->chain = 0;
    }
}

/* Otherwise each Run of the user's is one that warms up. */
static bool may_repeat(const mp_graphs *graphs) {
    return !atomic_load(&graphs->record->provider->runs_once);
}

static const char *reason_against(const mp_graphs *graphs) {
    if (graphs->entry->attempts >= MP_GRAPH_ATTEMPTS) {
        return "recording it has failed before; the log says why where its level is info";
    }
    return graphs->run.nodes == 0 ? "none of the model's nodes runs on the device"
                                  : graphs->run.unfit;
}

static void end_plain(mp_graphs *graphs) {
    mp_graph_entry *entry = graphs->entry;
    const bool whole = is_whole(graphs);
    entry->nodes = graphs->run.nodes;
    if (!whole) {
        graphs->chain = 0;
        return;
    }
    const char *against = reason_against(graphs);
    entry->warm_ups += against == NULL;
    count_chain(graphs, against == NULL && may_repeat(graphs));
    if (against != NULL && !entry->is_told) {
        MP_LOG(WARNING, "a run is not captured into graph %d: %s", entry->id, against);
        entry->is_told = true;
    }
}

static mp_status keep_graph(mp_graphs *graphs, mp_graph_exec *graph) {
    mp_run *run = &graphs->run;
    mp_addr *seen = run->seen;
    const size_t count = run->seen_count;
    run->seen = NULL;
    run->seen_count = run->seen_capacity = 0;
    MP_TRY(mp__holds_make(graphs->memory.pool, seen, count, &graphs->entry->holds));
    graphs->entry->graph = graph;
    MP_LOG(INFO, "graph %d is captured: %lld nodes", graphs->entry->id, (long long)run->nodes);
    return MP_OK;
}

static void drop_recording(mp_graphs *graphs, mp_graph_exec *graph) {
    mp_device *device = graphs->record->provider->unit->device;
    if (graph != NULL) {
        (void)mp__run_stream_wait(graphs->record->stream);
        device->ops->graph_destroy(device, graph);
    }
    mp__graph_memory_leave(&graphs->memory);
}

/* Nothing of the run has been done yet but recorded: its work is in the first launch. */
static mp_status launch_first(const mp_graphs *graphs, mp_graph_exec *graph, bool waits) {
    MP_TRY(mp__run_streams_finish(graphs->record->provider)); /* for runs that nobody waited for */
    MP_TRY(mp__graph_queue(graphs, graph));
    return waits ? mp__run_stream_wait(graphs->record->stream) : MP_OK;
}

static mp_status end_recorded(mp_graphs *graphs, bool waits) {
    mp_graph_exec *graph = NULL;
    const bool failed = graphs->run.failed; /* ONNX Runtime has the reason from the node */
    const bool whole = is_whole(graphs);
    mp_status status = mp__recording_end(graphs, &graph);
    if (failed) {
        status = MP_OK;
    } else if (status == MP_OK) {
        status = launch_first(graphs, graph, waits);
    }
    if (status == MP_OK && whole) {
        status = keep_graph(graphs, graph);
    }
    graphs->entry->nodes = graphs->run.nodes;
    if (failed || status != MP_OK) {
        graphs->chain = 0;
    } else {
        count_chain(graphs, graphs->entry->graph == NULL && may_repeat(graphs));
    }
    if (graphs->entry->graph == NULL) {
        drop_recording(graphs, graph);
        /* A recording that ends in an error is not worth another one. */
        graphs->entry->attempts =
            failed || status != MP_OK ? MP_GRAPH_ATTEMPTS : graphs->entry->attempts + 1;
    }
    return status;
}

static OrtStatus *on_run_end(OrtEp *self, const OrtRunOptions *options, bool waits) {
    (void)options;
    mp_graphs *graphs = known_graphs(self);
    if (graphs == NULL || --graphs->depth > 0) {
        return NULL;
    }
    mp__run_now = graphs->run.outer;
    mp_status status = MP_OK;
    (void)pthread_mutex_lock(&graphs->lock);
    if (graphs->run.is_recorded) {
        status = end_recorded(graphs, waits);
    } else if (graphs->entry != NULL) {
        end_plain(graphs);
    }
    if (!waits) {
        mp__run_stream_mark(graphs->record->stream);
    }
    (void)pthread_mutex_unlock(&graphs->lock);
    return mp__to_ort(status);
}

/* ---- graphs ---- */

static bool is_enabled(const OrtEp *self) {
    return from(self)->options.enable_cuda_graph;
}

static bool is_captured(const OrtEp *self, int id) {
    mp_graphs *graphs = known_graphs(self);
    if (graphs == NULL) {
        return false;
    }
    graphs->was_launched = false;
    if (graphs->stops_chain) {
        graphs->stops_chain = false;
        return true;
    }
    (void)pthread_mutex_lock(&graphs->lock);
    const mp_graph_entry *entry = find_entry(graphs, id);
    const bool captured = entry != NULL && entry->graph != NULL;
    (void)pthread_mutex_unlock(&graphs->lock);
    return captured;
}

static OrtStatus *replay(OrtEp *self, int id) {
    mp_graphs *graphs = known_graphs(self);
    mp_status status = MP_NOT_FOUND;
    if (graphs != NULL) {
        (void)pthread_mutex_lock(&graphs->lock);
        const mp_graph_entry *entry = find_entry(graphs, id);
        if (entry != NULL && entry->graph != NULL) {
            status = mp__graph_queue(graphs, entry->graph);
            mp__run_stream_mark(graphs->record->stream);
        }
        (void)pthread_mutex_unlock(&graphs->lock);
    }
    if (status == MP_NOT_FOUND) {
        return mp__to_ort(MP_FAIL(NOT_FOUND,
                                  "graph %d of this thread no longer exists: another thread "
                                  "released it, or the previous run failed; run again",
                                  id));
    }
    MP_TRY_ORT(status);
    graphs->was_launched = true;
    return mp_the_plugin.version < API_SYNCS
               ? mp__to_ort(mp__run_stream_wait(graphs->record->stream))
               : NULL;
}

static OrtGraphCaptureNodeAssignmentPolicy policy(const OrtEp *self) {
    (void)self;
    return OrtGraphCaptureNodeAssignmentPolicy_ALLOW_CPU_FOR_SHAPES;
}

static void release_one(mp_thread_record *record, void *context) {
    mp_graphs *graphs = record->graphs;
    if (graphs == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&graphs->lock);
    mp_graph_entry *entry = find_entry(graphs, *(const int *)context);
    if (entry != NULL) {
        drop_graph(graphs, entry);
        entry->warm_ups = entry->attempts = 0;
        entry->is_told = false;
    }
    (void)pthread_mutex_unlock(&graphs->lock);
}

static OrtStatus *release_graph(OrtEp *self, int id) {
    mp__thread_records_each(from(self), release_one, &id);
    return NULL;
}

/* Right after a launch ONNX Runtime means that one, and threads must not wait for each other's
 * graphs. But where it was told not to wait, this is the user's call, who may mean anything. */
static OrtStatus *sync_launched(OrtEp *self) {
    mp_graphs *graphs = known_graphs(self);
    const bool was_launched = graphs != NULL && graphs->was_launched;
    if (was_launched) {
        graphs->was_launched = false;
        return mp__to_ort(mp__run_streams_wait_launch(from(self)));
    }
    return mp__to_ort(mp__run_streams_wait_device(from(self)));
}

void mp__graph_install(mp_provider *provider) {
    OrtEp *base = &provider->base;
    if (!provider->options.enable_cuda_graph) {
        return;
    }
    base->Sync = sync_launched;
    base->OnRunStart = on_run_start;
    base->OnRunEnd = on_run_end;
    base->IsGraphCaptureEnabled = is_enabled;
    base->IsGraphCaptured = is_captured;
    base->ReplayGraph = replay;
    base->GetGraphCaptureNodeAssignmentPolicy = policy;
    base->ReleaseCapturedGraph = mp_the_plugin.version >= API_RELEASE ? release_graph : NULL;
}
