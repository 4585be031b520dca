/* cuda_branch.c - parts of a captured graph that a launch runs or leaves out: conditional nodes.
 *
 * A node of a graph cannot read memory: a kernel before it hands it what the byte says. That kernel
 * is a few lines of PTX, whose one call is a function that the driver itself has
 * (cudaGraphSetConditional), so that neither a compiler nor CUDA's device library is needed. The
 * branch is captured by a stream of its own, straight into the graph that belongs to the node.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_private.h"

#include <stdlib.h>
#include <string.h>

enum { VERSION_LEAST = 12040 }; /* of the driver */

#define SETTER "mp_set_condition"

/* (handle, address of the byte, whether it is wanted) */
static const char setter_text[] = ".version 6.0\n"
                                  ".target sm_50\n"
                                  ".address_size 64\n"
                                  ".extern .func cudaGraphSetConditional\n"
                                  "(.param .b64 handle, .param .b32 value);\n"
                                  ".visible .entry " SETTER "\n"
                                  "(.param .u64 of, .param .u64 at, .param .u32 wanted)\n"
                                  "{\n"
                                  ".reg .pred %p<4>;\n"
                                  ".reg .b16 %h<2>;\n"
                                  ".reg .b32 %r<3>;\n"
                                  ".reg .b64 %d<4>;\n"
                                  "ld.param.u64 %d1, [of];\n"
                                  "ld.param.u64 %d2, [at];\n"
                                  "ld.param.u32 %r1, [wanted];\n"
                                  "cvta.to.global.u64 %d3, %d2;\n"
                                  "ld.global.u8 %h1, [%d3];\n"
                                  "setp.ne.u16 %p1, %h1, 0;\n"
                                  "setp.eq.u32 %p2, %r1, 0;\n"
                                  "xor.pred %p3, %p1, %p2;\n"
                                  "selp.u32 %r2, 1, 0, %p3;\n"
                                  "{\n"
                                  ".param .b64 handle;\n"
                                  ".param .b32 value;\n"
                                  "st.param.b64 [handle], %d1;\n"
                                  "st.param.b32 [value], %r2;\n"
                                  "call.uni cudaGraphSetConditional, (handle, value);\n"
                                  "}\n"
                                  "ret;\n"
                                  "}\n";

/* ---- once for a device ---- */

static mp_status refuse(void) {
    return MP_FAIL(UNSUPPORTED, "the driver has no conditional nodes, as CUDA 12.4 and newer have, "
                                "or MILLPOND_BRANCHES is not \"on\"");
}

/* Off unless asked for: graphs with branches in branches are right, but under compute-sanitizer
 * some break the context, and nobody knows yet whether it or they are to blame. */
static bool are_wanted(void) {
    const char *given = secure_getenv("MILLPOND_BRANCHES");
    return given != NULL && strcmp(given, "on") == 0;
}

static bool has_calls(void) {
    return mp__cuda_driver_version() >= VERSION_LEAST && mp__cu.graph_add != NULL &&
           mp__cu.condition_create != NULL && mp__cu.capture_info != NULL &&
           mp__cu.capture_set_last != NULL && mp__cu.capture_begin_to != NULL;
}

/* Asking for the function loads the code now; left to the first launch it would break a capture. */
static mp_status load_setter(cuda_device *device) {
    struct cuda_branches *b = &device->branches;
    cuda_scope scope;
    CUfunction function = NULL;
    MP_TRY(mp__cuda_enter(device, &scope));
    const char *call = "cuLibraryLoadData";
    CUresult result = mp__cu.library_load(&b->library, setter_text, NULL, NULL, 0, NULL, NULL, 0);
    if (result == CUDA_SUCCESS) {
        call = "cuLibraryGetKernel";
        result = mp__cu.library_kernel(&b->setter, b->library, SETTER);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuKernelGetFunction";
        result = mp__cu.kernel_function(&function, b->setter);
    }
    if (result != CUDA_SUCCESS && b->library != NULL) {
        (void)mp__cu.library_unload(b->library);
        b->library = NULL;
    }
    return mp__cuda_leave(device, &scope, result, call);
}

static mp_status prepare_locked(cuda_device *device) {
    struct cuda_branches *b = &device->branches;
    if (b->ready) {
        return MP_OK;
    }
    if (b->refused || !are_wanted() || !has_calls()) {
        b->refused = true;
        return refuse();
    }
    const mp_status status = load_setter(device);
    if (status == MP_OUT_OF_MEMORY) {
        return status;
    }
    if (status != MP_OK) {
        b->refused = true;
        return mp__fail(MP_UNSUPPORTED, "a graph can have no branches: %s", mp_error_message());
    }
    b->ready = true;
    return MP_OK;
}

mp_status mp__cuda_branch_prepare(mp_device *self) {
    cuda_device *device = cuda_device_of(self);
    if (atomic_load_explicit(&device->branches.ready, memory_order_acquire)) {
        return MP_OK;
    }
    (void)pthread_mutex_lock(&device->kernel_lock);
    const mp_status status = prepare_locked(device);
    (void)pthread_mutex_unlock(&device->kernel_lock);
    return status;
}

/* ---- a branch ---- */

