/* core_module.c - the module millpond._core.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/shortage.h"
#include "core.h"

static PyObject *version(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyUnicode_FromString(mp_version());
}

static PyObject *get_limit(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyLong_FromSize_t(mp_limit_get());
}

static PyObject *set_limit(PyObject *module, PyObject *given) {
    size_t bytes = 0;
    (void)module;
    if (!core_size(given, "a limit", &bytes)) {
        return NULL;
    }
    mp_limit_set(bytes);
    Py_RETURN_NONE;
}

static PyObject *shortages(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyLong_FromSize_t(mp_shortage_count());
}

static PyObject *end(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    core_hooks_end();
    core_trace_end();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"version", version, METH_NOARGS,
     "version()\n--\n\nThe version of the C library that is loaded."},
    {"get_limit", get_limit, METH_NOARGS,
     "get_limit()\n--\n\n"
     "The most device memory that all pools of the process may have together, in bytes; 0: no\n"
     "limit, which is the default where MILLPOND_LIMIT is not set."},
    {"set_limit", set_limit, METH_O,
     "set_limit(bytes, /)\n--\n\n"
     "Sets that limit; 0 for none. A limit below current usage only prevents growth."},
    {"make_label", CORE_METHOD(core_label_make), METH_FASTCALL,
     "make_label(kind, node, tensor, /)\n--\n\nThe number of a label; see millpond.label."},
    {"set_label", core_label_set, METH_O,
     "set_label(label, /)\n--\n\n"
     "From now on this thread allocates under the label; returns the one before."},
    {"log_start", core_log_start, METH_O,
     "log_start(receive, /)\n--\n\n"
     "From now on receive(level, text, file, line, seconds, thread) gets the lines of the log; it\n"
     "returns whether it has kept one."},
    {"log_end", core_log_end, METH_NOARGS, "log_end()\n--\n\nHands over the last lines."},
    {"log_flush", core_log_flush, METH_NOARGS,
     "log_flush()\n--\n\nReturns when the lines so far are handed over, or a second later."},
    {"log_threshold", core_log_threshold, METH_O,
     "log_threshold(level, /)\n--\n\n"
     "Sets the highest level that is written, from -1 (nothing) to 3 (debug); None only tells it."},
    {"shortages", shortages, METH_NOARGS,
     "shortages()\n--\n\nHow many requests for memory have failed so far in this process."},
    {"_end", end, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* Hooks need an interpreter, so they are taken off before it ends. */
static int watch_end(PyObject *module) {
    PyObject *exits = PyImport_ImportModule("atexit");
    PyObject *function = exits != NULL ? PyObject_GetAttrString(module, "_end") : NULL;
    PyObject *done =
        function != NULL ? PyObject_CallMethod(exits, "register", "O", function) : NULL;
    const int status = done != NULL ? 0 : -1;
    Py_XDECREF(done);
    Py_XDECREF(function);
    Py_XDECREF(exits);
    return status;
}

static int fill(PyObject *module) {
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "millpond works in the main interpreter of a process only");
        return -1;
    }
    return core_errors_add(module) == 0 && core_pool_add(module) == 0 &&
                   core_buffer_add(module) == 0 && core_capture_add(module) == 0
               ? watch_end(module)
               : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, CORE_SLOT(fill)},
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "millpond._core",
    .m_doc = "The C extension: pools and their blocks. Everything here is also found in millpond.",
    .m_methods = functions,
    .m_slots = slots,
};

CORE_EXPORT PyObject *PyInit__core(void);
PyObject *PyInit__core(void) {
    return PyModuleDef_Init(&definition);
}
