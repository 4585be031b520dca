/* core_texts.c - a mapping of options as the texts that the C library takes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include <string.h>

void core_texts_free(core_texts *list) {
    for (Py_ssize_t i = 0; i < list->count; i++) {
        PyMem_Free(list->texts[i]);
    }
    PyMem_Free(list->texts);
}

static char *copy_text(PyObject *text) {
    Py_ssize_t size = 0;
    const char *from = PyUnicode_AsUTF8AndSize(text, &size);
    char *copy = from != NULL ? PyMem_Malloc((size_t)size + 1) : NULL;
    if (from == NULL) {
        return NULL;
    }
    if (strlen(from) != (size_t)size) {
        (void)core_reject("the option %R has a zero character", text);
        PyMem_Free(copy);
        return NULL;
    }
    if (copy == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(copy, from, (size_t)size + 1);
    return copy;
}

/* "arena.key=value" */
static char *option_text(PyObject *key, PyObject *value) {
    if (!PyUnicode_Check(key)) {
        (void)core_reject("the name of an option is a str, not %R", key);
        return NULL;
    }
    PyObject *prefix = PyUnicode_FromString("arena.");
    const Py_ssize_t has =
        prefix != NULL ? PyUnicode_Tailmatch(key, prefix, 0, PY_SSIZE_T_MAX, -1) : -1;
    Py_XDECREF(prefix);
    if (has < 0) {
        return NULL;
    }
    const char *dots = has != 0 ? "" : "arena.";
    PyObject *text = PyBool_Check(value)
                         ? PyUnicode_FromFormat("%s%U=%d", dots, key, value == Py_True)
                         : PyUnicode_FromFormat("%s%U=%S", dots, key, value);
    char *copy = text != NULL ? copy_text(text) : NULL;
    Py_XDECREF(text);
    return copy;
}

static bool add_options(PyObject *items, core_texts *list) {
    const Py_ssize_t count = PyList_Size(items);
    list->texts = PyMem_Calloc((size_t)count + 1, sizeof *list->texts);
    if (list->texts == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = NULL;
        PyObject *value = NULL;
        if (!PyArg_ParseTuple(PyList_GetItem(items, i), "OO", &key, &value)) {
            return false;
        }
        list->texts[i] = option_text(key, value);
        if (list->texts[i] == NULL) {
            return false;
        }
        list->count++;
    }
    return true;
}

bool core_texts_read(PyObject *given, core_texts *list) {
    if (given == NULL || given == Py_None) {
        return true;
    }
    if (!PyMapping_Check(given)) {
        PyErr_Format(PyExc_TypeError, "options are a mapping such as {\"max_mem\": \"4G\"}, not %R",
                     given);
        return false;
    }
    PyObject *items = PyMapping_Items(given);
    const bool good = items != NULL && add_options(items, list);
    Py_XDECREF(items);
    return good;
}