/* What a stream captures into, and behind what its next node comes. */
typedef struct place {
    CUgraph graph;
    const CUgraphNode *last; /* borrowed, until the next call on the stream */
    const CUgraphEdgeData *edges;
    size_t count;
} place;

static CUresult find_place(CUstream stream, place *out) {
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = mp__cu.capture_info(stream, &state, NULL, &out->graph, &out->last,
                                                &out->edges, &out->count);
    return result == CUDA_SUCCESS && state != CU_STREAM_CAPTURE_STATUS_ACTIVE
               ? CUDA_ERROR_ILLEGAL_STATE
               : result;
}

/* Not brought up before the kernel before it has ended, which may be the one that makes the byte.
 */
static CUresult queue_setter(const cuda_device *device, CUstream stream,
                             CUgraphConditionalHandle handle, mp_addr condition, bool wanted) {
    uint64_t at = condition;
    uint32_t is_wanted = wanted;
    void *parameters[] = {&handle, &at, &is_wanted};
    const CUlaunchConfig config = {.gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream};
    return mp__cu.launch(&config, (CUfunction)device->branches.setter, parameters, NULL);
}

/* Gives: `*body`, the graph that belongs to the node. */
static CUresult add_node(const cuda_device *device, CUstream stream,
                         CUgraphConditionalHandle handle, CUgraph *body, const char **call) {
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraphNode added = NULL;
    place at = {0};
    node.conditional.handle = handle;
    node.conditional.type = CU_GRAPH_COND_TYPE_IF;
    node.conditional.size = 1;
    node.conditional.ctx = device->context;
    *call = "cuStreamGetCaptureInfo";
    CUresult result = find_place(stream, &at);
    if (result == CUDA_SUCCESS) {
        *call = "cuGraphAddNode";
        result = mp__cu.graph_add(&added, at.graph, at.last, at.edges, at.count, &node);
    }
    if (result == CUDA_SUCCESS) {
        *call = "cuStreamUpdateCaptureDependencies";
        result =
            mp__cu.capture_set_last(stream, &added, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    }
    if (result == CUDA_SUCCESS) {
        *body = node.conditional.phGraph_out[0];
    }
    return result;
}

static CUresult open_body(const cuda_device *device, CUstream stream, mp_addr condition,
                          bool wanted, CUgraph *body, const char **call) {
    CUgraphConditionalHandle handle = 0;
    place at = {0};
    *call = "cuStreamGetCaptureInfo";
    CUresult result = find_place(stream, &at);
    if (result == CUDA_SUCCESS) {
        *call = "cuGraphConditionalHandleCreate";
        result = mp__cu.condition_create(&handle, at.graph, device->context, 0, 0);
    }
    if (result == CUDA_SUCCESS) {
        *call = "cuLaunchKernelEx";
        result = queue_setter(device, stream, handle, condition, wanted);
    }
    return result == CUDA_SUCCESS ? add_node(device, stream, handle, body, call) : result;
}

static mp_status begin_in(cuda_device *device, CUstream stream, mp_addr condition, bool wanted,
                          CUstream aside) {
    cuda_scope scope;
    CUgraph body = NULL;
    const char *call = "";
    MP_TRY(mp__cuda_enter(device, &scope));
    CUresult result = open_body(device, stream, condition, wanted, &body, &call);
    if (result == CUDA_SUCCESS) {
        call = "cuStreamBeginCaptureToGraph";
        result = mp__cu.capture_begin_to(aside, body, NULL, NULL, 0,
                                         CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    }
    return mp__cuda_leave(device, &scope, result, call);
}

mp_status mp__cuda_branch_begin(mp_device *self, mp_stream *stream, mp_addr condition, bool wanted,
                                mp_stream **inside) {
    cuda_device *device = cuda_device_of(self);
    mp_stream *aside = NULL;
    bool active = false;
    if (!atomic_load_explicit(&device->branches.ready, memory_order_acquire)) {
        return refuse();
    }
    MP_TRY(mp__cuda_capture_active(self, stream, &active));
    if (!active) {
        return MP_FAIL(INVALID_ARGUMENT, "branch_begin on a stream that is not being captured");
    }
    MP_TRY(mp__cuda_stream_create(self, &aside));
    const mp_status status =
        begin_in(device, cuda_stream_of(stream), condition, wanted, cuda_stream_of(aside));
    if (status != MP_OK) {
        mp__cuda_stream_destroy(self, aside);
        return status;
    }
    *inside = aside;
    return MP_OK;
}

/* The graph that the capture gives back is the node's, and stays with it. A kernel behind the node
 * must not be brought up early: that is for kernels that follow kernels. */
mp_status mp__cuda_branch_end(mp_device *self, mp_stream *stream, mp_stream *inside) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    CUgraph body = NULL;
    mp_status status = mp__cuda_enter(device, &scope);
    if (status == MP_OK) {
        const CUresult result = mp__cu.capture_end(cuda_stream_of(inside), &body);
        status = mp__cuda_leave(device, &scope, result, "cuStreamEndCapture");
    }
    cuda_stream_from(stream)->ended_branch = true;
    mp__cuda_stream_destroy(self, inside);
    return status;
}
