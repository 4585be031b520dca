/* core_args.c - arguments of calls: sizes, addresses, streams.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

/* ---- which is which ---- */

static bool place(const char *function, const char *const *names, PyObject *name, PyObject *value,
                  PyObject **out) {
    for (size_t i = 0; names[i] != NULL; i++) {
        if (PyUnicode_CompareWithASCIIString(name, names[i]) != 0) {
            continue;
        }
        if (out[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got %s twice", function, names[i]);
            return false;
        }
        out[i] = value;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s() has no argument %R", function, name);
    return false;
}

bool core_args(const char *function, const char *const *names, size_t required,
               PyObject *const *args, Py_ssize_t count, PyObject *keywords, PyObject **out) {
    size_t most = 0;
    while (names[most] != NULL) {
        out[most++] = NULL;
    }
    if ((size_t)count > most) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %zu arguments, not %zd", function, most,
                     count);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        out[i] = args[i];
    }
    const Py_ssize_t named = keywords != NULL ? PyTuple_Size(keywords) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        if (!place(function, names, PyTuple_GetItem(keywords, i), args[count + i], out)) {
            return false;
        }
    }
    for (size_t i = 0; i < required; i++) {
        if (out[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() lacks the argument %s", function, names[i]);
            return false;
        }
    }
    return true;
}

/* ---- numbers ---- */

/* A number that fits uintptr_t, of an int or what has __index__. */
static bool number_of(PyObject *given, const char *what, uintptr_t *out) {
    PyObject *number = PyLong_CheckExact(given) ? Py_NewRef(given) : PyNumber_Index(given);
    if (number == NULL) {
        return false;
    }
    const size_t value = PyLong_AsSize_t(number);
    if (value == (size_t)-1 && PyErr_Occurred() != NULL) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            (void)core_reject("%s is %R; it must be from 0 to 2**64-1", what, number);
        }
        Py_DECREF(number);
        return false;
    }
    Py_DECREF(number);
    *out = value;
    return true;
}

bool core_size(PyObject *given, const char *what, size_t *out) {
    return number_of(given, what, out);
}

bool core_address(PyObject *given, mp_addr *out) {
    return number_of(given, "an address", out);
}

/* ---- streams ---- */

static bool handle_of(PyObject *given, void **out) {
    uintptr_t value = 0;
    if (!number_of(given, "a stream", &value)) {
        return false;
    }
    if (value > (uintptr_t)INTPTR_MAX) { /* handles are small numbers or addresses */
        return core_reject("%R is not a handle of a stream", given);
    }
    *out = (void *)value;
    return true;
}

/* What __cuda_stream__() gives: (version, handle). */
static bool stream_of_pair(PyObject *pair, PyObject *given, void **out) {
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        return core_reject("__cuda_stream__() of %R gave %R instead of (version, handle)", given,
                           pair);
    }
    uintptr_t version = 0;
    if (!number_of(PyTuple_GetItem(pair, 0), "the version of __cuda_stream__", &version)) {
        return false;
    }
    if (version != 0) {
        return core_reject("__cuda_stream__() of %R is of version %zu; known is 0", given,
                           (size_t)version);
    }
    return handle_of(PyTuple_GetItem(pair, 1), out);
}

static bool stream_of_object(PyObject *given, void **out) {
    PyObject *method = PyObject_GetAttrString(given, "__cuda_stream__");
    if (method == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return false;
        }
        PyErr_Clear();
        if (PyIndex_Check(given)) {
            return handle_of(given, out);
        }
        PyErr_Format(PyExc_TypeError,
                     "a stream is None, the number of its handle, or an object with "
                     "__cuda_stream__; not %R",
                     given);
        return false;
    }
    /* Some libraries have a property in its place. */
    PyObject *pair =
        PyCallable_Check(method) ? PyObject_CallFunctionObjArgs(method, NULL) : Py_NewRef(method);
    Py_DECREF(method);
    const bool good = pair != NULL && stream_of_pair(pair, given, out);
    Py_XDECREF(pair);
    return good;
}

bool core_stream(PyObject *given, void **out) {
    if (given == Py_None) {
        *out = MP_NO_STREAM;
        return true;
    }
    return PyLong_CheckExact(given) ? handle_of(given, out) : stream_of_object(given, out);
}

bool core_stream_or(PyObject *given, void *absent, void **out) {
    if (given == NULL) {
        *out = absent;
        return true;
    }
    return core_stream(given, out);
}

PyObject *core_stream_object(void *stream) {
    return stream == MP_NO_STREAM ? Py_NewRef(Py_None) : PyLong_FromVoidPtr(stream);
}
