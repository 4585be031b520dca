/* core_buffer.c - the type Buffer: a block that is freed with its last reference.
 *
 * The last reference may go on any thread and at any time, also while the interpreter ends; nothing
 * here then needs more than the object, its Pool and the C library.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "pool/pool_handle.h"

#include <stddef.h>
#include <structmember.h>

PyTypeObject *core_buffer_type;

static core_buffer *make(core_pool *pool, mp_addr addr, size_t size, void *stream) {
    core_buffer *buffer = PyObject_New(core_buffer, core_buffer_type);
    if (buffer == NULL) {
        return NULL;
    }
    Py_INCREF((PyObject *)pool);
    core_pool_enter(pool);
    buffer->pool = pool;
    buffer->addr = addr;
    buffer->size = size;
    buffer->stream = stream;
    buffer->block = NULL;
    buffer->region = 0;
    buffer->views = 0;
    buffer->weak = NULL;
    return buffer;
}

PyObject *core_buffer_make(core_pool *pool, mp_addr addr, size_t size, void *stream) {
    core_buffer *buffer = make(pool, addr, size, stream);
    if (buffer == NULL) {
        (void)core_give_back(pool, addr, CORE_SAME_STREAM);
    }
    return (PyObject *)buffer;
}

PyObject *core_buffer_make_opened(core_pool *pool, mp_addr region, size_t offset, size_t size) {
    core_buffer *buffer = make(pool, region + offset, size, MP_NO_STREAM);
    if (buffer == NULL) {
        CORE_CALL(pool, (void)mp_pool_ipc_close(pool->native, region));
    } else {
        buffer->region = region;
    }
    return (PyObject *)buffer;
}

bool core_buffer_check(const core_buffer *buffer) {
    return buffer->addr != 0 || core_reject("the buffer is freed");
}

/* ---- giving back ---- */

/* Where others use the block too, it goes back with the last of them, after `stream` as well. */
static mp_status give_up_share(core_pool *pool, core_block *block, mp_addr addr, void *stream) {
    mp_status status = MP_OK;
    if (block->region == 0 && stream != CORE_SAME_STREAM && stream != MP_NO_STREAM) {
        status = mp__pool_record_end(pool->native, addr, stream);
    }
    core_block_drop(block);
    return status;
}

static mp_status give_back(core_buffer *buffer, void *stream) {
    core_pool *pool = buffer->pool;
    core_block *block = buffer->block;
    const mp_addr addr = buffer->addr;
    mp_status status = MP_OK;
    if (addr == 0) {
        return MP_OK;
    }
    buffer->addr = 0;
    buffer->block = NULL;
    if (block == NULL && buffer->region != 0) {
        CORE_CALL(pool, status = mp_pool_ipc_close(pool->native, buffer->region));
    } else if (block == NULL) {
        status = core_give_back(pool, addr, stream);
    } else {
        CORE_CALL(pool, status = give_up_share(pool, block, addr, stream));
    }
    core_pool_leave(pool);
    return status;
}

