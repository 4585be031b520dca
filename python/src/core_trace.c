/* core_trace.c - what a trace knows from Python: labels, and the stacks of those who ask for
 * memory.
 *
 * The pool asks for a stack on the thread that allocates, without locks of its own, as it calls
 * hooks; so the GIL can be waited for. That is not done where hooks are not called either (a
 * library that holds a lock of its own), nor on threads that Python has never seen.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_pool.h"

#include "pool/pool_handle.h"
#include "pool/trace/trace_label.h"
#include "pool/trace/trace_stack.h"

#include <sched.h>

/* ---- stacks ---- */

static atomic_bool ended;  /* the interpreter is about to end */
static atomic_int looking; /* threads that are in `look` */

/* An attribute that is a text and lives as long as `object` does; "?" where it is none. */
static const char *text_of(PyObject *object, const char *name) {
    PyObject *text = PyObject_GetAttrString(object, name);
    const char *bytes = text != NULL ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    Py_XDECREF(text);
    PyErr_Clear();
    return bytes != NULL ? bytes : "?";
}

/* The texts live as long as the frame runs. */
static mp_frame frame_of(PyFrameObject *frame) {
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    const mp_frame out = {.file = text_of(code, "co_filename"),
                          .function = text_of(code, "co_name"),
                          .line = PyFrame_GetLineNumber(frame)};
    Py_DECREF(code);
    return out;
}

/* With the GIL. */
static uint16_t stack_here(size_t depth) {
    mp_frame frames[MP_STACK_FRAMES_MAX];
    size_t count = 0;
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame != NULL && frame != Py_None && count < depth && count < MP_STACK_FRAMES_MAX) {
        frames[count++] = frame_of((PyFrameObject *)frame);
        PyObject *outer = PyObject_GetAttrString(frame, "f_back");
        Py_DECREF(frame);
        frame = outer;
    }
    Py_XDECREF(frame);
    PyErr_Clear();
    return mp__stack_make(frames, count);
}

static uint16_t look(size_t depth) {
    uint16_t stack = 0;
    atomic_fetch_add(&looking, 1);
    if (!atomic_load(&ended) && !core_hooks_held() && PyGILState_GetThisThreadState() != NULL) {
        PyObject *type = NULL;
        PyObject *value = NULL;
        PyObject *trace = NULL;
        const PyGILState_STATE state = PyGILState_Ensure();
        PyErr_Fetch(&type, &value, &trace); /* one may be under way */
        stack = stack_here(depth);
        PyErr_Restore(type, value, trace);
        PyGILState_Release(state);
    }
    atomic_fetch_sub(&looking, 1);
    return stack;
}

void core_trace_end(void) {
    atomic_store(&ended, true);
    Py_BEGIN_ALLOW_THREADS while (atomic_load(&looking) > 0) {
        (void)sched_yield();
    }
    Py_END_ALLOW_THREADS
}

/* ---- the trace of a pool ---- */

static mp_status start(mp_pool *pool, size_t events, size_t depth) {
    if (depth > MP_STACK_FRAMES_MAX) { /* says so, before a trace is forgotten */
        return mp__pool_trace_stacks(pool, depth);
    }
    MP_TRY(mp_pool_trace(pool, events));
    mp__stack_looker_set(look);
    return mp__pool_trace_stacks(pool, events > 0 ? depth : 0);
}

PyObject *core_pool_trace(PyObject *self, PyObject *const *args, Py_ssize_t count,
                          PyObject *keywords) {
    static const char *const names[] = {"capacity", "stacks", NULL};
    core_pool *pool = (core_pool *)self;
    PyObject *given[2] = {NULL, NULL};
    size_t events = 0;
    size_t depth = 0;
    if (!core_args("trace", names, 1, args, count, keywords, given) ||
        !core_size(given[0], "capacity", &events) ||
        (given[1] != NULL && !core_size(given[1], "stacks", &depth)) || !core_pool_check(pool)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = start(pool->native, events, depth));
    if (status != MP_OK) {
        return core_raise(status);
    }
    Py_RETURN_NONE;
}

/* ---- labels ---- */

/* None: no name. False with an exception where it is no text. A name may hold a 0 only at its end,
 * as far as it is kept. */
static bool name_of(PyObject *given, const char *what, const char **out) {
    *out = NULL;
    if (given == NULL || given == Py_None) {
        return true;
    }
    if (!PyUnicode_Check(given)) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a text", what, given);
        return false;
    }
    *out = PyUnicode_AsUTF8AndSize(given, NULL);
    return *out != NULL;
}

PyObject *core_label_make(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const char *node = NULL;
    const char *tensor = NULL;
    (void)module;
    if (count != 3) {
        return PyErr_Format(PyExc_TypeError, "make_label() takes a kind, a node and a tensor");
    }
    if (!name_of(args[1], "the name of a label", &node) ||
        !name_of(args[2], "the tensor of a label", &tensor)) {
        return NULL;
    }
    for (mp_label_kind kind = MP_LABEL_OTHER;
         PyUnicode_Check(args[0]) && kind <= MP_LABEL_WORKSPACE; kind++) {
        if (PyUnicode_CompareWithASCIIString(args[0], mp__label_kind_name(kind)) == 0) {
            return PyLong_FromUnsignedLong(mp_label_make(kind, node, tensor));
        }
    }
    (void)core_reject("the kind of a label is %R; it must be 'weights', 'activations', "
                      "'workspace' or 'other'",
                      args[0]);
    return NULL;
}

PyObject *core_label_set(PyObject *module, PyObject *label) {
    size_t number = 0;
    (void)module;
    if (!core_size(label, "a label", &number)) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(mp_label_set(number <= UINT16_MAX ? (mp_label)number : 0));
}
