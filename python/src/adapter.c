/* adapter.c - pools by the number of a device, opened on first use and kept for good.
 * SPDX-License-Identifier: Apache-2.0 */
#include "adapter.h"

#include "base/status.h"
#include "pool/pool_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mp_status check(int number) {
    if (number < 0 || number >= ADAPTER_DEVICES_MAX) {
        return MP_FAIL(INVALID_ARGUMENT, "device %d asked for; numbers go from 0 to %d", number,
                       ADAPTER_DEVICES_MAX - 1);
    }
    return MP_OK;
}

static mp_status make(const char *client, const char *name, adapter_pool **out) {
    adapter_pool *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a pool");
    }
    const mp_status status = mp_pool_open(name, MP_MEMORY_DEVICE, client, NULL, &fresh->pool);
    if (status != MP_OK) {
        free(fresh);
        return status;
    }
    fresh->device = mp__pool_device(fresh->pool);
    *out = fresh;
    return MP_OK;
}

static mp_status check_same(const adapter_pool *open, int number, const char *name) {
    mp_pool_device told;
    MP_TRY(mp_pool_get_device(open->pool, &told, sizeof told));
    if (strcmp(told.device, name) != 0) {
        return MP_FAIL(UNSUPPORTED, "device %d is %s already and cannot become %s in this process",
                       number, told.device, name);
    }
    return MP_OK;
}

mp_status adapter_open(adapter *a, int number, const char *name) {
    MP_TRY(check(number));
    (void)pthread_mutex_lock(&a->lock);
    adapter_pool *open = adapter_known(a, number);
    mp_status status = MP_OK;
    if (open != NULL) {
        status = check_same(open, number, name);
    } else {
        status = make(a->client, name, &open);
        if (status == MP_OK) {
            atomic_store_explicit(&a->pools[number], open, memory_order_release);
        }
    }
    (void)pthread_mutex_unlock(&a->lock);
    return status;
}

mp_status adapter_pool_of(adapter *a, int number, adapter_pool **out) {
    MP_TRY(check(number));
    *out = adapter_known(a, number);
    if (*out == NULL) {
        char name[sizeof "cuda:-2147483648"];
        (void)snprintf(name, sizeof name, "cuda:%d", number);
        MP_TRY(adapter_open(a, number, name));
        *out = adapter_known(a, number);
    }
    return MP_OK;
}

adapter_pool *adapter_next(adapter *a, int *number) {
    while (++*number < ADAPTER_DEVICES_MAX) {
        adapter_pool *open = adapter_known(a, *number);
        if (open != NULL) {
            return open;
        }
    }
    return NULL;
}
