/* core_error.c - from a failure of the C library to an exception: one class for each kind that a
 * caller can act on, each of them also of the built-in class that fits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include <string.h>

PyObject *core_error, *core_out_of_memory, *core_invalid, *core_not_found, *core_unsupported;

typedef struct error_class {
    PyObject **where;
    const char *name, *doc;
    PyObject **built_in;
} error_class;

static const error_class classes[] = {
    {&core_out_of_memory, "millpond.OutOfMemoryError",
     "The pool and its device have no memory left; the message lists usage by client.",
     &PyExc_MemoryError},
    {&core_invalid, "millpond.InvalidArgumentError", "An argument is not what it must be.",
     &PyExc_ValueError},
    {&core_not_found, "millpond.NotFoundError", "There is no such device, block, hook or folder.",
     &PyExc_LookupError},
    {&core_unsupported, "millpond.UnsupportedError",
     "This pool, device or process cannot do what was asked for.", &PyExc_NotImplementedError},
};

enum { CLASS_COUNT = sizeof classes / sizeof classes[0] };

static int make_class(const error_class *class) {
    PyObject *bases = PyTuple_Pack(2, core_error, *class->built_in);
    if (bases == NULL) {
        return -1;
    }
    *class->where = PyErr_NewExceptionWithDoc(class->name, class->doc, bases, NULL);
    Py_DECREF(bases);
    return *class->where != NULL ? 0 : -1;
}

static int make_classes(void) {
    core_error = PyErr_NewExceptionWithDoc(
        "millpond.Error", "What failed, with which value, and what to do, in one sentence.",
        PyExc_RuntimeError, NULL);
    if (core_error == NULL) {
        return -1;
    }
    for (int i = 0; i < CLASS_COUNT; i++) {
        if (make_class(&classes[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

static int add(PyObject *module, const char *name, PyObject *class) {
    return PyObject_SetAttrString(module, name + sizeof "millpond." - 1, class);
}

int core_errors_add(PyObject *module) {
    if (core_unsupported == NULL && make_classes() != 0) { /* the last one that is made */
        return -1;
    }
    for (int i = 0; i < CLASS_COUNT; i++) {
        if (add(module, classes[i].name, *classes[i].where) != 0) {
            return -1;
        }
    }
    return add(module, "millpond.Error", core_error);
}

static PyObject *class_of(mp_status status) {
    switch (status) {
    case MP_OUT_OF_MEMORY:
        return core_out_of_memory;
    case MP_INVALID_ARGUMENT:
        return core_invalid;
    case MP_NOT_FOUND:
        return core_not_found;
    case MP_UNSUPPORTED:
        return core_unsupported;
    case MP_OK:
    case MP_DEVICE:
    case MP_BUSY:
    case MP_INTERNAL:
        break;
    }
    return core_error;
}

void *core_raise(mp_status status) {
    const char *sentence = mp_error_message();
    PyObject *text =
        PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace"); /* may be cut */
    if (text != NULL) {
        PyErr_SetObject(class_of(status), text);
        Py_DECREF(text);
    }
    return NULL;
}

bool core_reject(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)PyErr_FormatV(core_invalid, format, arguments);
    va_end(arguments);
    return false;
}

void core_report(mp_status status, PyObject *where) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    (void)core_raise(status);
    PyErr_WriteUnraisable(where);
    PyErr_Restore(type, value, trace);
}
