/* core.h - what the files of the extension millpond._core share.
 *
 * The extension is thin: each method turns its arguments into those of one function of millpond.h.
 * It is built for the stable ABI of CPython 3.10, so one build works with every later version, and
 * runs in a process's main interpreter only; so its types and errors are plain globals.
 *
 * The interpreter lock (GIL) guards every field of the objects here. No call that may wait is made
 * under it: a thread that waits for the device, or for a lock whose holder does, would stop a host
 * function that the device runs and that needs the GIL. See core_lend.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_PYTHON_CORE_H
#define MP_PYTHON_CORE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "millpond/millpond.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What the loader finds in the extension; all else is hidden. */
#define CORE_EXPORT __attribute__((visibility("default")))

/* ISO C has no conversion from functions to void *, which slots of types ask for. */
#define CORE_SLOT(function)   ((void *)(uintptr_t)(function))
#define CORE_METHOD(function) ((PyCFunction)(void (*)(void))(function))

/* ---- core_handle.c: what outlives the objects ---- */

/* A handle of the C library; closed with the last reference, on any thread, with the GIL or not. */
typedef struct core_handle {
    atomic_size_t references;
    mp_pool *pool; /* owned */
} core_handle;

core_handle *core_handle_make(mp_pool *pool); /* NULL with an exception; takes `pool` if not */
void core_handle_keep(core_handle *handle);
void core_handle_drop(core_handle *handle);

/* An allocated block that something beside its Buffer uses, such as a DLPack tensor. */
typedef struct core_block {
    atomic_size_t references;
    core_handle *handle;
    mp_addr addr;
    mp_addr region; /* of another process, which is closed instead; 0 for a block of the pool */
} core_block;

core_block *core_block_make(core_handle *handle, mp_addr addr,
                            mp_addr region); /* NULL: no host memory */
void core_block_keep(core_block *block);
/* The last one gives the block back. Threads: any, with the GIL or not. */
void core_block_drop(core_block *block);

/* ---- core_error.c ---- */

extern PyObject *core_error, *core_out_of_memory, *core_invalid, *core_not_found, *core_unsupported;

int core_errors_add(PyObject *module);
/* Raises what the last failure on this thread was. Returns NULL. */
void *core_raise(mp_status status);
/* The same for an argument; as PyErr_Format. Returns false. */
bool core_reject(const char *format, ...);
/* Reports the failure of a call that cannot raise; keeps an exception that is set. */
void core_report(mp_status status, PyObject *where);

/* ---- core_args.c ---- */

/* Puts the arguments of a METH_FASTCALL | METH_KEYWORDS call in the order of `names` (NULL ends);
 * `out` has NULL for those not given. The first `required` must be. */
bool core_args(const char *function, const char *const *names, size_t required,
               PyObject *const *args, Py_ssize_t count, PyObject *keywords, PyObject **out);
bool core_size(PyObject *given, const char *what, size_t *out);
bool core_address(PyObject *given, mp_addr *out);
/* None: MP_NO_STREAM. An int, or an object with __cuda_stream__: the handle. */
bool core_stream(PyObject *given, void **out);
/* As core_stream, for an argument that may be absent. */
bool core_stream_or(PyObject *given, void *absent, void **out);
PyObject *core_stream_object(void *stream); /* None or an int */

/* ---- core_texts.c ---- */

typedef struct core_texts { /* "arena.key=value", for the C library; NULL ends */
    char **texts;           /* owned, each of them too */
    Py_ssize_t count;
} core_texts;

/* Of a mapping, None or NULL. `list` is to be freed also where it fails. */
bool core_texts_read(PyObject *given, core_texts *list);
void core_texts_free(core_texts *list);

/* ---- pools ---- */

typedef struct core_hook core_hook;

typedef struct core_pool {
    PyObject_HEAD mp_pool
        *native;         /* of `handle`; valid while there are users or it is not closed */
    core_handle *handle; /* owned; NULL once closed and without users */
    size_t users;        /* Buffers and Captures alive, and calls under way */
    bool is_closed;
    bool is_emulated, is_pinned;
    int32_t ordinal;
    core_hook *hooks;    /* owned */
    size_t hook_changes; /* how often that list has changed */
    PyObject *device, *name, *bus_id, *client;
    PyObject *weak;
} core_pool;

extern PyTypeObject *core_pool_type, *core_buffer_type, *core_capture_type;

