/* torch_graph.c - memory of the graphs that PyTorch captures, with the allocator of the whole
 * process.
 *
 * PyTorch names the memory of a graph by two numbers. It begins to allocate to it before the
 * capture of the current stream begins, ends after the capture has ended, and releases it once for
 * each graph. Blocks allocated between come from one mp_capture. A further stream joins when it is
 * captured, too, at its first request: PyTorch captures one graph at a time.
 *
 * The parameters are C++ objects. By the Itanium C++ ABI std::pair<uint64_t, uint64_t> is passed as
 * the struct of C that has the same members, and the std::function that says which streams belong
 * to the graph as an address; it is the caller's, and not looked at. The current stream is asked of
 * PyTorch in Python.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "base/log.h"
#include "base/status.h"
#include "torch.h"

#include <stdlib.h>

enum { STREAMS_MAX = 64 }; /* of one graph */

typedef struct graph_id { /* c10::MempoolId_t */
    uint64_t first, second;
} graph_id;

typedef struct graph_memory {
    struct graph_memory *next;
    graph_id id;
    int device;
    mp_pool *pool; /* borrowed, for good */
    mp_capture *capture;
    unsigned users; /* begun and not released */
    bool is_open;   /* being captured */
    size_t stream_count;
    void *streams[STREAMS_MAX]; /* while it is open */
} graph_memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static graph_memory *graphs;                             /* owned */
static graph_memory *retired; /* owned; released while another one was open */
static atomic_uint open_count;
static PyObject *stream_source; /* owned; (device) -> handle of the current stream */

CORE_EXPORT int millpond_torch_streams(PyObject *source);
CORE_EXPORT void millpond_torch_graph_begin(int device, graph_id id, const void *filter);
CORE_EXPORT void millpond_torch_graph_end(int device, graph_id id);
CORE_EXPORT void millpond_torch_graph_release(int device, graph_id id);

/* `source`: a callable. Returns 0. */
int millpond_torch_streams(PyObject *source) {
    PyObject *old = stream_source;
    stream_source = Py_NewRef(source);
    Py_XDECREF(old);
    return 0;
}

/* ---- the GIL ---- */

/* PyTorch releases a graph with the GIL and begins one without. Waiting for our lock or the device
 * with it could stop the thread that is waited for; so it is taken, and given up. */
typedef struct aside {
    PyGILState_STATE state;
    PyThreadState *thread;
} aside;

static aside leave_gil(PyGILState_STATE state) {
    return (aside){.state = state, .thread = PyEval_SaveThread()};
}

static void restore_gil(aside was) {
    PyEval_RestoreThread(was.thread);
    PyGILState_Release(was.state);
}

/* ---- the current stream ---- */

/* A failure with the text of the exception that is set. */
static mp_status python_failure(void) {
    PyObject *type = NULL;
    PyObject *value = NULL;
    PyObject *trace = NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value != NULL ? PyObject_Str(value) : NULL;
    const char *words = text != NULL ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const mp_status status = MP_FAIL(INTERNAL, "PyTorch did not tell its current stream: %s",
                                     words != NULL ? words : "it gave no reason");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return status;
}

/* With the GIL. */
static mp_status current_stream(int device, void **out) {
    PyObject *handle = PyObject_CallFunction(stream_source, "i", device);
    const unsigned long long number = handle != NULL ? PyLong_AsUnsignedLongLong(handle) : 0;
    Py_XDECREF(handle);
    if (PyErr_Occurred() != NULL) {
        return python_failure();
    }
    *out = (void *)(uintptr_t)number;
    return MP_OK;
}

/* ---- under the lock ---- */

static void report(mp_status status) {
    if (status != MP_OK) {
        MP_LOG(ERROR, "%s", mp_error_message());
    }
}

static graph_memory **find(int device, graph_id id) {
    graph_memory **link = &graphs;
    while (*link != NULL && ((*link)->device != device || (*link)->id.first != id.first ||
                             (*link)->id.second != id.second)) {
        link = &(*link)->next;
    }
    return link;
}

static bool has_stream(const graph_memory *graph, const void *stream) {
    for (size_t i = 0; i < graph->stream_count; i++) {
        if (graph->streams[i] == stream) {
            return true;
        }
    }
    return false;
}

static mp_status add_stream(graph_memory *graph, void *stream) {
    if (graph->stream_count == STREAMS_MAX) {
        return MP_FAIL(UNSUPPORTED, "a captured graph may have %d streams that allocate, not more",
                       STREAMS_MAX);
    }
    MP_TRY(mp_pool_capture_begin(graph->pool, stream, &graph->capture));
    graph->streams[graph->stream_count++] = stream;
    return MP_OK;
}

static void close_graph(graph_memory *graph) {
    if (graph->is_open) {
        for (size_t i = 0; i < graph->stream_count; i++) {
            report(mp_pool_capture_end(graph->pool, graph->streams[i]));
        }
        graph->stream_count = 0;
        graph->is_open = false;
        (void)atomic_fetch_sub(&open_count, 1);
    }
}

