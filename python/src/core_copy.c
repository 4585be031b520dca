/* core_copy.c - a Buffer's bytes to and from memory of the host, whatever device it is of.
 *
 * The buffer protocol joined the stable ABI with CPython 3.11, and 3.10 has the same functions and
 * the same struct. So the two functions are looked up, not linked: the extension then asks for
 * nothing that the ABI of 3.10 does not name.
 * SPDX-License-Identifier: Apache-2.0 */
#undef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#include "core.h"

#include "device/device.h"
#include "pool/pool_handle.h"

#include <dlfcn.h>

typedef int get_fn(PyObject *object, Py_buffer *view, int flags);
typedef void release_fn(Py_buffer *view);

/* A view that is as long as a part of the Buffer; false with an exception. */
static bool view_open(const core_buffer *buffer, PyObject *given, int flags, Py_buffer *view) {
    get_fn *get = (get_fn *)(uintptr_t)dlsym(RTLD_DEFAULT, "PyObject_GetBuffer");
    release_fn *release = (release_fn *)(uintptr_t)dlsym(RTLD_DEFAULT, "PyBuffer_Release");
    if (get == NULL || release == NULL) {
        PyErr_SetString(PyExc_SystemError, "this Python has no buffer protocol");
        return false;
    }
    if (get(given, view, flags | PyBUF_SIMPLE) != 0) {
        return false;
    }
    if ((size_t)view->len > buffer->size) {
        (void)core_reject("the host's memory has %zd bytes, and the buffer %zu; give a part of it",
                          view->len, buffer->size);
        release(view);
        return false;
    }
    return true;
}

static void view_close(Py_buffer *view) {
    ((release_fn *)(uintptr_t)dlsym(RTLD_DEFAULT, "PyBuffer_Release"))(view);
}

/* After the work that is queued on `stream`; the bytes are there when it returns. */
static mp_status copy(mp_pool *pool, void *stream, mp_addr target, mp_addr source, size_t size) {
    mp_device *device = mp__pool_device(pool);
    const mp_status status =
        stream != MP_NO_STREAM ? mp__pool_follow(pool, MP_NO_STREAM, stream) : MP_OK;
    return status == MP_OK && size > 0 ? device->ops->copy(device, NULL, target, source, size)
                                       : status;
}

/* True, or false with an exception. `buffer` keeps its memory meanwhile, as a view would. */
static bool copy_view(core_buffer *buffer, void *stream, Py_buffer *view, bool to_host) {
    const mp_addr there = (mp_addr)(uintptr_t)view->buf;
    const mp_addr target = to_host ? there : buffer->addr;
    const mp_addr source = to_host ? buffer->addr : there;
    mp_status status = MP_OK;
    buffer->views++;
    CORE_CALL(buffer->pool,
              status = copy(buffer->pool->native, stream, target, source, (size_t)view->len));
    buffer->views--;
    if (status != MP_OK) {
        (void)core_raise(status);
    }
    return status == MP_OK;
}

static bool copy_object(core_buffer *buffer, PyObject *host, PyObject *given, bool to_host) {
    Py_buffer view;
    void *stream = buffer->stream;
    if (!core_stream_or(given, buffer->stream, &stream) ||
        !view_open(buffer, host, to_host ? PyBUF_WRITABLE : 0, &view)) {
        return false;
    }
    /* Looked at last: the functions of `given` and `host` may have freed it. */
    const bool copied = core_buffer_check(buffer) && copy_view(buffer, stream, &view, to_host);
    view_close(&view);
    return copied;
}

PyObject *core_buffer_copy_to_host(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords) {
    static const char *const names[] = {"target", "stream", NULL};
    core_buffer *buffer = (core_buffer *)self;
    PyObject *given[2] = {NULL, NULL};
    if (!core_args("copy_to_host", names, 0, args, count, keywords, given)) {
        return NULL;
    }
    PyObject *target = given[0] != NULL && given[0] != Py_None
                           ? Py_NewRef(given[0])
                           : PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)buffer->size);
    if (target != NULL && !copy_object(buffer, target, given[1], true)) {
        Py_CLEAR(target);
    }
    return target;
}

PyObject *core_buffer_copy_from_host(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords) {
    static const char *const names[] = {"source", "stream", NULL};
    PyObject *given[2] = {NULL, NULL};
    if (!core_args("copy_from_host", names, 1, args, count, keywords, given) ||
        !copy_object((core_buffer *)self, given[0], given[1], false)) {
        return NULL;
    }
    Py_RETURN_NONE;
}
