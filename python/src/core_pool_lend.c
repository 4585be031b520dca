/* core_pool_lend.c - a Pool's methods that allocate and free.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_pool.h"

static const char *const alloc_names[] = {"size", "stream", NULL};

PyObject *core_pool_alloc(PyObject *self, PyObject *const *args, Py_ssize_t count,
                          PyObject *keywords) {
    core_pool *pool = (core_pool *)self;
    PyObject *given[2] = {NULL, NULL};
    size_t size = 0;
    void *stream = MP_NO_STREAM;
    mp_addr addr = 0;
    if (!core_args("alloc", alloc_names, 1, args, count, keywords, given) ||
        !core_size(given[0], "size", &size) || !core_stream_or(given[1], MP_NO_STREAM, &stream) ||
        !core_pool_check(pool) || !core_lend(pool, size, stream, &addr)) {
        return NULL;
    }
    return core_buffer_make(pool, addr, size, pool->is_pinned ? MP_NO_STREAM : stream);
}

PyObject *core_pool_reserve(PyObject *self, PyObject *given) {
    core_pool *pool = (core_pool *)self;
    size_t size = 0;
    mp_addr addr = 0;
    if (!core_size(given, "size", &size) || !core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_reserve(pool->native, size, &addr));
    return status == MP_OK ? core_buffer_make(pool, addr, size, MP_NO_STREAM) : core_raise(status);
}

/* Arguments without names: `least` to `least + 1` of them. */
static bool count_fits(const char *function, Py_ssize_t count, Py_ssize_t least) {
    if (count != least && count != least + 1) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd or %zd arguments, not %zd", function, least,
                     least + 1, count);
        return false;
    }
    return true;
}

PyObject *core_pool_alloc_address(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    core_pool *pool = (core_pool *)self;
    size_t size = 0;
    void *stream = MP_NO_STREAM;
    mp_addr addr = 0;
    if (!count_fits("alloc_address", count, 1) || !core_size(args[0], "size", &size) ||
        !core_stream_or(count > 1 ? args[1] : NULL, MP_NO_STREAM, &stream) ||
        !core_pool_check(pool) || !core_lend(pool, size, stream, &addr)) {
        return NULL;
    }
    return PyLong_FromSize_t(addr);
}

PyObject *core_pool_free_address(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    core_pool *pool = (core_pool *)self;
    mp_addr addr = 0;
    void *stream = CORE_SAME_STREAM;
    if (!count_fits("free_address", count, 1) || !core_address(args[0], &addr) ||
        !core_stream_or(count > 1 ? args[1] : NULL, CORE_SAME_STREAM, &stream) ||
        !core_pool_check(pool)) {
        return NULL;
    }
    const mp_status status = core_give_back(pool, addr, stream);
    if (status != MP_OK) {
        return core_raise(status);
    }
    Py_RETURN_NONE;
}

PyObject *core_pool_record_use(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    core_pool *pool = (core_pool *)self;
    mp_addr addr = 0;
    void *stream = NULL;
    if (count != 2) {
        return PyErr_Format(PyExc_TypeError, "record_use() takes 2 arguments, not %zd", count);
    }
    if (!core_address(args[0], &addr) || !core_stream(args[1], &stream) || !core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_record_use(pool->native, addr, stream));
    if (status != MP_OK) {
        return core_raise(status);
    }
    Py_RETURN_NONE;
}

PyObject *core_pool_shrink(PyObject *self, PyObject *unused) {
    core_pool *pool = (core_pool *)self;
    size_t released = 0;
    (void)unused;
    if (!core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    core_log_hold();
    CORE_CALL(pool, status = mp_pool_shrink(pool->native, &released));
    PyObject *bytes = status == MP_OK ? PyLong_FromSize_t(released) : core_raise(status);
    core_log_release();
    return bytes;
}

PyObject *core_pool_reset_peaks(PyObject *self, PyObject *unused) {
    core_pool *pool = (core_pool *)self;
    (void)unused;
    if (!core_pool_check(pool)) {
        return NULL;
    }
    CORE_CALL(pool, mp_pool_reset_peaks(pool->native));
    Py_RETURN_NONE;
}
