/* core_capture.c - a Pool's order of streams, and the type Capture: memory of captured graphs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_pool.h"

PyTypeObject *core_capture_type;

/* ---- order ---- */

typedef mp_status stream_call(mp_pool *pool, void *stream);

static PyObject *call_on(PyObject *self, PyObject *given, stream_call *call) {
    core_pool *pool = (core_pool *)self;
    void *stream = NULL;
    if (!core_stream(given, &stream) || !core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = call(pool->native, stream));
    if (status != MP_OK) {
        return core_raise(status);
    }
    Py_RETURN_NONE;
}

PyObject *core_pool_stream_settled(PyObject *self, PyObject *stream) {
    return call_on(self, stream, mp_pool_stream_settled);
}

PyObject *core_pool_stream_gone(PyObject *self, PyObject *stream) {
    return call_on(self, stream, mp_pool_stream_gone);
}

PyObject *core_pool_capture_end(PyObject *self, PyObject *stream) {
    return call_on(self, stream, mp_pool_capture_end);
}

PyObject *core_pool_stream_mark(PyObject *self, PyObject *stream) {
    core_pool *pool = (core_pool *)self;
    void *producer = NULL;
    uint64_t mark = 0;
    if (!core_stream(stream, &producer) || !core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_stream_mark(pool->native, producer, &mark));
    return status == MP_OK ? PyLong_FromUnsignedLongLong(mark) : core_raise(status);
}

PyObject *core_pool_stream_ordered(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords) {
    static const char *const names[] = {"consumer", "producer", "mark", NULL};
    core_pool *pool = (core_pool *)self;
    PyObject *given[3] = {NULL, NULL, NULL};
    void *consumer = NULL;
    void *producer = NULL;
    size_t mark = 0;
    if (!core_args("stream_ordered", names, 3, args, count, keywords, given) ||
        !core_stream(given[0], &consumer) || !core_stream(given[1], &producer) ||
        !core_size(given[2], "mark", &mark) || !core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_stream_ordered(pool->native, consumer, producer, mark));
    if (status != MP_OK) {
        return core_raise(status);
    }
    Py_RETURN_NONE;
}

/* ---- captures ---- */

typedef struct core_capture {
    PyObject_HEAD core_pool *pool; /* owned; this is one of its users until it is released */
    mp_capture *native;            /* owned; NULL: released */
} core_capture;

static void release(core_capture *capture) {
    mp_capture *native = capture->native;
    capture->native = NULL;
    if (native != NULL) {
        CORE_CALL(capture->pool, mp_pool_capture_release(capture->pool->native, native));
        core_pool_leave(capture->pool);
    }
}

static PyObject *begin(core_pool *pool, void *stream) {
    mp_capture *native = NULL;
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_capture_begin(pool->native, stream, &native));
    if (status != MP_OK) {
        return core_raise(status);
    }
    core_capture *capture = PyObject_New(core_capture, core_capture_type);
    if (capture == NULL) {
        CORE_CALL(pool, (void)mp_pool_capture_end(pool->native, stream));
        CORE_CALL(pool, mp_pool_capture_release(pool->native, native));
        return NULL;
    }
    core_pool_enter(pool);
    capture->pool = (core_pool *)Py_NewRef((PyObject *)pool);
    capture->native = native;
    return (PyObject *)capture;
}

static PyObject *begin_again(core_pool *pool, void *stream, PyObject *given) {
    core_capture *capture = (core_capture *)given;
    if (Py_TYPE(given) != core_capture_type || capture->pool != pool || capture->native == NULL) {
        (void)core_reject("capture is %R; it must be one that this Pool gave and that is not "
                          "released",
                          given);
        return NULL;
    }
    mp_capture *native = capture->native;
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_capture_begin(pool->native, stream, &native));
    return status == MP_OK ? Py_NewRef(given) : core_raise(status);
}

PyObject *core_pool_capture_begin(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords) {
    static const char *const names[] = {"stream", "capture", NULL};
    core_pool *pool = (core_pool *)self;
    PyObject *given[2] = {NULL, NULL};
    void *stream = NULL;
    if (!core_args("capture_begin", names, 1, args, count, keywords, given) ||
        !core_stream(given[0], &stream) || !core_pool_check(pool)) {
        return NULL;
    }
    return given[1] == NULL || given[1] == Py_None ? begin(pool, stream)
                                                   : begin_again(pool, stream, given[1]);
}

/* ---- the type ---- */

static PyObject *capture_release(PyObject *self, PyObject *unused) {
    (void)unused;
    release((core_capture *)self);
    Py_RETURN_NONE;
}

static void capture_dealloc(PyObject *self) {
    core_capture *capture = (core_capture *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *error_type, *error, *trace;
    PyErr_Fetch(&error_type, &error, &trace);
    release(capture);
    PyErr_Restore(error_type, error, trace);
    Py_DECREF((PyObject *)capture->pool);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"release", capture_release, METH_NOARGS,
     "release($self)\n--\n\n"
     "The graphs are gone and have ended running: the memory goes back to the pool. A second\n"
     "call does nothing."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, CORE_SLOT(capture_dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     (void *)(uintptr_t) "Memory set apart for captured graphs; released by release(), or when "
                         "the last reference goes."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "millpond.Capture",
    .basicsize = sizeof(core_capture),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int core_capture_add(PyObject *module) {
    if (core_capture_type == NULL) {
        core_capture_type = (PyTypeObject *)PyType_FromSpec(&spec);
    }
    return core_capture_type != NULL
               ? PyObject_SetAttrString(module, "Capture", (PyObject *)core_capture_type)
               : -1;
}
