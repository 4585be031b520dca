/* monitor.c - which pools there are in the process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "core.h"

#include "pool/pool_registry.h"

#include <stdio.h>

enum { POOLS_MAX = 256 };

CORE_EXPORT PyObject *millpond_monitor_pools(void);

static PyObject *describe(const registry_entry *entry) {
    char device[32];
    (void)snprintf(device, sizeof device, "%s:%d", entry->kind == MP_DEVICE_HOST ? "host" : "cuda",
                   entry->ordinal);
    return Py_BuildValue("(ssO)", device, entry->memory == MP_MEMORY_PINNED ? "pinned" : "device",
                         entry->is_external ? Py_True : Py_False);
}

/* Gives [(device, memory, whether it is another library's)]; opens none. */
PyObject *millpond_monitor_pools(void) {
    registry_entry entries[POOLS_MAX];
    PyThreadState *state = PyEval_SaveThread(); /* the registry's lock may be held for a while */
    const size_t count = mp__registry_list(entries, POOLS_MAX);
    PyEval_RestoreThread(state);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count && i < POOLS_MAX; i++) {
        PyObject *item = describe(&entries[i]);
        if (item == NULL || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}
