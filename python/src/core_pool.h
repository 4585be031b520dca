/* core_pool.h - the methods of Pool, by the files that have them; core_pool_type.c makes the type.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_PYTHON_CORE_POOL_H
#define MP_PYTHON_CORE_POOL_H

#include "core.h"

/* ---- core_pool.c ---- */

PyObject *core_pool_new(PyTypeObject *type, PyObject *args, PyObject *keywords);
int core_pool_traverse(PyObject *self, visitproc visit, void *arg);
int core_pool_clear(PyObject *self);
void core_pool_dealloc(PyObject *self);
PyObject *core_pool_repr(PyObject *self);
PyObject *core_pool_html(PyObject *self, PyObject *unused); /* for notebooks */
PyObject *core_pool_close(PyObject *self, PyObject *unused);
PyObject *core_pool_enter_with(PyObject *self, PyObject *unused);
PyObject *core_pool_exit_with(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* ---- core_pool_lend.c ---- */

PyObject *core_pool_alloc(PyObject *self, PyObject *const *args, Py_ssize_t count,
                          PyObject *keywords);
PyObject *core_pool_reserve(PyObject *self, PyObject *given);
PyObject *core_pool_alloc_address(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_pool_free_address(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_pool_record_use(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_pool_shrink(PyObject *self, PyObject *unused);
PyObject *core_pool_reset_peaks(PyObject *self, PyObject *unused);

/* ---- core_pool_look.c ---- */

PyObject *core_pool_stats(PyObject *self, PyObject *unused);
PyObject *core_pool_clients(PyObject *self, PyObject *unused);
PyObject *core_pool_streams(PyObject *self, PyObject *unused);
PyObject *core_pool_find(PyObject *self, PyObject *address);
PyObject *core_pool_memory_info(PyObject *self, PyObject *unused);
PyObject *core_pool_dump(PyObject *self, PyObject *unused);
PyObject *core_pool_write_trace(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *keywords);
PyObject *core_pool_ipc_export(PyObject *self, PyObject *address);
PyObject *core_pool_ipc_open(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_pool_enable_peer(PyObject *self, PyObject *ordinal);

/* ---- core_trace.c ---- */

PyObject *core_pool_trace(PyObject *self, PyObject *const *args, Py_ssize_t count,
                          PyObject *keywords);

/* ---- core_capture.c ---- */

PyObject *core_pool_stream_settled(PyObject *self, PyObject *stream);
PyObject *core_pool_stream_gone(PyObject *self, PyObject *stream);
PyObject *core_pool_stream_mark(PyObject *self, PyObject *stream);
PyObject *core_pool_stream_ordered(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *keywords);
PyObject *core_pool_capture_begin(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                  PyObject *keywords);
PyObject *core_pool_capture_end(PyObject *self, PyObject *stream);

/* ---- core_hook.c ---- */

PyObject *core_pool_add_hook(PyObject *self, PyObject *function);
PyObject *core_pool_remove_hook(PyObject *self, PyObject *function);

#endif
