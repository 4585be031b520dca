/* adapter.h - pools by the number of a device, for the C functions that CuPy and PyTorch call.
 *
 * A framework calls with a device's number and nothing else, often, from any thread. So each
 * adapter keeps one handle a device, opened on first use and never closed: blocks may come back
 * until the process has ended.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_PYTHON_ADAPTER_H
#define MP_PYTHON_ADAPTER_H

#include "base/macros.h"
#include "device/device.h"
#include "millpond/millpond.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { ADAPTER_DEVICES_MAX = 64 };

typedef struct adapter_pool {
    mp_pool *pool;
    mp_device *device; /* borrowed, for good */
} adapter_pool;

typedef struct adapter {
    const char *client; /* whom statistics name */
    pthread_mutex_t lock;
    _Atomic(adapter_pool *) pools[ADAPTER_DEVICES_MAX];
} adapter;

/* The pool of a device that is open; NULL where it is not. */
static inline adapter_pool *adapter_known(adapter *a, int number) {
    const bool is_number = number >= 0 && number < ADAPTER_DEVICES_MAX;
    return is_number ? atomic_load_explicit(&a->pools[number], memory_order_acquire) : NULL;
}

/* Lets `name` ("cuda:0", "host:0") be what the framework calls device `number`.
 * Fails: as mp_pool_open; UNSUPPORTED where the number stands for another device already. */
MP_MUST_CHECK mp_status adapter_open(adapter *a, int number, const char *name);

/* The pool of a device; opens "cuda:<number>" on first use. Fails: as mp_pool_open. */
MP_MUST_CHECK mp_status adapter_pool_of(adapter *a, int number, adapter_pool **out);

/* The pool of the next device after `*number` (-1 to begin) that is open; NULL: no more. */
adapter_pool *adapter_next(adapter *a, int *number);

#endif
