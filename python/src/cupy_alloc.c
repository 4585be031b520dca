/* cupy_alloc.c - the functions that cupy.cuda.CFunctionAllocator calls, with the GIL held.
 *
 * CuPy passes neither the stream nor the size at a free, and takes NULL for an address. It lets a
 * C++ exception pass as the Python exception that is set; so that is how a failure is told, with
 * std::bad_alloc, whatever the Python exception. The current stream comes from CuPy's own C
 * function, whose address Python has looked up. A block is freed in the order of the stream it was
 * allocated on, and of the stream that is current where its last array goes: that one most likely
 * used it last.
 *
 * The GIL is given up where a call may wait, see core_lend.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "adapter.h"
#include "base/log.h"
#include "base/status.h"
#include "pool/pool_handle.h"

#include <dlfcn.h>

typedef intptr_t stream_fn(int device);  /* this thread's current one; -1 with an exception */
typedef int hooks_fn(int skip_dispatch); /* whether this thread has memory hooks; -1 likewise */

static adapter cupy = {.client = "cupy", .lock = PTHREAD_MUTEX_INITIALIZER};

typedef void throw_fn(void);

static stream_fn *current_stream;
static hooks_fn *has_hooks; /* NULL: no thread has ever had hooks */
static throw_fn *throw_bad_alloc;
static bool is_ending;        /* of the interpreter: blocks still come back, but CuPy may be gone */
static PyObject *open_device; /* owned; (device): opens its pool by millpond_cupy_open */
static PyObject *raise_failure; /* owned; (sentence, size, device): raises CuPy's out of memory */
static PyObject *call_hooks;    /* owned; (name, device, size, address) */

CORE_EXPORT int millpond_cupy_open(int device, const char *name);
CORE_EXPORT int millpond_cupy_prepare(uintptr_t stream, PyObject *opener, PyObject *failure,
                                      PyObject *hook_caller);
CORE_EXPORT int millpond_cupy_watch_hooks(uintptr_t hooks);
CORE_EXPORT int millpond_cupy_end(void);
CORE_EXPORT void *millpond_cupy_lend(size_t size, int device);
CORE_EXPORT void *millpond_cupy_alloc(void *unused, size_t size, int device);
CORE_EXPORT void millpond_cupy_free(void *unused, void *memory, int device);

/* ---- for millpond.cupy ---- */

int millpond_cupy_open(int device, const char *name) {
    return (int)adapter_open(&cupy, device, name);
}

static void set(PyObject **kept, PyObject *given) {
    PyObject *old = *kept;
    *kept = Py_NewRef(given);
    Py_XDECREF(old);
}

/* `stream` is the address of a function; the objects are callables. Returns 0, or 1 where the
 * library that C++ exceptions come from is not in the process. */
int millpond_cupy_prepare(uintptr_t stream, PyObject *opener, PyObject *failure,
                          PyObject *hook_caller) {
    current_stream = (stream_fn *)stream;
    set(&open_device, opener);
    set(&raise_failure, failure);
    set(&call_hooks, hook_caller);
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library != NULL ? dlsym(library, "_ZSt17__throw_bad_allocv") : NULL;
    throw_bad_alloc = (throw_fn *)(uintptr_t)found;
    return found == NULL;
}

/* From now on threads may have hooks, which `hooks`, the address of a function, tells. Returns 0.
 */
int millpond_cupy_watch_hooks(uintptr_t hooks) {
    has_hooks = (hooks_fn *)hooks;
    return 0;
}

/* To be called as the interpreter ends. Returns 0. */
int millpond_cupy_end(void) {
    is_ending = true;
    return 0;
}

/* ---- hooks of CuPy ---- */

/* False with an exception. `address` is 0 where there is none. */
static bool hook(const char *name, int device, size_t size, const void *address) {
    PyObject *done =
        PyObject_CallFunction(call_hooks, "siKK", name, device, (unsigned long long)size,
                              (unsigned long long)(uintptr_t)address);
    Py_XDECREF(done);
    return done != NULL;
}

/* The same where nothing may be raised, and an exception may be under way. */
static void hook_aside(const char *name, int device, size_t size, const void *address) {
    PyObject *type = NULL;
    PyObject *value = NULL;
    PyObject *trace = NULL;
    PyErr_Fetch(&type, &value, &trace);
    if (!hook(name, device, size, address)) {
        PyErr_WriteUnraisable(call_hooks);
    }
    PyErr_Restore(type, value, trace);
}

/* ---- allocating ---- */

static void *fail(mp_status status, size_t size, int device) {
    if (status != MP_OUT_OF_MEMORY) {
        return core_raise(status);
    }
    PyObject *done = PyObject_CallFunction(raise_failure, "sKi", mp_error_message(),
                                           (unsigned long long)size, device);
    if (done != NULL) { /* it was to raise */
        Py_DECREF(done);
        return core_raise(status);
    }
    return NULL;
}

