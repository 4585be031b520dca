/* tensor.c - any object's memory as a DLPack tensor, and what a tensor of another library is.
 *
 * A tensor made here holds a reference to the object that owns the memory. Who has the tensor may
 * let it go on any thread, with the GIL or not, also while the interpreter ends: then the object is
 * left alone.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "core_dlpack.h"
#include "pool/pool_handle.h"

#include <pthread.h>
#include <stdlib.h>

enum { RANK_MAX = 64 };

CORE_EXPORT PyObject *millpond_tensor_make(PyObject *given);
CORE_EXPORT PyObject *millpond_tensor_read(PyObject *capsule);
CORE_EXPORT PyObject *millpond_stream_wait(PyObject *given, PyObject *stream);
CORE_EXPORT PyObject *millpond_tensors_end(void);

static const char plain_name[] = "dltensor";
static const char versioned_name[] = "dltensor_versioned";

/* ---- the end of the interpreter ---- */

static atomic_bool is_ending; /* its atexit functions have begun: other threads must stay out */
static atomic_bool is_over;   /* there is none any more */
static pthread_t ending_thread;

static void end(void) {
    atomic_store(&is_over, true);
}

/* Registered with atexit by Python. */
PyObject *millpond_tensors_end(void) {
    ending_thread = pthread_self();
    atomic_store(&is_ending, true);
    (void)Py_AtExit(end);
    Py_RETURN_NONE;
}

static bool may_use_python(void) {
    if (atomic_load(&is_over)) {
        return false;
    }
    return !atomic_load(&is_ending) || pthread_equal(ending_thread, pthread_self()) != 0;
}

/* ---- tensors ---- */

typedef struct tensor {
    union {
        dl_managed_tensor plain;
        dl_managed_versioned versioned;
    };
    PyObject *owner; /* owned */
    int64_t shape[]; /* then as many strides */
} tensor;

static void drop(tensor *t) {
    if (may_use_python()) {
        PyObject *type, *value, *trace;
        const PyGILState_STATE state = PyGILState_Ensure();
        PyErr_Fetch(&type, &value, &trace); /* one may be on its way on this thread */
        Py_DECREF(t->owner);
        PyErr_Restore(type, value, trace);
        PyGILState_Release(state);
    }
    free(t);
}

static void drop_plain(dl_managed_tensor *self) {
    drop(self->context);
}

static void drop_versioned(dl_managed_versioned *self) {
    drop(self->context);
}

static void drop_capsule(PyObject *capsule) { /* one that was taken has another name */
    for (int versioned = 0; versioned < 2; versioned++) {
        const char *name = versioned != 0 ? versioned_name : plain_name;
        if (PyCapsule_IsValid(capsule, name) != 0) {
            drop(PyCapsule_GetPointer(capsule, name)); /* the union is the first member */
        }
    }
}

/* Reads the shape and works out the strides of a tensor without gaps. */
static bool fill_shape(tensor *t, PyObject *shape, Py_ssize_t rank) {
    int64_t step = 1;
    for (Py_ssize_t i = rank - 1; i >= 0; i--) {
        const int64_t size = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred() != NULL) {
            return false;
        }
        t->shape[i] = size;
        t->shape[rank + i] = step;
        step *= size > 0 ? size : 1;
    }
    return true;
}

static PyObject *make_capsule(tensor *t, dl_tensor about, bool versioned) {
    if (versioned) {
        t->versioned = (dl_managed_versioned){.major = DLPACK_MAJOR,
                                              .minor = DLPACK_MINOR,
                                              .context = t,
                                              .deleter = drop_versioned,
                                              .tensor = about};
    } else {
        t->plain = (dl_managed_tensor){.tensor = about, .context = t, .deleter = drop_plain};
    }
    PyObject *capsule = PyCapsule_New(t, versioned ? versioned_name : plain_name, drop_capsule);
    if (capsule != NULL) {
        (void)Py_NewRef(t->owner);
    } else {
        free(t);
    }
    return capsule;
}

/* Given (address, code, bits, (device type, device), shape, owner, versioned). */
PyObject *millpond_tensor_make(PyObject *given) {
    unsigned long long address = 0;
    int code, bits, type, device, versioned;
    PyObject *shape = NULL;
    PyObject *owner = NULL;
    if (!PyArg_ParseTuple(given, "Kii(ii)O!Op", &address, &code, &bits, &type, &device,
                          &PyTuple_Type, &shape, &owner, &versioned)) {
        return NULL;
    }
    const Py_ssize_t rank = PyTuple_Size(shape);
    if (rank > RANK_MAX) {
        (void)core_reject("an array has %zd dimensions; %d are the most", rank, (int)RANK_MAX);
        return NULL;
    }
    tensor *t = calloc(1, sizeof *t + 2 * (size_t)rank * sizeof t->shape[0]);
    if (t == NULL) {
        return PyErr_NoMemory();
    }
    if (!fill_shape(t, shape, rank)) {
        free(t);
        return NULL;
    }
    t->owner = owner;
    const dl_tensor about = {.data = (void *)(uintptr_t)address,
                             .device_type = type,
                             .device_id = device,
                             .ndim = (int32_t)rank,
                             .type_code = (uint8_t)code,
                             .type_bits = (uint8_t)bits,
                             .type_lanes = 1,
                             .shape = t->shape,
                             .strides = t->shape + rank};
    return make_capsule(t, about, versioned != 0);
}

/* ---- tensors of others ---- */

/* A tuple of numbers; None for NULL. */
static PyObject *numbers(const int64_t *from, int32_t count) {
    if (from == NULL && count > 0) {
        Py_RETURN_NONE;
    }
    PyObject *list = PyTuple_New(count);
    for (int32_t i = 0; list != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(from[i]);
        if (number == NULL || PyTuple_SetItem(list, i, number) != 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* Gives (address, code, bits, lanes, (device type, device), shape, strides or None). The capsule
 * stays as it is: it owns the tensor. */
PyObject *millpond_tensor_read(PyObject *capsule) {
    const dl_tensor *t = NULL;
    if (PyCapsule_IsValid(capsule, plain_name) != 0) {
        t = &((dl_managed_tensor *)PyCapsule_GetPointer(capsule, plain_name))->tensor;
    } else if (PyCapsule_IsValid(capsule, versioned_name) != 0) {
        t = &((dl_managed_versioned *)PyCapsule_GetPointer(capsule, versioned_name))->tensor;
    } else {
        (void)core_reject("%R is no DLPack tensor that can still be taken", capsule);
        return NULL;
    }
    PyObject *shape = numbers(t->shape, t->ndim);
    PyObject *strides = numbers(t->strides, t->ndim);
    if (shape == NULL || strides == NULL) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    const unsigned long long address = (uintptr_t)t->data + t->byte_offset;
    return Py_BuildValue("(Kiii(ii)NN)", address, (int)t->type_code, (int)t->type_bits,
                         (int)t->type_lanes, (int)t->device_type, (int)t->device_id, shape,
                         strides);
}

/* ---- order ---- */

/* Waits, without the GIL, for the work queued on `stream` of the device of the Pool given. */
PyObject *millpond_stream_wait(PyObject *given, PyObject *stream) {
    void *native = NULL;
    if (PyObject_TypeCheck(given, core_pool_type) == 0) {
        return PyErr_Format(PyExc_TypeError, "%R is no Pool", given);
    }
    core_pool *pool = (core_pool *)given;
    if (!core_pool_check(pool) || !core_stream(stream, &native)) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp__pool_follow(pool->native, MP_NO_STREAM, native));
    if (status != MP_OK) {
        return core_raise(status);
    }
    Py_RETURN_NONE;
}