/* Takes: `*link`, which is open no more. */
static void retire(graph_memory **link) {
    graph_memory *graph = *link;
    *link = graph->next;
    graph->next = retired;
    retired = graph;
}

/* Gives the memory of graphs that are gone back; they may still run. Not while any is captured, as
 * the device cannot be waited for then. */
static void release_retired(void) {
    while (retired != NULL && atomic_load(&open_count) == 0) {
        graph_memory *graph = retired;
        adapter_pool *from = NULL;
        retired = graph->next;
        if (adapter_pool_of(&torch_pools, graph->device, &from) == MP_OK) {
            report(from->device->ops->synchronize(from->device));
        }
        mp_pool_capture_release(graph->pool, graph->capture);
        free(graph);
    }
}

/* A capture that failed is neither ended nor released by PyTorch; its stream shows up again. */
static void drop_stale(int device, const void *stream) {
    graph_memory **link = &graphs;
    while (*link != NULL) {
        graph_memory *graph = *link;
        if (graph->is_open && graph->device == device && has_stream(graph, stream)) {
            close_graph(graph);
            if (--graph->users == 0) {
                retire(link);
                continue;
            }
        }
        link = &graph->next;
    }
}

static mp_status find_or_make(int device, graph_id id, graph_memory **out) {
    adapter_pool *from = NULL;
    MP_TRY(adapter_pool_of(&torch_pools, device, &from));
    graph_memory **link = find(device, id);
    if (*link == NULL) {
        *link = calloc(1, sizeof **link);
        if (*link == NULL) {
            return MP_FAIL(OUT_OF_MEMORY,
                           "cannot allocate host memory for the record of a captured graph");
        }
        (*link)->device = device;
        (*link)->id = id;
        (*link)->pool = from->pool;
    }
    *out = *link;
    return MP_OK;
}

static mp_status begin(int device, graph_id id, void *stream) {
    graph_memory *graph = NULL;
    drop_stale(device, stream);
    release_retired();
    MP_TRY(find_or_make(device, id, &graph));
    const mp_status status = add_stream(graph, stream);
    if (status == MP_OK) {
        graph->users++;
        graph->is_open = true;
        (void)atomic_fetch_add(&open_count, 1);
    } else if (graph->users == 0) {
        *find(device, id) = graph->next;
        free(graph);
    }
    return status;
}

static graph_memory *open_on(int device) {
    graph_memory *graph = graphs;
    while (graph != NULL && (!graph->is_open || graph->device != device)) {
        graph = graph->next;
    }
    return graph;
}

/* ---- what PyTorch calls ---- */

void millpond_torch_graph_begin(int device, graph_id id, const void *filter) {
    (void)filter;
    void *stream = NULL;
    const PyGILState_STATE state = PyGILState_Ensure();
    mp_status status = current_stream(device, &stream);
    const aside was = leave_gil(state);
    if (status == MP_OK) {
        (void)pthread_mutex_lock(&lock);
        status = begin(device, id, stream);
        (void)pthread_mutex_unlock(&lock);
    }
    restore_gil(was);
    if (status != MP_OK) {
        torch_throw(status);
    }
}

void millpond_torch_graph_end(int device, graph_id id) {
    const aside was = leave_gil(PyGILState_Ensure());
    (void)pthread_mutex_lock(&lock);
    graph_memory *graph = *find(device, id);
    if (graph != NULL) {
        close_graph(graph);
    }
    release_retired();
    (void)pthread_mutex_unlock(&lock);
    restore_gil(was);
}

void millpond_torch_graph_release(int device, graph_id id) {
    const aside was = leave_gil(PyGILState_Ensure());
    (void)pthread_mutex_lock(&lock);
    graph_memory **link = find(device, id);
    if (*link != NULL && --(*link)->users == 0) {
        close_graph(*link);
        retire(link);
    }
    release_retired();
    (void)pthread_mutex_unlock(&lock);
    restore_gil(was);
}

/* ---- for requests ---- */

bool torch_is_captured(const adapter_pool *from, void *stream) {
    mp_device *device = from->device;
    mp_stream *wrap = NULL;
    bool is_active = true;
    if (device->ops->stream_wrap(device, stream, &wrap) != MP_OK) {
        return true;
    }
    const mp_status status = device->ops->capture_active(device, wrap, &is_active);
    device->ops->stream_destroy(device, wrap); /* the wrap only */
    return status != MP_OK || is_active;
}

static mp_status join(const adapter_pool *from, int device, void *stream) {
    graph_memory *graph = open_on(device);
    if (graph == NULL || has_stream(graph, stream) || !torch_is_captured(from, stream)) {
        return MP_OK;
    }
    return add_stream(graph, stream);
}

mp_status torch_graph_join(const adapter_pool *from, int device, void *stream) {
    if (atomic_load_explicit(&open_count, memory_order_relaxed) == 0) {
        return MP_OK;
    }
    (void)pthread_mutex_lock(&lock);
    const mp_status status = join(from, device, stream);
    (void)pthread_mutex_unlock(&lock);
    return status;
}
