/* host_branch.c - branches of captures: each is captured by a stream of its own, and becomes a node
 * of the capture around it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_work.h"

mp_status mp__host_branch_prepare(mp_device *self) {
    return mp__host_call(mp__host_from(self), "branch_prepare");
}

mp_status mp__host_branch_begin(mp_device *self, mp_stream *stream, mp_addr condition, bool wanted,
                                mp_stream **inside) {
    host_device *host = mp__host_from(self);
    mp_stream *fresh = NULL;
    MP_TRY(mp__host_call(host, "branch_begin"));
    if (stream->queue->capture == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "branch_begin on stream %u, which is not being captured",
                       stream->queue->number);
    }
    MP_TRY(mp__host_stream_create(self, &fresh));
    const mp_status status = mp__host_capture_begin(self, fresh);
    if (status != MP_OK) {
        mp__host_stream_destroy(self, fresh);
        return status;
    }
    fresh->condition = condition;
    fresh->wanted = wanted;
    *inside = fresh;
    return MP_OK;
}

mp_status mp__host_branch_end(mp_device *self, mp_stream *stream, mp_stream *inside) {
    host_device *host = mp__host_from(self);
    const mp_status called = mp__host_call(host, "branch_end");
    mp_graph_exec *graph = NULL;
    mp_status status = mp__host_capture_end(self, inside, &graph);
    if (status == MP_OK) {
        status = called == MP_OK ? mp__host_capture_add_branch(host, stream, graph,
                                                               inside->condition, inside->wanted)
                                 : called;
        mp__host_graph_destroy(self, graph);
    }
    mp__host_stream_destroy(self, inside);
    return status;
}
