/* cuda_stream.c - streams, events and graphs of a GPU.
 *
 * Streams do not wait for the legacy default stream. Captures are thread-local: what other threads
 * do meanwhile cannot break them. An mp_event is a CUevent and an mp_graph_exec a CUgraphExec.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_ranks.h"

#include <stdlib.h>

static mp_status stream_new(CUstream handle, bool owned, mp_stream **out) {
    cuda_stream *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a stream");
    }
    *fresh = (cuda_stream){.handle = handle, .owned = owned};
    *out = (mp_stream *)(void *)fresh;
    return MP_OK;
}

mp_status mp__cuda_stream_create(mp_device *self, mp_stream **out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUstream handle = NULL;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.stream_create(&handle, CU_STREAM_NON_BLOCKING);
    mp_status status = result == CUDA_SUCCESS ? stream_new(handle, true, out) : MP_OK;
    if (status != MP_OK) {
        (void)mp__cu.stream_destroy(handle);
    }
    const mp_status made = mp__cuda_leave(device, &scope, result, "cuStreamCreate");
    return made != MP_OK ? made : status;
}

/* CUDA has two names for the legacy default stream; ours is NULL. */
mp_status mp__cuda_stream_wrap(mp_device *self, void *native, mp_stream **out) {
    (void)self;
    const CUstream handle = native;
    return stream_new(handle == CU_STREAM_LEGACY ? NULL : handle, false, out);
}

void mp__cuda_stream_destroy(mp_device *self, mp_stream *stream) {
    cuda_device *device = cuda_device_of(self);
    cuda_stream *gone = cuda_stream_from(stream);
    cuda_scope scope;
    if (mp__cuda_enter_aside(device, &scope) == MP_OK) {
        if (gone->owned) {
            mp__cuda_warn(device, mp__cu.stream_synchronize(gone->handle), "cuStreamSynchronize");
        }
        mp__cuda_stream_release(device, gone);
        if (gone->owned) {
            mp__cuda_warn(device, mp__cu.stream_destroy(gone->handle), "cuStreamDestroy");
        }
        mp__cuda_exit(&scope);
    }
    free(gone);
}

void *mp__cuda_stream_native(mp_device *self, mp_stream *stream) {
    (void)self;
    return cuda_stream_of(stream);
}

mp_status mp__cuda_stream_id(mp_device *self, mp_stream *stream, uint64_t *out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    unsigned long long id = 0;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.stream_id(cuda_stream_of(stream), &id);
    MP_TRY(mp__cuda_leave(device, &scope, result, "cuStreamGetId"));
    *out = id;
    return MP_OK;
}

mp_status mp__cuda_stream_synchronize(mp_device *self, mp_stream *stream) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.stream_synchronize(cuda_stream_of(stream));
    MP_TRY(mp__cuda_leave(device, &scope, result, "cuStreamSynchronize"));
    return mp__cuda_ranks_health(device);
}

/* Turns "not ready" from an error into an answer. */
static mp_status answer(const cuda_device *device, cuda_scope *scope, CUresult result,
                        const char *call, bool *reached) {
    *reached = result == CUDA_SUCCESS;
    return mp__cuda_leave(device, scope, result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result,
                          call);
}

mp_status mp__cuda_stream_query(mp_device *self, mp_stream *stream, bool *idle) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.stream_query(cuda_stream_of(stream));
    return answer(device, &scope, result, "cuStreamQuery", idle);
}

mp_status mp__cuda_stream_call(mp_device *self, mp_stream *stream, mp_host_call *fn,
                               void *context) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.stream_call(cuda_stream_of(stream), fn, context);
    return mp__cuda_leave(device, &scope, result, "cuLaunchHostFunc");
}

mp_status mp__cuda_synchronize(mp_device *self) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.context_synchronize();
    MP_TRY(mp__cuda_leave(device, &scope, result, "cuCtxSynchronize"));
    return mp__cuda_ranks_health(device);
}

/* ---- events ---- */

mp_status mp__cuda_event_create(mp_device *self, bool timed, mp_event **out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUevent handle = NULL;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result =
        mp__cu.event_create(&handle, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
    MP_TRY(mp__cuda_leave(device, &scope, result, "cuEventCreate"));
    *out = (mp_event *)(void *)handle;
    return MP_OK;
}

void mp__cuda_event_destroy(mp_device *self, mp_event *event) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    if (mp__cuda_enter_aside(device, &scope) == MP_OK) {
        mp__cuda_warn(device, mp__cu.event_destroy(cuda_event_of(event)), "cuEventDestroy");
        mp__cuda_exit(&scope);
    }
}

