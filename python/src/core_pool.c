/* core_pool.c - the life of a Pool: opening, closing, and its end.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_pool.h"

#include <string.h>

/* ---- opening ---- */

static bool memory_of(const char *word, mp_memory *out) {
    const bool is_pinned = strcmp(word, "pinned") == 0;
    if (!is_pinned && strcmp(word, "device") != 0) {
        return core_reject("memory is '%s'; it must be 'device' or 'pinned'", word);
    }
    *out = is_pinned ? MP_MEMORY_PINNED : MP_MEMORY_DEVICE;
    return true;
}

static mp_pool *open_native(const char *device, mp_memory memory, const char *client,
                            const core_texts *options) {
    mp_pool *native = NULL;
    mp_status status = MP_OK;
    Py_BEGIN_ALLOW_THREADS status =
        mp_pool_open(device, memory, client, (const char *const *)options->texts, &native);
    Py_END_ALLOW_THREADS return status == MP_OK ? native : core_raise(status);
}

static bool describe(core_pool *pool, const char *client) {
    mp_pool_device device;
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_get_device(pool->native, &device, sizeof device));
    if (status != MP_OK) {
        (void)core_raise(status);
        return false;
    }
    pool->is_emulated = device.is_emulated;
    pool->is_pinned = device.memory == MP_MEMORY_PINNED;
    pool->ordinal = device.ordinal;
    pool->device = PyUnicode_FromString(device.device);
    pool->name = PyUnicode_DecodeUTF8(device.name, (Py_ssize_t)strlen(device.name), "replace");
    pool->bus_id = PyUnicode_FromString(device.bus_id);
    pool->client = PyUnicode_FromString(client);
    return pool->device != NULL && pool->name != NULL && pool->bus_id != NULL &&
           pool->client != NULL;
}

/* Takes: `native`. */
static PyObject *make(PyTypeObject *type, mp_pool *native, const char *client) {
    core_handle *handle = core_handle_make(native);
    if (handle == NULL) {
        return NULL;
    }
    core_pool *pool = (core_pool *)PyType_GenericAlloc(type, 0);
    if (pool == NULL) {
        core_handle_drop(handle);
        return NULL;
    }
    pool->native = native;
    pool->handle = handle;
    if (!describe(pool, client)) {
        Py_DECREF(pool);
        return NULL;
    }
    return (PyObject *)pool;
}

static PyObject *open_pool(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char device_name[] = "device", memory_name[] = "memory", client_name[] = "client",
                options_name[] = "options";
    static char *names[] = {device_name, memory_name, client_name, options_name, NULL};
    const char *device = "auto";
    const char *word = "device";
    const char *client = "python";
    PyObject *options = NULL;
    mp_memory memory = MP_MEMORY_DEVICE;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|s$ssO:Pool", names, &device, &word, &client,
                                     &options) ||
        !memory_of(word, &memory)) {
        return NULL;
    }
    core_hooks_sweep();
    core_texts list = {.texts = NULL};
    mp_pool *native =
        core_texts_read(options, &list) ? open_native(device, memory, client, &list) : NULL;
    core_texts_free(&list);
    return native != NULL ? make(type, native, client) : NULL;
}

PyObject *core_pool_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    core_log_hold();
    PyObject *pool = open_pool(type, args, keywords);
    core_log_release();
    return pool;
}

/* ---- closing ---- */

bool core_pool_check(const core_pool *pool) {
    return !pool->is_closed || core_reject("the pool is closed");
}

void core_pool_leave_last(core_pool *pool) {
    core_handle *handle = pool->handle;
    pool->handle = NULL;
    pool->native = NULL;
    if (handle != NULL) {
        Py_BEGIN_ALLOW_THREADS core_handle_drop(handle);
        Py_END_ALLOW_THREADS
    }
}

static void close_pool(core_pool *pool) {
    pool->is_closed = true;
    core_pool_enter(pool);
    core_hooks_drop(pool);
    core_hooks_sweep();
    core_pool_leave(pool);
}

PyObject *core_pool_close(PyObject *self, PyObject *unused) {
    (void)unused;
    core_log_hold();
    close_pool((core_pool *)self);
    core_log_release();
    Py_RETURN_NONE;
}

PyObject *core_pool_enter_with(PyObject *self, PyObject *unused) {
    (void)unused;
    return core_pool_check((core_pool *)self) ? Py_NewRef(self) : NULL;
}

PyObject *core_pool_exit_with(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)args;
    (void)count;
    return core_pool_close(self, NULL);
}

/* ---- life ---- */

int core_pool_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return core_hooks_visit((core_pool *)self, visit, arg);
}

int core_pool_clear(PyObject *self) {
    core_hooks_drop((core_pool *)self);
    return 0;
}

void core_pool_dealloc(PyObject *self) {
    core_pool *pool = (core_pool *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *error_type, *error, *trace;
    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&error_type, &error, &trace);
    if (pool->weak != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    close_pool(pool);
    PyErr_Restore(error_type, error, trace);
    Py_CLEAR(pool->device);
    Py_CLEAR(pool->name);
    Py_CLEAR(pool->bus_id);
    Py_CLEAR(pool->client);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

PyObject *core_pool_repr(PyObject *self) {
    const core_pool *pool = (core_pool *)self;
    return PyUnicode_FromFormat("<millpond.Pool of %s memory of %U for %R%s>",
                                pool->is_pinned ? "pinned" : "device", pool->device, pool->client,
                                pool->is_closed ? ", closed" : "");
}

PyObject *core_html(PyObject *self, const char *function) {
    PyObject *module = PyImport_ImportModule("millpond._html");
    PyObject *page = module != NULL ? PyObject_CallMethod(module, function, "O", self) : NULL;
    Py_XDECREF(module);
    return page;
}

PyObject *core_pool_html(PyObject *self, PyObject *unused) {
    (void)unused;
    return core_html(self, "pool_table");
}
