/* core_dlpack.c - a Buffer as a DLPack tensor of bytes.
 *
 * The tensor holds the block, not the Buffer: its consumer may let it go on any thread, without
 * the GIL, and after the interpreter's end. The block is then freed in the order of its own stream,
 * after the work of the consumer's stream too.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_dlpack.h"
#include "core.h"
#include "pool/pool_handle.h"

#include <stdlib.h>

/* ---- tensors ---- */

typedef struct tensor {
    union {
        dl_managed_tensor plain;
        dl_managed_versioned versioned;
    };
    core_block *block; /* owned */
    int64_t shape, stride;
} tensor;

static void drop(tensor *t) {
    core_block_drop(t->block);
    free(t);
}

static void drop_plain(dl_managed_tensor *self) {
    drop(self->context);
}

static void drop_versioned(dl_managed_versioned *self) {
    drop(self->context);
}

static dl_device_type device_type(const core_pool *pool) {
    return pool->is_emulated ? DL_CPU : pool->is_pinned ? DL_CUDA_HOST : DL_CUDA;
}

/* The number of the device; the host has one only. */
static int32_t device_id(const core_pool *pool) {
    return pool->is_emulated || pool->is_pinned ? 0 : pool->ordinal;
}

static dl_tensor describe(const core_buffer *buffer, tensor *t) {
    return (dl_tensor){.data = buffer->size > 0 ? (void *)buffer->addr : NULL,
                       .device_type = (int32_t)device_type(buffer->pool),
                       .device_id = device_id(buffer->pool),
                       .ndim = 1,
                       .type_code = 1,
                       .type_bits = 8,
                       .type_lanes = 1,
                       .shape = &t->shape,
                       .strides = &t->stride};
}

/* The block, which this Buffer and each tensor have a part in. */
static core_block *shared_block(core_buffer *buffer) {
    if (buffer->block == NULL) {
        buffer->block = core_block_make(buffer->pool->handle, buffer->addr, buffer->region);
    }
    return buffer->block;
}

static tensor *make_tensor(core_buffer *buffer, bool versioned) {
    tensor *t = calloc(1, sizeof *t);
    core_block *block = t != NULL ? shared_block(buffer) : NULL;
    if (block == NULL) {
        free(t);
        PyErr_NoMemory();
        return NULL;
    }
    core_block_keep(block);
    t->block = block;
    t->shape = (int64_t)buffer->size;
    t->stride = 1;
    if (versioned) {
        t->versioned = (dl_managed_versioned){.major = DLPACK_MAJOR,
                                              .minor = DLPACK_MINOR,
                                              .context = t,
                                              .deleter = drop_versioned,
                                              .tensor = describe(buffer, t)};
    } else {
        t->plain =
            (dl_managed_tensor){.tensor = describe(buffer, t), .context = t, .deleter = drop_plain};
    }
    return t;
}

/* ---- capsules; one that was taken has another name ---- */

static const char plain_name[] = "dltensor";
static const char versioned_name[] = "dltensor_versioned";

static void drop_capsule(PyObject *capsule) {
    for (int versioned = 0; versioned < 2; versioned++) {
        const char *name = versioned != 0 ? versioned_name : plain_name;
        if (PyCapsule_IsValid(capsule, name) != 0) {
            drop(PyCapsule_GetPointer(capsule, name)); /* the union is the first member */
        }
    }
}

static PyObject *make_capsule(core_buffer *buffer, bool versioned) {
    tensor *t = make_tensor(buffer, versioned);
    PyObject *capsule =
        t != NULL ? PyCapsule_New(t, versioned ? versioned_name : plain_name, drop_capsule) : NULL;
    if (t != NULL && capsule == NULL) {
        drop(t);
    }
    return capsule;
}

/* ---- what the consumer asks for ---- */

static bool is_none(const PyObject *given) {
    return given == NULL || given == Py_None;
}

/* A pair of numbers, such as a version or a device. */
static bool read_pair(PyObject *given, const char *what, long *first, long *second) {
    if (!PyTuple_Check(given) || PyTuple_Size(given) != 2) {
        return core_reject("%s is %R; it must be a tuple of two numbers", what, given);
    }
    *first = PyLong_AsLong(PyTuple_GetItem(given, 0));
    *second = PyLong_AsLong(PyTuple_GetItem(given, 1));
    return PyErr_Occurred() == NULL;
}

static bool wants_versioned(PyObject *max_version, bool *out) {
    long major = 0;
    long minor = 0;
    *out = false;
    if (!is_none(max_version)) {
        if (!read_pair(max_version, "max_version", &major, &minor)) {
            return false;
        }
        *out = major >= DLPACK_MAJOR;
    }
    return true;
}