mp_status mp__cuda_event_record(mp_device *self, mp_event *event, mp_stream *stream) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.event_record(cuda_event_of(event), cuda_stream_of(stream));
    return mp__cuda_leave(device, &scope, result, "cuEventRecord");
}

mp_status mp__cuda_event_wait(mp_device *self, mp_event *event, mp_stream *stream) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result =
        mp__cu.stream_wait(cuda_stream_of(stream), cuda_event_of(event), CU_EVENT_WAIT_DEFAULT);
    return mp__cuda_leave(device, &scope, result, "cuStreamWaitEvent");
}

mp_status mp__cuda_event_synchronize(mp_device *self, mp_event *event) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.event_synchronize(cuda_event_of(event));
    MP_TRY(mp__cuda_leave(device, &scope, result, "cuEventSynchronize"));
    return mp__cuda_ranks_health(device);
}

mp_status mp__cuda_event_query(mp_device *self, mp_event *event, bool *reached) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.event_query(cuda_event_of(event));
    return answer(device, &scope, result, "cuEventQuery", reached);
}

mp_status mp__cuda_event_elapsed(mp_device *self, mp_event *start, mp_event *end, float *ms) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter_aside(device, &scope));
    const CUresult result = mp__cu.event_elapsed(ms, cuda_event_of(start), cuda_event_of(end));
    return mp__cuda_leave(device, &scope, result, "cuEventElapsedTime");
}

/* ---- graphs ---- */

mp_status mp__cuda_capture_begin(mp_device *self, mp_stream *stream) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result =
        mp__cu.capture_begin(cuda_stream_of(stream), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return mp__cuda_leave(device, &scope, result, "cuStreamBeginCapture");
}

mp_status mp__cuda_capture_end(mp_device *self, mp_stream *stream, mp_graph_exec **out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUgraph recorded = NULL;
    CUgraphExec ready = NULL;
    MP_TRY(mp__cuda_enter(device, &scope));
    const char *call = "cuStreamEndCapture";
    CUresult result = mp__cu.capture_end(cuda_stream_of(stream), &recorded);
    if (result == CUDA_SUCCESS) {
        call = "cuGraphInstantiate";
        result = mp__cu.graph_instantiate(&ready, recorded, 0);
    }
    if (recorded != NULL) {
        (void)mp__cu.graph_destroy(recorded);
    }
    MP_TRY(mp__cuda_leave(device, &scope, result, call));
    *out = (mp_graph_exec *)(void *)ready;
    return MP_OK;
}

mp_status mp__cuda_capture_active(mp_device *self, mp_stream *stream, bool *active) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    MP_TRY(mp__cuda_enter(device, &scope));
    const CUresult result = mp__cu.capture_active(cuda_stream_of(stream), &state);
    *active = state != CU_STREAM_CAPTURE_STATUS_NONE;
    return mp__cuda_leave(device, &scope, result, "cuStreamIsCapturing");
}

mp_status mp__cuda_graph_launch(mp_device *self, mp_graph_exec *graph, mp_stream *stream) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(mp__cuda_ranks_health(device)); /* it may use what was aborted */
    MP_TRY(mp__cuda_enter(device, &scope));
    /* It may hold work between ranks. */
    cuda_ranks *turn = mp__cuda_ranks_begin(cuda_stream_of(stream), false);
    const CUresult result = mp__cu.graph_launch((CUgraphExec)(void *)graph, cuda_stream_of(stream));
    mp__cuda_ranks_end(turn, cuda_stream_of(stream), result == CUDA_SUCCESS);
    return mp__cuda_leave(device, &scope, result, "cuGraphLaunch");
}

void mp__cuda_graph_destroy(mp_device *self, mp_graph_exec *graph) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    if (mp__cuda_enter(device, &scope) == MP_OK) {
        mp__cuda_warn(device, mp__cu.graph_exec_destroy((CUgraphExec)(void *)graph),
                      "cuGraphExecDestroy");
        mp__cuda_exit(&scope);
    }
}