static void buffer_dealloc(PyObject *self) {
    core_buffer *buffer = (core_buffer *)self;
    core_pool *pool = buffer->pool;
    PyTypeObject *type = Py_TYPE(self);
    if (buffer->weak != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    const mp_status status = give_back(buffer, CORE_SAME_STREAM);
    if (status != MP_OK && status != MP_UNSUPPORTED) { /* that is a forked child, which leaves it */
        core_report(status, (PyObject *)type);
    }
    PyObject_Free(self);
    Py_DECREF(type);
    Py_DECREF((PyObject *)pool);
}

static PyObject *free_on(core_buffer *buffer, void *stream) {
    if (buffer->views > 0) {
        return PyErr_Format(PyExc_BufferError,
                            "%zd views of the buffer's memory exist; release them first",
                            buffer->views);
    }
    const mp_status status = give_back(buffer, stream);
    if (status != MP_OK) {
        return core_raise(status);
    }
    Py_RETURN_NONE;
}

static PyObject *buffer_free(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords) {
    static const char *const names[] = {"stream", NULL};
    PyObject *given = NULL;
    void *stream = NULL;
    if (!core_args("free", names, 0, args, count, keywords, &given) ||
        !core_stream_or(given, CORE_SAME_STREAM, &stream)) {
        return NULL;
    }
    return free_on((core_buffer *)self, stream);
}

static PyObject *buffer_exit(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    (void)args;
    (void)count;
    return free_on((core_buffer *)self, CORE_SAME_STREAM);
}

static PyObject *buffer_enter(PyObject *self, PyObject *unused) {
    (void)unused;
    return core_buffer_check((core_buffer *)self) ? Py_NewRef(self) : NULL;
}

static PyObject *buffer_record_use(PyObject *self, PyObject *given) {
    const core_buffer *buffer = (core_buffer *)self;
    void *stream = NULL;
    if (!core_stream(given, &stream) || !core_buffer_check(buffer)) {
        return NULL;
    }
    if (buffer->region != 0) {
        Py_RETURN_NONE; /* the device is waited for before it is closed */
    }
    mp_status status = MP_OK;
    CORE_CALL(buffer->pool,
              status = mp_pool_record_use(buffer->pool->native, buffer->addr, stream));
    if (status != MP_OK) {
        return core_raise(status);
    }
    Py_RETURN_NONE;
}

/* ---- looking at it ---- */

static PyObject *buffer_number(PyObject *self) {
    const core_buffer *buffer = (core_buffer *)self;
    return core_buffer_check(buffer) ? PyLong_FromSize_t(buffer->addr) : NULL;
}

static PyObject *buffer_address(PyObject *self, void *unused) {
    (void)unused;
    return buffer_number(self);
}

static PyObject *buffer_stream(PyObject *self, void *unused) {
    (void)unused;
    return core_stream_object(((core_buffer *)self)->stream);
}

static Py_ssize_t buffer_length(PyObject *self) {
    return (Py_ssize_t)((core_buffer *)self)->size;
}

static int buffer_bool(PyObject *self) {
    (void)self; /* as an object, not by its length: an empty block is one too */
    return 1;
}

static const char *word_of(const core_buffer *buffer) {
    return buffer->region != 0       ? "another process's"
           : buffer->pool->is_pinned ? "pinned"
                                     : "device";
}

static PyObject *buffer_repr(PyObject *self) {
    const core_buffer *buffer = (core_buffer *)self;
    const core_pool *pool = buffer->pool;
    if (buffer->addr == 0) {
        return PyUnicode_FromFormat("<millpond.Buffer of %zu bytes of %U, freed>", buffer->size,
                                    pool->device);
    }
    return PyUnicode_FromFormat("<millpond.Buffer of %zu bytes of %s memory of %U at %p>",
                                buffer->size, word_of(buffer), pool->device, (void *)buffer->addr);
}

static PyObject *buffer_html(PyObject *self, PyObject *unused) {
    (void)unused;
    return core_html(self, "buffer_table");
}

/* ---- the type ---- */

static PyMemberDef members[] = {
    {"size", T_ULONGLONG, offsetof(core_buffer, size), READONLY, "Bytes, as asked for."},
    {"nbytes", T_ULONGLONG, offsetof(core_buffer, size), READONLY, "The same as `size`."},
    {"pool", T_OBJECT_EX, offsetof(core_buffer, pool), READONLY, "The Pool that allocated it."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(core_buffer, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
_Static_assert(sizeof(size_t) == sizeof(unsigned long long), "`size` is read as T_ULONGLONG");

static PyGetSetDef properties[] = {
    {"address", buffer_address, NULL, "Where it begins.", NULL},
    {"stream", buffer_stream, NULL, "Handle of the stream it was allocated on; None: without one.",
     NULL},
    {"__cuda_array_interface__", core_buffer_cuda_array, NULL,
     "Version 3, as bytes. AttributeError where the memory is the host's.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)

static PyMethodDef methods[] = {
    {"record_use", buffer_record_use, METH_O,
     "record_use($self, stream, /)\n--\n\n"
     "Work queued on `stream` from now on, another one than it was allocated on, uses it too:\n"
     "that comes after earlier users of the memory, which is allocated again only after it."},
    {"free", CORE_METHOD(buffer_free), KEYWORDS,
     "free($self, stream=...)\n--\n\n"
     "Gives it back now, in the order of `stream`, by default its own. None: nothing uses it.\n"
     "A second call does nothing. Memory that DLPack has passed on goes back with its last\n"
     "user. Raises BufferError while there are memoryviews of it."},
    {"copy_to_host", CORE_METHOD(core_buffer_copy_to_host), KEYWORDS,
     "copy_to_host($self, target=None, stream=...)\n--\n\n"
     "Its bytes, or as many as `target` has room for, in memory of the host: in `target`, which\n"
     "has the buffer protocol, or in a new bytearray. Returns that. Waits for what is queued on\n"
     "`stream`, by default its own, and for the copy."},
    {"copy_from_host", CORE_METHOD(core_buffer_copy_from_host), KEYWORDS,
     "copy_from_host($self, source, stream=...)\n--\n\n"
     "Copies `source`, which has the buffer protocol, to its begin. Waits for what is queued on\n"
     "`stream`, by default its own, and for the copy."},
    {"__dlpack__", CORE_METHOD(core_buffer_dlpack), KEYWORDS,
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A capsule of its bytes, which stay allocated until the consumer lets go. Raises BufferError\n"
     "for another device or a copy."},
    {"__dlpack_device__", core_buffer_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self)\n--\n\nKind and number of the device: (2, 0) is \"cuda:0\"."},
    {"__bytes__", core_buffer_bytes, METH_NOARGS,
     "__bytes__($self)\n--\n\nA copy, where the host can read the memory; else BufferError."},
    {"_repr_html_", buffer_html, METH_NOARGS, NULL},
    {"__enter__", buffer_enter, METH_NOARGS, NULL},
    {"__exit__", CORE_METHOD(buffer_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* The buffer protocol is part of the stable ABI since CPython 3.11; 3.10 has the same slots. */
enum { SLOT_GET_BUFFER = 1, SLOT_RELEASE_BUFFER = 2 };

static PyType_Slot slots[] = {
    {Py_tp_dealloc, CORE_SLOT(buffer_dealloc)},
    {Py_tp_repr, CORE_SLOT(buffer_repr)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {Py_nb_int, CORE_SLOT(buffer_number)},
    {Py_nb_index, CORE_SLOT(buffer_number)},
    {Py_nb_bool, CORE_SLOT(buffer_bool)},
    {Py_sq_length, CORE_SLOT(buffer_length)},
    {SLOT_GET_BUFFER, CORE_SLOT(core_buffer_get)},
    {SLOT_RELEASE_BUFFER, CORE_SLOT(core_buffer_release)},
    {Py_tp_doc,
     (void *)(uintptr_t) "A block allocated by a Pool; freed with its last reference, in the "
                         "order of its stream.\n\n"
                         "Speaks __cuda_array_interface__ (version 3) and DLPack as a flat array "
                         "of bytes, and where\nthe memory is the host's the buffer protocol. Any "
                         "thread may drop it, at exit too."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "millpond.Buffer",
    .basicsize = sizeof(core_buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int core_buffer_add(PyObject *module) {
    if (core_buffer_type == NULL) {
        core_buffer_type = (PyTypeObject *)PyType_FromSpec(&spec);
    }
    return core_buffer_type != NULL
               ? PyObject_SetAttrString(module, "Buffer", (PyObject *)core_buffer_type)
               : -1;
}