int core_pool_add(PyObject *module);
int core_buffer_add(PyObject *module);
int core_capture_add(PyObject *module);

/* False with an exception where the pool is closed. */
bool core_pool_check(const core_pool *pool);
/* What a notebook shows of an object: `function` of millpond._html makes it. */
PyObject *core_html(PyObject *self, const char *function);
static inline void core_pool_enter(core_pool *pool) {
    pool->users++;
}
void core_pool_leave_last(core_pool *pool);
static inline void core_pool_leave(core_pool *pool) {
    if (--pool->users == 0 && pool->is_closed) {
        core_pool_leave_last(pool);
    }
}

/* Calls the C library without the GIL; `pool` stays open meanwhile. Leaves the thread's exception
 * alone. */
#define CORE_CALL(pool, call)                       \
    do {                                            \
        core_pool_enter(pool);                      \
        Py_BEGIN_ALLOW_THREADS(call);               \
        Py_END_ALLOW_THREADS core_pool_leave(pool); \
    } while (0)

/* ---- core_lend.c ---- */

bool core_lend(core_pool *pool, size_t size, void *stream, mp_addr *out); /* raises */
/* Frees in the order of `stream`, or CORE_SAME_STREAM; the pool has users, or is not closed. */
mp_status core_give_back(core_pool *pool, mp_addr addr, void *stream);
#define CORE_SAME_STREAM ((void *)~(uintptr_t)1)

/* ---- core_hook.c ---- */

/* While `hold`, no hook is called on this thread: it has locks that a holder of the GIL may want.
 */
void core_hooks_hold(bool hold);
bool core_hooks_held(void);
/* Takes all hooks of the pool off. */
void core_hooks_drop(core_pool *pool);
int core_hooks_visit(const core_pool *pool, visitproc visit, void *arg);
/* Takes off what could not be taken off before, since a hook was running on that thread. */
void core_hooks_sweep(void);
/* At the end of the interpreter: no hook is called afterwards. */
void core_hooks_end(void);

/* ---- core_trace.c ---- */

PyObject *core_label_make(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *core_label_set(PyObject *module, PyObject *label);
/* At the end of the interpreter: no thread's stack is looked at afterwards. */
void core_trace_end(void);

/* ---- core_log.c ---- */

/* Around a call that a Python program makes: what this thread logs inside is handed to `logging` at
 * the end, where arbitrary Python code may run. Keeps an exception that is set. */
void core_log_hold(void);
void core_log_release(void);

PyObject *core_log_start(PyObject *module, PyObject *receiver);
PyObject *core_log_flush(PyObject *module, PyObject *unused);
PyObject *core_log_threshold(PyObject *module, PyObject *level);
PyObject *core_log_end(PyObject *module, PyObject *unused);

/* ---- buffers ---- */

typedef struct core_buffer {
    PyObject_HEAD core_pool *pool; /* owned; this Buffer is one of its users until it is freed */
    mp_addr addr;                  /* 0: freed */
    size_t size;                   /* as asked for */
    void *stream;                  /* it was allocated on */
    core_block *block;             /* owned, one reference; NULL: nobody else uses it */
    mp_addr region;                /* memory of another process around it; 0: the pool's */
    Py_ssize_t views;              /* of the buffer protocol */
    PyObject *weak;
} core_buffer;

/* Takes: `addr`, which is freed when there is no memory for the object. */
PyObject *core_buffer_make(core_pool *pool, mp_addr addr, size_t size, void *stream);
/* The same of memory of another process: `region` is closed. */
PyObject *core_buffer_make_opened(core_pool *pool, mp_addr region, size_t offset, size_t size);
/* False with an exception where it is freed. */
bool core_buffer_check(const core_buffer *buffer);

/* core_export.c: the buffer protocol and __cuda_array_interface__ */
int core_buffer_get(PyObject *self, void *into, int flags);
void core_buffer_release(PyObject *self, void *view);
PyObject *core_buffer_bytes(PyObject *self, PyObject *unused);
PyObject *core_buffer_cuda_array(PyObject *self, void *unused);

/* core_copy.c */
PyObject *core_buffer_copy_to_host(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords);
PyObject *core_buffer_copy_from_host(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                     PyObject *keywords);

/* core_dlpack.c */
PyObject *core_buffer_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords);
PyObject *core_buffer_dlpack_device(PyObject *self, PyObject *unused);

#endif
