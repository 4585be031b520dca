/* core_pool_look.c - a Pool's figures, what it knows of a block, its page of text, and
 * files of its trace.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_pool.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- dicts ---- */

/* Takes: `value`, NULL after an exception. */
static bool put(PyObject *dict, const char *key, PyObject *value) {
    const bool good = value != NULL && PyDict_SetItemString(dict, key, value) == 0;
    Py_XDECREF(value);
    return good;
}

static PyObject *finish(PyObject *dict, bool good) {
    if (!good) {
        Py_CLEAR(dict);
    }
    return dict;
}

typedef struct figure { /* a uint64_t of a struct */
    const char *name;
    size_t offset;
} figure;

static bool put_figures(PyObject *dict, const void *from, const figure *figures) {
    for (; figures->name != NULL; figures++) {
        uint64_t value = 0;
        memcpy(&value, (const char *)from + figures->offset, sizeof value);
        if (!put(dict, figures->name, PyLong_FromUnsignedLongLong(value))) {
            return false;
        }
    }
    return true;
}

/* ---- statistics ---- */

#define FIGURE(name) \
    { #name, offsetof(mp_pool_stats, name) }
static const figure stats_figures[] = {
    FIGURE(in_use),    FIGURE(requested),      FIGURE(in_use_max), FIGURE(total),
    FIGURE(total_max), FIGURE(alloc_size_max), FIGURE(allocs),     FIGURE(frees),
    FIGURE(reserves),  FIGURE(extensions),     FIGURE(shrinkages), FIGURE(failures),
    FIGURE(events),    FIGURE(waits),          {NULL, 0},
};
#undef FIGURE

PyObject *core_pool_stats(PyObject *self, PyObject *unused) {
    core_pool *pool = (core_pool *)self;
    mp_pool_stats stats;
    (void)unused;
    if (!core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_get_stats(pool->native, &stats, sizeof stats));
    if (status != MP_OK) {
        return core_raise(status);
    }
    PyObject *dict = PyDict_New();
    return finish(dict,
                  dict != NULL &&
                      put(dict, "limit",
                          stats.limit == UINT64_MAX ? Py_NewRef(Py_None)
                                                    : PyLong_FromUnsignedLongLong(stats.limit)) &&
                      put_figures(dict, &stats, stats_figures));
}

#define FIGURE(name) \
    { #name, offsetof(mp_share, name) }
static const figure share_figures[] = {
    FIGURE(in_use), FIGURE(requested), FIGURE(blocks), FIGURE(free), FIGURE(allocs), {NULL, 0},
};
#undef FIGURE

static PyObject *text_object(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *share_object(const mp_share *share) {
    PyObject *dict = PyDict_New();
    return finish(dict, dict != NULL && put(dict, "name", text_object(share->name)) &&
                            put(dict, "stream", core_stream_object(share->stream)) &&
                            put_figures(dict, share, share_figures));
}

static PyObject *share_list(const mp_share *shares, size_t count) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; i < count && list != NULL; i++) {
        PyObject *share = share_object(&shares[i]);
        if (share == NULL || PyList_Append(list, share) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(share);
    }
    return list;
}

typedef mp_status get_shares(mp_pool *pool, mp_share *out, size_t capacity, size_t *count);

/* There may be more of them each time they are counted. */
static PyObject *shares(PyObject *self, get_shares *get) {
    core_pool *pool = (core_pool *)self;
    mp_share *found = NULL;
    size_t capacity = 0;
    size_t count = 32;
    mp_status status = MP_OK;
    if (!core_pool_check(pool)) {
        return NULL;
    }
    while (status == MP_OK && count > capacity) {
        PyMem_Free(found);
        capacity = count + count / 2;
        found = PyMem_Calloc(capacity, sizeof *found);
        if (found == NULL) {
            return PyErr_NoMemory();
        }
        CORE_CALL(pool, status = get(pool->native, found, capacity, &count));
        if (pool->is_closed) { /* by another thread */
            break;
        }
    }
    PyObject *list = status == MP_OK ? share_list(found, count < capacity ? count : capacity)
                                     : core_raise(status);
    PyMem_Free(found);
    return list;
}

PyObject *core_pool_clients(PyObject *self, PyObject *unused) {
    (void)unused;
    return shares(self, mp_pool_get_clients);
}

PyObject *core_pool_streams(PyObject *self, PyObject *unused) {
    (void)unused;
    return shares(self, mp_pool_get_streams);
}

/* ---- blocks and the device ---- */

PyObject *core_pool_find(PyObject *self, PyObject *address) {
    core_pool *pool = (core_pool *)self;
    mp_addr addr = 0;
    mp_block_info block;
    if (!core_address(address, &addr) || !core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_find(pool->native, addr, &block));
    if (status != MP_OK) {
        return core_raise(status);
    }
    PyObject *dict = PyDict_New();
    return finish(dict, dict != NULL && put(dict, "address", PyLong_FromSize_t(block.addr)) &&
                            put(dict, "size", PyLong_FromSize_t(block.size)) &&
                            put(dict, "requested", PyLong_FromSize_t(block.requested)) &&
                            put(dict, "region", PyLong_FromSize_t(block.region)) &&
                            put(dict, "region_size", PyLong_FromSize_t(block.region_size)) &&
                            put(dict, "stream", core_stream_object(block.stream)) &&
                            put(dict, "client", text_object(block.client)));
}

PyObject *core_pool_memory_info(PyObject *self, PyObject *unused) {
    core_pool *pool = (core_pool *)self;
    mp_pool_device device;
    (void)unused;
    if (!core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_get_device(pool->native, &device, sizeof device));
    return status == MP_OK ? Py_BuildValue("KK", (unsigned long long)device.memory_free,
                                           (unsigned long long)device.memory_total)
                           : core_raise(status);
}

PyObject *core_pool_ipc_export(PyObject *self, PyObject *address) {
    core_pool *pool = (core_pool *)self;
    mp_addr addr = 0;
    mp_ipc_handle handle;
    size_t offset = 0;
    if (!core_address(address, &addr) || !core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_ipc_export(pool->native, addr, &handle, &offset));
    return status == MP_OK ? Py_BuildValue("y#n", (const char *)handle.bytes,
                                           (Py_ssize_t)sizeof handle.bytes, (Py_ssize_t)offset)
                           : core_raise(status);
}

/* A handle, and which part of what it opens. */
static bool read_part(PyObject *const *args, Py_ssize_t count, mp_ipc_handle *handle,
                      size_t *offset, size_t *size) {
    char *bytes = NULL;
    Py_ssize_t length = 0;
    if (count != 3) {
        PyErr_Format(PyExc_TypeError, "ipc_open() takes 3 arguments, not %zd", count);
        return false;
    }
    if (PyBytes_AsStringAndSize(args[0], &bytes, &length) != 0) {
        return false;
    }
    if ((size_t)length != sizeof handle->bytes) {
        return core_reject("a handle has %zu bytes, not %zd", sizeof handle->bytes, length);
    }
    memcpy(handle->bytes, bytes, sizeof handle->bytes);
    return core_size(args[1], "offset", offset) && core_size(args[2], "size", size);
}

PyObject *core_pool_ipc_open(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    core_pool *pool = (core_pool *)self;
    mp_ipc_handle handle;
    size_t offset = 0;
    size_t size = 0;
    size_t there = 0;
    mp_addr region = 0;
    mp_status status = MP_OK;
    if (!read_part(args, count, &handle, &offset, &size) || !core_pool_check(pool)) {
        return NULL;
    }
    CORE_CALL(pool, status = mp_pool_ipc_open(pool->native, &handle, &region, &there));
    if (status != MP_OK) {
        return core_raise(status);
    }
    if (offset > there || size > there - offset) {
        CORE_CALL(pool, (void)mp_pool_ipc_close(pool->native, region));
        (void)core_reject("the memory of the other process has %zu bytes, and the handle names %zu "
                          "at %zu",
                          there, size, offset);
        return NULL;
    }
    return core_buffer_make_opened(pool, region, offset, size);
}

/* ---- the page of text ---- */

typedef struct page {
    char *text; /* owned */
    size_t size, capacity;
    bool is_short; /* of host memory */
} page;

/* Without the GIL. */
static void append(void *context, const char *text, size_t size) {
    page *into = context;
    if (into->size + size > into->capacity) {
        const size_t capacity = 2 * (into->size + size) + 4096;
        char *larger = realloc(into->text, capacity);
        if (larger == NULL) {
            into->is_short = true;
            return;
        }
        into->text = larger;
        into->capacity = capacity;
    }
    memcpy(into->text + into->size, text, size);
    into->size += size;
}

PyObject *core_pool_dump(PyObject *self, PyObject *unused) {
    core_pool *pool = (core_pool *)self;
    page into = {.text = NULL};
    PyObject *text = NULL;
    (void)unused;
    if (!core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_dump(pool->native, append, &into));
    if (status != MP_OK) {
        (void)core_raise(status);
    } else if (into.is_short) {
        (void)PyErr_NoMemory();
    } else {
        text = PyUnicode_DecodeUTF8(into.text != NULL ? into.text : "", (Py_ssize_t)into.size,
                                    "replace");
    }
    free(into.text);
    return text;
}

/* ---- files of the trace ---- */

static const struct trace_format {
    const char *name, *ending;
    mp_trace_format format;
} formats[] = {
    {"html", ".html", MP_TRACE_HTML},
    {"snapshot", ".pickle", MP_TRACE_SNAPSHOT},
    {"rmm", ".csv", MP_TRACE_RMM_CSV},
};

enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

static bool format_of_name(PyObject *name, mp_trace_format *out) {
    for (int i = 0; PyUnicode_Check(name) && i < FORMAT_COUNT; i++) {
        if (PyUnicode_CompareWithASCIIString(name, formats[i].name) == 0) {
            *out = formats[i].format;
            return true;
        }
    }
    return core_reject("format is %R; it must be 'html', 'snapshot' or 'rmm'", name);
}

static bool format_of_path(const char *path, mp_trace_format *out) {
    const size_t size = strlen(path);
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const size_t ending = strlen(formats[i].ending);
        if (size > ending && strcmp(path + size - ending, formats[i].ending) == 0) {
            *out = formats[i].format;
            return true;
        }
    }
    return core_reject("'%s' ends neither in .html nor in .pickle or .csv; give a format, 'html', "
                       "'snapshot' or 'rmm'",
                       path);
}

static PyObject *write_trace(core_pool *pool, const char *path, PyObject *format) {
    mp_trace_format wanted = MP_TRACE_HTML;
    const bool given = format != NULL && format != Py_None;
    if (!(given ? format_of_name(format, &wanted) : format_of_path(path, &wanted)) ||
        !core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_trace_write(pool->native, wanted, path));
    if (status != MP_OK) {
        return core_raise(status);
    }
    Py_RETURN_NONE;
}

PyObject *core_pool_write_trace(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *keywords) {
    static const char *const names[] = {"path", "format", NULL};
    PyObject *given[2] = {NULL, NULL};
    PyObject *path = NULL;
    if (!core_args("write_trace", names, 1, args, count, keywords, given) ||
        !PyUnicode_FSConverter(given[0], &path)) {
        return NULL;
    }
    PyObject *done = write_trace((core_pool *)self, PyBytes_AsString(path), given[1]);
    Py_DECREF(path);
    return done;
}

PyObject *core_pool_enable_peer(PyObject *self, PyObject *ordinal) {
    core_pool *pool = (core_pool *)self;
    const long number = PyLong_AsLong(ordinal);
    if (number == -1 && PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (number < 0 || number > INT32_MAX) {
        (void)core_reject("a device's number is not %ld", number);
        return NULL;
    }
    if (!core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_enable_peer(pool->native, (int32_t)number));
    return status == MP_OK ? Py_NewRef(Py_None) : core_raise(status);
}
