/* core_export.c - a Buffer's memory for others in the process: the buffer protocol where the host
 * can read it, __cuda_array_interface__ where a GPU does.
 *
 * Py_buffer joined the stable ABI with CPython 3.11, whose declarations this file asks for; 3.10
 * has the same struct, and no function of 3.11 is called.
 * SPDX-License-Identifier: Apache-2.0 */
#undef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#include "core.h"

/* ---- the buffer protocol ---- */

/* False with an exception where the host cannot read it. */
static bool is_readable(const core_buffer *buffer) {
    const core_pool *pool = buffer->pool;
    if (buffer->addr == 0) {
        PyErr_SetString(PyExc_BufferError, "the buffer is freed");
    } else if (!pool->is_emulated && !pool->is_pinned) {
        PyErr_SetString(PyExc_BufferError, "the host cannot read a GPU's memory; copy it");
    }
    return PyErr_Occurred() == NULL;
}

int core_buffer_get(PyObject *self, void *into, int flags) {
    core_buffer *buffer = (core_buffer *)self;
    Py_buffer *view = into;
    view->obj = NULL;
    if (!is_readable(buffer)) {
        return -1;
    }
    *view = (Py_buffer){.buf = (void *)buffer->addr,
                        .obj = Py_NewRef(self),
                        .len = (Py_ssize_t)buffer->size,
                        .itemsize = 1,
                        .ndim = 1};
    view->format = (flags & PyBUF_FORMAT) != 0 ? (char *)(uintptr_t) "B" : NULL;
    view->shape = (flags & PyBUF_ND) != 0 ? &view->len : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &view->itemsize : NULL;
    buffer->views++;
    return 0;
}

void core_buffer_release(PyObject *self, void *view) {
    (void)view;
    ((core_buffer *)self)->views--;
}

/* Without it bytes(buffer) would take __index__ for a size. */
PyObject *core_buffer_bytes(PyObject *self, PyObject *unused) {
    const core_buffer *buffer = (core_buffer *)self;
    (void)unused;
    return is_readable(buffer)
               ? PyBytes_FromStringAndSize((const char *)buffer->addr, (Py_ssize_t)buffer->size)
               : NULL;
}

/* ---- __cuda_array_interface__ ---- */

/* 0 would not say which default stream is meant. */
static PyObject *stream_number(const void *stream) {
    if (stream == MP_NO_STREAM) {
        return Py_NewRef(Py_None);
    }
    return PyLong_FromSize_t(stream == NULL ? 1 : (uintptr_t)stream);
}

PyObject *core_buffer_cuda_array(PyObject *self, void *unused) {
    const core_buffer *buffer = (core_buffer *)self;
    (void)unused;
    if (buffer->pool->is_emulated || buffer->pool->is_pinned) {
        return PyErr_Format(PyExc_AttributeError,
                            "the memory is the host's, so it has no __cuda_array_interface__");
    }
    if (!core_buffer_check(buffer)) {
        return NULL;
    }
    PyObject *stream = stream_number(buffer->stream);
    return stream != NULL
               ? Py_BuildValue("{s:(n),s:s,s:(nO),s:O,s:N,s:i}", "shape", (Py_ssize_t)buffer->size,
                               "typestr", "|u1", "data",
                               (Py_ssize_t)(buffer->size > 0 ? buffer->addr : 0), Py_False,
                               "strides", Py_None, "stream", stream, "version", 3)
               : NULL;
}