/* The pool of a device, opened on first use; NULL with an exception. */
static const adapter_pool *pool_of(int device) {
    const adapter_pool *from = adapter_known(&cupy, device);
    if (from != NULL) {
        return from;
    }
    PyObject *done = PyObject_CallFunction(open_device, "i", device);
    Py_XDECREF(done);
    from = adapter_known(&cupy, device);
    if (done != NULL && from == NULL) {
        PyErr_Format(core_error, "the pool of device %d was not opened", device);
    }
    return done != NULL ? from : NULL;
}

static void *lend(size_t size, int device) {
    const adapter_pool *from = pool_of(device);
    const intptr_t stream = from != NULL ? current_stream(device) : -1;
    if (from == NULL || (stream == -1 && PyErr_Occurred() != NULL)) {
        return NULL;
    }
    mp_addr addr = 0;
    mp_status status = mp__pool_try_alloc(from->pool, size, (void *)stream, &addr);
    if (status == MP_BUSY) {
        PyThreadState *thread = PyEval_SaveThread();
        status = mp_pool_alloc(from->pool, size, (void *)stream, &addr);
        PyEval_RestoreThread(thread);
    }
    return status == MP_OK ? (void *)addr : fail(status, size, device);
}

static void *lend_with_hooks(size_t size, int device) {
    if (!hook("malloc_preprocess", device, size, NULL)) {
        return NULL;
    }
    void *memory = lend(size, device);
    if (memory == NULL) {
        hook_aside("malloc_postprocess", device, size, NULL);
    } else if (!hook("malloc_postprocess", device, size, memory)) {
        millpond_cupy_free(NULL, memory, device);
        return NULL;
    }
    return memory;
}

/* NULL with an exception. */
void *millpond_cupy_lend(size_t size, int device) {
    const int hooked = has_hooks != NULL ? has_hooks(0) : 0;
    if (hooked == 0) {
        return lend(size, device);
    }
    return hooked > 0 ? lend_with_hooks(size, device) : NULL;
}

void *millpond_cupy_alloc(void *unused, size_t size, int device) {
    (void)unused;
    void *memory = millpond_cupy_lend(size, device);
    if (memory == NULL) {
        throw_bad_alloc();
    }
    return memory;
}

/* ---- taking back ---- */

/* The stream that most likely used a block last; MP_NO_STREAM where it cannot be told. */
static void *last_stream(int device) {
    const intptr_t current = is_ending ? -1 : current_stream(device);
    if (current == -1) {
        PyErr_Clear();
        return MP_NO_STREAM;
    }
    return (void *)current;
}

static bool is_hooked(void) {
    const int hooked = is_ending || has_hooks == NULL ? 0 : has_hooks(0);
    if (hooked < 0) {
        PyErr_Clear();
    }
    return hooked > 0;
}

/* Without the GIL. `stream` MP_NO_STREAM: none is known to have used it since. Where its use cannot
 * be declared, the device is waited for; but not in a forked child, where nothing can be done. */
static mp_status free_slowly(const adapter_pool *from, mp_addr addr, void *stream) {
    mp_block_info block;
    if (stream != MP_NO_STREAM && mp__pool_record_end(from->pool, addr, stream) != MP_OK) {
        MP_TRY(mp_pool_find(from->pool, addr, &block));
        MP_TRY(from->device->ops->synchronize(from->device));
    }
    return mp_pool_free(from->pool, addr);
}

/* `memory` was allocated, so the pool is open. */
static void give_back(void *memory, int device) {
    const adapter_pool *from = adapter_known(&cupy, device);
    const mp_addr addr = (mp_addr)memory;
    void *stream = last_stream(device);
    mp_status status = mp__pool_try_free_on(from->pool, addr, stream); /* its own one? */
    if (status == MP_BUSY) {
        PyThreadState *thread = PyEval_SaveThread();
        status = free_slowly(from, addr, stream);
        PyEval_RestoreThread(thread);
    }
    if (status != MP_OK && status != MP_UNSUPPORTED) { /* that is a forked child, which leaves it */
        MP_LOG(ERROR, "%s", mp_error_message());
    }
}

static size_t size_of(const void *memory, int device) {
    mp_block_info block;
    mp_pool *pool = adapter_known(&cupy, device)->pool;
    return mp_pool_find(pool, (mp_addr)memory, &block) == MP_OK ? block.requested : 0;
}

void millpond_cupy_free(void *unused, void *memory, int device) {
    (void)unused;
    PyObject *type = NULL;
    PyObject *value = NULL;
    PyObject *trace = NULL;
    PyErr_Fetch(&type, &value, &trace); /* an array may go while an exception is under way */
    if (is_hooked()) {
        const size_t size = size_of(memory, device);
        hook_aside("free_preprocess", device, size, memory);
        give_back(memory, device);
        hook_aside("free_postprocess", device, size, memory);
    } else {
        give_back(memory, device);
    }
    PyErr_Restore(type, value, trace);
}
