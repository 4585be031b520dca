/* core_hook.c - Python functions that are called before a request for memory fails.
 *
 * The C library calls a hook without locks of its own, on the thread that asks, and
 * mp_pool_remove_hook waits until nobody is in the hook. The running hook needs the GIL, so a hook
 * is taken off without it. A thread inside a hook must not take one off, as it would wait for
 * itself: where that happens all the same (the last reference to a pool goes in a hook), the hook
 * is left without a function and taken off later.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core_pool.h"

struct core_hook {
    core_hook *next;      /* of the pool, or of `late` */
    core_hook *all, **at; /* among all that can be called; `at` is what points here */
    core_handle *handle;  /* owned */
    PyObject *function;   /* owned; NULL: does nothing any more */
    bool is_off;          /* the C library does not know it any more; only at the end */
};

static core_hook *everything;
static core_hook *late; /* to be taken off by a thread that is in no hook */
static bool ended;      /* the interpreter is about to end */
static _Thread_local unsigned depth;
static _Thread_local bool is_held;

/* ---- running ---- */

/* What the function says; an exception is reported and counts as no. */
static bool ask(PyObject *function, size_t size) {
    PyObject *bytes = PyLong_FromSize_t(size);
    PyObject *answer = bytes != NULL ? PyObject_CallFunctionObjArgs(function, bytes, NULL) : NULL;
    const int freed = answer != NULL ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    Py_XDECREF(bytes);
    if (freed < 0) {
        PyErr_WriteUnraisable(function);
    }
    return freed > 0;
}

void core_hooks_hold(bool hold) {
    is_held = hold;
}

bool core_hooks_held(void) {
    return is_held;
}

static bool run(void *context, size_t size) {
    const core_hook *hook = context;
    bool freed = false;
    if (is_held) {
        return false;
    }
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *function = hook->function;
    if (function != NULL) {
        Py_INCREF(function);
        depth++;
        freed = ask(function, size);
        Py_DECREF(function);
        depth--;
    }
    PyGILState_Release(state);
    return freed;
}

/* ---- the lists ---- */

static void link_to_all(core_hook *hook) {
    hook->at = &everything;
    hook->all = everything;
    if (hook->all != NULL) {
        hook->all->at = &hook->all;
    }
    everything = hook;
}

static void unlink_from_all(core_hook *hook) {
    *hook->at = hook->all;
    if (hook->all != NULL) {
        hook->all->at = hook->at;
    }
}

/* ---- taking off ---- */

/* Waits until nobody is in the hook. */
static void switch_off(const core_hook *hook) {
    Py_BEGIN_ALLOW_THREADS(void)
        mp_pool_remove_hook(hook->handle->pool, run, (void *)(uintptr_t)hook);
    Py_END_ALLOW_THREADS
}

static void forget(core_hook *hook) {
    unlink_from_all(hook);
    core_handle_drop(hook->handle); /* of a pool that is open: waits for nothing */
    PyMem_Free(hook);
}

/* Takes: `hook`, in no list of a pool. */
static void take_off(core_hook *hook) {
    PyObject *function = hook->function;
    hook->function = NULL;
    if (depth > 0) {
        hook->next = late;
        late = hook;
    } else if (!hook->is_off) { /* else somebody may still be in it, and the process ends */
        switch_off(hook);
        forget(hook);
    }
    Py_XDECREF(function);
}

void core_hooks_sweep(void) {
    while (depth == 0 && late != NULL) {
        core_hook *hook = late;
        late = hook->next;
        take_off(hook);
    }
}

void core_hooks_drop(core_pool *pool) {
    while (pool->hooks != NULL) {
        core_hook *hook = pool->hooks;
        pool->hooks = hook->next;
        pool->hook_changes++;
        take_off(hook);
    }
}

static core_hook *first_on(void) {
    core_hook *hook = everything;
    while (hook != NULL && hook->is_off) {
        hook = hook->all;
    }
    return hook;
}

void core_hooks_end(void) {
    ended = true;
    core_hooks_sweep();
    for (core_hook *hook = first_on(); hook != NULL; hook = first_on()) {
        hook->is_off = true;
        switch_off(hook);
    }
}

int core_hooks_visit(const core_pool *pool, visitproc visit, void *arg) {
    for (const core_hook *hook = pool->hooks; hook != NULL; hook = hook->next) {
        Py_VISIT(hook->function);
    }
    return 0;
}

/* ---- methods ---- */

/* Takes: a reference to the function, if it succeeds. */
static core_hook *make(core_pool *pool, PyObject *function) {
    core_hook *hook = PyMem_Malloc(sizeof *hook);
    if (hook == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *hook = (core_hook){.handle = pool->handle, .function = Py_NewRef(function)};
    core_handle_keep(pool->handle);
    link_to_all(hook);
    return hook;
}

PyObject *core_pool_add_hook(PyObject *self, PyObject *function) {
    core_pool *pool = (core_pool *)self;
    if (!PyCallable_Check(function)) {
        return PyErr_Format(PyExc_TypeError, "a hook is a function of a size, not %R", function);
    }
    if (ended) {
        return PyErr_Format(core_unsupported, "the interpreter is ending; no hook would be called");
    }
    core_hooks_sweep();
    core_hook *hook = core_pool_check(pool) ? make(pool, function) : NULL;
    if (hook == NULL) {
        return NULL;
    }
    mp_status status = MP_OK;
    CORE_CALL(pool, status = mp_pool_add_hook(pool->native, run, hook));
    if (status != MP_OK) {
        (void)core_raise(status);
        Py_DECREF(function);
        forget(hook);
        return NULL;
    }
    hook->next = pool->hooks;
    pool->hooks = hook;
    pool->hook_changes++;
    Py_RETURN_NONE;
}

/* The link to the hook of this function, or to NULL at the end; NULL with an exception. To compare
 * may run anything, also what changes the list: then it begins again. */
static core_hook **find(core_pool *pool, PyObject *function) {
    core_hook **link = &pool->hooks;
    while (*link != NULL) {
        const size_t changes = pool->hook_changes;
        PyObject *other = Py_NewRef((*link)->function);
        const int same = PyObject_RichCompareBool(other, function, Py_EQ);
        Py_DECREF(other);
        if (same < 0) {
            return NULL;
        }
        if (changes != pool->hook_changes) {
            link = &pool->hooks;
        } else if (same > 0) {
            return link;
        } else {
            link = &(*link)->next;
        }
    }
    return link;
}

PyObject *core_pool_remove_hook(PyObject *self, PyObject *function) {
    core_pool *pool = (core_pool *)self;
    if (depth > 0) {
        return PyErr_Format(core_unsupported, "a hook cannot be removed while a hook runs on this "
                                              "thread; remove it after the request");
    }
    core_hooks_sweep();
    core_hook **link = find(pool, function);
    if (link == NULL) {
        return NULL;
    }
    core_hook *hook = *link;
    if (hook == NULL) {
        return PyErr_Format(core_not_found, "the pool has no hook %R", function);
    }
    *link = hook->next;
    pool->hook_changes++;
    take_off(hook);
    Py_RETURN_NONE;
}