static bool check_device(const core_pool *pool, PyObject *dl_device) {
    long type = 0;
    long id = 0;
    if (is_none(dl_device)) {
        return true;
    }
    if (!read_pair(dl_device, "dl_device", &type, &id)) {
        return false;
    }
    if (type != (long)device_type(pool) || id != (long)device_id(pool)) {
        PyErr_Format(PyExc_BufferError,
                     "the memory is of DLPack's device (%d, %d), and is not copied to (%ld, %ld)",
                     (int)device_type(pool), (int)device_id(pool), type, id);
        return false;
    }
    return true;
}

static bool check_copy(PyObject *copy) {
    const int wanted = is_none(copy) ? 0 : PyObject_IsTrue(copy);
    if (wanted > 0) {
        PyErr_SetString(PyExc_BufferError, "a Buffer shares its memory; it makes no copies");
    }
    return wanted == 0;
}

/* ---- order ---- */

/* -1 is a consumer that sees to the order itself. */
static bool is_minus_one(PyObject *given, bool *out) {
    int overflow = 0;
    *out = false;
    if (!is_none(given) && PyLong_Check(given)) {
        *out = PyLong_AsLongAndOverflow(given, &overflow) == -1 && overflow == 0;
    }
    return PyErr_Occurred() == NULL;
}

/* For memory that the host reads there are no streams. */
static bool host_wants(PyObject *given, bool *wanted) {
    bool minus_one = false;
    if (!is_minus_one(given, &minus_one)) {
        return false;
    }
    *wanted = !minus_one;
    return minus_one || is_none(given) ||
           core_reject("stream is %R; for memory of the host it must be None or -1", given);
}

static bool consumer_of(PyObject *given, void **out, bool *wanted) {
    bool minus_one = false;
    *out = NULL; /* None is the legacy default stream */
    if (!is_minus_one(given, &minus_one)) {
        return false;
    }
    *wanted = !minus_one;
    if (minus_one || is_none(given)) {
        return true;
    }
    if (!core_stream(given, out)) {
        return false;
    }
    return (*out != NULL && *out != MP_NO_STREAM) ||
           core_reject("stream is %R; it must be None, -1 (no order), 1, 2 or a handle", given);
}

static bool is_same(const void *left, const void *right) {
    const uintptr_t a = (uintptr_t)left;
    const uintptr_t b = (uintptr_t)right;
    return a == b || (a <= 1 && b <= 1); /* 0 and 1 are the legacy default stream */
}

/* What is queued on the buffer's stream comes before the consumer's work, and that before whatever
 * the block is allocated on next. Without the GIL. */
static mp_status pass_on(const core_buffer *buffer, void *consumer) {
    mp_pool *native = buffer->pool->native;
    const mp_status status = mp__pool_follow(native, consumer, buffer->stream);
    return status == MP_OK && consumer != MP_NO_STREAM && buffer->region == 0
               ? mp_pool_record_use(native, buffer->addr, consumer)
               : status;
}

static bool order(const core_buffer *buffer, PyObject *given) {
    void *consumer = MP_NO_STREAM; /* the host reads at once */
    core_pool *pool = buffer->pool;
    bool wanted = true;
    if (!(device_type(pool) == DL_CUDA ? consumer_of(given, &consumer, &wanted)
                                       : host_wants(given, &wanted))) {
        return false;
    }
    if (!wanted || is_same(consumer, buffer->stream)) {
        return true;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = pass_on(buffer, consumer));
    if (status != MP_OK) {
        (void)core_raise(status);
    }
    return status == MP_OK;
}

/* ---- methods ---- */

static const char *const dlpack_names[] = {"stream", "max_version", "dl_device", "copy", NULL};

PyObject *core_buffer_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords) {
    core_buffer *buffer = (core_buffer *)self;
    PyObject *given[4] = {NULL, NULL, NULL, NULL};
    bool versioned = false;
    if (count > 1) {
        return PyErr_Format(PyExc_TypeError, "__dlpack__() takes its arguments by name");
    }
    if (!core_args("__dlpack__", dlpack_names, 0, args, count, keywords, given) ||
        !core_buffer_check(buffer) || !wants_versioned(given[1], &versioned) ||
        !check_device(buffer->pool, given[2]) || !check_copy(given[3]) ||
        !order(buffer, given[0]) || !core_buffer_check(buffer)) { /* it may be freed meanwhile */
        return NULL;
    }
    return make_capsule(buffer, versioned);
}

PyObject *core_buffer_dlpack_device(PyObject *self, PyObject *unused) {
    const core_pool *pool = ((core_buffer *)self)->pool;
    (void)unused;
    return Py_BuildValue("(ii)", (int)device_type(pool), (int)device_id(pool));
}
